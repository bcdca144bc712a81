"""Claims: what the workbench computes beside what others printed.

A claim is a small function that compares numbers printed by a paper, a peer or an exact
reference with what the public functions of the workbench give for the same input. Claims
are computed when they are run; the printed numbers live in ``data/published`` and in the
data sets themselves. Each domain has a module of claims; importing this package registers
them all. ``python -m claims`` computes them.
"""

from claims import (
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
from claims._tables import FINDING_CASES, FINDING_QUALITY, RESULTS
from claims.findings import finding_cases, finding_quality
from claims.registry import (
    Claim,
    Reading,
    claim,
    claims,
    failed,
    html,
    run,
    summary,
    text,
)

__all__ = [
    "FINDING_CASES",
    "FINDING_QUALITY",
    "RESULTS",
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
    "perfmodel",
    "power",
    "pvf",
    "replay",
    "run",
    "summary",
    "text",
    "traces",
]
