"""Claims about packing and context sharding: the tables of WLB-LLM on public lengths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.analyze import Packing, PackingPlan, Parallelism
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_SOURCE = "WLB-LLM, arXiv:2503.17924; lengths as hao-ai-lab/DistCA reconstructed them"
_K = 1024
# The calibrations: where attention overtakes the rest, for a model of width 4,096.
_CROSSOVER_OF_TABLE_2 = 28 * _K
_WIDTH_OF_7B = 4096


def _lengths(folder: Path) -> pd.DataFrame:
    return load.document_lengths(folder / "dist_wlbllm.json")


@claim(
    noun="packing",
    name="imbalance of ways of packing (Table 2)",
    source=_SOURCE,
    needs=("lengths-documents",),
)
def table_2(folder: Path) -> Iterator[Reading]:
    """Compare imbalance and delay at 7B-128K with a crossover of 28K, over 2,000 batches.

    The lengths are a reconstruction and thresholds of the queues are not printed, hence the
    tolerances: 0.05 for sequences of one length, 0.02 for two queues, 0.15 batches of delay.
    """
    plan = PackingPlan(crossover_tokens=_CROSSOVER_OF_TABLE_2)
    tokens = 2_000 * plan.batch_sequences * plan.context_tokens
    lengths = analyze.sample_documents(_lengths(folder), token_count=tokens)
    for row in published("wlb_packing"):
        queues = tuple(int(each) * _K for each in row["queues_from_k"].split("/") if each)
        each = PackingPlan(
            strategy=row["strategy"],  # type: ignore[arg-type]
            crossover_tokens=_CROSSOVER_OF_TABLE_2,
            window_batches=int(row["window_batches"]),
            queues_from_tokens=queues or plan.queues_from_tokens,
        )
        here = analyze.packing_balance(analyze.packing(lengths, each)).iloc[0]
        yield Reading(
            what=f"{each.label()}: imbalance",
            printed=float(row["imbalance_ratio"]),
            here=float(here["imbalance_ratio"]),
            unit="max/mean",
            tolerance=0.02 if queues else 0.05,
            source=row["source"],
        )
        if row["delay_batches"]:
            yield Reading(
                what=f"{each.label()}: mean delay",
                printed=float(row["delay_batches"]),
                here=float(here["delay_batches"]),
                unit="batches",
                tolerance=0.15,
                source=row["source"],
            )


@claim(
    noun="packing",
    name="speed-up over plain packing",
    source=_SOURCE,
    needs=("lengths-documents",),
)
def speedups(folder: Path) -> Iterator[Reading]:
    """Compare mean speed-ups over the eight configurations, at one calibration.

    Crossover from FLOPs (49.4 thousand tokens for 7B, in proportion to the width), two chunks
    per stage, 512 queries lost per kernel, no other overhead. Communication is left out, so
    single configurations differ more than their means do.
    """
    lengths = _lengths(folder)
    rows = []
    for row in published("wlb_configurations"):
        shape = Parallelism(
            pipeline=int(row["pipeline"]),
            data=int(row["data"]),
            context=int(row["context"]),
            tensor=int(row["tensor"]),
            chunks=2,
        )
        context = int(row["context_k"]) * _K
        width = int(row["hidden_size"])
        of_7b = analyze.crossover_from_flops(hidden_size=_WIDTH_OF_7B, ffn_size=11_008)
        plan = PackingPlan(
            context_tokens=context,
            batch_sequences=shape.pipeline * shape.data,
            crossover_tokens=of_7b * width / _WIDTH_OF_7B,
            queues_from_tokens=(context // 4, context // 2),
        )
        tokens = 600 * plan.batch_sequences * context
        stream = analyze.sample_documents(lengths, token_count=tokens)
        speed = analyze.training_speed(stream, plan, shape).set_index("recipe")
        rows.append((row["context_k"], speed["speedup_ratio"]["delay queues, adaptive"]))
    here = pd.DataFrame(rows, columns=["context_k", "speedup_ratio"])
    for row in published("wlb_speedups"):
        if not row["what"].startswith("mean") or row["recipe"] != "delay queues, adaptive":
            continue
        chosen = here[here["context_k"] == row["context_k"]] if row["context_k"] else here
        yield Reading(
            what=row["what"],
            printed=float(row["speedup_ratio"]),
            here=float(chosen["speedup_ratio"].mean()),
            unit="x",
            tolerance=0.05,
            source=row["source"],
        )


@claim(
    noun="packing",
    name="cutting every document leaves no rank behind",
    source=_SOURCE,
    needs=("lengths-documents",),
)
def per_document(folder: Path) -> Iterator[Reading]:
    """Compare the slowest of 4 context-parallel ranks with the mean, counting pairs alone."""
    for context in (64 * _K, 128 * _K):
        plan = PackingPlan(context_tokens=context)
        stream = analyze.sample_documents(_lengths(folder), token_count=400 * context)
        packed: Packing = analyze.packing(stream, plan)
        table = analyze.context_sharding(packed, ranks=4, tile_tokens=1, launch_tokens=0)
        yield Reading(
            what=f"{context // _K}K, slowest rank, worst micro-batch",
            printed=1,
            here=float(table["per_document_ratio"].max()),
            unit="max/mean",
            tolerance=0.001,
        )
