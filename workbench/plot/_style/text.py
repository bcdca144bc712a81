"""Words and numbers as figures print them: names made safe, durations with a fitting unit."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_TAGS = re.compile(r"</?[bi]>")
_NAMESPACE = re.compile(r"\b\w++::")
_LADDER = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))


def safe(text: object) -> str:
    """Make a name from a file harmless wherever plotly reads a subset of HTML.

    Titles, tick labels, legends and hover texts all do. Control and formatting
    characters (line ends, text direction) become blanks, and the dollar sign is
    written as an entity because plotly hands ``$...$`` to MathJax.
    """
    plain = str(text)
    if not plain.isprintable():
        plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cf") else c for c in plain)
    return html.escape(plain, quote=False).replace("$", "&#36;")


def short(text: object, width: int = 44) -> str:
    """Cut a long name to ``width`` characters, so that what tells it apart stays readable.

    C++ names first lose their argument list and their namespaces, then any name loses
    its middle, so that both its ends stay. The result is not yet :func:`safe`.
    """
    name = str(text)
    if len(name) <= width:
        return name
    name = _without_cpp_noise(name)
    if len(name) <= width:
        return name
    tail = 2 * (width - 1) // 5
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _without_cpp_noise(name: str) -> str:
    """Turn ``void a::b::f<a::g>(int, a::h)`` into ``f<g>``; other names stay as they are."""
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    if bare.endswith(")"):
        depth = 0
        for at in range(len(bare) - 1, 0, -1):
            depth += (bare[at] == ")") - (bare[at] == "(")
            if depth == 0:
                bare = bare if bare[at - 1] == " " else bare[:at]
                break
    return _NAMESPACE.sub("", bare) or name


def label(text: object, width: int = 44) -> str:
    """Shorten a name and make it safe, in the order that keeps entities whole."""
    return safe(short(text, width))


def wrapped(text: str, width: int) -> str:
    """Break a line that is too long for the figure at blanks, into lines of equal length.

    An entity counts as one letter and a tag as none.
    """
    lines = _lines(text, width)
    if len(lines) > 1:
        # The narrowest width that needs no more lines, so that no line is left with a single word.
        narrower = (_lines(text, fewer) for fewer in range(width // 2, width + 1))
        lines = next(broken for broken in narrower if len(broken) == len(lines))
    return "<br>".join(lines)


def _lines(text: str, width: int) -> list[str]:
    lines, used = [""], 0
    for word in text.split():
        letters = len(html.unescape(_TAGS.sub("", word)))
        if lines[-1] and used + 1 + letters > width:
            lines.append("")
            used = 0
        used += letters + bool(lines[-1])
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def printed_lines(text: str) -> list[str]:
    """Return the lines of a label as they are printed, without tags."""
    return _TAGS.sub("", text).split("<br>")


def time_unit(longest_ns: float) -> tuple[int, str]:
    """Choose the unit for the longest of some durations: ns in one of it, and its sign."""
    fitting = [(ns, sign) for ns, sign in _LADDER if abs(longest_ns) >= ns]
    return fitting[-1] if fitting else _LADDER[0]


def duration(ns: float) -> str:
    """Write a duration with three significant digits and a fitting unit."""
    per_unit, sign = time_unit(ns)
    return f"{digits(ns / per_unit)} {sign}"


def size(number_of_bytes: float) -> str:
    """Write a number of bytes with three significant digits and a decimal unit."""
    signs = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while abs(number_of_bytes) >= 1000 and power < len(signs) - 1:
        number_of_bytes, power = number_of_bytes / 1000, power + 1
    return f"{digits(number_of_bytes)} {signs[power]}"


def percent(share: float) -> str:
    """Write a share as per cent; what is not all or nothing never reads as such."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    # Close to nothing and to all a digit more tells values apart.
    places = 0 if 0.1 <= share <= 0.99 or share in (0, 1) else 1
    return f"{100 * share:.{places}f} %"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun, ``1 rank`` but ``8 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def digits(value: float) -> str:
    """Write a number with three significant digits, and never with an exponent."""
    magnitude = abs(value)
    if 0 < magnitude < 1e-4:
        return "< 0.0001" if value > 0 else "> -0.0001"
    if magnitude < 1:
        return f"{value:.3g}"
    places = 0 if magnitude >= 100 or value == int(value) else 1 if magnitude >= 10 else 2
    return f"{value:,.{places}f}"


# Power, energy and time as figures of power print them.

_Ladder = tuple[tuple[float, str], ...]
_SIGNS: _Ladder = ((1e-3, "m"), (1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
_JOULES: _Ladder = ((1, "J"), (3.6e3, "Wh"), (3.6e6, "kWh"), (3.6e9, "MWh"), (3.6e12, "GWh"))
_TIMES: _Ladder = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "days"))
# A text takes the next larger unit of time from so many on, an axis beyond so many.
_LONG_TEXT, _LONG_AXIS = 3, 300
# Stamps before it count from a zero of their own.
_EPOCH_NS = 10**9 * 86_400 * 365 * 20


