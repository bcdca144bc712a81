"""Seed or model in, tables and files out: data whose truth is known."""

from workbench.simulate._fleet_plan import FAULTS
from workbench.simulate.document_lengths import document_lengths
from workbench.simulate.fleet import fleet, fleet_truth

__all__ = ["FAULTS", "document_lengths", "fleet", "fleet_truth"]
