"""How long each training step took, on the host and on the GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import (
    MISSING,
    Ints,
    checked,
    gpu_work,
    grouped,
    step_numbers,
    taken,
)
from workbench.analyze._traces.breakdown import mixes
from workbench.tables import STEP_TIMES


def step_times(events: pd.DataFrame) -> pd.DataFrame:
    """List the steps of every rank with their time on the host and on the GPU.

    The host usually runs ahead, so the two differ step by step and agree over many. In
    jobs that synchronise their gradients all ranks show the same step time, also those
    that only wait; :func:`workbench.analyze.blame` tells them apart.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STEP_TIMES`, one row per rank and step, in that
        order. Host times are missing where no ``ProfilerStep`` was recorded, GPU times
        where the step started no GPU work. Empty if nothing belongs to a step.
    """
    checked(events, "start_ns", "rank", "dur_ns", "name", "category")
    host, gpu = _host_steps(events), _gpu_steps(events)
    table = host.merge(gpu, on=["rank", "step"], how="outer")
    table = table.sort_values(["rank", "step"], ignore_index=True)
    table = table.astype({name: column.dtype for name, column in STEP_TIMES.columns.items()})
    return STEP_TIMES.check(table[list(STEP_TIMES.columns)])


def _host_steps(events: pd.DataFrame) -> pd.DataFrame:
    """Read rank, step and time from the ProfilerStep rows on the host."""
    step = step_numbers(events)
    row = np.flatnonzero(step != MISSING)
    steps = pd.DataFrame(
        {
            "rank": events["rank"].to_numpy()[row].astype(np.int64),
            "step": step[row],
            "start_ns": events["start_ns"].to_numpy()[row],
            "host_ns": events["dur_ns"].to_numpy()[row],
        }
    )
    return steps.drop_duplicates(["rank", "step"])


def _gpu_steps(events: pd.DataFrame) -> pd.DataFrame:
    """Measure the GPU work of each step."""
    work = gpu_work(events, "step")
    step = taken(events["step"], work.row)
    inside = np.flatnonzero(step != MISSING)
    work = work._replace(**{name: getattr(work, name)[inside] for name in work._fields})
    groups = grouped(work.rank, step[inside])
    first = groups.smallest(work.start)
    busy: Ints = mixes(work, groups.number)[:, 1:].sum(axis=1)
    return pd.DataFrame(
        {
            "rank": groups.keys[0],
            "step": groups.keys[1],
            "gpu_start_ns": first,
            "gpu_ns": groups.largest(work.end) - first,
            "busy_ns": busy,
        }
    )
