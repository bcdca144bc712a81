"""Telemetry of any size: one file at a time to cells of time, then a small reduce."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from workbench._shared.cluster import missing_on_worker, on_cluster
from workbench._shared.numbers import in_range
from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError, WorkbenchError
from workbench.load._files.archive import Paths, Source, survey
from workbench.load._files.findings import (
    Dropped,
    Finding,
    asks_for_argument,
    guarded,
    quality_frame,
)
from workbench.load._files.time import Hosts, check_hosts, checked, host_of
from workbench.load._files.wanted import POWER_LOGS
from workbench.load._power.cells import (
    Cells,
    cells_of,
    codes_and_cells,
    keys_of,
    merged,
    stacked,
    with_time_between,
)
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.formats.table.layout import check_columns
from workbench.load._power.joins import counted, is_named
from workbench.load._power.part import (
    BesidePowerError,
    NoPowerError,
    PowerOptions,
    PowerPart,
    Unit,
)
from workbench.load._power.reader import raise_unknown, recognise
from workbench.load._power.rows import SECOND, Rows, clean_values, in_order, natural, rows_of
from workbench.load._power.scan import period_of
from workbench.tables import POWER_ROLLUP, PowerRollup

# Rows of a table that are reduced at once, cells that wait to be merged, and readings of contested
# cells that are sorted at once: some 100 MB each.
_CHUNK_ROWS = 1 << 18
_MANY_CELLS = 1 << 20
_MOST_READINGS = 1 << 22
_BLOCK_CELLS = 1 << 18
# Starting worker processes takes seconds; smaller sets are read sooner without.
_PARALLEL_FROM_BYTES = 128 << 20
# Cells of this length have a key at every stamp that int64 holds.
_LEAST_PERIOD_S = 0.02
_LONGEST_GAP_S = 1e9
# Stamps are rounded to ms or s, so a gap of exactly the longest may look longer by that much.
_SLACK = 1 + 1e-9
_LEAST_COVERED_SHARE = 0.5

_OWN = "entities without wall time, which has no cells; load.power reads them"
_COUNTERS = (
    "entities with a counter of energy and no power are not rolled up; load.power reads them, "
    "analyze.energy_from_counter adds them up"
)
_SAME = "readings that this or another file contains, too; counted once"
_OTHER = "readings of one stamp that differ from those of a file before; the first are kept"
_SPARSE = (
    "entities of which less than half of the time is covered: gaps, or readings further apart than "
    "longest_gap_s"
)
_GUESSED = (
    "entities of an unknown host that another file continues; joined, pass node= to tell the hosts"
)

Result = TypeVar("Result")
# Of entities by name: the numbers of some of their cells, in order.
Wanted = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _File:
    """A file to reduce, and its number in the order of the load."""

    number: int
    source: Source

    @property
    def label(self) -> str:
        return self.source.label


@dataclass(frozen=True)
class _Rules:
    """How every file is read and reduced."""

    options: PowerOptions
    node: Hosts
    period_ns: int
    gap_ns: int


@dataclass
class _Part:
    """Reduced contents of one file: cells, their entities and time span, and findings."""

    names: list[str] = field(default_factory=list)
    has_host: list[bool] = field(default_factory=list)
    pieces: list[Cells] = field(default_factory=list)
    copies: list[Cells] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def power_rollup(  # noqa: PLR0913 - the files say little, and the rest must be told
    paths: Paths,
    *,
    period_s: float = 60.0,
    longest_gap_s: float = 3.0,
    tz: str | None = None,
    node: Hosts = None,
    unit: Unit | None = None,
    columns: Mapping[str, str] | None = None,
    client: Any = None,
    processes: int | None = None,
    progress: bool = True,
) -> PowerRollup:
    """Shorten readings too many for memory to one row per entity and cell of time.

    One file is read at a time, a table some hundred thousand rows at a time; memory grows with the
    result, not with the readings. Files may be sorted by anything, overlap and repeat each other:
    the table is that of all their readings in one file, each stamp of an entity counted once.

    Parameters
    ----------
    paths
        Files, folders or archives of any format that :func:`workbench.load.power` reads.
    period_s
        Length of a cell, in s, from 0.02. Cells begin at multiples of it since 1970, UTC.
    longest_gap_s
        Longest time between two readings of an entity that counts as known: three times the time
        between readings is usual.
    tz, node, unit, columns
        As for :func:`workbench.load.power`.
    client
        A ``distributed.Client``: each file is a task for one of its workers, which must see the
        files under the same paths.
    processes
        Processes of this machine to use without a client; None uses all cores from 128 MiB of files
        on.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    PowerRollup
        ``rollup`` (:data:`workbench.tables.POWER_ROLLUP`) and ``quality``
        (:data:`workbench.tables.QUALITY`). A file that cannot be read is a row in ``quality`` that
        says why.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    LoadError
        If no file holds power, one needs ``tz`` or ``unit`` and none is given, or files without a
        host name one entity at the same time.
    WorkbenchError
        If ``longest_gap_s`` is not a time, or the workers of the client do not see the files.
    MissingExtraError
        If a client is given and Dask is not installed.
    ValueError
        If ``period_s`` is not a period, or another argument is none.

    Notes
    -----
    Between readings ``p[i-1]`` at ``t[i-1]`` and ``p[i]`` at ``t[i]`` of an entity with ``t[i] -
    t[i-1] <= longest_gap_s`` power is a straight line, ``energy_j`` is its integral over the cell
    and ``covered_share`` the share of the cell in such intervals, as of
    :func:`workbench.analyze.energy` where its gap is as long. The mean over time is ``energy_j /
    (covered_share * period_s)``; ``mean_w`` counts every reading alike and is off where they come
    at uneven times. Pieces of a cell that follow each other in time are joined by the formulae of
    Chan et al. (1983); pieces with equal readings are counted once, by a digest of them; only the
    readings of cells whose pieces overlap otherwise are read again and sorted.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, The American Statistician 37 (1983) 242. That tiers
    of 10 s and 1 min keep count, mean, extremes and deviation is the practice of OLCF Summit.

    Examples
    --------
    >>> import tempfile
    >>> readings = pd.DataFrame({"time_ms": range(1_700_000_000_000, 1_700_000_120_000, 1_000)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     readings.assign(gpu=0, power_w=600.0).to_parquet(f"{folder}/hour.parquet")
    ...     rollup = power_rollup(folder).rollup
    >>> rollup[["entity", "reading_count", "energy_j"]].values.tolist()
    [['gpu0', 40, 24000.0], ['gpu0', 60, 36000.0], ['gpu0', 20, 11400.0]]
    """
    period_ns = period_of(period_s)
    if period_s < _LEAST_PERIOD_S:
        msg = f"period_s must be a time in seconds from {_LEAST_PERIOD_S:g}; got {period_s!r}"
        raise ValueError(msg)
    longest = in_range("longest_gap_s", longest_gap_s, least=0, most=_LONGEST_GAP_S, strictly=True)
    options = PowerOptions(tz=checked(tz, None, None).tz, unit=unit, columns=columns)
    check_columns(options)
    check_hosts(node)
    rules = _Rules(options, node, period_ns, int(longest * SECOND * _SLACK))
    files = survey(paths, wanted=POWER_LOGS)
    tasks = [_File(number, source) for number, source in enumerate(files.sources)]
    run = partial(_results, client=client, workers=_workers(files.sources, processes))
    together = _Together(tasks, rules, [remark.row for remark in files.remarks])
    with progress_bar(
        total=sum(file.source.size_bytes for file in tasks), unit="B", label="rolling up power",
        enabled=progress,
    ) as bar:  # fmt: skip
        for file, part in run(partial(_reduced, rules=rules, is_worker=client is not None), tasks):
            together.add(file, part)
            bar.update(file.source.size_bytes)
    if not together.names:
        raise_unknown(paths, together.findings, together.dropped)
    return together.table(run, is_worker=client is not None)


def _workers(sources: Sequence[Source], processes: int | None) -> int:
    if processes is not None:
        return max(processes, 1)
    is_worth_it = sum(source.size_bytes for source in sources) >= _PARALLEL_FROM_BYTES
    return min(len(sources), os.cpu_count() or 1) if is_worth_it else 1


def _results(
    function: Callable[[_File], Result], files: Sequence[_File], *, client: Any, workers: int
) -> Iterator[tuple[_File, Result | Exception]]:
    """Run ``function`` on each file, wherever it is to run; results come in order of the files."""
    if client is not None:
        # Sums depend on the order of their terms: results wait for their turn.
        waiting: dict[int, tuple[_File, Result | Exception]] = {}
        turns = iter(files)
        turn = next(turns, None)
        for file, result in on_cluster(client, function, files):
            waiting[file.number] = (file, result)
            while turn is not None and turn.number in waiting:
                yield waiting.pop(turn.number)
                turn = next(turns, None)
    elif workers > 1:
        from joblib import Parallel, delayed

        run = Parallel(n_jobs=workers, return_as="generator")
        yield from zip(files, run(delayed(function)(file) for file in files), strict=True)
    else:
        for file in files:
            yield file, function(file)


# An error must not end the process that reads other files.
def _reduced(file: _File, *, rules: _Rules, is_worker: bool) -> _Part | Exception:
    part = _Part()
    try:
        for content, rows in _readings(file.source, rules, part.findings):
            part.names = rows.names
            part.has_host = [is_named(content.entities[name]) for name in rows.names]
            keys = keys_of(rows.codes, rows.time_ns // rules.period_ns)
            part.pieces.append(
                cells_of(keys, rows.time_ns, rows.numbers, gap_ns=rules.gap_ns, owner=file.number)
            )
            _compact(part.pieces, part.copies, rules.gap_ns, _MANY_CELLS)
        if len(part.pieces) > 1:
            _merge(part.pieces, part.copies, rules.gap_ns)
    except FileNotFoundError as error:
        return missing_on_worker(file.label) if is_worker else error
    except (WorkbenchError, OSError) as error:
        return error
    return part


def _again(
    file: _File, *, rules: _Rules, wanted: Wanted, is_worker: bool
) -> list[Rows] | Exception:
    """Read the readings of some cells."""
    result: list[Rows] = []
    try:
        for _, rows in _readings(file.source, rules, []):
            chosen = np.zeros(len(rows.codes), dtype=bool)
            cells = rows.time_ns // rules.period_ns
            for name, span in rows.slices():
                chosen[span] = np.isin(cells[span], wanted.get(name, ()))
            result.append(rows.take(chosen))
    except FileNotFoundError as error:
        return missing_on_worker(file.label) if is_worker else error
    except (WorkbenchError, OSError) as error:
        return error
    return result


def _readings(
    source: Source, rules: _Rules, findings: list[Finding]
) -> Iterator[tuple[PowerPart, Rows]]:
    """Yield the readings of a file that have a wall time and a power, in order, in some parts.

    Codes are those of the names of all parts so far.
    """
    last: PowerPart | None = None
    codes: dict[str, int] = {}
    with guarded(source.label):
        try:
            for last in _contents(source, rules, findings):
                rows = _clean(last)
                numbers = [codes.setdefault(name, len(codes)) for name in rows.names]
                new = np.array(numbers or [0], dtype=np.int32)[rows.codes]
                renamed = Rows(list(codes), new, rows.time_ns, rows.numbers, rows.lines)
                is_sorted = numbers == sorted(numbers)
                order = None if is_sorted else np.argsort(new, kind="stable")
                yield last, renamed if order is None else renamed.take(order)
        except NoPowerError as error:
            reason = str(error).removeprefix(f"{source.label}: ")
            kind = "skipped by design" if isinstance(error, BesidePowerError) else "dropped"
            findings.append((source.label, kind, reason, 1, None))
    if last is not None:
        findings += last.findings.rows()


def _contents(source: Source, rules: _Rules, findings: list[Finding]) -> Iterator[PowerPart]:
    options = replace(rules.options, node=host_of(source.label, rules.node))
    own_table = power_table if options.columns is not None else None
    reader = recognise(source, own_table, findings)
    if reader is power_table:
        yield from power_table.read_power_in_parts(source, options, _CHUNK_ROWS)
    elif reader is not None:
        yield reader.read_power(source, options)


def _clean(content: PowerPart) -> Rows:
    findings, entities = content.findings, content.entities
    rows = rows_of(content.readings, "power_w")
    findings.add("read", "readings to roll up", len(rows.codes))
    clean_values(rows, entities, findings)
    is_own = np.array([entities[name].get("clock") == "own" for name in rows.names], dtype=bool)
    if is_own.any():
        findings.add("dropped", _OWN, int(is_own.sum()), rows.names[int(is_own.argmax())])
    if content.counters is not None:
        counted = set(content.counters["entity"].unique())
        counted -= {rows.names[code] for code in np.unique(rows.codes)}
        findings.add("dropped", _COUNTERS, len(counted), min(counted, default=None))
    is_known = ~np.isnan(rows.numbers)
    if is_own.any():
        is_known &= ~is_own[rows.codes]
    return in_order(rows if is_known.all() else rows.take(is_known), findings)


def _compact(pieces: list[Cells], copies: list[Cells], gap_ns: int, most: int) -> None:
    """Merge pieces once there are many more than were merged before."""
    if sum(map(len, pieces)) > most + 2 * len(pieces[0]):
        _merge(pieces, copies, gap_ns)


def _merge(pieces: list[Cells], copies: list[Cells], gap_ns: int) -> None:
    whole = stacked(pieces)
    # The pieces are given up, so that each cell is in memory once.
    pieces.clear()
    cells, left_out = merged(whole, gap_ns)
    pieces.append(cells)
    copies.append(left_out)


class _Together:
    """The parts of all files, as they come in."""

    def __init__(self, files: Sequence[_File], rules: _Rules, findings: Sequence[Finding]) -> None:
        self._files, self._rules = files, rules
        self.names: dict[str, int] = {}
        self.findings = [*findings]
        self.dropped = Dropped()
        self._pieces: list[Cells] = []
        self._copies: list[Cells] = []
        # Of each file: codes of its entities, their first and last reading.
        self._extents: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._hostless: dict[str, list[tuple[int, int, int]]] = {}

    def add(self, file: _File, part: _Part | Exception) -> None:
        """Take the part of one file."""
        if isinstance(part, Exception):
            if asks_for_argument(part):
                raise part
            self.dropped.add(file.label, part)
            return
        self.findings += part.findings
        if not any(map(len, part.pieces)):
            return
        codes_of = np.array([self.names.setdefault(n, len(self.names)) for n in part.names] or [0])
        self._pieces += [_renamed(piece, codes_of) for piece in part.pieces]
        self._copies += [_renamed(piece, codes_of) for piece in part.copies]
        cells = stacked(part.pieces)
        self._note(file, part, *_extent(codes_and_cells(cells.moments.key)[0], cells))
        _compact(self._pieces, self._copies, self._rules.gap_ns, _MANY_CELLS)

    def _note(
        self, file: _File, part: _Part, codes: np.ndarray, first: np.ndarray, last: np.ndarray
    ) -> None:
        new = np.array([self.names[part.names[code]] for code in codes], dtype=np.int64)
        self._extents[file.number] = (new, first, last)
        for code, start, end in zip(codes.tolist(), first.tolist(), last.tolist(), strict=True):
            if part.has_host[code]:
                continue
            name = part.names[code]
            spans = self._hostless.setdefault(name, [])
            for number, other_start, other_end in spans:
                if start <= other_end and other_start <= end:
                    before = self._files[number].label
                    msg = (
                        f"{file.label}: {name!r} has readings at the same time as in {before}, and "
                        "neither file names a host; pass node= (a name, a dict or a pattern)"
                    )
                    raise LoadError(msg)
            if spans:
                self.findings.append((file.label, "suspicious", _GUESSED, 1, name))
            spans.append((file.number, start, end))

    def table(self, run: Callable[..., Any], *, is_worker: bool) -> PowerRollup:
        """Merge all parts, and read again what they contest."""
        rules = self._rules
        self._sort_names()
        _merge(self._pieces, self._copies, rules.gap_ns)
        cells = self._pieces.pop()
        contested = cells.take(cells.is_contested)
        self._tell_copies(contested)
        if len(contested):
            settled = [
                self._settled(contested.take(chosen), run, is_worker=is_worker)
                for chosen in _windows(contested)
            ]
            whole = stacked([cells.take(~cells.is_contested), *settled])
            cells = whole.take(np.argsort(whole.moments.key, kind="stable"))
        blocks = []
        for block in _blocks(cells):
            part = cells.take(block)
            filled = with_time_between(part, period_ns=rules.period_ns, gap_ns=rules.gap_ns)
            self._tell_sparse(filled)
            blocks.append(_table(filled, list(self.names), rules.period_ns))
        del cells
        table = POWER_ROLLUP.check(pd.concat(blocks, ignore_index=True))
        return PowerRollup(table, quality_frame(counted([*self.findings, *self.dropped.rows])))

    def _sort_names(self) -> None:
        """Recode entities in their natural order, which is that of the table."""
        names = sorted(self.names, key=natural)
        new = {name: code for code, name in enumerate(names)}
        code_of = np.array([new[name] for name in self.names])
        self.names = new
        self._pieces = [_renamed(piece, code_of) for piece in self._pieces]
        self._copies = [_renamed(piece, code_of) for piece in self._copies]
        for number, (codes, *span) in self._extents.items():
            self._extents[number] = (code_of[codes], *span)

    def _settled(self, contested: Cells, run: Callable[..., Any], *, is_worker: bool) -> Cells:
        """Read the readings of some contested cells again, and reduce them together."""
        names = list(self.names)
        codes, cells = codes_and_cells(contested.moments.key)
        wanted = {names[code]: np.sort(cells[codes == code]) for code in np.unique(codes)}
        files = [file for file in self._files if self._holds(file, codes, cells)]
        pieces: list[tuple[np.ndarray, ...]] = []
        again = partial(_again, rules=self._rules, wanted=wanted, is_worker=is_worker)
        for file, result in run(again, files):
            if isinstance(result, Exception):
                self.dropped.add(file.label, result)
                continue
            for rows in result:
                code = np.array([self.names[name] for name in rows.names] or [0])[rows.codes]
                keys = keys_of(code, rows.time_ns // self._rules.period_ns)
                owner = np.full(len(keys), file.number)
                pieces.append((keys, rows.time_ns, rows.numbers, owner, rows.lines))
        if not pieces:
            return contested.take(slice(0))
        columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        # Sorting is stable: of one stamp the reading of the first file comes first.
        order = np.lexsort((columns[1], columns[0]))
        keys, time_ns, watts, owner, lines = (column[order] for column in columns)
        is_new = np.r_[True, (np.diff(keys) != 0) | (np.diff(time_ns) != 0)][: len(keys)]
        self._tell_repeats(is_new, watts, owner, lines)
        return cells_of(
            keys[is_new], time_ns[is_new], watts[is_new], gap_ns=self._rules.gap_ns, owner=-1
        )

    def _holds(self, file: _File, codes: np.ndarray, cells: np.ndarray) -> bool:
        if file.number not in self._extents:
            return False
        own, first, last = self._extents[file.number]
        low = np.full(len(self.names), np.iinfo(np.int64).max)
        high = np.full(len(self.names), np.iinfo(np.int64).min)
        low[own], high[own] = first // self._rules.period_ns, last // self._rules.period_ns
        return bool(((cells >= low[codes]) & (cells <= high[codes])).any())

    def _tell_copies(self, contested: Cells) -> None:
        cells = stacked(self._copies)
        # Those of contested cells are met again, one by one.
        counted = cells.take(~np.isin(cells.moments.key, contested.moments.key))
        counts = np.bincount(counted.owner, weights=counted.moments.count)
        for number in np.flatnonzero(counts):
            self._tell(int(number), "noted", _SAME, int(counts[number]), None)

    def _tell_repeats(
        self, is_new: np.ndarray, watts: np.ndarray, owner: np.ndarray, lines: np.ndarray
    ) -> None:
        leader = np.maximum.accumulate(np.where(is_new, np.arange(len(is_new)), 0))
        is_equal = watts == watts[leader]
        for text, kind, which in (
            (_SAME, "noted", ~is_new & is_equal),
            (_OTHER, "dropped", ~is_new & ~is_equal),
        ):
            for number in np.unique(owner[which]):
                own = which & (owner == number)
                line = int(lines[own].min())
                self._tell(int(number), kind, text, int(own.sum()), f"line {line:,}")

    def _tell(self, number: int, kind: str, text: str, count: int, where: str | None) -> None:
        self.findings.append((self._files[number].label, kind, text, count, where))

    def _tell_sparse(self, filled: Cells) -> None:
        codes, _ = codes_and_cells(filled.moments.key)
        own, first, last = _extent(codes, filled)
        covered = np.bincount(codes, weights=filled.covered_ns)[own]
        is_sparse = covered < _LEAST_COVERED_SHARE * (last - first)
        if is_sparse.any():
            code = int(own[is_sparse.argmax()])
            number = next(n for n, (codes, *_) in self._extents.items() if code in codes)
            count, name = int(is_sparse.sum()), list(self.names)[code]
            self._tell(number, "suspicious", _SPARSE, count, name)


def _renamed(cells: Cells, code_of: np.ndarray) -> Cells:
    codes, numbers = codes_and_cells(cells.moments.key)
    return replace(cells, moments=replace(cells.moments, key=keys_of(code_of[codes], numbers)))


def _extent(codes: np.ndarray, cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes that occur, and the first and the last reading of each."""
    own, position = np.unique(codes, return_inverse=True)
    limits = np.iinfo(np.int64)
    first, last = np.full(len(own), limits.max), np.full(len(own), limits.min)
    np.minimum.at(first, position, cells.first_ns)
    np.maximum.at(last, position, cells.last_ns)
    return own, first, last


def _windows(contested: Cells) -> Iterator[np.ndarray]:
    """Cut cells, in order of time, into windows that hold not too many readings."""
    _, cells = codes_and_cells(contested.moments.key)
    order = np.argsort(cells, kind="stable")
    window = np.cumsum(contested.moments.count[order]) // _MOST_READINGS
    for number in np.unique(window):
        yield order[window == number]


def _blocks(cells: Cells) -> Iterator[slice]:
    """Cut cells between entities, so that what is computed of them stays small."""
    codes, _ = codes_and_cells(cells.moments.key)
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    chosen = starts[np.r_[True, np.diff(starts // _BLOCK_CELLS) > 0]]
    for start, end in pairwise([*chosen.tolist(), len(cells)]):
        yield slice(start, end)


def _table(cells: Cells, names: list[str], period_ns: int) -> pd.DataFrame:
    codes, numbers = codes_and_cells(cells.moments.key)
    categories = pd.Index(names, dtype=pd.Series([""]).dtype)
    moments, covered = cells.moments, cells.covered_ns
    return pd.DataFrame({
        "time_ns": numbers * period_ns,
        "entity": pd.Categorical.from_codes(codes, categories=categories),
        "period_s": period_ns / SECOND, "reading_count": moments.count,
        "mean_w": moments.mean, "min_w": moments.low, "max_w": moments.high,
        "m2_w2": moments.squares,
        "energy_j": np.where(covered > 0, cells.energy_j, np.nan),
        "covered_share": covered / period_ns,
    }, copy=False)  # fmt: skip
