"""Units in which traces are compared that mark no steps: a range that repeats, or a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.diff import short_name
from workbench.analyze._traces.modules import Tree, attributed, host_ranges, stable_name
from workbench.tables import Bundle, Trace

PER_S = " per second"
TOTAL, CALL = "whole trace", "kernel call"
BUSY = ("time by kind" + PER_S, "GPU busy")
# Windows of time stand for steps; each holds some kernels, or it says little.
_MOST_WINDOWS, _KERNELS_PER_WINDOW = 20, 10
# A range stands for a step if it repeats, and most GPU work is launched in it.
_FEWEST_ITERATIONS, _LEAST_COVERED = 3, 0.5
_MOST_RANGES = 20
_STARTS_KERNEL = r"Launch\w*Kernel|GraphLaunch"
# At the ends of a trace some launches always lack their kernels.
_LEAST_DROPPED = 0.01

_PARTS = {
    "busy_ns": BUSY[1],
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
}

Samples = Iterator[tuple[tuple[str, str], NDArray[np.float64]]]


def by_range(run_a: Bundle, run_b: Bundle) -> tuple[str, Bundle, Bundle] | None:
    """Take the range that repeats in both traces and launches most GPU work as the step."""
    ranges = [_ranges(run.trace) if run.trace else {} for run in (run_a, run_b)]
    first, second = ranges
    both = {name: min(first[name][0], second[name][0]) for name in first if name in second}
    if not both or max(both.values()) < _LEAST_COVERED:
        return None
    name = max(both, key=lambda name: both[name])
    runs = [
        dataclasses.replace(run, trace=dataclasses.replace(run.trace, events=sides[name][1]))
        for run, sides in zip((run_a, run_b), ranges, strict=True)
        if run.trace is not None
    ]
    return name, runs[0], runs[1]


def _ranges(trace: Trace) -> dict[str, tuple[float, pd.DataFrame]]:
    """Return for each range that repeats its share of the GPU work, and events with such steps."""
    events = trace.events
    marks = events[host_ranges(events)]
    if marks.empty:
        return {}
    names = marks["name"].map({name: stable_name(str(name)) for name in marks["name"].unique()})
    counts = (
        marks.groupby([names.astype(str).rename("range"), "rank"]).size().groupby("range").min()
    )
    total = marks["dur_ns"].groupby(names.astype(str)).sum()
    longest = total[counts[counts >= _FEWEST_ITERATIONS].index].nlargest(_MOST_RANGES)
    ranges = {}
    work = events["kind"].notna()
    for name in longest.index:
        if (iterated := _iterated(events, marks[(names == name).to_numpy()])) is not None:
            inside = work & iterated["step"].notna()
            share = events["dur_ns"][inside].sum() / max(events["dur_ns"][work].sum(), 1)
            ranges[str(name)] = (float(share), iterated)
    return ranges


def _iterated(events: pd.DataFrame, marks: pd.DataFrame) -> pd.DataFrame | None:
    """Return events whose steps are ranges that follow each other; None if they overlap.

    GPU work is of the step that launched it.
    """
    time = events["start_ns"].to_numpy(copy=True)
    work = np.flatnonzero(events["kind"].notna())
    launch = arrays.launches_of(events, work)
    has_launch = launch != MISSING
    time[work[has_launch]] = time[launch[has_launch]]
    step, rank = np.full(len(events), MISSING), events["rank"].to_numpy()
    marks = marks.sort_values(["rank", "start_ns"])
    number = marks.groupby("rank").cumcount()
    for key, of_rank in marks.groupby("rank"):
        begin = of_rank["start_ns"].to_numpy()
        end = begin + of_rank["dur_ns"].to_numpy()
        if (begin[1:] < end[:-1]).any():
            return None
        rows = np.flatnonzero(rank == key)
        at = np.searchsorted(begin, time[rows], "right") - 1
        step[rows] = np.where((at >= 0) & (time[rows] < end[at]), at, MISSING)
    names = events["name"].astype(object).where(events["step"].isna() | events["kind"].notna())
    names = names.fillna("mark of a step").where(~events.index.isin(marks.index))
    names = names.fillna("ProfilerStep#" + number.astype(str))
    return events.assign(name=names.astype("category"), step=arrays.nullable(step, "Int32").array)


def per_second(trace: Trace) -> Samples:
    """Return the samples of windows of time [ms per second], of calls [ms], and totals [ms]."""
    events = trace.events
    joined = attributed(events, by_rank=False)
    work = joined.work
    ranks = np.unique(work.rank)
    first = pd.Series(work.start).groupby(work.rank).transform("min").to_numpy()
    span = int((work.end - first).max())
    count = int(np.clip(len(work.row) / len(ranks) / _KERNELS_PER_WINDOW, 1, _MOST_WINDOWS))
    window = np.minimum((work.start - first) * count // max(span, 1), count - 1)
    scale = 1e3 / (span / count) / len(ranks)
    dur = pd.Series(work.end - work.start)
    spelled = [short_name(str(name)) for name in events["name"].cat.categories]
    name = np.array(spelled, dtype=object)[arrays.codes(events["name"])[work.row]]
    path = np.array(_paths(joined.tree), dtype=object)[joined.node]

    def sums(quantity: str, label: NDArray[np.object_]) -> Samples:
        for text, rows in pd.Series(window).groupby(label):
            row = np.bincount(rows, weights=dur[rows.index], minlength=count)
            yield (quantity + PER_S, str(text)), (row * scale).astype(np.float64)

    step = pd.Series(pd.NA, index=events.index, dtype="Int32")
    step.iloc[work.row] = window
    parts = time_breakdown(events.assign(step=step), by="step").groupby("step")
    for column, label in _PARTS.items():
        values = parts[column].sum().reindex(range(count), fill_value=0)
        yield (BUSY[0], label), values.to_numpy("float64") * scale
    yield from sums("kernel", name)
    if len(set(path)) > 1:
        yield from sums("module or range", path)
    for text, calls in dur.groupby(name):
        yield (CALL, str(text)), calls.to_numpy("float64") / 1e6
    yield (TOTAL, "first to last GPU work"), np.array([span / 1e6])
    yield (TOTAL, "GPU work, mean of the ranks"), np.array([float(dur.sum()) / 1e6 / len(ranks)])


def _paths(tree: Tree) -> list[str]:
    """Return the path of every node from the one below the root; parents come first."""
    paths: list[str] = []
    for name, parent in zip(tree.name, tree.parent, strict=True):
        is_below = parent != MISSING and tree.parent[parent] != MISSING
        paths.append((f"{paths[parent]} > " if is_below else "") + stable_name(name))
    return paths


def dropped_launches(events: pd.DataFrame) -> pd.DataFrame:
    """Count by step the launches, and those whose kernels were not recorded; -1 is no step."""
    is_call = events["category"].isin(LAUNCH_CATEGORIES)
    calls = events[is_call & events["name"].astype(str).str.contains(_STARTS_KERNEL)]
    used = events.loc[events["kind"].notna(), "launch"]
    # Without any launch that is joined, the trace states none.
    lost = ~calls.index.isin(used.dropna()) & used.notna().any()
    rows = pd.DataFrame({"step": calls["step"].fillna(MISSING), "lost": lost})
    return rows.groupby("step")["lost"].agg(["size", "sum"])


def recorded_steps(events: pd.DataFrame, times: pd.DataFrame) -> pd.Index:
    """Return the steps whose GPU work was recorded on all ranks, and not just some of it."""
    is_whole = times["gpu_ns"].notna().groupby(times["step"]).all()
    known = is_whole.index[is_whole]
    counts = dropped_launches(events).reindex(known, fill_value=0)
    whole = known[(counts["sum"] <= _LEAST_DROPPED * counts["size"]).to_numpy()]
    return whole if len(whole) else known


def recording_doubts(events: pd.DataFrame) -> Iterator[str]:
    """Tell of kernels of a trace that were not recorded."""
    times = step_times(events)
    count, used = times["step"].nunique(), len(recorded_steps(events, times))
    if used < count:
        yield (
            f"the kernels of {count - used} of {count} steps were not recorded, or not all; times "
            "of kernels are means over the other steps"
        )
    counts = dropped_launches(events).sum()
    if counts["sum"] > _LEAST_DROPPED * counts["size"]:
        yield f"the kernels of {counts['sum']:,} of {counts['size']:,} launches were dropped"
