"""Power as Redfish tells it: metrics of chassis and devices, and reports of telemetry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import json_documents
from workbench.load._files.time import one_line
from workbench.load._power.formats.redfish.values import Value, of_object
from workbench.load._power.formats.redfish.walk import Place, objects
from workbench.load._power.part import PowerGiven, PowerPart
from workbench.load._power.samples import (
    STATE_COLUMNS,
    Rows,
    described,
    part_of,
    settled,
    states_frame,
)
from workbench.load._power.stamps import Stamps

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

    Raises
    ------
    LoadError
        If a stamp is local and ``given.tz`` is not set, or readings without a time follow each
        other and ``given.period_s`` is not set.

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
    frames, clock = settled(frames, findings, _HOW, given)
    is_taken = any(each["scope"] == "node_ac" for each in entities.values())
    findings.add("assumed", _SCOPE, int(is_taken and not given.scope))
    return part_of(frames, described(entities, clock, stamps.assumed), findings)


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
