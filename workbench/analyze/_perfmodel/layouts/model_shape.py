"""Shapes of transformer models: what a layer holds, and how many parameters that makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import pandas as pd

from workbench import datasets
from workbench._shared.numbers import positive, whole_number
from workbench.errors import PerformanceModelError

# Arguments of a model, and the columns of CONFIGURATIONS that hold them.
SHAPE_COLUMNS = {
    "layers": "layer_count", "hidden": "hidden", "heads": "head_count", "ffn": "ffn",
    "kv_heads": "kv_head_count", "head_width": "head_width", "vocabulary": "vocabulary_count",
    "gated": "is_gated", "tied": "is_tied", "experts": "expert_count", "routed": "routed_count",
    "shared": "shared_count", "moe_every": "moe_every", "dense_first": "dense_first_count",
    "dense_ffn": "dense_ffn", "window": "window_tokens", "full_every": "full_attention_every",
    "chunked": "is_chunked", "query_rank": "query_rank", "latent_rank": "latent_rank",
    "rotary_width": "rotary_width", "value_width": "value_width", "next_tokens": "next_token_count",
}  # fmt: skip
_FLAGS = {"gated", "tied", "chunked"}
# Counts that may be 0: the model then has none of it.
_MAY_BE_ZERO = (
    "shared", "dense_first", "dense_ffn", "window", "full_every", "query_rank", "latent_rank",
    "rotary_width", "value_width", "next_tokens",
)  # fmt: skip


def not_counts(values: object, names: Iterable[str], *, least: int = 1) -> list[str]:
    """Name the attributes that are not whole numbers from ``least``; a bool is none."""
    numbers = {name: getattr(values, name) for name in names}
    return [
        f"{name} must be a whole number from {least}, not {value!r}"
        for name, value in numbers.items()
        if isinstance(value, bool) or not isinstance(value, int) or value < least
    ]


@dataclass(frozen=True)
class ModelShape:
    """The shape of a decoder-only transformer.

    Parameters
    ----------
    layers
        Transformer layers.
    hidden
        Width of the model.
    heads
        Attention heads.
    ffn
        Inner width of a feed-forward block, of one expert if there are several; 4 x hidden if None.
    kv_heads
        Heads of keys and values; as many as ``heads`` if None.
    head_width
        Width of a head; hidden / heads if None.
    vocabulary
        Tokens of the vocabulary, padded as in training.
    gated
        Whether feed-forward blocks have three matrices (SwiGLU) instead of two.
    tied
        Whether input and output embedding are one matrix.
    experts, routed
        Experts per layer, and how many of them each token visits; 1 and 1 for a dense model.
    shared
        Experts of a layer that every token visits besides, as wide as the others.
    moe_every, dense_first
        Every how many layers one has experts, after so many layers without.
    dense_ffn
        Inner width of the feed-forward block of the layers without experts; ``ffn`` if 0.
    window, full_every
        Tokens that attention looks back at, 0 for all; every ``full_every``-th layer still looks
        at all, none does if 0.
    chunked
        Whether the window is a chunk that begins again, instead of one that slides along.
    latent_rank, query_rank, rotary_width, value_width
        Multi-head latent attention: widths of what keys and values, and queries, are expanded
        from (0 for neither), of the rotary part that comes on top of ``head_width`` in queries and
        keys, and of a head's values, ``head_width`` if 0.
    next_tokens
        Layers that predict further tokens in training (multi-token prediction).
    name
        What the model is called.

    Raises
    ------
    PerformanceModelError
        If the numbers make no model; the message lists every reason.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int | None = None
    kv_heads: int | None = None
    head_width: int | None = None
    vocabulary: int = 51_200
    gated: bool = False
    tied: bool = True
    experts: int = 1
    routed: int = 1
    name: str = ""
    shared: int = 0
    moe_every: int = 1
    dense_first: int = 0
    dense_ffn: int = 0
    window: int = 0
    full_every: int = 0
    chunked: bool = False
    query_rank: int = 0
    latent_rank: int = 0
    rotary_width: int = 0
    value_width: int = 0
    next_tokens: int = 0

    def __post_init__(self) -> None:
        defaults = {"ffn": 4 * self.hidden, "kv_heads": self.heads}
        defaults["head_width"] = self.hidden // max(self.heads, 1)
        for field, value in defaults.items():
            if getattr(self, field) is None:
                # Frozen, so that a shape can be a key; defaults depend on other fields.
                object.__setattr__(self, field, value)
        counts = [name for name in SHAPE_COLUMNS if name not in {*_FLAGS, *_MAY_BE_ZERO}]
        wrong = not_counts(self, counts) + not_counts(self, _MAY_BE_ZERO, least=0)
        if wrong := wrong or self._contradictions():
            msg = f"no model has this shape ({self.name or 'without a name'}): " + "; ".join(wrong)
            raise PerformanceModelError(msg)

    def _contradictions(self) -> list[str]:
        is_default = self.head_width == self.hidden // self.heads
        is_dense = self.experts == 1
        rules = {
            f"hidden {self.hidden} does not divide by {self.heads} heads; "
            "give head_width": self.hidden % self.heads and is_default,
            f"{self.heads} heads do not divide by {self.kv_heads} heads "
            "of keys and values": self.heads % (self.kv_heads or 1),
            f"tokens visit {self.routed} of {self.experts} experts": self.routed > self.experts,
            "shared, moe_every, dense_first and dense_ffn need experts": is_dense
            and (self.shared, self.moe_every, self.dense_first, self.dense_ffn) != (0, 1, 0, 0),
            f"{self.layers} layers after {self.dense_first} dense ones leave none of every "
            f"{self.moe_every} for experts": not is_dense and not self.moe_layers,
            "full_every and chunked need a window": not self.window
            and (self.full_every or self.chunked),
            "query_rank, rotary_width and value_width need latent_rank": not self.latent_rank
            and (self.query_rank or self.rotary_width or self.value_width),
            f"latent attention has keys for each of its {self.heads} heads, "
            f"not {self.kv_heads}": self.latent_rank and self.kv_heads != self.heads,
        }
        return [words for words, broken in rules.items() if broken]

    @property
    def moe_layers(self) -> int:
        """Layers with experts, of ``layers``."""
        return (self.layers - self.dense_first) // self.moe_every if self.experts > 1 else 0

    @property
    def parameter_count(self) -> int:
        """Parameters of the model, all experts, with its embeddings."""
        return self._parameters(self.experts)

    @property
    def active_parameter_count(self) -> int:
        """Parameters that one token meets."""
        return self._parameters(self.routed)

    def _parameters(self, experts: int) -> int:
        attention = self.attention_parameter_count + 2 * self.hidden  # gains of two norms
        # Gated: up, gate and down projection; else up and down.
        width = (2 + self.gated) * self.hidden
        assert self.ffn is not None
        router = self.hidden * self.experts
        routed = attention + width * self.ffn * (experts + self.shared) + router
        dense = attention + width * (self.dense_ffn or self.ffn)
        # A layer for further tokens begins with the sum of two, projected to the model's width.
        ahead = (routed if self.moe_layers else dense) + 2 * self.hidden**2
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        layers = self.moe_layers * routed + (self.layers - self.moe_layers) * dense
        return layers + self.next_tokens * ahead + embeddings + self.hidden

    @property
    def attention_parameter_count(self) -> int:
        """Elements of the matrices of the attention of a layer."""
        assert self.head_width is not None
        assert self.kv_heads is not None
        if not self.latent_rank:
            # Queries and output have all heads, keys and values those of grouped attention.
            return 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)
        queries = self.heads * (self.head_width + self.rotary_width)
        values = self.heads * (self.value_width or self.head_width)
        expanded = self.heads * self.head_width + values
        latent = self.hidden * (self.latent_rank + self.rotary_width) + self.latent_rank * expanded
        query = (self.hidden + queries) * self.query_rank or self.hidden * queries
        return query + latent + values * self.hidden

    def kv_cache_bytes(self, tokens: int, *, value_bytes: float = 2) -> float:
        """Work out how much memory keys and values of one sequence take when serving.

        Parameters
        ----------
        tokens
            Tokens of the sequence.
        value_bytes
            Bytes per number.

        Returns
        -------
        float
            Bytes over all layers; those with a window keep no more tokens than it holds, latent
            attention keeps its latents and the rotary part of the keys.
        """
        whole_number("tokens", tokens, least=0)
        positive("value_bytes", value_bytes)
        assert self.head_width is not None
        assert self.kv_heads is not None
        latent = self.latent_rank + self.rotary_width
        width = latent if self.latent_rank else 2 * self.kv_heads * self.head_width
        kept = min(tokens, self.window or tokens)
        full = self.layers - self.windowed_layers
        return value_bytes * width * (full * tokens + self.windowed_layers * kept)

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention has a window, of ``layers``."""
        every = self.full_every
        return (self.layers - self.layers // every if every else self.layers) if self.window else 0


def model_shape(model: str | Mapping[str, Any]) -> ModelShape:
    """Look up a published model by its name, or read a model's own ``config.json``.

    Parameters
    ----------
    model
        Name of a model of the bundled ``published/model_shapes.csv``,
        e.g. ``"GPT-3 175B"``, ``"Llama 4 Maverick"``, ``"DeepSeek V3"`` or ``"Megatron 530B"``; or
        the content of the ``config.json`` that a model is released with.

    Returns
    -------
    ModelShape
        Its shape; the file names the publication. Biases, norms of queries and keys, and what
        sees or hears are left out.

    Raises
    ------
    PerformanceModelError
        If it is not in the file, or the config has layers that the fields of a shape cannot
        express.

    Examples
    --------
    >>> round(model_shape("GPT-3 175B").parameter_count / 1e9)
    175
    """
    if isinstance(model, Mapping):
        # It makes shapes of this module.
        from workbench.analyze._perfmodel.layouts.model_config import shape_of_config

        return shape_of_config(model)
    shapes = _known()
    if model not in shapes:
        msg = f"no model {model!r}; there are {list(shapes)}; pass the content of its config.json, "
        raise PerformanceModelError(msg + "or make a ModelShape(...)")
    return shapes[model]


@cache
def _known() -> dict[str, ModelShape]:
    rows = pd.read_csv(datasets.path("published") / "model_shapes.csv").to_dict("records")
    shapes = {}
    for row in rows:
        # An empty cell is the default of the field.
        filled = {name: row[column] for name, column in SHAPE_COLUMNS.items()}
        cells: dict[str, Any] = {
            name: value == "yes" if name in _FLAGS else int(value)
            for name, value in filled.items()
            if not pd.isna(value)
        }
        shapes[str(row["model"])] = ModelShape(**cells, name=str(row["model"]))
    return shapes


@dataclass(frozen=True)
class GpuType:
    """A kind of GPU and its links; bandwidths are one way, per GPU.

    Parameters
    ----------
    name
        What it is called in tables, e.g. ``"H100"``.
    peak_tflops
        Dense matrix products of the precision that is trained in [10^12 FLOP/s]; sheets that
        count zeros print twice that.
    memory_gb
        Memory [10^9 bytes].
    memory_gb_per_s
        Its bandwidth.
    node_gb_per_s
        Between GPUs of a node (NVLink).
    network_gb_per_s
        Between nodes, per GPU.
    gpus_per_node
        GPUs that the fast links connect.
    peak_16bit_tflops
        Dense 16-bit products where ``peak_tflops`` is of narrower ones: attention and the
        output layer are computed in 16 bits even if the other matrices are not. The same as
        ``peak_tflops`` if None.

    Raises
    ------
    WorkbenchError
        If a number is not above 0.
    """

    name: str
    peak_tflops: float
    memory_gb: float
    memory_gb_per_s: float
    node_gb_per_s: float
    network_gb_per_s: float
    gpus_per_node: int = 8
    peak_16bit_tflops: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self)[1:-1]:
            positive(field.name, getattr(self, field.name))
        positive("peak_16bit_tflops", self.wide_tflops)
        whole_number("gpus_per_node", self.gpus_per_node, least=1)

    @property
    def wide_tflops(self) -> float:
        """Dense 16-bit products [10^12 FLOP/s]."""
        return self.peak_tflops if self.peak_16bit_tflops is None else self.peak_16bit_tflops


def gpu_type(name: str) -> GpuType:
    """Look up a kind of GPU by its name, in the bundled ``published/gpu_types.csv``.

    Parameters
    ----------
    name
        E.g. ``"A100"``, ``"H100"`` or ``"B200"``.

    Returns
    -------
    GpuType
        Dense 16-bit peak, memory and links; ``dataclasses.replace`` changes any of them.

    Raises
    ------
    PerformanceModelError
        If it is not in the file.

    Examples
    --------
    >>> gpu_type("H100").peak_tflops
    989.0
    """
    types = _gpu_type_known()
    if name not in types:
        msg = f"no GPU type {name!r}; there are {list(types)}, or make a GpuType(...)"
        raise PerformanceModelError(msg)
    return types[name]


@cache
def _gpu_type_known() -> dict[str, GpuType]:
    rows = pd.read_csv(datasets.path("published") / "gpu_types.csv").to_dict("records")
    return {
        str(row["gpu"]): GpuType(
            name=str(row["gpu"]),
            **{f.name: float(row[f.name]) for f in fields(GpuType)[1:-2]},
            gpus_per_node=int(row["gpus_per_node"]),
            peak_16bit_tflops=None if pd.isna(wide := row["peak_16bit_tflops"]) else float(wide),
        )
        for row in rows
    }
