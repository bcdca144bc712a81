"""Claims: what the workbench computes beside what others printed.

A claim is a small function that compares numbers printed by a paper, a peer or an exact
reference with what the public functions of the workbench give for the same input. Claims
are computed when they are run; the printed numbers live in ``data/published`` and in the
data sets themselves. Each noun has a module of claims; importing this package registers
them all.
"""

from workbench.fidelity import (
    configurations,
    energy,
    execution_traces,
    flight_recorder,
    goodput,
    kernel_times,
    layout_changes,
    operator_benchmarks,
    packing,
    pvf,
    reliability,
    replay,
    schedules,
    sharding,
    step_energy,
    stragglers,
    traces,
)
from workbench.fidelity._configurations import printed_iterations
from workbench.fidelity._printed_jobs import printed_predictions
from workbench.fidelity._registry import Claim, Reading, claim, claims, failed, run
from workbench.fidelity._show import html, notebook, summary, text

__all__ = [
    "Claim",
    "Reading",
    "claim",
    "claims",
    "configurations",
    "energy",
    "execution_traces",
    "failed",
    "flight_recorder",
    "goodput",
    "html",
    "kernel_times",
    "layout_changes",
    "notebook",
    "operator_benchmarks",
    "packing",
    "printed_iterations",
    "printed_predictions",
    "pvf",
    "reliability",
    "replay",
    "run",
    "schedules",
    "sharding",
    "step_energy",
    "stragglers",
    "summary",
    "text",
    "traces",
]
