"""Claims: what the workbench computes beside what others printed.

A claim is a small function that compares numbers printed by a paper, a peer or an exact
reference with what the public functions of the workbench give for the same input. Claims
are computed when they are run; the printed numbers live in ``data/published`` and in the
data sets themselves. Each noun has a module of claims; importing this package registers
them all.
"""

from workbench.fidelity import (
    energy,
    flight_recorder,
    goodput,
    power_swings,
    provisioning,
    pvf,
    reliability,
    replay,
    step_energy,
    traces,
)
from workbench.fidelity import imbalance as packing
from workbench.fidelity import imbalance as sharding
from workbench.fidelity import imbalance as stragglers
from workbench.fidelity import perfmodel as configurations
from workbench.fidelity import perfmodel as kernel_times
from workbench.fidelity import perfmodel as layout_changes
from workbench.fidelity import perfmodel as operator_benchmarks
from workbench.fidelity import replay as schedules
from workbench.fidelity import traces as execution_traces
from workbench.fidelity.perfmodel import printed_iterations, printed_predictions
from workbench.fidelity.registry import (
    Claim,
    Reading,
    claim,
    claims,
    failed,
    html,
    notebook,
    run,
    summary,
    text,
)

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
    "power_swings",
    "printed_iterations",
    "printed_predictions",
    "provisioning",
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
