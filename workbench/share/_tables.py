"""Tables as people read them: units in titles, readable numbers, bars; all rows as CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TABLE_MIME = "application/vnd.workbench.table+json"
"""MIME type of a table with its values at full precision; only reports read it."""

_SHOWN_ROWS, _CSV_ROWS = 200, 100_000
_FEWEST_BARS, _MOST_BARS = 3, 60
_LONG_TEXT, _LONG_WORD = 72, 24
# A sentence wraps and may be longer than a name.
_LONG_SENTENCE, _FEWEST_WORDS = 240, 6
_MOST_PLACES = 6
# So long ago or more is a time of day and no duration; what lies beyond does not fit 64 bits.
_EPOCH_NS, _END_NS = 10**9 * 86_400 * 365 * 20, 2**63
_LADDERS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"), (60e9, "min"), (3600e9, "h")),
    "bytes": ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
    "w": ((1, "W"), (1e3, "kW"), (1e6, "MW")),
    "j": ((1, "J"), (1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ")),
}
# A number of so many of a unit still reads well; ten seconds, not a sixth of a minute.
_READS_WELL = 3
_UNITS = {
    "us": "µs", "ms": "ms", "s": "s", "min": "min", "h": "h", "days": "days", "kw": "kW",
    "kj": "kJ", "mj": "MJ", "wh": "Wh", "kwh": "kWh", "mwh": "MWh", "mhz": "MHz", "c": "°C",
    "gb": "GB", "gb_per_s": "GB/s", "gpu_h": "GPU-h", "gpu_s": "GPU-s", "usd": "US$", "v": "V",
    "tflops": "TFLOP/s", "tokens_per_s": "tokens/s", "w_per_s": "W/s",
}  # fmt: skip
_SUFFIX = re.compile(
    rf"_({'|'.join(sorted([*_UNITS, *_LADDERS, 'share'], key=len, reverse=True))})$"
)
# Names of things that happen to be numbers; a separator would make them amounts.
_NAMES = re.compile(r"(^|_)(year|pid|tid|id|rank|stream|event|node|correlation|seed|line)$")
# Columns of names of quantities: those of a table turned on its side, and of inputs of models.
_OF_QUANTITIES = ("", "quantity")
_QUANTITY = re.compile(r"[a-z]+(_[a-z0-9]+)+")
# Amounts whose sum means something, so that the length of a bar does as well.
_AMOUNT = re.compile(r"(share|_j|_kwh|_gpu_h|_usd|count|(?<!start)(?<!end)(?<!first)(?<!last)_ns)$")


def as_data(frame: Any, **_wanted: Any) -> dict[str, Any]:
    """Make the MIME bundle of a data frame; IPython also passes which types it wants."""
    head = frame.head(_CSV_ROWS)
    levels = [head.index.get_level_values(level) for level in range(head.index.nlevels)]
    # Rows that are only counted need no column for it.
    if head.index.names == [None] and head.index.dtype.kind == "i":
        levels = []
    columns = [*levels, *(head.iloc[:, place] for place in range(head.shape[1]))]
    names = [*(level.name for level in levels), *head.columns]
    values = [[_plain(value) for value in column] for column in columns]
    content = {
        "columns": [_joined(name) for name in names],
        "is_number": [column.dtype.kind in "iuf" for column in columns],
        "rows": list(zip(*values, strict=True)),
        "count": len(frame),
    }
    return {TABLE_MIME: json.dumps(content)}


def _joined(name: Any) -> str:
    if isinstance(name, tuple):
        return " / ".join(map(str, name))
    # Columns that are only counted have no name.
    return "" if name is None or isinstance(name, (int, np.integer)) else str(name)


def _plain(value: Any) -> Any:
    """Turn a cell into what JSON can hold; None is missing, times are texts."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else str(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return str(value)


@dataclass(frozen=True)
class Shown:
    """A table of a page: its HTML, and the CSV of all its rows."""

    html: str
    csv: str


def shown(content: str, number: int) -> Shown:
    """Write the table that :func:`as_data` made as HTML and as CSV."""
    table = json.loads(content)
    columns = list(zip(*table["rows"], strict=True)) or [() for _ in table["columns"]]
    kept = [values[:_SHOWN_ROWS] for values in columns]
    cells = [
        _column(name, values, is_number=is_number)
        for name, values, is_number in zip(table["columns"], kept, table["is_number"], strict=True)
    ]
    _add_bar(table["columns"], kept, cells)
    heads = "".join(cell.head for cell in cells)
    rows = "".join(
        f"<tr>{''.join(row)}</tr>" for row in zip(*(c.cells for c in cells), strict=True)
    )
    count = table["count"]
    rest = f"<p>The first {_SHOWN_ROWS} of {count:,} rows.</p>" if count > _SHOWN_ROWS else ""
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    label = f'role="region" aria-label="Table {number + 1}" tabindex="0"'
    region = f'<div class="wb-table" {label}>{body}</div>'
    return Shown(region + rest, _csv(table["columns"], table["rows"], count))


