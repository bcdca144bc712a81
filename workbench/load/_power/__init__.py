"""Load: power and energy."""

from workbench.load._power.fleet_total import power_fleet_total
from workbench.load._power.reader import power
from workbench.load._power.rollup import power_rollup
from workbench.load._power.sweeps import power_sweeps
from workbench.load._power.topology import power_topology

__all__ = [
    "power",
    "power_fleet_total",
    "power_rollup",
    "power_sweeps",
    "power_topology",
]
