"""The closed form of an iteration: twelve constants, nine parts, no learning."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from workbench.analyze._perfmodel.layouts.columns import Array, Columns

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
    expert_share: float = 0.6
    routing_s: float = 7e-3

    def logarithms(self) -> npt.NDArray[np.float64]:
        """Give them as the vector that is fitted."""
        return np.log([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_logarithms(cls, vector: npt.NDArray[np.float64]) -> Constants:
        """Undo :meth:`logarithms`."""
        return cls(*(float(each) for each in np.exp(vector)))


# How far, as a factor, each may lie from what it is assumed to be before the data must insist.
SPREAD = np.array([0.3, 2, 2, 1, 1, 1, 2, 1, 1, 2, 0.5, 1])
# The largest logarithm of each: nothing gives more than its data sheet says.
TOP = np.array([0.0 if field.name.endswith("_share") else np.inf for field in fields(Constants)])


def parts(c: Columns, k: Constants) -> dict[str, Array]:
    """Give the seconds of every part; together they are the iteration."""
    matrix, launch, tensor, context, expert = _layer(c, k)
    layer = matrix + launch + tensor + context + expert
    stage = c.stage_layers * layer
    head = 6 * c.tokens * c.h * c.vocabulary / c.t / (c.peak_16 * _share_of_peak(c, k))
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


def _share_of_experts(c: Columns, k: Constants) -> Array:
    """Give the share of grouped products: narrow experts, each with its part of the tokens."""
    rows = c.tokens * c.routed * c.e / c.experts * c.expert_t / c.t
    narrow = 1 + k.half_width * c.expert_t / np.minimum(c.h, c.ffn)
    return k.matrix_share * k.expert_share / narrow / (1 + k.half_tokens / rows)


def _own(c: Columns, k: Constants, ranks: Array) -> Array:
    """Bandwidth from rank to rank: the links of a node if all fit into one, or one adapter."""
    inside = ranks <= c.per_node
    return np.where(inside, k.node_share * c.node, k.network_share * c.network)


def _link(c: Columns, k: Constants, ranks: Array, stride: Array | float = 1.0) -> Array:
    """Bandwidth of a ring of every ``stride``-th rank."""
    return _slower(c, ranks, stride, k.node_share * c.node, k.network_share * c.network)


def _slower(c: Columns, ranks: Array, stride: Array | float, node: Array, network: Array) -> Array:
    """Within a node its links; beyond, a ring leaves the node by the adapters of all its ranks."""
    local = c.in_node(ranks, stride)
    return np.asarray(np.where(ranks <= local, node, np.minimum(node, local * network)))


def _layer(c: Columns, k: Constants) -> tuple[Array, Array, Array, Array, Array]:
    """Forward and backward of one layer and micro-batch: five parts in seconds."""
    scores = 4 * c.tokens * c.s * c.heads * c.shown
    dense = _share_of_peak(c, k)
    grouped = np.where(c.is_routed, _share_of_experts(c, k), dense)
    # Backward is two products for each of forward; flash attention stores no scores and
    # needs five for two, as it computes them again.
    linear = c.attention_parameters / dense + c.routed * c.expert_parameters / grouped
    matrix = (3 + c.full) * 2 * c.tokens * linear / c.t / c.peak
    again = 3 + c.full + c.selective + 0.5 * c.flash
    matrix = matrix + again * scores / c.t / (c.peak_16 * dense)
    stored = np.where(c.flash > 0, 0, 5 * c.b * c.a * c.s * c.s / c.c)
    # Forward writes and reads what it stores, backward reads it, writes and reads its
    # gradient; what is computed again is written and read again.
    passes = 5 + 2 * c.full
    wide = (18 * c.h + 4 * c.routed * c.ffn) * c.tokens
    # Copies of tokens are sorted by expert and back, forward and backward: read and written.
    sorted_ = np.where(c.is_routed, (16 + 8 * c.full) * c.routed * c.h * c.tokens, 0)
    traffic = passes * wide + (passes + 2 * c.selective) * stored + sorted_
    compute = matrix + traffic / c.t / (k.memory_share * c.memory)
    reduce = 2 * (c.t - 1) / c.t * 2 * c.tokens * c.h
    tensor = (4 + 2 * c.full) * reduce / _link(c, k, c.t)
    # Keys and values are gathered forward and backward, their gradients scattered.
    keys = 2 * 2 * c.b * c.s * c.kv / c.t * (c.c - 1) / c.c
    context = (3 + c.full) * keys / _link(c, k, c.c, c.t)
    expert = (4 + 2 * c.full) * _exchange(c, k)
    gpu = compute + tensor + context + expert
    # The host launches while the GPU works; the longer of the two shows, smoothly.
    host = np.where(c.is_routed, k.launch_s + k.routing_s, k.launch_s)
    launch = np.sqrt(gpu**2 + host**2) - gpu
    return compute, launch, tensor, context, expert


def _exchange(c: Columns, k: Constants) -> Array:
    """Send the tokens of a layer and micro-batch to their experts, once, in seconds."""
    token = 2 * c.tokens * c.h / c.t
    nodes = np.ceil(c.expert_span / c.per_node)
    inside = token * c.routed * (c.e - 1) / c.e / (k.node_share * c.node)
    # A token goes once to each other node that has one of its experts, and is copied there.
    reached = (nodes - 1) * (1 - (1 - 1 / nodes) ** c.routed)
    beyond = token * reached / (k.network_share * c.network)
    return np.asarray(np.where(c.e > 1, np.maximum(inside, beyond), 0))


def _groups(c: Columns) -> tuple[tuple[Array, Array, Array], ...]:
    """Give parameters that a rank holds, their replicas, and how far those are apart."""
    shared = c.stage_layers * c.shared_layer_parameters + c.vocabulary * c.h / c.t
    experts = c.stage_layers * c.expert_layer_parameters
    return (shared, c.replicas, c.t), (experts, c.expert_replicas, c.expert_span)


def _data(c: Columns, k: Constants) -> Array:
    return np.asarray(sum(_gradients(c, k, *group) for group in _groups(c)))


def _gradients(c: Columns, k: Constants, held: Array, replicas: Array, stride: Array) -> Array:
    turns = (replicas - 1) / replicas
    in_node = c.in_node(replicas, stride)
    width = _slower(c, replicas, stride, k.data_share * c.node, k.data_share * c.network)
    reduce = 2 * 4 * held * turns
    scatter = (4 + 2) * held * turns  # gradients of 4 bytes, then weights of 2
    # Weights are gathered for every pass and micro-batch, gradients scattered once for each.
    gather = (2 * 2 + 2) * held * turns * c.rounds
    inner = (2 * 2 + 2) * held * (in_node - 1) / in_node * c.rounds / (k.node_share * c.node)
    groups = replicas / in_node
    outer = 2 * 4 * held / in_node * (groups - 1) / groups / (k.data_share * c.network)
    plain = np.where(c.sharding == "none", reduce, np.where(c.sharding == "zero1", scatter, gather))
    return np.asarray(np.where(c.sharding == "hsdp", inner + outer, plain / width))


def _optimizer(c: Columns, k: Constants) -> Array:
    held = sum(parameters / c.shards(*group) for parameters, *group in _groups(c))
    return np.asarray(20 * held / (k.optimizer_share * c.memory))
