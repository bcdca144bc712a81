"""Documents of Redfish, however they were kept: what lies where, and when it was read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from workbench.load._files.findings import Findings
from workbench.load._power.samples import number_of, plain_name
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
    """Give every object of a document with what those around it say of host and time."""
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
    """Return the stamp that an object has, itself or among what its vendor added."""
    vendors = value.get("Oem")
    inside = list(vendors.values()) if isinstance(vendors, dict) else []
    for each in (value, vendors, *inside):
        for name in _TIMES if isinstance(each, dict) else ():
            time = each.get(name)
            if isinstance(time, str | int | float) and not isinstance(time, bool):
                return time
    return None


@lru_cache(1 << 16)
def part_of(path: str) -> str:
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
