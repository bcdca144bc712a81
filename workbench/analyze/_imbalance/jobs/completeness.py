"""Steps of a job that were recorded whole, and what had to be left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.arranged import Grid, grid
from workbench.analyze._imbalance.jobs.replay import COMPUTES, TRANSFERS
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS


def complete_steps(operations: pd.DataFrame) -> pd.DataFrame:
    """Keep the steps and data-parallel ranks of a job that were recorded whole.

    A replay needs every operation of every worker, exactly once. Recordings are cut off at
    both ends, lose workers and double rows; this leaves out what is not whole, and counts it.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_OPERATIONS`. ``attrs["left_out"]`` counts what was
        left out, by reason; it is empty where nothing was.

    Raises
    ------
    WorkbenchError
        If nothing would be left.

    Notes
    -----
    In this order: rows that are the same in every column as another one; rows outside the
    pipeline (no computation, send or receive) of an operation that fewer than half of the
    steps and ranks have; ranks that lack or double operations in more than half of the
    steps, those left aside in which every rank does; steps in which any rank that is left
    lacks or doubles operations, or has computations or transfers that fewer than half have.
    A worker without a garbage collection (``gc``) in a step lacks nothing.

    Without a rank, waiting for it looks like slowness of the collective, and its own
    slowness is gone.
    """
    table = JOB_OPERATIONS.check(operations)
    left_out = dict(operations.attrs.get("left_out", {}))
    doubled = table.duplicated()
    table = table[~doubled]
    count = {"rows that are there twice": int(doubled.sum())}
    if not table.empty:
        place = grid(table)
        rare = _rare(place)
        table = table[~rare]
        count["rows of operations that few steps have"] = int(rare.sum())
    if not table.empty:
        bad = _bad(grid(table))
        # A step that is bad for every rank says nothing about one: the recording was cut there.
        cut = bad.all(axis="columns")
        ranks = bad[~cut | bool(cut.all())].mean(axis="index") > 0.5
        steps = bad.loc[:, ~ranks].any(axis="columns")
        count |= _worded(ranks, "data-parallel rank", "that lack operations in most steps")
        count |= _worded(steps, "step", "that lack or double operations")
        if ranks.all() or steps.all():
            why = "; ".join(f"{number:,} {reason}" for reason, number in count.items() if number)
            msg = f"no step of the job is whole: {why}"
            raise WorkbenchError(msg)
        keep = table["dp_rank"].isin(ranks.index[~ranks]) & table["step"].isin(steps.index[~steps])
        table = table[keep]
    table = table.reset_index(drop=True)
    table.attrs["left_out"] = left_out | {reason: n for reason, n in count.items() if n}
    return JOB_OPERATIONS.check(table)


def _rare(place: Grid) -> NDArray[np.bool_]:
    """Mark rows of operations outside the pipeline that fewer than half of the steps have."""
    often = (place.count() > 0).mean(axis=(1, 2)) >= 0.5
    may_go = [key.operation not in COMPUTES | TRANSFERS | {"gc"} for key in place.keys]
    rare = np.array(may_go) & ~often
    return np.asarray(rare[np.unravel_index(place.cell, place.shape)[0]])


def _bad(place: Grid) -> pd.DataFrame:
    """Mark the steps (rows) and ranks (columns) that are not as the others."""
    there = place.count() > 0
    often = there.mean(axis=(1, 2)) >= 0.5
    wrong = place.wrong()
    wrong[~often] = there[~often]
    is_gc = np.array([key.operation == "gc" for key in place.keys])
    wrong[is_gc] = (place.count() > 1)[is_gc]
    return pd.DataFrame(np.asarray(wrong.any(axis=0)), index=place.steps, columns=place.dp_ranks)


def _worded(bad: pd.Series, noun: str, reason: str) -> dict[str, int]:
    """Count what is bad, with the first few by number."""
    numbers = bad.index[bad].tolist()
    listed = ", ".join(str(number) for number in numbers[:5]) + " ..." * (len(numbers) > 5)
    return {f"of {len(bad):,} {noun}s ({listed}) {reason}": len(numbers)}
