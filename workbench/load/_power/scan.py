"""Parquet files of power too large for memory: their parts, and the readings of each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, given_paths, shown
from workbench.load._files.findings import Findings, Row
from workbench.load._files.time import Clock, clock_of, is_exact, to_ns, unit_ns
from workbench.load._power.formats.table.columns import (
    IDENTITIES,
    PowerColumn,
    PowerLayout,
    Watts,
    is_number,
    plain,
    power_name,
    refuse_other_types,
)
from workbench.load._power.formats.table.entities import Runs, Things
from workbench.load._power.formats.table.layout import NO_UNIT
from workbench.load._power.formats.table.pieces import open_parquet, parquet_batches, parquet_layout
from workbench.load._power.part import PowerOptions, Unit, unit_factor
from workbench.load._power.rows import most_w

SECOND = 1_000_000_000
_PART_ROWS = 8 << 20
_THREADS = 4
# The year 2200: products with later times would overflow int64.
_LATEST_NS = 7_258_118_400 * SECOND
_NAMES = ("time", "entity", "power")
Columns = Mapping[str, str | Sequence[str]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """Row groups of one file that are read together."""

    path: Path
    groups: list[int]
    row_count: int
    layout: PowerLayout
    clock: Clock
    stem: str


@dataclass
class Seen:
    """Events while a part was read, besides its readings."""

    missing_count: int = 0
    findings: Findings = field(default_factory=lambda: Findings(""))


@dataclass(frozen=True)
class Readings:
    """Readings of some rows: whose, in which cell, how many watts; none is missing.

    ``watts`` are as wide as stored where they are whole watts or float32, else float64.
    """

    runs: Runs
    cells: np.ndarray
    watts: np.ndarray


def period_of(period_s: float) -> int:
    options: object = period_s
    is_none = not isinstance(options, int | float) or isinstance(options, bool)
    if is_none or not 1e-6 <= period_s <= 1e9:
        msg = f"period_s must be a time in seconds such as 1 or 60; got {period_s!r}"
        raise ValueError(msg)
    return round(period_s * SECOND)


def parts_of(
    paths: Paths, *, columns: Columns | None, unit: Unit | None, tz: str | None
) -> list[Part]:
    """Open all files, see that they hold the same columns, and cut them into parts."""
    options = PowerOptions(tz=tz, unit=unit)
    chunks: list[Part] = []
    first: PowerLayout | None = None
    for path in _files(paths):
        with open_parquet(path, shown(path)) as file:
            layout = _layout(file.schema_arrow, columns, options, shown(path))
            first = first or layout
            _refuse_other_columns(first, layout, path, chunks)
            clock = _clock(file, layout, tz, shown(path))
            if clock is None:
                continue
            chunks += _cut(file.metadata, path, layout, clock)
    if not chunks:
        names = ", ".join(shown(path) for path in given_paths(paths)) or "an empty list"
        msg = f"{names}: the Parquet files hold no rows"
        raise LoadError(msg)
    return chunks


def _files(paths: Paths) -> list[Path]:
    result: list[Path] = []
    for entry in map(Path, given_paths(paths)):
        if not entry.exists():
            msg = f"{shown(entry)}: there is no such file or directory"
            raise FileNotFoundError(msg)
        inside = sorted(path for path in entry.rglob("*.parquet") if path.is_file())
        result += inside if entry.is_dir() else [entry]
    if not result:
        names = ", ".join(shown(path) for path in given_paths(paths)) or "an empty list"
        msg = (
            f"{names}: no Parquet file found; load.power reads other formats, and "
            "DataFrame.to_parquet stores its table power"
        )
        raise LoadError(msg)
    # A file named twice, or through a link, counts once.
    return list(dict.fromkeys(path.resolve() for path in result))


def _layout(
    schema: pa.Schema, columns: Columns | None, options: PowerOptions, label: str
) -> PowerLayout:
    if not columns:
        layout = parquet_layout(schema, options, label)
    else:
        layout = _said(schema, dict(columns), options, label)
    scopes = {power.scope for power in layout.powers}
    is_mixed = len(scopes) > 1 or (len(layout.powers) > 1 and "unknown" in scopes)
    if is_mixed and layout.identity and "power" not in (columns or {}):
        msg = (
            f"{label}: powers of several scopes in columns {[p.name for p in layout.powers][:8]}; "
            'what one feeds would count twice: choose with columns={"power": ...}'
        )
        raise LoadError(msg)
    unknown = [p.name for p in layout.powers if p.factor is None and not p.is_mw]
    unknown += [name for name, why in layout.left_out if why == NO_UNIT]
    if unknown:
        msg = f"{label}: column {unknown[0]!r} names no unit; pass unit= ('W', 'kW', 'MW' or 'mW')"
        raise LoadError(msg)
    return layout


def _said(schema: pa.Schema, columns: Row, options: PowerOptions, label: str) -> PowerLayout:
    if unknown := sorted(set(columns) - set(_NAMES)):
        msg = f"columns= names {unknown}; it knows {list(_NAMES)}"
        raise LoadError(msg)
    by_name = {k: [name] if isinstance(name, str) else list(name) for k, name in columns.items()}
    wanted = [name for names in by_name.values() for name in names]
    if absent := [name for name in wanted if name not in schema.names]:
        msg = f"{label}: no column {absent}; it has {list(schema.names)[:20]}"
        raise LoadError(msg)
    if len(by_name.get("entity", [])) >= len(_WHO):
        msg = f"columns= names {len(by_name['entity'])} columns of the entity; use host and GPU"
        raise LoadError(msg)
    powers = by_name.get("power", [])
    refuse_other_types(schema, powers, label)
    # The columns as they would be called if their names told what they are.
    real = dict(zip(("time",), by_name.get("time", []), strict=False))
    real |= dict(zip(_WHO[len(by_name.get("entity", []))], by_name.get("entity", []), strict=True))
    real |= {"power_w": powers[0]} if powers else {}
    remaining = [field for field in schema if field.name not in {*wanted, *real}]
    if powers:
        remaining = [field for field in remaining if power_name(field.name) is None]
    if "entity" in by_name:
        remaining = [field for field in remaining if field.name.strip().lower() not in IDENTITIES]
    fields = [*remaining, *(schema.field(name).with_name(words) for words, name in real.items())]
    result = parquet_layout(pa.schema(fields), options, label).renamed(real)
    renamed = _named_powers(powers, result, options)
    return replace(result, powers=renamed) if renamed else result


_WHO: tuple[tuple[str, ...], ...] = ((), ("entity",), ("node", "gpu"))


def _named_powers(
    names: Sequence[str], result: PowerLayout, options: PowerOptions
) -> tuple[PowerColumn, ...]:
    factor = None if options.unit is None else unit_factor(options.unit)
    powers = []
    for name in names:
        words = power_name(name)
        own_factor = words.factor if words and words.factor else factor
        chunk = name if len(names) > 1 else ""
        is_mw = bool(words and words.is_mw) and own_factor is None
        named = replace(result.powers[0], name=name, part=chunk, factor=own_factor, is_mw=is_mw)
        powers.append(named)
    return tuple(powers)


def _refuse_other_columns(
    first: PowerLayout, layout: PowerLayout, path: Path, chunks: list[Part]
) -> None:
    def names(own: PowerLayout) -> list[str]:
        return [own.time, *own.identity, *(power.name for power in own.powers)]

    if names(first) != names(layout):
        before = shown(chunks[0].path) if chunks else "the first file"
        msg = (
            f"{shown(path)}: uses columns {names(layout)[:8]}, but {before} {names(first)[:8]}; "
            "load files of one kind together"
        )
        raise LoadError(msg)


def _clock(file: Any, layout: PowerLayout, tz: str | None, label: str) -> Clock | None:
    for batch in parquet_batches(file, [layout.time], label):
        times = plain(batch.column(0))
        if times.null_count < len(times):
            return clock_of(times, layout.time, tz, label)
    return None


def _cut(metadata: Any, path: Path, layout: PowerLayout, clock: Clock) -> Iterator[Part]:
    # Some million rows to a chunk, so that threads can share one file.
    groups: list[int] = []
    rows = 0
    for number in range(metadata.num_row_groups):
        groups.append(number)
        rows += metadata.row_group(number).num_rows
        if rows >= _PART_ROWS or number == metadata.num_row_groups - 1:
            if rows:
                yield Part(path, groups, rows, layout, clock, path.stem)
            groups, rows = [], 0


def over_parts(
    chunks: Sequence[Part],
    work: Callable[[Part, Callable[[], None]], Result],
    *,
    label: str,
    progress: bool,
) -> Iterator[Result]:
    """Yield the result of ``work`` for each part, in order, on a few threads.

    ``work`` gets a function to call now and then: it raises once the caller has given up.
    """
    stop = threading.Event()

    def go_on() -> None:
        if stop.is_set():
            msg = "given up"
            raise InterruptedError(msg)

    # Arrow releases the interpreter while it decodes, so that few threads keep the cores busy.
    threads = max(1, min(_THREADS, os.cpu_count() or 1, len(chunks)))
    total = sum(chunk.row_count for chunk in chunks)
    pool = ThreadPoolExecutor(threads)
    try:
        with progress_bar(total=total, unit="rows", label=label, enabled=progress) as bar:
            # Results wait for their turn: two per thread bound the memory that they take.
            waiting = [pool.submit(work, chunk, go_on) for chunk in chunks[: 2 * threads]]
            for number, chunk in enumerate(chunks):
                result = waiting[number].result()
                waiting[number] = None  # type: ignore[call-overload]  # its memory is free again
                if number + 2 * threads < len(chunks):
                    waiting.append(pool.submit(work, chunks[number + 2 * threads], go_on))
                bar.update(chunk.row_count)
                yield result
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def readings_of(
    chunk: Part, period_ns: int, entities: Things, seen: Seen, go_on: Callable[[], None]
) -> Iterator[Readings]:
    layout, label = chunk.layout, shown(chunk.path)
    names = [layout.time, *layout.identity, *(power.name for power in layout.powers)]
    watts_of = [Watts(power) for power in layout.powers]
    with open_parquet(chunk.path, label, layout.identity) as file:
        for batch in parquet_batches(file, list(dict.fromkeys(names)), label, chunk.groups):
            go_on()
            columns = dict(zip(batch.schema.names, map(_plain_numbers, batch.columns), strict=True))
            cells, is_timed = _cells(columns[layout.time], chunk.clock, period_ns, seen)
            identity = [columns[name] for name in layout.identity]
            for watts in watts_of:
                runs = entities.codes(identity, watts.column, chunk.stem, len(batch))
                values = _watts_of(watts, plain(columns[watts.column.name]), seen)
                result = Readings(runs, cells, values)
                yield _known(result, is_timed, most_w(watts.column.scope), seen)


def _watts_of(watts: Watts, cells: pa.Array, seen: Seen) -> np.ndarray:
    kind = cells.type
    is_short = pa.types.is_unsigned_integer(kind) or pa.types.is_float32(kind)
    is_watts = watts.column.factor == 1 and not watts.column.needs_unit
    if is_watts and is_short and not cells.null_count:
        # Sums are float64; a copy of every reading in that width would be a pass more.
        short: np.ndarray = cells.to_numpy(zero_copy_only=False)
        return short
    return watts.of(cells, _NO_LINES, seen.findings)


# Line numbers that nobody shows: one zero seen a billion times takes no memory.
_NO_LINES = np.broadcast_to(np.int64(0), (1 << 30,))


def _plain_numbers(column: pa.Array) -> pa.Array:
    is_packed = pa.types.is_dictionary(column.type) and is_number(column.type.value_type)
    return plain(column) if is_packed else column


def _cells(
    times: pa.Array, clock: Clock, period_ns: int, seen: Seen
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the number of the cell of each row, and which rows have a time if not all do."""
    times = plain(times)
    if is_exact(times.type) and not times.null_count:
        # Whole numbers need no floats, which hold no ns since 1970 exactly.
        raw = times if pa.types.is_integer(times.type) else times.view(pa.int64())
        raw = raw.to_numpy().astype(np.int64, copy=False)
        per_unit = unit_ns(times.type, clock)
        most = _LATEST_NS // per_unit
        if len(raw) and raw.min() >= -most and raw.max() <= most:
            if period_ns % per_unit == 0:
                return raw // (period_ns // per_unit), None
            return raw * per_unit // period_ns, None
    ns = to_ns(times, clock, _NO_LINES, seen.findings).ns
    is_timed = ns.notna().to_numpy()
    cells = ns.fillna(0).to_numpy(dtype=np.int64) // period_ns
    return cells, None if is_timed.all() else is_timed


def _known(result: Readings, is_timed: np.ndarray | None, most: float, seen: Seen) -> Readings:
    values, codes = result.watts, result.runs.codes
    if not len(values):
        return result
    is_whole = is_timed is None and values.min() >= 0 and values.max() <= most
    if is_whole and codes.min() >= 0:
        return result
    codes = result.runs.per_row
    with np.errstate(invalid="ignore"):
        good = (values >= 0) & (values <= most) & (codes >= 0)
    if is_timed is not None:
        good &= is_timed
    seen.missing_count += int(len(good) - good.sum())
    kept = Runs(None, codes[good], int(good.sum()))
    return Readings(kept, result.cells[good], values[good])
