"""Rules on a replay of a trace: what a faster host, fewer launches or no communication would give.

A sum of gaps says what was lost; only a replay says what would be gained, because other work may
take the place of the time that is saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib.finding_rules import Confidence, Finding, first_of, rule
from workbench.analyze._perfmodel.graph.execution_graph import execution_graph
from workbench.analyze._perfmodel.replays.change import Change
from workbench.analyze._perfmodel.replays.fidelity import replay_fidelity
from workbench.analyze._perfmodel.replays.what_if import critical_path, what_if
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.job_evidence import JobEvidence
from workbench.analyze._traces.rank_evidence import rank_facts
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import EDGE_KINDS, Bundle, ExecutionGraph

_LUMOS = "arXiv:2504.09307, Lumos: modelling of large-scale LLM training with execution graphs"
_GRAPHS = "pytorch.org/blog/accelerating-pytorch-with-cuda-graphs"
# A graph of so many events is built and replayed in seconds; longer traces give three steps.
_MOST_EVENTS = 100_000
_MOST_ERROR = 0.02
_MOST_RANKS = 3
_MOST_UNLAUNCHED = 0.5
_HOST = ("CPU", "gap", "call", "inter-thread", "launch")


class Built(NamedTuple):
    """A graph of one rank, and how well its replay fits."""

    rank: int
    events: pd.DataFrame
    graph: ExecutionGraph
    fidelity: pd.DataFrame


def _replayable(events: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return the events of a rank; of a long trace three steps around the median one.

    Row labels stay, as launches name their events by them.
    """
    if len(events) <= _MOST_EVENTS:
        return events
    times = step_times(events).dropna(subset="gpu_ns").sort_values("step")
    if len(times) < 3:
        msg = (
            f"rank {rank} has {len(events):,} events and no three steps to choose from; record "
            "with ProfilerStep marks, or fewer events"
        )
        raise PerformanceModelError(msg)
    length = times["gpu_ns"].astype("float64").to_numpy()[1:-1]
    middle = 1 + int(np.argsort(length, kind="stable")[len(length) // 2])
    chosen = times["step"].iloc[middle - 1 : middle + 2]
    events = events[events["step"].isin(chosen)]
    if len(events) > 3 * _MOST_EVENTS:
        msg = f"three steps of rank {rank} have {len(events):,} events, too many to replay"
        raise PerformanceModelError(msg)
    return events


def _refuse_unlaunched(rank: int, graph: ExecutionGraph) -> None:
    launched = graph.target[graph.edge_kind == EDGE_KINDS.index("launch")]
    share = 1 - float(np.isin(graph.gpu_start, launched).mean())
    if share > _MOST_UNLAUNCHED:
        msg = (
            f"rank {rank}: the trace has no launch of {100 * share:.0f} % of the GPU work, so a "
            "replay cannot tell when it could have begun; record CUDA runtime calls too"
        )
        raise PerformanceModelError(msg)


class Replayed(JobEvidence):
    """The replay of one rank, and what it predicts; the rank that waits least for the others."""

    domain = "perfmodel"
    needs = ("traces",)

    @classmethod
    def of(cls, bundle: Bundle) -> Replayed | None:
        """Take the trace of a bundle if it holds GPU work that a host launched."""
        trace = bundle.trace
        if trace is None or not trace.events["kind"].notna().any():
            return None
        replayed = cls(trace)
        return replayed if replayed.table(rank_facts)["has_launches"].any() else None

    @cached_property
    def parts(self) -> pd.DataFrame:
        """Time breakdown of each rank that has GPU work."""
        table = self.table(time_breakdown)
        return table[table["device_count"] > 0].set_index("rank")

    @cached_property
    def _built(self) -> Built | str:
        """Replay the ranks with the least exposed communication until one is usable.

        Their own work is what the others wait for. An error is kept: every rule asks, and a graph
        takes seconds to fail.
        """
        first: Built | str = "no rank has GPU work"
        for rank in self.parts["exposed_communication_ns"].sort_values().index[:_MOST_RANKS]:
            try:
                events = _replayable(self.events_of(int(rank)), int(rank))
                graph = execution_graph(events)
                _refuse_unlaunched(int(rank), graph)
                built = Built(int(rank), events, graph, replay_fidelity(events, graph))
            except WorkbenchError as error:
                return str(error)
            if built.fidelity["is_usable"].all():
                return built
            first = built if isinstance(first, str) else first
        return first

    @property
    def built(self) -> Built:
        """The rank, its events, its graph, and how well the replay fits."""
        if isinstance(self._built, str):
            raise PerformanceModelError(self._built)
        return self._built

    @cached_property
    def path(self) -> pd.DataFrame:
        """Critical path by kind of dependency: time and share."""
        rows = critical_path(self.built.events, self.built.graph)
        sums = rows.groupby("kind", observed=True)["dur_ns"].sum().sort_values(ascending=False)
        return pd.DataFrame({"dur_ns": sums, "path_share": sums / max(int(sums.sum()), 1)})

    def predicted(self, change: Change) -> pd.Series:
        """Replay with a change; refused where the replay is too far from the trace."""
        _, events, graph, fidelity = self.built
        row: pd.Series = first_of(what_if(events, graph, [change], fidelity=fidelity))
        return row

    @property
    def doubt(self) -> str:
        """Describe what speaks against the replay."""
        row = self.built.fidelity.iloc[0]
        doubts = [str(row["doubt"])] if row["doubt"] else []
        if abs(row["error_ratio"]) > _MOST_ERROR:
            doubts.append(f"the replay is {100 * row['error_ratio']:+.1f} % off the measured time")
        if len(self.table(rank_facts)) > 1:
            doubts.append(
                f"of rank {self.built.rank} alone, which waits least: another may then be last"
            )
        return "; ".join(doubts)

    def finding(
        self, row: pd.Series, sentence: str, where: str, next_step: str, told_by: str = ""
    ) -> Finding:
        """Write a finding whose cost is the predicted gain."""
        gain_ns = float(row["measured_ns"] - row["predicted_ns"])
        confidence: Confidence = "high" if not self.doubt else "medium"
        has_steps = row["step_count"] > 1
        extent = ""
        if pd.notna(row["low_ns"]):
            least, most = ((row["measured_ns"] - row[name]) / 1e6 for name in ("high_ns", "low_ns"))
            extent = f", {least:.3g} to {most:.3g} ms over {row['step_count']} steps"
        return Finding(
            sentence,
            where=f"rank {self.built.rank}; {where}",
            cost=gain_ns / 1e6,
            cost_unit="ms per step" if has_steps else "ms of the trace",
            cost_basis=f"replay of the execution graph, {row['question']}{extent}",
            time_share=min(gain_ns / float(row["measured_ns"]), 1.0),
            confidence=confidence,
            doubt=self.doubt,
            evidence="analyze.what_if, explore.critical_path (notebook 05)",
            next_step=next_step,
            told_by=told_by,
        )


def _span_of(row: pd.Series) -> str:
    return "per step" if row["step_count"] > 1 else "of the trace"


def _gain_share(row: pd.Series) -> float:
    return 1 - float(row["predicted_ns"]) / max(float(row["measured_ns"]), 1.0)


@rule(Replayed, reference=_LUMOS)
def slow_launches(
    replayed: Replayed, *, factor: float = 0.5, least_share: float = 0.02
) -> Iterator[Finding]:
    """Hosts that launch faster would shorten the step, by a replay."""
    row = replayed.predicted(Change(part="CPU", factor=factor))
    if _gain_share(row) < least_share:
        return
    share = float(replayed.path["path_share"].reindex(_HOST).sum())
    gain_ms = (row["measured_ns"] - row["predicted_ns"]) / 1e6
    yield replayed.finding(
        row,
        f"A host that takes {100 * factor:.0f} % of its time would save "
        f"{gain_ms:.3g} ms {_span_of(row)}",
        f"{100 * share:.0f} % of the critical path is host time",
        "CUDA graphs, torch.compile, larger batches, fewer Python calls per step",
    )


@rule(Replayed, reference=_GRAPHS)
def unfused_kernels(replayed: Replayed, *, least_share: float = 0.02) -> Iterator[Finding]:
    """Gaps and launches between neighbouring compute kernels lengthen the step, by a replay."""
    row = replayed.predicted(Change(kind="compute", is_fused=True))
    if _gain_share(row) < least_share:
        return
    events = replayed.built.events
    lengths = events.loc[events["kind"] == "compute", "dur_ns"]
    gain_ms = (row["measured_ns"] - row["predicted_ns"]) / 1e6
    yield replayed.finding(
        row,
        f"Compute kernels without gaps and launches between neighbours would save {gain_ms:.3g} ms "
        f"{_span_of(row)}",
        f"{len(lengths):,} compute kernels of {lengths.median() / 1e3:.3g} us (median)",
        "capture the step as a CUDA graph, or fuse pointwise kernels with torch.compile",
    )


@rule(Replayed, reference=_LUMOS)
def communication_on_path(
    replayed: Replayed, *, least_share: float = 0.05, fewest_gained: float = 0.5
) -> Iterator[Finding]:
    """Communication on the critical path, and exposed communication that is not on it."""
    events = replayed.built.events
    if not (events["kind"] == "communication").any():
        return
    row = replayed.predicted(Change(kind="communication", factor=0))
    of_rank = time_breakdown(events).iloc[0]
    measured_ns = float(row["measured_ns"])
    exposed_ns = measured_ns * float(of_rank["exposed_communication_ns"] / of_rank["span_ns"])
    gain_ns = float(row["measured_ns"] - row["predicted_ns"])
    is_hidden = exposed_ns >= least_share * measured_ns and gain_ns < fewest_gained * exposed_ns
    if gain_ns < least_share * measured_ns and not is_hidden:
        return
    saved = f"save {gain_ns / 1e6:.3g} ms {_span_of(row)}"
    is_useless = gain_ns < 0.005 * measured_ns
    if is_useless:
        saved = "save nothing"
    sentence = f"No communication at all would {saved}"
    if is_hidden:
        sentence += f", although {exposed_ns / 1e6:.3g} ms of it are exposed: other work binds"
    finding = replayed.finding(
        row,
        sentence,
        f"exposed communication {exposed_ns / 1e6:.3g} ms",
        "leave communication as it is; speed up what the critical path goes through" if is_hidden
        else "overlap it: smaller buckets, prefetch, another layout of ranks",
        told_by="" if is_hidden else "exposed_communication",
    )  # fmt: skip
    # What saves nothing is told for what it means, not for what it costs.
    no_cost = {"cost": None, "cost_unit": "", "cost_basis": "", "time_share": None}
    yield replace(finding, **no_cost) if is_useless else finding  # type: ignore[arg-type]
