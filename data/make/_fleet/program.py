"""One training step as a list of operations: a small mixture-of-experts model under FSDP.

Parameters are gathered and gradients scattered over the whole job; tokens go to
their experts and back inside each node. All ranks run the same list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench._shared.numbers import Floats, Ints

COMPUTE_STREAM = 7
JOB_STREAM = 20
NODE_STREAM = 24

_TOKENS, _WIDTH, _EXPERT_WIDTH, _EXPERTS_PER_TOKEN, _LAYERS = 8192, 4096, 14336, 2, 6
_LAYER_WEIGHTS = 268_435_456
_VOCABULARY = 32_000
_FLOP_PER_NS = 550_000.0
_HBM_BYTES_PER_NS = 2_600.0

_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, "
    "float*, c10::BFloat16*)"
)
_ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add"
    "<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add"
    "<c10::BFloat16>, std::array<char*, 3ul>)"
)
_SILU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::"
    "TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, "
    "std::array<char*, 2ul>)"
)
_SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 3, false, false>"
    "(float*, float const*, int, int, int)"
)
_GROUPED = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::"
    "GroupProblemShape<cute::tuple<int, int, int> > > >(Params)"
)
_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
    "(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous "
    "namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1> >"
)
_NORM_OF_GRADIENTS = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
    "(anonymous namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::"
    "LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0> >"
)
_EMBEDDING = (
    "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(char*, char*, "
    "long*, int, long, long, long, long, bool)"
)
_LOSS = (
    "void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, (anonymous "
    "namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)


@dataclass(frozen=True)
class Op:
    """One thing the host does in a step, and what the GPU does for it."""

    kind: str  # host, kernel, copy, collective, join or sync; graph or unrecorded: work unseen
    calls: tuple[str, ...] = ()  # CPU ops, outermost first
    phase: str = "forward"
    gpu_name: str = ""
    gpu_ns: int = 0
    host_ns: int = 0
    stream: int = COMPUTE_STREAM
    size_bytes: int = 0
    collective: str = ""
    annotation: str = ""
    group: str = ""  # job or node
    event: str = ""  # what a collective signals when it ends, and what a join waits for
    in_count: int = 0
    out_count: int = 0
    dtype: str = ""

    @property
    def is_backward(self) -> bool:
        """Whether PyTorch issues it from the thread that walks the graph backwards."""
        return self.phase == "backward"


_PYTHON = Op("host", phase="", host_ns=180_000)  # untraced Python between two phases


def training_step(cluster: Cluster, ranks: int, gpus_per_node: int) -> list[Op]:
    """Return the operations of one step in the order in which the host issues them."""
    net = _Network(cluster, ranks, gpus_per_node)
    last = _LAYERS - 1
    ops = [*_data(cluster), net.gather("forward", 0)]
    ops += [_kernel("forward", "aten::embedding", _EMBEDDING, _memory_ns(2 * _TOKENS * _WIDTH))]
    for layer in range(_LAYERS):
        ops += [net.gather("forward", layer + 1)] if layer < last else []
        ops += [_join(f"forward weights {layer}", "forward"), *_layer_forward(net)]
    head = _matmul("forward", _WIDTH, _VOCABULARY)
    loss = _kernel("forward", "aten::cross_entropy_loss", _LOSS, _memory_ns(8 * _TOKENS * 32_000))
    ops += [head, loss, _PYTHON]
    ops += [replace(head, phase="backward", calls=_backward_calls(head.calls))] * 2
    for layer in reversed(range(_LAYERS)):
        ops += [net.gather("backward", layer - 1)] if layer > 0 else []
        ops += [_join(f"backward weights {layer}", "backward")] if layer < last else []
        ops += [*_layer_backward(net), net.scatter()]
    return [*ops, _PYTHON, _join("gradients", "optimizer"), *_update(net), *_log()]


@dataclass(frozen=True)
class _Network:
    """Collectives with the time that moving their data takes."""

    cluster: Cluster
    ranks: int
    gpus_per_node: int

    def gather(self, phase: str, layer: int) -> Op:
        """Collect the weights of a layer from all ranks, ahead of their use."""
        count = _LAYER_WEIGHTS // self.ranks
        return _collective(
            ("c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base"),
            "AllGather_RING_LL",
            (count, count * self.ranks),
            phase=phase,
            event=f"{phase} weights {layer}",
            gpu_ns=self._job_ns(2 * count * self.ranks, rounds=1),
        )

    def scatter(self) -> Op:
        """Sum the gradients of a layer, each rank keeping its part."""
        count = _LAYER_WEIGHTS // self.ranks
        return _collective(
            ("c10d::_reduce_scatter_base_", "_reduce_scatter_base", "nccl:_reduce_scatter_base"),
            "ReduceScatter_Sum_bf16_RING_LL",
            (count * self.ranks, count),
            phase="backward",
            event="gradients",
            gpu_ns=self._job_ns(2 * count * self.ranks, rounds=1),
        )

    def exchange(self, phase: str) -> Iterator[Op]:
        """Send tokens to the experts of the node, or their results back, and wait for them."""
        count = _TOKENS * _EXPERTS_PER_TOKEN * _WIDTH
        share = (self.gpus_per_node - 1) / self.gpus_per_node
        transfer = 2 * count * share / self.cluster.node_bus_bytes_per_s * 1e9
        op = _collective(
            ("c10d::alltoall_base_", "all_to_all", "nccl:all_to_all"),
            "SendRecv",
            (count, count),
            phase=phase,
            event="tokens",
            gpu_ns=int(transfer) + 12_000,
        )
        yield replace(op, group="node", stream=NODE_STREAM)
        yield _join("tokens", phase)

    def total(self) -> Op:
        """Add up one number over all ranks: the norm of the gradients."""
        op = _collective(
            ("c10d::allreduce_", "allreduce", "nccl:all_reduce"),
            "AllReduce_Sum_f32_RING_LL",
            (1, 1),
            phase="optimizer",
            event="norm",
            gpu_ns=self._job_ns(4, rounds=2),
        )
        return replace(op, dtype="Float")

    def _job_ns(self, size_bytes: int, rounds: int) -> int:
        share = rounds * (self.ranks - 1) / self.ranks
        return int(size_bytes * share / self.cluster.job_bus_bytes_per_s * 1e9) + 24_000


def _collective(
    names: tuple[str, str, str], kernel: str, counts: tuple[int, int], **known: Any
) -> Op:
    """Make a collective of its CPU op, its name in the arguments and its annotation."""
    call, collective, annotation = names
    return Op(
        "collective",
        (call, "record_param_comms"),
        gpu_name=f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)",
        stream=JOB_STREAM,
        collective=collective,
        annotation=annotation,
        group="job",
        in_count=counts[0],
        out_count=counts[1],
        dtype="BFloat16",
        **known,
    )


def _data(cluster: Cluster) -> Iterator[Op]:
    yield Op("host", phase="data", host_ns=6 * MILLISECOND)
    for size_bytes in (8 * _TOKENS, 8 * _TOKENS, 2 * 3072 * _WIDTH * 2):
        yield Op(
            "copy",
            ("aten::to", "aten::_to_copy", "aten::copy_"),
            phase="",
            gpu_name="Memcpy HtoD (Pinned -> Device)",
            gpu_ns=1_200 + int(size_bytes / cluster.host_copy_bytes_per_s * 1e9),
            size_bytes=size_bytes,
        )


def _layer_forward(net: _Network) -> Iterator[Op]:
    phase = "forward"
    yield _kernel(phase, "aten::native_layer_norm", _NORM, _memory_ns(4 * _TOKENS * _WIDTH))
    yield _matmul(phase, _WIDTH, 3 * _WIDTH)
    yield _attention(phase)
    yield _matmul(phase, _WIDTH, _WIDTH)
    yield _kernel(phase, "aten::add", _ADD, _memory_ns(6 * _TOKENS * _WIDTH))
    yield _matmul(phase, _WIDTH, 64)
    yield _kernel(phase, "aten::softmax", _SOFTMAX, 21_000)
    yield from net.exchange(phase)
    yield from _experts(phase)
    yield from net.exchange(phase)
    yield _kernel(phase, "aten::add", _ADD, _memory_ns(6 * _TOKENS * _WIDTH))


def _layer_backward(net: _Network) -> Iterator[Op]:
    """Yield the layer's operations backwards, each about twice: for inputs and for weights."""
    phase = "backward"
    for op in reversed(list(_layer_forward(net))):
        if op.kind == "collective":
            yield from net.exchange(phase)
        elif op.kind == "kernel":
            name = op.gpu_name.replace("flash_fwd", "flash_bwd").replace("Forward", "Backward")
            grad = _backward_calls(op.calls)
            times = 2 if "mm" in op.calls[-1] else 1
            gpu_ns = op.gpu_ns if times == 2 else op.gpu_ns * 2
            yield from [replace(op, calls=grad, phase=phase, gpu_name=name, gpu_ns=gpu_ns)] * times


