"""Questions that can be asked of any trace, and the parts of it that can be changed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench import analyze
from workbench.analyze import Change

_LONGEST, _LABEL = 6, 44


def kinds_of(events: pd.DataFrame) -> list[str]:
    """Return the kinds of GPU work that a trace has."""
    used = set(events["kind"].dropna().unique())
    return [kind for kind in ("compute", "communication", "memory", "other") if kind in used]


def standard_questions(events: pd.DataFrame) -> list[Change]:
    """Ask what faster compute, hidden communication and copies, and a faster CPU would buy."""
    kinds = kinds_of(events)
    factors = {"compute": 0.5, "communication": 0.0, "memory": 0.0}
    asked = [Change(factor=factor, kind=kind) for kind, factor in factors.items() if kind in kinds]
    return [*asked, Change(factor=0.5, part="CPU")]


def parts_of(events: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return what can be changed: a label each, and what a :class:`Change` calls it."""
    parts: dict[str, dict[str, Any]] = {kind: {"kind": kind} for kind in kinds_of(events)}
    parts["CPU"] = {"part": "CPU"}
    longest = analyze.kernels(events).groupby("name", observed=True)["total_ns"].sum()
    for name in longest.nlargest(_LONGEST).index:
        short = _cut(str(name))
        same = sum(label.startswith(short) for label in parts)
        parts[f"{short} ({same + 1})" if same else short] = {"name": str(name)}
    return parts


def _cut(name: str) -> str:
    """Shorten a name for a menu; templates of one library differ at their ends."""
    bare = name.removeprefix("void ").replace("at::native::", "")
    return bare if len(bare) <= _LABEL else f"{bare[: _LABEL - 17]}…{bare[-16:]}"
