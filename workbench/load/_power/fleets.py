"""Fleets too large for memory: the power of all entities together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from workbench._shared.numbers import of_values
from workbench.errors import LoadError
from workbench.load._files.archive import Paths
from workbench.load._power.formats.table.entities import Runs, Things
from workbench.load._power.part import Unit
from workbench.load._power.scan import (
    Columns,
    Part,
    Readings,
    Seen,
    over_parts,
    parts_of,
    period_of,
    readings_of,
)
from workbench.tables import POWER_TOTALS

# 231 days of seconds: one wrong clock must not ask for all memory.
_MOST_CELLS = 20_000_000
_DENSE = 16
# Rows per run from which adding run by run is quicker than row by row.
_LONG_RUN = 256
# 128 MB of sums per window.
_GRID_CELLS = 16_000_000
_NONE = np.iinfo(np.int64).min


def power_fleet_total(  # noqa: PLR0913 - the file says little, and the sum must be told
    paths: Paths,
    *,
    period_s: float = 1.0,
    least_covered_share: float = 1.0,
    columns: Columns | None = None,
    unit: Unit | None = None,
    tz: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Add up the power of all entities per cell of time, of files too large for memory.

    Of every entity the mean of its readings in the cell is taken, then all are added; a cell that
    knows too few entities is missing. Choose ``period_s`` no shorter than the time between
    readings.

    Parameters
    ----------
    paths
        Parquet files, or folders that are searched for them to any depth. All have the same
        columns: a time, a name (``entity``, or ``node`` and ``gpu``), a power.
    period_s
        Length of a cell, in s. Cells begin at multiples of it since 1970.
    least_covered_share
        Share of the entities that a cell must know, from 0 to 1; the power of others is missing.
    columns
        Unrecognized names: ``{"time": ..., "entity": ..., "power": ...}``. Two columns may
        name the entity (host and GPU), and several hold powers, each of a thing of its own.
    unit
        Unit of powers whose column names none.
    tz
        Time zone of stamps that have none.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``, ``meter_period_s`` (missing: a cell holds readings
        themselves); a row for every cell from the first reading to the last.
        ``attrs["missing_count"]`` counts rows of the files without time, name or power, and
        powers that are none.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    LoadError
        If there is no Parquet file, one is damaged or has other columns than the first, the powers
        are of several scopes, or a unit or time zone is needed and not given.
    ValueError
        If ``period_s`` is not a period, or ``least_covered_share`` is not a share.

    Notes
    -----
    ``power[c] = sum over e of mean of p_e[t] for t in c``. The files are read once if no entity
    has two readings in a cell; else once more, some cells at a time.

    Examples
    --------
    >>> import tempfile
    >>> readings = pd.DataFrame({"time_ms": [1_700_000_000_000] * 3, "gpu": [0, 1, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     readings.assign(power_w=[500.0, 600, 700]).to_parquet(f"{folder}/hour.parquet")
    ...     totals = power_fleet_total(folder)
    >>> totals[["power_w", "entity_count"]].values.tolist()
    [[1150.0, 2.0]]
    """
    period_ns = period_of(period_s)
    if not 0 <= least_covered_share <= 1:
        msg = f"least_covered_share must be from 0 to 1; got {least_covered_share!r}"
        raise ValueError(msg)
    chunks = parts_of(paths, columns=columns, unit=unit, tz=tz)

    fleet = _Fleet(Things(chunks[0].layout))

    def work(chunk: Part, go_on: Callable[[], None]) -> _Sums:
        sums = _Sums()
        for readings in readings_of(chunk, period_ns, fleet.things, sums.seen, go_on):
            sums.add(readings)
        return sums

    moments = over_parts(chunks, work, label="adding up power", progress=progress)
    spans = [fleet.add(sums) for sums in moments]
    # Several readings of an entity in one cell are averaged before entities are added.
    if fleet.is_repeated():
        fleet.watts, fleet.counts = _means(chunks, spans, fleet, period_ns, progress)
    return _totals(fleet, period_ns, least_covered_share)


@dataclass
class _Series:
    """Numbers per cell, over as many cells as needed."""

    first: int = 0
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, first: int, values: np.ndarray) -> None:
        if not len(self.numbers):
            self.first, self.numbers = first, values.astype(np.float64)
            return
        before = max(self.first - first, 0)
        after = max(first + len(values) - self.first - len(self.numbers), 0)
        if before or after:
            if len(self.numbers) + before + after > _MOST_CELLS:
                _refuse_span(len(self.numbers) + before + after)
            # Some room beyond, so that a series that grows is not copied every time.
            room = min(len(self.numbers), 1 << 16) if after else 0
            self.numbers = np.pad(self.numbers, (before, after + room))
            self.first -= before
        start = first - self.first
        self.numbers[start : start + len(values)] += values


