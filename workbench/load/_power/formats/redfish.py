"""Power metrics of Redfish: chassis, supplies and processors, sensors, telemetry reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import json_documents
from workbench.load._files.time import one_line
from workbench.load._power.part import (
    STATE_COLUMNS,
    PowerGiven,
    PowerPart,
    Rows,
    number_of,
    plain_name,
    states_frame,
)
from workbench.load._power.stamps import Stamps

_DEEPEST = 32
_TIMES = (
    "Timestamp", "ReadingTime", "DateTime", "timestamp", "time", "Time", "@timestamp", "datetime",
    "collected_at", "ts",
)  # fmt: skip
_NODES = ("node", "Node", "hostname", "HostName", "host", "Host", "bmc", "BMC", "instance")
_PATH = re.compile(r"/redfish/v1/(\S+?)(?:#(\S*))?")
# Words of a path that say where to look, not what is metered.
_COLLECTIONS = frozenset({
    "Chassis", "Systems", "Managers", "Processors", "Sensors", "PowerSubsystem", "PowerSupplies",
    "EnvironmentMetrics", "Power", "PowerEquipment", "Metrics", "Oem", "ThermalSubsystem",
    "PowerControl", "TelemetryService", "MetricReports", "Controls",
})  # fmt: skip


_PROPERTY = re.compile(r"|Reading|\w*Watts|\w*kWh|\w*Joules|PowerMetrics")


@dataclass(frozen=True)
class Place:
    """Where in the documents a value stands, and what those around it say."""

    line: int
    node: str | None = None
    time_ns: int | None = None
    path: str = ""


def objects(
    value: Any, place: Place, stamps: Stamps, findings: Findings, *, depth: int = 0
) -> Iterator[tuple[dict[str, Any], Place]]:
    if depth > _DEEPEST:
        findings.add("dropped", "JSON that is nested too deeply", 1, f"line {place.line:,}")
        return
    if isinstance(value, dict):
        place = _inside(value, place, stamps)
        yield value, place
    inner = value.values() if isinstance(value, dict) else value
    for each in inner if isinstance(inner, list) or isinstance(value, dict) else ():
        if isinstance(each, dict | list):
            yield from objects(each, place, stamps, findings, depth=depth + 1)


def _inside(value: Mapping[str, Any], place: Place, stamps: Stamps) -> Place:
    found = next((value[each] for each in _NODES if isinstance(value.get(each), str)), None)
    if found:
        place = replace(place, node=plain_name(found))
    path = value.get("@odata.id")
    if isinstance(path, str) and _PATH.match(path):
        place = replace(place, path=path)
    elif isinstance(value.get("Chassis"), str):
        place = replace(place, path=f"/redfish/v1/Chassis/{value['Chassis']}")
    time = stamp_of(value)
    return replace(place, time_ns=stamps.ns(time, place.line)) if time is not None else place


def stamp_of(value: Mapping[str, Any]) -> str | int | float | None:
    vendors = value.get("Oem")
    inside = list(vendors.values()) if isinstance(vendors, dict) else []
    for each in (value, vendors, *inside):
        for name in _TIMES if isinstance(each, dict) else ():
            time = each.get(name)
            if isinstance(time, str | int | float) and not isinstance(time, bool):
                return time
    return None


@lru_cache(1 << 16)
def device_of(path: str) -> str:
    """Name what a path leads to by the words of it that name things: GPU_0, 1U-PSU2."""
    match = _PATH.fullmatch(path)
    steps = [step for text in (match.groups() if match else ()) for step in (text or "").split("/")]
    named: list[str] = []
    for before, step in pairwise(["", *steps]):
        if step in _COLLECTIONS or _PROPERTY.fullmatch(step):
            continue
        if before == "PowerControl" and step == "0":
            continue
        is_number = before == "PowerSupplies" and step.isdecimal()
        # A sensor often repeats the name of what it is in.
        others = [each for each in named if not step.startswith(each)]
        named = [*others, f"PSU{step}" if is_number else step]
    return plain_name("-".join(named))


def watts_of(value: Any) -> float | None:
    """Return a number, or the reading of a sensor."""
    value = value.get("Reading") if isinstance(value, dict) else value
    found = number_of(value)
    return found if found is not None and abs(found) < float("inf") else None


_JOULES = {"EnergyJoules": 1.0, "EnergykWh": 3.6e6}
_UNITS = {"kWh": 3.6e6, "kW.h": 3.6e6, "J": 1.0}
_SUPPLY = ("InputPowerWatts", "PowerInputWatts", "OutputPowerWatts", "PowerOutputWatts")
_POWER_METRIC = re.compile(
    r"power(?!state|factor|cap|limit|supplies|subsystem|control)|watts", re.IGNORECASE
)
_ENERGY_METRIC = re.compile(r"(?P<kwh>energyk?wh)|energy", re.IGNORECASE)
_NO_METRIC = re.compile(
    r"min|max|peak|limit|capacity|headroom|threshold|factor|state|apparent|reactive|status|avail",
    re.IGNORECASE,
)
# The first word that is found tells the scope; of a chassis nothing says more.
_SCOPES = (
    (re.compile(r"gpu|accelerator", re.IGNORECASE), "gpu"),
    (re.compile(r"cpu", re.IGNORECASE), "cpu"),
    (re.compile(r"dimm|memory", re.IGNORECASE), "memory"),
    (re.compile(r"nvswitch", re.IGNORECASE), "switch"),
    (re.compile(r"pdus?\b", re.IGNORECASE), "pdu"),
    (
        re.compile(r"PowerSuppl|psu|\bbay|hgx|baseboard|shel[fv]|fan|storage|drive", re.IGNORECASE),
        "unknown",
    ),
)
_CONTEXTS = {"cpu": "cpu", "gpu": "gpu", "accelerator": "gpu", "memory": "memory"}
_AVERAGED = "averages, where no momentary reading is given"
_OTHER_METRIC = "metrics that are not power or energy"


class Value(NamedTuple):
    """One value of a document: its kind, and what it is of."""

    kind: str
    value: float | None
    place: Place
    part: str
    scope: str
    method: str = "unknown"


def of_object(
    each: dict[str, Any], place: Place, given: PowerGiven, findings: Findings
) -> Iterator[Value]:
    """Give what one object says itself; objects inside it come by themselves."""
    part = device_of(place.path) or plain_name(str(each.get("Id", "")))
    scope = _scope(place.path or part)
    if isinstance(each.get("MetricValues"), list):
        return
    if "MetricValue" in each:
        yield from _metric(each, place, findings)
        return
    if {"PowerConsumedWatts", "PowerMetrics"} & set(each):
        yield from _control(each, place, given, findings)
    if "PowerWatts" in each:
        yield Value("power", watts_of(each["PowerWatts"]), place, part, scope)
    # A supply says what goes in and what comes out; the input is what must be fed.
    if (name := next((name for name in _SUPPLY if name in each), None)) is not None:
        yield Value("power", watts_of(each[name]), place, part, "unknown")
    if (name := next((name for name in _JOULES if name in each), None)) is not None:
        joules = _scaled(watts_of(each[name]), _JOULES[name])
        yield Value("energy", joules, place, part, scope)
    limit = each.get("PowerLimitWatts")
    if isinstance(limit, dict) and ("SetPoint" in limit or "Reading" in limit):
        watts = watts_of(limit.get("SetPoint", limit.get("Reading")))
        yield Value("limit", watts, place, part, scope)
    yield from _sensor(each, place, part, scope)


def _sensor(each: dict[str, Any], place: Place, part: str, scope: str) -> Iterator[Value]:
    unit = each.get("ReadingUnits")
    if "Reading" in each and unit == "W":
        yield Value("power", watts_of(each), place, part, scope)
    elif "Reading" in each and unit in tuple(_UNITS):
        yield Value("energy", _scaled(watts_of(each), _UNITS[unit]), place, part, scope)


def _control(
    each: dict[str, Any], place: Place, given: PowerGiven, findings: Findings
) -> Iterator[Value]:
    """Give the power of a chassis as the older resource Power has it."""
    part = device_of(place.path)
    context = str(each.get("PhysicalContext", "")).lower()
    scope = _CONTEXTS.get(context) or _scope(place.path)
    metrics = each.get("PowerMetrics")
    average = watts_of(metrics.get("AverageConsumedWatts")) if isinstance(metrics, dict) else None
    instant = watts_of(each.get("PowerConsumedWatts"))
    takes_average = average is not None and (given.reading == "average" or instant is None)
    if takes_average and given.reading != "average":
        findings.add("noted", _AVERAGED, 1, f"line {place.line:,}")
    power, method = (average, "average") if takes_average else (instant, "instant")
    yield Value("power", power, place, part, scope, method)
    limit = each.get("PowerLimit")
    watts = watts_of(limit.get("LimitInWatts")) if isinstance(limit, dict) else None
    if watts is not None:
        yield Value("limit", watts, place, part, scope, method)


def _metric(each: dict[str, Any], place: Place, findings: Findings) -> Iterator[Value]:
    path = str(each.get("MetricProperty") or "")
    name = str(each.get("MetricId") or "")
    last = re.split(r"[/#]", path)[-1] if path else name
    text = f"{last} {name}"
    is_energy, is_power = _ENERGY_METRIC.search(text), _POWER_METRIC.search(text)
    if _NO_METRIC.search(text) or not (is_energy or is_power):
        findings.add("skipped by design", _OTHER_METRIC, 1, name[:60])
        return
    part = device_of(path) if path.startswith("/redfish/") else plain_name(name)
    value, scope = watts_of(each["MetricValue"]), _scope(path or name)
    if is_energy:
        factor = 3.6e6 if is_energy["kwh"] else 1.0
        yield Value("energy", _scaled(value, factor), place, part, scope)
    else:
        yield Value("power", value, place, part, scope)


@lru_cache(1 << 16)
def _scope(text: str) -> str:
    return next((scope for form, scope in _SCOPES if form.search(text)), "node_ac")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(np.float64(value) * factor)


NAME = "power metrics of Redfish"

_HOW = (
    "Keep the time beside every document, one to a line: "
    '{"time": "2024-05-01T10:00:00Z", "node": "node001", "data": {...}}'
)
_KNOWN = re.compile(
    rb'"(?:PowerWatts|PowerControl|MetricValues|PowerConsumedWatts|InputPowerWatts|EnergykWh)"\s*:'
)
_SENSOR = re.compile(rb'"ReadingUnits"\s*:\s*"(?:W|J|kWh|kW\.h)"')
_NO_NUMBER = "readings that are no number; they are missing"
_SCOPE = "Redfish says nothing of where a chassis is metered; taken as its input (node_ac)"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise the fields of Redfish in which power stands."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    return bool(_KNOWN.search(head) or (b"@odata.id" in head and _SENSOR.search(head)))


def read_power(source: Source, given: PowerGiven) -> PowerPart:
    """Read metrics of chassis, supplies and processors, sensors, and reports of telemetry.

    Documents may follow each other, lie in lists or inside objects of a script that add host
    and time. Most resources of Redfish say neither; reports of telemetry have a time for every
    value. Every resource is a thing of its own: a chassis, its supplies and its GPUs overlap,
    and their sum means nothing.

    References
    ----------
    DMTF Redfish: EnvironmentMetrics, Power, PowerSupplyMetrics, PowerDistributionMetrics,
    Sensor, MetricReport.
    """
    findings = Findings(source.label)
    stamps = Stamps(source.label, given, findings)
    rows = {"power": Rows("power_w"), "energy": Rows("energy_j"), "limit": Rows(*STATE_COLUMNS)}
    entities: dict[str, dict[str, Any]] = {}
    for each in _values(source, given, stamps, findings):
        name = "/".join(text for text in (each.place.node, each.part) if text) or "node"
        values = (each.value,) + (None,) * (len(rows[each.kind].columns) - 1)
        rows[each.kind].add(name, each.place.time_ns, each.place.line, *values)
        where = f"line {each.place.line:,}"
        findings.add("dropped", _NO_NUMBER, int(each.value is None), where)
        known = entities.setdefault(name, _entity(each, given))
        if each.kind == "limit" and each.value is not None:
            known["limit_w"] = each.value
    frames = [rows["power"].frame(), rows["energy"].frame(), states_frame(rows["limit"])]
    part = stamps.part(frames, entities, _HOW)
    is_taken = any(facts["scope"] == "node_ac" for facts in entities.values())
    findings.add("assumed", _SCOPE, int(is_taken and not given.scope))
    return part


def _entity(each: Value, given: PowerGiven) -> dict[str, Any]:
    takes = given.scope and each.scope in ("node_ac", "unknown")
    found = {"scope": given.scope if takes else each.scope, "method": each.method}
    found |= {"node": each.place.node, "device": each.part or None, "unit": "W"}
    return found | {"assumed": f"scope={given.scope}" if takes else ""}


def _values(
    source: Source, given: PowerGiven, stamps: Stamps, findings: Findings
) -> Iterator[Value]:
    for line, document in json_documents(source, findings):
        place = Place(line, given.node)
        found = False
        for each, at in objects(document, place, stamps, findings):
            for value in of_object(each, at, given, findings):
                found = True
                yield value
        error = document.get("error") if isinstance(document, dict) else None
        if isinstance(error, dict):
            said = one_line(str(error.get("message", error.get("code", ""))))
            findings.add("dropped", f"an answer that is an error: {said}", 1, f"line {line:,}")
        elif not found:
            findings.add(
                "skipped by design", "documents without power or energy", 1, f"line {line:,}"
            )
