"""Claims about performance models: iterations, kernels, collectives and layouts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims import _kernel_times
from claims._closed_form import memory_footprint, model_flops, utilization
from claims._collective_times import collective_times
from claims._fast_algorithms import fast_algorithms, tensor_contractions
from claims._gemm_errors import gemm_errors
from claims._iteration_errors import cross_validated, iteration_errors
from claims._iteration_model import iteration_model
from claims._iterations import iterations
from claims._kernel_times import gemm_times
from claims._layout_what_if import layout_what_if
from claims.registry import Reading, beside, claim, published
from workbench import analyze, load
from workbench.errors import MissingExtraError
from workbench.tables import (
    CONFIGURATIONS,
    DEPENDENCIES,
    ITERATIONS,
    MATRIX_PRODUCTS,
    NODES,
    STEP_BREAKDOWN,
    Trace,
)


def printed_iterations(name: str, **same: Any) -> pd.DataFrame:
    """Make a table of iterations from a file of printed ones.

    Parameters
    ----------
    name
        File in ``data/published``, without its suffix.
    same
        What the file does not print and holds for all rows: arguments of
        :class:`workbench.analyze.Layout`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ITERATIONS`: ``gpu_count``, ``dur_ns``, ``source`` and what
        else makes a configuration.
    """
    rows = published(name)
    return measured(*((row, printed_layout(row) | same, float(row["iteration_s"])) for row in rows))


def printed_layout(row: dict[str, str]) -> dict[str, Any]:
    """Take what a row of a file tells about the layout."""
    names = {
        "tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel",
        "chunks": "chunk_count", "micro_batch": "micro_batch_count",
        "global_batch": "global_batch_count", "sequence": "sequence_tokens",
    }  # fmt: skip
    layout: dict[str, Any] = {key: int(row[name]) for key, name in names.items() if name in row}
    if "recompute" in row:
        layout["recompute"] = row["recompute"]
        layout["sequence_parallel"] = row["has_sequence_parallel"] == "yes"
    return layout


def measured(*rows: tuple[dict[str, str], dict[str, Any], float]) -> pd.DataFrame:
    """Put (printed row, layout, seconds) into a table of iterations."""
    jobs = []
    for row, layout, seconds in rows:
        shape = analyze.model_shape(row["model"])
        job = analyze.configurations(shape, analyze.Layout(**layout), gpu=row.get("gpu", "H100"))
        jobs.append(job.assign(dur_ns=round(seconds * 1e9), source=row["source"], doubt=""))
    return ITERATIONS.check(pd.concat(jobs, ignore_index=True))


# How the printed jobs were set up beyond what their tables print; see the claims.
_MLPERF: dict[str, Any] = {"flash_attention": True, "sharding": "zero1"}
_LLAMA: dict[str, Any] = {"chunks": 8, "sequence_parallel": True} | _MLPERF
_LUMOS: dict[str, Any] = {"sequence_parallel": True} | _MLPERF
_BARS = ("compute", "overlap", "communication", "other")


def after_the_first(jobs: pd.DataFrame, group: str) -> pd.DataFrame:
    """Predict all jobs but the first, on which assumed constants are calibrated."""
    later = jobs.iloc[1:].reset_index(drop=True)
    return iteration_errors(later, from_the_first(jobs).predict(later), group=group)


def after_one_row_of_each(jobs: pd.DataFrame) -> pd.DataFrame:
    """Calibrate on the first row of each model and GPU type; predict its other layouts."""
    errors = []
    for name, rows in jobs.groupby(["model", "gpu"]):
        layouts = rows[list(CONFIGURATIONS.columns)].astype(str).agg(" ".join, axis=1)
        unseen = rows[layouts != layouts.iloc[0]].reset_index(drop=True)
        if len(unseen):
            predicted, group = from_the_first(rows).predict(unseen), ", ".join(map(str, name))
            errors.append(iteration_errors(unseen, predicted, group=group))
    return pd.concat(errors, ignore_index=True)


def from_the_first(jobs: pd.DataFrame) -> analyze.IterationModel:
    """Calibrate assumed constants on the first job."""
    return analyze.calibrated_to(analyze.assumed_model(), jobs.iloc[:1])


def megatron_errors() -> pd.DataFrame:
    """Predict each of four models from constants calibrated on the other three."""
    jobs = printed_iterations("iteration_megatron")
    errors = []
    for name in jobs["model"].unique():
        own = jobs[jobs["model"] == name]
        model = analyze.calibrated_to(analyze.assumed_model(), jobs[jobs["model"] != name])
        errors.append(iteration_errors(own, model.predict(own), group=name))
    return pd.concat(errors, ignore_index=True)


def llama_jobs() -> pd.DataFrame:
    """Return the rows of Llama 3; replicas are GPUs over the other sizes."""
    jobs = []
    for row in published("iteration_llama3"):
        sizes = llama_sizes(row)
        # Row 3 prints 4 replicas, which contradicts its GPUs: they follow from the other sizes.
        data = int(row["gpu_count"]) // int(np.prod(list(sizes.values())))
        batch = {"global_batch": data * int(row["batch_per_replica"]), "data": data}
        layout = {**_LLAMA, **sizes, **batch, "sequence": int(row["sequence_tokens"])}
        job = measured((row, layout, 1.0))
        # The paper prints TFLOPs per GPU, which count half of the scores: the mask is causal.
        flops = float(model_flops(job, causal=True)["model_flops_count"].iloc[0])
        seconds = flops / (float(row["tflops_per_gpu"]) * 1e12 * int(row["gpu_count"]))
        jobs.append(job.assign(dur_ns=round(1e9 * seconds)))
    return ITERATIONS.check(pd.concat(jobs, ignore_index=True))


def llama_sizes(row: dict[str, str]) -> dict[str, int]:
    """Take the printed sizes of a row but its replicas."""
    return {name: int(row[f"{name}_parallel"]) for name in ("tensor", "context", "pipeline")}


def lumos_jobs() -> pd.DataFrame:
    """Return the nine bars of Lumos, with compute and overlap besides the total."""
    jobs = []
    for row in published("iteration_lumos"):
        rounds = 2 * int(row["pipeline_parallel"])
        layout = {**printed_layout(row), **_LUMOS}
        layout["global_batch"] = rounds * int(row["data_parallel"])
        total = sum(float(row[f"{bar}_ms"]) for bar in _BARS)
        busy = round(1e6 * (float(row["compute_ms"]) + float(row["overlap_ms"])))
        job = measured((row, layout, total / 1e3))
        jobs.append(job.assign(compute_ns=busy, overlap_ms=float(row["overlap_ms"])))
    return pd.concat(jobs, ignore_index=True)


_GIB = 2**30


def _limit(name: str, computed: float, label: str = "", source: str = "") -> Reading:
    """Compare with a limit of the file, or with what was reached where that misses it."""
    (row,) = (row for row in published("configuration_limits") if row["what"] == name)
    reached, source = float(row["reached"]) if row["reached"] else None, source or row["source"]
    limit = float(row["limit"])
    return Reading(label or name, limit, computed, row["unit"], 0, source, "at most", reached)


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
    printed errors are listed, but are not like for like. The rows of one node are exactly
    linear in layers and micro-batches, as if put together from measured layers: 720 rows of a
    width hold 16 layers' times (four of TP, four of micro-batch), and the other width is
    held out, so nothing but physics tells what width does.
    """
    multi = iterations(folder / "ground_truth_multi.csv")
    single = iterations(folder / "ground_truth_single.csv")
    paper = {row["nodes"]: row for row in published("vtrain_errors")}
    five = cross_validated(multi, residual="trees")
    yield _limit("several nodes, five parts", _mean(five["error_ratio"]))
    yield Reading(
        "several nodes, five parts, beside vTrain's own", float(paper["multi"]["mape_pct"]),
        _mean(five["error_ratio"]), "%", 0, paper["multi"]["source"], "at most",
    )  # fmt: skip
    large = cross_validated(multi, by="gpu_count", held_out=512, residual="trees")
    yield _limit("512 GPUs held out", _mean(large["error_ratio"]))
    wide = cross_validated(single, by="hidden", held_out=2048, residual="trees")
    yield _limit("one node, widest held out", _mean(wide["error_ratio"]))


@claim(noun="configurations", name="eight Megatron jobs", source="arXiv:2205.05198, Table 5")
def megatron() -> Iterator[Reading]:
    """Predict both jobs of a model from assumed constants calibrated on the other three models.

    Calculon, whose mean is printed beside, sets the efficiencies of matrix products by size;
    it is not told on which measurements. HFU is dropped: the paper counts attention that is
    computed again three times, as if its backward pass were repeated, too.
    """
    jobs = printed_iterations("iteration_megatron")
    errors, label = megatron_errors()["error_ratio"], "of eight, each model held out"
    yield _limit("eight Megatron jobs", _mean(errors), f"mean {label}")
    worst = 100 * float(errors.abs().max())
    yield _limit("eight Megatron jobs, largest", worst, f"largest {label}")
    shares = 100 * utilization(jobs)["mfu_share"]
    for row, computed in zip(published("iteration_megatron"), shares.tolist(), strict=True):
        if row["mfu_pct"]:
            name = f"MFU, {row['model']}"
            yield beside(row, computed, name, column="mfu_pct", unit="%", near=0.3)


@claim(noun="configurations", name="memory of Megatron jobs", source="arXiv:2205.05198, Figure 1")
def memory() -> Iterator[Reading]:
    """Compare states to 9 % and activations to 3 %: the figure leaves embeddings out."""
    for row in published("memory_megatron"):
        layout = analyze.Layout(**{**printed_layout(row), "data": 1})
        jobs = analyze.configurations(analyze.model_shape(row["model"]), layout, gpu="A100")
        need = memory_footprint(jobs).iloc[0]
        states = sum(need[f"{name}_bytes"] for name in ("parameters", "gradients", "optimizer"))
        for name, computed, column, near in (
            ("states", states, "state_gib", 0.09),
            ("activations", need["activations_bytes"], "activations_gib", 0.03),
        ):
            printed = float(row[column])
            label = f"{row['model']}, {name}, recompute {row['recompute']}"
            yield Reading(label, printed, computed / _GIB, "GiB", near * printed, row["source"])


@claim(noun="configurations", name="GPT-3 175B of MLPerf", source="MLPerf Training v4.1, GPT-3")
def mlperf() -> Iterator[Reading]:
    """Calibrate assumed constants on 256 GPUs, and predict more of them.

    No recomputation, sequence parallelism and FP8 as in the settings; layouts of 1,536 and
    3,072 GPUs are not printed and taken as at 512.
    """
    jobs = printed_iterations("iteration_mlperf_gpt3", **_MLPERF)
    errors = after_the_first(jobs, "MLPerf")["error_ratio"]
    for row, error in zip(jobs.iloc[1:].to_dict("records"), errors, strict=True):
        label = f"{row['gpu_count']} GPUs, calibrated on 256"
        yield _limit("GPT-3 175B of MLPerf", 100 * abs(error), label, row["source"])


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
    for number, row in enumerate(rows, start=1):
        printed = int(np.prod([*llama_sizes(row).values(), int(row["data_parallel"])]))
        fits, label = printed == int(row["gpu_count"]), f"row {number} multiplies out (1 yes, 0 no)"
        yield Reading(label, float(number != 3), float(fits), "", source=row["source"])
    table = llama_jobs()
    predicted = from_the_first(table).predict(table)
    computed = utilization(table.assign(dur_ns=predicted["dur_ns"]), causal=True)["mfu_share"]
    for row, share in list(zip(rows, computed, strict=True))[1:]:
        printed_share = 100 * float(row["tflops_per_gpu"]) / 989
        tokens, off = row["sequence_tokens"], abs(100 * share - printed_share)
        label = f"MFU at {int(tokens):,} tokens, {row['gpu_count']} GPUs: points off"
        yield _limit(f"Llama 3 405B, {tokens}", off, label, row["source"])


@claim(
    noun="configurations",
    name="public jobs of dense models and mixtures of experts",
    source="NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md",
)
def megatron_bridge() -> Iterator[Reading]:
    """Predict printed throughputs with assumed constants, then after one row of each kind of job.

    Tokens are spread over the experts by force in these jobs. The share of grouped products
    and the launches of routing were set with rows of Qwen 3 30B-A3B and GPT OSS 120B in sight;
    Qwen 3 235B-A22B and DeepSeek V3 had no part in it. Jobs in 4 bits stand apart: which of their
    products are that narrow is not printed. Rows of one model and GPU type differ by release of the
    software, too, by up to 1.8 times for one and the same layout: no closed form tells that.
    """
    every = analyze.public_iterations()
    releases = every["source"].str.extract(r"NeMo ([\d.]+) container", expand=False)
    limits = {"26.06": "mixtures of experts of later software, median",
              "26.08": "mixtures of experts, median"}  # fmt: skip
    for release, limit in limits.items():
        own = every[(releases == release) & (every["expert_count"] > 1)]
        later = analyze.assumed_model(release=release).predict(own)
        # Every second row had no part in the factor of the release.
        off = 100 * iteration_errors(own, later)["error_ratio"].iloc[1::2].abs().median()
        name = f"mixtures of experts, NeMo {release}, rows without a part in its factor, median"
        yield _limit(limit, off, name)
    jobs = every[releases < "26.06"].reset_index(drop=True)
    blind = iteration_errors(jobs, analyze.assumed_model().predict(jobs))["error_ratio"]
    routed, narrow = jobs["expert_count"] > 1, jobs["gpu"].str.endswith("FP4")
    for name, rows in (("dense models", ~routed & ~narrow), ("mixtures of experts", routed)):
        yield _limit(f"{name}, median", 100 * blind[rows].abs().median())
    for name in ("Qwen 3 235B-A22B", "DeepSeek V3"):
        unseen = 100 * blind[jobs["model"].str.startswith(name)].abs().median()
        label = f"{name}, no part in any constant, median"
        yield _limit("mixtures of experts, median", unseen, label)
    yield _limit("dense models in 4 bits, median", 100 * blind[narrow].abs().median())
    seconds = jobs["dur_ns"].rank().corr((jobs["dur_ns"] * (1 + blind)).rank())
    yield Reading(
        "rank correlation of predicted and printed", 0.9, float(seconds), "", 0,
        "target: order of the jobs", "at least",
    )  # fmt: skip
    after = after_one_row_of_each(jobs[routed])["error_ratio"]
    name = "mixtures of experts, other layouts after one row, median"
    yield _limit(name, 100 * after.abs().median())


@claim(
    noun="configurations",
    name="parameters of three generations of Llama, and of others",
    source="model cards and reports, a row each",
)
def parameters() -> Iterator[Reading]:
    """Count the parameters of published shapes.

    Biases and the norms of queries and keys are left out; so is what sees images.
    """
    for row in published("model_parameters"):
        shape = analyze.model_shape(row["model"])
        active = row["count"] == "active"
        here = (shape.active_parameter_count if active else shape.parameter_count) / 1e9
        yield Reading(
            f"{row['model']}, {row['count']}", float(row["printed_b"]), here, "10^9",
            float(row["tolerance_b"]), row["source"],
        )  # fmt: skip


@claim(
    noun="configurations",
    name="FLOP/s of the Llama 3 405B run",
    source="arXiv:2407.21783, Table 4, beside the GPU-hours of its model card",
)
def training_run() -> Iterator[Reading]:
    """GPU-hours with restarts cannot come to more than the MFU printed for its steps."""
    runs = analyze.training_runs().set_index("model")
    share = 100 * runs["peak_share"]["Llama 3 405B"]
    yield Reading("share of the peak", 43, share, "%", 0, "MFU of its steps: 38 to 43", "at most")


@claim(noun="configurations", name="nine jobs of Lumos", source="Lumos, arXiv:2504.09307, Figure 7")
def lumos() -> Iterator[Reading]:
    """Calibrate on TP2 PP2 DP8 and predict the eight others.

    Total and compute of that job are matched. Micro-batches are not printed: two per stage, because
    the printed compute time does not change with the stages. Lumos replays traces, which hold the
    network's times. A closed form knows nothing of why TP2 PP8 DP4 takes half as long again as PP8
    DP8, and PP4 DP16 as PP4 DP8, or why PP16 idles for 0.46 s: it misses these. What hides behind
    compute is taken to be as much of what shows of tensor, pipeline and data parallelism as in that
    job; that rule was chosen with all nine in sight, so its error is not a blind one.
    """
    table = lumos_jobs()
    predicted = from_the_first(table).predict(table)
    errors = iteration_errors(table, predicted)["error_ratio"].iloc[1:]
    yield _limit("Lumos, total", _mean(errors), "eight jobs, total, mean")
    median = 100 * errors.abs().median()
    yield _limit("Lumos, total, median", median, "eight jobs, total, median")
    compute = (predicted["compute_ns"] / table["compute_ns"] - 1).iloc[1:]
    yield _limit("Lumos, compute", _mean(compute), "eight jobs, compute, mean")
    hidden = table["overlap_ms"] / predicted[["tensor_ns", "pipeline_ns", "data_ns"]].sum(axis=1)
    overlap = (hidden.iloc[0] / hidden - 1).iloc[1:]
    yield _limit("Lumos, overlap", _mean(overlap), "eight jobs, overlap, mean")


_GPUS = ("H100", "H200")
_SOURCE = "measured by NVIDIA, in the package aiconfigurator-core"


@claim(noun="kernel_times", name="matrix products of other (n, k)", source=_SOURCE)
def matrix_products() -> Iterator[Reading]:
    """Predict every bfloat16 product from those of other (n, k), in four folds.

    483 different (n, k) with 74 m each are cut into four folds at random with a fixed seed; the
    whole model is fitted to three and judged on the fourth. ``training`` is m, n, k >= 1024.
    The roofline with the peaks of the data sheet is printed beside it, as what it must beat.
    """
    errors = gemm_errors(gemm_times(gpus=_GPUS), fold_count=4)
    # Without the trees there is nothing to judge: the claim is absent, not failed.
    if not (errors["model"] == "hybrid").any():
        msg = "the trees need scikit-learn; pip install 'ai-infra-workbench[kernels]'"
        raise MissingExtraError(msg)
    mean = errors.set_index(["gpu", "model", "shapes"])["mean_ratio"]
    for row in published("kernel_models"):
        if row["model"] == "matrix product":
            gpu, shapes, limit = row["gpu"], row["what"], float(row["mean_pct"])
            yield _kernel_times_limit(f"{gpu}, {shapes} shapes", mean[(gpu, "hybrid", shapes)], row)
            naive = 100 * float(mean[(gpu, "roofline", shapes)])
            yield Reading(
                f"{gpu}, {shapes} shapes, roofline alone", limit, naive, "%", bound="at least",
                source="what a model must beat: the peaks of the data sheet",
            )  # fmt: skip


@claim(noun="kernel_times", name="collectives of a size left out", source=_SOURCE)
def collectives_left_out() -> Iterator[Reading]:
    """Leave out one size at a time, its repeats and element types with it; 21 sizes each.

    512 bytes to 512 MiB in powers of two, on one node. The first and the last are dropped too,
    where the lines are extrapolated.
    """
    yield from _collectives("collective, size left out", "held_out_ns")


@claim(noun="kernel_times", name="collectives by three lines", source=_SOURCE)
def collectives_fitted() -> Iterator[Reading]:
    """Compare the lines with the very sizes they were fitted to, as is often done."""
    yield from _collectives("collective, all sizes fitted", "modelled_ns")


def _collectives(model: str, column: str) -> Iterator[Reading]:
    times = _modelled_collectives()
    error = (times[column] / times["dur_ns"] - 1).abs()
    mean = error.groupby([times["gpu"], times["collective"], times["rank_count"]]).mean()
    for row in published("kernel_models"):
        if row["model"] == model:
            ranks = int(row["rank_count"])
            computed = mean[(row["gpu"], row["what"], ranks)]
            name = f"{row['gpu']}, {row['what']}, {ranks} ranks"
            yield _kernel_times_limit(name, computed, row)


@cache
def _modelled_collectives() -> pd.DataFrame:
    return collective_times(_kernel_times.collective_times(gpus=_GPUS))


def _kernel_times_limit(label: str, computed: float, row: dict[str, str]) -> Reading:
    limit, computed = float(row["mean_pct"]), 100 * float(computed)
    reached = float(row["reached_pct"]) if row["reached_pct"] else None
    return Reading(label, limit, computed, "%", 0, row["source"], "at most", reached)


_MODEL = ["hidden", "head_count", "layer_count", "sequence_tokens"]
_SIZES = ["tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_count"]
_JOB = [*_MODEL, "gpu_count", "global_batch_count"]
Columns = tuple[list[str], list[str]]
_LAYOUTS: Columns = (_JOB, _SIZES)
_TALK = ("tensor", "context", "expert", "pipeline", "data")
# Of 109 rows on several nodes, and of 1,440 on one, each such one is a trace.
_EVERY_OF_SEVERAL, _EVERY = 4, 71


@claim(
    noun="layout_changes",
    name="other layouts of jobs on several nodes",
    source="VIA-Research/vTrain, data; against scaling by FLOPs per GPU",
    needs=("iterations-vtrain",),
)
def several_nodes(folder: Path) -> Iterator[Reading]:
    """Take every 4th row as the trace, and ask for the other layouts of the same job.

    Same model, GPUs and batch; another TP, PP, DP or micro-batch. Constants are assumed, or
    fitted to the jobs of the other models. What is printed is not a published number, but the mean
    error of the naive rule, which must be beaten: time goes with FLOPs per GPU, so here it stays.
    A row is one iteration time without a breakdown; the closed form splits it, and there is no
    overlap. So this tests the ratios, not the parts of a trace.
    """
    rows = iterations(folder / "ground_truth_multi.csv")
    errors = _errors(rows, analyze.assumed_model(), _LAYOUTS, every=_EVERY_OF_SEVERAL)
    yield _reading("constants assumed", errors)
    values = rows["hidden"].unique()
    fitted = [
        _fitted_errors(rows, "hidden", value, _LAYOUTS, every=_EVERY_OF_SEVERAL) for value in values
    ]
    yield _reading("fitted to other models", np.concatenate(fitted))


@claim(
    noun="layout_changes",
    name="other configurations of jobs on one node",
    source="VIA-Research/vTrain, data; against scaling by FLOPs per GPU",
    needs=("iterations-vtrain",),
)
def one_node(folder: Path) -> Iterator[Reading]:
    """Take every 71st row as the trace, and ask for another layout, width or number of GPUs.

    As on several nodes. Fitted constants come from jobs of the other width; for another width,
    where both are requested, from jobs of other depths.
    """
    rows = iterations(folder / "ground_truth_single.csv")
    changes = {
        "layout": _LAYOUTS,
        "number of GPUs": ([*_MODEL, *_SIZES[:2], "micro_batch_count"], ["gpu_count"]),
        "width": ([*(name for name in _JOB if name != "hidden"), *_SIZES], ["hidden"]),
    }
    for change, columns in changes.items():
        errors = _errors(rows, analyze.assumed_model(), columns, every=_EVERY)
        yield _reading(f"another {change}, constants assumed", errors)
        apart = "layer_count" if change == "width" else "hidden"
        values = sorted(rows[apart].unique())[:: 3 if change == "width" else 1]
        fitted = [_fitted_errors(rows, apart, value, columns, every=_EVERY) for value in values]
        yield _reading(f"another {change}, fitted to others", np.concatenate(fitted))


def _reading(label: str, errors: np.ndarray) -> Reading:
    """Put the mean error beside that of the naive rule; both are columns of ``errors``."""
    computed, naive = 100 * np.abs(errors).mean(axis=0)
    label = f"{label}, {len(errors):,} pairs, mean error beside the naive rule's"
    return Reading(label, naive, computed, "%", bound="at most")


def _fitted_errors(
    rows: pd.DataFrame, apart: str, value: Any, columns: Columns, *, every: int
) -> np.ndarray:
    """Return the errors of the rows with one value of a column, fitted to all others."""
    own = rows[apart] == value
    model = iteration_model(rows[~own], residual="none")
    return _errors(rows[own], model, columns, every=every)


def _errors(
    rows: pd.DataFrame, model: analyze.IterationModel, columns: Columns, *, every: int
) -> np.ndarray:
    """Return the errors of all pairs: predicted by a model that saw none, and by FLOPs per GPU.

    One row of so many is the trace. Both rows of a pair agree in the first columns, and differ in
    some of the second.
    """
    same, differing = columns
    rows = rows.reset_index(drop=True)
    forms = model.predict(rows)
    flops = model_flops(rows)["hardware_flops_count"] / rows["gpu_count"]
    job = rows.groupby(same).ngroup()
    errors = [np.zeros((0, 2))]
    for position in range(0, len(rows), every):
        traced = rows.iloc[[position]]
        differs = (rows[differing].to_numpy() != traced[differing].to_numpy()).any(axis=1)
        near = ((job == job[position]) & differs).to_numpy()
        if near.any():
            steps = _as_trace(traced.iloc[0], forms.iloc[position])
            predicted = layout_what_if(steps, traced, rows[near], model=model)
            truth = rows.loc[near, "dur_ns"].to_numpy()
            naive = traced["dur_ns"].iloc[0] * flops[near].to_numpy() / flops[position]
            errors.append(np.column_stack([predicted["dur_ns"] / truth - 1, naive / truth - 1]))
    return np.concatenate(errors)


def _as_trace(measured: pd.Series, form: pd.Series) -> pd.DataFrame:
    """Split one measured iteration as the closed form does: a trace of one step."""
    share = measured["dur_ns"] / form["analytic_ns"]
    compute = round(share * (form["compute_ns"] + form["optimizer_ns"]))
    talk = round(share * sum(form[f"{kind}_ns"] for kind in _TALK))
    row = {
        "rank": 0, "step": 0, "dur_ns": measured["dur_ns"], "compute_ns": compute,
        "overlap_ns": 0, "exposed_communication_ns": talk, "exposed_memory_ns": 0,
        "exposed_other_ns": 0, "idle_ns": measured["dur_ns"] - compute - talk,
    }  # fmt: skip
    return STEP_BREAKDOWN.of([row])


@claim(
    noun="chakra_export",
    name="graphs written as Chakra and read again",
    source="the rows before writing; not one may differ",
    needs=("kineto-resnet", "kineto-dlrm-8rank", "chakra-et"),
)
def round_trip(resnet: Path, dlrm_folder: Path, chakra: Path) -> Iterator[Reading]:
    """Compare nodes and dependencies of every sample with what a written copy gives back."""
    files = {
        "linear": resnet / "linear_et.json.gz",
        "ResNet": resnet / "resnet_et.json.gz",
        "DLRM, 8 ranks": dlrm_folder / "dlrm_pytorch_et.tar.gz",
        "Chakra's own sample": chakra / "feeder_tests_trace.tar.gz",
    }
    for name, file in files.items():
        trace = load.traces(file, progress=False)
        # Chakra's sample has dependencies on nodes that it lacks; they are kept as they are.
        again = _written(trace, allow_stuck=name.startswith("Chakra"))
        for field, table in (("nodes", NODES), ("dependencies", DEPENDENCIES)):
            before, after = getattr(trace, field), getattr(again, field)
            yield Reading(f"{name}, {field}", len(before), len(after), unit="")
            different = _different(table.cast(before), table.cast(after))
            yield Reading(f"{name}, {field} that differ", 0, different, unit="")


def _written(trace: Trace, *, allow_stuck: bool) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        load.write_chakra(trace, Path(folder, "copy"), allow_stuck=allow_stuck)
        return load.traces(folder, progress=False)


def _different(before: pd.DataFrame, after: pd.DataFrame) -> int:
    """Count the rows that are not the same; all if there are not as many."""
    if len(before) != len(after):
        return max(len(before), len(after))
    pairs = [before[name].astype(object).where(before[name].notna(), None) for name in before]
    copies = [after[name].astype(object).where(after[name].notna(), None) for name in after]
    same = pd.concat([a == b for a, b in zip(pairs, copies, strict=True)], axis=1)
    # Missing differs from missing, so such cells are compared apart.
    missing = pd.concat([a.isna() & b.isna() for a, b in zip(pairs, copies, strict=True)], axis=1)
    return int((~(same | missing).all(axis=1)).sum())


# Claims about fast matrix multiplication.

# The abstract does not print the size of its largest speed-up; this is a large product.
_LARGE, _SPEED = 16_384, 0.03
_ENDS = ("hidden", "unfused")
_COLUMNS = list(MATRIX_PRODUCTS.columns)


@claim(
    noun="fast_matmul",
    name="coefficients of 31 algorithms",
    source="flame/fmm-gen, meta/algorithms: rank and nonzeros in the names of the files",
    needs=("fast-matmul",),
)
def coefficients(folder: Path) -> Iterator[Reading]:
    """Verify every algorithm by Brent's equations to 1e-12; names tell rank and nonzeros."""
    for row in analyze.fast_algorithms(fast_algorithms(folder)).to_dict("records"):
        yield Reading(f"{row['algorithm']}, deviation", 0, row["residual_ratio"], "", 1e-12)
        if name := re.fullmatch(r"\w+?\d\d\d-(\d+)-(\d+)", row["algorithm"]):
            rank = row["product_count"]
            sums = sum(row[f"{operand}_addition_count"] for operand in "abc")
            nonzeros = sums + 2 * rank + row["m_part_count"] * row["n_part_count"]
            yield Reading(f"{row['algorithm']}, rank", int(name[1]), rank, "")
            yield Reading(f"{row['algorithm']}, nonzeros", int(name[2]), nonzeros, "")


@claim(
    noun="fast_matmul", name="Strassen on a V100, and for contractions", source="arXiv:1808.07984"
)
def strassen() -> Iterator[Reading]:
    """Hold the printed numbers against the bounds of the model; they are not measured here.

    A fused kernel lies between sums in memory and sums that are hidden, so the printed crossover
    must, too. The second level pays at twice the size of the first or later. The printed speed-up
    of one level is compared at 16,384, with sums in memory, to 0.03.
    """
    square = MATRIX_PRODUCTS.cast(
        pd.DataFrame([("square", _LARGE, _LARGE, _LARGE, 1, "layout")], columns=_COLUMNS)
    )
    first = float("nan")
    for row in published("fast_matmul"):
        quantity, levels, printed = row["what"], int(row["level_count"]), float(row["value"])
        label, source = f"{row['gpu']}, {levels} level, {quantity}", row["source"]
        if quantity == "crossover" and levels == 1:
            first = printed
            sides = analyze.fast_matmul_crossover().query("gpu == 'V100' and dtype == 'float32'")
            hidden, memory = (float(sides[f"{name}_count"].iloc[0]) for name in _ENDS)
            yield Reading(f"{label}, sums hidden", printed, hidden, "", 0, source, "at most")
            yield Reading(f"{label}, sums in memory", printed, memory, "", 0, source, "at least")
        elif quantity == "crossover":
            yield Reading(f"{label}, of the first", printed / first, 2, "x", 0, source, "at most")
        else:
            bound = (8 / 7) ** levels
            yield Reading(f"{label}, bound", printed, bound, "x", 0, source, "at least")
        if quantity == "speed-up" and levels == 1:
            gain = analyze.fast_matmul(square, gpu=row["gpu"], dtype=row["dtype"])
            modelled = float(gain["unfused_ratio"].iloc[0])
            yield Reading(f"{label}, at 16,384", printed, modelled, "x", _SPEED, source)


@claim(
    noun="fast_matmul",
    name="folded contractions",
    source="flame/tblis-strassen, bin/tcb.txt: sizes of the indices",
    needs=("tensor-contractions",),
)
def contractions(folder: Path) -> Iterator[Reading]:
    """Compare the work of each folded product with the product of the sizes of its indices."""
    path = folder / "tcb.txt"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    table = tensor_contractions(path)
    for row, line in zip(table.to_dict("records"), lines, strict=True):
        printed = prod(int(size) for size in re.findall(r":(\d+)", line))
        folded = row["m_count"] * row["n_count"] * row["k_count"]
        yield Reading(row["product"], printed, folded, "")


# Claims about nodes that serve recommendation models.

_CLOSE_GB = 0.01


@claim(
    noun="inference",
    name="bounds of a node that serves DLRM",
    source="MLPerf Inference v0.7; mlcommons/training",
)
def bounds() -> Iterator[Reading]:
    """Hold what was served against the bound of data sheets, and sizes against the formula.

    The bound is that of peaks without launches or exchange, which no placement of the tables can
    exceed. A sample of the benchmark is 100 to 700 pairs, so the largest number is compared.
    Tables of 128 columns in float32, to 0.01 GB. Of the platform of arXiv:2107.04140 nothing is
    compared: its models and measurements could not be seen.
    """
    rows = {(row["what"], row["card_count"]): row for row in published("inference_numbers")}
    pairs = float(rows["pairs of a sample", ""]["value"])
    for (quantity, count), row in rows.items():
        label, printed, source = f"{row['model']} {row['card']}", float(row["value"]), row["source"]
        if quantity == "served":
            card = analyze.inference_card(row["card"])
            ideal = analyze.InferenceNode(
                card, int(count), 1 << 20, "replicated", 1, 1, 1, weights_on_chip=True, launch_us=0
            )
            table = analyze.inference_node(analyze.recommendation_model(row["model"]), ideal)
            bound = float(table["throughput_per_s"].min())
            name = f"{label} x {count}, pairs per second"
            yield Reading(name, pairs * printed, bound, "1/s", 0, source, "at least")
        elif quantity == "size of tables":
            model = analyze.recommendation_model(row["model"], element_bytes=4)
            card = analyze.inference_card("T4")
            node = analyze.InferenceNode(card, 1, row_extra_bytes=0)
            needed = analyze.inference_node(model, node)["needed_bytes"].iloc[0]
            size = (needed - model.weight_count) / 1e9
            yield Reading(f"{row['model']}, tables", printed, size, "GB", _CLOSE_GB, source)
