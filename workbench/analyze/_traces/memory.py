"""How fast memory is copied and set."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import coverage
from workbench.analyze._lib.rows import (
    Groups,
    Ints,
    code_of,
    codes,
    gpu_work,
    grouped,
    labelled,
    nullable,
    shares,
    taken,
)
from workbench.tables import COPY_BANDWIDTH

DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "unknown")
_SPELLINGS = (
    ("HtoD", r"HtoD|HostToDevice|H2D"),
    ("DtoH", r"DtoH|DeviceToHost|D2H"),
    ("DtoD", r"DtoD|DeviceToDevice|D2D"),
    ("PtoP", r"PtoP|PeerToPeer|P2P"),
    ("HtoH", r"HtoH|HostToHost|H2H"),
    ("Memset", r"(?i:memset|fillbuffer)"),
)


def copy_bandwidth(events: pd.DataFrame, *, instant_ns: int = 1_000) -> pd.DataFrame:
    """Give the rate at which each GPU copied memory, by direction.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    instant_ns
        How long a copy is taken to last that the profiler gave a duration of 0, because
        its clock was too coarse [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COPY_BANDWIDTH`, one row per rank, device and
        direction; empty without copies. Rates are in 10^9 bytes per second and missing
        where no copy has a size, as on AMD.

    Notes
    -----
    A copy of b bytes in t ns runs at b / t GB/s. Rates of copies that run at once add
    up, and the mean is over the time in which at least one runs, so it is the sum of
    bytes over that time.
    """
    work = gpu_work(events, "category", "name", "size_bytes")
    category = codes(events["category"])[work.row]
    is_copy = (category == code_of(events["category"], "gpu_memcpy")) | (
        category == code_of(events["category"], "gpu_memset")
    )
    row, start = work.row[is_copy], work.start[is_copy]
    duration = work.end[is_copy] - start
    direction = _directions(events)[codes(events["name"])[row]]
    groups = grouped(work.rank[is_copy], work.device[is_copy], direction)
    size = taken(events["size_bytes"], row)
    sized = size >= 0
    lasting = np.where(duration == 0, instant_ns, duration)
    total = groups.total(np.where(sized, size, 0))
    sized_count = groups.total(sized.astype(np.int64))
    busy = _busy(groups, start, start + lasting, sized)
    rank, device, direction = groups.keys
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": nullable(device, "Int32"),
            "direction": labelled(direction, DIRECTIONS),
            "copy_count": groups.sizes(),
            "instant_count": groups.total((duration == 0).astype(np.int64)),
            "unsized_count": groups.sizes() - sized_count,
            "size_bytes": pd.Series(total, dtype="Int64").mask(sized_count == 0),
            "busy_ns": busy,
            "mean_gb_per_s": shares(total, busy),
            "peak_gb_per_s": _peaks(groups, start, lasting, size, sized),
        }
    )
    return COPY_BANDWIDTH.check(table)


def _directions(events: pd.DataFrame) -> Ints:
    """Give the direction that each name states, as a position in DIRECTIONS."""
    names = pd.Index(events["name"].cat.categories.astype("str"))
    direction = np.full(len(names), DIRECTIONS.index("unknown"))
    for label, pattern in _SPELLINGS:
        direction[np.asarray(names.str.contains(pattern), dtype=bool)] = DIRECTIONS.index(label)
    return direction


def _busy(groups: Groups, start: Ints, end: Ints, sized: NDArray[np.bool_]) -> Ints:
    covered = coverage(
        start[sized], end[sized], np.zeros(int(sized.sum()), dtype=np.int64), groups.number[sized]
    )
    busy = np.zeros(len(groups.bounds), dtype=np.int64)
    busy[: len(covered)] = covered[:, -1] if covered.shape[1] > 1 else 0
    return busy


def _peaks(
    groups: Groups, start: Ints, lasting: Ints, size: Ints, sized: NDArray[np.bool_]
) -> pd.Series:
    """Return the largest sum of concurrent rates per group [GB/s]."""
    rate = size[sized] / lasting[sized]
    group = np.tile(groups.number[sized], 2)
    time = np.append(start[sized], (start + lasting)[sized])
    change = np.append(rate, -rate)
    order = np.lexsort((change, time, group))
    running = pd.Series(change[order]).groupby(group[order]).cumsum()
    peak = running.groupby(group[order]).max().reindex(range(len(groups.bounds)))
    return peak.astype("Float64")