def _experts(phase: str) -> Iterator[Op]:
    tokens = _TOKENS * _EXPERTS_PER_TOKEN
    for width in (_EXPERT_WIDTH, -_EXPERT_WIDTH):
        gpu_ns = int(2 * tokens * _WIDTH * _EXPERT_WIDTH / _FLOP_PER_NS)
        yield _kernel(phase, "aten::_grouped_mm", _GROUPED, gpu_ns)
        if width > 0:
            yield _kernel(phase, "aten::silu", _SILU, _memory_ns(4 * tokens * width))


def _update(net: _Network) -> Iterator[Op]:
    part_bytes = 4 * _LAYERS * _LAYER_WEIGHTS // net.ranks
    phase = "optimizer"
    yield _kernel(phase, "aten::_foreach_norm", _NORM_OF_GRADIENTS, _memory_ns(part_bytes))
    yield net.total()
    yield _join("norm", phase)
    for _ in range(_LAYERS):
        gpu_ns = _memory_ns(7 * part_bytes // _LAYERS)
        yield _kernel(phase, "aten::_fused_adamw_", _ADAM, gpu_ns)


def _log() -> Iterator[Op]:
    """Read the loss, which makes the host wait for the GPU."""
    calls = ("aten::item", "aten::_local_scalar_dense")
    name = "Memcpy DtoH (Device -> Pinned)"
    yield Op("copy", calls, phase="", gpu_name=name, gpu_ns=1_900, size_bytes=4)
    yield Op("sync", calls, phase="")


def _kernel(phase: str, call: str, gpu_name: str, gpu_ns: int) -> Op:
    return Op("kernel", (call,), phase=phase, gpu_name=gpu_name, gpu_ns=gpu_ns)


def _matmul(phase: str, inner: int, outer: int) -> Op:
    gpu_ns = max(9_000, int(2 * _TOKENS * inner * outer / _FLOP_PER_NS))
    op = _kernel(phase, "", "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", gpu_ns)
    return replace(op, calls=("aten::linear", "aten::mm"))


def _attention(phase: str) -> Op:
    gpu_ns = int(2 * _TOKENS * _TOKENS / 2 * _WIDTH / (0.6 * _FLOP_PER_NS))
    name = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >"
    calls = ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward")
    return replace(_kernel(phase, "", name, gpu_ns), calls=calls)


def _join(event: str, phase: str) -> Op:
    return Op("join", phase=phase, event=event)


def _backward_calls(calls: tuple[str, ...]) -> tuple[str, ...]:
    stem = calls[-1].removeprefix("aten::").strip("_")
    node = "".join(word.capitalize() for word in stem.split("_")) + "Backward0"
    return (f"autograd::engine::evaluate_function: {node}", node, calls[-1])


def _memory_ns(size_bytes: int) -> int:
    return 2_000 + int(size_bytes / _HBM_BYTES_PER_NS)


SECOND = 1_000_000_000
MILLISECOND = 1_000_000

FAULTS = ("slow rank", "late host", "power cap", "failing node")
"""The faults that :func:`data.make.fleet` can inject."""


@dataclass(frozen=True)
class Cluster:
    """Capabilities of the simulated machines; roughly eight H100 on two half-filled nodes."""

    idle_w: float = 95.0
    compute_w: float = 640.0
    communication_w: float = 240.0
    power_limit_w: float = 700.0
    clock_mhz: int = 1830
    clock_step_mhz: int = 15
    power_exponent: float = 2.4
    node_other_w: float = 950.0
    supply_efficiency_share: float = 0.95
    job_bus_bytes_per_s: float = 130e9
    node_bus_bytes_per_s: float = 200e9
    host_copy_bytes_per_s: float = 52e9

    def capped_clock_mhz(self, cap_w: float) -> int:
        """Return the clock at which compute draws no more than the cap."""
        share = (cap_w - self.idle_w) / (self.compute_w - self.idle_w)
        clock = self.clock_mhz * min(share, 1.0) ** (1 / self.power_exponent)
        return int(clock // self.clock_step_mhz) * self.clock_step_mhz

    def compute_power_w(self, clock_mhz: float) -> float:
        """Return the power of a GPU that computes at this clock."""
        share: float = (clock_mhz / self.clock_mhz) ** self.power_exponent
        return self.idle_w + (self.compute_w - self.idle_w) * share


@dataclass(frozen=True)
class Faults:
    """Which faults hit whom, when and how hard; None where a fault was not requested."""

    slow_rank: int | None
    slow_first_step: int
    late_rank: int | None
    late_steps: tuple[int, ...]
    capped_rank: int | None
    cap_first_step: int
    cap_last_step: int
    failing_rank: int | None
    slow_factor: float = 1.25
    late_ns: int = 40 * MILLISECOND
    cap_w: float = 500.0
    xid: int = 79


@dataclass(frozen=True)
class Job:
    """One training job: who takes part, what is traced, when it fails."""

    seed: int
    ranks: int
    gpus_per_node: int
    first_traced_step: int
    traced_steps: int
    faults: Faults
    cluster: Cluster = Cluster()
    start_ns: int = 1_768_204_800 * SECOND  # 2026-01-12 08:00:00 UTC
    startup_ns: int = 20 * SECOND
    detect_ns: int = 12 * SECOND
    reschedule_ns: int = 25 * SECOND
    checkpoint_every: int = 25
    checkpoint_ns: int = 1_500 * MILLISECOND
    job_id: int = 481_516

    @property
    def last_traced_step(self) -> int:
        """The last step in the traces."""
        return self.first_traced_step + self.traced_steps - 1

    @property
    def failing_step(self) -> int:
        """The step in which the node fails."""
        return self.last_traced_step + 54

    @property
    def total_steps(self) -> int:
        """How many steps the job needs."""
        return self.failing_step + 40

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names: those of the first attempt, then one spare."""
        return tuple(f"node{n + 1:03d}" for n in range(self.ranks // self.gpus_per_node + 1))

    def node_of(self, rank: int, attempt: int = 1) -> str:
        """Return the host of a rank; the spare replaces the failing node at the restart."""
        node = self.nodes[rank // self.gpus_per_node]
        failing = self.faults.failing_rank
        if attempt > 1 and failing is not None and node == self.node_of(failing):
            return self.nodes[-1]
        return node

    def ranks_of(self, node: str, attempt: int) -> list[int]:
        """Return the ranks that run on a host in an attempt."""
        return [rank for rank in range(self.ranks) if self.node_of(rank, attempt) == node]

    def capped_clock_mhz(self) -> int:
        """Return the clock of the capped GPU."""
        return self.cluster.capped_clock_mhz(self.faults.cap_w)

    def compute_factor(self, step: int, attempt: int) -> Floats:
        """Return how many times as long compute takes on every rank in a step."""
        factor = np.ones(self.ranks)
        if attempt == 1 and self.is_slow(step):
            factor[self.faults.slow_rank] = self.faults.slow_factor
        if attempt == 1 and self.is_capped(step):
            factor[self.faults.capped_rank] = self.cluster.clock_mhz / self.capped_clock_mhz()
        return factor

    def host_delay_ns(self, step: int, attempt: int) -> Ints:
        """Return how much longer every rank's host takes to load the data of a step."""
        delay = np.zeros(self.ranks, dtype=np.int64)
        if attempt == 1 and self.faults.late_rank is not None and step in self.faults.late_steps:
            delay[self.faults.late_rank] = self.faults.late_ns
        return delay

    def transfer_factor(self, kind: str) -> Floats:  # noqa: ARG002
        """Return how many times as long transfers take in each process group of a kind."""
        return np.ones(1)

    def is_slow(self, step: int) -> bool:
        """Return whether a rank is slow in this step of the first attempt."""
        return self.faults.slow_rank is not None and step >= self.faults.slow_first_step

    def is_capped(self, step: int) -> bool:
        """Return whether a GPU is capped in this step of the first attempt."""
        faults = self.faults
        if faults.capped_rank is None:
            return False
        return faults.cap_first_step <= step <= faults.cap_last_step


def plan(*, seed: int, ranks: int, gpus_per_node: int, steps: int, faults: Collection[str]) -> Job:
    """Draw a job from the seed.

    The draw does not depend on which faults are requested, so that the same seed with and without a
    fault gives the same job but for that fault.
    """
    _check(ranks=ranks, gpus_per_node=gpus_per_node, steps=steps, faults=faults)
    order = np.argsort(np.random.default_rng(seed).random(ranks), kind="stable")
    # Different ranks as long as there are enough.
    hit = {name: int(order[at % ranks]) for at, name in enumerate(FAULTS) if name in faults}
    first = 10
    drawn = Faults(
        slow_rank=hit.get("slow rank"),
        slow_first_step=first + steps // 3,
        late_rank=hit.get("late host"),
        late_steps=tuple(sorted({first + min(1, steps - 1), first + max(0, steps - 2)})),
        capped_rank=hit.get("power cap"),
        cap_first_step=first + steps // 2,
        cap_last_step=first + steps // 2 + 44,
        failing_rank=hit.get("failing node"),
    )
    return Job(seed, ranks, gpus_per_node, first, steps, drawn)


def _check(*, ranks: int, gpus_per_node: int, steps: int, faults: Collection[str]) -> None:
    unknown = sorted(set(faults) - set(FAULTS))
    refusals = {
        f"ranks={ranks}: a job needs at least 2 ranks for one to wait for another": ranks < 2,
        f"gpus_per_node={gpus_per_node} must be at least 2 and divide ranks={ranks}": (
            gpus_per_node < 2 or ranks % gpus_per_node != 0
        ),
        f"steps={steps}: at least one step must be traced": steps < 1,
        f"unknown faults {unknown}; choose from {list(FAULTS)}": bool(unknown),
    }
    for msg, is_refused in refusals.items():
        if is_refused:
            raise ValueError(msg)
