"""Power as Prometheus keeps it or exporters serve it: pages of metrics, and answers to queries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.xid_codes import pci_address
from workbench.load._power.formats.nvidia.methods import method_of
from workbench.load._power.formats.prometheus.metrics import (
    POWER_KINDS,
    PREFERRED,
    Meaning,
    meaning_of,
)
from workbench.load._power.formats.prometheus.series import Series, answered, scraped
from workbench.load._power.part import PowerGiven, PowerPart
from workbench.load._power.samples import (
    NO_TIME,
    STATE_COLUMNS,
    Floats,
    Integers,
    Rows,
    described,
    part_of,
    plain_name,
    said,
    settled,
    states_frame,
)
from workbench.load._power.stamps import Stamps

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

# One kind of a thing: its meaning and its series.
_Kinds = dict[str, list[tuple[Meaning, Series]]]


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise a page of metrics, or an answer of the Prometheus API."""
    if head.lstrip()[:1] in (b"{", b"["):
        is_error = b'"errorType"' in head and b'"status"' in head
        return b'"resultType"' in head or is_error
    return bool(_PAGE.search(head) or _NAMES.search(head))


def read_power(source: Source, given: PowerGiven) -> PowerPart:
    """Read range and instant queries as JSON, or the text that exporters serve.

    Names of metrics say what is metered and in which unit: DCGM's fields under their old and
    new names, AMD's, Kepler's and those of IPMI and Redfish exporters by a list, others by the
    unit at their end. A GPU is one thing, whoever uses it: pods and MIG slices repeat the power
    of the whole GPU. Zones of RAPL lie inside each other, so the widest of a node is taken.

    Raises
    ------
    LoadError
        If series have no name and ``given.unit`` is not set, or pages without times follow
        each other and ``given.period_s`` is not set.

    References
    ----------
    Prometheus: HTTP API, exposition formats. NVIDIA DCGM: dcgm_fields.h, dcgm_structs.h
    (blank values). Kepler: metrics of the node. AMD device metrics exporter: list of metrics.
    """
    findings = Findings(source.label)
    stamps = Stamps(source.label, given, findings)
    if source.head().lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        series: Iterable[Series] = answered(source, findings)
    else:
        series = scraped(source, stamps, findings)
    things, kinds = _grouped(series, given, findings)
    _keep_widest(things, kinds, findings)
    rows = Rows("power_w"), Rows("energy_j"), Rows(*STATE_COLUMNS)
    entities: dict[str, dict[str, Any]] = {}
    for entity, each in kinds.items():
        entities[entity] = _entity(things[entity], each, given)
        _add(entity, each, rows, given, findings)
    frames = [rows[0].frame(), rows[1].frame(), states_frame(rows[2])]
    frames, clock = settled(frames, findings, _HOW, given)
    return part_of(frames, described(entities, clock, stamps.assumed), findings)


def _grouped(
    every: Iterable[Series], given: PowerGiven, findings: Findings
) -> tuple[dict[str, Metered], dict[str, _Kinds]]:
    """Sort series by what they meter and by kind."""
    things: dict[str, Metered] = {}
    kinds: dict[str, _Kinds] = defaultdict(lambda: defaultdict(list))
    for series in every:
        meaning = _meaning(series, given, findings)
        if meaning is None:
            findings.add("skipped by design", _OTHER, 1, series.name[:80])
            continue
        if _is_slice(series):
            findings.add("noted", _SLICES, 1, f"line {series.line[:1].sum():,}")
            continue
        thing = metered(series.name, series.labels, meaning, given)
        things.setdefault(thing.entity, thing)
        kinds[thing.entity][meaning.kind].append((meaning, series))
    return things, kinds


def _is_slice(series: Series) -> bool:
    """Say whether AMD's exporter writes the zero that stands for no sensor of a partition."""
    number = series.labels.get("gpu_partition_id") or series.labels.get("partition_id") or "0"
    return number != "0" and not series.values.any()


