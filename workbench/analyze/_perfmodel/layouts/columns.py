"""The numbers of configurations as arrays, under the letters that the formulas use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.analyze._perfmodel.layouts.gpu_type import GpuType, gpu_type
from workbench.tables import CONFIGURATIONS

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """One array per letter; s, b, h, a, L, t, p, d as in arXiv:2205.05198."""

    layers: Array
    h: Array
    ffn: Array
    heads: Array  # heads x width: columns of the query projection
    kv: Array  # the same for keys and values
    a: Array
    vocabulary: Array
    matrices: Array
    tied: Array
    experts: Array
    routed: Array
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
        """Micro-batches per replica."""
        return self.gb / (self.d * self.b)

    @property
    def shown(self) -> Array:
        """Return the share of the scores that is computed."""
        return np.where(self.flash > 0, 0.5, 1.0)

    @property
    def linear_parameters(self) -> Array:
        """Matrix elements of a layer that one token meets."""
        return self.attention_parameters + self.routed * self.expert_parameters

    @property
    def attention_parameters(self) -> Array:
        """Matrix elements of the attention of a layer."""
        return 2 * self.h * (self.heads + self.kv)

    @property
    def expert_parameters(self) -> Array:
        """Matrix elements of one feed-forward block, of which a dense layer has one."""
        return self.matrices * self.h * self.ffn

    @property
    def is_routed(self) -> npt.NDArray[np.bool_]:
        """Whether tokens are sent to experts."""
        return self.experts > 1

    @property
    def is_folded(self) -> npt.NDArray[np.bool_]:
        """Whether experts are spread over tensor- and context-parallel ranks, too, whole.

        Megatron-LM calls this parallel folding. Where the replicas alone suffice, the
        tensor-parallel ranks share the matrices of an expert as they share the others.
        """
        return np.asarray(self.d % self.e != 0)

    @property
    def expert_t(self) -> Array:
        """Ranks that share the matrices of one expert."""
        return np.where(self.is_folded, 1, self.t)

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
    def shared_layer_parameters(self) -> Array:
        """Parameters of a layer besides its experts that a rank holds, norms with them."""
        return (self.attention_parameters + 2 * self.h) / self.t

    @property
    def expert_layer_parameters(self) -> Array:
        """Parameters of the experts of a layer that a rank holds."""
        return self.expert_parameters * self.experts / self.e / self.expert_t

    @property
    def stage_layers(self) -> Array:
        """Layers of the fullest stage."""
        return np.asarray(np.ceil(self.layers / self.p), dtype=np.float64)


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
    kinds = (
        {name: (gpus or {}).get(name) or gpu_type(name) for name in names.unique()}
        if with_hardware
        else {}
    )
    each = [kinds.get(name) for name in names]

    def of(column: str) -> Array:
        return configurations[column].to_numpy(dtype=np.float64)

    def is_(column: str, value: str) -> Array:
        return np.asarray(configurations[column] == value, dtype=np.float64)

    def hardware(field: str, factor: float = 1e9) -> Array:
        return np.array([getattr(kind, field, np.nan) * factor for kind in each], dtype=np.float64)

    return Columns(
        layers=of("layer_count"), h=of("hidden"), ffn=of("ffn"),
        heads=of("head_count") * of("head_width"), kv=of("kv_head_count") * of("head_width"),
        a=of("head_count"), vocabulary=of("vocabulary_count"), matrices=2 + of("is_gated"),
        tied=of("is_tied"),
        experts=of("expert_count"), routed=of("routed_count"), n=of("gpu_count"),
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


def in_words(configurations: pd.DataFrame) -> list[str]:
    """Name every configuration as people do: GPUs, parallelism, batch."""
    shown = {"TP": "tensor", "CP": "context", "PP": "pipeline", "DP": "data", "EP": "expert"}
    words = []
    for row in configurations.to_dict("records"):
        name = row["model"] if isinstance(row["model"], str) else f"{row['hidden']} wide"
        sizes = {short: row[f"{long}_parallel"] for short, long in shown.items()}
        ranks = " ".join(f"{k}{v}" for k, v in sizes.items() if v > 1 or k in {"TP", "PP", "DP"})
        words.append(
            f"{name}, {ranks}, batch {row['global_batch_count']}/{row['micro_batch_count']}"
        )
    return words
