"""Power as Prometheus keeps it or exporters serve it: pages of metrics, and answers to queries."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import numpy as np

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import text_documents
from workbench.load._files.text import tell_of_damage, whole_lines
from workbench.load._files.time import epoch_ns, one_line
from workbench.load._files.xid_codes import pci_address
from workbench.load._power.formats.grafana_frames import framed, looks_like_frames
from workbench.load._power.formats.nvidia.part import method_of
from workbench.load._power.formats.prometheus_metrics import (
    POWER_KINDS,
    PREFERRED,
    Meaning,
    meaning_of,
)
from workbench.load._power.part import (
    NO_TIME,
    STATE_COLUMNS,
    Floats,
    Integers,
    PowerOptions,
    PowerPart,
    Rows,
    number_of,
    plain_name,
    said,
)
from workbench.load._power.quantities import is_other_quantity
from workbench.load._power.stamps import Gathered, Page, Stamps, stamp_line

NAME = "metrics of Prometheus"

_PAGE = re.compile(rb"^# (?:HELP|TYPE) [A-Za-z_:][\w:]* \S", re.MULTILINE)
_NAMES = re.compile(rb"^(?:DCGM_FI_|kepler_node_|nvidia_smi_|ipmi_)\w+[{ ]", re.MULTILINE)
_HOW = (
    "Ask Prometheus itself (/api/v1/query_range), or log a line with the time before every "
    "page: date -u +%FT%TZ"
)
_FACTOR_OF_UNIT = {"W": 1.0, "kW": 1e3, "MW": 1e6, "mW": 1e-3}
_STATES = {"limit": 0, "clock": 1, "busy": 2, "share": 2, "temperature": 3, "reasons": 4,
           "violation": 5}  # fmt: skip

_OTHER = "series of metrics that are not power, energy or what explains them"
_INSIDE = "series of zones inside a wider one of the same node (core in package in psys)"
_OTHERS = "series of other kinds of power of the same device (average, instant)"
_SLICES = "series of partitions of a GPU whose first one reports the power of all"

# The series of one entity by kind of reading.
_Kinds = dict[str, list[tuple[Meaning, "Series"]]]


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise a page of metrics, an answer of the Prometheus API, or frames of Grafana."""
    if head.lstrip()[:1] in (b"{", b"["):
        is_error = b'"errorType"' in head and b'"status"' in head
        return b'"resultType"' in head or is_error or looks_like_frames(head)
    return bool(_PAGE.search(head) or _NAMES.search(head))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read range and instant queries as JSON, frames of Grafana, or the text of exporters.

    Names of metrics say what is metered and in which unit: DCGM's fields under their old and
    new names, AMD's, Kepler's and those of IPMI and Redfish exporters by a list, others by the
    unit at their end. A GPU is one thing, whoever uses it: pods and MIG slices repeat the power
    of the whole GPU. Zones of RAPL lie inside each other, so the widest of a node is taken.

    References
    ----------
    Prometheus: HTTP API, exposition formats. NVIDIA DCGM: dcgm_fields.h, dcgm_structs.h
    (blank values). Kepler: metrics of the node. AMD device metrics exporter: list of metrics.
    """
    gathered = Gathered(source, options)
    findings = gathered.findings
    if source.head().lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        is_framed = looks_like_frames(source.head())
        series: Iterable[Series] = (
            starmap(Series, framed(source, findings)) if is_framed else answered(source, findings)
        )
    else:
        series = scraped(source, gathered.stamps, findings)
    meters, kinds = _grouped(series, options, findings)
    _keep_widest(meters, kinds, findings)
    for entity, series_by_kind in kinds.items():
        gathered.entities[entity] = _entity(meters[entity], series_by_kind, options)
        _add(entity, series_by_kind, gathered)
    return gathered.part(_HOW)


def _grouped(
    every: Iterable[Series], options: PowerOptions, findings: Findings
) -> tuple[dict[str, Metered], dict[str, _Kinds]]:
    meters: dict[str, Metered] = {}
    kinds: dict[str, _Kinds] = defaultdict(lambda: defaultdict(list))
    for series in every:
        meaning = _meaning(series, options, findings)
        if meaning is None:
            findings.add("skipped by design", _OTHER, 1, series.name[:80])
            continue
        if _is_slice(series):
            findings.add("noted", _SLICES, 1, f"line {series.line[:1].sum():,}")
            continue
        meter = metered(series.name, series.labels, meaning, options)
        meters.setdefault(meter.entity, meter)
        kinds[meter.entity][meaning.kind].append((meaning, series))
    return meters, kinds


def _is_slice(series: Series) -> bool:
    """Return whether AMD's exporter writes the zero that stands for no sensor of a partition."""
    number = series.labels.get("gpu_partition_id") or series.labels.get("partition_id") or "0"
    return number != "0" and not series.values.any()


