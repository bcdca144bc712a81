"""Which column of an ``nvidia-smi --query-gpu`` table is what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.load._power.part import PowerGiven

MOST_COLUMNS = 5_000
_CELL = re.compile(r"\s*(.*?)\s*(?:\[([^\[\]]*)\])?\s*")
SEPARATORS = (",", ";", "\t")
# Names by role, in order of preference. Old drivers and new ones name some differently.
_NAMES: dict[str, tuple[str, ...]] = {
    "time": ("timestamp",),
    "node": ("hostname",),
    "index": ("index", "gpu_index"),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id", "gpu_bus_id"),
    "serial": ("serial", "gpu_serial"),
    "model": ("name", "gpu_name"),
    "mig": ("mig.mode.current",),
    "limit": ("enforced.power.limit", "gpu.power.current_limit", "power.limit",
              "gpu.power.requested_limit"),
    "clock": ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"),
    "busy": ("utilization.gpu",),
    "temperature": ("temperature.gpu",),
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "violation": ("clocks_event_reasons_counters.sw_power_cap",
                  "clocks_throttle_reasons_counters.sw_power_cap"),
    "energy": ("total_energy_consumption", "energy.consumption", "total.energy.consumption"),
}  # fmt: skip
_GPU_POWER = {
    None: ("power.draw", "power.draw.average", "gpu.power.draw.average", "power.draw.instant",
           "gpu.power.draw.instant"),
    "average": ("power.draw.average", "gpu.power.draw.average"),
    "instant": ("power.draw.instant", "gpu.power.draw.instant"),
}  # fmt: skip
_MODULE_POWER = {
    None: ("module.power.draw.average", "module.power.draw.instant"),
    "average": ("module.power.draw.average",),
    "instant": ("module.power.draw.instant",),
}
_MODULE_LIMIT = ("module.enforced.power.limit", "module.power.limit")
# Bits of NVML, by the columns that tell one of them each.
REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w+)")


@dataclass(frozen=True)
class Columns:
    """The columns of a table: names and units as the header has them, and which is what."""

    separator: str
    is_quoted: bool
    names: tuple[str, ...]
    units: tuple[str, ...]
    # Column by role; "reason 4" is the column that tells bit 0x4.
    at: dict[str, int]
    other_powers: tuple[str, ...] = ()

    def unit(self, role: str) -> str:
        """Return the unit that the header states for a role; '' if it states none."""
        return self.units[self.at[role]]

    def name(self, role: str) -> str:
        """Return the name of the column of a role; '' if there is none."""
        return self.names[self.at[role]] if role in self.at else ""


def columns_of(line: str, given: PowerGiven) -> Columns | None:
    """Read a header; None if the line is none with a reading of power."""
    separator = max(SEPARATORS, key=line.count)
    names, units = [], []
    for cell in line.strip().split(separator):
        match = _CELL.fullmatch(cell.replace('"', " "))
        names.append(match[1].lower() if match else cell)
        units.append((match[2] or "").strip() if match else "")
    if not any("power.draw" in name for name in names) or len(names) > MOST_COLUMNS:
        return None
    is_module = given.scope == "module"
    powers = (_MODULE_POWER if is_module else _GPU_POWER)[given.reading]
    wanted = dict(_NAMES, power=powers)
    if is_module:
        wanted["limit"] = _MODULE_LIMIT
    at = {role: place for role, some in wanted.items() if (place := _place(names, some)) >= 0}
    if "reasons" not in at:
        for place, name in enumerate(names):
            match = _REASON.fullmatch(name)
            if match and match[1] in REASON_BITS:
                at[f"reason {REASON_BITS[match[1]]}"] = place
    others = [name for name in names if "power.draw" in name and name != _at(names, at, "power")]
    return Columns(separator, '"' in line, tuple(names), tuple(units), at, tuple(others))


def _place(names: Sequence[str], wanted: Sequence[str]) -> int:
    return next((names.index(name) for name in wanted if name in names), -1)


def _at(names: Sequence[str], at: dict[str, int], role: str) -> str:
    return names[at[role]] if role in at else ""
