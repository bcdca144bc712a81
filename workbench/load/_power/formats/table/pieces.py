"""Tables of power telemetry in pieces: Parquet by row groups, text by blocks."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import random_access
from workbench.load._files.text import ValidUtf8, tell_of_damage, text_lines
from workbench.load._power.formats.table.columns import (
    PowerLayout,
    has_unit,
    is_absent,
    is_number,
    refuse_other_types,
)
from workbench.load._power.formats.table.layout import Cell, layout, time_columns, wall_time
from workbench.load._power.number_form import NumberForm, like_numbers
from workbench.load._power.part import PowerOptions, number_of

PARQUET_MAGIC = b"PAR1"
# Small enough for the cache of a core, large enough that threads seldom wait for each other.
BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 4 << 20
_HEAD_BYTES = 1 << 16
_SAMPLE_ROWS = 20
_JSON_ROWS = 50_000
# Input is hostile: a header may be one long line of separators.
_MOST_COLUMNS = 200_000


@dataclass(frozen=True)
class Piece:
    """Some rows of a table: its columns by name, and the line of each row."""

    columns: dict[str, pa.Array]
    lines: np.ndarray


@dataclass(frozen=True)
class Pieces:
    """A table: its layout and names, and its rows piece by piece."""

    layout: PowerLayout
    names: list[str]
    pieces: Iterator[Piece]


def pieces_of(
    source: Source, options: PowerOptions, findings: Findings, wanted: Sequence[str] = ()
) -> Pieces:
    """Open a table: Parquet, JSON lines, or text with a separator.

    ``wanted`` are columns that are taken as well, in lower case, if there are such.
    """
    head = source.head(_HEAD_BYTES)
    if head.startswith(PARQUET_MAGIC):
        return _parquet(source, options, findings, wanted)
    text = decoded(head)
    if text.lstrip().startswith("{"):
        return _json_lines(source, options, findings, wanted)
    return _separated(source, text, options, findings, wanted)


def decoded(head: bytes) -> str:
    return head.decode("utf-8", "replace").removeprefix("\ufeff")


# Blank lines, comments, and the separator that Grafana writes for spreadsheets.
_PREAMBLE = re.compile(r"\s*|#.*|\"?sep=.\"?\s*", re.DOTALL)

_STATED = re.compile(r"\"?sep=(.)")


def header_of(text: str) -> tuple[int, str, list[str]]:
    lines = text.split("\n")
    skipped, stated = 0, ""
    while skipped < len(lines) - 1 and _PREAMBLE.fullmatch(lines[skipped]):
        match = _STATED.match(lines[skipped])
        skipped, stated = skipped + 1, match[1] if match else stated
    line = lines[skipped].rstrip("\r")
    # The separator occurs most often in a header; the first of the list wins a tie.
    separator = stated or max(("\t", ";", ",", "|"), key=line.count)
    names = next(iter(_cells([line], separator)), [])
    return skipped, separator, [name.strip() for name in names]


def flat_names(text: str) -> list[str]:
    line = text.lstrip().split("\n", 1)[0]
    try:
        record = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return []
    return list(flat(record)) if isinstance(record, dict) else []


def sample_of(text: str, skipped: int, separator: str, count: int) -> list[list[str]]:
    # The last line of the head may be cut.
    lines = text.split("\n")[skipped + 1 : -1] or text.split("\n")[skipped + 1 :]
    return [row for row in _cells(lines[:_SAMPLE_ROWS], separator) if len(row) == count]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []


def open_parquet(path: Path | io.BytesIO, label: str, names: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file, or say why it cannot be read; ``names`` are columns of names."""
    try:
        return pq.ParquetFile(
            path,
            memory_map=isinstance(path, Path),
            # A damaged page must be an error, not other powers.
            page_checksum_verification=True,
            read_dictionary=list(names),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(label, error) from None


def unreadable(label: str, error: Exception) -> LoadError:
    reason = " ".join(str(error).split())[:200]
    return LoadError(f"{label}: cannot be read as Parquet ({reason}); copy it again")


def parquet_layout(
    schema: pa.Schema, options: PowerOptions, label: str, *, with_counters: bool = False
) -> PowerLayout:
    names = list(schema.names)
    refuse_twice(names, label)
    stamps = [f.name for f in schema if pa.types.is_timestamp(f.type)]
    cells: dict[str, Cell] = {f.name: "text" for f in schema if not is_number(f.type)}
    # Of two columns of times a number may count from the start of the program.
    named = [name for name in time_columns(names) if name in stamps]
    time = named[0] if named else stamps[0] if len(stamps) == 1 else None
    shape = layout(names, options, label, time=time, cells=cells, with_counters=with_counters)
    numbers = [column.name for column in (*shape.powers, *shape.counters)]
    refuse_other_types(schema, numbers, label)
    for name in shape.identity:
        if pa.types.is_nested(schema.field(name).type):
            msg = f"{label}: column {name!r} holds {schema.field(name).type}, no names"
            raise LoadError(msg)
    return shape


def refuse_twice(names: Sequence[str], label: str) -> None:
    """Raise if two columns share a name, or there are absurdly many."""
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})[:5]
        msg = f"{label}: columns {twice} occur twice; rename one of each"
        raise LoadError(msg)
    if len(names) > _MOST_COLUMNS:
        msg = f"{label}: has {len(names):,} columns, more than any fleet; is it a table?"
        raise LoadError(msg)


