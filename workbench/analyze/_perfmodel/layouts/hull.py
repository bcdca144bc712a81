"""What was measured, so that a prediction can say where it goes beyond that."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

_RANGES = {
    "layer_count": "layers", "hidden": "hidden", "gpu_count": "GPUs", "tensor_parallel": "TP",
    "context_parallel": "CP", "pipeline_parallel": "PP", "data_parallel": "DP",
    "expert_parallel": "EP", "chunk_count": "chunks", "micro_batch_count": "micro-batch",
    "global_batch_count": "global batch", "sequence_tokens": "sequence",
}  # fmt: skip
_KINDS = {"gpu": "GPU", "recompute": "recompute", "sharding": "sharding"}
_KINDS |= {"has_flash_attention": "flash attention"}
# A part's constant is fitted only if what causes the part was there.
_NEEDS = {
    "bubble": "pipeline_parallel", "tensor": "tensor_parallel", "context": "context_parallel",
    "expert": "expert_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel",
}  # fmt: skip


@dataclass(frozen=True)
class Hull:
    """Ranges and kinds of the rows a model was fitted to."""

    ranges: dict[str, tuple[int, int]]
    kinds: dict[str, frozenset[object]]

    @classmethod
    def around(cls, measured: pd.DataFrame) -> Hull:
        """Take the ranges and kinds of a table."""
        return cls(
            {name: (int(measured[name].min()), int(measured[name].max())) for name in _RANGES},
            {name: frozenset(measured[name].tolist()) for name in _KINDS},
        )

    def with_kinds(self, measured: pd.DataFrame) -> Hull:
        """Add the kinds of another table; its numbers are one point and widen nothing."""
        kinds = {name: each | set(measured[name].tolist()) for name, each in self.kinds.items()}
        return replace(self, kinds=kinds)

    def outside(self, configurations: pd.DataFrame) -> list[list[str]]:
        """Say for every row where it lies outside."""
        found: list[list[str]] = [[] for _ in range(len(configurations))]
        for name, word in _RANGES.items():
            low, high = self.ranges[name]
            span = f"{low}" if low == high else f"{low} to {high}"
            for row, value in enumerate(configurations[name].tolist()):
                if not low <= value <= high:
                    found[row].append(f"{word} {value} never measured (only {span})")
        for name, word in _KINDS.items():
            for row, value in enumerate(configurations[name].tolist()):
                if value not in self.kinds[name]:
                    found[row].append(f"{word} {value} never measured")
        return found

    def bases(self, part: str, configurations: pd.DataFrame) -> list[str]:
        """Say for every row whether a part rests on fitted constants."""
        column = _NEEDS.get(part)
        seen = column is None or self.ranges[column][1] > 1
        known = configurations["gpu"].isin(self.kinds["gpu"])
        if part == "data":
            known &= configurations["sharding"].isin(self.kinds["sharding"])
        return ["scaled" if seen and each else "modelled" for each in known]
