"""Claims about unequal loads: packing, sharding and stragglers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from claims.registry import Reading, beside, claim, published
from data import make
from workbench import analyze, load, simulate
from workbench.analyze import Packing, PackingPlan, Parallelism

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
        queues = tuple(int(tried) * _K for tried in row["queues_from_k"].split("/") if tried)
        tried = PackingPlan(
            strategy=row["strategy"],  # type: ignore[arg-type]
            crossover_tokens=_CROSSOVER_OF_TABLE_2,
            window_batches=int(row["window_batches"]),
            queues_from_tokens=queues or plan.queues_from_tokens,
        )
        balance = analyze.packing_balance(analyze.packing(lengths, tried)).iloc[0]
        for name, column, unit, near in (
            ("imbalance", "imbalance_ratio", "max/mean", 0.02 if queues else 0.05),
            ("mean delay", "delay_batches", "batches", 0.15),
        ):
            if row[column]:
                label, ratio = f"{tried.label()}: {name}", balance[column]
                yield beside(row, ratio, label, column=column, unit=unit, near=near)


@claim(
    noun="packing", name="speed-up over plain packing", source=_SOURCE, needs=("lengths-documents",)
)
def speedups(folder: Path) -> Iterator[Reading]:
    """Compare mean speed-ups over the eight configurations, at one calibration.

    Crossover from FLOPs (49.4 thousand tokens for 7B, in proportion to the width), two chunks
    per stage, 512 queries lost per kernel, no other overhead. Communication is dropped, so
    single configurations differ more than their means do.
    """
    lengths = _lengths(folder)
    rows = []
    for row in published("wlb_configurations"):
        degrees = {name: int(row[name]) for name in ("pipeline", "data", "context", "tensor")}
        shape = Parallelism(**degrees, chunks=2)
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
    speeds = pd.DataFrame(rows, columns=["context_k", "speedup_ratio"])
    for row in published("wlb_speedups"):
        if not row["what"].startswith("mean") or row["recipe"] != "delay queues, adaptive":
            continue
        chosen = speeds[speeds["context_k"] == row["context_k"]] if row["context_k"] else speeds
        mean = chosen["speedup_ratio"].mean()
        yield beside(row, mean, column="speedup_ratio", unit="x", near=0.05)


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
        label = f"{context // _K}K, slowest rank, worst micro-batch"
        yield Reading(label, 1, float(table["per_document_ratio"].max()), "max/mean", 0.001)


_FLOAT = 1e-12  # relative; the same sum in another order
_DRAW = 0.5  # of max / mean, what another seed of the random placement changes
_SHAPE_SHARE, _SHAPE_EVEN, _EVEN = 0.5, 0.05, 1.2
_ROWS_SHARE = 0.005


@claim(
    noun="sharding",
    name="costs of torchrec's planner",
    source="torchrec, distributed/planner/tests/test_shard_estimators.py",
)
def costs() -> Iterator[Reading]:
    """Compare the time of each shard with the one that torchrec's own tests expect."""
    passes = ("forward_compute", "forward_communication", "backward_compute")
    for row in published("sharding_torchrec_perf"):
        sizes = {name: int(row[name]) for name in ("row_count", "dim_count", "element_bytes")}
        pooling = float(row["pooling_ratio"])
        table = pd.DataFrame([{"table": "table_0", **sizes, "pooling_ratio": pooling}])
        shards = analyze.table_sharding(
            table,
            ranks=int(row["ranks"]),
            scheme=row["scheme"],  # type: ignore[arg-type]
            assumptions=analyze.ShardingAssumptions(batch_count=int(row["batch_count"])),
        )
        total_ms = sum(float(row[f"{name}_ms"]) for name in (*passes, "backward_communication"))
        for rank, perf_ms in zip(shards["rank"], shards["perf_ms"], strict=True):
            shard = f"{row['scheme']}, shard on rank {rank}"
            yield Reading(shard, total_ms, perf_ms, "ms", _FLOAT * total_ms, row["source"])


@claim(
    noun="sharding",
    name="measures of imbalance",
    source="torchrec, distributed/planner/tests/test_stats.py, and by hand",
)
def imbalance() -> Iterator[Reading]:
    """Compare every measure with its printed value, to the digits printed."""
    for row in published("sharding_imbalance"):
        loads = [float(load) for load in row["loads"].split()]
        # torchrec tests KL before it divides by ln k.
        value = _measured(loads, row["measure"]) * float(row["scale"])
        near = 0.5 * 10.0 ** -int(row["digits"])
        yield beside(row, value, f"{row['measure']} of {row['loads']}", unit="", near=near)


