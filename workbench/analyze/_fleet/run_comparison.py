"""Two runs of a job: which quantities changed, by how much, and which changes chance explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import not_negative, share_between
from workbench._shared.run_verdict import comparison_verdict
from workbench.analyze._failures.failure_rows import poisson_interval
from workbench.analyze._fleet.run_samples import (
    ENERGY,
    KERNELS,
    PER_JOB,
    PER_NODE,
    STEP,
    Key,
    Rate,
    Samples,
    exposures_h,
    rates_of,
    reporter_of,
    samples_of,
)
from workbench.analyze._fleet.run_units import (
    BUSY,
    CALL,
    PER_S,
    TOTAL,
    by_range,
    per_second,
    recording_doubts,
)
from workbench.analyze._lib.autocorrelation import lag_one, mean_variance, welch
from workbench.errors import WorkbenchError
from workbench.tables import RUN_COMPARISON, Bundle

# Below this many steps nothing can be said of how much neighbours resemble each other.
_FEW_STEPS = 8
_CORRELATED = 0.5
_OTHER_KERNELS_SHARE = 0.2
_PER_H = 1000
# Of these there are many, so those with most time are compared, also where one run has none.
_MANY = ("kernel", "kernel" + PER_S, CALL, "module or range" + PER_S)
_UNITS = {ENERGY[0]: "kJ per step", CALL: "ms per call", TOTAL: "ms"}


def run_comparison(
    run_a: Bundle,
    run_b: Bundle,
    *,
    confidence_level: float = 0.95,
    least_share: float = 0.002,
    most_kernels: int = 40,
    run_spread_share: float = 0.0,
) -> pd.DataFrame:
    """Compare two runs step by step, and say which differences chance does not explain.

    Parameters
    ----------
    run_a
        The run to start from, from :func:`workbench.load.bundle`.
    run_b
        The run to compare with it; :func:`run_halves` gives two halves of one run.
    confidence_level
        Confidence of the intervals, and of the verdicts, over all rows together.
    least_share
        Smaller differences, as a share of the step of A, are not called changed.
    most_kernels
        Kernels that are compared one by one, those with most time in either run.
    run_spread_share
        Standard deviation from run to run of unchanged code, as a share of the mean. One run of
        each cannot tell it: :func:`run_changes` measures it on many runs.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RUN_COMPARISON`, one row per quantity.
        ``attrs["outcome"]`` is slower, faster, changed, equal or cannot be resolved, and
        ``attrs["verdict"]`` the sentence that says so, with the reason. ``attrs["warnings"]`` lists
        in what the runs are not alike: ranks, GPUs, kernels, sizes of groups, tokens per step.
        ``attrs["doubts"]`` lists what the intervals do not know.

    Raises
    ------
    WorkbenchError
        If the runs have no quantity in common, or an argument is out of range.

    Notes
    -----
    A sample is a step: the mean over ranks, because ranks of one step wait for each other and are
    no independent samples. Neither are neighbouring steps: the variance of a mean is that of an
    effective sample size, or of batch means where that is larger. Intervals are Welch's with
    these variances. Failures are compared as two Poisson counts by the exact conditional test;
    the interval of the difference of the rates combines the exact intervals of both (MOVER).

    All intervals hold together (Bonferroni), and a row is ``changed`` where its interval does not
    contain 0. The first step of each run is dropped where there are more than three, as it holds
    warm-up. Kernels are means over the steps in which the GPU work of all ranks was recorded, with
    at most 1 % of its launches without a kernel.

    Where not both traces mark steps, a step is the range that repeats in both, at least three times
    without overlap, and launches most GPU work, at least half of it. Without one, times by kind, by
    kernel and by module or range are per second of the trace, a sample being one of up to 20
    windows; those of kernels are also per call; and the totals of the traces are compared as they
    are, for a second says nothing of a job that does all twice.

    References
    ----------
    Welch (1947), doi:10.1093/biomet/34.1-2.28. Two Poisson rates: Przyborowski and Wilenski (1940),
    doi:10.1093/biomet/31.3-4.313. MOVER: Donner and Zou (2012), doi:10.1177/0962280210384519.
    """
    level = share_between("confidence_level", confidence_level)
    spread = not_negative("run_spread_share", run_spread_share)
    samples = samples_of(run_a), samples_of(run_b)
    stand_in = ""
    if all(map(_has_work, (run_a, run_b))) and not all(KERNELS in side for side in samples):
        stand_in, samples = _without_steps(run_a, run_b, samples)
    rates = _rates(run_a, run_b)
    keys = _keys(*samples, most_kernels)
    if not keys and not rates:
        msg = (
            "the runs have nothing to compare: both need GPU work in traces, steps in a job log, "
            "or failures over a known time"
        )
        raise WorkbenchError(msg)
    pairs = {key: _pair(key, samples) for key in keys}
    # Two runs without any failure ask nothing: the test is conditional on the sum of both.
    asked = sum(min(map(len, pair)) > 1 for pair in pairs.values())
    asked += sum(any(rate.event_count for rate in pair) for pair in rates.values())
    each = 1 - (1 - level) / max(asked, 1)
    rows = [_row(key, pair, each, spread) for key, pair in pairs.items()]
    rows += [_rate_row(key, unit, pair, each) for (unit, key), pair in rates.items()]
    table = _judged(pd.DataFrame(rows), asked, level, least_share)
    table.attrs["warnings"] = _warnings(run_a, run_b, samples)
    doubts = [stand_in] if stand_in else []
    for side, run in zip("AB", (run_a, run_b), strict=True):
        if run.trace is not None and _has_work(run):
            doubts += [f"{side}: {text}" for text in recording_doubts(run.trace.events)]
    table.attrs["doubts"] = doubts + _doubts(pairs, run_spread_share=spread)
    table.attrs["outcome"], table.attrs["verdict"] = comparison_verdict(table)
    return table


def _has_work(run: Bundle) -> bool:
    return run.trace is not None and bool(run.trace.events["kind"].notna().any())


def _without_steps(
    run_a: Bundle, run_b: Bundle, samples: tuple[Samples, Samples]
) -> tuple[str, tuple[Samples, Samples]]:
    """Return what stands for the steps of traces that mark none, and the samples by it."""
    if iterated := by_range(run_a, run_b):
        name, first, second = iterated
        stand_in = f"a step is a range '{name}', as not both traces mark steps"
        return stand_in, (samples_of(first), samples_of(second))
    of_a, of_b = (dict(per_second(run.trace)) for run in (run_a, run_b) if run.trace is not None)
    stand_in = (
        "not both traces mark steps, and no range repeats in both: times are per second and per "
        "call, and a trace that is longer is slower only if it did the same work"
    )
    return stand_in, ({**samples[0], **of_a}, {**samples[1], **of_b})


def _judged(table: pd.DataFrame, asked: int, level: float, least_share: float) -> pd.DataFrame:
    """Correct the p-values, call what changed; the step comes first, the rest by its share."""
    table["p_value_share"] = (table["p_value_share"].astype("Float64") * asked).clip(upper=1)
    is_time = table["unit"] == "ms per step"
    # Of a quantity that is all of the step, or none of it: the step of A is the scale of both.
    step = float(table["a"].iloc[0]) if is_time.iloc[0] else 0.0
    table["step_ratio"] = (table["difference"] / step if step else np.nan) * np.where(
        is_time, 1.0, np.nan
    )
    larger = table[["a", "b"]].abs().max(axis=1)
    effect = table["step_ratio"].abs().fillna(table["difference"].abs() / larger.where(larger > 0))
    low, high = (table[name].astype("float64") for name in ("low", "high"))
    is_sure = (table["p_value_share"] < 1 - level).fillna(value=False) & ((low > 0) | (high < 0))
    is_changed = (effect >= least_share) & is_sure
    table["verdict"] = np.where(is_changed, "changed", "not resolvable")
    # A share of the step is a cost; ratios of energy and of failure rates are none.
    is_step = table["quantity"] == STEP[0]
    order = np.lexsort([-effect.fillna(0), ~is_time, ~is_changed, ~is_step])
    table = table.iloc[order].reset_index(drop=True)
    return RUN_COMPARISON.of(table)


def _keys(samples_a: Samples, samples_b: Samples, most_kernels: int) -> list[Key]:
    """Choose what is compared: what both have, and the kernels with most time in either."""
    both = [key for key in samples_a if key in samples_b and key[0] not in _MANY]
    if not both:
        return []
    weight = {
        key: max(float(samples[key].sum()) for samples in (samples_a, samples_b) if key in samples)
        for key in {**samples_a, **samples_b}
        if key[0] in _MANY and (key[0] != CALL or (key in samples_a and key in samples_b))
    }
    ordered = sorted(weight, key=lambda key: (-weight[key], key))
    most = [key for kind in _MANY for key in [k for k in ordered if k[0] == kind][:most_kernels]]
    return [*(key for key in both if key == STEP), *(key for key in both if key != STEP), *most]


Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def _pair(key: Key, samples: tuple[Samples, Samples]) -> Pair:
    # A kernel that a run never calls takes no time in any of its steps.
    alike = {"kernel": KERNELS}.get(key[0], BUSY)
    first, second = (
        side.get(key, np.zeros(len(side[alike]) if key[0] in _MANY else 0)) for side in samples
    )
    return first, second


def _row(key: Key, pair: Pair, level: float, spread: float) -> dict[str, object]:
    mean_a, mean_b = (float(values.mean()) if len(values) else 0.0 for values in pair)
    low = high = p_value = None
    if min(map(len, pair)) > 1:
        first, second = (_estimate(values, spread) for values in pair)
        low, high, p_value = welch(first, second, level)
    elif key[0] == TOTAL:
        # A total is no sample of anything: only runs of equal code differ in it.
        first, second = ((mean, (spread * mean) ** 2, 1e9) for mean in (mean_a, mean_b))
        low, high, p_value = welch(first, second, level)
    unit = _UNITS.get(key[0], "ms per second" if key[0].endswith(PER_S) else "ms per step")
    return {
        "quantity": key[0], "name": key[1], "a": mean_a, "b": mean_b,
        "difference": mean_b - mean_a, "low": low, "high": high, "unit": unit,
        "change_ratio": mean_b / mean_a if mean_a else None,
        "a_count": len(pair[0]), "b_count": len(pair[1]), "p_value_share": p_value,
    }  # fmt: skip


def _estimate(values: NDArray[np.float64], spread: float) -> tuple[float, float, float]:
    """Return the mean of a run, its variance with that from run to run, and their freedom."""
    mean = float(values.mean())
    variance, freedom = mean_variance(values)
    # What is left of equal floats is no spread.
    variance = variance if variance > (1e-12 * mean) ** 2 else 0.0
    known = (spread * mean) ** 2
    # Satterthwaite: a variance that is known has no error of its own.
    if variance > 0:
        freedom *= ((variance + known) / variance) ** 2
    return mean, variance + known, freedom


def _rates(run_a: Bundle, run_b: Bundle) -> dict[tuple[str, Key], tuple[Rate, Rate]]:
    """Return the counts of both runs over the one kind of exposure that both know."""
    hours = exposures_h(run_a), exposures_h(run_b)
    reporter = reporter_of(run_a, run_b)
    rates: dict[tuple[str, Key], tuple[Rate, Rate]] = {}
    for unit in (PER_NODE, PER_JOB):
        if not all(unit in side for side in hours):
            continue
        first, second = (rates_of(run, unit, reporter) for run in (run_a, run_b))
        # No row of one category in a run that has a log is a count of 0.
        has_both = {key[0] for key in first} & {key[0] for key in second}
        for key in {**first, **second}:
            if key[0] in has_both and not any(known == key for _, known in rates):
                nothing = Rate(0, hours[0][unit]), Rate(0, hours[1][unit])
                rates[unit, key] = first.get(key, nothing[0]), second.get(key, nothing[1])
    return rates


def _rate_row(key: Key, unit: str, pair: tuple[Rate, Rate], level: float) -> dict[str, object]:
    counts = np.array([rate.event_count for rate in pair])
    hours = np.array([rate.exposure_h for rate in pair]) / _PER_H
    mean_a, mean_b = (float(rate) for rate in counts / hours)
    lows, highs = (bound / hours for bound in poisson_interval(counts, level))
    difference = mean_b - mean_a
    p_value = 1.0
    if counts.sum():
        share = float(hours[1] / hours.sum())
        p_value = float(scipy.stats.binomtest(int(counts[1]), int(counts.sum()), share).pvalue)
    return {
        "quantity": key[0], "name": key[1], "a": mean_a, "b": mean_b, "difference": difference,
        "low": difference - float(np.hypot(mean_b - lows[1], highs[0] - mean_a)),
        "high": difference + float(np.hypot(highs[1] - mean_b, mean_a - lows[0])),
        "unit": unit, "change_ratio": mean_b / mean_a if mean_a else None,
        "a_count": int(counts[0]), "b_count": int(counts[1]), "p_value_share": p_value,
    }  # fmt: skip


def _warnings(run_a: Bundle, run_b: Bundle, samples: tuple[Samples, Samples]) -> list[str]:
    """List the differences in setup between the runs."""
    return [*unlike(traits(run_a), traits(run_b), ("A", "B")), *_other_kernels(samples)]


def unlike(
    first: Mapping[str, object], second: Mapping[str, object], names: tuple[str, str]
) -> list[str]:
    """List the traits known of both runs in which they differ."""
    return [
        f"{names[0]} has {name} {value}, {names[1]} has {name} {second[name]}"
        for name, value in first.items()
        if name in second and second[name] != value
    ]


def traits(run: Bundle) -> dict[str, object]:
    """Return what should be equal in two runs that are compared, as far as a run knows it."""
    known: dict[str, object] = {}
    if run.trace is not None:
        ranks, devices = run.trace.ranks, run.trace.devices
        known["ranks"] = _listed(sorted(int(rank) for rank in ranks["rank"]))
        sizes = sorted(int(size) for size in ranks["world_size"].dropna().unique())
        known |= {"a world size of": sizes[0]} if len(sizes) == 1 else {}
        names = sorted({str(name) for name in devices["name"].dropna()} - {""})
        known |= {"GPUs of": _listed(names)} if names else {}
        groups = run.trace.events["group_size"].dropna().unique()
        known |= (
            {"collectives of sizes": _listed(sorted(int(n) for n in groups))} if len(groups) else {}
        )
    if run.failures is not None:
        kinds = sorted(run.failures.failures["kind"].astype(str).unique())
        known |= {"failures reported by": _listed(kinds)} if kinds else {}
    if run.job is not None and run.job.steps["token_count"].notna().any():
        # Three digits: packed sequences fill a step not quite alike.
        known["tokens per step"] = f"{float(run.job.steps['token_count'].median()):.3g}"
    return known


def _listed(values: Sequence[object]) -> str:
    if len(values) > 8:
        return f"{values[0]} to {values[-1]} ({len(values)})"
    return ", ".join(map(str, values))


def _other_kernels(samples: tuple[Samples, Samples]) -> Iterator[str]:
    """Warn of GPU time in kernels that the other run does not have: other code or library."""
    for side, (own, other) in zip("AB", (samples, samples[::-1]), strict=True):
        times = {key: float(own[key].sum()) for key in own if key[0] == "kernel"}
        total = sum(times.values())
        has_kernels = any(key[0] == "kernel" for key in other)
        alone = sum(time for key, time in times.items() if key not in other)
        if total and has_kernels and alone > _OTHER_KERNELS_SHARE * total:
            yield (
                f"{100 * alone / total:.0f} % of the GPU work of {side} is in kernels that "
                f"{'B' if side == 'A' else 'A'} does not call: another model, precision, library "
                "or GPU"
            )


def _doubts(pairs: Mapping[Key, Pair], *, run_spread_share: float) -> list[str]:
    """List sources of error that the intervals do not cover."""
    doubts = []
    if pairs and not run_spread_share:
        doubts.append(
            "one run each: the spread from run to run of unchanged code is not in the intervals"
        )
    steps: Any = pairs.get(STEP, ())
    counts = [len(values) for values in steps]
    if counts and counts[0] == counts[1] < _FEW_STEPS:
        noun = f"step{'s' * (counts[0] != 1)}"
        return [*doubts, f"A and B have {counts[0]} {noun} each: too few to see slow drifts"]
    for side, values in zip("AB", steps, strict=False):
        if len(values) < _FEW_STEPS:
            steps_text = f"{len(values)} step{'s' * (len(values) != 1)}"
            doubts.append(f"{side} has {steps_text}: too few to see slow drifts")
        elif (ratio := lag_one(values)) > _CORRELATED:
            doubts.append(
                f"neighbouring steps of {side} resemble each other (correlation {ratio:.2g}): its "
                f"{len(values)} steps count as fewer"
            )
    return doubts
