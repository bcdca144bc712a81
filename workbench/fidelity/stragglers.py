"""Claims about stragglers: the slowdown of two real jobs, and what causes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench import analyze, load
from workbench.analyze.stragglers import Part
from workbench.fidelity._registry import Reading, claim

_JOBS = ("SE", "ST")
# The published replay moves single steps of SE by one transfer; ST agrees to seven digits.
_TOLERANCE = {"SE": 0.0005, "ST": 0.000001}
_SHARE_TOLERANCE = 0.05
_PARTS: Mapping[Part, str] = {"stage": "stage", "dp_rank": "dp_rank", "operation": "optype"}


@claim(
    noun="stragglers",
    name="slowdown of real jobs",
    source="arXiv:2505.05713, artifact ByteDance-Seed/StragglerAnalysis, result-*.json",
    needs=("stragglers-bytedance",),
)
def slowdown(folder: Path) -> Iterator[Reading]:
    """Replay both jobs and compare S, its shares and the slowdown of every part."""
    for name in _JOBS:
        operations = load.job_operations(folder / f"trace-{name}.parquet")
        printed = _read(folder / f"result-{name}.json")
        row = analyze.job_slowdown(operations).iloc[0]
        near = _TOLERANCE[name]
        whole = printed["blocking_slowdown"]
        yield Reading(f"{name}, S", whole, row["slowdown_ratio"], "", near)
        for sign, column in (("Ms", "last_stage_ratio"), ("Mw", "worst_workers_ratio")):
            share = _read(folder / f"{sign.lower()}-{name}.json")[sign]
            yield Reading(f"{name}, {sign}", share, row[column], "", _SHARE_TOLERANCE)
        for part, key in _PARTS.items():
            known = printed[f"blocking_decompose_by_{key}"]
            table = analyze.job_slowdown_by(operations, part)
            for label, ratio in zip(table[part].astype(str), table["slowdown_ratio"], strict=True):
                if label in known:
                    what = f"{name}, S of {part.replace('_', ' ')} {label}"
                    yield Reading(what, known[label], ratio, "", near)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
