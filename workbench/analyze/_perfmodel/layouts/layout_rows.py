"""Rows of configurations: whether a job can be like that, and how two of them differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from workbench.analyze._perfmodel.layouts.layout import LAYOUT_COLUMNS, SHAPE_COLUMNS, Layout
from workbench.analyze._perfmodel.layouts.model_shape import ModelShape
from workbench.errors import PerformanceModelError

_WORDS = {
    "gpu": "GPU", "gpu_count": "GPUs", "tensor_parallel": "TP", "context_parallel": "CP",
    "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "EP",
    "chunk_count": "chunks", "micro_batch_count": "micro-batch", "global_batch_count": "batch",
    "sequence_tokens": "sequence", "recompute": "recompute", "sharding": "sharding",
    "has_sequence_parallel": "sequence parallel", "has_flash_attention": "flash attention",
    "layer_count": "layers", "hidden": "hidden", "ffn": "ffn", "head_count": "heads",
    "kv_head_count": "kv heads", "head_width": "head width", "vocabulary_count": "vocabulary",
    "is_gated": "gated", "is_tied": "tied", "expert_count": "experts", "routed_count": "routed",
}  # fmt: skip


def possible(configurations: pd.DataFrame, name: str) -> None:
    """Refuse rows that no job can have.

    Raises
    ------
    PerformanceModelError
        For the first such row, with every reason.
    """
    for number, row in enumerate(configurations.to_dict("records")):
        try:
            wrong = _misfits(row)
        except PerformanceModelError as error:
            wrong = [str(error)]
        if wrong:
            msg = f"{name}, row {number}: " + "; ".join(wrong)
            raise PerformanceModelError(msg)


def _misfits(row: Mapping[Hashable, Any]) -> list[str]:
    shape = ModelShape(**{name: _plain(row[column]) for name, column in SHAPE_COLUMNS.items()})
    layout = Layout(**{name: _plain(row[column]) for name, column in LAYOUT_COLUMNS.items()})
    wrong = layout.misfits(shape)
    if layout.gpu_count != row["gpu_count"]:
        wrong.append(
            f"TP{layout.tensor} x CP{layout.context} x PP{layout.pipeline} x DP{layout.data} is "
            f"{layout.gpu_count} GPUs, not {row['gpu_count']}"
        )
    return wrong


def _plain(value: Any) -> Any:
    """Turn a number of numpy into one of Python."""
    return value.item() if hasattr(value, "item") else value


def differences(now: pd.DataFrame, wanted: pd.DataFrame) -> list[str]:
    """Say of every row how it differs from the one row of ``now``."""
    one = now.iloc[0]
    found = []
    for row in wanted.to_dict("records"):
        each = [
            f"{words} {_said(one[name])} → {_said(row[name])}"
            for name, words in _WORDS.items()
            if one[name] != row[name]
        ]
        found.append(", ".join(each) or "as in the trace")
    return found


def _said(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
