"""Evidence for rules from the traces of a job: loaded whole, or reduced rank by rank."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import pandas as pd

from workbench.analyze._lib.scopes import Analysis, name_of
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.by_rank import collect, communication_of
from workbench.analyze._traces.idle import idle_time
from workbench.analyze._traces.inference import annotated_iterations
from workbench.analyze._traces.kernels import kernel_kinds, kernels
from workbench.analyze._traces.launches import copy_bandwidth
from workbench.analyze._traces.rank_evidence import (
    coverage_moments,
    gpu_gaps,
    host_calls,
    loader_calls,
    rank_facts,
    step_starts,
)
from workbench.errors import WorkbenchError
from workbench.tables import RankFiles, Trace

# All per rank, and all that any rule on traces reads besides communication.
_ANALYSES: tuple[Analysis, ...] = (
    time_breakdown, step_times, idle_time, kernels, kernel_kinds, copy_bandwidth, rank_facts,
    gpu_gaps, loader_calls, host_calls, step_starts, coverage_moments, annotated_iterations,
)  # fmt: skip


@dataclass(frozen=True)
class _Answer:
    """An analysis whose refusal is its answer, so that the rank still counts in the others."""

    analysis: Analysis

    @property
    def __name__(self) -> str:
        return name_of(self.analysis)

    def __call__(self, events: pd.DataFrame) -> pd.DataFrame | WorkbenchError:
        try:
            return self.analysis(events)
        except WorkbenchError as error:
            return error


@dataclass(frozen=True, repr=False)
class ReducedTrace(Trace):
    """A trace of which ``events`` has communication only; the rest is reduced to ``tables``."""

    files: RankFiles
    tables: dict[str, Any] = field(default_factory=dict)


def reduced(files: RankFiles, client: Any = None) -> ReducedTrace:
    """Load the ranks of a job one after the other, and keep what rules read of each."""
    tables = collect(files, [_Answer(analysis) for analysis in _ANALYSES], client).tables
    own = {column.name: tables[column.name] for column in fields(Trace) if column.name in tables}
    trace = Trace.of(events=tables["communication"], **own)
    every = {column.name: getattr(trace, column.name) for column in fields(Trace)}
    return ReducedTrace(**every, files=files, tables=tables)


class JobEvidence:
    """The traces of a job, and tables of its ranks, each computed once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._tables = dict(trace.tables) if isinstance(trace, ReducedTrace) else {}

    def table(self, analysis: Analysis) -> pd.DataFrame:
        """Return the table of an analysis of single ranks, of all of them."""
        name = name_of(analysis)
        if name not in self._tables:
            self._tables[name] = _Answer(analysis)(self.trace.events)
        answer: pd.DataFrame | WorkbenchError = self._tables[name]
        if isinstance(answer, WorkbenchError):
            raise answer
        return answer

    @cached_property
    def communication(self) -> pd.DataFrame:
        """Events of communication; of a rank without any, its first GPU work."""
        return communication_of(self.trace.events)

    def events_of(self, rank: int) -> pd.DataFrame:
        """Return the events of one rank, on its own clock; a reduced one is loaded again."""
        if isinstance(self.trace, ReducedTrace):
            return next(file for file in self.trace.files if file.rank == rank).load().events
        return self.trace.events[self.trace.events["rank"] == rank]
