"""Prometheus metrics of power by name: kind, unit and metered entity."""

from __future__ import annotations

import re
from typing import NamedTuple

# Kinds of a power reading, in the order in which one is taken if a device has several.
PREFERRED = {
    None: ("power", "average", "instant"),
    "average": ("average", "power", "instant"),
    "instant": ("instant", "power", "average"),
}
POWER_KINDS = frozenset(PREFERRED[None])


class Meaning(NamedTuple):
    """One metric; ``factor`` converts to the unit of the tables.

    ``part`` is the part of a node that is metered, ``width`` says how much of it lies inside
    that; of several metrics of one kind that with the lowest ``rank`` is taken.
    """

    kind: str
    factor: float = 1.0
    scope: str = "gpu"
    method: str = "unknown"
    part: str = ""
    rank: int = 0
    width: int = 0


# Names as exporters write them. DCGM renamed fields, and the ids stayed; each line is one id.
_DCGM = {
    "power": "DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_BOARD_POWER_WATTS dcgm_power_usage",
    "instant": "DCGM_FI_DEV_POWER_USAGE_INSTANT DCGM_FI_DEV_BOARD_POWER_RAW_WATTS",
    "energy": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION dcgm_total_energy_consumption",
    "limit": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "requested": "DCGM_FI_DEV_POWER_MGMT_LIMIT DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS "
    "dcgm_power_management_limit",
    "clock": "DCGM_FI_DEV_SM_CLOCK dcgm_sm_clock",
    "busy": "DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_GPU_UTIL_RATIO dcgm_gpu_utilization",
    "temperature": "DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_TEMP_CELSIUS dcgm_gpu_temp",
    "reasons": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "violation": "DCGM_FI_DEV_POWER_VIOLATION dcgm_power_violation",
}
_FACTORS = {"energy": 1e-3}
_NAMED = {
    name: Meaning("limit" if kind == "requested" else kind, _FACTORS.get(kind, 1.0),
                  rank=int(kind == "requested"))
    for kind, names in _DCGM.items()
    for name in names.split()
}  # fmt: skip
_NAMED |= {
    "DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT": Meaning("power", scope="cpu"),
    "DCGM_FI_DEV_CPU_POWER_WATTS": Meaning("power", scope="cpu"),
    "DCGM_FI_DEV_MODULE_POWER_UTIL_CURRENT": Meaning("power", scope="module"),
    "DCGM_FI_DEV_NVSWITCH_POWER_VDD": Meaning("power", scope="switch", part="vdd"),
    "DCGM_FI_DEV_NVSWITCH_POWER_DVDD": Meaning("power", scope="switch", part="dvdd"),
    "DCGM_FI_DEV_NVSWITCH_POWER_HVDD": Meaning("power", scope="switch", part="hvdd"),
    "nvidia_smi_power_draw_watts": Meaning("power"),
    "nvidia_smi_power_draw_average_watts": Meaning("average", method="avg_1s"),
    "nvidia_smi_power_draw_instant_watts": Meaning("instant", method="instant"),
    "nvidia_smi_energy_joules_total": Meaning("energy"),
    "nvidia_smi_enforced_power_limit_watts": Meaning("limit"),
    "nvidia_smi_power_limit_watts": Meaning("limit", rank=1),
    "nvidia_smi_clocks_current_sm_clock_hz": Meaning("clock", 1e-6),
    "nvidia_smi_utilization_gpu_ratio": Meaning("share"),
    "nvidia_smi_temperature_gpu": Meaning("temperature"),
    "gpu_package_power": Meaning("power", method="instant"),
    "gpu_average_package_power": Meaning("average", method="average"),
    "gpu_power_usage": Meaning("power", rank=1),
    "gpu_energy_consumed": Meaning("energy", 1e-6),
    "gpu_gfx_activity": Meaning("busy"),
    "gpu_junction_temperature": Meaning("temperature"),
    "ipmi_dcmi_power_consumption_watts": Meaning("power", scope="node_ac", method="instant"),
    "redfish_chassis_power_average_consumed_watts": Meaning("average", 1.0, "node_ac", "average"),
    "idrac_power_control_consumed_watts": Meaning("power", scope="node_ac"),
    "idrac_power_control_avg_consumed_watts": Meaning("average", 1.0, "node_ac", "average"),
    "scaph_host_power_microwatts": Meaning("power", 1e-6, "node_dc", "counter"),
    "scaph_host_energy_microjoules": Meaning("energy", 1e-6, "node_dc", "counter"),
    "habanalabs_power_mW": Meaning("power", 1e-3),
    "kepler_node_platform_watts": Meaning("power", 1.0, "node_ac"),
    "kepler_node_platform_joules_total": Meaning("energy", 1.0, "node_ac"),
    "kepler_node_gpu_watts": Meaning("power"),
    "kepler_node_gpu_joules_total": Meaning("energy"),
}  # fmt: skip
# Zones of RAPL lie inside each other, so of one node the widest is kept: scope and width.
ZONES = {
    "psys": ("node_dc", 3), "package": ("cpu", 2), "dram": ("memory", 2),
    "core": ("cpu", 1), "uncore": ("cpu", 1), "pp0": ("cpu", 1), "pp1": ("cpu", 1),
}  # fmt: skip
# Kepler and the node exporter read the same zones of RAPL.
_ZONED = re.compile(
    r"(?:kepler_node_cpu|(?:kepler_node|node_rapl)_(?P<zone>package|core|uncore|dram|psys))"
    r"_(?P<unit>joules_total|watts)"
)
# What is a part of a node's power again, or is split among programs by a model.
_ATTRIBUTED = re.compile(
    r"kepler_(?:process|container|pod|vm)_|scaph_process_|_(?:active|idle)_(?:joules_total|watts)$"
)
_WORDS = re.compile(r"[_:\W]+")
_UNITS = {
    "watts": ("power", 1.0), "watt": ("power", 1.0), "w": ("power", 1.0),
    "milliwatts": ("power", 1e-3), "mw": ("power", 1e-3), "microwatts": ("power", 1e-6),
    "uw": ("power", 1e-6), "kilowatts": ("power", 1e3), "kw": ("power", 1e3),
    "megawatts": ("power", 1e6), "MW": ("power", 1e6),
    "joules": ("energy", 1.0), "joule": ("energy", 1.0), "j": ("energy", 1.0),
    "millijoules": ("energy", 1e-3), "mj": ("energy", 1e-3), "microjoules": ("energy", 1e-6),
    "uj": ("energy", 1e-6), "kwh": ("energy", 3.6e6), "wh": ("energy", 3600.0),
}  # fmt: skip
# A limit or an extreme has the unit of a power and is none.
_NO_READING = frozenset(
    [
        "min", "minimum", "max", "maximum", "capacity", "default", "rated", "available",
        "allocated", "requested", "threshold", "target", "slowdown", "supported", "peak", "cap",
        "limit", "tdp", "budget",
    ]
)  # fmt: skip
_SINGLE_LETTERS = frozenset({"w", "j"})
_SCOPES = {"gpu": "gpu", "cpu": "cpu", "dram": "memory", "memory": "memory", "pdu": "pdu",
           "rack": "rack"}  # fmt: skip