@dataclass
class _Cells:
    head: str
    cells: list[str]


def _column(name: str, values: Sequence[Any], *, is_number: bool) -> _Cells:
    """Write the head and the cells of a column."""
    present = [value for value in values if value is not None]
    if is_number and all(isinstance(value, (int, float)) for value in present):
        title, unit, texts = _numbers(name, values)
        left = ""
    else:
        values = [_quantity(value) for value in values] if name in _OF_QUANTITIES else values
        title, unit, texts = name.replace("_", " "), "", [_text(value) for value in values]
        left = ' class="l"'
    if title:
        small = f" <small>{html.escape(unit)}</small>" if unit else ""
        head = f'<th scope="col"{left}>{html.escape(title)}{small}</th>'
    else:
        head = "<td></td>"
    return _Cells(head, [f"<td{left}>{text}</td>" for text in texts])


def _quantity(value: Any) -> Any:
    """Write the name of a quantity with its unit: ``recovery_min`` as ``recovery [min]``."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        return value
    if (match := _SUFFIX.search(value)) is None or match[1] == "share":
        return value.replace("_", " ")
    unit = _LADDERS[match[1]][0][1] if match[1] in _LADDERS else _UNITS[match[1]]
    return f"{value[: match.start()].replace('_', ' ')} [{unit}]"


def _text(value: Any) -> str:
    """Write a cell of a column that holds texts, or numbers of several quantities."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        is_whole = float(value).is_integer() or abs(value) >= 1e4
        return _signed(f"{value:,.0f}" if is_whole else f"{value:.4g}")
    text = str(value)
    most = _LONG_SENTENCE if len(text.split()) >= _FEWEST_WORDS else _LONG_TEXT
    short = text if len(text) <= most else f"{text[: most - 20]}…{text[-18:]}"
    if max(map(len, short.split()), default=0) <= _LONG_WORD and len(short) <= 2 * _LONG_WORD:
        return html.escape(short)
    return f'<span class="long" title="{html.escape(text)}">{html.escape(short)}</span>'


def _numbers(name: str, values: Sequence[Any]) -> tuple[str, str, list[str]]:
    """Return title, unit and cells of a column of numbers."""
    match = _SUFFIX.search(name)
    suffix = match[1] if match else ""
    title = (name[: match.start()] if match else name).replace("_", " ")
    present = [abs(float(value)) for value in values if value is not None]
    largest = max(present, default=0.0)
    if suffix == "ns" and min(present, default=0.0) > _EPOCH_NS and largest < _END_NS:
        return title, "UTC", [_moment(value) for value in values]
    if suffix == "share":
        # Texts such as "idle share" lose nothing: the unit says it.
        return f"{title} share", "%", _written([_times(value, 100) for value in values])
    if suffix in _LADDERS:
        reads = 1 if suffix in ("w", "j") else _READS_WELL if largest >= 60e9 else 1
        fitting = [step for step in _LADDERS[suffix] if largest >= reads * step[0]]
        scale, unit = (fitting or _LADDERS[suffix])[-1 if fitting else 0]
        return title, unit, _written([_times(value, 1 / scale) for value in values])
    if _NAMES.search(name):
        return title, "", ["–" if value is None else f"{value:g}" for value in values]
    return title, _UNITS.get(suffix, ""), _written(values)


def _times(value: Any, factor: float) -> Any:
    if value is None or factor == 1:
        return value
    return float(value) * factor


