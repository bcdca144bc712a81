"""Claims about pipeline schedules: printed bubbles and memory, and replays of two real jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workbench import analyze, load
from workbench.analyze import PassTimes
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_SHAPES = ((4, 16), (8, 32), (16, 128))
# Forward, whole backward, its weights' part, and an overlapped pair. The bubble of DualPipe is
# printed for parts that are equal; the others hold for any.
_EQUAL, _ANY = (1.0, 2.0, 1.0, 2.6), (1.0, 2.2, 0.7, 2.9)
# What the printed formulas say, worked out without eval.
_FORMULAS: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "(p - 1) / m": lambda x: (x["p"] - 1) / x["m"],
    "(p - 1) / (v * m)": lambda x: (x["p"] - 1) / (x["v"] * x["m"]),
    "(PP - 1) * (F + B)": lambda x: (x["PP"] - 1) * (x["F"] + x["B"]),
    "(PP - 1) * (F + B - 2 * W)": lambda x: (x["PP"] - 1) * (x["F"] + x["B"] - 2 * x["W"]),
    "(PP / 2 - 1) * (FB + B - 3 * W)": lambda x: (
        (x["PP"] / 2 - 1) * (x["FB"] + x["B"] - 3 * x["W"])
    ),
    "1": lambda _: 1,
    "2": lambda _: 2,
    "PP": lambda x: x["PP"],
    "PP + 1": lambda x: x["PP"] + 1,
}
_COLUMNS = {
    "bubble / ideal": "bubble_ratio",
    "bubble": "bubble_ns",
    "parameters": "chunk_count",
    "activations": "peak_activations_count",
}


@claim(
    noun="schedules",
    name="bubbles and memory",
    source="arXiv:2104.04473; deepseek-ai/DualPipe, README",
)
def closed_forms() -> Iterator[Reading]:
    """Lay out schedules of several sizes and compare with the printed formulas.

    PP counts chunks of the model: as many as stages with one chunk each, twice as many in
    DualPipeV. Parameters and activations are in parts of one chunk.
    """
    for row in published("pipeline_schedules"):
        kind: Any = row["schedule"]
        for stages, batches in _SHAPES:
            forward, backward, weight, pair = _EQUAL if kind == "dualpipe_v" else _ANY
            schedule = analyze.pipeline_schedule(kind, stages, batches)
            times = PassTimes(forward, backward, weight, 0.0, pair)
            found = analyze.schedule_summary(analyze.schedule_times(schedule, times)).iloc[0]
            chunks = int(found["chunk_count"])
            named: dict[str, float] = {"p": stages, "m": batches, "v": chunks}
            named |= {"PP": stages * chunks, "F": forward, "B": backward, "W": weight, "FB": pair}
            printed = _FORMULAS[row["formula"]](named)
            what = f"{kind}, {row['what']}, {stages} stages, {batches} micro-batches"
            here = float(found[_COLUMNS[row["what"]]])
            yield Reading(what, printed, here, "", 1e-9 * max(printed, 1.0), row["source"])


@claim(
    noun="schedules",
    name="replay of real jobs",
    source="ByteDance-Seed/StragglerAnalysis, data, replayed",
    needs=("stragglers-bytedance",),
)
def jobs(folder: Path) -> Iterator[Reading]:
    """Replay own steps, and predict half of the steps from the other half, 100 times.

    Tolerances say how far two replays, or random halves, are apart; nothing was fitted.
    """
    errors: dict[str, pd.DataFrame] = {}
    for row in published("job_replay"):
        name = row["job"]
        if name not in errors:
            operations = load.job_operations(folder / f"trace-{name}.parquet")
            errors[name] = analyze.job_held_out(operations).set_index("method")
        here = float(errors[name][row["measure"]].loc[row["method"]])
        what, bound = f"{name}, {row['method']}, {row['measure']}", row["bound"]
        known, near = float(row["value"]), float(row["tolerance"])
        yield Reading(what, known, here, "", near, row["source"], bound)  # type: ignore[arg-type]