def _measured(loads: Any, measure: str) -> float:
    table = analyze.load_imbalance(loads)
    return float(table.loc[table["measure"] == measure, "value_ratio"].iloc[0])


@claim(
    noun="sharding",
    name="rows of Zipf popularity",
    source="separate implementation of the model, after UpDLRM (arXiv:2406.13941)",
)
def rows() -> Iterator[Reading]:
    """Compare max / mean of each placement, to the digits printed; random ones to a draw."""
    tables: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in published("sharding_rows"):
        key = (row["exponent"], row["row_count"], row["unit_count"])
        if key not in tables:
            popularity = simulate.row_popularity(int(key[1]), float(key[0]))
            table = analyze.row_sharding(popularity, units=int(key[2]))
            ratios = dict(zip(table["placement"], table["max_to_mean_ratio"], strict=True))
            tables[key] = {**ratios, "bound": float(table["bound_ratio"].iloc[0])}
        name = row["placement"]
        near = _DRAW if name == "random" else 0.5 * 10.0 ** -int(row["digits"])
        quantity, ratio = f"exponent {row['exponent']}, {name}", tables[key][name]
        yield beside(row, ratio, quantity, column="max_to_mean_ratio", unit="", near=near)


@claim(
    noun="sharding",
    name="shape of planners on 788 tables",
    source="separate implementation with other draws of the tables and simpler costs",
)
def shape() -> Iterator[Reading]:
    """Compare max / mean of each planner as a shape: the tables are another random draw.

    Balanced plans (below 1.2) agree to 0.05. Elsewhere the few largest tables of the draw
    decide, and values agree to half; other seeds differ by as much.
    """
    tables = make.embedding_tables()
    for row in published("sharding_tables"):
        shards = analyze.table_sharding(
            tables,
            ranks=int(row["ranks"]),
            planner=row["planner"],  # type: ignore[arg-type]
            balance_by=row["balance_by"],  # type: ignore[arg-type]
            scheme=row["scheme"],  # type: ignore[arg-type]
        )
        ratio = _measured(analyze.shard_balance(shards)["perf_ms"], "max / mean")
        printed = float(row["max_to_mean_ratio"])
        near = _SHAPE_EVEN if printed < _EVEN else _SHAPE_SHARE * printed
        plan = f"{row['ranks']} ranks, {row['planner']} by {row['balance_by']}, {row['scheme']}"
        yield beside(row, ratio, plan, column="max_to_mean_ratio", unit="", near=near)


@claim(
    noun="sharding",
    name="reuse of real look-ups",
    source="facebookresearch/dlrm_datasets, embedding_bag",
    needs=("dlrm-locality",),
)
def reuse(folder: Path) -> Iterator[Reading]:
    """Compare totals and histograms with those printed, exactly; rows from bins to 0.5 %.

    The reuse factor is computed from the two totals and agrees to the digit printed. The
    number of rows follows from shares of three digits.
    """
    for row in published("sharding_dlrm_reuse"):
        histogram = load.reuse_histogram(folder / row["year"] / "locality_stats.txt")
        batch = histogram[histogram["batch"] == row["batch"]]
        quantity, printed = row["quantity"], float(row["value"])
        label, near = f"{row['year']}, {quantity}", 0.0
        if row["above_count"]:
            (value,) = batch.loc[batch["above_count"] == int(row["above_count"]), quantity]
            label += f" above {row['above_count']}"
        elif quantity == "reuse_ratio":
            value, near = batch["lookup_count"].iloc[0] / batch["unique_count"].iloc[0], 0.05
        else:
            value = batch[quantity].iloc[0]
        yield beside(row, value, label, unit="", near=near)
        if quantity == "unique_count":
            rows = analyze.row_popularity(batch)["row_count"].sum()
            label, near = f"{row['year']}, rows that the bins hold together", _ROWS_SHARE * printed
            yield beside(row, rows, label, unit="rows", near=near)


_JOBS = ("SE", "ST")
# The published replay moves single steps of SE by one transfer; ST agrees to seven digits.
_TOLERANCE = {"SE": 0.0005, "ST": 0.000001}
# The worst workers are chosen by their own replay here, by a bound there.
_SHARE_TOLERANCE = 0.005
_PARTS: Mapping[Literal["stage", "dp_rank", "operation"], str] = {
    "stage": "stage",
    "dp_rank": "dp_rank",
    "operation": "optype",
}
_STEP_TIMES = {
    "actual_ns": "step_t_base", "replay_ns": "step_t_nodelay", "ideal_ns": "step_t_noblk"
}  # fmt: skip
_ARTIFACT = "arXiv:2505.05713, artifact ByteDance-Seed/StragglerAnalysis, result-*.json"
_SETS = ("stragglers-bytedance",)


