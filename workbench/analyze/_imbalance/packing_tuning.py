"""Thresholds of the delay queues, found on a sample of lengths for a bound on delay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

import pandas as pd

from workbench._progress import progress as progress_bar
from workbench.analyze._imbalance.packing import packing
from workbench.analyze._imbalance.packing_balance import packing_balance
from workbench.analyze._imbalance.packing_plan import PackingPlan, short_tokens
from workbench.errors import WorkbenchError
from workbench.tables import TUNED_PACKING

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
    rows = [_row(lengths, each, delay_batches) for each in plans]
    table = pd.DataFrame(rows, columns=[*TUNED_PACKING.columns])
    order = table.sort_values(
        ["is_allowed", "imbalance_ratio"], ascending=[False, True], kind="stable"
    ).index
    candidates = TUNED_PACKING.check(TUNED_PACKING.cast(table.loc[order].reset_index(drop=True)))
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
    queues = "/".join(short_tokens(each) for each in plan.queues_from_tokens) or "none"
    return {
        "queues": queues,
        **{name: balance[name] for name in names},
        "is_allowed": not reasons,
        "note": "; ".join(reasons),
    }