def power_unit(largest: float, unit: str = "W") -> tuple[float, str]:
    """Choose the unit in which the largest of some powers reads best; of energies with ``J``."""
    scale, sign = _fitting(_SIGNS, largest)
    return scale, f"{sign}{unit}"


def energy_unit(largest_j: float) -> tuple[float, str]:
    """Choose the unit, from J to GWh, in which the largest of some energies reads best."""
    return _fitting(_JOULES, largest_j)


def _fitting(ladder: _Ladder, largest: float) -> tuple[float, str]:
    fitting = [step for step in ladder if np.isfinite(largest) and abs(largest) >= step[0]]
    return fitting[-1] if fitting else next(step for step in ladder if step[0] == 1)


def amount(value: float, unit: str = "W") -> str:
    """Write a power, or an energy of work, with three significant digits: ``4.70 MJ``."""
    scale, name = power_unit(value, unit)
    return f"{digits(value / scale)} {name}"


def joules(energy_j: float) -> str:
    """Write an energy as bills count it, with three significant digits: ``415 kWh``."""
    scale, unit = energy_unit(energy_j)
    return f"{digits(energy_j / scale)} {unit}"


def share_text(share: float) -> str:
    """Write a share as per cent, as texts of figures need it: ``< 0.1 %`` holds a sign of HTML."""
    return safe(percent(share))


def seconds(value: float) -> str:
    """Write a time given in seconds: ``57.0 s``, ``12.5 min``, ``3.20 h``."""
    scale, unit = next((step for step in _TIMES[:0:-1] if value >= _LONG_TEXT * step[0]), _TIMES[0])
    return f"{digits(value / scale)} {unit}"


def utc(time_ns: Any) -> NDArray[Any]:
    """Return times as a date axis has them, rounded to the microsecond that it shows."""
    whole = np.asarray(time_ns, dtype=np.int64) // 1_000
    dates: NDArray[Any] = pd.to_datetime(whole, unit="us").to_numpy()
    return dates


def clock_time(time_ns: int) -> str:
    """Write the time of day in UTC to the second."""
    return pd.Timestamp(int(time_ns), unit="ns").strftime("%H:%M:%S")


def time_axis(first_ns: int, last_ns: int) -> tuple[float, str]:
    """Choose how times since the first are drawn: ns in one unit, and the title with the zero."""
    span_s = (last_ns - first_ns) / 1e9
    scale, unit = next((step for step in _TIMES if span_s <= _LONG_AXIS * step[0]), _TIMES[-1])
    if first_ns < _EPOCH_NS:
        return scale * 1e9, f"time since the first cell [{unit}]"
    stamp = pd.Timestamp(first_ns, unit="ns").strftime("%Y-%m-%d %H:%M:%S")
    return scale * 1e9, f"time since {stamp} UTC [{unit}]"


# What an analysis says about its result: what was dropped, what is doubtful.

_MOST = 4


def interval(table: pd.DataFrame, name: str = "whiskers") -> list[str]:
    share = table.attrs.get("confidence_level")
    return [f"{name}: {percent(share)} interval" if share else f"{name}: confidence interval"]


def reservations(table: pd.DataFrame) -> list[str]:
    """List what was not counted, and why the exposure is in doubt."""
    reasons = sorted(table.attrs.get("left_out", {}).items(), key=lambda item: -item[1])
    dropped = [f"{count:,} {label(reason, 50)}" for reason, count in reasons[:_MOST]]
    if more := sum(count for _, count in reasons[_MOST:]):
        dropped.append(f"{more:,} for other reasons")
    notes = [f"not counted: {', '.join(dropped)}"] if dropped else []
    return notes + [f"<b>{label(doubt, 200)}</b>" for doubt in table.attrs.get("doubts", [])]


def is_doubtful(rows: pd.DataFrame) -> bool:
    """Return whether at least half of the rows that a title rests on are in doubt.

    That stands in one of the columns ``is_sure``, ``is_usable`` and ``doubt``.
    """
    bad = pd.Series(data=False, index=rows.index)
    for column in {"is_sure", "is_usable"} & {*rows.columns}:
        bad |= ~rows[column].fillna(value=True).astype(bool)
    if "doubt" in rows and "is_sure" not in rows:
        bad |= rows["doubt"].fillna("").astype(str) != ""
    return bool(len(bad)) and bool(bad.mean() >= 0.5)


def span(low: float, high: float) -> str:
    ends = [round(100 * value, 1 if high < 0.1 else 0) for value in (low, high)]
    return f"{ends[0]:g} to {ends[1]:g} %"


def between(low: float, high: float) -> str:
    return f"{digits(low)} to {digits(high)}"
