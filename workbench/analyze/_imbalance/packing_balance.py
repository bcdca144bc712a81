"""Balance of the work of micro-batches, and the cost of a way of packing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.progress import progress as progress_bar
from workbench.analyze._imbalance.packers import PackingPlan, short_tokens
from workbench.analyze._imbalance.packing import Packing, micro_batches, packing
from workbench.errors import WorkbenchError
from workbench.tables import PACKING_BALANCE, TUNED_PACKING


def packing_balance(
    packings: Packing | Iterable[Packing], *, edge_batches: int = 20
) -> pd.DataFrame:
    """Compare ways of packing: how even the work is, and what it costs.

    Parameters
    ----------
    packings
        One or several results of :func:`packing`.
    edge_batches
        Batches dropped at both ends: queues begin empty and end full. With fewer than
        three times as many, a sixth of the batches.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PACKING_BALANCE`, one row per packing.

    Raises
    ------
    WorkbenchError
        If a packing has no batch.

    Notes
    -----
    Imbalance = max / mean of the work of the micro-batches of a global batch, averaged over
    batches: what the paper prints as Max_Latency x PP / Total_Latency. Balanced tokens are
    not balanced work, so both are given.

    References
    ----------
    arXiv:2503.17924, Table 2.
    """
    if edge_batches < 0:
        msg = f"edge_batches must be 0 or more, not {edge_batches}"
        raise WorkbenchError(msg)
    several = [packings] if isinstance(packings, Packing) else list(packings)
    return PACKING_BALANCE.of([_balance(result, edge_batches) for result in several])


def _balance(packing: Packing, edge_batches: int) -> dict[str, object]:
    plan, table = packing.plan, micro_batches(packing)
    total = len(table) // plan.batch_sequences
    edge = edge_batches if total > 3 * edge_batches else total // 6
    if total == 0:
        msg = f"{plan.label()}: no complete global batch was packed; pass more documents"
        raise WorkbenchError(msg)
    kept = slice(edge, total - edge)

    def spread(values: pd.Series) -> NDArray[np.float64]:
        of_batch = values.to_numpy(dtype=np.float64).reshape(total, -1)[kept]
        # A batch without documents has no mean to compare with; the note counts such batches.
        of_batch = of_batch[of_batch.any(axis=1)]
        # Equal work, in floating point, may miss its own mean by a hair.
        return np.asarray(np.maximum(of_batch.max(axis=1) / of_batch.mean(axis=1), 1.0))

    empty = int(table.groupby("batch")["length_tokens"].sum().iloc[kept].eq(0).sum())
    if empty == total - 2 * edge:
        msg = f"{plan.label()}: every measured batch is empty, all documents wait; give more"
        raise WorkbenchError(msg)
    work = spread(table["linear_cost"] + table["attention_cost"])
    pieces = packing.documents
    inner = pieces[pieces["batch"].between(edge, total - edge - 1)]
    late, size = inner["delay_batches"].to_numpy(), inner["length_tokens"].to_numpy()
    packed_tokens = int(pieces["length_tokens"].sum())
    return {
        "plan": plan.label(),
        "batch_count": total - 2 * edge,
        "imbalance_ratio": work.mean(),
        "imbalance_p95_ratio": np.quantile(work, 0.95),
        "attention_imbalance_ratio": spread(table["attention_cost"]).mean(),
        "token_imbalance_ratio": spread(table["length_tokens"]).mean(),
        "memory_ratio": table["length_tokens"].max() / plan.context_tokens,
        "fill_ratio": table["length_tokens"].mean() / plan.context_tokens,
        # Weighted by tokens, since the loss is averaged over tokens, not over documents.
        "delay_batches": np.average(late, weights=size),
        "displacement_batches": np.average(np.abs(late), weights=size),
        "cut_count": packing.cut_count,
        "left_share": packing.left_tokens / (packing.left_tokens + packed_tokens),
        "left_square_share": packing.left_square_share,
        "is_stable": bool(packing.queues["is_stable"].all()) and not _is_stuck(packing),
        "note": "; ".join([*packing.notes, *_doubts(packing, total - 2 * edge, empty)]),
    }


def _is_stuck(packing: Packing) -> bool:
    """Return whether more than a whole batch is held back for lack of memory."""
    plan = packing.plan
    return packing.held_back_tokens > plan.batch_sequences * plan.context_tokens


def _doubts(packing: Packing, measured: int, empty: int) -> list[str]:
    full = packing.queues[~packing.queues["is_stable"]]
    doubts = [
        f"the queue from {short_tokens(start)} receives {ratio:.2f} times what it can release: "
        "the delay grows without bound"
        for start, ratio in zip(full["from_tokens"], full["arrival_ratio"], strict=True)
    ]
    if _is_stuck(packing):
        doubts.append(
            f"{packing.held_back_tokens:,} tokens found no memory: the delay grows without bound; "
            "raise memory_ratio"
        )
    if packing.left_square_share > 0.01:
        doubts.append(
            f"{packing.left_square_share:.0%} of the attention was never packed; what was is "
            "easier to balance"
        )
    if empty:
        doubts.append(f"{empty} batches without documents are dropped from the imbalance")
    # The mean of a skewed ratio settles slowly.
    if measured < 30:
        doubts.append(f"only {measured} batches measured")
    return doubts


# Documents that still wait at the end of a sample are few, unless they never leave.
_MOST_LEFT = 0.05
_STEPS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4)


@dataclass(frozen=True)
class PackingTuning:
    """The best plan found, and everything that was tried.

    Parameters
    ----------
    plan
        The plan with the most even work among those that are allowed.
    candidates
        Table :data:`workbench.tables.TUNED_PACKING`, allowed ones first, most even first.
    """

    plan: PackingPlan
    candidates: pd.DataFrame


def packing_tuning(
    lengths: pd.DataFrame,
    plan: PackingPlan,
    *,
    delay_batches: float = 0.5,
    memory_ratios: Iterable[float] | None = None,
    most_queues: int = 2,
    progress: bool = True,
) -> PackingTuning:
    """Choose the thresholds of the delay queues and the memory bound.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`; a few hundred batches are enough.
    plan
        Context, batch and crossover are kept.
    delay_batches
        Most batches that a token may be late on average.
    memory_ratios
        Memory bounds to try, over the context; by default the one of ``plan``.
    most_queues
        Queues to combine at most; every one more multiplies the number of choices.
    progress
        Whether to show a progress bar.

    Returns
    -------
    PackingTuning
        The plan with the smallest imbalance among the stable ones within the bound of delay.

    Raises
    ------
    WorkbenchError
        If no choice is allowed; the least delay that was seen is named.

    Notes
    -----
    Thresholds are tried at 1/16 to 3/4 of the context, alone and combined. More batches late
    means documents seen in another order than drawn: the paper keeps the loss curve at 0.5
    and leaves the thresholds to the reader.

    References
    ----------
    arXiv:2503.17924 (thresholds of the outlier queues).
    """
    steps = [max(int(share * plan.context_tokens), 1) for share in _STEPS]
    choices: list[tuple[int, ...]] = [()]
    for count in range(1, most_queues + 1):
        choices += combinations(sorted(set(steps)), count)
    ratios = [plan.memory_ratio] if memory_ratios is None else list(memory_ratios)
    tried = [
        replace(plan, strategy="delay queues", queues_from_tokens=queues, memory_ratio=ratio)
        for ratio in ratios
        for queues in choices
    ]
    plans = progress_bar(tried, unit="plans", label="tuning queues", enabled=progress)
    rows = [_row(lengths, candidate, delay_batches) for candidate in plans]
    table = pd.DataFrame(rows, columns=[*TUNED_PACKING.columns])
    order = table.sort_values(
        ["is_allowed", "imbalance_ratio"], ascending=[False, True], kind="stable"
    ).index
    candidates = TUNED_PACKING.of(table.loc[order].reset_index(drop=True))
    if not candidates["is_allowed"].iloc[0]:
        least = candidates["delay_batches"].min()
        msg = (
            f"none of {len(tried)} choices keeps tokens within {delay_batches:g} batches; "
            f"the least delay was {least:.3g}. Allow more delay or take a larger memory_ratio"
        )
        raise WorkbenchError(msg)
    return PackingTuning(tried[int(order[0])], candidates)


def _row(lengths: pd.DataFrame, plan: PackingPlan, bound: float) -> dict[str, object]:
    balance = packing_balance(packing(lengths, plan)).iloc[0]
    names = ("imbalance_ratio", "delay_batches", "memory_ratio", "fill_ratio")
    reasons = []
    if not balance["is_stable"]:
        reasons.append("a queue or a micro-batch receives more than it can release")
    if balance["left_square_share"] > _MOST_LEFT:
        reasons.append(f"{balance['left_square_share']:.0%} of the attention was never packed")
    if balance["delay_batches"] > bound:
        reasons.append(f"tokens are {balance['delay_batches']:.2f} batches late")
    queues = "/".join(short_tokens(tokens) for tokens in plan.queues_from_tokens) or "none"
    return {
        "queues": queues,
        **{name: balance[name] for name in names},
        "is_allowed": not reasons,
        "note": "; ".join(reasons),
    }
