"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

from workbench.explore._panel import Explorer, static_html
from workbench.explore.collective_waits import collective_waits
from workbench.explore.job_slowdown import job_slowdown
from workbench.explore.kernels import kernels
from workbench.explore.time_breakdown import time_breakdown
from workbench.explore.timeline import timeline

__all__ = [
    "Explorer",
    "collective_waits",
    "job_slowdown",
    "kernels",
    "static_html",
    "time_breakdown",
    "timeline",
]
