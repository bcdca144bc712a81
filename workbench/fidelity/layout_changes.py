"""Claims about layouts: measured iterations asked for their neighbours, beside a naive rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.fidelity._registry import Reading, claim
from workbench.tables import STEP_BREAKDOWN

_MODEL = ["hidden", "head_count", "layer_count", "sequence_tokens"]
_SIZES = ["tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_count"]
_JOB = [*_MODEL, "gpu_count", "global_batch_count"]
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
    fitted to the jobs of the other models. What is printed is no published number, but the mean
    error of the naive rule, which must be beaten: time goes with FLOPs per GPU, so here it stays.
    A row is one iteration time without a breakdown; the closed form splits it, and there is no
    overlap. So this tests the ratios, not the parts of a trace.
    """
    rows = load.iterations(folder / "ground_truth_multi.csv")
    found = _errors(rows, analyze.assumed_model(), _JOB, _SIZES, every=_EVERY_OF_SEVERAL)
    yield _reading("constants assumed", found)
    fitted = []
    for hidden in rows["hidden"].unique():
        model = analyze.iteration_model(rows[rows["hidden"] != hidden], residual="none")
        own = rows[rows["hidden"] == hidden]
        fitted.append(_errors(own, model, _JOB, _SIZES, every=_EVERY_OF_SEVERAL))
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
    where both are asked for, from jobs of other depths.
    """
    rows = load.iterations(folder / "ground_truth_single.csv")
    same = {
        "layout": (_JOB, _SIZES),
        "number of GPUs": ([*_MODEL, *_SIZES[:2], "micro_batch_count"], ["gpu_count"]),
        "width": ([*(name for name in _JOB if name != "hidden"), *_SIZES], ["hidden"]),
    }
    for what, (alike, other) in same.items():
        found = _errors(rows, analyze.assumed_model(), alike, other, every=_EVERY)
        yield _reading(f"another {what}, constants assumed", found)
        apart = "layer_count" if what == "width" else "hidden"
        fitted = []
        for value in sorted(rows[apart].unique())[:: 3 if what == "width" else 1]:
            model = analyze.iteration_model(rows[rows[apart] != value], residual="none")
            own = rows[rows[apart] == value]
            fitted.append(_errors(own, model, alike, other, every=_EVERY))
        yield _reading(f"another {what}, fitted to others", np.concatenate(fitted))


def _reading(what: str, errors: np.ndarray) -> Reading:
    """Put the mean error beside that of the naive rule; both are columns of ``errors``."""
    here, naive = 100 * np.abs(errors).mean(axis=0)
    return Reading(
        f"{what}, {len(errors):,} pairs, mean error beside the naive rule's", naive, here, "%",
        bound="at most",
    )  # fmt: skip


def _errors(
    rows: pd.DataFrame,
    model: analyze.IterationModel,
    alike: list[str],
    other: list[str],
    *,
    every: int = 1,
) -> np.ndarray:
    """Give the errors of all pairs: predicted, and by FLOPs per GPU.

    Parameters
    ----------
    rows
        Measured iterations.
    model
        Has seen none of them.
    alike, other
        Columns that are the same in both rows of a pair, and some of which differ.
    every
        Take each such row as the trace.
    """
    rows = rows.reset_index(drop=True)
    forms = model.predict(rows)
    flops = analyze.model_flops(rows)["hardware_flops_count"] / rows["gpu_count"]
    job = rows.groupby(alike).ngroup()
    found = [np.zeros((0, 2))]
    for place in range(0, len(rows), every):
        one = rows.iloc[[place]]
        differ = (rows[other].to_numpy() != one[other].to_numpy()).any(axis=1)
        near = ((job == job[place]) & differ).to_numpy()
        if near.any():
            steps = _as_trace(one.iloc[0], forms.iloc[place])
            asked = analyze.layout_what_if(steps, one, rows[near], model=model)
            truth = rows.loc[near, "dur_ns"].to_numpy()
            naive = one["dur_ns"].iloc[0] * flops[near].to_numpy() / flops[place]
            found.append(np.column_stack([asked["dur_ns"] / truth - 1, naive / truth - 1]))
    return np.concatenate(found)


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
    return STEP_BREAKDOWN.check(STEP_BREAKDOWN.cast(pd.DataFrame([row])))