def meaning_of(name: str, zone: str = "") -> Meaning | None:
    """Return what a metric says about power, or None if it says nothing that has a place."""
    if _ATTRIBUTED.search(name):
        return None
    plain = name.removeprefix("amd_")
    result = _NAMED.get(name) or _NAMED.get(plain) or _NAMED.get(plain.lower())
    if result:
        return result
    if zoned := _ZONED.fullmatch(name):
        return _of_zone(zoned["zone"] or zone, zoned["unit"])
    return _by_its_words(name)


def _of_zone(zone: str, unit: str) -> Meaning:
    name = zone.lower().split("-")[0]
    scope, width = ZONES.get(name, ("unknown", 2))
    kind = "power" if unit == "watts" else "energy"
    return Meaning(kind, 1.0, scope, "counter", name or "cpu", width=width)


def _by_its_words(name: str) -> Meaning | None:
    # Prometheus asks for the unit at the end of a name; recording rules have colons in theirs.
    text = re.sub(r"(milli|micro|kilo|mega)_(watts|joules)", r"\1\2", name)
    words = [word for word in _WORDS.split(text) if word]
    lower = [word.lower() for word in words]
    if _NO_READING.intersection(lower):
        return None
    for word, low in zip(words[1:], lower[1:], strict=True):
        unit = _UNITS.get(word) or _UNITS.get(low)
        if unit and (low not in _SINGLE_LETTERS or "power" in lower or "energy" in lower):
            kind, factor = unit
            break
    else:
        return None
    scope = next((_SCOPES[item] for item in lower if item in _SCOPES), "unknown")
    if ":" in name:
        scope = "unknown"
    if kind == "power" and {"avg", "average", "mean"}.intersection(lower) and ":" not in name:
        return Meaning("average", factor, scope, "average", rank=1)
    return Meaning(kind, factor, scope, rank=1)