def _meaning(series: Series, options: PowerOptions, findings: Findings) -> Meaning | None:
    if series.name:
        return meaning_of(series.name, series.labels.get("zone", ""))
    if options.unit is None:
        msg = (
            f"{findings.source}, series {series.line[:1].sum():,}: has no name, so nothing says "
            "what its values are; pass unit='W' if they are watts, or query the metric itself"
        )
        raise LoadError(msg)
    if is_other_quantity(series.labels.get("name", "")):
        return None
    is_gpu = any(series.labels.get(label) for label in ("gpu", "gpu_id", "UUID", "uuid"))
    scope = options.scope or ("gpu" if is_gpu else "unknown")
    return Meaning("power", _FACTOR_OF_UNIT[options.unit], scope, "unknown")


def _keep_widest(
    meters: Mapping[str, Metered], kinds: dict[str, _Kinds], findings: Findings
) -> None:
    """Leave out zones of a node that lie inside others of it."""
    width = {entity: max(m.width for all_ in item.values() for m, _ in all_)
             for entity, item in kinds.items()}  # fmt: skip
    widest: dict[str | None, int] = defaultdict(int)
    for entity, item in width.items():
        widest[meters[entity].node] = max(widest[meters[entity].node], item)
    for entity, item in width.items():
        if 0 < item < widest[meters[entity].node]:
            series = kinds.pop(entity)
            findings.add("noted", _INSIDE, sum(map(len, series.values())), entity)


def _entity(meter: Metered, kinds: _Kinds, options: PowerOptions) -> dict[str, Any]:
    power = _chosen(kinds, options)
    meaning, first = (power or next(iter(kinds.values())))[0]
    scope, method, assumed = meaning.scope, meaning.method, ""
    if method == "unknown" and first.name.startswith(("DCGM", "dcgm", "nvidia_smi")):
        method = method_of(meaning.kind, meter.model)
    if scope == "unknown" and options.scope:
        scope, assumed = options.scope, f"scope={options.scope}"
    if not first.name:
        assumed = said(f"unit={options.unit}", f"scope={options.scope}" if options.scope else "")
    _, limits, _ = merged(kinds.get("limit", []), Findings(""))
    valid = limits[np.isfinite(limits)]
    result: dict[str, Any] = {"scope": scope, "method": method, "node": meter.node, "unit": "W"}
    result |= {"device": meter.device, "model": meter.model, "assumed": assumed}
    return result | ({"limit_w": float(valid[-1])} if len(valid) else {})


def _chosen(kinds: _Kinds, options: PowerOptions) -> list[tuple[Meaning, Series]]:
    order = PREFERRED[options.reading]
    present = [kinds[kind] for kind in order if kinds.get(kind)]
    # Of two metrics of one power a product fills one.
    filled = (kind for kind in present if any(np.isfinite(s.values).any() for _, s in kind))
    return next(filled, present[0] if present else [])


def _add(entity: str, kinds: _Kinds, gathered: Gathered) -> None:
    findings = gathered.findings
    power = _chosen(kinds, gathered.options)
    remaining = sum(len(kinds[kind]) for kind in POWER_KINDS if kind in kinds) - len(power)
    findings.add("noted", _OTHERS, remaining, entity)
    energy = kinds.get("energy", [])
    for group, rows in ((power, gathered.readings), (energy, gathered.counters)):
        time_ns, values, line = merged(group, findings)
        rows.add_many(entity, settled_times(time_ns), line, values)
    states = {kind: merged(kinds[kind], findings) for kind in _STATES if kinds.get(kind)}
    if states:
        _add_states(entity, states, gathered.states)


def _add_states(entity: str, states: Mapping[str, Samples], rows: Rows) -> None:
    time_ns = np.unique(np.concatenate([series[0] for series in states.values()]))
    columns = [np.full(len(time_ns), np.nan) for _ in STATE_COLUMNS]
    line = np.zeros(len(time_ns), np.int64)
    for kind, (at_ns, values, lines) in states.items():
        position = np.searchsorted(time_ns, at_ns)
        columns[_STATES[kind]][position] = values
        line[position] = lines
    rows.add_many(entity, settled_times(time_ns), line, *columns)


# What a series of Prometheus meters: host and device by its labels, whatever else they say.

