"""Words and numbers as figures print them: names made safe, durations with a fitting unit."""

from __future__ import annotations

import html
import re
import unicodedata

_TAGS = re.compile(r"</?[bi]>")
_NAMESPACE = re.compile(r"\b\w++::")
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
        for place in range(len(bare) - 1, 0, -1):
            depth += (bare[place] == ")") - (bare[place] == "(")
            if depth == 0:
                bare = bare if bare[place - 1] == " " else bare[:place]
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
        narrower = (_lines(text, less) for less in range(width // 2, width + 1))
        lines = next(each for each in narrower if len(each) == len(lines))
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
    places = 0 if 0.1 <= share <= 0.99 or share in (0, 1) else 1
    return f"{100 * share:.{places}f} %"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun, ``1 rank`` but ``8 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def digits(value: float) -> str:
    """Write a number with three significant digits."""
    magnitude = abs(value)
    if magnitude < 1:
        return f"{value:.3g}"
    places = 0 if magnitude >= 100 or value == int(value) else 1 if magnitude >= 10 else 2
    return f"{value:,.{places}f}"
