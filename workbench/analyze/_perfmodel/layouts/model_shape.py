"""Shapes of transformer models: what a layer holds, and how many parameters that makes."""

from __future__ import annotations

from collections.abc import Iterable
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
}  # fmt: skip


def not_counts(values: object, names: Iterable[str]) -> list[str]:
    """Name the attributes that are no whole number from 1; a bool is none, though an int."""
    numbers = {name: getattr(values, name) for name in names}
    return [
        f"{name} must be a whole number from 1, not {value!r}"
        for name, value in numbers.items()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1
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

    def __post_init__(self) -> None:
        defaults = {"ffn": 4 * self.hidden, "kv_heads": self.heads}
        defaults["head_width"] = self.hidden // max(self.heads, 1)
        for field, value in defaults.items():
            if getattr(self, field) is None:
                # Frozen, so that a shape can be a key; defaults depend on other fields.
                object.__setattr__(self, field, value)
        counts = [name for name in SHAPE_COLUMNS if name not in {"gated", "tied"}]
        if wrong := not_counts(self, counts) or self._contradictions():
            msg = f"no model has this shape ({self.name or 'without a name'}): " + "; ".join(wrong)
            raise PerformanceModelError(msg)

    def _contradictions(self) -> list[str]:
        is_default = self.head_width == self.hidden // self.heads
        rules = {
            f"hidden {self.hidden} does not divide by {self.heads} heads; "
            "give head_width": self.hidden % self.heads and is_default,
            f"{self.heads} heads do not divide by {self.kv_heads} heads "
            "of keys and values": self.heads % (self.kv_heads or 1),
            f"tokens visit {self.routed} of {self.experts} experts": self.routed > self.experts,
        }
        return [words for words, broken in rules.items() if broken]

    @property
    def parameter_count(self) -> int:
        """Parameters of the model, all experts, with its embeddings."""
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * self._layer(self.experts) + embeddings + self.hidden

    @property
    def active_parameter_count(self) -> int:
        """Parameters that one token meets."""
        idle = self._layer(self.experts) - self._layer(self.routed)
        return self.parameter_count - self.layers * idle

    def _layer(self, experts: int) -> int:
        assert self.ffn is not None
        assert self.kv_heads is not None
        assert self.head_width is not None
        # Queries and output have all heads, keys and values those of grouped attention.
        attention = 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)
        # Gated: up, gate and down projection; else up and down.
        matrices = 3 if self.gated else 2
        router = self.hidden * self.experts if self.experts > 1 else 0
        # The last term is the gains of a layer's two norms.
        return attention + matrices * self.hidden * self.ffn * experts + router + 2 * self.hidden


def model_shape(name: str) -> ModelShape:
    """Look up a published model by its name, in the bundled ``published/model_shapes.csv``.

    Parameters
    ----------
    name
        E.g. ``"GPT-3 175B"``, ``"Llama 3 405B"``, ``"Megatron 530B"`` or ``"Lumos 15B"``.

    Returns
    -------
    ModelShape
        Its shape; the file names the publication.

    Raises
    ------
    PerformanceModelError
        If it is not in the file.

    Examples
    --------
    >>> round(model_shape("GPT-3 175B").parameter_count / 1e9)
    175
    """
    shapes = _known()
    if name not in shapes:
        msg = f"no model {name!r}; there are {list(shapes)}, or make a ModelShape(...)"
        raise PerformanceModelError(msg)
    return shapes[name]


@cache
def _known() -> dict[str, ModelShape]:
    rows = pd.read_csv(datasets.path("published") / "model_shapes.csv").to_dict("records")
    shapes = {}
    for row in rows:
        cells: dict[str, Any] = {name: row[column] for name, column in SHAPE_COLUMNS.items()}
        for name, value in cells.items():
            cells[name] = value == "yes" if name in {"gated", "tied"} else int(value)
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
