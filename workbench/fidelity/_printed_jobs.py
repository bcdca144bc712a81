"""Training jobs whose iteration times others printed, each predicted without having been seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench import analyze
from workbench.fidelity._configurations import measured, printed_iterations, printed_layout
from workbench.fidelity._published import published
from workbench.tables import CONFIGURATIONS, ITERATION_ERRORS, ITERATIONS

# How the printed jobs were set up beyond what their tables print; see the claims.
_MLPERF: dict[str, Any] = {"flash_attention": True, "sharding": "zero1"}
_LLAMA: dict[str, Any] = {"chunks": 8, "sequence_parallel": True} | _MLPERF
_LUMOS: dict[str, Any] = {"sequence_parallel": True} | _MLPERF
_BARS = ("compute", "overlap", "communication", "other")


def printed_predictions() -> pd.DataFrame:
    """Predict every job whose iteration time a paper or a submission prints.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ITERATION_ERRORS`; ``group`` names the source and what
        the assumed constants were calibrated on. Jobs that served to calibrate are left out.
    """
    jobs = mlperf_jobs()
    llama, lumos = llama_jobs(), lumos_jobs()
    found = [
        megatron_errors().assign(group="Megatron, A100: calibrated on its other models"),
        after_the_first(jobs, "GPT-3 175B, MLPerf: calibrated on 256 H100"),
        after_the_first(llama, "Llama 3 405B: calibrated on 8,192 H100"),
        after_the_first(lumos, "Lumos, 15B: calibrated on TP2 PP2 DP8"),
    ]
    return ITERATION_ERRORS.check(pd.concat(found, ignore_index=True))


def after_the_first(jobs: pd.DataFrame, group: str) -> pd.DataFrame:
    """Predict all jobs but the first, on which assumed constants are calibrated."""
    rest = jobs.iloc[1:].reset_index(drop=True)
    return analyze.iteration_errors(rest, from_the_first(jobs).predict(rest), group=group)


def after_one_row_of_each(jobs: pd.DataFrame) -> pd.DataFrame:
    """Calibrate on the first row of each model and GPU type; predict its other layouts."""
    errors = []
    for name, rows in jobs.groupby(["model", "gpu"]):
        layouts = rows[list(CONFIGURATIONS.columns)].astype(str).agg(" ".join, axis=1)
        others = rows[layouts != layouts.iloc[0]].reset_index(drop=True)
        if len(others):
            model = from_the_first(rows)
            errors.append(
                analyze.iteration_errors(
                    others, model.predict(others), group=", ".join(map(str, name))
                )
            )
    return pd.concat(errors, ignore_index=True)


def from_the_first(jobs: pd.DataFrame) -> analyze.IterationModel:
    """Calibrate assumed constants on the first job."""
    return analyze.calibrated_to(analyze.assumed_model(), jobs.iloc[:1])


def megatron_errors() -> pd.DataFrame:
    """Predict each of four models from constants calibrated on the other three."""
    jobs = printed_iterations("iteration_megatron")
    errors = []
    for name in jobs["model"].unique():
        others, own = jobs[jobs["model"] != name], jobs[jobs["model"] == name]
        model = analyze.calibrated_to(analyze.assumed_model(), others)
        errors.append(analyze.iteration_errors(own, model.predict(own), group=name))
    return pd.concat(errors, ignore_index=True)


def mlperf_jobs() -> pd.DataFrame:
    """Give the printed jobs of MLPerf, 256 GPUs first."""
    return printed_iterations("iteration_mlperf_gpt3", **_MLPERF)


def llama_jobs() -> pd.DataFrame:
    """Give the rows of Llama 3; replicas are GPUs over the other sizes."""
    jobs = []
    for row in published("iteration_llama3"):
        sizes = llama_sizes(row)
        data = int(row["gpu_count"]) // int(np.prod(list(sizes.values())))
        batch = {"global_batch": data * int(row["batch_per_replica"]), "data": data}
        layout = {**_LLAMA, **sizes, **batch, "sequence": int(row["sequence_tokens"])}
        jobs.append(_as_fast_as_printed(row, layout))
    return pd.concat(jobs, ignore_index=True)


def llama_sizes(row: dict[str, str]) -> dict[str, int]:
    """Take the printed sizes of a row but its replicas."""
    return {name: int(row[f"{name}_parallel"]) for name in ("tensor", "context", "pipeline")}


def _as_fast_as_printed(row: dict[str, str], layout: dict[str, Any]) -> pd.DataFrame:
    """Turn printed TFLOPs per GPU into seconds."""
    job = measured((row, layout, 1.0))
    flops = float(analyze.model_flops(job, causal=True)["model_flops_count"].iloc[0])
    seconds = flops / (float(row["tflops_per_gpu"]) * 1e12 * int(row["gpu_count"]))
    return ITERATIONS.check(job.assign(dur_ns=round(1e9 * seconds)))


def lumos_jobs() -> pd.DataFrame:
    """Give the nine bars of Lumos, with compute and overlap besides the total."""
    jobs = []
    for row in published("iteration_lumos"):
        rounds = 2 * int(row["pipeline_parallel"])
        layout = {**printed_layout(row), **_LUMOS}
        layout["global_batch"] = rounds * int(row["data_parallel"])
        total = sum(float(row[f"{part}_ms"]) for part in _BARS)
        busy = round(1e6 * (float(row["compute_ms"]) + float(row["overlap_ms"])))
        job = measured((row, layout, total / 1e3))
        jobs.append(job.assign(compute_ns=busy, overlap_ms=float(row["overlap_ms"])))
    return pd.concat(jobs, ignore_index=True)
