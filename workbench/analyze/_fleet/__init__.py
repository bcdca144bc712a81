"""Analyze: the joined view of steps, incidents, power and traces."""

from workbench.analyze._fleet.clock_correction_s import clock_correction_s
from workbench.analyze._fleet.clock_offset import power_clock_offset
from workbench.analyze._fleet.dip_causes import dip_causes
from workbench.analyze._fleet.energy_waste import energy_waste
from workbench.analyze._fleet.incident_energy import incident_energy
from workbench.analyze._fleet.phase_power import phase_power
from workbench.analyze._fleet.power_dips import power_dips
from workbench.analyze._fleet.power_during import power_during
from workbench.analyze._fleet.step_energy import span_energy, step_energy
from workbench.analyze._fleet.timeline import fleet_timeline
from workbench.analyze._fleet.work_energy import work_energy

__all__ = [
    "clock_correction_s",
    "dip_causes",
    "energy_waste",
    "fleet_timeline",
    "incident_energy",
    "phase_power",
    "power_clock_offset",
    "power_dips",
    "power_during",
    "span_energy",
    "step_energy",
    "work_energy",
]
