"""The closed form of an iteration: twelve constants, nine parts, no learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.analyze._perfmodel.layouts.model_shape import GpuType, gpu_type
from workbench.tables import CONFIGURATIONS

PARTS = (
    "compute", "bubble", "tensor", "context", "expert", "pipeline", "data", "optimizer", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Constants:
    """Constants of the closed form beyond the hardware's data sheet; see its Notes."""

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
        return np.log([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_logarithms(cls, vector: npt.NDArray[np.float64]) -> Constants:
        return cls(*(float(value) for value in np.exp(vector)))


def parts(c: Columns, k: Constants) -> dict[str, Array]:
    matrix, launch, tensor, context, expert = _stage(c, k)
    stage = matrix + launch + tensor + context + expert
    # A layer for a further token is followed by the same head.
    heads = 1 + c.ahead
    head = heads * 6 * c.tokens * c.h * c.vocabulary / c.t / (c.peak_16 * share_of_peak(c, k))
    rounds = c.rounds
    # Tensor-parallel ranks send a share each and gather it behind their links.
    sent = 2 * c.tokens * c.h / c.t
    # Activations one way and gradients the other, for every chunk; then fill and drain.
    hops = np.where(c.p > 1, 2 * (c.v * rounds + c.p - 2), 0)
    # From rank to rank: the links of a node if all fit into one, or one adapter.
    width = np.where(c.n <= c.per_node, k.node_share * c.node, k.network_share * c.network)
    held = sum(parameters / c.shards(*group) for parameters, *group in _groups(c))
    return {
        "compute": rounds * (matrix + head),
        "bubble": (c.p - 1) * stage / c.v,
        "tensor": rounds * tensor,
        "context": rounds * context,
        "expert": rounds * expert,
        "pipeline": hops * sent / width,
        "data": np.asarray(sum(_gradients(c, k, *group) for group in _groups(c))),
        # 20 bytes move per parameter: see the Notes of assumed_model.
        "optimizer": 20 * held / (k.optimizer_share * c.memory),
        "other": rounds * launch + k.fixed_s,
    }


def share_of_peak(c: Columns, k: Constants) -> Array:
    """Narrow matrices and few tokens reach less of the peak."""
    return k.matrix_share / (1 + k.half_width * c.t / c.h) / (1 + k.half_tokens / c.tokens)


def _share_of_experts(c: Columns, k: Constants) -> Array:
    """Return the share of grouped products: narrow experts, each with its part of the tokens."""
    rows = c.tokens * c.routed * c.e / c.experts * c.expert_t / c.t
    # The narrower side of an expert decides how much of the peak its products reach.
    narrow = 1 + k.half_width * c.expert_t / np.minimum(c.h, c.ffn)
    return k.matrix_share * k.expert_share / narrow / (1 + k.half_tokens / rows)


def _link(c: Columns, k: Constants, ranks: Array, stride: Array | float = 1.0) -> Array:
    return _slower(c, ranks, stride, k.node_share * c.node, k.network_share * c.network)


def _slower(c: Columns, ranks: Array, stride: Array | float, node: Array, network: Array) -> Array:
    """Within a node its links; beyond, a ring leaves the node by the adapters of all its ranks."""
    local = c.in_node(ranks, stride)
    return np.asarray(np.where(ranks <= local, node, np.minimum(node, local * network)))


def _stage(c: Columns, k: Constants) -> tuple[Array, ...]:
    """Forward and backward of a stage's layers and one micro-batch: five parts in seconds."""
    routed = _layer(c, k, _share_of_experts(c, k), c.routed * c.ffn, c.shared * c.ffn, 1.0)
    dense = _layer(c, k, np.ones_like(c.h), 0.0 * c.h, c.dense_ffn, 0.0)
    both = zip(routed, dense, strict=True)
    # Parts that a model without experts has not are 0, not nothing: 0 layers x a number.
    return tuple(c.stage_moe * of_moe + c.stage_dense * of_dense for of_moe, of_dense in both)


def _layer(
    c: Columns, k: Constants, grouped: Array, routed_ffn: Array, ffn: Array, is_routed: float
) -> tuple[Array, ...]:
    """Return the parts of a layer whose tokens meet that width of experts and other blocks."""
    scores = 2 * c.tokens * np.where(c.flash > 0, c.seen / 2, c.s) * (c.key + c.value)
    dense = share_of_peak(c, k)
    # Backward is two products for each of forward; flash attention stores no scores and
    # needs five for two, as it computes them again.
    plain = c.attention_parameters + c.matrices * c.h * ffn
    linear = plain / dense + c.matrices * c.h * routed_ffn / grouped
    matrix = (3 + c.full) * 2 * c.tokens * linear / c.t / c.peak
    again = 3 + c.full + c.selective + 0.5 * c.flash
    matrix = matrix + again * scores / c.t / (c.peak_16 * dense)
    stored = np.where(c.flash > 0, 0, 5 * c.b * c.a * c.s * c.s / c.c)
    # Forward writes and reads what it stores, backward reads it, writes and reads its
    # gradient; what is computed again is written and read again.
    passes = 5 + 2 * c.full
    wide = (18 * c.h + 4 * (routed_ffn + ffn)) * c.tokens
    # Copies of tokens are sorted by expert and back, forward and backward: read and written.
    sorted_ = is_routed * (16 + 8 * c.full) * c.routed * c.h * c.tokens
    traffic = passes * wide + (passes + 2 * c.selective) * stored + sorted_
    compute = matrix + traffic / c.t / (k.memory_share * c.memory)
    reduce = 2 * (c.t - 1) / c.t * 2 * c.tokens * c.h
    tensor = (4 + 2 * c.full) * reduce / _link(c, k, c.t)
    # Keys and values are gathered forward and backward, their gradients scattered.
    gathered = 2 * c.b * c.s * c.kv / c.t * (c.c - 1) / c.c
    context = (3 + c.full) * gathered / _link(c, k, c.c, c.t)
    expert = is_routed * (4 + 2 * c.full) * _exchange(c, k)
    gpu = compute + tensor + context + expert
    # The host launches while the GPU works; the longer of the two shows, smoothly.
    host = k.launch_s + is_routed * k.routing_s
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
    shared = c.stage_parameters + c.vocabulary * c.h / c.t
    return (shared, c.replicas, c.t), (c.stage_experts, c.expert_replicas, c.expert_span)


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


Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """One array per letter; s, b, h, a, L, t, p, d as in arXiv:2205.05198."""

    layers: Array  # of the model and for further tokens
    ahead: Array  # layers for further tokens, each with a head
    h: Array
    ffn: Array
    key: Array  # heads x width of a query or key
    value: Array  # heads x width of a value
    kv: Array  # columns of keys and values, both
    stored: Array  # columns of queries, keys, values and what they are expanded from
    attention_parameters: Array  # matrix elements of the attention of a layer
    a: Array
    vocabulary: Array
    matrices: Array
    tied: Array
    experts: Array
    routed: Array
    shared: Array  # experts that every token meets
    moe_every: Array
    moe: Array  # layers with experts
    dense_ffn: Array
    seen: Array  # tokens that one attends to, twice the mean under a causal mask
    n: Array
    t: Array
    c: Array
    p: Array
    d: Array
    e: Array
    v: Array
    b: Array
    gb: Array
    s: Array
    full: Array
    selective: Array
    sharding: npt.NDArray[np.str_]
    sequence_parallel: Array
    flash: Array
    peak: Array  # FLOP/s
    peak_16: Array  # FLOP/s of 16-bit products; attention and the head stay there
    capacity: Array  # bytes
    memory: Array  # bytes/s
    node: Array
    network: Array
    per_node: Array

    @property
    def tokens(self) -> Array:
        """Tokens of a micro-batch that one context-parallel rank holds."""
        return self.b * self.s / self.c

    @property
    def rounds(self) -> Array:
        return self.gb / (self.d * self.b)  # micro-batches per replica

    @property
    def linear_parameters(self) -> Array:
        """Matrix elements of all layers that one token meets."""
        blocks = self.moe * (self.routed + self.shared) * self.ffn
        blocks = blocks + (self.layers - self.moe) * self.dense_ffn
        # A layer for a further token projects two widths to one.
        first = 2 * self.ahead * self.h * self.h
        return self.layers * self.attention_parameters + self.matrices * self.h * blocks + first

    @property
    def expert_parameters(self) -> Array:
        """Matrix elements of one expert."""
        return self.matrices * self.h * self.ffn

    @property
    def is_routed(self) -> npt.NDArray[np.bool_]:
        return self.experts > 1  # whether tokens are sent to experts

    @property
    def is_narrow(self) -> npt.NDArray[np.bool_]:
        """Whether the peak is that of numbers narrower than 8 bits."""
        return self.peak > 3 * self.peak_16

    @property
    def is_folded(self) -> npt.NDArray[np.bool_]:
        """Whether experts are spread over tensor- and context-parallel ranks, too, whole.

        Megatron-LM calls this parallel folding. Where the replicas alone suffice, the
        tensor-parallel ranks share the matrices of an expert as they share the others.
        """
        return np.asarray(self.d % self.e != 0)

    @property
    def expert_t(self) -> Array:
        return np.where(self.is_folded, 1, self.t)  # ranks that share the matrices of one expert

    @property
    def replicas(self) -> Array:
        """Ranks that hold the same parameters besides experts, every ``t``-th rank.

        Ranks that share sequences hold the same parameters, like data-parallel ones.
        """
        return self.c * self.d

    @property
    def expert_span(self) -> Array:
        """Neighbouring ranks that hold every expert once and exchange the tokens of a layer."""
        return self.e * self.expert_t

    @property
    def expert_replicas(self) -> Array:
        """Ranks that hold the same experts, every ``expert_span``-th rank."""
        return self.t * self.replicas / self.expert_span

    def in_node(self, ranks: Array, stride: Array | float) -> Array:
        """Count the ranks of a group of every ``stride``-th one that share a node."""
        return np.asarray(np.clip(self.per_node // stride, 1, ranks))

    def shards(self, replicas: Array, stride: Array) -> Array:
        """Count the ranks that share the optimizer's states of such replicas."""
        in_node = np.where(self.sharding == "hsdp", self.in_node(replicas, stride), replicas)
        return np.where(self.sharding == "none", 1, in_node)

    @property
    def stage_layers(self) -> Array:
        """Layers of the fullest stage."""
        return np.asarray(np.ceil(self.layers / self.p), dtype=np.float64)

    @property
    def stage_moe(self) -> Array:
        """Layers with experts of the stage that has most of them."""
        return np.minimum(np.ceil(self.stage_layers / self.moe_every), self.moe)

    @property
    def stage_dense(self) -> Array:
        return self.stage_layers - self.stage_moe  # the other layers of that stage

    @property
    def stage_parameters(self) -> Array:
        """Parameters of a stage besides its experts that a rank holds, norms with them."""
        blocks = self.stage_moe * self.shared * self.ffn + self.stage_dense * self.dense_ffn
        layers = self.stage_layers * (self.attention_parameters + 2 * self.h)
        return (layers + self.matrices * self.h * blocks) / self.t

    @property
    def stage_experts(self) -> Array:
        """Parameters of the experts of a stage that a rank holds."""
        return self.stage_moe * self.expert_parameters * self.experts / self.e / self.expert_t


def _attention(of: Callable[[str], Array]) -> dict[str, Array]:
    """Return widths and parameters of the attention of a layer, plain or latent."""
    h, a, kv_heads, head = (of(n) for n in ("hidden", "head_count", "kv_head_count", "head_width"))
    query, latent = of("query_rank"), of("latent_rank")
    own = of("value_width")
    key, value = a * (head + of("rotary_width")), a * np.where(own > 0, own, head)
    kv = (key + value) * kv_heads / a
    plain = 2 * h * head * (a + kv_heads)
    from_query = np.where(query > 0, (h + key) * query, h * key)
    from_latent = h * (latent + of("rotary_width")) + latent * (a * head + value) + value * h
    return {
        "key": key, "value": value, "kv": kv, "stored": key + kv + value + query + latent,
        "attention_parameters": np.where(latent > 0, from_query + from_latent, plain),
    }  # fmt: skip


def _seen(of: Callable[[str], Array], is_chunked: Array) -> Array:
    """Tokens that one attends to, the mean of all layers; twice the mean under a causal mask."""
    s, every, layers = of("sequence_tokens"), of("full_attention_every"), of("layer_count")
    w = np.where(of("window_tokens") > 0, np.minimum(of("window_tokens"), s), s)
    whole, rest = np.divmod(s, w)
    in_chunks = (whole * w**2 + rest**2) / s
    windowed = np.where(is_chunked > 0, in_chunks, 2 * w - w**2 / s)
    full = np.where(every > 0, layers // np.maximum(every, 1), 0) / layers
    return np.asarray(full * s + (1 - full) * windowed)


def columns(
    configurations: pd.DataFrame,
    gpus: Mapping[str, GpuType] | None = None,
    *,
    with_hardware: bool = True,
) -> Columns:
    """Check a table of configurations and give its numbers; ``gpus`` replaces known kinds.

    Without hardware no GPU type is looked up, and its numbers are NaN: counts of operations
    need none.
    """
    CONFIGURATIONS.check(configurations)
    names = configurations["gpu"].astype(str)
    kinds = {}
    if with_hardware:
        kinds = {name: (gpus or {}).get(name) or gpu_type(name) for name in names.unique()}
    types = [kinds.get(name) for name in names]

    def of(column: str) -> Array:
        return configurations[column].to_numpy(dtype=np.float64)

    def is_(column: str, value: str) -> Array:
        return np.asarray(configurations[column] == value, dtype=np.float64)

    def hardware(field: str, factor: float = 1e9) -> Array:
        # Without hardware the kind is None, whose numbers are NaN.
        return np.array([getattr(kind, field, np.nan) * factor for kind in types], dtype=np.float64)

    layers, ahead, has_experts = of("layer_count"), of("next_token_count"), of("expert_count") > 1
    moe = np.where(has_experts, (layers - of("dense_first_count")) // of("moe_every") + ahead, 0)
    return Columns(
        layers=layers + ahead, ahead=ahead, h=of("hidden"), ffn=of("ffn"), **_attention(of),
        a=of("head_count"), vocabulary=of("vocabulary_count"), matrices=2 + of("is_gated"),
        tied=of("is_tied"),
        experts=of("expert_count"), routed=of("routed_count"), shared=of("shared_count"),
        moe_every=of("moe_every"), moe=moe,
        dense_ffn=np.where(of("dense_ffn") > 0, of("dense_ffn"), of("ffn")),
        seen=_seen(of, of("is_chunked")), n=of("gpu_count"),
        t=of("tensor_parallel"), c=of("context_parallel"), p=of("pipeline_parallel"),
        d=of("data_parallel"), e=of("expert_parallel"), v=of("chunk_count"),
        b=of("micro_batch_count"), gb=of("global_batch_count"), s=of("sequence_tokens"),
        full=is_("recompute", "full"), selective=is_("recompute", "selective"),
        sharding=configurations["sharding"].to_numpy(dtype=str),
        sequence_parallel=of("has_sequence_parallel"), flash=of("has_flash_attention"),
        peak=hardware("peak_tflops", 1e12), peak_16=hardware("wide_tflops", 1e12),
        capacity=hardware("memory_gb"),
        memory=hardware("memory_gb_per_s"), node=hardware("node_gb_per_s"),
        network=hardware("network_gb_per_s"), per_node=hardware("gpus_per_node", 1),
    )  # fmt: skip


def total_bytes(c: Columns) -> Array:
    return np.asarray(np.sum([*states(c), activations(c)], axis=0), dtype=np.float64)


def states(c: Columns) -> tuple[Array, Array, Array]:
    # The output embedding is on the first stage too only where there is one stage.
    embedding = c.vocabulary * c.h * np.where((c.p == 1) & (c.tied == 0), 2, 1)
    shared = _held_states(c, c.stage_parameters, embedding / c.t, c.shards(c.replicas, c.t))
    # Of an expert there are fewer replicas, so fewer ranks to share its states.
    of_experts = c.shards(c.expert_replicas, c.expert_span)
    experts = _held_states(c, c.stage_experts, 0.0, of_experts)
    weights, gradients, optimizer = (a + b for a, b in zip(shared, experts, strict=True))
    return weights, gradients, optimizer


def _held_states(
    c: Columns, stage: Array, besides: Array | float, shards: Array
) -> tuple[Array, Array, Array]:
    """Return bytes of weights, gradients and optimizer of parameters shared by so many ranks."""
    held = stage + besides
    copies = np.where(c.sharding == "zero1", 1, shards)
    gathered = np.where(copies > 1, 2 * stage / c.stage_layers, 0)
    return 2 * held / copies + gathered, 4 * held / copies, 12 * held / shards


def activations(c: Columns) -> Array:
    tokens = c.tokens * c.h
    outside = 10 / np.where(c.sequence_parallel > 0, c.t, 1)
    scores = np.where((c.selective > 0) | (c.flash > 0), 0, 5 * c.a * c.s / (c.h * c.t))
    blocks = c.stage_moe * (c.routed + c.shared) * c.ffn + c.stage_dense * c.dense_ffn
    width = 2 * c.stored + 4 * blocks / c.stage_layers
    layer = tokens * (outside + width / c.h / c.t + scores)
    # Of what is computed again only the input stays, and one layer is whole at a time.
    stage = np.where(c.full > 0, 2 * tokens * c.stage_layers + layer / c.p, layer * c.stage_layers)
    # 1F1B: the first stage holds as many micro-batches as there are stages, interleaving a part
    # more.
    in_flight = np.where(c.v > 1, c.p * (1 + (c.p - 1) / (c.p * c.v)), np.minimum(c.rounds, c.p))
    embedding = np.where(c.sequence_parallel > 0, 1 / c.t, 1) * (8 * c.tokens + tokens)
    head = np.where(c.p == 1, 4 * (tokens + c.tokens * c.vocabulary) / c.t, 0)
    return np.asarray((stage + embedding) * in_flight + head, dtype=np.float64)


def flops(c: Columns, *, causal: bool) -> tuple[Array, Array]:
    tokens = c.gb * c.s
    linear = 6 * tokens * c.linear_parameters
    scores = (c.key + c.value) * c.layers * (0.5 if causal else 1.0)
    attention = 6 * tokens * c.seen * scores
    head = 6 * tokens * (1 + c.ahead) * c.h * c.vocabulary
    again = np.where(c.full > 0, (linear + attention) / 3, c.selective * attention / 3)
    return linear + attention + head, linear + attention + head + again
