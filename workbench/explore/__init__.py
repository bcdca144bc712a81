"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

from workbench.explore._panel import Explorer, static_html
from workbench.explore.collective_waits import collective_waits
from workbench.explore.kernels import kernels
from workbench.explore.row_sharding import row_sharding
from workbench.explore.table_sharding import table_sharding
from workbench.explore.time_breakdown import time_breakdown
from workbench.explore.timeline import timeline

__all__ = [
    "Explorer",
    "collective_waits",
    "kernels",
    "row_sharding",
    "static_html",
    "table_sharding",
    "time_breakdown",
    "timeline",
]
