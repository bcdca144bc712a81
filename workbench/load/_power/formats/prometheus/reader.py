"""Power as Prometheus keeps it or exporters serve it: pages of metrics, and answers to queries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._power.formats.nvidia.methods import method_of
from workbench.load._power.formats.prometheus.entities import Metered, metered
from workbench.load._power.formats.prometheus.metrics import (
    POWER_KINDS,
    PREFERRED,
    Meaning,
    meaning_of,
)
from workbench.load._power.formats.prometheus.series import Series, answered
from workbench.load._power.formats.prometheus.text import scraped
from workbench.load._power.formats.prometheus.values import Samples, merged, settled_times
from workbench.load._power.part import PowerGiven, PowerPart
from workbench.load._power.samples import (
    STATE_COLUMNS,
    Rows,
    described,
    part_of,
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
            findings.add("set aside", _OTHER, 1, series.name[:80])
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