_HOSTS = (
    "Hostname", "hostname", "host", "node", "kubernetes_node", "nodename", "node_name",
    "exported_instance", "instance", "target",
)  # fmt: skip
_INDICES = ("gpu", "gpu_id", "index", "gpu_index", "minor_number", "card", "device")
_UUIDS = ("UUID", "uuid", "gpu_uuid", "serial_number", "pci_bus_id")
_PARTS = (
    "cpu", "nvswitch", "name", "sensor", "chip", "power_supply", "psu", "outlet", "socket",
    "package", "path", "power_control", "member_id", "id", "index", "device", "mode",
)  # fmt: skip
_MODELS = ("modelName", "model", "card_model", "card_series", "gpu_name")
# An exporter that is scraped on its own host calls it localhost, which names no host.
_OWN = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)?")
# nvidia_gpu_exporter writes UUIDs without the prefix GPU-.
_BARE_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:gpu|nvidia|card|accel)?(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True)
class Metered:
    """One thing that is metered: its name and what the labels say of it."""

    entity: str
    node: str | None
    device: str | None
    model: str | None


def metered(
    name: str, labels: Mapping[str, str], meaning: Meaning, options: PowerOptions
) -> Metered:
    """Return what a series of a metric meters.

    Labels that say who uses a device (pod, container, job) or which slice of it they watch
    (MIG) are skipped: it is the same device.
    """
    node = host_of(labels, options)
    model = next((plain_name(labels[series]) for series in _MODELS if labels.get(series)), None)
    if meaning.scope == "gpu" and ":" not in name and (device := _device(labels, node)):
        entity = f"gpu{device}" if device.isdecimal() else device
        return Metered(f"{node}/{entity}" if node else entity, node, device, model)
    piece = _part(name, labels, meaning)
    entity = "/".join(series for series in (node or "", piece) if series) or "node"
    return Metered(entity, node, piece or None, model)


def host_of(labels: Mapping[str, str], options: PowerOptions) -> str | None:
    """Return the host that labels name, without a port; else what the caller said."""
    for series in _HOSTS:
        if host := labels.get(series):
            host = host if series.lower() == "hostname" else re.sub(r":\d+$", "", host)
            if _OWN.fullmatch(host) and options.node:
                return options.node
            return plain_name(host)
    return options.node


def _device(labels: Mapping[str, str], node: str | None) -> str | None:
    indices = (_NUMBERED.fullmatch(labels[series]) for series in _INDICES if labels.get(series))
    index = next((str(int(result[1])) for result in indices if result), None)
    stated = ((label, labels[label]) for label in _UUIDS if labels.get(label))
    name, value = next(stated, ("", ""))
    if value:
        value = pci_address(value) or value if name == "pci_bus_id" else plain_name(value)
        value = f"GPU-{value}" if _BARE_UUID.fullmatch(value) else value
    # Of a host that nobody names, two devices may have one number.
    return index or value or None if node else value or index


def _part(name: str, labels: Mapping[str, str], meaning: Meaning) -> str:
    """Name what is metered inside a host, or among others without one."""
    if not name or ":" in name:
        by_name = {k: v for k, v in labels.items() if k not in _HOSTS}
        texts = [*([name] if name else []), *(f"{k}={v}" for k, v in sorted(by_name.items()))]
        return plain_name(",".join(texts)) if texts or labels else "all"
    result = {series: labels[series] for series in _PARTS if labels.get(series)}
    numbered = (f"{k}{value}" if value.isdecimal() else value for k, value in result.items())
    devices = dict.fromkeys(filter(None, (meaning.part, *numbered)))
    return plain_name("-".join(devices))


# Values of Prometheus in the units of the tables: blanks out, repeats once.

# What DCGM writes for a value it has not: blank, not found, not supported, not permitted.
_BLANK_FLOATS = 140737488355328.0 + np.arange(4)
_BLANK_INT32 = (0x7FFFFFF0, 0x7FFFFFFF)
# As doubles these blanks differ in their last digits; this is just below all of them.
_BLANK_INT64 = 9.2233720368547e18
# Totals run through the small blanks on their way; only the largest is none of theirs.
_TOTALS = frozenset({"energy", "violation", "reasons"})
_SHARES = frozenset({"busy", "share"})
_NEVER_NEGATIVE = frozenset({"energy", "violation", "reasons", "limit", "clock"})
_TIMELESS_BELOW = NO_TIME + (1 << 40)

_SENTINELS = "values by which DCGM says that it has none; they are missing"
_NOT_FINITE = "values that are not a number (NaN, Inf); they are missing"
_IMPOSSIBLE = "limits, clocks, totals and loads that cannot be; they are missing"
_REPEATED = "readings that stand there twice, as for MIG slices and pods of one GPU; taken once"
# MIG rows and pods repeat the power of the whole GPU, so equal readings are not conflicts.
_DIFFERENT = "readings of one device that differ at one instant; the first is taken"
_VALUES_OTHERS = "series that say the same of a device under another name; skipped by design"

