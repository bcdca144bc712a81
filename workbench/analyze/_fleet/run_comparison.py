"""Two runs of a job: which quantities changed, by how much, and which changes chance explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench.analyze._fleet.step_energy import step_energy
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.diff import short_name
from workbench.errors import WorkbenchError
from workbench.tables import RUN_COMPARISON, Bundle

_KINDS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
    "idle_ns": "idle",
}
Samples = dict[tuple[str, str], NDArray[np.float64]]


def run_comparison(
    run_a: Bundle,
    run_b: Bundle,
    *,
    confidence_level: float = 0.95,
    least_share: float = 0.002,
    most_kernels: int = 40,
) -> pd.DataFrame:
    """Compare two runs step by step, and say which differences chance does not explain.

    Parameters
    ----------
    run_a
        The run to start from, from :func:`workbench.load.bundle`.
    run_b
        The run to compare with it.
    confidence_level
        Confidence of the intervals, and of the verdicts over all rows together.
    least_share
        Smaller differences, as a share of the step of A, are not called changed.
    most_kernels
        Kernels that are compared one by one, those with most time in either run.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RUN_COMPARISON`, one row per quantity. ``attrs["warnings"]``
        lists in what the runs are not alike: ranks, GPUs, or length.

    Raises
    ------
    WorkbenchError
        If the runs have no quantity in common.

    Notes
    -----
    A sample is a step: the mean over ranks, because ranks of one step wait for each other and are
    no independent samples. Intervals are Welch's, p-values are corrected by Holm's method for the
    number of rows. The first step of each run is dropped where there are more than three, as it
    holds warm-up.

    References
    ----------
    Welch (1947), doi:10.1093/biomet/34.1-2.28. Holm (1979), Scandinavian Journal of Statistics 6.
    """
    samples_a, samples_b = _samples(run_a), _samples(run_b)
    keys = _keys(samples_a, samples_b, most_kernels)
    if not keys:
        msg = "the runs have nothing to compare: both need steps, in traces or in a job log"
        raise WorkbenchError(msg)
    none = np.zeros(0)
    rows = []
    for key in keys:
        first, second = samples_a.get(key, none), samples_b.get(key, none)
        # A kernel that a run never calls takes no time in any of its steps.
        if key[0] == "kernel":
            first = first if len(first) else np.zeros(len(samples_a[_STEP]))
            second = second if len(second) else np.zeros(len(samples_b[_STEP]))
        rows.append(_row(key, first, second, confidence_level))
    table = pd.DataFrame(rows)
    table["p_value_share"] = _holm(table["p_value_share"].to_numpy())
    # Of a quantity that is all of the step, or none of it: the step of A is the scale of both.
    scale = np.where(table["quantity"].str.startswith("energy"), table["a"], table["a"].iloc[0])
    effect: pd.Series[float] = table["difference"].abs() / np.where(scale > 0, scale, 1.0)
    is_sure = (table["p_value_share"] < 1 - confidence_level).fillna(value=False)
    is_changed = (effect >= least_share) & is_sure
    table["verdict"] = np.where(is_changed, "changed", "not resolvable")
    order = np.argsort(-effect.where(is_changed, -1.0).to_numpy(), kind="stable")
    table = table.iloc[order].reset_index(drop=True)
    table = RUN_COMPARISON.check(RUN_COMPARISON.cast(table))
    table.attrs["warnings"] = _warnings(run_a, run_b)
    return table


_STEP = ("step time", "step")


def _samples(run: Bundle) -> Samples:
    """Return the samples of every quantity, one per step, in ms."""
    samples: Samples = {}
    if run.trace is not None and run.trace.events["kind"].notna().any():
        samples |= dict(_of_trace(run))
    elif run.job is not None and len(run.job.steps):
        steps = run.job.steps
        samples[_STEP] = _after_first(
            (steps["end_ns"] - steps["start_ns"]).to_numpy("float64") / 1e6
        )
    if run.power is not None and run.job is not None and len(run.job.steps):
        energy = step_energy(run.power.power, run.job.steps)["energy_j"].dropna()
        if len(energy):
            samples["energy of a step", "all meters"] = _after_first(
                energy.to_numpy("float64") / 1e3
            )
    return samples


def _of_trace(run: Bundle) -> Iterator[tuple[tuple[str, str], NDArray[np.float64]]]:
    if run.trace is None:
        return
    events = run.trace.events
    times = step_times(events)
    per_step = times.groupby("step")["host_ns"].mean().dropna()
    if per_step.empty:
        per_step = times.groupby("step")["gpu_ns"].mean().dropna()
    if per_step.empty:
        return
    yield _STEP, _after_first(per_step.to_numpy("float64") / 1e6)
    parts = time_breakdown(events, by="step")
    parts = parts[parts["step"].isin(per_step.index)]
    for column, name in _KINDS.items():
        means = parts.groupby("step")[column].mean().astype("float64")
        yield ("time by kind", name), _after_first(means.to_numpy() / 1e6)
    work = events[events["kind"].notna() & events["step"].isin(per_step.index)]
    short = work["name"].astype(str).map({n: short_name(str(n)) for n in work["name"].unique()})
    ranks = work["rank"].nunique()
    sums = work["dur_ns"].groupby([short, work["step"]], observed=True).sum()
    for kernel, of_kernel in sums.groupby(level=0):
        series = of_kernel.droplevel(0).reindex(per_step.index, fill_value=0)
        yield ("kernel", str(kernel)), _after_first(series.to_numpy("float64") / ranks / 1e6)


def _after_first(values: NDArray[Any]) -> NDArray[np.float64]:
    return values[1:] if len(values) > 3 else values


def _keys(samples_a: Samples, samples_b: Samples, most_kernels: int) -> list[tuple[str, str]]:
    """Choose what is compared: what both have, and the kernels with most time in either."""
    both = [key for key in samples_a if key in samples_b and key[0] != "kernel"]
    if _STEP not in both:
        return []
    weight = {
        key: max(float(samples[key].sum()) for samples in (samples_a, samples_b) if key in samples)
        for key in {**samples_a, **samples_b}
        if key[0] == "kernel"
    }
    kernels = sorted(weight, key=lambda key: (-weight[key], key))[:most_kernels]
    return [_STEP, *(key for key in both if key != _STEP), *kernels]


def _row(
    key: tuple[str, str], first: NDArray[np.float64], second: NDArray[np.float64], level: float
) -> dict[str, object]:
    mean_a, mean_b = (float(values.mean()) if len(values) else 0.0 for values in (first, second))
    low = high = p_value = None
    if len(first) > 1 and len(second) > 1:
        # Two constants have no spread: their difference is what it is.
        if first.std() == second.std() == 0:
            low = high = mean_b - mean_a
            p_value = 1.0 if mean_a == mean_b else 0.0
        else:
            test = stats.ttest_ind(second, first, equal_var=False)
            low, high = test.confidence_interval(level)
            p_value = float(test.pvalue)
    return {
        "quantity": key[0], "name": key[1], "a": mean_a, "b": mean_b,
        "difference": mean_b - mean_a, "low": low, "high": high,
        "unit": "kJ per step" if key[0].startswith("energy") else "ms per step",
        "change_ratio": mean_b / mean_a if mean_a else None,
        "a_count": len(first), "b_count": len(second), "p_value_share": p_value,
    }  # fmt: skip


def _holm(p_values: NDArray[np.object_]) -> pd.Series:
    """Correct p-values for their number by Holm's step-down method."""
    known = pd.to_numeric(pd.Series(p_values), errors="coerce").astype("Float64")
    ranked = known.dropna().sort_values()
    factors = np.arange(len(ranked), 0, -1)
    corrected = (ranked * factors).clip(upper=1).cummax()
    return corrected.reindex(known.index)


def _warnings(run_a: Bundle, run_b: Bundle) -> list[str]:
    """Say in what the runs are not alike."""
    remarks = []
    if run_a.trace is not None and run_b.trace is not None:
        ranks_a, ranks_b = (set(run.trace.ranks["rank"]) for run in (run_a, run_b) if run.trace)
        if ranks_a != ranks_b:
            remarks.append(f"A has ranks {sorted(ranks_a)}, B has ranks {sorted(ranks_b)}")
        models_a, models_b = (
            set(run.trace.devices["name"].dropna()) - {""} for run in (run_a, run_b) if run.trace
        )
        if models_a != models_b:
            remarks.append(
                f"A ran on {sorted(models_a) or 'unknown GPUs'}, B on {sorted(models_b)}"
            )
    return remarks
