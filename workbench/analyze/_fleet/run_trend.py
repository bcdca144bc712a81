"""Many runs of a job: one row per run, and the run at which a quantity changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import scipy

from workbench._shared.numbers import Floats, not_negative, share_between
from workbench.analyze._failures.failure_rows import poisson_interval
from workbench.analyze._fleet.run_comparison import traits, unlike
from workbench.analyze._fleet.run_samples import (
    ENERGY,
    EXPOSED,
    PER_JOB,
    PER_NODE,
    STEP,
    exposures_h,
    rates_of,
    reporter_of,
    samples_of,
)
from workbench.analyze._lib.autocorrelation import mean_variance
from workbench.errors import WorkbenchError
from workbench.tables import RUN_CHANGES, RUN_TREND, Bundle

_QUANTITIES = {
    "step time": ("step_ms", "ms per step"),
    "exposed communication": ("exposed_communication_ms", "ms per step"),
    "energy of a step": ("energy_j", "J per step"),
}
_FEWEST_RUNS = 4
# From here on the correlation of neighbouring runs can be estimated at all.
_ENOUGH_RUNS = 10
_DRAWS = 10_000
_SEED = 0


def run_trend(runs: Mapping[str, Bundle], *, confidence_level: float = 0.95) -> pd.DataFrame:
    """Describe many runs of one job, one row per run.

    Parameters
    ----------
    runs
        Name of each run, and what :func:`workbench.load.bundle` returned for it.
    confidence_level
        Confidence of the interval of each step time, over the steps of its run.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RUN_TREND`, in order of time where all runs have an absolute
        time, else in the order given. :func:`run_changes` says where it changed.

    Raises
    ------
    WorkbenchError
        If no run has steps or failures.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> run = load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False)
    >>> run_trend({"monday": run})["step_count"].tolist()
    [5]
    """
    level = share_between("confidence_level", confidence_level)
    rows, known, logs = [], [], []
    # One run at a time: a mapping may load each when its name is looked up, and traces are large.
    for name, run in runs.items():
        rows.append({"run": name, **_described(run), **_of_steps(run, level)})
        known.append(traits(run))
        logs.append(Bundle(job=run.job, failures=run.failures))
    with_log = [log for log in logs if log.failures is not None]
    # One kind of exposure and one reporter for all, or their rates do not compare.
    has_nodes = with_log and all(PER_NODE in exposures_h(log) for log in with_log)
    exposure, reporter = PER_NODE if has_nodes else PER_JOB, reporter_of(*logs)
    for row, log, of_run in zip(rows, logs, known, strict=True):
        row.update(_of_failures(log, exposure, reporter))
        row["doubt"] = "; ".join(unlike(known[0], of_run, ("the first run", "this one")))
    table = pd.DataFrame(rows, columns=list(RUN_TREND.columns))
    if table[["step_ms", "failure_count"]].isna().all(axis=None):
        msg = "none of the runs has steps, in traces or in a job log, or failures"
        raise WorkbenchError(msg)
    if table["start_ns"].notna().all():
        table = table.sort_values("start_ns", kind="stable", ignore_index=True)
    return RUN_TREND.of(table)


def _described(run: Bundle) -> dict[str, Any]:
    held = [run.trace, run.job, run.failures, run.power]
    row: dict[str, Any] = {
        "gpu": "",
        "is_synthetic": any(log.is_synthetic for log in held if log is not None),
        "start_ns": None,
    }
    starts: list[int] = []
    if run.trace is not None:
        ranks, devices = run.trace.ranks, run.trace.devices
        row["gpu"] = ", ".join(sorted({str(name) for name in devices["name"].dropna()} - {""}))
        row |= {"rank_count": ranks["rank"].nunique(), "world_size": ranks["world_size"].max()}
        starts += ranks.loc[ranks["clock"] == "epoch", "first_ns"].dropna().tolist()
    if run.job is not None and len(run.job.steps):
        starts.append(run.job.steps["start_ns"].min())
    if run.failures is not None and len(run.failures.nodes):
        nodes = run.failures.nodes
        starts += nodes.loc[nodes["clock"] == "epoch", "first_ns"].dropna().tolist()
    return row | {"start_ns": int(min(starts))} if starts else row


def _of_steps(run: Bundle, level: float) -> dict[str, Any]:
    samples = samples_of(run)
    steps = samples.get(STEP, np.zeros(0))
    row: dict[str, Any] = {"step_count": len(steps)}
    if len(steps) > 1:
        mean = float(steps.mean())
        variance, freedom = mean_variance(steps)
        reach = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * np.sqrt(variance)
        row |= {"low_step_ms": mean - reach, "high_step_ms": mean + reach}
    for key, (column, _) in zip((STEP, EXPOSED, ENERGY), _QUANTITIES.values(), strict=True):
        if len(values := samples.get(key, np.zeros(0))):
            # Samples of energy are in kJ.
            row[column] = float(values.mean()) * (1e3 if key == ENERGY else 1.0)
    return row


def _of_failures(run: Bundle, exposure: str, reporter: str | None) -> dict[str, Any]:
    rate = rates_of(run, exposure, reporter).get(("failures", "all"))
    if rate is None:
        return {"exposure": ""}
    name = "node-hours" if exposure == PER_NODE else "hours of the job"
    return {"failure_count": rate.event_count, "exposure_h": rate.exposure_h, "exposure": name}


def run_changes(
    trend: pd.DataFrame, *, confidence_level: float = 0.95, least_share: float = 0.002
) -> pd.DataFrame:
    """Name the run from which on a quantity of many runs is another one, if chance does not.

    Parameters
    ----------
    trend
        Table :data:`workbench.tables.RUN_TREND`.
    confidence_level
        Confidence of the intervals and verdicts, over all quantities together.
    least_share
        Smaller differences, as a share of the mean before, are not called changed.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RUN_CHANGES`, one row per quantity that four runs or more
        have, resolved changes first. Only the largest of several changes is named.

    Notes
    -----
    A sample is the mean of a run, so the spread from run to run is in it. Every place of a change
    is tried; the statistic is the largest size of t. Its law without a change is drawn: normal
    runs whose neighbours correlate as the residuals do, where ten runs or more tell how much. The
    interval is the difference plus or minus the same quantile times its standard error, so it
    holds wherever the change is. Of independent runs 3 to 4 % are called changed by chance at a
    nominal 5 %; of ten to forty runs with a correlation of 0.5, which so few show only in part,
    about 13 % (20 to 40 % if it is ignored).

    Failures: the largest likelihood ratio of two Poisson rates; given their sum the counts are
    multinomial in the exposures. Intervals by MOVER, with Bonferroni's correction for all places.

    References
    ----------
    Hawkins (1977), doi:10.1080/01621459.1977.10479935; Worsley (1979),
    doi:10.1080/01621459.1979.10482519.
    """
    RUN_TREND.check(trend)
    level = share_between("confidence_level", confidence_level)
    least = not_negative("least_share", least_share)
    means = {
        name: trend[trend[column].notna()]
        for name, (column, _) in _QUANTITIES.items()
        if trend[column].notna().sum() >= _FEWEST_RUNS
    }
    counted = trend[trend["failure_count"].notna() & (trend["exposure_h"] > 0)]
    has_rates = len(counted) >= _FEWEST_RUNS and int(counted["failure_count"].sum()) > 0
    each = 1 - (1 - level) / max(len(means) + has_rates, 1)
    rows = [{"quantity": name, **_shift(runs, *_QUANTITIES[name], each)}
            for name, runs in means.items()]  # fmt: skip
    if has_rates:
        rows.append({"quantity": "failure rate", **_rate_shift(counted, each)})
    table = pd.DataFrame(rows, columns=list(RUN_CHANGES.columns))
    table["p_value_share"] = (table["p_value_share"].astype("Float64") * len(rows)).clip(upper=1)
    low, high = (table[name].astype("float64") for name in ("low", "high"))
    is_large = table["difference"].abs() >= least * table["before"]
    is_changed = is_large & (table["p_value_share"] < 1 - level) & ((low > 0) | (high < 0))
    table["verdict"] = np.where(is_changed, "changed", "not resolvable")
    table = table.iloc[np.argsort(~is_changed.to_numpy(bool), kind="stable")]
    return RUN_CHANGES.of(table.reset_index(drop=True))


def _shift(runs: pd.DataFrame, column: str, unit: str, level: float) -> dict[str, Any]:
    values = runs[column].to_numpy("float64")
    count = len(values)
    statistic, spread = (row[0] for row in _split_statistics(values[None]))
    at = int(statistic.argmax()) + 1
    before, after = float(values[:at].mean()), float(values[at:].mean())
    residual = values - np.where(np.arange(count) < at, before, after)
    correlation = _correlation(residual)
    law = _largest_by_chance(count, correlation)
    reach = float(np.quantile(law, level) * spread[at - 1] * np.sqrt(1 / at + 1 / (count - at)))
    is_constant = float(np.ptp(values)) == 0
    return {
        "first_run": runs["run"].iloc[at], "before": before, "after": after,
        "difference": after - before, "low": after - before - reach,
        "high": after - before + reach, "unit": unit, "run_count": count,
        "after_count": count - at, "spread_ratio": spread[at - 1] / before if before else None,
        "correlation": correlation if count >= _ENOUGH_RUNS else None,
        # A share of draws cannot be 0: one more draw would be the series itself.
        "p_value_share": 1.0 if is_constant
        else (1 + float((law >= statistic[at - 1]).sum())) / (1 + _DRAWS),
        "doubt": "; ".join(_doubts(runs, at)),
    }  # fmt: skip


def _split_statistics(series: Floats) -> tuple[Floats, Floats]:
    """Return |t| of the means before and after every place, and the pooled standard deviation."""
    count = series.shape[1]
    place = np.arange(1, count)
    centred = series - series.mean(axis=1, keepdims=True)
    between = centred.cumsum(axis=1)[:, :-1] ** 2 * count / (place * (count - place))
    total = (centred**2).sum(axis=1)[:, None]
    # Of constant runs rounding leaves less than nothing.
    within = np.maximum(total - between, 1e-24 * np.maximum(total, 1e-30)) / (count - 2)
    return np.sqrt(between / within), np.sqrt(within)


def _correlation(residual: Floats) -> float:
    """Estimate the correlation of neighbouring runs; too few are taken as independent."""
    count = len(residual)
    total = float((residual**2).sum())
    if count < _ENOUGH_RUNS or total == 0:
        return 0.0
    ratio = float((residual[1:] * residual[:-1]).sum()) / total
    # Kendall's correction of the bias for three fitted numbers, shrunk by the weight of six runs.
    shrunk = float(np.clip((count * ratio + 3) / (count - 9 + 6), 0, 0.9))
    # Twenty laws are drawn at most; finer steps are finer than the estimate.
    return round(20 * shrunk) / 20


@lru_cache(maxsize=32)
def _largest_by_chance(count: int, correlation: float) -> Floats:
    """Draw the largest statistic of runs without a change."""
    noise = np.random.default_rng(_SEED).standard_normal((_DRAWS, count + 30))
    series = scipy.signal.lfilter([1.0], [1.0, -correlation], noise, axis=1)[:, 30:]
    return np.asarray(_split_statistics(series)[0].max(axis=1))


def _rate_shift(runs: pd.DataFrame, level: float) -> dict[str, Any]:
    counts = runs["failure_count"].to_numpy("float64")
    hours = runs["exposure_h"].to_numpy("float64") / 1000
    ratio = _likelihood_ratios(counts[None], hours)[0]
    at = int(ratio.argmax()) + 1
    draws = np.random.default_rng(_SEED).multinomial(
        int(counts.sum()), hours / hours.sum(), size=_DRAWS
    )
    law = _likelihood_ratios(draws.astype("float64"), hours).max(axis=1)
    sums = np.array([counts[:at].sum(), counts[at:].sum()])
    time = np.array([hours[:at].sum(), hours[at:].sum()])
    before, after = (float(rate) for rate in sums / time)
    lows, highs = (
        bound / time for bound in poisson_interval(sums, 1 - (1 - level) / (len(counts) - 1))
    )
    return {
        "first_run": runs["run"].iloc[at], "before": before, "after": after,
        "difference": after - before,
        "low": after - before - float(np.hypot(after - lows[1], highs[0] - before)),
        "high": after - before + float(np.hypot(highs[1] - after, before - lows[0])),
        "unit": PER_NODE if runs["exposure"].iloc[0] == "node-hours" else PER_JOB,
        "run_count": len(counts), "after_count": len(counts) - at,
        "p_value_share": (1 + float((law >= ratio[at - 1] - 1e-9).sum())) / (1 + _DRAWS),
        "doubt": "; ".join(_doubts(runs, at)),
    }  # fmt: skip


def _likelihood_ratios(counts: Floats, hours: Floats) -> Floats:
    """Return the logarithm of the likelihood ratio of two rates to one, for every place."""
    time = hours.cumsum()[:-1]
    early = counts.cumsum(axis=1)[:, :-1]
    total, all_time = counts.sum(axis=1)[:, None], hours.sum()

    def term(count: Floats, over: Floats) -> Floats:
        expected = total * over / all_time
        ratio = np.maximum(count, 1e-300) / np.maximum(expected, 1e-300)
        return np.asarray(count * np.log(ratio))

    return term(early, time) + term(total - early, all_time - time)


def _doubts(runs: pd.DataFrame, at: int) -> Iterator[str]:
    """Yield what speaks against a change at a run."""
    if at == len(runs) - 1:
        yield "one run after the change: run it again"
    if at == 1:
        yield "one run before the change"
    if len(runs) < _ENOUGH_RUNS:
        yield f"{len(runs)} runs are assumed independent: too few to test for correlation"
    if other := str(runs["doubt"].iloc[at]):
        yield f"not like with like: {other}"