def _meaning(series: Series, given: PowerGiven, findings: Findings) -> Meaning | None:
    if series.name:
        return meaning_of(series.name, series.labels.get("zone", ""))
    if given.unit is None:
        msg = (
            f"{findings.source}, series {series.line[:1].sum():,}: has no name, so nothing says "
            "what its values are; pass unit='W' if they are watts, or query the metric itself"
        )
        raise LoadError(msg)
    is_gpu = any(series.labels.get(each) for each in ("gpu", "gpu_id", "UUID", "uuid"))
    scope = given.scope or ("gpu" if is_gpu else "unknown")
    return Meaning("power", _FACTOR_OF_UNIT[given.unit], scope, "unknown")


def _keep_widest(
    things: Mapping[str, Metered], kinds: dict[str, _Kinds], findings: Findings
) -> None:
    """Leave out zones of a node that lie inside others of it."""
    width = {entity: max(m.width for all_ in each.values() for m, _ in all_)
             for entity, each in kinds.items()}  # fmt: skip
    widest: dict[str | None, int] = defaultdict(int)
    for entity, each in width.items():
        widest[things[entity].node] = max(widest[things[entity].node], each)
    for entity, each in width.items():
        if 0 < each < widest[things[entity].node]:
            series = kinds.pop(entity)
            findings.add("noted", _INSIDE, sum(map(len, series.values())), entity)


def _entity(thing: Metered, kinds: _Kinds, given: PowerGiven) -> dict[str, Any]:
    power = _chosen(kinds, given)
    meaning, first = (power or next(iter(kinds.values())))[0]
    scope, method, assumed = meaning.scope, meaning.method, ""
    if method == "unknown" and first.name.startswith(("DCGM", "dcgm", "nvidia_smi")):
        method = method_of(meaning.kind, thing.model)
    if scope == "unknown" and given.scope:
        scope, assumed = given.scope, f"scope={given.scope}"
    if not first.name:
        assumed = said(f"unit={given.unit}", f"scope={given.scope}" if given.scope else "")
    _, limits, _ = merged(kinds.get("limit", []), Findings(""))
    known = limits[np.isfinite(limits)]
    found: dict[str, Any] = {"scope": scope, "method": method, "node": thing.node, "unit": "W"}
    found |= {"device": thing.device, "model": thing.model, "assumed": assumed}
    return found | ({"limit_w": float(known[-1])} if len(known) else {})


def _chosen(kinds: _Kinds, given: PowerGiven) -> list[tuple[Meaning, Series]]:
    """Return the series of the one kind of power that is taken of a device."""
    order = PREFERRED[given.reading]
    return next((kinds[kind] for kind in order if kinds.get(kind)), [])


def _add(
    entity: str,
    kinds: _Kinds,
    rows: tuple[Rows, Rows, Rows],
    given: PowerGiven,
    findings: Findings,
) -> None:
    """Add the readings, counters and states of one thing."""
    power = _chosen(kinds, given)
    others = sum(len(kinds[kind]) for kind in POWER_KINDS if kind in kinds) - len(power)
    findings.add("noted", _OTHERS, others, entity)
    for group, its_rows in ((power, rows[0]), (kinds.get("energy", []), rows[1])):
        time_ns, values, line = merged(group, findings)
        its_rows.add_many(entity, settled_times(time_ns), line, values)
    states = {kind: merged(kinds[kind], findings) for kind in _STATES if kinds.get(kind)}
    if states:
        _add_states(entity, states, rows[2])


def _add_states(entity: str, states: Mapping[str, Samples], rows: Rows) -> None:
    """Put the states of one thing side by side, by their instants."""
    time_ns = np.unique(np.concatenate([each[0] for each in states.values()]))
    columns = [np.full(len(time_ns), np.nan) for _ in STATE_COLUMNS]
    line = np.zeros(len(time_ns), np.int64)
    for kind, (at_ns, values, lines) in states.items():
        place = np.searchsorted(time_ns, at_ns)
        columns[_STATES[kind]][place] = values
        line[place] = lines
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
_OWN = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)?")
_BARE_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:gpu|nvidia|card|accel)?(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True)
class Metered:
    """One thing that is metered: its name and what the labels say of it."""

    entity: str
    node: str | None
    device: str | None
    model: str | None