def _refuse_span(count: int) -> None:
    msg = (
        f"the times span {count:,} cells, more than {_MOST_CELLS:,}; pass a longer period_s, or "
        "leave out files whose clock is wrong"
    )
    raise LoadError(msg)


@dataclass
class _Sums:
    """Contribution of one part to the fleet, and the cells in which its entities were seen."""

    seen: Seen = field(default_factory=Seen)
    watts: _Series = field(default_factory=_Series)
    counts: _Series = field(default_factory=_Series)
    first: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    is_repeated: bool = False

    def add(self, readings: Readings) -> None:
        cells, runs = readings.cells, readings.runs
        if not len(cells):
            return
        spans = _spans(runs, cells)
        low, high = spans or (cells, cells)
        start, end = int(low.min()), int(high.max())
        if end - start >= _MOST_CELLS:
            _refuse_span(end - start + 1)
        self._see(_of_runs(runs.codes, *spans) if spans else extent(runs, cells, start, end))
        watts, counts = _summed(readings, spans, start, end)
        self.watts.add(start, watts)
        self.counts.add(start, counts)

    def _see(self, seen: Extent) -> None:
        present, first, last, is_repeated = seen
        width = int(present.max()) + 1
        if width > len(self.first):
            more = (0, max(width, 2 * len(self.first)) - len(self.first))
            self.first = np.pad(self.first, more, constant_values=_NONE)
            self.last = np.pad(self.last, more, constant_values=_NONE)
        last_seen = self.last[present]
        self.is_repeated |= is_repeated or bool((last_seen >= first).any())
        is_new = last_seen == _NONE
        self.first[present] = np.where(is_new, first, np.minimum(self.first[present], first))
        self.last[present] = np.maximum(last_seen, last)


class _Fleet:
    def __init__(self, entities: Things) -> None:
        self.things = entities
        self.watts, self.counts = _Series(), _Series()
        self.missing_count = 0
        self._is_repeated = False
        self._spans: list[np.ndarray] = []

    def add(self, sums: _Sums) -> tuple[int, int]:
        """Add one part; return its first and last cell."""
        self.missing_count += sums.seen.missing_count
        self._is_repeated |= sums.is_repeated
        used = np.flatnonzero(sums.first != _NONE)
        if not len(used):
            return 0, -1
        self._spans.append(np.c_[used, sums.first[used], sums.last[used]])
        for own, second in ((self.watts, sums.watts), (self.counts, sums.counts)):
            own.add(second.first, second.numbers)
        return int(sums.first[used].min()), int(sums.last[used].max())

    def is_repeated(self) -> bool:
        if self._is_repeated or not self._spans:
            return self._is_repeated
        spans = np.concatenate(self._spans)
        self._spans = [spans]
        spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
        same = spans[1:, 0] == spans[:-1, 0]
        return bool((same & (spans[1:, 1] <= spans[:-1, 2])).any())


def _means(
    chunks: Sequence[Part],
    spans: Sequence[tuple[int, int]],
    fleet: _Fleet,
    period_ns: int,
    progress: bool,
) -> tuple[_Series, _Series]:
    """Add up the means of entities that have several readings in a cell, window by window."""
    width = max(_GRID_CELLS // max(len(fleet.things.names), 1), 1)
    watts, counts = _Series(), _Series()
    for start in _windows(spans, width):
        inside = [chunk for chunk, (first, last) in zip(chunks, spans, strict=True)
                  if first < start + width and last >= start]  # fmt: skip
        sums = np.zeros((len(fleet.things.names), width))
        times = np.zeros((len(fleet.things.names), width), dtype=np.int32)

        window = _Window(start, sums, times)

        def work(chunk: Part, go_on: Callable[[], None], window: _Window = window) -> None:
            for readings in readings_of(chunk, period_ns, fleet.things, Seen(), go_on):
                window.add(readings)

        for _ in over_parts(inside, work, label="averaging power", progress=progress):
            pass
        is_known = times > 0
        mean = np.divide(sums, times, out=sums, where=is_known)
        watts.add(start, mean.sum(axis=0))
        counts.add(start, is_known.sum(axis=0))
    return watts, counts


def _windows(spans: Sequence[tuple[int, int]], width: int) -> Iterator[int]:
    """Yield the first cells of windows that hold all spans, leaving out what holds none."""
    at = None
    for first, last in sorted(span for span in spans if span[1] >= span[0]):
        start = first if at is None else max(at, first)
        while start <= last:
            yield start
            start += width
            at = start


@dataclass
class _Window:
    """Sums and counts of the readings of each entity in some cells; threads add to them."""

    start: int
    sums: np.ndarray
    times: np.ndarray
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, readings: Readings) -> None:
        width = self.sums.shape[1]
        cells = readings.cells - self.start
        inside = (cells >= 0) & (cells < width)
        key = readings.runs.per_row[inside].astype(np.int64) * width + cells[inside]
        moments = of_values(key, readings.watts[inside].astype(np.float64))
        position = np.divmod(moments.key, width)
        with self.lock:
            # Keys are all different, so none is lost.
            self.sums[position] += moments.mean * moments.count
            self.times[position] += moments.count.astype(np.int32)


