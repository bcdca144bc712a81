"""Pages of metrics as exporters serve them, in the formats of Prometheus and OpenMetrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stamps import epoch_ns
from workbench.load._files.text_lines import whole_lines
from workbench.load._power.formats.prometheus.series import Series
from workbench.load._power.samples import NO_TIME, number_of
from workbench.load._power.stamps import Page, Stamps, stamp_line

_SAMPLE = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[-+.\w]+)"
    r"(?:[ \t]+(?P<time>-?[\d.]+(?:e\+?\d+)?))?[ \t]*",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_MILLISECONDS_FROM = 1e11
_BROKEN = "lines that are no sample"


@dataclass
class _Gathered:
    """One series as it is gathered line by line."""

    name: str
    labels: dict[str, str]
    time_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    line: list[int] = field(default_factory=list)

    @property
    def series(self) -> Series:
        time_ns, line = np.array(self.time_ns, np.int64), np.array(self.line, np.int64)
        return Series(self.name, self.labels, time_ns, np.array(self.values, np.float64), line)


def scraped(source: Source, stamps: Stamps, findings: Findings) -> Iterator[Series]:
    """Give the series of a page, or of several that were put one after the other.

    The time of a sample is its own, or that of a line before the page that holds nothing but a
    stamp; else nobody knows it.
    """
    gathered: dict[tuple[str, str], _Gathered] = {}
    page = Page()
    for number, text in whole_lines(source, findings):
        if (stamp := _stamp_of(text)) is not None:
            page.begin(stamps.ns(stamp, number))
            continue
        if not text.strip() or text[0] == "#":
            continue
        match = _SAMPLE.fullmatch(text if " # " not in text else text.split(" # ")[0])
        value = number_of(match["value"]) if match else None
        if match is None or value is None:
            findings.add("left out", _BROKEN, 1, f"line {number:,}")
            continue
        key = match["name"], match["labels"] or ""
        if (each := gathered.get(key)) is None:
            each = gathered[key] = _Gathered(key[0], labels_of(key[1]))
        time_ns = _time_ns(match["time"], number, findings) or page.time_ns(key)
        each.time_ns.append(NO_TIME if time_ns is None else time_ns)
        each.values.append(value)
        each.line.append(number)
    for each in gathered.values():
        yield each.series


def _stamp_of(text: str) -> str | None:
    # Names of metrics begin in many ways, stamps in few.
    return stamp_line(text) if text[:1] in tuple("#0123456789") or text[:3].istitle() else None


def labels_of(text: str) -> dict[str, str]:
    """Return the labels between the braces of a sample."""
    if "\\" not in text:
        return dict(_LABEL.findall(text))
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _time_ns(text: str | None, line: int, findings: Findings) -> int | None:
    if not text:
        return None
    time = number_of(text)
    # Prometheus writes milliseconds, OpenMetrics seconds.
    is_ms = time is not None and time >= _MILLISECONDS_FROM
    found = epoch_ns(time / 1000 if is_ms and time is not None else text)
    findings.add("left out", "stamps that are no time", int(found is None), f"line {line:,}")
    return found
