"""Plot: the joined view of steps, incidents, power and traces."""

from workbench.plot._fleet.energy_waste import energy_waste
from workbench.plot._fleet.incident_energy import incident_energy
from workbench.plot._fleet.phase_power import phase_power
from workbench.plot._fleet.power_dips import power_dips
from workbench.plot._fleet.step_energy import step_energy
from workbench.plot._fleet.timeline import fleet_timeline

__all__ = [
    "energy_waste",
    "fleet_timeline",
    "incident_energy",
    "phase_power",
    "power_dips",
    "step_energy",
]
