"""Packing: which documents share a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, Ints
from workbench.analyze._imbalance import packers as _packers
from workbench.analyze._imbalance.packers import Packed, PackingPlan, solved
from workbench.analyze._imbalance.workload import workload
from workbench.errors import WorkbenchError
from workbench.tables import DOCUMENT_LENGTHS, MICRO_BATCHES, PACKED_DOCUMENTS, PACKING_QUEUES


@dataclass(frozen=True)
class Packing:
    """Documents in micro-batches, and what waits outside.

    Parameters
    ----------
    plan
        How it was packed.
    documents
        Table :data:`workbench.tables.PACKED_DOCUMENTS`.
    queues
        Table :data:`workbench.tables.PACKING_QUEUES`.
    cut_count
        Documents that were cut into several pieces.
    left_tokens
        Tokens that did not get into a micro-batch: waiting, held back for lack of memory,
        or too few at the end to fill a batch.
    left_square_share
        What these are of all squared lengths, and so of the attention.
    held_back_tokens
        Of the tokens left, those that no micro-batch had memory for.
    notes
        What is doubtful, in words.
    """

    plan: PackingPlan
    documents: pd.DataFrame
    queues: pd.DataFrame
    cut_count: int
    left_tokens: int
    left_square_share: float
    held_back_tokens: int
    notes: tuple[str, ...]


def packing(lengths: pd.DataFrame, plan: PackingPlan) -> Packing:
    """Pack a stream of documents into micro-batches.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, in the order of arrival.
    plan
        The way of packing.

    Returns
    -------
    Packing
        Every piece with its batch and micro-batch, the queues, and what was left over.
        Documents longer than the context are cut, and counted.

    Raises
    ------
    WorkbenchError
        If the documents do not fill one global batch (one window of them).

    Notes
    -----
    Greedy and solver balance the sum of squared lengths of the micro-batches of a window,
    then regroup these by work so that the ones of a global batch are alike. Delay queues
    follow algorithm 1 of the paper: at most one document per micro-batch leaves a queue in
    each batch, so a queue that receives more never empties.

    References
    ----------
    WLB-LLM, arXiv:2503.17924, algorithm 1; TRL ``pack_dataset(strategy="bfd")``.
    """
    tokens = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    batch_tokens = plan.context_tokens * plan.batch_sequences
    # Only a whole window can be packed over several batches.
    needed = batch_tokens * (1 if plan.strategy == "plain" else plan.window_batches)
    if tokens.sum() < needed:
        msg = (
            f"{len(tokens):,} documents hold {int(tokens.sum()):,} tokens, too few to fill "
            f"{needed:,}: {plan.batch_sequences} sequences of {plan.context_tokens:,} tokens"
            + (f" in {plan.window_batches} batches" if needed > batch_tokens else "")
            + "; draw more with analyze.sample_documents, or take a smaller context"
        )
        raise WorkbenchError(msg)
    packed = _packed(tokens, plan)
    count = plan.batch_sequences
    batch = packed.micro_batch // count
    # What lies in a last batch that never became full would look unbalanced.
    full = (int(packed.micro_batch.max(initial=-1)) + 1) // count
    keep = np.flatnonzero(batch < full)
    order = keep[np.argsort(packed.micro_batch[keep], kind="stable")]
    documents = pd.DataFrame(
        {
            "batch": batch[order],
            "micro_batch": packed.micro_batch[order] % count,
            "document": packed.number[order],
            "start_tokens": packed.start[order],
            "length_tokens": packed.length[order],
            "delay_batches": batch[order] - packed.arrived[order],
        }
    )
    number, size = packed.number[order], packed.length[order]
    pieces = np.bincount(number, minlength=len(tokens))
    squares = tokens.astype(np.float64) ** 2
    # A document of which half was packed leaves half of its square, as its pieces attend alone.
    left = squares * (1 - np.bincount(number, weights=size, minlength=len(tokens)) / tokens)
    return Packing(
        plan=plan,
        documents=PACKED_DOCUMENTS.check(documents),
        queues=_queues(packed, plan, batches=full),
        cut_count=int((pieces > 1).sum()),
        left_tokens=int(tokens.sum() - size.sum()),
        left_square_share=float(np.clip(left.sum() / squares.sum(), 0, 1)),
        held_back_tokens=int(packed.held_tokens),
        notes=tuple(packed.notes),
    )


def _packed(tokens: Ints, plan: PackingPlan) -> Packed:
    context, count, window = plan.context_tokens, plan.batch_sequences, plan.window_batches
    if plan.strategy in {"delay queues", "best fit"}:
        docs = _packers.stream(tokens, longest=context, batch_tokens=context * count)
        if plan.strategy == "best fit":
            return _packers.best_fit(docs, context=context, batch_sequences=count, window=window)
        return _packers.delay_queues(
            docs,
            batch_sequences=count,
            limit=plan.memory_ratio * context,
            crossover=plan.crossover_tokens,
            queues_from=plan.queues_from_tokens,
        )
    plain = _packers.chunked(tokens, context=context, batch_sequences=count)
    if plan.strategy == "plain":
        return plain
    if plan.strategy == "greedy":
        packed = _packers.greedy(plain, context=context, batch_sequences=count, window=window)
    else:
        packed = solved(
            plain, context=context, count=count * window,
            slack=plan.slack_ratio, limit_s=plan.solver_s,
        )  # fmt: skip
    work = np.bincount(
        packed.micro_batch, weights=workload(packed.length, plan.crossover_tokens)
    ).astype(np.float64)
    return _packers.regrouped(packed, work, batch_sequences=count, window=window)


def _queues(packed: Packed, plan: PackingPlan, *, batches: int) -> pd.DataFrame:
    if plan.strategy != "delay queues" or not plan.queues_from_tokens:
        return PACKING_QUEUES.empty()
    count = plan.batch_sequences
    ratio = packed.arrivals / (count * max(batches, 1))
    table = pd.DataFrame(
        {
            "from_tokens": np.array(plan.queues_from_tokens, np.int64),
            "to_tokens": pd.array([*plan.queues_from_tokens[1:], None], dtype="Int64"),
            "arrival_ratio": ratio,
            "waiting_count": [len(packed.waiting[at]) for at in range(len(ratio))],
            "most_waiting_count": packed.most_waiting,
            # As many as can leave, evenly, is just enough.
            "is_stable": (ratio < 1) | ((ratio == 1) & (packed.most_waiting <= count)),
        }
    )
    return PACKING_QUEUES.check(table)


def micro_batches(packing: Packing) -> pd.DataFrame:
    """Add up the work of every micro-batch.

    Parameters
    ----------
    packing
        What :func:`packing` returns.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MICRO_BATCHES`, one row per micro-batch, also for those
        that stayed empty.

    Notes
    -----
    A piece of d tokens costs d / L + (d / L)^2, with L the crossover length; a document
    split over sequences attends within its pieces only.
    """
    plan, pieces = packing.plan, packing.documents
    count = plan.batch_sequences
    total = (int(pieces["batch"].max()) + 1) * count if len(pieces) else 0
    slot = (pieces["batch"] * count + pieces["micro_batch"]).to_numpy()
    length = pieces["length_tokens"].to_numpy()
    ratio = length / plan.crossover_tokens
    longest = np.zeros(total, dtype=np.int64)
    np.maximum.at(longest, slot, length)
    table = pd.DataFrame(
        {
            "batch": np.arange(total) // count,
            "micro_batch": np.arange(total) % count,
            "document_count": np.bincount(slot, minlength=total).astype(np.int64),
            "length_tokens": np.bincount(slot, weights=length, minlength=total).astype(np.int64),
            "longest_tokens": longest,
            "linear_cost": _sums(slot, ratio, total),
            "attention_cost": _sums(slot, ratio * ratio, total),
        }
    )
    return MICRO_BATCHES.check(table)


def _sums(slot: Ints, weights: Floats, total: int) -> Floats:
    # Without rows numpy forgets that weights were given, and counts.
    return np.bincount(slot, weights=weights, minlength=total).astype(np.float64)
