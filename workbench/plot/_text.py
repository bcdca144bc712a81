"""Words and numbers as figures print them: names made safe, durations with a fitting unit."""

from __future__ import annotations

import html
import re
import unicodedata

_TAGS = re.compile(r"</?[bi]>")
_LADDER = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))


def safe(text: object) -> str:
    """Make a name from a file harmless wherever plotly reads a subset of HTML.

    Titles, tick labels, legends and hover texts all do. Control and formatting
    characters (line ends, text direction) become blanks, and the dollar sign is
    written as an entity because plotly hands ``$...$`` to MathJax.
    """
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cf") else c for c in str(text))
    return html.escape(plain, quote=False).replace("$", "&#36;")


def short(text: object, width: int = 44) -> str:
    """Cut the middle out of a long name, so that both its ends stay readable.

    Kernel names begin with their namespace and end with what tells them apart.
    The result is at most ``width`` characters and is not yet :func:`safe`.
    """
    name = str(text)
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def label(text: object, width: int = 44) -> str:
    """Shorten a name and make it safe, in the order that keeps entities whole."""
    return safe(short(text, width))


def wrapped(text: str, width: int) -> str:
    """Break a line that is too long for the figure at blanks; an entity counts as one letter."""
    lines, used = [""], 0
    for word in text.split():
        letters = len(html.unescape(_TAGS.sub("", word)))
        if lines[-1] and used + 1 + letters > width:
            lines.append("")
            used = 0
        used += letters + bool(lines[-1])
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return "<br>".join(lines)


def time_unit(longest_ns: float) -> tuple[int, str]:
    """Choose the unit in which the longest of some durations reads best.

    Returns
    -------
    tuple of int and str
        Nanoseconds in one unit, and its sign: ns, µs, ms or s.
    """
    fitting = [(ns, sign) for ns, sign in _LADDER if abs(longest_ns) >= ns]
    return fitting[-1] if fitting else _LADDER[0]


def duration(ns: float) -> str:
    """Write a duration with three significant digits and a fitting unit."""
    per_unit, sign = time_unit(ns)
    return f"{_digits(ns / per_unit)} {sign}"


def size(number_of_bytes: float) -> str:
    """Write a number of bytes with three significant digits and a decimal unit."""
    signs = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while abs(number_of_bytes) >= 1000 and power < len(signs) - 1:
        number_of_bytes, power = number_of_bytes / 1000, power + 1
    return f"{_digits(number_of_bytes)} {signs[power]}"


def percent(share: float) -> str:
    """Write a share as per cent; what is not all or nothing never reads as such."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    places = 0 if 0.1 <= share <= 0.99 or share in (0, 1) else 1
    return f"{100 * share:.{places}f} %"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun, ``1 rank`` but ``8 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _digits(value: float) -> str:
    magnitude = abs(value)
    places = 0 if magnitude >= 100 or value == int(value) else 1 if magnitude >= 10 else 2
    return f"{value:,.{places}f}"