Samples = tuple[Integers, Floats, Integers]


def merged(group: Sequence[tuple[Meaning, Series]], findings: Findings) -> Samples:
    """Return times, values and lines of the series of one kind of one thing, in order of time.

    Times that nobody knows are told apart by how often their series came before; see
    :func:`settled_times`.
    """
    if not group:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    least = min(meaning.rank for meaning, _ in group)
    chosen = [(meaning, series) for meaning, series in group if meaning.rank == least]
    findings.add("noted", _VALUES_OTHERS, len(group) - len(chosen), chosen[0][1].name)
    time_ns = np.concatenate([_told_apart(series.time_ns) for _, series in chosen])
    values = np.concatenate([_cleaned(meaning, track, findings) for meaning, track in chosen])
    line = np.concatenate([series.line for _, series in chosen])
    if len(time_ns) > 1 and not (np.diff(time_ns) > 0).all():
        return _once((time_ns, values, line), findings)
    return time_ns, values, line


def settled_times(time_ns: Integers) -> Integers:
    return np.where(time_ns < _TIMELESS_BELOW, NO_TIME, time_ns)


def _told_apart(time_ns: Integers) -> Integers:
    # Counted up from NO_TIME, samples without a time keep their order when they are sorted.
    timeless = time_ns == NO_TIME
    return time_ns + np.where(timeless, np.cumsum(timeless) - 1, 0) if timeless.any() else time_ns


def _once(samples: Samples, findings: Findings) -> Samples:
    """Order by time, and of readings at one instant take the first that has a value."""
    time_ns, values, line = samples
    order = np.lexsort((np.isnan(values), time_ns))
    time_ns, values, line = time_ns[order], values[order], line[order]
    first = np.concatenate([[True], np.diff(time_ns) > 0])
    leader = values[first][np.cumsum(first) - 1]
    differs = ~first & ~np.isnan(values) & (values != leader)
    where = f"line {line[differs][0]:,}" if differs.any() else None
    findings.add("suspicious", _DIFFERENT, int(differs.sum()), where)
    findings.add("noted", _REPEATED, int((~first & ~differs).sum()))
    return time_ns[first], values[first], line[first]


def _cleaned(meaning: Meaning, series: Series, findings: Findings) -> Floats:
    values, where = series.values, f"{series.name[:80]}, line {series.line[:1].sum():,}"
    blank = (values >= _BLANK_INT64) & np.isfinite(values)
    if meaning.kind not in _TOTALS:
        blank |= np.isin(values, _BLANK_FLOATS)
        blank |= (values >= _BLANK_INT32[0]) & (values <= _BLANK_INT32[1])
    findings.add("dropped", _SENTINELS, int(blank.sum()), where)
    lost = ~np.isfinite(values)
    findings.add("dropped", _NOT_FINITE, int(lost.sum()), where)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(blank | lost, np.nan, values * _factor(meaning, values[~lost & ~blank]))
        wrong = np.isinf(scaled)
        if meaning.kind in _NEVER_NEGATIVE or meaning.kind in _SHARES:
            wrong |= scaled < 0
        if meaning.kind in _SHARES:
            wrong |= scaled > 1
    findings.add("dropped", _IMPOSSIBLE, int(wrong.sum()), where)
    return np.where(wrong, np.nan, scaled)


def _factor(meaning: Meaning, facts: Floats) -> float:
    # Loads are per cent, but some exporters write fractions, which never exceed 1.
    if meaning.kind != "busy":
        return meaning.factor
    is_share = bool(len(facts)) and facts.max() <= 1 and bool((facts % 1 != 0).any())
    return 1.0 if is_share else 0.01


_VALUES = re.compile(rb'"values"\s*:\s*(?=\[\s*\[)')
_PAIRS_END = re.compile(rb"\]\s*\]")
_PLACE = "samples taken out"
# int64 ns end at 9.22e9 s, in the year 2262.
_LATEST_S = 9e9
# A range query is refused if it asks for more than 11,000 steps, which is one sample more.
_MOST = (11_000, 11_001)
_NO_SAMPLES = "samples that are not pairs of time and number"
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
        for result in _results(document, line, findings):
            number += 1
            series = _series_of_result(result, number, pairs, findings)
            if series is not None:
                findings.add("suspicious", _AT_MOST, int(len(series.values) in _MOST))
                yield series


