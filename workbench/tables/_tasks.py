"""Execution graphs as two plain tables: what is done, and what must be done before it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._table import Column, Table

TASKS = Table(
    "tasks",
    "One row per piece of work of an execution graph.",
    {
        "task": Column("int64", "number of the task", lower=0),
        "rank": Column("int32", "global rank", lower=0),
        "event": Column(
            "Int64",
            "where it comes from: row label in the events table, or id of the node of an "
            "execution trace",
            nullable=True,
        ),
        "name": Column("category", "name as recorded"),
        "category": Column("category", "profiler category, or type of the node"),
        "start_ns": Column("Int64", "start, if recorded", nullable=True),
        "dur_ns": Column(
            "Int64", "time of its own, without what it called", lower=0, nullable=True
        ),
        "stream": Column("Int64", "GPU stream, of GPU work", nullable=True),
        "thread": Column("category", "thread, of work on a CPU", nullable=True),
    },
)

TASK_EDGES = Table(
    "task_edges",
    "One row per dependency between tasks: the source ends before the target starts.",
    {
        "src": Column("int64", "task that comes first", lower=0),
        "dst": Column("int64", "task that waits", lower=0),
        "kind": Column("category", "why it waits: data, control, thread order, launch, ..."),
        "is_inferred": Column("bool", "guessed from order or times, not read from the trace"),
    },
)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """An execution graph as tables TASKS and TASK_EDGES, and what makes it doubtful."""

    tasks: pd.DataFrame
    edges: pd.DataFrame
    cyclic: tuple[int, ...] = ()
    """Tasks on cycles or between them, which can never all be done."""
    doubts: tuple[str, ...] = ()
    """What a replay of it would get wrong, in words."""
