"""Xid errors as Prometheus keeps them: the last code of every GPU, or counts per code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import json_documents
from workbench.load._files.text import console_lines
from workbench.load._files.time import SECOND, Given, LogPart, epoch_ns, log_part, one_line
from workbench.load._files.xid_codes import pci_address, xid_meaning

NAME = "Xid series of DCGM"

_XID_METRIC = re.compile(r"DCGM_\w*XID_ERRORS\w*")
_SAMPLE = re.compile(r"(DCGM_\w+)\{(.*)\} +(\S+)(?: +(-?[\d.]+))?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_EXPOSITION = re.compile(rb"^(?:# (?:HELP|TYPE) )?DCGM_\w+[ {]", re.MULTILINE)
_HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename", "instance")
_GPUS = ("UUID", "uuid", "pci_bus_id", "gpu", "device")
_LARGEST_CODE = 1 << 16
_MILLISECONDS_FROM = 1e11

_HIDDEN = "series of last codes (an Xid that comes again without another in between is hidden)"
_BEFORE = "GPUs whose last Xid was set before the series begins (left without a time)"
_SUMMED = "series that name no GPU (their values may be sums of codes)"
_WINDOW = "series of counts per window (a count may miss what leaves the window meanwhile)"


class _Sample(NamedTuple):
    time_ns: int | None
    value: int
    number: int
    window_s: float | None = None
    message: str = ""


@dataclass
class _Series:
    host: str | None
    device: str | None
    code: str | None
    has_gpu: bool = True
    samples: list[_Sample] = field(default_factory=list)


_Key = tuple[str | None, str | None, str | None]


def looks_like(head: bytes, label: str) -> bool:
    if head.lstrip()[:1] == b"{":
        is_about = b"XID_ERRORS" in head or "xid" in label.rsplit("/", 1)[-1].lower()
        return is_about and b'"resultType"' in head
    return _EXPOSITION.search(head) is not None


def read(source: Source, settings: Given) -> LogPart:
    """Read a range or instant query as JSON, or the text that dcgm-exporter serves.

    ``DCGM_FI_DEV_XID_ERRORS`` holds the code of the last Xid until the exporter restarts: a
    change to another code is an incident, seen at the first sample that shows it. A code that
    is there in the first sample is one whose time nobody knows. Series of one GPU are taken
    together, as a new pod, and in newer exporters a new code, begins a new series. A code that
    comes again is hidden; ``DCGM_EXP_XID_ERRORS_COUNT`` counts within a sliding window, and
    every rise is that many incidents at least.

    References
    ----------
    dcgm-exporter: internal/pkg/collector (xid_collector, gpu_collector); Prometheus HTTP API.
    """
    findings = Findings(source.label)
    # A GPU can be in several answers, or pages, of one file.
    series: dict[_Key, _Series] = {}
    if source.head().lstrip()[:1] == b"{":
        samples = _of_answer(source, findings)
    else:
        samples = _of_exposition(source, findings)
    for labels, sample in samples:
        entry = _series_of(labels, settings)
        key = (entry.host, _identity(labels), entry.code)
        series.setdefault(key, entry).samples.append(sample)
    rows = [row for gpu in series.values() for row in _rows(gpu, findings)]
    nodes = {gpu.host: None for gpu in series.values() if gpu.host}
    return log_part(findings, rows, nodes=nodes)


def _of_answer(source: Source, findings: Findings) -> Iterator[tuple[Mapping[str, str], _Sample]]:
    number = 0
    for line, document in json_documents(source, findings):
        data = document.get("data") if isinstance(document, dict) else None
        result = data.get("result") if isinstance(data, dict) else None
        if not isinstance(result, list):
            remark = "JSON that is not an answer of Prometheus"
            findings.add("skipped by design", remark, 1, f"line {line:,}")
            continue
        for entry in result:
            number += 1
            labels = entry.get("metric") if isinstance(entry, dict) else None
            if not isinstance(labels, dict):
                findings.add("dropped", "series without labels", 1, f"series {number:,}")
                continue
            name = labels.get("__name__")
            if isinstance(name, str) and not _XID_METRIC.fullmatch(name):
                findings.add("skipped by design", "series of other metrics")
                continue
            texts = {str(key): value for key, value in labels.items() if isinstance(value, str)}
            pairs = entry.get("values", [entry.get("value")])
            for pair in pairs if isinstance(pairs, list) else []:
                if sample := _sample_of(pair, texts, number, findings):
                    yield texts, sample


def _sample_of(
    pair: object, labels: Mapping[str, str], number: int, findings: Findings
) -> _Sample | None:
    time_ns = value = None
    if isinstance(pair, list) and len(pair) == 2:
        time_ns, value = epoch_ns(pair[0]), _whole(pair[1])
    if time_ns is None or value is None:
        remark = "samples that are not a time and a code (NaN, text, negative)"
        findings.add("dropped", remark, 1, f"series {number:,}")
        return None
    return _sample(time_ns, value, number, labels)


def _of_exposition(
    source: Source, findings: Findings
) -> Iterator[tuple[Mapping[str, str], _Sample]]:
    for line, text in console_lines(source, findings):
        if "XID_ERRORS" not in text or text.startswith("#"):
            continue
        match = _SAMPLE.match(text)
        value = _whole(match[3]) if match else None
        if match is None or value is None:
            findings.add("dropped", "lines that are not samples", 1, f"line {line:,}")
            continue
        time_ns = None
        if match[4]:
            seconds = float(match[4]) if match[4].count(".") < 2 and match[4][-1] != "-" else 0.0
            # Prometheus writes milliseconds, OpenMetrics seconds.
            is_ms = seconds >= _MILLISECONDS_FROM
            time_ns = epoch_ns(seconds / 1000 if is_ms else seconds)
        labels = dict(_LABEL.findall(match[2]))
        yield labels, _sample(time_ns, value, line, labels)


def _sample(time_ns: int | None, value: int, number: int, labels: Mapping[str, str]) -> _Sample:
    window = _whole(labels.get("window_size_in_ms"))
    window_s = None if window is None else window / 1000
    return _Sample(time_ns, value, number, window_s, labels.get("err_msg", "")[:200])


def _whole(value: object) -> int | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < 1 << 53 and number.is_integer() else None


def _series_of(labels: Mapping[str, str], settings: Given) -> _Series:
    host = next((labels[name] for name in _HOSTS if labels.get(name)), None) or settings.node
    if host and not labels.get("Hostname"):
        # instance names the exporter: host and port.
        host = re.sub(r":\d+$", "", host)
    device = labels.get("pci_bus_id")
    device = pci_address(device) if device else labels.get("gpu")
    code = labels.get("xid")
    code = code if code and code.isdecimal() and len(code) < 6 else None
    return _Series(host, device, code, _identity(labels) is not None)


def _identity(labels: Mapping[str, str]) -> str | None:
    return next((labels[name] for name in _GPUS if labels.get(name)), None)


def _rows(series: _Series, findings: Findings) -> Iterator[dict[str, Any]]:
    findings.add("noted", _WINDOW if series.code else _HIDDEN)
    is_whole_host = not series.code and not series.has_gpu
    findings.add("suspicious", _SUMMED, int(is_whole_host and any(s.value for s in series.samples)))
    before: _Sample | None = None
    for sample in _in_order(series.samples, findings):
        rise = _new_in(sample, before, is_count=series.code is not None)
        code = series.code or str(sample.value)
        if rise > 0 and int(code) < _LARGEST_CODE:
            yield _row(series, sample, code, rise, is_first=before is None, findings=findings)
        elif rise > 0:
            findings.add("dropped", "values that are not an Xid", 1, f"series {sample.number:,}")
        before = sample


def _new_in(sample: _Sample, before: _Sample | None, *, is_count: bool) -> int:
    """Return how many incidents a sample shows that the one before did not."""
    if not is_count:
        return int(sample.value != 0 and (before is None or sample.value != before.value))
    # Without times there is no telling what has left the window.
    if before is None or before.time_ns is None or sample.time_ns is None:
        return sample.value if before is None else max(0, sample.value - before.value)
    # What was counted a window ago or more is counted no longer.
    is_past = sample.window_s and sample.time_ns - before.time_ns >= sample.window_s * SECOND
    return sample.value if is_past else max(0, sample.value - before.value)


def _in_order(samples: Iterable[_Sample], findings: Findings) -> list[_Sample]:
    """Order the samples of a GPU; of several at one instant (MIG, old series) take the largest."""
    latest: dict[int, _Sample] = {}
    for sample in samples:
        # Pages without times, one after the other, are in the order of their lines.
        at = sample.number if sample.time_ns is None else sample.time_ns
        largest = latest.setdefault(at, sample)
        if largest.value != sample.value:
            remark = "instants at which one GPU has several last codes (the largest is taken)"
            findings.add("suspicious", remark, int(0 not in {largest.value, sample.value}))
        if sample.value > largest.value:
            latest[at] = sample
    return [latest[at] for at in sorted(latest)]


def _row(
    series: _Series, sample: _Sample, code: str, rise: int, *, is_first: bool, findings: Findings
) -> dict[str, Any]:
    meaning = xid_meaning(code)
    if "category" not in meaning and sample.message:
        meaning["cause"] = one_line(sample.message)
    words = f"last Xid {code}"
    if series.code:
        window = f" in the last {sample.window_s:g} s" if sample.window_s else ""
        words = f"{sample.value} times Xid {code}{window}"
    row: dict[str, Any] = {"start_ns": sample.time_ns, "end_ns": sample.time_ns}
    # The last code stays until the next one, so it may be days old.
    if is_first and not series.code:
        findings.add("noted", _BEFORE, 1, f"series {sample.number:,}")
        row = {"clock": "none"}
        words += ", set before the series begins"
    elif sample.time_ns is None:
        row = {"clock": "none"}
    elif is_first and sample.window_s:
        # Somewhere within the window before the first sample.
        row["start_ns"] = sample.time_ns - int(sample.window_s * SECOND)
    return (
        row
        | meaning
        | {
            "node": series.host, "device": series.device, "kind": "dcgm", "code": code,
            "line_count": rise, "text": words, "line": sample.number,
        }
    )  # fmt: skip
