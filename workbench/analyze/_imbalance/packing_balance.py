"""Balance of the work of micro-batches, and the cost of a way of packing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._imbalance.packers import short_tokens
from workbench.analyze._imbalance.packing import Packing, micro_batches
from workbench.errors import WorkbenchError
from workbench.tables import PACKING_BALANCE


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