def parquet_batches(
    file: pq.ParquetFile, names: list[str], label: str, groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some columns, in order; report damage as a LoadError."""
    try:
        yield from file.iter_batches(
            batch_size=BATCH_ROWS, columns=names, use_threads=False, row_groups=groups
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(label, error) from None


def _parquet(
    source: Source, options: PowerOptions, findings: Findings, wanted: Sequence[str]
) -> Pieces:
    file = open_parquet(random_access(source), source.label)
    table_layout = parquet_layout(file.schema_arrow, options, source.label, with_counters=True)
    names = list(file.schema_arrow.names)
    chosen = _taken(table_layout, names, wanted)

    def pieces() -> Iterator[Piece]:
        row = 0
        with file:
            for batch in parquet_batches(file, chosen, source.label):
                lines = np.arange(row + 1, row + 1 + len(batch), dtype=np.int64)
                yield Piece(dict(zip(batch.schema.names, batch.columns, strict=True)), lines)
                row += len(batch)
        findings.add("read", "rows", row)

    return Pieces(table_layout, names, pieces())


def _taken(table_layout: PowerLayout, names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    numbers = (column.name for column in (*table_layout.powers, *table_layout.counters))
    needed = {table_layout.time, *table_layout.identity, *numbers}
    return [name for name in names if name in needed or name.strip().lower() in wanted]


def _separated(
    source: Source, text: str, options: PowerOptions, findings: Findings, wanted: Sequence[str]
) -> Pieces:
    skipped, separator, names = header_of(text)
    refuse_twice(names, source.label)
    columns = _columns_of(text, skipped, separator, names)
    form = _form_of(source, columns, names, (skipped, separator), findings)
    if form is not None:
        columns = {n: form.plain(pa.array(cells, pa.string())).to_pylist()
                   for n, cells in columns.items()}  # fmt: skip
    sample = {name: cells[:_SAMPLE_ROWS] for name, cells in columns.items()}
    time = wall_time(sample)
    table_layout = layout(
        names, options, source.label, time=time, cells=_cells_of(sample), with_counters=True
    )
    chosen = _taken(table_layout, names, wanted)
    blocks = _blocks(source, names, (skipped, separator), chosen, findings)
    if form is not None:
        blocks = _in_form(blocks, form, {*chosen} - {*table_layout.identity})
    return Pieces(table_layout, names, blocks)


def _columns_of(
    text: str, skipped: int, separator: str, names: Sequence[str]
) -> dict[str, list[str]]:
    """Return the cells of all whole rows of the head, by column."""
    lines = text.split("\n")[skipped + 1 : -1] or text.split("\n")[skipped + 1 :]
    rows = [row for row in _cells(lines, separator) if len(row) == len(names)]
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _form_of(
    source: Source,
    columns: Mapping[str, list[str]],
    names: list[str],
    shape: tuple[int, str],
    findings: Findings,
) -> NumberForm | None:
    """Return how the file writes numbers by all its cells; None if as programs do."""
    numeric = [name for name, cells in columns.items() if any(cells) and like_numbers(cells)]
    form = NumberForm(shape[1])
    for name in numeric:
        form.look(pa.array(columns[name], pa.string()))
    # In a file of semicolons commas are decimal signs as a rule, maybe further down.
    if not numeric or (form.is_plain and shape[1] != ";"):
        return None
    form = NumberForm(shape[1])
    for piece in _blocks(source, names, shape, numeric, Findings(source.label)):
        for cells in piece.columns.values():
            form.look(cells)
    form.settle(findings)
    return form


def _in_form(pieces: Iterator[Piece], form: NumberForm, names: Set[str]) -> Iterator[Piece]:
    for piece in pieces:
        columns = {n: form.plain(cells) if n in names else cells
                   for n, cells in piece.columns.items()}  # fmt: skip
        yield Piece(columns, piece.lines)


def _cells_of(columns: Mapping[str, Sequence[str]]) -> dict[str, Cell]:
    table_layout: dict[str, Cell] = {}
    for name, cells in columns.items():
        if any(map(has_unit, cells)):
            table_layout[name] = "unit"
        elif all(is_absent(cell) or not cell.strip("0. ") for cell in cells):
            table_layout[name] = "blank"
        elif all(number_of(cell.strip().split(" ")[0]) is None for cell in cells):
            table_layout[name] = "text"
    return table_layout


def _blocks(
    source: Source, names: list[str], form: tuple[int, str], chosen: list[str], findings: Findings
) -> Iterator[Piece]:
    skipped, separator = form
    bad: list[int] = []
    swallowed = 0

    def other_width(row: Any) -> str:
        nonlocal swallowed
        bad.append(int(row.number or 0))
        swallowed += str(row.text).count("\n")
        return "skip"

    read = pacsv.ReadOptions(
        use_threads=False, block_size=_BLOCK_BYTES, skip_rows=skipped + 1, column_names=names
    )
    parse = pacsv.ParseOptions(
        delimiter=separator, invalid_row_handler=other_width, ignore_empty_lines=False
    )
    convert = pacsv.ConvertOptions(
        include_columns=chosen, column_types=dict.fromkeys(chosen, pa.string()),
        strings_can_be_null=False,
    )  # fmt: skip
    rows = 0
    with source.open() as stream:
        # One bad byte must not cost the file.
        text = ValidUtf8(stream, findings)
        try:
            with pacsv.open_csv(pa.PythonFile(text, "r"), read, parse, convert) as reader:
                for block in reader:
                    lines = _lines(len(block), rows, skipped + 2, bad)
                    rows += len(block)
                    batch, lines = _without_blank(block, lines)
                    yield Piece(dict(zip(batch.schema.names, batch.columns, strict=True)), lines)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _no_table(source.label, error, rows) from None
        tell_of_damage(stream, findings)
    message = "rows with another number of cells than the header"
    if bad:
        findings.add("dropped", message, len(bad), f"line {bad[0]:,}" if bad[0] else None)
    message = "lines that a quote without its end has swallowed; repair it and load again"
    findings.add("truncated", message, swallowed, f"line {bad[0]:,}" if bad and bad[0] else None)
    findings.add("read", "rows", rows)


def _without_blank(batch: pa.RecordBatch, lines: np.ndarray) -> tuple[pa.RecordBatch, np.ndarray]:
    blank = np.ones(len(batch), dtype=bool)
    for column in batch.columns:
        blank &= pc.equal(column, "").to_numpy(zero_copy_only=False)
        if not blank.any():
            return batch, lines
    return batch.filter(pa.array(~blank)), lines[~blank]


def _lines(count: int, before: int, first: int, bad: list[int]) -> np.ndarray:
    # Rows of another width are lines of the file, too.
    lines = np.arange(before, before + count, dtype=np.int64)
    if bad and all(bad):
        # Each bad row shifts the numbers of all rows behind it.
        left_out = np.array(bad) - first - np.arange(len(bad))
        lines = lines + np.searchsorted(left_out, lines, side="right")
    return lines + first


def _no_table(label: str, error: Exception, rows: int) -> LoadError:
    if isinstance(error, LoadError):
        return error
    reason = " ".join(str(error).split())[:160]
    if "Empty CSV" in reason:
        return LoadError(f"{label}: holds a header and no rows; get the file again")
    return LoadError(f"{label}: cannot be read as a table after row {rows:,} ({reason})")


def _json_lines(
    source: Source, options: PowerOptions, findings: Findings, wanted: Sequence[str]
) -> Pieces:
    records = _records(source, findings)
    first = list(islice(records, _JSON_ROWS))
    if not first:
        msg = f"{source.label}: holds no JSON object in one line"
        raise LoadError(msg)
    names = list(dict.fromkeys(name for _, record in first for name in record))
    refuse_twice(names, source.label)
    subset = [
        {name: "" if value is None else str(value) for name, value in record.items()}
        for _, record in first[:_SAMPLE_ROWS]
    ]
    columns = {name: [record.get(name, "") for record in subset] for name in names}
    table_layout = layout(
        names, options, source.label, time=wall_time(columns), cells=_cells_of(columns),
        with_counters=True,
    )  # fmt: skip
    chosen = _taken(table_layout, names, wanted)

    def pieces() -> Iterator[Piece]:
        subset, rows = first, 0
        while subset:
            columns = {name: _texts([r.get(name) for _, r in subset]) for name in chosen}
            yield Piece(columns, np.array([line for line, _ in subset], dtype=np.int64))
            rows += len(subset)
            subset = list(islice(records, _JSON_ROWS))
        findings.add("read", "rows", rows)

    return Pieces(table_layout, names, pieces())


def _records(source: Source, findings: Findings) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in text_lines(source, findings):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield line, flat(value)
        else:
            findings.add("dropped", "lines that are not JSON objects", 1, f"line {line:,}")


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an object and of the objects in it, by their own names.

    A name that several objects use is qualified by theirs, as are those in an object that is one
    of several by its name: ``{"gpu0": {"power_w": 5}}`` gives ``gpu0_power_w``.
    """
    inside = [value for value in record.values() if isinstance(value, dict)]
    uses = Counter(str(key) for value in inside for key in value)
    plain: dict[str, Any] = {}
    for name, value in record.items():
        if not isinstance(value, dict):
            plain[str(name)] = value
            continue
        # gpu0, gpu1: what is inside belongs to one of several.
        is_one_of = str(name)[-1:].isdigit()
        for key, item in value.items():
            is_shared = is_one_of or uses[str(key)] > 1 or str(key) in record
            plain[f"{name}_{key}" if is_shared else str(key)] = item
    return plain


def _texts(values: list[Any]) -> pa.Array:
    texts = [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # JSON can hold half characters
        mended = [t if t is None else t.encode("utf-8", "backslashreplace").decode() for t in texts]
        return pa.array(mended, pa.string())
