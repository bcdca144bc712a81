"""Claims about stragglers: the slowdown of two real jobs, and what causes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_JOBS = ("SE", "ST")
# The published replay moves single steps of SE by one transfer; ST agrees to seven digits.
_TOLERANCE = {"SE": 0.0005, "ST": 0.000001}
# The worst workers are chosen by their own replay here, by a bound there.
_SHARE_TOLERANCE = 0.005
_PARTS: Mapping[Literal["stage", "dp_rank", "operation"], str] = {
    "stage": "stage",
    "dp_rank": "dp_rank",
    "operation": "optype",
}
_STEP_TIMES = {
    "actual_ns": "step_t_base", "replay_ns": "step_t_nodelay", "ideal_ns": "step_t_noblk"
}  # fmt: skip
_ARTIFACT = "arXiv:2505.05713, artifact ByteDance-Seed/StragglerAnalysis, result-*.json"
_SETS = ("stragglers-bytedance",)


@claim(noun="stragglers", name="slowdown of real jobs", source=_ARTIFACT, needs=_SETS)
def slowdown(folder: Path) -> Iterator[Reading]:
    """Replay both jobs and compare S, its shares and the slowdown of every part."""
    for name in _JOBS:
        operations = _job(folder, name)
        printed = _read(folder / f"result-{name}.json")
        row = analyze.job_slowdown(operations).iloc[0]
        near = _TOLERANCE[name]
        whole = printed["blocking_slowdown"]
        yield Reading(f"{name}, S", whole, row["slowdown_ratio"], "", near)
        delayed = row["actual_ns"] / row["replay_ns"]
        yield Reading(f"{name}, launch slowdown", printed["launch_slowdown"], delayed, "", near)
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


@claim(noun="stragglers", name="every step of real jobs", source=_ARTIFACT, needs=_SETS)
def steps(folder: Path) -> Iterator[Reading]:
    """Compare every step: recorded, replayed and ideal, as the largest relative error.

    Recorded times differ by what float32 seconds keep. Single steps of SE are replayed up
    to 0.07 % off: one transfer begins a little earlier there.
    """
    for name in _JOBS:
        table = analyze.job_steps(_job(folder, name)).set_index("step")
        printed = _read(folder / f"result-{name}.json")
        for column, key in _STEP_TIMES.items():
            known = pd.Series(printed[key])
            known.index = known.index.astype("int64")
            errors = (table[column] / 1e9 / known - 1).abs()
            yield Reading(f"{name}, steps compared, {key}", len(known), errors.count(), "")
            yield Reading(f"{name}, largest error of {key}", 0, errors.max(), "", 0.001)


@claim(noun="stragglers", name="map of workers", source=_ARTIFACT, needs=_SETS)
def workers(folder: Path) -> Iterator[Reading]:
    """Compare the map of ranks and stages: its correlation and its largest difference.

    The published map is a bound, the lower slowdown of a worker's rank and its stage.
    """
    for name in _JOBS:
        table = analyze.job_slowdown_by(_job(folder, name), "worker")
        printed = _read(folder / f"result-{name}.json")
        by_rank, by_stage = (
            printed[f"blocking_decompose_by_{key}"] for key in ("dp_rank", "stage")
        )
        places = zip(table["dp_rank"].astype(str), table["stage"].astype(str), strict=True)
        known = np.array([min(by_rank[rank], by_stage[stage]) for rank, stage in places])
        here = table["bound_ratio"].to_numpy(dtype=np.float64)
        yield Reading(f"{name}, correlation", 1, np.corrcoef(known, here)[0, 1], "", 0.02)
        largest = np.abs(known - here).max()
        yield Reading(f"{name}, largest difference", 0, largest, "", _TOLERANCE[name])


@claim(
    noun="stragglers",
    name="what usual measures say of real jobs",
    source="group-bys over the public traces, by hand",
    needs=_SETS,
)
def dispersion(folder: Path) -> Iterator[Reading]:
    """Compare usual measures of imbalance; the tolerance is that of the printed digits."""
    tables = {name: analyze.job_dispersion(_job(folder, name)) for name in _JOBS}
    for row in published("job_dispersion"):
        here = tables[row["job"]].set_index("measure")["value_ratio"].loc[row["measure"]]
        what, near = f"{row['job']}, {row['measure']}", float(row["tolerance"])
        yield Reading(what, float(row["value"]), float(here), "", near, row["source"])


def _job(folder: Path, name: str) -> pd.DataFrame:
    return load.job_operations(folder / f"trace-{name}.parquet")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
