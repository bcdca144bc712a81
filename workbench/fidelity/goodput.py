"""Claims about goodput: FT-HSDP's 44 and 80 %, Daly's checkpoints, rates at 98,304 GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench import analyze, simulate
from workbench.analyze import FaultTolerance
from workbench.fidelity.registry import Reading, claim, published
from workbench.simulate import FailureProcess

_INTERVAL_MIN = 18.0
_DAYS_54_MIN = 54 * 1440.0
_DALY = {"failure_interval_min": 180.0, "recovery_min": 5.0, "write_min": 1.0}


def _jobs() -> Iterator[tuple[dict[str, str], FaultTolerance]]:
    """Give every published case and the job it is about."""
    for row in published("goodput_ft_hsdp"):
        job = FaultTolerance(
            recovery_min=float(row["recovery_min"]),
            stall_min=float(row["stall_min"]),
            rejoin_min=float(row["rejoin_s"]) / 60,
            replicas=int(row["replicas"]),
        )
        yield row, job


def _name(row: dict[str, str]) -> str:
    who = "all GPUs restart" if row["replicas"] == "1" else f"{row['replicas']} replicas"
    extra = f", {row['rejoin_s']} s at re-join" if row["rejoin_s"] != "0" else ""
    stall = f", stall {row['stall_min']} min" if row["replicas"] != "1" else ""
    return f"{row['convention']}: {who}, recovery {row['recovery_min']} min{stall}{extra}"


@claim(
    noun="goodput",
    name="effective training time with and without fault tolerance",
    source="FT-HSDP, arXiv:2602.00277, a failure every 18 min at O(100K) GPUs",
)
def closed_forms() -> Iterator[Reading]:
    """Compare the closed forms under every way of counting failures."""
    for row, job in _jobs():
        share = analyze.productive_share(
            job,
            failure_interval_min=_INTERVAL_MIN,
            convention=row["convention"],  # type: ignore[arg-type]
        )
        yield Reading(
            what=_name(row),
            printed=float(row["productive_pct"]),
            here=100 * share,
            unit="%",
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


@claim(
    noun="goodput",
    name="simulated failures, replayed, find the closed forms",
    source="FT-HSDP, arXiv:2602.00277, a failure every 18 min at O(100K) GPUs",
)
def simulated() -> Iterator[Reading]:
    """Compare 40 runs of about 54 days; the tolerance is twice the 95 % interval of their mean."""
    # No whole number of intervals: else all runs of the interval process are the same.
    horizon = _DAYS_54_MIN + 7
    for row, job in _jobs():
        drawn = simulate.failure_times(
            FailureProcess(process=row["convention"]),  # type: ignore[arg-type]
            horizon_min=horizon,
            seed=18,
            runs=40,
            replicas=job.replicas,
            recovery_min=job.recovery_total_min,
            warm_up_min=60,
        )
        mean, reach = _productive(analyze.goodput_replay(drawn, job, horizon_min=horizon))
        yield Reading(
            what=_name(row),
            printed=float(row["productive_pct"]),
            here=100 * mean,
            unit="%",
            tolerance=float(row["tolerance"]) + 200 * reach,
            source=row["source"],
        )


@claim(
    noun="goodput",
    name="what-if scenarios, replayed",
    source="an independent evaluator of interval unions, 200 runs of 54 days",
)
def scenarios() -> Iterator[Reading]:
    """Compare 40 runs of 54 days per scenario, Poisson failures, 12 replicas."""
    for row in published("goodput_scenarios"):
        job = FaultTolerance(
            stall_min=float(row["stall_min"]),
            rejoin_min=float(row["rejoin_min"]),
            min_replicas=int(row["min_replicas"]),
        )
        process = FailureProcess(
            failure_interval_min=float(row["failure_interval_min"]),
            together_share=float(row["together_share"]),
            repair_min=2880 if row["spares"] else None,
        )
        drawn = simulate.failure_times(
            process,
            horizon_min=_DAYS_54_MIN,
            seed=18,
            runs=40,
            recovery_min=float(row["recovery_min"]),
            recovery_spread=float(row["recovery_spread"]),
        )
        if row["spares"]:
            drawn = analyze.with_spares(drawn, spares=int(row["spares"]))
        slow = simulate.slow_times(
            per_day=float(row["stragglers_per_day"]),
            dur_min=30,
            speed_ratio=0.8,
            horizon_min=_DAYS_54_MIN,
            seed=18,
            runs=40,
        )
        runs = analyze.goodput_replay(drawn, job, horizon_min=_DAYS_54_MIN, slow_times=slow)
        yield Reading(
            what=row["scenario"],
            printed=float(row["productive_share"]),
            here=_productive(runs)[0],
            unit="share",
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


def _productive(runs: pd.DataFrame) -> tuple[float, float]:
    """Give the mean productive share and half of its interval."""
    table = analyze.goodput_mean(runs)
    (mean,) = table[table["state"] == "productive"].to_dict("records")
    return float(mean["gpu_time_share"]), float(mean["high_share"] - mean["low_share"]) / 2


@claim(
    noun="goodput",
    name="checkpoints: efficiency, best interval, and a formula out of its range",
    source="J. T. Daly, FGCS 22 (2006) 303; Meta RSC, arXiv:2410.21680",
)
def checkpoints() -> Iterator[Reading]:
    """Compare closed forms; the first-order formula must be flagged where it fails."""
    found = analyze.checkpoint_optimum(**_DALY)
    best = dict(zip(found["method"], found["checkpoint_interval_min"], strict=True))
    rsc = analyze.expected_ettr(
        [98_304],
        failures_per_1000_node_days=6.5,
        restart_min=10,
        checkpoint_interval_min=60,
        write_min=0.5,
    ).iloc[0]
    for row in published("goodput_checkpoints"):
        if row["what"] == "efficiency":
            curve = analyze.checkpoint_curve([float(row["checkpoint_interval_min"])], **_DALY)
            here = float(curve["productive_share"].iloc[0])
        elif row["what"] in best:
            here = float(best[row["what"]])
        elif row["what"].startswith("exact"):
            here = float(rsc["exact_share"])
        else:
            # A number that is not flagged agrees with nothing.
            flagged = rsc["verdict"] == "invalid"
            here = float(rsc["first_order_ratio"]) if flagged else math.nan
        every = row["checkpoint_interval_min"]
        yield Reading(
            what=f"{row['what']}{f', saved every {every} min' if every else ''}",
            printed=float(row["value"]),
            here=here,
            unit=row["unit"],
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


@claim(
    noun="goodput",
    name="time between failures at 98,304 GPUs",
    source="rates of FT-HSDP, Llama 3 and Meta RSC",
)
def scaled_rates() -> Iterator[Reading]:
    """Compare intervals that follow from published rates if nodes fail independently."""
    for row in published("goodput_rates"):
        yield Reading(
            what=f"{row['cluster']}: {row['failures_per_1000_node_days']} per 1,000 node-days",
            printed=float(row["failure_interval_min"]),
            here=analyze.failure_interval_of(
                float(row["gpu_count"]),
                failures_per_1000_node_days=float(row["failures_per_1000_node_days"]),
            ),
            unit="min",
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


@claim(
    noun="goodput",
    name="how failures and recovery grow with the job",
    source="FT-HSDP, arXiv:2602.00277, readings of a figure",
)
def scaling() -> Iterator[Reading]:
    """Compare the exponents between the smallest and the largest size that is printed."""
    for row in published("goodput_scaling"):
        sizes = float(row["last_gpus"]) / float(row["first_gpus"])
        first, last = float(row["first"]), float(row["last"])
        if row["what"] == "failures":
            rare = analyze.failure_interval_of(
                float(row["first_gpus"]), failures_per_1000_node_days=first
            )
            growth = rare / last
        else:
            growth = last / first
        yield Reading(
            what=f"{row['what']}: exponent of the number of GPUs",
            printed=float(row["exponent"]),
            here=float(np.log(growth) / np.log(sizes)),
            unit="",
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )
