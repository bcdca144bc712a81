"""Series of Prometheus, and how answers of its API are read: samples apart from labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import text_documents
from workbench.load._files.text import tell_of_damage, whole_lines
from workbench.load._files.time import epoch_ns, one_line
from workbench.load._power.samples import NO_TIME, Floats, Integers, number_of
from workbench.load._power.stamps import Page, Stamps, stamp_line

_VALUES = re.compile(rb'"values"\s*:\s*(?=\[\s*\[)')
_PAIRS_END = re.compile(rb"\]\s*\]")
_PLACE = "samples taken out"
_LATEST_S = 9e9
# A range query is refused if it asks for more than 11,000 steps, which is one sample more.
_MOST = (11_000, 11_001)
_NO_SAMPLES = "samples that are no pair of time and number"
_CUT = "an answer that does not end; the samples before its end are kept"
_AT_MOST = (
    "series of 11,000 samples, the most that one query may return; if the question was for "
    "more, ask in pieces"
)


@dataclass(frozen=True)
class Series:
    """The samples of one metric with one set of labels; ``line`` is where each stands."""

    name: str
    labels: Mapping[str, str]
    time_ns: Integers
    values: Floats
    line: Integers


def answered(source: Source, findings: Findings) -> Iterator[Series]:
    """Give the series of answers to range and instant queries, one document after the other."""
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    text, pairs, is_cut = _without_samples(raw)
    del raw
    if is_cut or not _is_balanced(text):
        text, was_cut = closed(text, may_end_here=is_cut)
        findings.add("truncated", _CUT, int(was_cut or is_cut))
    number = 0
    for line, document in text_documents(text, findings):
        for each in _results(document, line, findings):
            number += 1
            series = _series(each, number, pairs, findings)
            if series is not None:
                findings.add("suspicious", _AT_MOST, int(len(series.values) in _MOST))
                yield series


def _without_samples(raw: bytes) -> tuple[str, list[tuple[Floats, Floats]], bool]:
    """Take the samples out of the text, by far most of it; say if it ends inside of some."""
    pieces: list[bytes] = []
    pairs: list[tuple[Floats, Floats]] = []
    at = searched = 0
    is_cut = False
    while not is_cut and (found := _VALUES.search(raw, searched)):
        start = searched = found.end()
        end = _PAIRS_END.search(raw, start)
        stop = end.end() if end else max(start, raw.rfind(b"]", start) + 1)
        samples = _fast(raw[start:stop], is_whole=end is not None)
        if samples is None:
            continue
        pieces += [raw[at:start], json.dumps({_PLACE: len(pairs)}).encode()]
        pairs.append(samples)
        is_cut = end is None
        at = searched = len(raw) if is_cut else stop
    text = b"".join([*pieces, raw[at:]]).decode("utf-8", "replace")
    return text.removeprefix("\ufeff"), pairs, is_cut


def _fast(text: bytes, *, is_whole: bool) -> tuple[Floats, Floats] | None:
    """Read ``[[time, "value"], ...``, of rising times; None if it is anything else."""
    if not text:
        return np.zeros(0), np.zeros(0)
    count = text.count(b"[") - 1
    tokens = text.translate(None, b'[]" \t\r\n').split(b",")
    if len(tokens) != 2 * count or text.count(b"]") != count + is_whole:
        return None
    try:
        seconds = np.array(tokens[::2]).astype(np.float64)
        values = np.array(tokens[1::2]).astype(np.float64)
    except ValueError:
        return None
    return (seconds, values) if (np.diff(seconds) > 0).all() else None


def _is_balanced(text: str) -> bool:
    return text.count("{") == text.count("}") and text.count("[") == text.count("]")


def _results(document: Any, line: int, findings: Findings) -> Iterator[dict[str, Any]]:
    where = f"line {line:,}"
    answer = document if isinstance(document, dict) else {}
    if answer.get("status") == "error":
        said = one_line(str(answer.get("error", "")))
        findings.add("dropped", f"an answer that is an error: {said}", 1, where)
        return
    for warning in answer.get("warnings") or []:
        findings.add("suspicious", f"a warning of the server: {one_line(str(warning))}", 1, where)
    data = answer.get("data")
    # Some tools keep only what is inside.
    data = data if isinstance(data, dict) else answer
    result = data.get("result")
    if not isinstance(result, list) or data.get("resultType") in ("scalar", "string"):
        findings.add("skipped by design", "JSON that is no answer with series", 1, where)
        return
    if not result:
        findings.add("dropped", "an answer without series: the query found nothing", 1, where)
    for each in result:
        if isinstance(each, dict) and isinstance(each.get("metric"), dict):
            yield each
        else:
            findings.add("dropped", "series without labels", 1, where)


def _series(
    each: Mapping[str, Any], number: int, pairs: list[tuple[Floats, Floats]], findings: Findings
) -> Series | None:
    labels = {str(k): v for k, v in each["metric"].items() if isinstance(v, str)}
    name = labels.pop("__name__", "")
    where = f"series {number:,}"
    samples = each.get("values", [each["value"]] if "value" in each else None)
    if samples is None:
        findings.add("skipped by design", "series of histograms", 1, where)
        return None
    place = samples.get(_PLACE) if isinstance(samples, dict) else None
    if isinstance(place, int) and 0 <= place < len(pairs):
        seconds, values = pairs[place]
    else:
        seconds, values = _slow(samples, where, findings)
    with np.errstate(invalid="ignore"):
        good = (seconds > 0) & (seconds < _LATEST_S)
    findings.add("dropped", _NO_SAMPLES, int((~good).sum()), where)
    # Prometheus keeps milliseconds.
    time_ns = np.rint(seconds[good] * 1e3).astype(np.int64) * 1_000_000
    return Series(name, labels, time_ns, values[good], np.full(len(time_ns), number))


def _slow(samples: Any, where: str, findings: Findings) -> tuple[Floats, Floats]:
    """Read samples one by one; those that are none are counted."""
    read = [_pair(each) for each in samples] if isinstance(samples, list) else [None]
    pairs = [each for each in read if each is not None]
    findings.add("dropped", _NO_SAMPLES, len(read) - len(pairs), where)
    both = np.array(pairs, np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _pair(each: Any) -> tuple[float, float] | None:
    if not isinstance(each, list) or len(each) != 2:
        return None
    numbers = [number_of(value) for value in each]
    return (numbers[0], numbers[1]) if None not in numbers else None  # type: ignore[return-value]


# JSON that breaks off, closed behind its last whole element.

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 64


def closed(text: str, *, may_end_here: bool = False) -> tuple[str, bool]:
    """Close what a cut left open, and say whether anything was.

    What stands behind the last whole element of a list is dropped, unless ``may_end_here``.
    Text that is nested deeply or wrongly is given back as it is.
    """
    open_ones: list[str] = []
    whole, rest = 0, ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in _CLOSING:
            open_ones.append(mark)
            if len(open_ones) > _DEEPEST:
                return text, False
        elif mark in "}]":
            if not open_ones or _CLOSING[open_ones.pop()] != mark:
                return text, False
            if not open_ones or open_ones[-1] == "[":
                whole, rest = token.end(), _closers(open_ones)
    if may_end_here:
        whole, rest = len(text), _closers(open_ones)
    return (text[:whole] + rest, True) if open_ones and whole else (text, False)


def _closers(open_ones: list[str]) -> str:
    return "".join(_CLOSING[mark] for mark in reversed(open_ones))


# Pages of metrics as exporters serve them, in the formats of Prometheus and OpenMetrics.

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
            findings.add("dropped", _BROKEN, 1, f"line {number:,}")
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
    findings.add("dropped", "stamps that are no time", int(found is None), f"line {line:,}")
    return found
