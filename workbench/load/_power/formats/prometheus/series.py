"""Series of Prometheus, and how answers of its API are read: samples apart from labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.json_records import text_documents
from workbench.load._files.log_file import one_line
from workbench.load._files.text_lines import tell_of_damage
from workbench.load._power.formats.prometheus.json_closing import closed
from workbench.load._power.samples import Floats, Integers, number_of

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
        findings.add("left out", f"an answer that is an error: {said}", 1, where)
        return
    for warning in answer.get("warnings") or []:
        findings.add("suspicious", f"a warning of the server: {one_line(str(warning))}", 1, where)
    data = answer.get("data")
    # Some tools keep only what is inside.
    data = data if isinstance(data, dict) else answer
    result = data.get("result")
    if not isinstance(result, list) or data.get("resultType") in ("scalar", "string"):
        findings.add("set aside", "JSON that is no answer with series", 1, where)
        return
    if not result:
        findings.add("left out", "an answer without series: the query found nothing", 1, where)
    for each in result:
        if isinstance(each, dict) and isinstance(each.get("metric"), dict):
            yield each
        else:
            findings.add("left out", "series without labels", 1, where)


def _series(
    each: Mapping[str, Any], number: int, pairs: list[tuple[Floats, Floats]], findings: Findings
) -> Series | None:
    labels = {str(k): v for k, v in each["metric"].items() if isinstance(v, str)}
    name = labels.pop("__name__", "")
    where = f"series {number:,}"
    samples = each.get("values", [each["value"]] if "value" in each else None)
    if samples is None:
        findings.add("set aside", "series of histograms", 1, where)
        return None
    place = samples.get(_PLACE) if isinstance(samples, dict) else None
    if isinstance(place, int) and 0 <= place < len(pairs):
        seconds, values = pairs[place]
    else:
        seconds, values = _slow(samples, where, findings)
    with np.errstate(invalid="ignore"):
        good = (seconds > 0) & (seconds < _LATEST_S)
    findings.add("left out", _NO_SAMPLES, int((~good).sum()), where)
    # Prometheus keeps milliseconds.
    time_ns = np.rint(seconds[good] * 1e3).astype(np.int64) * 1_000_000
    return Series(name, labels, time_ns, values[good], np.full(len(time_ns), number))


def _slow(samples: Any, where: str, findings: Findings) -> tuple[Floats, Floats]:
    """Read samples one by one; those that are none are counted."""
    read = [_pair(each) for each in samples] if isinstance(samples, list) else [None]
    pairs = [each for each in read if each is not None]
    findings.add("left out", _NO_SAMPLES, len(read) - len(pairs), where)
    both = np.array(pairs, np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _pair(each: Any) -> tuple[float, float] | None:
    if not isinstance(each, list) or len(each) != 2:
        return None
    numbers = [number_of(value) for value in each]
    return (numbers[0], numbers[1]) if None not in numbers else None  # type: ignore[return-value]
