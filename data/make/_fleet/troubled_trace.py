"""Profiler traces of small jobs in memory, with troubles of chosen size and their true cost.

The engine of :func:`data.make.fleet` runs a short program instead of a whole model, and
nothing is written: hundreds of jobs can be made in the time of one. The cost of a trouble is the
length of the job with it minus that of the same job, with the same noise, without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from data.make._fleet.engine import Engine, History, Step
from data.make._fleet.program import (
    JOB_STREAM,
    MILLISECOND,
    NODE_STREAM,
    Faults,
    Job,
    Op,
)
from workbench._shared.numbers import Floats, Ints
from workbench.tables import (
    EVENTS,
    RANKS,
    Trace,
)

TRACE_TROUBLES = (
    "slow rank", "late host", "exposed communication", "slow link", "slow launches",
    "synchronising calls", "pageable copies", "tiny kernels", "slow first step", "wrong clock",
    "slow data loader", "pauses", "unequal experts", "dark time", "unknown idle time",
)  # fmt: skip
US = 1_000
_FIRST = 3
_KERNELS, _LAYERS = 12, 2
# What one launch of a kernel costs the host, of which the kernel itself takes 4 us.
_TINY_NS, _TINY_PACE_NS = 4 * US, 14 * US
_SYNC_NS, _LAUNCH_NS = 20 * US, 13 * US
_SYNCS = 6
_GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
_NO_FAULTS = Faults(None, 0, None, (), None, 0, 0, None)


@dataclass(frozen=True)
class TracedJob(Job):
    """A small traced job: its size, what hits it, and how hard."""

    kernel_ns: int = 2 * MILLISECOND
    jitter: float = 0.002
    alternating: float = 0.02
    exchange_ns: int = 30 * US
    troubles: tuple[tuple[str, float], ...] = ()

    @property
    def healthy_ns(self) -> float:
        """Time of the kernels of a step, which is about the length of a healthy one."""
        return self.kernel_ns * _KERNELS

    @property
    def hit(self) -> int:
        """The rank that a trouble of one rank hits."""
        return int(np.random.default_rng([self.seed, 1]).integers(self.ranks))

    def size_ns(self, trouble: str) -> int:
        """Return how much longer a trouble makes a step; 0 if it does not hit this job."""
        return round(dict(self.troubles).get(trouble, 0.0) * self.healthy_ns)

    def compute_factor(self, step: int, attempt: int) -> Floats:
        """Let every kernel time vary, and at random one rank or another be late in a step."""
        random = np.random.default_rng([self.seed, 2, step, attempt])
        factor = 1 + self.jitter * np.abs(random.standard_normal(self.ranks))
        late, by = random.integers(self.ranks), self.alternating * random.random()
        factor[late] += by * (random.random() < 0.4)
        factor[self.hit] += self.size_ns("slow rank") / self.healthy_ns
        return factor

    def host_delay_ns(self, step: int, attempt: int) -> Ints:  # noqa: ARG002
        """Delay the loader of one host, of all, or of all in the first step."""
        delay = np.full(self.ranks, self.size_ns("slow data loader"), dtype=np.int64)
        delay[self.hit] += self.size_ns("late host")
        return delay + (step == _FIRST) * self.traced_steps * self.size_ns("slow first step")

    def transfer_factor(self, kind: str) -> Floats:
        """Return how many times as long each process group of a kind takes for a transfer."""
        factor = np.ones(1 if kind == "job" else self.ranks // self.gpus_per_node)
        if kind == "node":
            # Only the exchanges of the layers run inside a node.
            factor *= 1 + self._exchange_ratio("unequal experts")
            factor[self.hit // self.gpus_per_node] += self._exchange_ratio("slow link")
        return factor

    def _exchange_ratio(self, trouble: str) -> float:
        return self.size_ns(trouble) / (2 * _LAYERS * self.exchange_ns)

    def counts(self, op: Op) -> Ints:
        """Return the elements that each rank sends: the fuller experts of a node get more."""
        counts = np.full(self.ranks, op.in_count, dtype=np.int64)
        ratio = 1 + self._exchange_ratio("unequal experts")
        if op.group != "node" or ratio == 1:
            return counts
        size = self.gpus_per_node
        is_full = np.arange(self.ranks) % size == self.hit % size
        # No rank can have more than all there is.
        ratio = min(ratio, size * 0.99)
        scaled = np.where(is_full, ratio, (size - ratio) / max(size - 1, 1))
        return np.asarray(np.rint(counts * scaled), dtype=np.int64)


def traced_job(troubles: Mapping[str, float], *, seed: int, ranks: int, steps: int) -> TracedJob:
    """Draw the sizes and the noise of a job from its seed; troubles change neither."""
    random = np.random.default_rng([seed, 3])
    gpus_per_node = max(2, ranks // 4)
    kernel_ns = int(2.0 ** random.uniform(0, 2.5) * MILLISECOND)
    if "tiny kernels" in troubles:
        # Thousands of kernels per step would only cost time.
        kernel_ns = MILLISECOND
    if "pauses" in troubles:
        kernel_ns = max(kernel_ns, 2 * MILLISECOND)
    # A healthy job hides nearly all of its communication.
    exchange_ns = kernel_ns * _KERNELS // 1000
    if {"slow link", "unequal experts"} & set(troubles):
        exchange_ns *= 20
    return TracedJob(
        seed, ranks, gpus_per_node, _FIRST, steps, _NO_FAULTS,
        kernel_ns=kernel_ns, jitter=random.uniform(0.001, 0.004),
        alternating=random.uniform(0.0, 0.04), exchange_ns=exchange_ns,
        troubles=tuple(troubles.items()),
    )  # fmt: skip


def program_of(job: TracedJob) -> list[Op]:
    """Return the operations of one step, with those that troubles add."""
    forward = job.kernel_ns // 2
    ops = [
        Op("host", phase="data", host_ns=60 * US),
        Op("copy", ("aten::copy_",), gpu_name="Memcpy HtoD (Pinned -> Device)", gpu_ns=10 * US,
           size_bytes=500_000),
    ]  # fmt: skip
    ops += _tiny(job) + _pageable(job)
    for _ in range(_LAYERS):
        ops += [_kernel(forward)] * 2 + _exchange(job)
    # Neither of the kernels around is one before which synchronising calls are put.
    ops += [_kernel(2 * forward)] * (_SYNCS - 2 * _LAYERS + 1)
    ops += _unrecorded(job, "unknown idle time")
    ops += [_kernel(2 * forward)] * (_KERNELS - _LAYERS - 2 - _SYNCS)
    ops += _unrecorded(job, "dark time") + _exposed(job)
    for _ in range(_LAYERS):
        scatter = round(0.1 * forward)
        ops += [replace(_kernel(2 * forward), phase="backward")] * 2 + _exchange(job, "backward")
        ops += [_collective("job", "ReduceScatter_Sum_bf16_RING_LL", "_reduce_scatter_base",
                            scatter, event="gradients", phase="backward")]  # fmt: skip
    ops += [Op("join", phase="optimizer", event="gradients")]
    ops += [replace(_kernel(2 * forward), phase="optimizer", calls=("aten::_fused_adamw_",))]
    calls = ("aten::item", "aten::_local_scalar_dense")
    ops += [Op("copy", calls, gpu_name="Memcpy DtoH (Device -> Pinned)", gpu_ns=1_900,
               size_bytes=4), Op("sync", calls)]  # fmt: skip
    return _synchronised(job, _launched_late(job, ops))


def _kernel(gpu_ns: int) -> Op:
    return Op("kernel", ("aten::mm",), gpu_name=_GEMM, gpu_ns=gpu_ns)


def _collective(kind: str, kernel: str, name: str, gpu_ns: int, *, event: str, phase: str) -> Op:
    # Bytes that fit a bus of 100 GB/s, in elements of two bytes.
    count = max(gpu_ns * 100 // 2, 1)
    return Op(
        "collective", (f"c10d::{name}",), gpu_name=_NCCL.format(kernel), gpu_ns=gpu_ns,
        stream=JOB_STREAM if kind == "job" else NODE_STREAM, group=kind, collective=name,
        event=event, phase=phase, in_count=count, out_count=count, dtype="BFloat16",
    )  # fmt: skip


def _exchange(job: TracedJob, phase: str = "forward") -> list[Op]:
    # Half of the exchanges of a real layer: one per layer and direction.
    op = _collective("node", "SendRecv", "all_to_all", job.exchange_ns, event="tokens", phase=phase)
    return [op, Op("join", phase=phase, event="tokens")]


def _exposed(job: TracedJob) -> list[Op]:
    size = job.size_ns("exposed communication")
    if not size:
        return []
    op = _collective("job", "AllGather_RING_LL", "_allgather_base", size, event="weights",
                     phase="forward")  # fmt: skip
    return [op, Op("join", phase="forward", event="weights")]


def _tiny(job: TracedJob) -> list[Op]:
    # At the start of a step the host is not ahead, so every launch shows.
    count = round(job.size_ns("tiny kernels") / (_TINY_PACE_NS - _TINY_NS))
    return [replace(_kernel(_TINY_NS), calls=("aten::add_",))] * count


def _pageable(job: TracedJob) -> list[Op]:
    size = job.size_ns("pageable copies")
    name = "Memcpy HtoD (Pageable -> Device)"
    op = Op("copy", ("aten::copy_",), gpu_name=name, gpu_ns=size, size_bytes=size * 8)
    return [op] if size else []


def _unrecorded(job: TracedJob, trouble: str) -> list[Op]:
    """Let the GPU work without a record: behind a graph that the host waits for, or behind no call.

    Kernels that were launched already start later by as much.
    """
    size = job.size_ns(trouble)
    is_graph = trouble == "dark time"
    hidden = Op("graph" if is_graph else "unrecorded", gpu_name="not recorded", gpu_ns=size)
    return [hidden, *[Op("sync")] * is_graph] if size else []


def _launched_late(job: TracedJob, ops: list[Op]) -> list[Op]:
    """Let the host spend more time after every launch than the GPU works."""
    size = job.size_ns("slow launches")
    if not size:
        return ops
    # As soon as the host is the slower one, the step takes what the host takes.
    longer = (job.healthy_ns + size) / job.healthy_ns
    late = []
    for op in ops:
        late.append(op)
        if op.kind == "kernel" and op.gpu_ns > _TINY_NS:
            late.append(Op("host", phase="", host_ns=round(longer * op.gpu_ns) - _LAUNCH_NS))
    return late


def _synchronised(job: TracedJob, ops: list[Op]) -> list[Op]:
    """Wait for the GPU before some kernels, and go on in Python before the next launch."""
    size = job.size_ns("synchronising calls")
    if not size:
        return ops
    calls = ("aten::item", "aten::_local_scalar_dense")
    wait = [Op("sync", calls), Op("host", phase="", host_ns=max(size // _SYNCS - _SYNC_NS, 0))]
    is_kernel = [op.kind == "kernel" and op.gpu_ns > _TINY_NS for op in ops]
    kernels = np.flatnonzero(is_kernel)[1 : _SYNCS + 1].tolist()
    return [new for at, op in enumerate(ops) for new in ([*wait, op] if at in kernels else [op])]


def run_traced(job: TracedJob, program: list[Op] | None = None) -> History:
    """Run the steps that the profiler records, of its own program or another one."""
    program = program_of(job) if program is None else program
    engine = Engine(job, program, attempt=1, start_ns=job.start_ns)
    steps = []
    for number in range(_FIRST, _FIRST + job.traced_steps):
        steps.append(engine.run(number))
        if number == _FIRST + job.traced_steps // 2 and (size := job.size_ns("pauses")):
            engine.pause(job.traced_steps * size)
    end = int(steps[-1].end.max())
    return History(job, program, steps, [], None, None, None, None, end)


def length_ns(history: History) -> int:
    """Return the time from the start of the first to the end of the last step."""
    return int(history.steps[-1].end.max() - history.steps[0].start.min())


def cost_ns(history: History, trouble: str) -> float:
    """Return the time that a job would save without a trouble, with the same noise.

    Of slow launches it is all idle time of the median rank without pauses; waiting for one
    another's hosts comes on top. Of exposed communication every transfer counts that nothing hides,
    not only what the trouble added; tiny kernels would have their work to do if fused.
    """
    job = history.job
    assert isinstance(job, TracedJob)
    if trouble == "wrong clock":
        return float(job.size_ns(trouble))
    healthy = replace(job, troubles=tuple(pair for pair in job.troubles if pair[0] != trouble))
    if trouble == "exposed communication":
        program = [
            replace(op, gpu_ns=0) if op.kind == "collective" else op for op in program_of(job)
        ]
        return float(length_ns(history) - length_ns(run_traced(job, program)))
    if trouble == "slow launches":
        return float(np.median(_idle_ns(history)))
    other = run_traced(healthy)
    work_ns = len(_tiny(job)) * _TINY_NS if trouble == "tiny kernels" else 0
    return float(length_ns(history) - length_ns(other) - work_ns * job.traced_steps)


def _idle_ns(history: History) -> Ints:
    """Add up the times, each below 5 ms, in which a GPU has nothing to run."""
    work = [at for at, op in enumerate(history.program) if op.gpu_name]
    start, end = (
        np.concatenate([getattr(step, name)[work] for step in history.steps])
        for name in ("gpu_start", "gpu_end")
    )
    order = np.argsort(start, axis=0)
    start, end = (np.take_along_axis(times, order, axis=0) for times in (start, end))
    ends = np.maximum.accumulate(end, axis=0)
    gaps = np.clip(start[1:] - ends[:-1], 0, None)
    return np.asarray(np.where(gaps < 5 * MILLISECOND, gaps, 0).sum(axis=0))


def trace_of(history: History) -> Trace:
    """Return the tables that a loader would make of the traces of all ranks."""
    job = history.job
    assert isinstance(job, TracedJob)
    events = EVENTS.check(_events(history, job))
    count = events.groupby("rank").size().to_numpy()
    ranks = pd.DataFrame(
        {
            "rank": range(job.ranks), "rank_source": "trace", "world_size": job.ranks,
            "backend": "nccl", "source": [f"synthetic_rank_{n}" for n in range(job.ranks)],
            "format": "kineto", "clock": "epoch", "first_ns": events["start_ns"].min(),
            "last_ns": history.end_ns, "event_count": count,
        }
    )  # fmt: skip
    return Trace.of(events=events, ranks=RANKS.of(ranks))


_CALLS = {"kernel": "cudaLaunchKernel", "collective": "cudaLaunchKernelExC",
          "copy": "cudaMemcpyAsync", "sync": "cudaStreamSynchronize",
          "graph": "cudaGraphLaunch"}  # fmt: skip
_KINDS = {"kernel": "compute", "collective": "communication", "copy": "memory"}


def _events(history: History, job: TracedJob) -> pd.DataFrame:
    ops = history.program
    marks = {at: op.calls[0] for at, op in enumerate(ops) if op.calls}
    loads = {at: _LOADER for at, op in enumerate(ops) if op.phase == "data"}
    calls = {at: _CALLS[op.kind] for at, op in enumerate(ops) if op.kind in _CALLS}
    work = {at: op.gpu_name for at, op in enumerate(ops) if op.kind in _KINDS}
    families = [
        _family(history, marks, ("host_start", "host_end"), "cpu_op"),
        _family(history, loads, ("host_start", "host_end"), "user_annotation"),
        _family(history, calls, ("call_start", "call_end"), "cuda_runtime"),
        _gpu_family(history, job, work),
        _step_marks(history.steps, job),
    ]
    table = pd.concat(families, ignore_index=True)
    offset = np.random.default_rng([job.seed, 4]).normal(0, 3 * US, job.ranks)
    offset[job.hit] += job.size_ns("wrong clock")
    table["start_ns"] += np.rint(offset).astype(np.int64)[table["rank"].to_numpy()]
    order = np.lexsort((-table["dur_ns"], table["start_ns"], table["rank"]))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    # A launch is joined to its work by the operation, step and rank that both come from.
    is_call = table["category"] == "cuda_runtime"
    call_of = pd.Series(position[is_call], index=table.loc[is_call, "origin"])
    is_work = table["kind"].notna()
    launch = pd.Series(pd.NA, index=table.index, dtype="Int64")
    launch[is_work] = call_of.reindex(table.loc[is_work, "origin"]).to_numpy()
    table = table.assign(launch=launch, process="1", correlation=launch).iloc[order]
    table = table.reset_index(drop=True).reindex(columns=list(EVENTS.columns))
    return EVENTS.cast(table)


def _family(
    history: History, names: Mapping[int, str], times: tuple[str, str], category: str
) -> pd.DataFrame:
    """Return one row per operation that has a name, step and rank."""
    ops, job = np.array(list(names), dtype=np.int64), history.job
    if not len(ops):
        return pd.DataFrame()
    begin, end = (
        np.stack([getattr(step, name)[ops] for step in history.steps]).ravel() for name in times
    )
    step, op, rank = (
        index.ravel() for index in np.indices((len(history.steps), len(ops), job.ranks))
    )
    number = np.array([step.number for step in history.steps])
    threads = np.array(["2" if history.program[at].is_backward else "1" for at in ops])
    return pd.DataFrame(
        {
            "rank": rank, "start_ns": begin, "dur_ns": end - begin, "step": number[step],
            "name": np.array(list(names.values()), dtype=object)[op], "category": category,
            "thread": threads[op], "op": ops[op],
            "origin": (step * len(history.program) + ops[op]) * job.ranks + rank,
        }
    )  # fmt: skip


def _gpu_family(history: History, job: TracedJob, work: Mapping[int, str]) -> pd.DataFrame:
    table = _family(history, work, ("gpu_start", "gpu_end"), "kernel")
    ops = pd.DataFrame([vars(history.program[at]) for at in work], index=list(work))
    own = ops.loc[table["op"]].reset_index(drop=True)
    is_copy, joins = own["kind"] == "copy", own["kind"] == "collective"
    group_counts = {kind: int((ops["group"] == kind).sum()) for kind in ("job", "node")}
    ordinal = ops.groupby("group").cumcount()
    rank = table["rank"].to_numpy()
    node = rank // job.gpus_per_node + 1
    counts = np.stack([job.counts(history.program[at]) for at in work])
    sent = counts[np.searchsorted(list(work), table["op"]), rank]
    return table.assign(
        category=np.where(is_copy, "gpu_memcpy", "kernel"),
        kind=own["kind"].map(_KINDS), device=rank % job.gpus_per_node, stream=own["stream"],
        size_bytes=own["size_bytes"].where(is_copy),
        collective=own["collective"].where(joins),
        group=pd.Series(np.where(own["group"] == "job", 0, node)).astype(str).where(joins),
        group_size=pd.Series(np.where(own["group"] == "job", job.ranks, job.gpus_per_node)).where(
            joins
        ),
        seq=(table["step"] * own["group"].map(group_counts).fillna(0)
             + ordinal.loc[table["op"]].to_numpy()).where(joins),
        in_count=pd.Series(sent).where(joins), out_count=pd.Series(sent).where(joins),
        dtype=own["dtype"].where(joins),
        thread=own["stream"].astype(str),
    )  # fmt: skip


def _step_marks(steps: list[Step], job: TracedJob) -> pd.DataFrame:
    start, end = (np.stack([getattr(s, name) for s in steps]).ravel() for name in ("start", "end"))
    number = np.repeat([step.number for step in steps], job.ranks)
    return pd.DataFrame(
        {
            "rank": np.tile(np.arange(job.ranks), len(steps)), "start_ns": start,
            "dur_ns": end - start, "step": number, "category": "user_annotation", "thread": "1",
            "name": [f"ProfilerStep#{n}" for n in number],
        }
    )  # fmt: skip
