"""Rules on a replay of a trace: what a faster host, faster kernels or no communication would give.

A sum of gaps says what was lost; only a replay says what would be gained, because other work may
take the place of the time that is saved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib.finding_rules import (
    Confidence,
    Cost,
    Finding,
    LacksDataError,
    first_of,
    rule,
)
from workbench.analyze._perfmodel.graph.execution_graph import execution_graph
from workbench.analyze._perfmodel.graph.rank_rows import GraphRules
from workbench.analyze._perfmodel.kernel_models.roofline import roofline
from workbench.analyze._perfmodel.replays.change import Change
from workbench.analyze._perfmodel.replays.fidelity import replay_fidelity, usable_graph
from workbench.analyze._perfmodel.replays.what_if import critical_path, what_if
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.rank_evidence import JobEvidence, rank_facts
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import Bundle, ExecutionGraph, JobLog

_LUMOS = "arXiv:2504.09307, Lumos: modelling of large-scale LLM training with execution graphs"
# A graph of so many events is built and replayed in seconds; longer traces give three steps.
_MOST_EVENTS = 100_000
_MOST_ERROR = 0.02
_MOST_RANKS = 3
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


class Replayed(JobEvidence):
    """The replay of one rank, and what it predicts; the rank that waits least for the others."""

    domain = "perfmodel"
    needs = ("traces",)
    job: JobLog | None = None

    @classmethod
    def of(cls, bundle: Bundle) -> Replayed | None:
        """Take the trace of a bundle if it holds GPU work that a host launched."""
        trace = bundle.trace
        if trace is None or not trace.events["kind"].notna().any():
            return None
        replayed = cls(trace)
        replayed.job = bundle.job
        return replayed if replayed.table(rank_facts)["has_launches"].any() else None

    @cached_property
    def parts(self) -> pd.DataFrame:
        """Time breakdown of each rank that has GPU work."""
        table = self.table(time_breakdown)
        return table[table["device_count"] > 0].set_index("rank")

    @cached_property
    def pacing(self) -> tuple[int, pd.DataFrame]:
        """The rank that waits least for the others, and its events."""
        rank = int(str(self.parts["exposed_communication_ns"].sort_values().index[0]))
        return rank, self.events_of(rank)

    @cached_property
    def _built(self) -> Built | str:
        """Replay the ranks with the least exposed communication until one is usable.

        Their own work is what the others wait for. An error is kept: every rule asks, and a graph
        takes seconds to fail.
        """
        first: Built | str = "no rank has GPU work"
        for rank in self.parts["exposed_communication_ns"].sort_values().index[:_MOST_RANKS]:
            try:
                of_rank = self.pacing[1] if rank == self.pacing[0] else self.events_of(int(rank))
                events = _replayable(of_rank, int(rank))
                graph = execution_graph(events)
                built = Built(int(rank), events, graph, replay_fidelity(events, graph))
                if (built.fidelity["unlaunched_share"] > GraphRules().most_unlaunched_share).any():
                    # Rules that ask for no prediction must not answer either.
                    usable_graph(graph, built.fidelity)
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
    def replay_doubt(self) -> str:
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

    @cached_property
    def roof(self) -> pd.DataFrame:
        """Operators of the rank that waits least, with the roof of each that has one."""
        rank, events = self.pacing
        devices = self.trace.devices
        table = roofline(events, devices=devices[devices["rank"] == rank])
        if table["roof_ns"].isna().all():
            notes = table.loc[table["family"] != "communication", "note"].dropna()
            reason = notes.iloc[0] if len(notes) else "no operator has a roof"
            msg = f"rank {rank}: {reason}"
            raise LacksDataError(msg)
        return table

    def gpu_hours(self, time_share: float) -> str:
        """Give a share of the steps of the job log as GPU-hours; nothing without the log."""
        if self.job is None or self.job.steps.empty:
            return ""
        steps, ranks = self.job.steps, self.trace.ranks
        hours = float((steps["end_ns"] - steps["start_ns"]).astype("float64").sum()) / 3.6e12
        world = ranks["world_size"].max()
        gpus = len(ranks) if pd.isna(world) else int(world)
        return f"; {time_share * hours * gpus:.3g} GPU-hours over {len(steps):,} logged steps"

    def finding(
        self, row: pd.Series, sentence: str, where: str, next_step: str, told_by: str = ""
    ) -> Finding:
        """Write a finding whose cost is the predicted gain."""
        gain_ns = float(row["measured_ns"] - row["predicted_ns"])
        confidence: Confidence = "high" if not self.replay_doubt else "medium"
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
            doubt=self.replay_doubt,
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
    fused = replayed.predicted(Change(kind="compute", is_fused=True))
    gain_ms, fused_ms = ((of["measured_ns"] - of["predicted_ns"]) / 1e6 for of in (row, fused))
    yield replayed.finding(
        row,
        f"A host that takes {100 * factor:.0f} % of its time would save "
        f"{gain_ms:.3g} ms {_span_of(row)}",
        f"{100 * share:.0f} % of the critical path is host time"
        + (f"; fused neighbours alone would save {fused_ms:.3g} ms" if fused_ms > 0 else ""),
        "CUDA graphs, torch.compile, larger batches, fewer Python calls per step",
        # The same idle time, with the cause that can be read without a replay.
        told_by="host_bound, tiny_kernels, synchronising_calls, data_loader, long_pauses",
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
        sentence += f", although {exposed_ns / 1e6:.3g} ms of it are exposed: "
        sentence += "other work is on the critical path"
    finding = replayed.finding(
        row,
        sentence,
        f"exposed communication {exposed_ns / 1e6:.3g} ms",
        "leave communication as it is; speed up the work on the critical path" if is_hidden
        else "overlap it: smaller buckets, prefetch, another layout of ranks",
        told_by="exposed_communication",
    )  # fmt: skip
    if is_hidden:
        finding = replace(finding, is_contrary=True)
    # What saves nothing is told for what it means, not for what it costs.
    no_cost = {"cost": None, "cost_unit": "", "cost_basis": "", "time_share": None}
    yield replace(finding, **no_cost) if is_useless else finding  # type: ignore[arg-type]


# ---- operators below the roof of their GPU ----

_ROOFLINE = "doi.org/10.1145/1498765.1498785, Roofline; NVIDIA, Matrix multiplication background"
_PRODUCTS = re.compile(r"aten::(?:addmm|mm|bmm|baddbmm)")
# PyTorch has vectorized_ and unrolled_ ones as well; this one takes any strides.
_STRIDED = re.compile(r"(?<![a-z_])elementwise_kernel<")
_ALIGNED_TO = re.compile(r"align([124])\b")
_TILE = 128
_ROW_BYTES = 16
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "fp8": 1}


class _Cause(NamedTuple):
    """Why an operator stays below its roof, as far as its numbers show, and what to do."""

    text: str
    next_step: str


_OTHER = _Cause("", "compare with another library or version; look at clocks and power caps")


def _cause(row: Any, processor_count: Any) -> _Cause:
    if _PRODUCTS.fullmatch(str(row["name"])):
        return _cause_of_product(row, processor_count)
    if row["family"] == "elementwise" and _STRIDED.search(str(row["kernel"])):
        return _Cause(
            "its kernel takes one element at a time, as it does for strided or broadcast inputs",
            "keep its inputs contiguous, or fuse it with its neighbours (torch.compile)",
        )
    if row["family"] in ("elementwise", "normalisation", "reduction"):
        return _Cause("", "fuse it with its neighbours (torch.compile), or use a fused operator")
    return _OTHER


def _cause_of_product(row: Any, processor_count: Any) -> _Cause:
    *batch, m, n = _result_of(str(row["shapes"]))
    element = _ELEMENT_BYTES.get(row["dtype"], 4)
    multiple = _ROW_BYTES // element
    if n > _TILE and n % multiple and row["dtype"] != "float32":
        return _Cause(
            f"rows of its result have {n:,} elements, not a multiple of {multiple}, so they cannot "
            f"be stored {_ROW_BYTES} bytes at once",
            f"pad this size (vocabulary, experts, heads) to {-(-n // 64) * 64:,}",
        )
    aligned = _ALIGNED_TO.search(str(row["kernel"]))
    if aligned and int(aligned[1]) < multiple:
        return _Cause(
            f"its kernel loads {aligned[1]} elements at once, as inputs are not aligned to "
            f"{_ROW_BYTES} bytes",
            f"pad the sizes of its inputs to multiples of {multiple} elements",
        )
    tiles = int(np.prod(batch, dtype=np.int64)) * -(-m // _TILE) * -(-n // _TILE)
    if pd.notna(processor_count) and tiles < processor_count:
        return _Cause(
            f"its result has {tiles} tiles of {_TILE} x {_TILE} for {processor_count} "
            "multiprocessors, so not all of them have work",
            "larger micro-batches, or one product in place of several",
        )
    return _OTHER


def _result_of(shapes: str) -> list[int]:
    """Return the sizes of the result of a matrix product."""
    left, right = [size for size in json.loads(shapes) if len(size) > 1][-2:]
    return [*left[:-1], right[-1]]


@rule(Replayed, reference=_ROOFLINE)
def below_roof(
    replayed: Replayed,
    *,
    most_ratio: float = 0.5,
    reachable_ratio: float = 0.7,
    least_share: float = 0.03,
    least_us: float = 10.0,
) -> Iterator[Finding]:
    """Operators stay far below what the peaks of their GPU allow.

    Shorter kernels are bound by their start, and left to the rules on launches. Of measured matrix
    products of 10 us and more half reach 0.7 of the roof, and one in nine stays below 0.5.
    """
    table = replayed.roof
    is_long = table["kernel_ns"] >= 1e3 * least_us * table["kernel_count"]
    slow = table[is_long & table["is_sure"] & (table["roof_ratio"] < most_ratio)]
    slow = slow.assign(gain_ns=slow["kernel_ns"] - slow["roof_ns"] / reachable_ratio)
    for _, rows in slow.groupby("family", observed=True):
        gain = _gain_of(replayed, rows, least_share)
        if gain is not None:
            yield _below_roof(replayed, rows, gain, reachable_ratio)


def _gain_of(
    replayed: Replayed, rows: pd.DataFrame, least_share: float
) -> tuple[Cost, str, str] | None:
    """Replay with these operators faster: a GPU that waits for its host gains nothing by it."""
    rank, saved_ns = replayed.pacing[0], float(rows["gain_ns"].sum())
    span_ns = float(replayed.parts["span_ns"].astype("float64")[rank])
    if saved_ns < least_share * span_ns:
        return None
    names = sorted({str(name) for name in rows["name"]})
    total_ns = float(replayed.roof.loc[replayed.roof["name"].isin(names), "kernel_ns"].sum())
    pattern, factor = "|".join(f"^{re.escape(name)}$" for name in names), 1 - saved_ns / total_ns
    try:
        row = replayed.predicted(Change(operator=pattern, factor=factor))
    except WorkbenchError:
        row = None
    if row is None or replayed.built.rank != rank:
        steps = replayed.table(step_times)
        count = int(steps.loc[steps["rank"] == rank, "gpu_ns"].notna().sum())
        share, gain_ms = saved_ns / span_ns, saved_ns / max(count, 1) / 1e6
        basis, doubt = "summed durations of its kernels", "an upper bound, as no replay fits"
    else:
        share, count = _gain_share(row), int(row["step_count"]) - 1
        gain_ms = float(row["measured_ns"] - row["predicted_ns"]) / 1e6
        basis = f"replay of the execution graph with {', '.join(names)} at {factor:.0%} of its time"
        doubt = replayed.replay_doubt
    if share < least_share:
        return None
    unit = "ms per step" if count > 0 else "ms of the trace"
    share = min(share, 1.0)
    cost: Cost = {"cost": gain_ms, "cost_unit": unit, "time_share": share}
    return cost, basis + replayed.gpu_hours(share), doubt


def _below_roof(
    replayed: Replayed, rows: pd.DataFrame, gain: tuple[Cost, str, str], reachable_ratio: float
) -> Finding:
    cost, basis, doubt = gain
    rank, devices = replayed.pacing[0], replayed.trace.devices
    device = first_of(devices[devices["rank"] == rank])
    worst = first_of(rows.nlargest(1, "gain_ns"))
    cause = _cause(worst, device["processor_count"])
    family, shapes = str(worst["family"]), str(worst["shapes"]).replace(",[]", "")
    ratio = float(rows["roof_ns"].sum() / rows["kernel_ns"].sum())
    limits = f"peaks of the data sheet, of which {reachable_ratio:.0%} count as reachable"
    return Finding(
        f"{family.capitalize()} operators reach {ratio:.0%} of the roof of the {device['name']}"
        + (f"; most time is in {worst['name']}: {cause.text}" if cause.text else ""),
        where=f"rank {rank}; most in {worst['name']} of {shapes}, bound by {worst['bound']}",
        **cost,
        cost_basis=basis,
        confidence="medium" if doubt or not cause.text else "high",
        doubt="; ".join(filter(None, (doubt, limits))),
        evidence="analyze.roofline, plot.roofline (notebook 10)",
        next_step=cause.next_step,
    )
