"""Seed or model in, tables and files out: data whose truth is known."""

from workbench.simulate._fleet_plan import FAULTS
from workbench.simulate.document_lengths import document_lengths
from workbench.simulate.embedding_tables import embedding_tables, row_popularity
from workbench.simulate.fleet import fleet, fleet_truth

__all__ = [
    "FAULTS",
    "document_lengths",
    "embedding_tables",
    "fleet",
    "fleet_truth",
    "row_popularity",
]