def _totals(fleet: _Fleet, period_ns: int, least_covered_share: float) -> pd.DataFrame:
    counts = np.round(fleet.counts.numbers).astype(np.int64)
    filled = np.flatnonzero(counts)
    if not len(filled):
        msg = "the files hold no reading with a time, a name and a power"
        raise LoadError(msg)
    cells = slice(filled[0], filled[-1] + 1)
    counts, expected = counts[cells], len(fleet.things.names)
    watts = np.zeros(len(counts))
    own = fleet.watts.numbers[max(filled[0] + fleet.counts.first - fleet.watts.first, 0) :]
    watts[: min(len(own), len(watts))] = own[: len(watts)]
    share = counts / expected
    table = pd.DataFrame({
        "time_ns": (np.arange(len(counts)) + fleet.counts.first + filled[0]) * period_ns,
        "power_w": np.where((counts > 0) & (share >= least_covered_share), watts, np.nan),
        "entity_count": counts, "expected_count": np.full(len(counts), expected, dtype=np.int64),
        "covered_share": share, "meter_period_s": np.nan,
    })  # fmt: skip
    table.attrs = {"missing_count": fleet.missing_count}
    return POWER_TOTALS.check(table)


# In which cells of time entities were read, and whether one was read twice in a cell.

# Entities times cells, per reading, up to which a picture of them is quicker than sorting.
Extent = tuple[np.ndarray, np.ndarray, np.ndarray, bool]


def extent(runs: Runs, cells: np.ndarray, start: int, end: int) -> Extent:
    """Return the entities, the first and last cell of each, and whether one may have two in one."""
    codes = runs.per_row
    low = int(codes.min())
    rows, span = int(codes.max()) - low + 1, end - start + 1
    key = (codes.astype(np.int64) - low) * span + (cells - start)
    if rows * span <= _DENSE * len(cells):
        is_there = np.zeros(rows * span, dtype=bool)
        is_there[key] = True
        is_repeated = int(np.count_nonzero(is_there)) < len(key)
        picture = is_there.reshape(rows, span)
        present = np.flatnonzero(picture.any(axis=1))
        inside = picture[present]
        last = end - inside[:, ::-1].argmax(axis=1)
        return present + low, start + inside.argmax(axis=1), last, is_repeated
    unique = np.unique(key)
    who, when = np.divmod(unique, span)
    begins = np.r_[0, np.flatnonzero(who[1:] != who[:-1]) + 1]
    ends = np.r_[begins[1:], len(who)] - 1
    is_repeated = len(unique) < len(key)
    return who[begins] + low, start + when[begins], start + when[ends], is_repeated


# The first and the last cell of each run, if inside of all runs time goes on with every row.
def _spans(runs: Runs, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if runs.starts is None:
        return None
    is_later = cells[1:] > cells[:-1]
    is_later[runs.starts[1:] - 1] = True
    ends = np.append(runs.starts[1:], len(cells)) - 1
    return (cells[runs.starts], cells[ends]) if is_later.all() else None


def _summed(
    readings: Readings, spans: tuple[np.ndarray, np.ndarray] | None, start: int, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the watts and the number of readings of every cell, added in order of the rows."""
    cells, watts, starts = readings.cells, readings.watts, readings.runs.starts
    if spans and starts is not None and len(starts) * _LONG_RUN <= len(cells):
        first, last = spans[0] - start, spans[1] - start
        begins, ends = starts, np.append(starts[1:], len(cells))
        # Without a gap, a run is added to its cells as a whole.
        if (last - first == ends - begins - 1).all():
            sums, changes = np.zeros(end - start + 1), np.zeros(end - start + 2)
            runs = (column.tolist() for column in (first, begins, ends))
            for at, begin, finish in zip(*runs, strict=True):
                sums[at : at + finish - begin] += watts[begin:finish]
            np.add.at(changes, first, 1)
            np.add.at(changes, last + 1, -1)
            return sums, np.cumsum(changes[:-1])
    inside = cells - start
    return np.bincount(inside, weights=watts), np.bincount(inside)


def _of_runs(codes: np.ndarray, first: np.ndarray, last: np.ndarray) -> Extent:
    # Inside of a run no cell occurs twice, so only neighbouring runs can share one.
    order = np.lexsort((first, codes))
    codes, first, last = codes[order], first[order], last[order]
    same = codes[1:] == codes[:-1]
    begins = np.r_[0, np.flatnonzero(~same) + 1]
    is_repeated = bool((same & (first[1:] <= last[:-1])).any())
    return codes[begins], first[begins], np.maximum.reduceat(last, begins), is_repeated