@claim(noun="stragglers", name="slowdown of real jobs", source=_ARTIFACT, needs=_SETS)
def slowdown(folder: Path) -> Iterator[Reading]:
    """Replay both jobs and compare S, its shares and the slowdown of every part."""
    for name in _JOBS:
        operations = _job(folder, name)
        printed = _read(folder / f"result-{name}.json")
        row = analyze.job_slowdown(operations).iloc[0]
        near = _TOLERANCE[name]
        slowdown_ratio = printed["blocking_slowdown"]
        yield Reading(f"{name}, S", slowdown_ratio, row["slowdown_ratio"], "", near)
        delayed = row["actual_ns"] / row["replay_ns"]
        yield Reading(f"{name}, launch slowdown", printed["launch_slowdown"], delayed, "", near)
        for sign, column in (("Ms", "last_stage_ratio"), ("Mw", "worst_workers_ratio")):
            share = _read(folder / f"{sign.lower()}-{name}.json")[sign]
            yield Reading(f"{name}, {sign}", share, row[column], "", _SHARE_TOLERANCE)
        for part, key in _PARTS.items():
            ratios = printed[f"blocking_decompose_by_{key}"]
            table = analyze.job_slowdown_by(operations, part)
            for label, ratio in zip(table[part].astype(str), table["slowdown_ratio"], strict=True):
                if label in ratios:
                    entity = f"{name}, S of {part.replace('_', ' ')} {label}"
                    yield Reading(entity, ratios[label], ratio, "", near)


@claim(noun="stragglers", name="every step of real jobs", source=_ARTIFACT, needs=_SETS)
def steps(folder: Path) -> Iterator[Reading]:
    """Compare every step: recorded, replayed and ideal, as the largest relative error.

    Recorded times differ by what float32 seconds keep. Single steps of SE are replayed up
    to 0.07 % off: one transfer begins a little earlier there.
    """
    for name in _JOBS:
        table = analyze.job_steps(_job(folder, name)).set_index("step")
        printed = _read(folder / f"result-{name}.json")
        for column, key in _STEP_TIMES.items():
            times = pd.Series(printed[key])
            times.index = times.index.astype("int64")
            errors = (table[column] / 1e9 / times - 1).abs()
            yield Reading(f"{name}, steps compared, {key}", len(times), errors.count(), "")
            yield Reading(f"{name}, largest error of {key}", 0, errors.max(), "", 0.001)


@claim(noun="stragglers", name="map of workers", source=_ARTIFACT, needs=_SETS)
def workers(folder: Path) -> Iterator[Reading]:
    """Compare the map of ranks and stages: its correlation and its largest difference.

    The published map is a bound, the lower slowdown of a worker's rank and its stage.
    """
    for name in _JOBS:
        table = analyze.job_slowdown_by(_job(folder, name), "worker")
        printed = _read(folder / f"result-{name}.json")
        by_rank, by_stage = (
            printed[f"blocking_decompose_by_{key}"] for key in ("dp_rank", "stage")
        )
        pairs = zip(table["dp_rank"].astype(str), table["stage"].astype(str), strict=True)
        bounds = np.array([min(by_rank[rank], by_stage[stage]) for rank, stage in pairs])
        ratios = table["bound_ratio"].to_numpy(dtype=np.float64)
        yield Reading(f"{name}, correlation", 1, np.corrcoef(bounds, ratios)[0, 1], "", 0.02)
        largest = np.abs(bounds - ratios).max()
        yield Reading(f"{name}, largest difference", 0, largest, "", _TOLERANCE[name])


@claim(
    noun="stragglers",
    name="what usual measures say of real jobs",
    source="group-bys over the public traces, by hand",
    needs=_SETS,
)
def dispersion(folder: Path) -> Iterator[Reading]:
    """Compare usual measures of imbalance; the tolerance is that of the printed digits."""
    tables = {name: analyze.job_dispersion(_job(folder, name)) for name in _JOBS}
    for row in published("job_dispersion"):
        value = tables[row["job"]].set_index("measure")["value_ratio"].loc[row["measure"]]
        yield beside(row, value, f"{row['job']}, {row['measure']}", unit="")


def _job(folder: Path, name: str) -> pd.DataFrame:
    return load.job_operations(folder / f"trace-{name}.parquet")


def _read(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return results
