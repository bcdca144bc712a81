"""Claims about failures: reliability, goodput and flight recorder dumps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims.registry import Reading, beside, beside_named, claim, published
from workbench import analyze, datasets, load, simulate
from workbench.analyze import FaultTolerance
from workbench.simulate import FailureProcess

_CASES = ("lock_gil_1st", "gpu_error_1st")
_DUMPS = "NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces"
_SETS = ("flight-recorder",)
_DEFAULT_GROUP = "0"


@claim(
    noun="flight_recorder",
    name="ranks that were made to fail",
    source=f"{_DUMPS}, fault_injection.log",
    needs=_SETS,
)
def suspects(folder: Path) -> Iterator[Reading]:
    """Compare the suspects with the injection log: all of the injected ranks and no other."""
    for case in _CASES:
        log = (folder / case / "fault_injection.log").read_text(encoding="utf-8")
        injected = {int(rank) for rank in re.findall(r"^Rank (\d+), fault_type", log, re.MULTILINE)}
        table = analyze.flight_suspects(load.flight_recorder(folder / case, progress=False))
        ranks = set(table["rank"].dropna().astype(int))
        hits = len(injected & ranks)
        yield Reading(f"{case}, injected ranks that are suspects", len(injected), hits, "")
        yield Reading(f"{case}, suspects that were not injected", 0, len(ranks - injected), "")


@claim(noun="flight_recorder", name="where the failed ranks stand", source=_DUMPS, needs=_SETS)
def positions(folder: Path) -> Iterator[Reading]:
    """Compare pending operations and sequence numbers.

    Of the failed GPUs all ranks stand level in the group of everybody, so its numbers tell
    nothing; in the tensor-parallel groups the peers have completed what they have not.
    """
    tables = {
        case: analyze.flight_positions(load.flight_recorder(folder / case, progress=False))
        for case in _CASES
    }
    for row in published("flight_recorder"):
        table = tables[row["case"]]
        rank = f" of rank {row['rank']}" if row["rank"] else ""
        number = _standing(table, row["measure"], row["rank"])
        label = f"{row['case']}, {row['measure']}{rank}"
        yield Reading(label, int(row["value"]), number, "", source=row["source"])


def _standing(table: pd.DataFrame, measure: str, rank: str) -> int:
    everybody = table[table["group"] == _DEFAULT_GROUP].set_index("rank")
    pending = table.groupby("rank")["pending_count"].sum()
    if measure == "pending operations":
        return int(pending[int(rank)])
    if measure == "ranks without pending operations":
        return int((pending == 0).sum())
    if measure == "last collective of the default group":
        return int(everybody["enqueued_seq"][int(rank)])
    return int((everybody["behind_count"] != 0).sum())


_INTERVAL_MIN = 18.0
_DAYS_54_MIN = 54 * 1440.0
_DALY = {"failure_interval_min": 180.0, "recovery_min": 5.0, "write_min": 1.0}


def _jobs() -> Iterator[tuple[dict[str, str], FaultTolerance]]:
    for row in published("goodput_ft_hsdp"):
        job = FaultTolerance(
            recovery_min=float(row["recovery_min"]),
            stall_min=float(row["stall_min"]),
            rejoin_min=float(row["rejoin_s"]) / 60,
            replicas=int(row["replicas"]),
        )
        yield row, job


def _name(row: dict[str, str]) -> str:
    who = "full restart" if row["replicas"] == "1" else f"{row['replicas']} replicas"
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
        yield beside(row, 100 * share, _name(row), column="productive_pct", unit="%")


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
        near = float(row["tolerance"]) + 200 * reach
        yield beside(row, 100 * mean, _name(row), column="productive_pct", unit="%", near=near)


@claim(
    noun="goodput",
    name="what-if scenarios, replayed",
    source="an independent evaluator of interval unions, 200 runs of 54 days",
)
def scenarios() -> Iterator[Reading]:
    """Compare 40 runs of 54 days per scenario, Poisson failures, 12 replicas."""
    runs_of: dict[str, Any] = {"horizon_min": _DAYS_54_MIN, "seed": 18, "runs": 40}
    for row in published("goodput_scenarios"):
        stall, rejoin = float(row["stall_min"]), float(row["rejoin_min"])
        job = FaultTolerance(
            stall_min=stall, rejoin_min=rejoin, min_replicas=int(row["min_replicas"])
        )
        process = FailureProcess(
            failure_interval_min=float(row["failure_interval_min"]),
            together_share=float(row["together_share"]),
            repair_min=2880 if row["spares"] else None,
        )
        drawn = simulate.failure_times(
            process,
            **runs_of,
            recovery_min=float(row["recovery_min"]),
            recovery_spread=float(row["recovery_spread"]),
        )
        if row["spares"]:
            drawn = analyze.with_spares(drawn, spares=int(row["spares"]))
        per_day = float(row["stragglers_per_day"])
        slow = simulate.slow_times(per_day=per_day, dur_min=30, speed_ratio=0.8, **runs_of)
        runs = analyze.goodput_replay(drawn, job, horizon_min=_DAYS_54_MIN, slow_times=slow)
        share, _ = _productive(runs)
        yield beside(row, share, row["scenario"], column="productive_share", unit="share")


def _productive(runs: pd.DataFrame) -> tuple[float, float]:
    """Return the mean productive share and half of its interval."""
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
    best = analyze.checkpoint_optimum(**_DALY).set_index("method")["checkpoint_interval_min"]
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
        label = f"{row['what']}{f', saved every {every} min' if every else ''}"
        yield beside(row, here, label)


@claim(
    noun="goodput",
    name="time between failures at 98,304 GPUs",
    source="rates of FT-HSDP, Llama 3 and Meta RSC",
)
def scaled_rates() -> Iterator[Reading]:
    """Compare intervals that follow from published rates if nodes fail independently."""
    for row in published("goodput_rates"):
        per_1000 = row["failures_per_1000_node_days"]
        interval = analyze.failure_interval_of(
            float(row["gpu_count"]), failures_per_1000_node_days=float(per_1000)
        )
        label = f"{row['cluster']}: {per_1000} per 1,000 node-days"
        yield beside(row, interval, label, column="failure_interval_min", unit="min")


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
        exponent = float(np.log(growth) / np.log(sizes))
        label = f"{row['what']}: exponent of the number of GPUs"
        yield beside(row, exponent, label, column="exponent", unit="")


_RUN = {"nodes": 12_288, "failure_min": 18}


def _causes(name: str) -> pd.DataFrame:
    return load.cause_counts(datasets.path("published") / f"causes_{name}.csv")


_reading = partial(beside_named, "reliability_numbers")


@claim(
    noun="reliability",
    name="published causes, recomputed from their counts",
    source="arXiv:2407.21783, arXiv:2602.00277, arXiv:2509.16293",
)
def causes() -> Iterator[Reading]:
    """Compare sums and shares with those computed by hand; half a unit of the last digit."""
    llama = analyze.cause_shares(_causes("llama3")).set_index("cause")
    groups = analyze.cause_shares(_causes("llama3"), by="category").set_index("cause")
    yield _reading("Llama 3, sum of the counts", llama["failure_count"].sum())
    yield _reading("Llama 3, Faulty GPU", llama["failure_share"]["Faulty GPU"])
    yield _reading("Llama 3, GPU rows", groups["failure_share"]["gpu"])
    # Printed shares are added up as decimals, so that the sum is the printed one.
    printed = round(float(groups["printed_share"]["gpu"]), 6)
    yield _reading("Llama 3, GPU rows as printed", printed)
    fthsdp = analyze.cause_shares(_causes("fthsdp_32k"))
    yield _reading("FT-HSDP 32K, sum of the counts", fthsdp["failure_count"].sum())
    robust = analyze.cause_shares(_causes("byterobust")).set_index("cause")
    yield _reading("ByteRobust, CUDA error", robust["failure_share"]["CUDA error"])


@claim(
    noun="reliability",
    name="rates and times between failures",
    source="arXiv:2407.21783, arXiv:2602.00277, arXiv:2410.21680",
)
def rates() -> Iterator[Reading]:
    """Compare rates with those computed by hand; half a unit of the last digit printed.

    The two measured sizes of RSC agree with each other, and not with the 6.5 failures per
    1,000 node-days that the same paper gives: those are other failures.
    """
    count = int(_causes("llama3")["failure_count"].sum())
    llama = analyze.failure_rate(count, node_count=2048, days=54).iloc[0]
    yield _reading("Llama 3, MTBF", llama["mtbf_h"])
    yield _reading("Llama 3, failures per 1000 node-days", llama["per_1000_node_days"])
    # 23 failures in the days that 2.3 per 1,000 node-days need for them.
    fthsdp = analyze.failure_rate(23, node_count=4096, days=10_000 / 4096).iloc[0]
    yield _reading("FT-HSDP 2.3 per 1000 node-days on 4096 nodes, MTBF", fthsdp["mtbf_h"])
    sizes = pd.DataFrame(published("mttf_rsc"))
    by_size = analyze.mttf_by_size(sizes).set_index("gpu_count")["per_1000_node_days"]
    yield _reading("RSC, 1024 GPUs", by_size[1024])
    yield _reading("RSC, 8 GPUs", by_size[8])
    rsc = analyze.failure_rate(65, node_count=128, days=10_000 / 128).iloc[0]
    yield _reading("RSC, MTTF of 1024 GPUs at 6.5 per 1000 node-days", rsc["mtbf_h"])


@claim(noun="reliability", name="standby nodes", source="arXiv:2509.16293")
def standby() -> Iterator[Reading]:
    """Compare the standby nodes for 1,024 with ByteRobust's."""
    here = analyze.standby_nodes(1024, 0.001, quantile_share=0.99)
    yield _reading("standby nodes for 1024 at 0.001, 99 %", here)


@claim(
    noun="reliability",
    name="how many lemons a log finds, by its length",
    source="separate simulation of 12,288 nodes, 1.2 % of which carry 15 % of the failures",
)
def lemons() -> Iterator[Reading]:
    """Compare the expected recall with a simulated one.

    The simulation is one run of each length; over 200 own runs the recall had a standard
    deviation of 0.02 to 0.04, and 0.06 is allowed.
    """
    per_1000 = 1000 * 1440 / _RUN["failure_min"] / _RUN["nodes"]
    rows = published("lemon_recall")
    days = [float(row["observed_days"]) for row in rows]
    table = analyze.lemon_recall(_RUN["nodes"], per_1000, days=days)
    for row, share in zip(rows, table["recall_share"], strict=True):
        label = f"lemons found in {row['observed_days']} days"
        yield beside(row, share, label, column="recall_share", unit="share")
