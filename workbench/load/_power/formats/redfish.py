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
from workbench.load._power.part import PowerOptions, PowerPart, number_of, plain_name
from workbench.load._power.stamps import Gathered, Stamps

# Input is hostile: JSON may be nested without end.
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
    value: Any, context: Place, stamps: Stamps, findings: Findings, *, depth: int = 0
) -> Iterator[tuple[dict[str, Any], Place]]:
    if depth > _DEEPEST:
        findings.add("dropped", "JSON that is nested too deeply", 1, f"line {context.line:,}")
        return
    if isinstance(value, dict):
        context = _inside(value, context, stamps)
        yield value, context
    inner = value.values() if isinstance(value, dict) else value
    for inner_value in inner if isinstance(inner, list) or isinstance(value, dict) else ():
        if isinstance(inner_value, dict | list):
            yield from objects(inner_value, context, stamps, findings, depth=depth + 1)


def _inside(value: Mapping[str, Any], context: Place, stamps: Stamps) -> Place:
    result = next((value[key] for key in _NODES if isinstance(value.get(key), str)), None)
    if result:
        context = replace(context, node=plain_name(result))
    path = value.get("@odata.id")
    if isinstance(path, str) and _PATH.match(path):
        context = replace(context, path=path)
    elif isinstance(value.get("Chassis"), str):
        context = replace(context, path=f"/redfish/v1/Chassis/{value['Chassis']}")
    time = stamp_of(value)
    return replace(context, time_ns=stamps.ns(time, context.line)) if time is not None else context


def stamp_of(value: Mapping[str, Any]) -> str | int | float | None:
    vendors = value.get("Oem")
    inside = list(vendors.values()) if isinstance(vendors, dict) else []
    for holder in (value, vendors, *inside):
        for name in _TIMES if isinstance(holder, dict) else ():
            time = holder.get(name)
            if isinstance(time, str | int | float) and not isinstance(time, bool):
                return time
    return None


@lru_cache(1 << 16)
def device_of(path: str) -> str:
    """Name what a path leads to by the words of it that name things: GPU_0, 1U-PSU2."""
    match = _PATH.fullmatch(path)
    steps = [step for text in (match.groups() if match else ()) for step in (text or "").split("/")]
    by_name: list[str] = []
    for before, step in pairwise(["", *steps]):
        if step in _COLLECTIONS or _PROPERTY.fullmatch(step):
            continue
        # The first entry stands for the whole chassis.
        if before == "PowerControl" and step == "0":
            continue
        is_number = before == "PowerSupplies" and step.isdecimal()
        # A sensor often repeats the name of what it is in.
        remaining = [value for value in by_name if not step.startswith(value)]
        by_name = [*remaining, f"PSU{step}" if is_number else step]
    return plain_name("-".join(by_name))


def watts_of(value: Any) -> float | None:
    value = value.get("Reading") if isinstance(value, dict) else value
    result = number_of(value)
    return result if result is not None and abs(result) < float("inf") else None


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
    value: dict[str, Any], context: Place, options: PowerOptions, findings: Findings
) -> Iterator[Value]:
    """Yield the values of one object; nested objects are visited separately."""
    device = device_of(context.path) or plain_name(str(value.get("Id", "")))
    scope = _scope(context.path or device)
    # Its metrics are objects of their own, which come next.
    if isinstance(value.get("MetricValues"), list):
        return
    if "MetricValue" in value:
        yield from _metric(value, context, findings)
        return
    if {"PowerConsumedWatts", "PowerMetrics"} & set(value):
        yield from _control(value, context, options, findings)
    if "PowerWatts" in value:
        yield Value("power", watts_of(value["PowerWatts"]), context, device, scope)
    # A supply says what goes in and what comes out; the input is what must be fed.
    if (name := next((name for name in _SUPPLY if name in value), None)) is not None:
        yield Value("power", watts_of(value[name]), context, device, "unknown")
    if (name := next((name for name in _JOULES if name in value), None)) is not None:
        joules = _scaled(watts_of(value[name]), _JOULES[name])
        yield Value("energy", joules, context, device, scope)
    limit = value.get("PowerLimitWatts")
    if isinstance(limit, dict) and ("SetPoint" in limit or "Reading" in limit):
        watts = watts_of(limit.get("SetPoint", limit.get("Reading")))
        yield Value("limit", watts, context, device, scope)
    yield from _sensor(value, context, device, scope)