def _without_samples(raw: bytes) -> tuple[str, list[tuple[Floats, Floats]], bool]:
    # Samples are by far most of the text, and numpy reads them much faster than json.
    pieces: list[bytes] = []
    pairs: list[tuple[Floats, Floats]] = []
    at = searched = 0
    is_cut = False
    while not is_cut and (result := _VALUES.search(raw, searched)):
        start = searched = result.end()
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
    # Commas or brackets inside of texts give other counts; the JSON reader takes these.
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
        words = one_line(str(answer.get("error", "")))
        findings.add("dropped", f"an answer that is an error: {words}", 1, where)
        return
    for warning in answer.get("warnings") or []:
        findings.add("suspicious", f"a warning of the server: {one_line(str(warning))}", 1, where)
    data = answer.get("data")
    # Some tools keep only what is inside.
    data = data if isinstance(data, dict) else answer
    result = data.get("result")
    if not isinstance(result, list) or data.get("resultType") in ("scalar", "string"):
        findings.add("skipped by design", "JSON that is not an answer with series", 1, where)
        return
    if not result:
        findings.add("dropped", "an answer without series: the query found nothing", 1, where)
    for series in result:
        if isinstance(series, dict) and isinstance(series.get("metric"), dict):
            yield series
        else:
            findings.add("dropped", "series without labels", 1, where)


def _series_of_result(
    series: Mapping[str, Any], number: int, pairs: list[tuple[Floats, Floats]], findings: Findings
) -> Series | None:
    labels = {str(k): v for k, v in series["metric"].items() if isinstance(v, str)}
    name = labels.pop("__name__", "")
    where = f"series {number:,}"
    samples = series.get("values", [series["value"]] if "value" in series else None)
    if samples is None:
        findings.add("skipped by design", "series of histograms", 1, where)
        return None
    position = samples.get(_PLACE) if isinstance(samples, dict) else None
    if isinstance(position, int) and 0 <= position < len(pairs):
        seconds, values = pairs[position]
    else:
        seconds, values = _slow(samples, where, findings)
    with np.errstate(invalid="ignore"):
        good = (seconds > 0) & (seconds < _LATEST_S)
    findings.add("dropped", _NO_SAMPLES, int((~good).sum()), where)
    # Prometheus keeps milliseconds.
    time_ns = np.rint(seconds[good] * 1e3).astype(np.int64) * 1_000_000
    return Series(name, labels, time_ns, values[good], np.full(len(time_ns), number))


def _slow(samples: Any, where: str, findings: Findings) -> tuple[Floats, Floats]:
    read = [_pair(series) for series in samples] if isinstance(samples, list) else [None]
    pairs = [series for series in read if series is not None]
    findings.add("dropped", _NO_SAMPLES, len(read) - len(pairs), where)
    joined = np.array(pairs, np.float64).reshape(-1, 2)
    return joined[:, 0], joined[:, 1]


def _pair(series: Any) -> tuple[float, float] | None:
    if not isinstance(series, list) or len(series) != 2:
        return None
    numbers = [number_of(value) for value in series]
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
    total, remainder = 0, ""
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
                total, remainder = token.end(), _closers(open_ones)
    if may_end_here:
        total, remainder = len(text), _closers(open_ones)
    return (text[:total] + remainder, True) if open_ones and total else (text, False)


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
# As ms this is 1973, as s the year 5138.
_MILLISECONDS_FROM = 1e11
_BROKEN = "lines that are not samples"


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
    """Yield the series of a page, or of several that were put one after the other.

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
        # OpenMetrics writes exemplars behind " # ".
        match = _SAMPLE.fullmatch(text if " # " not in text else text.split(" # ")[0])
        value = number_of(match["value"]) if match else None
        if match is None or value is None:
            findings.add("dropped", _BROKEN, 1, f"line {number:,}")
            continue
        key = match["name"], match["labels"] or ""
        if (series := gathered.get(key)) is None:
            series = gathered[key] = _Gathered(key[0], labels_of(key[1]))
        time_ns = _time_ns(match["time"], number, findings) or page.time_ns(key)
        series.time_ns.append(NO_TIME if time_ns is None else time_ns)
        series.values.append(value)
        series.line.append(number)
    for series in gathered.values():
        yield series.series


def _stamp_of(text: str) -> str | None:
    # Names of metrics begin in many ways, stamps in few.
    return stamp_line(text) if text[:1] in tuple("#0123456789") or text[:3].istitle() else None


def labels_of(text: str) -> dict[str, str]:
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
    result = epoch_ns(time / 1000 if is_ms and time is not None else text)
    findings.add("dropped", "stamps that are not times", int(result is None), f"line {line:,}")
    return result