def _moment(value: Any) -> str:
    if value is None:
        return "–"
    return str(np.datetime64(int(value) // 1_000_000, "ms")).replace("T", "\N{NO-BREAK SPACE}")


def _written(values: Sequence[Any]) -> list[str]:
    """Write numbers with the same decimals: enough for three digits of the median."""
    present = sorted(abs(float(value)) for value in values if value)
    if all(value is None or float(value).is_integer() for value in values):
        return ["–" if value is None else _signed(f"{int(value):,}") for value in values]
    typical = present[(len(present) - 1) // 2]
    places = min(max(2 - math.floor(math.log10(typical)), 0), _MOST_PLACES)
    return ["–" if value is None else _decimal(float(value), places) for value in values]


def _decimal(value: float, places: int) -> str:
    """Write a number with the decimals of its column, or more: each keeps three digits."""
    if not value:
        return "0"
    own = 2 - math.floor(math.log10(abs(value)))
    return _signed(f"{value:.3g}" if own > _MOST_PLACES else f"{value:,.{max(places, own)}f}")


def _signed(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def _add_bar(names: list[str], columns: Sequence[Sequence[Any]], cells: list[_Cells]) -> None:
    """Put a column of bars before the first column of amounts."""
    for place, (name, values) in enumerate(zip(names, columns, strict=True)):
        if not _AMOUNT.search(name) or not _FEWEST_BARS <= len(values) <= _MOST_BARS:
            continue
        if any(isinstance(value, (str, bool)) or (value or 0) < 0 for value in values):
            continue
        top = max(float(value or 0) for value in values)
        # Bars of one length say nothing.
        if not 0 < top < _EPOCH_NS or len(set(values)) == 1:
            continue
        bars = [_bar(float(value or 0) / top) for value in values]
        cells.insert(place, _Cells("<td></td>", bars))
        return


def _bar(share: float) -> str:
    drawn = f'<rect width="{100 * share:.1f}%" height="10"/>'
    svg = f'<svg width="100%" height="10" aria-hidden="true">{drawn}</svg>'
    return f'<td class="wb-bar">{svg}</td>'


def _csv(names: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    if count > len(rows):
        writer.writerow([f"{count - len(rows)} further rows are not in this file"])
    return text.getvalue()


def figure_csv(figure: Mapping[str, Any]) -> str:
    """Write what a figure draws as CSV: a row per point, with the titles of the axes.

    Empty if the figure has no points.
    """
    layout = figure.get("layout") or {}
    names = {"x": _axis(layout, "xaxis", "x"), "y": _axis(layout, "yaxis", "y")}
    fields = ["x", "y", "z", "base", "text"]
    rows = [row for trace in figure.get("data") or [] for row in _points(trace, fields)]
    used = [place for place in range(len(fields)) if any(row[place + 1] != "" for row in rows)]
    if not used:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = {"base": "start", **names}
    writer.writerow(["series", *(heads.get(fields[place], fields[place]) for place in used)])
    writer.writerows([row[0], *(row[place + 1] for place in used)] for row in rows)
    return text.getvalue()


def _axis(layout: Mapping[str, Any], axis: str, fallback: str) -> str:
    title = (layout.get(axis) or {}).get("title") or {}
    text = title.get("text") if isinstance(title, Mapping) else title
    return html.unescape(re.sub(r"<[^<>]*>", " ", text)).strip() if text else fallback


def _points(trace: Mapping[str, Any], fields: Sequence[str]) -> Iterator[list[Any]]:
    """Go through the points of a trace; a grid of cells gives one row per cell."""
    arrays = {name: _array(trace.get(name)) for name in fields}
    name = html.unescape(str(trace.get("name") or ""))
    grid = arrays["z"]
    if grid is not None and grid.ndim == 2:
        down, across = arrays["y"], arrays["x"]
        for (at_y, at_x), value in np.ndenumerate(grid):
            x = at_x if across is None else across.flat[at_x]
            y = at_y if down is None else down.flat[at_y]
            yield [name, x, y, _cell(value), "", ""]
        return
    count = max((len(a) for a in arrays.values() if a is not None and a.ndim == 1), default=0)
    for place in range(count):
        cells = (
            "" if values is None or values.ndim != 1 or place >= len(values) else values[place]
            for values in arrays.values()
        )
        yield [name, *map(_cell, cells)]


def _cell(value: Any) -> Any:
    return "" if value is None else value.item() if isinstance(value, np.generic) else value


def _array(values: Any) -> Any:
    """Read an array as plotly writes it: a list, or numbers as base64 with their type."""
    if isinstance(values, Mapping) and "bdata" in values:
        array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=np.dtype(values["dtype"]))
        shape = [int(size) for size in str(values.get("shape") or len(array)).split(",")]
        return array.reshape(shape)
    if not isinstance(values, (list, tuple)):
        return None
    is_grid = bool(values) and isinstance(values[0], (list, tuple))
    return np.array(values, dtype=object) if not is_grid else _grid(values)


def _grid(values: Sequence[Sequence[Any]]) -> Any:
    rows = {len(row) for row in values}
    return np.array(values, dtype=object) if len(rows) == 1 else None
