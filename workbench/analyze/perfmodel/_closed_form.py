"""The closed form of an iteration: ten constants, nine parts, no learning."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from workbench.analyze.perfmodel._columns import Array, Columns

PARTS = (
    "compute", "bubble", "tensor", "context", "expert", "pipeline", "data", "optimizer", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Constants:
    """What the closed form does not know from the hardware's data sheet; see its Notes."""

    matrix_share: float = 0.7
    half_width: float = 50.0
    half_tokens: float = 300.0
    memory_share: float = 0.8
    node_share: float = 0.7
    network_share: float = 0.8
    launch_s: float = 1e-3
    data_share: float = 0.4  # what vTrain's jobs on up to 256 A100s show
    optimizer_share: float = 0.5
    fixed_s: float = 1e-2

    def logarithms(self) -> npt.NDArray[np.float64]:
        """Give them as the vector that is fitted."""
        return np.log([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_logarithms(cls, vector: npt.NDArray[np.float64]) -> Constants:
        """Undo :meth:`logarithms`."""
        return cls(*(float(each) for each in np.exp(vector)))


# How far, as a factor, each may lie from what it is assumed to be before the data must insist.
SPREAD = np.array([0.3, 2, 2, 1, 1, 1, 2, 1, 1, 2])
# The largest logarithm of each: nothing gives more than its data sheet says.
TOP = np.array([0.0 if field.name.endswith("_share") else np.inf for field in fields(Constants)])


def parts(c: Columns, k: Constants) -> dict[str, Array]:
    """Give the seconds of every part; together they are the iteration."""
    matrix, launch, tensor, context, expert = _layer(c, k)
    layer = matrix + launch + tensor + context + expert
    stage = c.stage_layers * layer
    head = 6 * c.tokens * c.h * c.vocabulary / c.t / (c.peak * _share_of_peak(c, k))
    rounds = c.rounds
    per_layer = rounds * c.stage_layers
    # Tensor-parallel ranks send a share each and gather it behind their links.
    sent = 2 * c.tokens * c.h / c.t
    # Activations one way and gradients the other, for every chunk; then fill and drain.
    hops = np.where(c.p > 1, 2 * (c.v * rounds + c.p - 2), 0)
    return {
        "compute": per_layer * matrix + rounds * head,
        "bubble": (c.p - 1) * stage / c.v,
        "tensor": per_layer * tensor,
        "context": per_layer * context,
        "expert": per_layer * expert,
        "pipeline": hops * sent / _own(c, k, c.n),
        "data": _data(c, k),
        "optimizer": _optimizer(c, k),
        "other": per_layer * launch + k.fixed_s,
    }


def _share_of_peak(c: Columns, k: Constants) -> Array:
    """Narrow matrices and few tokens reach less of the peak."""
    return k.matrix_share / (1 + k.half_width * c.t / c.h) / (1 + k.half_tokens / c.tokens)


def _own(c: Columns, k: Constants, ranks: Array) -> Array:
    """Bandwidth from rank to rank: the links of a node if all fit into one, or one adapter."""
    inside = ranks <= c.per_node
    return np.where(inside, k.node_share * c.node, k.network_share * c.network)


def _link(c: Columns, k: Constants, ranks: Array, stride: Array | float = 1.0) -> Array:
    """Bandwidth of a ring of every ``stride``-th rank."""
    return _slower(c, ranks, stride, k.node_share * c.node, k.network_share * c.network)


def _slower(c: Columns, ranks: Array, stride: Array | float, node: Array, network: Array) -> Array:
    """Within a node its links; beyond, a ring leaves the node by the adapters of all its ranks."""
    local = _local(c, ranks, stride)
    return np.asarray(np.where(ranks <= local, node, np.minimum(node, local * network)))


def _local(c: Columns, ranks: Array, stride: Array | float) -> Array:
    """Count the ranks of a group that share a node."""
    return np.asarray(np.clip(c.per_node // stride, 1, ranks))


def _layer(c: Columns, k: Constants) -> tuple[Array, Array, Array, Array, Array]:
    """Forward and backward of one layer and micro-batch: five parts in seconds."""
    scores = 4 * c.tokens * c.s * c.heads * c.shown
    linear = 2 * c.tokens * c.linear_parameters
    # Backward is two products for each of forward; flash attention stores no scores and
    # needs five for two, as it computes them again.
    work = (3 + c.full) * linear + (3 + c.full + c.selective + 0.5 * c.flash) * scores
    matrix = work / c.t / (c.peak * _share_of_peak(c, k))
    stored = np.where(c.flash > 0, 0, 5 * c.b * c.a * c.s * c.s / c.c)
    # Forward writes and reads what it stores, backward reads it, writes and reads its
    # gradient; what is computed again is written and read again.
    passes = 5 + 2 * c.full
    wide = (18 * c.h + 4 * c.routed * c.ffn) * c.tokens
    traffic = passes * wide + (passes + 2 * c.selective) * stored
    compute = matrix + traffic / c.t / (k.memory_share * c.memory)
    reduce = 2 * (c.t - 1) / c.t * 2 * c.tokens * c.h
    tensor = (4 + 2 * c.full) * reduce / _link(c, k, c.t)
    # Keys and values are gathered forward and backward, their gradients scattered.
    keys = 2 * 2 * c.b * c.s * c.kv / c.t * (c.c - 1) / c.c
    context = (3 + c.full) * keys / _link(c, k, c.c, c.t)
    sent = 2 * c.tokens * c.h * c.routed / c.t * (c.e - 1) / c.e
    expert = (4 + 2 * c.full) * sent / _own(c, k, c.t * c.c * c.e)
    gpu = compute + tensor + context + expert
    # The host launches while the GPU works; the longer of the two shows, smoothly.
    launch = np.sqrt(gpu**2 + k.launch_s**2) - gpu
    return compute, launch, tensor, context, expert


def _held(c: Columns) -> Array:
    return (c.stage_layers * c.layer_parameters + c.vocabulary * c.h) / c.t


def _data(c: Columns, k: Constants) -> Array:
    held, turns = _held(c), (c.d - 1) / c.d
    in_node = _local(c, c.d, c.t * c.c)
    width = _slower(c, c.d, c.t * c.c, k.data_share * c.node, k.data_share * c.network)
    reduce = 2 * 4 * held * turns
    scatter = (4 + 2) * held * turns  # gradients of 4 bytes, then weights of 2
    # Weights are gathered for every pass and micro-batch, gradients scattered once for each.
    gather = (2 * 2 + 2) * held * turns * c.rounds
    inner = (2 * 2 + 2) * held * (in_node - 1) / in_node * c.rounds / (k.node_share * c.node)
    groups = c.d / in_node
    outer = 2 * 4 * held / in_node * (groups - 1) / groups / (k.data_share * c.network)
    plain = np.where(c.sharding == "none", reduce, np.where(c.sharding == "zero1", scatter, gather))
    return np.asarray(np.where(c.sharding == "hsdp", inner + outer, plain / width))


def _optimizer(c: Columns, k: Constants) -> Array:
    in_node = _local(c, c.d, c.t * c.c)
    shards = np.where(c.sharding == "none", 1, np.where(c.sharding == "hsdp", in_node, c.d))
    return np.asarray(20 * _held(c) / shards / (k.optimizer_share * c.memory))
