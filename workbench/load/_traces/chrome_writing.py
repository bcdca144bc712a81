"""Writing events as a Chrome trace, which Perfetto and the loader of Kineto traces open."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from workbench._shared.writing import write_whole
from workbench.errors import LoadError
from workbench.load._traces.kineto.rank import COLUMNS, SHAPES
from workbench.tables import EVENTS

# Columns that are arguments of an event, and how Kineto spells them today.
_ARGUMENTS: Mapping[str, str] = {
    column: argument for argument, (column, _) in COLUMNS.items() if argument != "external id"
}
# The same for columns of JSON, in their present spelling.
_SHAPES = {column: argument for argument, column in SHAPES.items() if argument != "Input dims"}
_BLOCK = 50_000
_NS_PER_MS = 1_000_000
_PACKED_LEVEL = 6
# At most 15 digits, which every JSON reader keeps exactly.
_WHOLE = re.compile(r"-?[1-9][0-9]{0,14}|0")


def write_chrome_trace(events: pd.DataFrame, path: str | Path, *, synthetic: bool = False) -> Path:
    """Store the events of one rank as a Chrome trace, whole or not at all.

    Measured events, or those that :func:`workbench.analyze.replayed_events` predicts: Perfetto
    (ui.perfetto.dev) and ``chrome://tracing`` show them, and :func:`traces` reads them back.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of one rank.
    path
        The file, ``.json`` or ``.json.gz``; an existing one is replaced once the new one is
        complete.
    synthetic
        Whether to mark the file as made, not measured; the loader says so then.

    Returns
    -------
    pathlib.Path
        The file. Read back it gives the same times (to the ns), names, categories, processes,
        threads, devices, streams, correlations, sizes, process groups and shapes. Kinds,
        launches and steps are not in the format; the loader finds them again.

    Raises
    ------
    TableError
        If the events do not fit their table.
    LoadError
        If they are of several ranks.

    References
    ----------
    Trace Event Format (Google), "JSON Object Format"; time stamps are in microseconds, with the
    nanoseconds behind the point, and relative to ``baseTimeNanoseconds`` as Kineto has it.
    """
    EVENTS.check(events)
    ranks = events["rank"].unique().tolist()
    if len(ranks) > 1:
        msg = f"the events are of {len(ranks)} ranks; write each to a file of its own"
        raise LoadError(msg)
    # Relative times are short, so that readers which parse floats keep the nanoseconds.
    base = int(events["start_ns"].min()) // _NS_PER_MS * _NS_PER_MS if len(events) else 0
    head: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ns"}
    head["baseTimeNanoseconds"] = base
    head |= {"distributedInfo": {"rank": ranks[0]}} if ranks else {}
    head |= {"synthetic": True} if synthetic else {}
    write_trace_file(events, Path(path), head)
    return Path(path)


def write_trace_file(events: pd.DataFrame, path: Path, head: Mapping[str, Any]) -> None:
    """Write a Chrome trace with fields beside its events; ``head`` states their base time."""

    def write_to(file: BinaryIO) -> None:
        if path.suffix != ".gz":
            _write(events, head, file)
            return
        # Without a time in the header the same events give the same bytes.
        with gzip.GzipFile("", "wb", _PACKED_LEVEL, file, mtime=0) as packed:
            _write(events, head, packed)

    write_whole(path, write_to)


def _write(events: pd.DataFrame, head: Mapping[str, Any], file: Any) -> None:
    file.write((json.dumps(head)[:-1] + ', "traceEvents": [\n').encode("ascii"))
    first = True
    for block in _blocks(events, head["baseTimeNanoseconds"]):
        file.write((block if first else ",\n" + block).encode("ascii"))
        first = False
    file.write(b"\n]}\n")


def _blocks(events: pd.DataFrame, base: int) -> Iterator[str]:
    kept = [name for name in (*_ARGUMENTS, *_SHAPES) if name in events]
    names = [name for name in kept if events[name].notna().any()]
    for begin in range(0, len(events), _BLOCK):
        block = events.iloc[begin : begin + _BLOCK]
        texts = {name: _texts(block[name]) for name in ("name", "category", "process", "thread")}
        arguments = _arguments(block, names)
        start, dur = (block["start_ns"] - base).tolist(), block["dur_ns"].tolist()
        rows = zip(*texts.values(), start, dur, arguments, strict=True)
        yield ",\n".join(
            f'{{"ph": "X", "cat": {category}, "name": {name}, "pid": {process}, '
            f'"tid": {thread}, "ts": {_us(at)}, "dur": {_us(took)}, "args": {{{more}}}}}'
            for name, category, process, thread, at, took, more in rows
        )


# Numbers of processes and threads are written as numbers, as profilers do.
def _texts(column: pd.Series) -> list[str]:
    is_number = column.name in {"process", "thread"}
    names = [str(category) for category in column.cat.categories]
    if column.name in _SHAPES:
        texts = [t if _is_list(t) else json.dumps(t) for t in names]
    else:
        texts = [t if is_number and _WHOLE.fullmatch(t) else json.dumps(t) for t in names]
    texts.append('""')
    return [texts[code] for code in column.cat.codes.tolist()]


def _is_list(text: str) -> bool:
    try:
        return text.isascii() and isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _arguments(block: pd.DataFrame, names: list[str]) -> list[str]:
    listed: list[list[str]] = [[] for _ in range(len(block))]
    for name in names:
        column, label = block[name], json.dumps({**_ARGUMENTS, **_SHAPES}[name])
        if isinstance(column.dtype, pd.CategoricalDtype):
            texts = _texts(column)
        else:
            texts = [str(value) for value in column.tolist()]
        for row in column.notna().to_numpy().nonzero()[0].tolist():
            listed[row].append(f"{label}: {texts[row]}")
    return [", ".join(arguments) for arguments in listed]


def _us(time_ns: int) -> str:
    microseconds, below = divmod(time_ns, 1000)
    return f"{microseconds}.{below:03d}"
