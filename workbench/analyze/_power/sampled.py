"""Few points that show a long series of power as it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._numbers import is_finite
from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_SAMPLED, POWER_TOTALS

_LEAST_POINTS = 8
_GAP_PERIODS = 3
_ROUNDS = 6
Rows = NDArray[np.int64]


def power_sampled(power: pd.DataFrame, *, point_count: int = 2000) -> pd.DataFrame:
    """Choose the readings of a long series that a line through it must not lose.

    The series is cut into buckets of equally many readings, and each gives its lowest and its
    highest one: no spike or dip vanishes, however short, which a mean or every n-th reading
    would not promise. Where readings are missing, the line breaks.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER_TOTALS`, or the readings of one entity of table
        :data:`workbench.tables.POWER`, in order of time.
    point_count
        Number of rows to keep at most, at least 8.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_SAMPLED`: ``time_ns``, ``power_w``, ``row``. All
        readings if the series is short enough. A row without power stands for missing readings,
        or for a pause of more than three periods in which there is no row (then ``row`` is that
        of the reading before).

    Raises
    ------
    TableError
        If ``power`` is neither table.
    WorkbenchError
        If it holds several entities, or is not in order of time.
    ValueError
        If ``point_count`` is no whole number from 8.

    Notes
    -----
    Hundred million readings take a few tenths of a second: the lowest and highest of a bucket
    are found without a copy, and pauses are looked for only in buckets that last too long.

    References
    ----------
    J. Jerding, J. Stasko, The information mural, IEEE TVCG 4 (1998): the extremes of each
    column of pixels suffice to draw a line through all points.

    Examples
    --------
    >>> spike = pd.DataFrame({"time_ns": range(10_000), "power_w": 400.0})
    >>> spike["entity"] = pd.Categorical(["gpu0"] * 10_000)
    >>> spike.loc[5_000, "power_w"] = 900.0
    >>> sampled = power_sampled(spike, point_count=100)
    >>> len(sampled) <= 100, float(sampled["power_w"].max())
    (True, 900.0)
    """
    if not is_finite(point_count) or point_count % 1 or point_count < _LEAST_POINTS:
        msg = f"point_count is {point_count!r}; a line needs at least {_LEAST_POINTS} points"
        raise ValueError(msg)
    point_count = int(point_count)
    table = POWER if "entity" in power else POWER_TOTALS
    # The values are not looked through: that would take longer than the work itself.
    table.check(power.head(0), "the frame")
    _refuse_several(power)
    times, values = power["time_ns"].to_numpy(), power["power_w"].to_numpy()
    buckets, kept = (point_count - 2) // 2, np.zeros(0, dtype=np.int64)
    for _ in range(_ROUNDS):
        kept, pauses = _chosen(times, values, buckets)
        excess = (len(kept) + len(pauses)) / point_count
        if excess <= 1:
            break
        buckets = max(int(buckets / excess * 0.97), 1)
    kept, pauses = _at_most(kept, pauses, point_count)
    return _table(times, values, kept, pauses)


def _refuse_several(power: pd.DataFrame) -> None:
    if "entity" not in power or not len(power):
        return
    codes = power["entity"].cat.codes.to_numpy()
    if codes.min() != codes.max():
        names = power["entity"].iloc[[int(codes.argmin()), int(codes.argmax())]].tolist()
        msg = (
            f"the readings are of several entities ({names[0]}, {names[1]}, ...); pass those of "
            "one, or the sum of all: analyze.power_totals"
        )
        raise WorkbenchError(msg)


def _chosen(times: Rows, values: NDArray[np.float64], buckets: int) -> tuple[Rows, Rows]:
    """Return the rows to keep, and the rows after which a pause begins."""
    count = len(values)
    if not count:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    width = max(-(-count // max(buckets, 1)), 1)
    starts = np.arange(0, count, width)
    # Bucket by bucket, each is read from memory once; numpy's own axis=1 is four times slower.
    places = [_extremes(values[start : start + width]) for start in starts.tolist()]
    low, high = np.array(places, dtype=np.int64).T + starts
    pauses = _pauses(times, starts, width)
    kept = [np.array([0, count - 1]), low, high, pauses, pauses + 1]
    # The lowest of numbers of which one is missing is that one.
    with_missing = starts[np.isnan(values[low])]
    kept += [_with_missing(values, int(start), width) for start in with_missing]
    return np.unique(np.concatenate(kept)), pauses


def _extremes(bucket: NDArray[np.float64]) -> tuple[int, int]:
    return int(bucket.argmin()), int(bucket.argmax())


def _with_missing(values: NDArray[np.float64], start: int, width: int) -> Rows:
    """Return the extremes of a bucket and the first and last row that misses."""
    some = values[start : start + width]
    is_missing = np.isnan(some)
    missing = np.flatnonzero(is_missing)[[0, -1]]
    if is_missing.all():
        return missing + start
    low, high = np.nanargmin(some), np.nanargmax(some)
    return np.array([*missing, low, high], dtype=np.int64) + start


def _pauses(times: Rows, starts: Rows, width: int) -> Rows:
    """Return the last row before each pause, of every bucket the longest."""
    ends = np.minimum(starts + width, len(times) - 1)
    spans, steps = times[ends] - times[starts], ends - starts
    if (spans < 0).any():
        msg = "the readings are not in order of time; sort them by time_ns first"
        raise WorkbenchError(msg)
    period = _period(times, spans, steps)
    long = np.flatnonzero(spans > (steps + _GAP_PERIODS - 1) * period)
    return np.array(list(_longest(times, starts[long], ends[long], period)), dtype=np.int64)


def _period(times: Rows, spans: Rows, steps: Rows) -> float:
    """Return the usual time between readings, from the buckets with the fewest pauses."""
    known = steps > 0
    if not known.any():
        return 0.0
    place = int(np.argmin(np.where(known, spans / np.maximum(steps, 1), np.inf)))
    width = int(steps.max())
    first = min(place * width, max(len(times) - 2, 0))
    return float(np.median(np.diff(times[first : first + width + 1])))


def _longest(times: Rows, starts: Rows, ends: Rows, period: float) -> Iterator[int]:
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        steps = np.diff(times[start : end + 1])
        longest = int(steps.argmax())
        if steps[longest] > _GAP_PERIODS * period:
            yield start + longest


def _at_most(kept: Rows, pauses: Rows, point_count: int) -> tuple[Rows, Rows]:
    """Thin out what is still too much: a series made of pauses."""
    if len(kept) + len(pauses) <= point_count:
        return kept, pauses
    pauses = pauses[:: -(-len(pauses) * 4 // point_count)] if len(pauses) else pauses
    room = point_count - len(pauses)
    return kept[np.linspace(0, len(kept) - 1, room).astype(np.int64)], pauses


def _table(times: Rows, values: NDArray[np.float64], kept: Rows, pauses: Rows) -> pd.DataFrame:
    rows = np.concatenate([kept, pauses])
    # A pause is drawn as a missing reading just after its beginning.
    stamps = np.concatenate([times[kept], times[pauses] + 1])
    power = np.concatenate([values[kept], np.full(len(pauses), np.nan)])
    order = np.argsort(stamps, kind="stable")
    table = pd.DataFrame(
        {"time_ns": stamps[order], "power_w": power[order], "row": rows[order].astype(np.int64)}
    )
    return POWER_SAMPLED.check(table)
