"""Power, energy and limits that one object of Redfish states itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from workbench.load._files.findings import Findings
from workbench.load._power.formats.redfish.walk import Place, part_of, watts_of
from workbench.load._power.part import PowerGiven
from workbench.load._power.samples import plain_name

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
_OTHER = "metrics that are not power or energy"


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
    part = part_of(place.path) or plain_name(str(each.get("Id", "")))
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
    part = part_of(place.path)
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
    """Give one value of a report of telemetry."""
    path = str(each.get("MetricProperty") or "")
    name = str(each.get("MetricId") or "")
    last = re.split(r"[/#]", path)[-1] if path else name
    text = f"{last} {name}"
    is_energy, is_power = _ENERGY_METRIC.search(text), _POWER_METRIC.search(text)
    if _NO_METRIC.search(text) or not (is_energy or is_power):
        findings.add("skipped by design", _OTHER, 1, name[:60])
        return
    part = part_of(path) if path.startswith("/redfish/") else plain_name(name)
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
