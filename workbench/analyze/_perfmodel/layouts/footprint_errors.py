"""Planned memory beside measured memory, category by category."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.analyze._perfmodel.layouts.closed_form import memory_footprint
from workbench.analyze._perfmodel.layouts.model_shape import GpuType
from workbench.analyze._traces.memory import held_at
from workbench.errors import WorkbenchError
from workbench.tables import FOOTPRINT_ERRORS, MEMORY

_TEMPORARY, _UNKNOWN = "temporary", "unknown"
_PLANNED = ("parameters", "gradients", "optimizer", "activations")
_CATEGORIES = (*_PLANNED, _TEMPORARY, _UNKNOWN)
# What an allocation of each phase is if it outlives the phase, and the phases that end it.
_HELD_AS = {
    "parameters": "parameters", "forward": "activations", "recompute": "activations",
    "backward": "gradients", "optimizer": "optimizer", "communication": _TEMPORARY,
}  # fmt: skip
_ENDED_BY = {
    "forward": ("backward",),
    "backward": ("forward", "optimizer"),
    "optimizer": ("forward", "backward", "recompute"),
}
_NEVER = np.iinfo(np.int64).max


def footprint_errors(
    configurations: pd.DataFrame,
    memory: pd.DataFrame,
    *,
    gpus: Mapping[str, GpuType] | None = None,
    most_unknown_share: float = 0.01,
) -> pd.DataFrame:
    """Put the memory that a plan expects beside what a GPU held at its peak, by category.

    The plan is of the fullest GPU, so the GPU with the highest peak is compared. What a phase
    allocates is not all of one category: scratch of the forward pass is no stored activation, and
    the backward pass makes more than gradients. What is freed before its phase ends is temporary.

    Parameters
    ----------
    configurations
        Table :data:`workbench.tables.CONFIGURATIONS` of one row: the job that was recorded.
    memory
        Table :data:`workbench.tables.MEMORY`, recorded with call stacks from before the model was
        made until a step is complete.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.
    most_unknown_share
        Share of the peak whose category may be unknown; above it no category has a gap.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FOOTPRINT_ERRORS`. The categories add up to ``allocated``.
        Weights that are not trained in 16 bits, or gradients that are, show as gaps.

    Raises
    ------
    WorkbenchError
        If there is not one configuration, or no allocation on a GPU.

    Notes
    -----
    Categories follow the phase that the call stack of an allocation shows. Of the forward pass
    counts as an activation what is there when the backward pass next allocates, of the backward
    pass as a gradient what is there at the next forward pass or optimizer step, of the optimizer as
    its state what is there at the next pass. Without a phase, or where the recording ends before
    the phase does, the category is unknown; ``most_bytes`` adds all of that.
    """
    plan = memory_footprint(configurations, gpus=gpus)
    if len(plan) != 1:
        msg = f"{len(plan)} configurations, but one job was recorded; choose its row"
        raise WorkbenchError(msg)
    rows = _fullest(MEMORY.check(memory))
    peak = rows.iloc[int(rows["allocated_bytes"].argmax())]
    held = held_at(rows, int(peak["event"]))
    sizes = held["size_bytes"].groupby(_categories(rows, held)).sum().reindex(_CATEGORIES)
    measured = sizes.fillna(0).astype("Int64")
    allocated, unknown = int(peak["allocated_bytes"]), int(measured[_UNKNOWN])
    most = (measured + unknown).where(measured.index != _UNKNOWN, unknown)
    predicted = plan[[f"{name}_bytes" for name in _PLANNED]].iloc[0].astype("Int64")
    gap = measured.iloc[:4] - predicted.to_numpy()
    if unknown > most_unknown_share * allocated:
        gap = gap.mask(gap.notna())
    total = int(plan["total_bytes"].iloc[0])
    reserved = peak["reserved_bytes"]
    loose = None if pd.isna(reserved) or reserved < allocated else int(reserved) - allocated
    table = pd.DataFrame(
        {
            "rank": peak["rank"],
            "device": str(peak["device"]),
            "category": [*_CATEGORIES, "allocated", "fragmentation"],
            "predicted_bytes": pd.array([*predicted, None, None, total, None], "Int64"),
            "measured_bytes": pd.array([*measured, allocated, loose], "Int64"),
            "most_bytes": pd.array([*most, allocated, loose], "Int64"),
            "gap_bytes": pd.array([*gap, None, None, allocated - total, None], "Int64"),
        }
    )
    return FOOTPRINT_ERRORS.of(table)


def _fullest(memory: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the GPU that held most."""
    of_gpu = memory[(memory["device"] != "CPU") & (memory["allocated_bytes"] > 0)]
    if of_gpu.empty:
        msg = f"none of the {len(memory):,} actions of the allocator held memory of a GPU; "
        msg += "record a snapshot with torch.cuda.memory._record_memory_history"
        raise WorkbenchError(msg)
    first = of_gpu.iloc[int(of_gpu["allocated_bytes"].argmax())]
    rows = memory[(memory["rank"] == first["rank"]) & (memory["device"] == first["device"])]
    return pd.DataFrame(rows.reset_index(drop=True))


def _categories(rows: pd.DataFrame, held: pd.DataFrame) -> pd.Series:
    """Return the category of each allocation, from its phase and whether it outlives that."""
    phase = held["phase"].astype(object)
    category = phase.map(_HELD_AS).fillna(_UNKNOWN)
    freed = held["freed_event"].fillna(_NEVER).to_numpy(dtype=np.int64)
    allocations = rows[rows["action"] == "alloc"]
    for name, others in _ENDED_BY.items():
        ends = allocations.loc[allocations["phase"].isin(others), "event"].to_numpy(dtype=np.int64)
        ended = np.append(ends, _NEVER)[ends.searchsorted(held["event"])]
        is_own = (phase == name).to_numpy()
        category[is_own & (freed < ended)] = _TEMPORARY
        category[is_own & (freed == _NEVER) & (ended == _NEVER)] = _UNKNOWN
    return category
