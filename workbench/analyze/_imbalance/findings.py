"""Rules on recorded job operations and on document lengths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.jobs.stragglers import (
    complete_steps,
    job_slowdown,
    job_slowdown_by,
)
from workbench.analyze._lib.finding_rules import Cost, Finding, first_of, needs, rows_of, rule
from workbench.tables import Bundle

_WHATIF = (
    "arXiv:2505.05713, Understanding stragglers in large model training using what-if analysis"
)
_BUBBLE = "arXiv:2104.04473, Megatron-LM, section 2.2"
# The column of the slowdown that a cause explains, and the verdict that goes with it.
_CAUSES = {
    "slow workers": ("slow_workers_ratio", "worker"),
    "last stage": ("last_stage_ratio", "last stage"),
    "network": ("communication_ratio", "communication"),
    "pauses": ("pauses_ratio", "pauses"),
    "sequence lengths": ("micro_batches_ratio", "sequence lengths"),
}
# Jobs that lose less have a cause as well; the study names none below 1.1.
_STRAGGLING_FROM = 1.015
# Noise of 1 % lowers the correlation of micro-batches that differ by a few per cent only.
_CORRELATED_FROM = 0.8
_LEAST_OF_WORST = 0.3
# Rules by the verdict on a slowdown: a bubble beyond that of the schedule is waiting for these.
_TOLD_BY = {
    "worker": "slow_workers",
    "last stage": "last_stage",
    "sequence lengths": "sequence_lengths",
    "communication": "slow_network",
    "pauses": "pauses",
}
_WLB = "arXiv:2503.17924, WLB-LLM: workload-balanced 4D parallelism"


class Operated:
    """The slowdown of a job that was recorded operation by operation."""

    domain = "imbalance"
    needs = ("job operations",)

    def __init__(self, operations: pd.DataFrame) -> None:
        self.operations = operations

    @classmethod
    def of(cls, bundle: Bundle) -> Operated | None:
        """Take the operations of a bundle."""
        table = bundle.operations
        return cls(table) if table is not None and len(table) else None

    @cached_property
    def complete(self) -> pd.DataFrame:
        """The steps and ranks that were recorded whole; a replay needs every operation."""
        return complete_steps(self.operations)

    @cached_property
    def slowdown(self) -> Any:
        """How much slower the job is than with equal operations, and why."""
        return first_of(
            job_slowdown(
                self.complete,
                straggling_from=_STRAGGLING_FROM,
                correlated_from=_CORRELATED_FROM,
            )
        )

    @cached_property
    def bubble(self) -> _Bubble | None:
        """How long stages stand idle; None without a pipeline."""
        table = self.complete
        compute = table[table["operation"].astype(str).str.endswith("compute")]
        stages = int(table["stage"].nunique())
        if stages < 2 or compute.empty:
            return None
        worker = compute.groupby(["step", "dp_rank", "stage"], observed=True)
        end = (table["start_ns"] + table["dur_ns"]).groupby(table["step"]).max()
        length = end - table.groupby("step")["start_ns"].min()
        busy = worker["dur_ns"].sum()
        idle = 1 - busy / length.reindex(busy.index.get_level_values("step")).to_numpy()
        chunks = max(float(worker["chunk"].nunique().median()), 1.0)
        return _Bubble(
            float(idle.median()), stages, float(worker["micro_batch"].nunique().median()), chunks
        )

    @property
    def excess_share(self) -> float:
        """Share of the step that equal operations would save."""
        return float(self.slowdown["waste_ratio"])

    def cost(self, share: float) -> Cost:
        """Return a share of the step as ms per step."""
        return {
            "cost": max(share, 0.0) * float(self.slowdown["actual_ns"]) / 1e6,
            "cost_unit": "ms per step",
            "time_share": min(max(share, 0.0), 1.0),
        }

    @property
    def doubt(self) -> str:
        """Doubts about the recorded job."""
        note = self.slowdown["note"]
        return "" if pd.isna(note) else str(note)


class _Bubble(NamedTuple):
    """The idle share of a step, and the sizes that set how much of it the schedule has by design.

    A schedule of p stages with m micro-batches in v chunks idles (p - 1) / (v m + p - 1) of it.
    """

    share: float
    stages: int
    micro_batches: float
    chunks: float

    def by_design(self, factor: float = 1.0) -> float:
        """Return the idle share of the schedule with some times as many micro-batches."""
        batches = factor * self.micro_batches * self.chunks
        return (self.stages - 1) / (batches + self.stages - 1)

    def gain(self, factor: float) -> float:
        """Return the share of the step that as many micro-batches of equal work in all save."""
        return 1 - (1 - self.by_design()) / (1 - self.by_design(factor))


class Documents:
    """The lengths of the documents of a training set."""

    domain = "imbalance"
    needs = ("document lengths",)

    def __init__(self, lengths: pd.DataFrame) -> None:
        self.tokens = lengths["length_tokens"].to_numpy("float64")

    @classmethod
    def of(cls, bundle: Bundle) -> Documents | None:
        """Take the document lengths of a bundle."""
        table = bundle.document_lengths
        return cls(table) if table is not None and len(table) else None


class _Explained(NamedTuple):
    """How much of the slowdown goes with one cause made ideal, and of the step."""

    of_slowdown: float
    of_step: float

    @property
    def words(self) -> str:
        """Describe how much of the slowdown it is; never more than all."""
        return "all" if self.of_slowdown >= 0.995 else f"{self.of_slowdown:.0%}"

    @property
    def doubt(self) -> str:
        """Explain why a cause may gain more than there is to gain."""
        if self.of_slowdown < 1.005:
            return ""
        return (
            "made ideal, it saves more than equal operations everywhere do: their mean has the "
            "slow ones in it"
        )


def _doubts(*doubts: str) -> str:
    return "; ".join(filter(None, doubts))


def _explained(
    operated: Operated, cause: str, least_share: float, least_explained: float
) -> _Explained | None:
    """Return how much one cause explains; None if too little or if the verdict is another."""
    column, verdict = _CAUSES[cause]
    explained = operated.slowdown[column]
    if pd.isna(explained) or operated.slowdown["verdict"] not in (verdict, "other"):
        return None
    share = float(explained) * operated.excess_share
    if explained < least_explained or share < least_share:
        return None
    return _Explained(float(explained), share)


@rule(Operated, reference=_WHATIF)
def slow_workers(
    operated: Operated, *, least_share: float = 0.02, least_explained: float = 0.5
) -> Iterator[Finding]:
    """A few workers are slow in every operation."""
    explained = _explained(operated, "slow workers", least_share, least_explained)
    if explained is None:
        return
    table = job_slowdown_by(operated.complete, "worker").head(3)
    # Workers far behind the slowest one are not what slows the job down.
    excess = table["slowdown_ratio"] - 1
    slowest = table[excess >= _LEAST_OF_WORST * excess.max()]
    named = ", ".join(
        f"DP rank {int(row.dp_rank)} stage {int(row.stage)}" for row in rows_of(slowest)
    )
    yield Finding(
        f"A few slow workers explain {explained.words} of the slowdown",
        where=f"slowest: {named}",
        **operated.cost(explained.of_step),
        cost_basis="replayed step with the slow workers as fast as the others",
        doubt=_doubts(explained.doubt, operated.doubt),
        evidence="analyze.job_slowdown_by, plot.job_slowdown_by (notebook 02)",
        next_step="look at the hosts of these workers: clocks, neighbours, ECC",
    )


@rule(Operated, reference=_WHATIF)
def last_stage(
    operated: Operated, *, least_share: float = 0.02, least_explained: float = 0.5
) -> Iterator[Finding]:
    """The last pipeline stage has more work than the others."""
    explained = _explained(operated, "last stage", least_share, least_explained)
    if explained is None:
        return
    yield Finding(
        f"The last pipeline stage explains {explained.words} of the slowdown",
        where=f"stage {int(operated.operations['stage'].max())}",
        **operated.cost(explained.of_step),
        cost_basis="replayed step with the last stage as fast as the mean of all",
        doubt=_doubts(explained.doubt, operated.doubt),
        evidence="analyze.job_slowdown, plot.job_slowdown (notebook 02)",
        next_step="move layers off the stage with the logits and the loss",
    )


@rule(Operated, reference=_WHATIF)
def sequence_lengths(
    operated: Operated,
    *,
    least_share: float = 0.02,
    least_explained: float = 0.5,
    least_correlation: float = 0.8,
) -> Iterator[Finding]:
    """Micro-batches of unequal sequence lengths."""
    correlation = operated.slowdown["forward_backward_correlation"]
    if pd.isna(correlation) or float(correlation) < least_correlation:
        return
    explained = _explained(operated, "sequence lengths", 0.0, least_explained)
    if explained is None or operated.excess_share < least_share:
        return
    yield Finding(
        "Micro-batches take unequal time, forward and backward alike: unequal sequence lengths",
        where=f"all workers, correlation {float(correlation):.2f}",
        **operated.cost(explained.of_step),
        cost_basis="replayed step with all micro-batches of a worker at its mean",
        confidence="high" if operated.slowdown["verdict"] == "sequence lengths" else "medium",
        doubt=_doubts(explained.doubt, operated.doubt),
        evidence="analyze.job_micro_batches, plot.job_micro_batches (notebook 02)",
        next_step="balance attention over micro-batches: pack by squared length",
    )


@rule(Operated, reference=_WHATIF)
def slow_network(
    operated: Operated, *, least_share: float = 0.02, least_explained: float = 0.5
) -> Iterator[Finding]:
    """Transfers and collectives of unequal length explain the slowdown."""
    explained = _explained(operated, "network", least_share, least_explained)
    if explained is None:
        return
    table = job_slowdown_by(operated.complete, "operation")
    worst = table[~table["operation"].astype(str).str.contains("compute")].head(1)
    yield Finding(
        f"Communication explains {explained.words} of the slowdown",
        where=", ".join(f"most in {row.operation}" for row in rows_of(worst)),
        **operated.cost(explained.of_step),
        cost_basis="replayed step with all transfers and collectives equal",
        doubt=_doubts(explained.doubt, operated.doubt),
        evidence="analyze.job_slowdown_by, plot.job_slowdown_by (notebook 02)",
        next_step="look for a flapping link or a congested switch: nccl-tests by node pair",
    )


@rule(Operated, reference=_WHATIF)
def pauses(
    operated: Operated, *, least_share: float = 0.02, least_explained: float = 0.3
) -> Iterator[Finding]:
    """Single computations pause for long: garbage collection."""
    explained = _explained(operated, "pauses", least_share, least_explained)
    if explained is None:
        return
    yield Finding(
        f"A few far longer computations explain {explained.words} of the slowdown",
        where="single operations of any worker",
        **operated.cost(explained.of_step),
        cost_basis="replayed step with the longest computations at the median of their kind",
        confidence="medium",
        doubt=_doubts(
            "garbage collection is the usual cause, not the only one",
            explained.doubt,
            operated.doubt,
        ),
        evidence="analyze.job_slowdown, plot.job_slowdown (notebook 02)",
        next_step="plan Python's garbage collection at the same step on all workers",
    )


@rule(Operated, reference=_BUBBLE)
def pipeline_bubble(
    operated: Operated, *, least_share: float = 0.1, least_gain_share: float = 0.15
) -> Iterator[Finding]:
    """Pipeline stages stand idle beyond their schedule, or it has too few micro-batches."""
    bubble = operated.bubble
    if bubble is None:
        return
    where = f"{bubble.stages} stages, {bubble.micro_batches:.0f} micro-batches" + (
        f" in {bubble.chunks:.0f} chunks" if bubble.chunks > 1 else ""
    )
    beyond = bubble.share - bubble.by_design()
    if beyond >= least_share:
        yield Finding(
            f"Pipeline stages stand idle for {bubble.share:.0%} of the step; their schedule alone "
            f"would leave {bubble.by_design():.0%}",
            where=where,
            **operated.cost(beyond),
            cost_basis="idle time of a stage beyond the bubble of 1F1B, median over stages and "
            "steps",
            confidence="medium",
            doubt=_doubts("includes data-parallel communication", operated.doubt),
            evidence="analyze.job_schedule, plot.job_schedule (notebook 02)",
            next_step="look at which operation the stages wait for: unequal stages, slow "
            "transfers, or data-parallel communication that nothing hides",
            told_by=_TOLD_BY.get(str(operated.slowdown["verdict"]), ""),
        )
    # Far less idle time than that of 1F1B is that of another schedule, with other gains.
    if bubble.gain(2) >= least_gain_share and bubble.share > 0.8 * bubble.by_design():
        yield Finding(
            f"{bubble.micro_batches:.0f} micro-batches leave {bubble.by_design():.0%} of the step "
            f"as bubble by design; {2 * bubble.micro_batches:.0f} would leave "
            f"{bubble.by_design(2):.0%}",
            where=where,
            **operated.cost(bubble.gain(2)),
            cost_basis="1F1B with twice as many micro-batches of half the size",
            confidence="medium",
            doubt="no fault of the cluster; smaller micro-batches may compute less efficiently",
            evidence="analyze.job_schedule, plot.job_schedule (notebook 02)",
            next_step="split the batch into more micro-batches, or interleave the stages",
        )


@rule(Documents, reference=_WLB)
def uneven_documents(
    documents: Documents, *, context_tokens: float = 131072, contexts: float = 8,
    least_share: float = 0.1,
) -> Iterator[Finding]:  # fmt: skip
    """Packed contexts of equal length carry unequal attention."""
    tokens = np.minimum(documents.tokens, context_tokens)
    together = int(contexts)
    # Plain packing: a piece of a document counts to the context in which its middle lies.
    middle = np.cumsum(tokens) - tokens / 2
    work = np.bincount((middle // context_tokens).astype(int), weights=tokens**2)
    step_count = len(work) // together
    needs(step_count, 4, "steps of packed contexts")
    by_step = work[: step_count * together].reshape(step_count, together)
    share = float((1 - by_step.mean(axis=1) / by_step.max(axis=1)).mean())
    if share < least_share:
        return
    full = int((documents.tokens >= context_tokens).sum())
    yield Finding(
        f"Ranks with equal tokens wait {share:.0%} of the attention time for the heaviest context",
        where=f"{len(tokens):,} documents packed into contexts of {context_tokens / 1024:.0f}K, "
        f"{together} at a time" + (f"; {full:,} of them fill a context" if full else ""),
        cost=100 * share,
        cost_unit="% of the attention time",
        cost_basis="squared lengths: 1 - mean / largest of the contexts of a step",
        confidence="medium",
        doubt="holds for plain packing at this context; attention is only part of a step",
        evidence="analyze.packing_balance, plot.packing_balance (notebook 02)",
        next_step="let long documents wait (delay queues), or shard contexts per document",
    )
