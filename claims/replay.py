"""Claims about replays of traces: errors, steps dropped, what each kind of edge is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from claims._job_held_out import job_held_out
from claims.registry import Reading, beside, beside_named, claim, published
from workbench import analyze, load
from workbench.analyze import PassTimes

_SETS = ("kineto-hta", "kineto-h100", "kineto-resnet", "kineto-dlrm-8rank")
_QUEUED = "ns_resolution_trace"
_STREAMS = ("trace_diff/control", "trace_diff/test")
# Only these have the three steps that holding one out takes.
_STEPPED = ("df_index_resolver", "nccl_parser_config", _QUEUED, *_STREAMS)
_NO_WAITS = "inter-stream, residual"


_reading = partial(beside_named, "replay_numbers")


@cache
def _ranks(folder: Path) -> list[tuple[str, pd.DataFrame]]:
    """Load every rank with GPU work of the profiler traces below a folder."""
    files = [*folder.rglob("*.json.gz"), *folder.rglob("*kineto*.tar.gz")]
    ranks = []
    for path in sorted(file for file in files if not file.name.endswith("_et.json.gz")):
        events = load.traces(path, progress=False).events
        for rank, rows in events.groupby("rank"):
            if rows["kind"].notna().any():
                ranks.append((f"{path.relative_to(folder).as_posix()}, rank {rank}", rows))
    return ranks


@claim(
    noun="replay",
    name="a replay takes as long as the trace",
    source="every available public Kineto trace that has GPU work, replayed from its own graph",
    needs=_SETS,
)
def self_replay(*folders: Path) -> Iterator[Reading]:
    """Replay every rank of every trace from its graph, and compare times and parts."""
    tables = []
    for _, events in (rank for folder in folders for rank in _ranks(folder)):
        graph = analyze.execution_graph(events)
        tables.append(analyze.replay_fidelity(events, graph))
    table = pd.concat(tables)
    error = 100 * table["error_ratio"].abs()
    yield _reading("mean absolute error of the replayed time", error.mean())
    yield _reading("largest absolute error of the replayed time", error.max())
    steps = 100 * float(table["step_error_mean_ratio"].mean())
    yield _reading("mean absolute error from step to step", steps)
    parts_error = 100 * float(table["breakdown_error_ratio"].mean())
    yield _reading("mean error of the parts of the GPU time", parts_error)


@claim(
    noun="replay",
    name="a step from the other steps",
    source="HolisticTraceAnalysis: the traces with at least three steps",
    needs=("kineto-hta",),
)
def held_out(folder: Path) -> Iterator[Reading]:
    """Predict every step with the times of the others."""
    errors = []
    for name in _STEPPED:
        events = _only(folder, name)
        table = analyze.held_out_steps(events, analyze.execution_graph(events))
        errors.append(100 * table["error_ratio"].abs())
    means = [float(error.mean()) for error in errors]
    yield _reading("mean absolute error, one step left out", sum(means) / len(means))
    largest = max(float(error.max()) for error in errors)
    yield _reading("largest absolute error, one step left out", largest)


@claim(
    noun="replay",
    name="what the steps of the builder are worth",
    source="HolisticTraceAnalysis, tests/data: traces that need the step",
    needs=("kineto-hta",),
)
def ablations(folder: Path) -> Iterator[Reading]:
    """Leave out what a trace needs: error and explained share must both show it."""
    events = _only(folder, _QUEUED)
    build = analyze.execution_graph(events).build.set_index("step")["note"]
    limit = build["queue limit"].split()[3].replace(",", "")
    yield _reading("launches that the queue takes, V100", float(limit))
    table = analyze.graph_ablation(events, without=["queue limit"]).set_index("without")
    mean, largest = (100 * table[f"step_error_{statistic}_ratio"] for statistic in ("mean", "max"))
    yield _reading("mean error per step, all steps", mean[""], f"{_QUEUED}: mean error per step")
    yield _reading("mean error per step, without the queue limit", mean["queue limit"])
    yield _reading("largest error per step, without the queue limit", largest["queue limit"])
    yield _lost(table, "queue limit")
    for name in _STREAMS:
        events = _only(folder, name)
        cases = [("inter-stream", "residual"), "CUDA graphs"]
        table = analyze.graph_ablation(events, without=cases).set_index("without")
        error = 100 * float(table["step_error_mean_ratio"].to_dict()[_NO_WAITS])
        short = name.removeprefix("trace_diff/")
        yield _reading(f"mean error per step, without waits between streams, {short}", error)
        yield _lost(table, _NO_WAITS)
        if short == "test":
            yield _lost(table, "CUDA graphs")


def _only(folder: Path, name: str) -> pd.DataFrame:
    """Return the events of the one rank with GPU work whose trace is in that folder."""
    (events,) = (events for where, events in _ranks(folder) if where.startswith(f"{name}/"))
    return events


def _lost(table: pd.DataFrame, case: str) -> Reading:
    explained: dict[str, float] = table["explained_share"].to_dict()  # type: ignore[assignment]
    lost = 100 * (explained[""] - explained[case])
    return _reading("explained share lost", lost, f"explained share lost without {case}")


# Claims about pipeline schedules: printed bubbles and memory, and replays of two real jobs.

_SHAPES = ((4, 16), (8, 32), (16, 128))
# Forward, whole backward, its weight gradients, and an overlapped pair. The bubble of DualPipe is
# printed for parts that are equal; the others hold for any.
_EQUAL, _ANY = (1.0, 2.0, 1.0, 2.6), (1.0, 2.2, 0.7, 2.9)
# What the printed formulas say, computed without eval.
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
            costs = analyze.schedule_summary(analyze.schedule_times(schedule, times)).iloc[0]
            chunks = int(costs["chunk_count"])
            sizes = {"p": stages, "m": batches, "v": chunks, "PP": stages * chunks}
            passes = {"F": forward, "B": backward, "W": weight, "FB": pair}
            printed = _FORMULAS[row["formula"]](sizes | passes)
            label = f"{kind}, {row['what']}, {stages} stages, {batches} micro-batches"
            computed = float(costs[_COLUMNS[row["what"]]])
            yield Reading(label, printed, computed, "", 1e-9 * max(printed, 1.0), row["source"])


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
            errors[name] = job_held_out(operations).set_index("method")
        computed = errors[name][row["measure"]].loc[row["method"]]
        yield beside(row, computed, f"{name}, {row['method']}, {row['measure']}", unit="")
