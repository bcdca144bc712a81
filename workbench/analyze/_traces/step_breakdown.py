"""What the GPUs did in every training step, from its start to that of the next."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import MISSING, Ints, Work, gpu_work, nullable, required
from workbench.analyze._traces.breakdown import mixes, parts
from workbench.analyze._traces.steps import step_times
from workbench.tables import STEP_BREAKDOWN


def step_breakdown(events: pd.DataFrame) -> pd.DataFrame:
    """Split the time of every step into parts that add up to the step.

    Unlike :func:`workbench.analyze.time_breakdown`, whose windows hold the work that a step
    launched and may overlap, these windows follow each other: together they are the time that
    training takes.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, measured or from
        :func:`workbench.analyze.replayed_events`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STEP_BREAKDOWN`, one row per rank and step. The last step
        of a rank has no next one and is left out. With fewer than two ProfilerSteps a rank has
        one row, from its first to its last GPU work.

    Raises
    ------
    WorkbenchError
        If there is no GPU work.

    Notes
    -----
    The parts are those of :func:`workbench.analyze.time_breakdown`. Work that runs across the
    start of a step counts on both sides, each its share.
    """
    work = required(gpu_work(events), events, "step breakdown")
    starts = step_times(events)[["rank", "step", "start_ns"]].dropna()
    tables = []
    for rank in np.unique(work.rank).tolist():
        mine = work.rank == rank
        own = Work(*(column[mine] for column in work))
        of_rank = starts[starts["rank"] == rank].sort_values("start_ns")
        begin = of_rank["start_ns"].to_numpy(dtype=np.int64)
        step = of_rank["step"].to_numpy(dtype=np.int64)
        if len(begin) < 2:
            begin = np.array([own.start.min(), own.end.max()])
            step = np.array([MISSING, MISSING])
        tables.append(_of_rank(own, begin).assign(rank=rank, step=nullable(step[:-1], "Int32")))
    table = pd.concat(tables)
    table = table[table["dur_ns"] > 0].reset_index(drop=True)
    return STEP_BREAKDOWN.check(STEP_BREAKDOWN.cast(table))


def _of_rank(work: Work, begin: Ints) -> pd.DataFrame:
    """Measure the parts between moments that follow each other."""
    first = np.clip(np.searchsorted(begin, work.start, side="right") - 1, 0, None)
    last = np.clip(np.searchsorted(begin, work.end, side="left"), None, len(begin) - 1)
    pieces = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(first)), pieces)
    window = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    cut = Work(*(column[row] for column in work))
    cut = cut._replace(
        start=np.maximum(cut.start, begin[window]), end=np.minimum(cut.end, begin[window + 1])
    )
    mixed = mixes(cut, window)
    mixed = np.pad(mixed, ((0, len(begin) - 1 - len(mixed)), (0, 0)))
    found = parts(mixed)
    table = pd.DataFrame({name: found[name] for name in found if name in STEP_BREAKDOWN.columns})
    table["dur_ns"] = np.diff(begin)
    table["idle_ns"] = table["dur_ns"] - found["busy_ns"]
    return table