def _sensor(value: dict[str, Any], context: Place, device: str, scope: str) -> Iterator[Value]:
    unit = value.get("ReadingUnits")
    if "Reading" in value and unit == "W":
        yield Value("power", watts_of(value), context, device, scope)
    elif "Reading" in value and unit in tuple(_UNITS):
        yield Value("energy", _scaled(watts_of(value), _UNITS[unit]), context, device, scope)


def _control(
    value: dict[str, Any], position: Place, options: PowerOptions, findings: Findings
) -> Iterator[Value]:
    """Yield the power of a chassis as the older resource Power has it."""
    device = device_of(position.path)
    context = str(value.get("PhysicalContext", "")).lower()
    scope = _CONTEXTS.get(context) or _scope(position.path)
    metrics = value.get("PowerMetrics")
    average = watts_of(metrics.get("AverageConsumedWatts")) if isinstance(metrics, dict) else None
    instant = watts_of(value.get("PowerConsumedWatts"))
    takes_average = average is not None and (options.reading == "average" or instant is None)
    if takes_average and options.reading != "average":
        findings.add("noted", _AVERAGED, 1, f"line {position.line:,}")
    power, method = (average, "average") if takes_average else (instant, "instant")
    yield Value("power", power, position, device, scope, method)
    limit = value.get("PowerLimit")
    watts = watts_of(limit.get("LimitInWatts")) if isinstance(limit, dict) else None
    if watts is not None:
        yield Value("limit", watts, position, device, scope, method)


def _metric(metric: dict[str, Any], context: Place, findings: Findings) -> Iterator[Value]:
    path = str(metric.get("MetricProperty") or "")
    name = str(metric.get("MetricId") or "")
    last = re.split(r"[/#]", path)[-1] if path else name
    text = f"{last} {name}"
    is_energy, is_power = _ENERGY_METRIC.search(text), _POWER_METRIC.search(text)
    if _NO_METRIC.search(text) or not (is_energy or is_power):
        findings.add("skipped by design", _OTHER_METRIC, 1, name[:60])
        return
    device = device_of(path) if path.startswith("/redfish/") else plain_name(name)
    value, scope = watts_of(metric["MetricValue"]), _scope(path or name)
    if is_energy:
        factor = 3.6e6 if is_energy["kwh"] else 1.0
        yield Value("energy", _scaled(value, factor), context, device, scope)
    else:
        yield Value("power", value, context, device, scope)


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
_NO_NUMBER = "readings that are not numbers; they are missing"
_SCOPE = "Redfish says nothing of where a chassis is metered; taken as its input (node_ac)"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    return bool(_KNOWN.search(head) or (b"@odata.id" in head and _SENSOR.search(head)))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
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
    gathered = Gathered(source, options)
    findings, entities = gathered.findings, gathered.entities
    rows = {"power": gathered.readings, "energy": gathered.counters, "limit": gathered.states}
    for value in _values(source, options, gathered.stamps, findings):
        name = "/".join(text for text in (value.place.node, value.part) if text) or "node"
        values = (value.value,) + (None,) * (len(rows[value.kind].columns) - 1)
        rows[value.kind].add(name, value.place.time_ns, value.place.line, *values)
        where = f"line {value.place.line:,}"
        findings.add("dropped", _NO_NUMBER, int(value.value is None), where)
        described = entities.setdefault(name, _entity(value, options))
        if value.kind == "limit" and value.value is not None:
            described["limit_w"] = value.value
    content = gathered.part(_HOW)
    is_taken = any(facts["scope"] == "node_ac" for facts in entities.values())
    findings.add("assumed", _SCOPE, int(is_taken and not options.scope))
    return content


def _entity(value: Value, options: PowerOptions) -> dict[str, Any]:
    takes = options.scope and value.scope in ("node_ac", "unknown")
    result = {"scope": options.scope if takes else value.scope, "method": value.method}
    result |= {"node": value.place.node, "device": value.part or None, "unit": "W"}
    return result | {"assumed": f"scope={options.scope}" if takes else ""}


def _values(
    source: Source, options: PowerOptions, stamps: Stamps, findings: Findings
) -> Iterator[Value]:
    for line, document in json_documents(source, findings):
        context = Place(line, options.node)
        result = False
        for entry, at in objects(document, context, stamps, findings):
            for value in of_object(entry, at, options, findings):
                result = True
                yield value
        error = document.get("error") if isinstance(document, dict) else None
        if isinstance(error, dict):
            words = one_line(str(error.get("message", error.get("code", ""))))
            findings.add("dropped", f"an answer that is an error: {words}", 1, f"line {line:,}")
        elif not result:
            text = "documents without power or energy"
            findings.add("skipped by design", text, 1, f"line {line:,}")
