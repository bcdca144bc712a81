"""Simulate: the joined view of steps, incidents, power and traces."""

from workbench.simulate._fleet.job import fleet, fleet_truth
from workbench.simulate._fleet.plan import FAULTS

__all__ = [
    "FAULTS",
    "fleet",
    "fleet_truth",
]
