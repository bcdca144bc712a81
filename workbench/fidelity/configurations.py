"""Claims about configurations: iteration times that a model has not seen, utilization, memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.fidelity._configurations import printed_iterations, printed_layout
from workbench.fidelity._printed_jobs import (
    after_one_row_of_each,
    after_the_first,
    from_the_first,
    llama_jobs,
    llama_sizes,
    lumos_jobs,
    megatron_errors,
    mlperf_jobs,
)
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_GIB = 2**30


def _limit(what: str, row: str, here: float, source: str = "") -> Reading:
    """Compare with a limit of the file, or with what was reached where that misses it."""
    (found,) = (each for each in published("configuration_limits") if each["what"] == row)
    reached = float(found["reached"]) if found["reached"] else None
    return Reading(
        what, float(found["limit"]), here, found["unit"], 0, source or found["source"], "at most",
        reached,
    )  # fmt: skip


def _mean(errors: pd.Series) -> float:
    return 100 * float(errors.abs().mean())


@claim(
    noun="configurations",
    name="iteration times of vTrain's measurements, held out",
    source="VIA-Research/vTrain, data; arXiv:2312.12391 for vTrain's own errors",
    needs=("iterations-vtrain",),
)
def held_out(folder: Path) -> Iterator[Reading]:
    """Predict rows that a model has not seen, and compare the mean error with a limit.

    vTrain predicts from profiles, this model is fitted to rows of the same files: its
    printed errors stand beside, but are no like for like. The rows of one node are exactly
    linear in layers and micro-batches, as if put together from measured layers: 720 rows of a
    width hold 16 layers' times (four of TP, four of micro-batch), and the other width is
    held out, so nothing but physics tells what width does.
    """
    many = load.iterations(folder / "ground_truth_multi.csv")
    single = load.iterations(folder / "ground_truth_single.csv")
    paper = {row["nodes"]: row for row in published("vtrain_errors")}
    five = analyze.cross_validated(many, residual="trees")
    yield _limit(
        "several nodes, five parts", "several nodes, five parts", _mean(five["error_ratio"])
    )
    yield Reading(
        "several nodes, five parts, beside vTrain's own", float(paper["multi"]["mape_pct"]),
        _mean(five["error_ratio"]), "%", 0, paper["multi"]["source"], "at most",
    )  # fmt: skip
    few = analyze.cross_validated(many, by="gpu_count", held_out=512, residual="trees")
    yield _limit("512 GPUs held out", "512 GPUs held out", _mean(few["error_ratio"]))
    wide = analyze.cross_validated(single, by="hidden", held_out=2048, residual="trees")
    name = "one node, widest held out"
    yield _limit(name, name, _mean(wide["error_ratio"]))


@claim(noun="configurations", name="eight Megatron jobs", source="arXiv:2205.05198, Table 5")
def megatron() -> Iterator[Reading]:
    """Predict both jobs of a model from assumed constants calibrated on the other three models.

    Calculon, whose mean is printed beside, sets the efficiencies of matrix products by size;
    it is not told on which measurements. HFU is left out: the paper counts attention that is
    computed again three times, as if its backward pass were repeated, too.
    """
    jobs = printed_iterations("iteration_megatron")
    found = megatron_errors()["error_ratio"]
    yield _limit("mean of eight, each model held out", "eight Megatron jobs", _mean(found))
    yield _limit(
        "largest of eight, each model held out",
        "eight Megatron jobs, largest",
        100 * float(found.abs().max()),
    )
    for row, share in zip(
        published("iteration_megatron"), analyze.utilization(jobs).to_dict("records"), strict=True
    ):
        if row["mfu_pct"]:
            printed = float(row["mfu_pct"])
            yield Reading(
                f"MFU, {row['model']}", printed, 100 * share["mfu_share"], "%", 0.3, row["source"]
            )


@claim(noun="configurations", name="memory of Megatron jobs", source="arXiv:2205.05198, Figure 1")
def memory() -> Iterator[Reading]:
    """Compare states to 9 % and activations to 3 %: the figure leaves embeddings out."""
    for row in published("memory_megatron"):
        layout = analyze.Layout(**{**printed_layout(row), "data": 1})
        jobs = analyze.configurations(analyze.model_shape(row["model"]), layout, gpu="A100")
        need = analyze.memory_need(jobs).iloc[0]
        states = sum(need[f"{part}_bytes"] for part in ("parameters", "gradients", "optimizer"))
        for name, here, near in (
            ("states", states, 0.09),
            ("activations", need["activations_bytes"], 0.03),
        ):
            printed = float(row[f"{'state' if name == 'states' else name}_gib"])
            what = f"{row['model']}, {name}, recompute {row['recompute']}"
            yield Reading(what, printed, here / _GIB, "GiB", near * printed, row["source"])


@claim(noun="configurations", name="GPT-3 175B of MLPerf", source="MLPerf Training v4.1, GPT-3")
def mlperf() -> Iterator[Reading]:
    """Calibrate assumed constants on 256 GPUs, and predict more of them.

    No recomputation, sequence parallelism and FP8 as in the settings; layouts of 1,536 and
    3,072 GPUs are not printed and taken as at 512.
    """
    jobs = mlperf_jobs()
    errors = after_the_first(jobs, "MLPerf")["error_ratio"]
    for row, error in zip(jobs.iloc[1:].to_dict("records"), errors, strict=True):
        what = f"{row['gpu_count']} GPUs, calibrated on 256"
        yield _limit(what, "GPT-3 175B of MLPerf", 100 * abs(error), row["source"])


@claim(noun="configurations", name="Llama 3 405B", source="arXiv:2407.21783, Table 4")
def llama() -> Iterator[Reading]:
    """Calibrate on the first row, predict the MFU of the others; one row does not multiply out.

    Row 3 prints 4 replicas, which makes 8,192 GPUs instead of 16,384 and 8.4 M tokens instead
    of 16 M; it is predicted with 8. First and last chunk hold no layer of 128, so a chunk has
    one layer: 8 per stage. Half of the scores count, as the mask is causal, in the time and
    in the MFU. Keys and values are gathered before attention, which shows, as section 3.3.2
    says it does; a ring would hide that.
    """
    rows = published("iteration_llama3")
    for place, row in enumerate(rows, start=1):
        printed = int(np.prod([*llama_sizes(row).values(), int(row["data_parallel"])]))
        fits = printed == int(row["gpu_count"])
        yield Reading(
            f"row {place} multiplies out (1 yes, 0 no)", float(place != 3), float(fits), "",
            source=row["source"],
        )  # fmt: skip
    table = llama_jobs()
    predicted = from_the_first(table).predict(table)
    here = analyze.utilization(table.assign(dur_ns=predicted["dur_ns"]), causal=True)["mfu_share"]
    for row, share in list(zip(rows, here, strict=True))[1:]:
        printed_share = 100 * float(row["tflops_per_gpu"]) / 989
        what = f"MFU at {int(row['sequence_tokens']):,} tokens, {row['gpu_count']} GPUs: points off"
        yield _limit(
            what,
            f"Llama 3 405B, {row['sequence_tokens']}",
            abs(100 * share - printed_share),
            row["source"],
        )


@claim(
    noun="configurations",
    name="public jobs of dense models and mixtures of experts",
    source="NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md",
)
def megatron_bridge() -> Iterator[Reading]:
    """Predict printed throughputs with assumed constants, then after one row of each kind of job.

    Tokens are spread over the experts by force in these jobs. The share of grouped products
    and the launches of routing were set with rows of Qwen 3 30B-A3B and GPT OSS 120B in sight;
    Qwen 3 235B-A22B had no part in it. Rows of one model and GPU type differ by release of the
    software, too, by up to 1.8 times for one and the same layout: no closed form tells that.
    """
    jobs = analyze.public_iterations()
    blind = analyze.iteration_errors(jobs, analyze.assumed_model().predict(jobs))["error_ratio"]
    routed = jobs["expert_count"] > 1
    for name, rows in (("dense models", ~routed), ("mixtures of experts", routed)):
        yield _limit(f"{name}, median", f"{name}, median", 100 * blind[rows].abs().median())
    unseen = routed & (jobs["model"] == "Qwen 3 235B-A22B")
    yield _limit(
        "Qwen 3 235B-A22B, no part in any constant, median",
        "mixtures of experts, median",
        100 * blind[unseen].abs().median(),
    )
    seconds = jobs["dur_ns"].rank().corr((jobs["dur_ns"] * (1 + blind)).rank())
    yield Reading(
        "rank correlation of predicted and printed", 0.9, float(seconds), "", 0,
        "target: order of the jobs", "at least",
    )  # fmt: skip
    after = after_one_row_of_each(jobs[routed])["error_ratio"]
    name = "mixtures of experts, other layouts after one row, median"
    yield _limit(name, name, 100 * after.abs().median())


@claim(noun="configurations", name="nine jobs of Lumos", source="Lumos, arXiv:2504.09307, Figure 7")
def lumos() -> Iterator[Reading]:
    """Calibrate on TP2 PP2 DP8 and predict the eight others.

    Total and compute of that job are matched. Micro-batches are not printed: two per stage,
    because the printed compute time does not change with the stages. Lumos replays traces,
    which hold the network's times. A closed form knows nothing of why TP2 PP8 DP4 takes half
    as long again as PP8 DP8, and PP4 DP16 as PP4 DP8, or why PP16 idles for 0.46 s: it
    misses these. What hides behind compute is taken to be as much of what shows of tensor,
    pipeline and data parallelism as in that job; that rule was chosen with all nine in sight,
    so its error is no blind one.
    """
    table = lumos_jobs()
    predicted = from_the_first(table).predict(table)
    errors = analyze.iteration_errors(table, predicted)["error_ratio"].iloc[1:]
    yield _limit("eight jobs, total, mean", "Lumos, total", _mean(errors))
    yield _limit("eight jobs, total, median", "Lumos, total, median", 100 * errors.abs().median())
    compute = (predicted["compute_ns"] / table["compute_ns"] - 1).iloc[1:]
    yield _limit("eight jobs, compute, mean", "Lumos, compute", _mean(compute))
    hidden = table["overlap_ms"] / predicted[["tensor_ns", "pipeline_ns", "data_ns"]].sum(axis=1)
    overlap = (hidden.iloc[0] / hidden - 1).iloc[1:]
    yield _limit("eight jobs, overlap, mean", "Lumos, overlap", _mean(overlap))
