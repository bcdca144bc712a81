"""How busy the GPU is, over time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.intervals import measure_within, union
from workbench.analyze._lib.rows import gpu_work, required
from workbench.errors import PerformanceModelError
from workbench.tables import GPU_BUSY

_MOST_BINS = 10_000_000


def gpu_busy(events: pd.DataFrame, *, bin_ns: int = 1_000_000) -> pd.DataFrame:
    """Measure the busy share of the GPU in equal bins of time.

    A replay (:func:`replayed_events`) that has the right total can still place the work
    wrongly; the two curves side by side show where.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, measured or replayed.
    bin_ns
        Width of the bins [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GPU_BUSY`: ``rank``, ``start_ns``, ``busy_share``. All
        ranks have the same bins, from the first GPU work of any to the last.

    Raises
    ------
    PerformanceModelError
        If the bins are no positive width, or too narrow for so long a trace.
    WorkbenchError
        If there is no GPU work.

    Notes
    -----
    Busy share of a bin: time in it that at least one piece of GPU work covers / ``bin_ns``.
    Bins begin at multiples of ``bin_ns``, so that those of two traces on one clock agree.
    """
    work = required(gpu_work(events), events, "busy time")
    if bin_ns <= 0:
        msg = f"bin_ns={bin_ns}: give a width above 0, e.g. 1_000_000 for a millisecond"
        raise PerformanceModelError(msg)
    first, last = int(work.start.min()) // bin_ns, -(-int(work.end.max()) // bin_ns)
    ranks = np.unique(work.rank)
    if (count := max(last - first, 1)) * len(ranks) > _MOST_BINS:
        msg = f"bin_ns={bin_ns}: {count:,} bins on {len(ranks)} ranks are too many; widen them"
        raise PerformanceModelError(msg)
    starts = (first + np.arange(count, dtype=np.int64)) * bin_ns
    parts = []
    for rank in ranks.tolist():
        mine = work.rank == rank
        busy = measure_within(*union(work.start[mine], work.end[mine]), starts, starts + bin_ns)
        parts.append(pd.DataFrame({"rank": rank, "start_ns": starts, "busy_share": busy / bin_ns}))
    return GPU_BUSY.check(GPU_BUSY.cast(pd.concat(parts, ignore_index=True)))
