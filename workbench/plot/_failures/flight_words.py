"""How figures of a hang speak of ranks and reasons."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.plot._style.text import label

CONFIDENCES = ("high", "medium", "low")
# What is said of one rank, and of several.
_SAID = {
    "never arrived": ("never arrived", "never arrived"),
    "mismatch": ("called something else than its peers", "called something else than their peers"),
    "stalled": (
        "has not completed what its peers have", "have not completed what their peers have",
    ),
    "not started": (
        "has not started what its peers have", "have not started what their peers have",
    ),
    "stopped early": ("stopped before its peers did", "stopped before their peers did"),
    "no dump": ("left no dump, and is all that is missing",) * 2,
    "deadlock": ("waits in a circle", "wait for each other in a circle"),
    "all entered": ("is in an operation that nobody completes",
                    "are in operations that nobody completes"),
}  # fmt: skip


def phrase(reason: str, count: int) -> str:
    """Say in words why one or several ranks are suspected."""
    return _SAID.get(reason, (f"stands out: {label(reason, 24)}",) * 2)[count > 1]


def named(ranks: Sequence[int]) -> str:
    """Name some ranks at the start of a sentence."""
    most = 4
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > most:
        return f"Ranks {', '.join(map(str, ranks[:most]))} and {len(ranks) - most:,} more"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