def metered(name: str, labels: Mapping[str, str], meaning: Meaning, given: PowerGiven) -> Metered:
    """Return what a series of a metric meters.

    Labels that say who uses a device (pod, container, job) or which slice of it they watch
    (MIG) are passed over: it is the same device.
    """
    node = host_of(labels, given)
    model = next((plain_name(labels[each]) for each in _MODELS if labels.get(each)), None)
    if meaning.scope == "gpu" and ":" not in name and (device := _device(labels, node)):
        entity = f"gpu{device}" if device.isdecimal() else device
        return Metered(f"{node}/{entity}" if node else entity, node, device, model)
    part = _part(name, labels, meaning)
    entity = "/".join(each for each in (node or "", part) if each) or "node"
    return Metered(entity, node, part or None, model)


def host_of(labels: Mapping[str, str], given: PowerGiven) -> str | None:
    """Return the host that labels name, without a port; else what the caller said."""
    for each in _HOSTS:
        if host := labels.get(each):
            host = host if each.lower() == "hostname" else re.sub(r":\d+$", "", host)
            if _OWN.fullmatch(host) and given.node:
                return given.node
            return plain_name(host)
    return given.node


def _device(labels: Mapping[str, str], node: str | None) -> str | None:
    indices = (_NUMBERED.fullmatch(labels[each]) for each in _INDICES if labels.get(each))
    index = next((str(int(found[1])) for found in indices if found), None)
    name, value = next(((each, labels[each]) for each in _UUIDS if labels.get(each)), ("", ""))
    if value:
        value = pci_address(value) or value if name == "pci_bus_id" else plain_name(value)
        value = f"GPU-{value}" if _BARE_UUID.fullmatch(value) else value
    # Of a host that nobody names, two devices may have one number.
    return index or value or None if node else value or index


def _part(name: str, labels: Mapping[str, str], meaning: Meaning) -> str:
    """Name what is metered inside a host, or among others without one."""
    if not name or ":" in name:
        named = {k: v for k, v in labels.items() if k not in _HOSTS}
        texts = [*([name] if name else []), *(f"{k}={v}" for k, v in sorted(named.items()))]
        return plain_name(",".join(texts)) if texts or labels else "all"
    found = {each: labels[each] for each in _PARTS if labels.get(each)}
    numbered = (f"{k}{value}" if value.isdecimal() else value for k, value in found.items())
    return plain_name("-".join(dict.fromkeys(part for part in (meaning.part, *numbered) if part)))


# Values of Prometheus in the units of the tables: blanks out, repeats once.

# What DCGM writes for a value it has not: blank, not found, not supported, not permitted.
_BLANK_FLOATS = 140737488355328.0 + np.arange(4)
_BLANK_INT32 = (0x7FFFFFF0, 0x7FFFFFFF)
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
    taken = [(meaning, series) for meaning, series in group if meaning.rank == least]
    findings.add("noted", _VALUES_OTHERS, len(group) - len(taken), taken[0][1].name)
    time_ns = np.concatenate([_told_apart(series.time_ns) for _, series in taken])
    values = np.concatenate([_cleaned(meaning, each, findings) for meaning, each in taken])
    line = np.concatenate([series.line for _, series in taken])
    if len(time_ns) > 1 and not (np.diff(time_ns) > 0).all():
        return _once((time_ns, values, line), findings)
    return time_ns, values, line


def settled_times(time_ns: Integers) -> Integers:
    """Return times with all that nobody knows alike."""
    return np.where(time_ns < _TIMELESS_BELOW, NO_TIME, time_ns)


def _told_apart(time_ns: Integers) -> Integers:
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
    """Return values in the units of the tables; what is none is missing and counted."""
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


def _factor(meaning: Meaning, known: Floats) -> float:
    """Return what leads to the unit of the tables; loads are per cent unless they are shares."""
    if meaning.kind != "busy":
        return meaning.factor
    is_share = bool(len(known)) and known.max() <= 1 and bool((known % 1 != 0).any())
    return 1.0 if is_share else 0.01
