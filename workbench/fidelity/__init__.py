"""Claims: what the workbench computes beside what others printed.

A claim is a small function that compares numbers printed by a paper, a peer or an exact
reference with what the public functions of the workbench give for the same input. Claims
are computed when they are run; the printed numbers live in ``data/published`` and in the
data sets themselves. Each domain has a module of claims; importing this package registers
them all.
"""

from workbench.fidelity import (
    communication,
    failures,
    findings,
    imbalance,
    perfmodel,
    power,
    pvf,
    replay,
    traces,
)
from workbench.fidelity.findings import finding_cases, finding_quality
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
    "communication",
    "failed",
    "failures",
    "finding_cases",
    "finding_quality",
    "findings",
    "html",
    "imbalance",
    "notebook",
    "perfmodel",
    "power",
    "printed_iterations",
    "printed_predictions",
    "pvf",
    "replay",
    "run",
    "summary",
    "text",
    "traces",
]
