"""The states of a replay: which of them holds when, summed by run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._failures.goodput_model.cover import Covered, Floats
from workbench.analyze._failures.goodput_model.goodput import (
    DEGRADED,
    EVERYBODY,
    HIT,
    LOST,
    NOBODY,
    PRODUCTIVE,
    REJOIN,
    STRAGGLER,
    WRITING,
)
from workbench.analyze._failures.goodput_model.replay import Line, limits_of
from workbench.errors import WorkbenchError
from workbench.tables import RESTART_PHASES, SLOW_TIMES

# States, and the columns of the table of failures that say how long each of them lasts.
PHASES = {"waiting for a spare": "wait_min", **RESTART_PHASES}
_MOST_CHECKPOINTS = 20_000_000


def state_minutes(line: Line, slow: pd.DataFrame | None) -> dict[tuple[str, str], Floats]:
    """Give the minutes of every state and scope, one value per run; they sum to the horizon."""
    job, edges = line.job, line.edges
    states: dict[tuple[str, str], Floats] = {}

    def add(name: str, minutes: Floats, scope: str = EVERYBODY) -> None:
        # Stalls may be called like a phase of the recovery, or like lost work.
        states[name, scope] = states.get((name, scope), 0.0) + minutes

    outages = line.phase_times(line.outages, limits_of(line.strikes.phases), None)
    for name, minutes in zip(PHASES, outages, strict=True):
        add(name, minutes)
    stall_ages = np.concatenate(([0.0], np.cumsum(list(job.stall_phases.values()))))
    ages = np.broadcast_to(stall_ages, (len(line.strikes), len(stall_ages)))
    stalls = line.phase_times(line.stalls, ages, Covered(line.outages))
    for name, minutes in zip(job.stall_phases, stalls, strict=True):
        add(name, minutes)
    running = np.diff(line.stopped.free_before(edges))
    before_rejoin = np.diff(Covered(line.outage_or_stall).free_before(edges))
    add(REJOIN, np.maximum(before_rejoin - running, 0.0))
    down = line.down
    out = line.stopped.free_before(down.end) - line.stopped.free_before(down.start)
    degraded = line.per_run(down.owner, out) / job.replicas
    add(DEGRADED, degraded, HIT)
    worked = np.maximum(running - degraded, 0.0)
    written, lost = _checkpoints(line)
    slowed = _slowed(line, slow) * (worked - written - lost) / np.maximum(worked, 1e-300)
    for name, minutes in ((WRITING, written), (LOST, lost), (STRAGGLER, slowed)):
        add(name, minutes)
    return {(PRODUCTIVE, NOBODY): worked - written - lost - slowed, **states}


def _checkpoints(line: Line) -> tuple[Floats, Floats]:
    """Give the minutes of writing checkpoints, and of work that a stop of all undid, by run."""
    work, write = line.job.checkpoint_interval_min, line.job.checkpoint_write_min
    if work is None:
        return np.zeros(line.run_count), np.zeros(line.run_count)
    run, begin, end, is_last = _stretches(line)
    first, last = line.stopped.free_before(begin), line.stopped.free_before(end)
    cycle = work + write
    whole = np.floor((last - first) / cycle + 1e-12)
    if whole.sum() > _MOST_CHECKPOINTS:
        msg = (
            f"checkpoint_interval_min={work:g} means {whole.sum():,.0f} checkpoints; "
            f"replay at most {_MOST_CHECKPOINTS:,}: fewer runs, or a longer interval"
        )
        raise WorkbenchError(msg)
    rest = np.maximum(last - first - whole * cycle, 0.0)
    undone_from = first + whole * cycle
    undone_to = undone_from + np.minimum(rest, work)
    if not len(line.down.start):
        written = whole * write + np.maximum(rest - work, 0.0)
        undone = undone_to - undone_from
    else:
        number = np.repeat(np.arange(len(whole)), whole.astype(np.int64))
        nth = np.arange(len(number)) - np.repeat(np.cumsum(whole) - whole, whole.astype(np.int64))
        saved = first[number] + nth * cycle + work
        weights = _worked(line, saved, saved + write)
        written = np.bincount(number, weights=weights, minlength=len(whole)).astype(np.float64)
        written += _worked(line, undone_to, undone_to + np.maximum(rest - work, 0.0))
        undone = _worked(line, undone_from, undone_to)
    undone = np.where(is_last, 0.0, undone)
    count = line.run_count
    return (
        np.bincount(run, weights=written, minlength=count),
        np.bincount(run, weights=undone, minlength=count),
    )


def _worked(line: Line, first: Floats, last: Floats) -> Floats:
    """Give the capacity between two readings of the clock that stands still with the job."""
    points = line.stopped.point_of(np.concatenate([first, last]))
    before, after = np.split(line.capacity_before(points), 2)
    worked: Floats = after - before
    return worked


def _stretches(line: Line) -> tuple[Floats, Floats, Floats, Floats]:
    """Give the times between stops of all: run, begin, end, and whether the run ends there."""
    edges, outages = line.edges, line.outages
    count = line.run_count
    strikes = line.strikes
    # A restart that takes no time still undoes work.
    at_once = np.flatnonzero((strikes.replica < 0) & (strikes.down <= 0) & (strikes.time >= 0))
    start = np.concatenate([edges[:-1], outages.start, line.origin[at_once]])
    end = np.concatenate([edges[:-1], outages.end, line.origin[at_once]])
    run = np.concatenate([np.arange(count), strikes.run[outages.owner], strikes.run[at_once]])
    order = np.lexsort((np.arange(len(start)), start, run))
    start, end, run = start[order], end[order], run[order]
    following = np.append(start[1:], edges[-1])
    is_last = np.append(run[1:] != run[:-1], True)
    following = np.where(is_last, edges[run + 1], following)
    kept = following > end
    return run[kept], end[kept], following[kept], is_last[kept]


def _slowed(line: Line, slow: pd.DataFrame | None) -> Floats:
    """Give the work that stragglers cost, by run."""
    if slow is None or SLOW_TIMES.check(slow).empty:
        return np.zeros(line.run_count)
    if slow["run"].max() >= line.run_count:
        msg = f"slow_times has run {slow['run'].max()}, but failures are of {line.run_count} runs"
        raise WorkbenchError(msg)
    begin = line.edges[slow["run"].to_numpy(dtype=np.int64)]
    start = begin + np.clip(slow["start_min"].to_numpy(), 0, line.horizon)
    end = begin + np.clip((slow["start_min"] + slow["dur_min"]).to_numpy(), 0, line.horizon)
    cuts = np.unique(np.concatenate([line.edges, start, end]))
    first, last = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    speed = slow["speed_ratio"].to_numpy()
    pace = np.ones(len(cuts) - 1)
    # The slowest of several sets the pace: it is written last.
    for row in np.argsort(-speed).tolist():
        pace[first[row] : last[row]] = speed[row]
    lost = np.diff(line.capacity_before(cuts)) * (1 - pace)
    run = np.searchsorted(line.edges, cuts[:-1], side="right") - 1
    return np.bincount(run, weights=lost, minlength=line.run_count)
