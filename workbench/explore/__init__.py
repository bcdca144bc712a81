"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

from workbench.explore._panel import Explorer, static_html
from workbench.explore.collective_waits import collective_waits
from workbench.explore.context_sharding import context_sharding
from workbench.explore.flight_suspects import flight_suspects
from workbench.explore.job_slowdown import job_slowdown
from workbench.explore.kernels import kernels
from workbench.explore.length_shares import length_shares
from workbench.explore.packing_balance import packing_balance
from workbench.explore.pipeline import pipeline
from workbench.explore.row_sharding import row_sharding
from workbench.explore.table_sharding import table_sharding
from workbench.explore.time_breakdown import time_breakdown
from workbench.explore.timeline import timeline
from workbench.explore.training_speed import training_speed

__all__ = [
    "Explorer",
    "collective_waits",
    "context_sharding",
    "flight_suspects",
    "job_slowdown",
    "kernels",
    "length_shares",
    "packing_balance",
    "pipeline",
    "row_sharding",
    "static_html",
    "table_sharding",
    "time_breakdown",
    "timeline",
    "training_speed",
]
