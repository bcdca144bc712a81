"""Cost of failed runs of jobs: GPUs that waited for the restart, and repeated work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from workbench.analyze._failures.failure_rows import NS_PER_H
from workbench.analyze._lib.finding_rules import rows_of
from workbench.analyze._lib.intervals import measure_within

_COLUMNS = {
    "job": "object", "end_ns": "int64", "primary_cause": "object", "nodes": "object",
    "down_h": "Float64", "repeated_h": "Float64", "gpu_count": "Float64", "node_count": "Float64",
}  # fmt: skip


def outages(timeline: pd.DataFrame, job_failures: pd.DataFrame) -> pd.DataFrame:
    """Return one row per failed run: hours to the restart, hours repeated, GPUs and nodes.

    What the log does not state is missing. Work is repeated from the last checkpoint on, or for
    the steps that the next run does again.
    """
    jobs = {str(job): rows for job, rows in timeline.groupby("job")}
    rows = [
        _outage(jobs[str(run.job)], run)
        for run in rows_of(job_failures)
        if pd.notna(run.job) and str(run.job) in jobs
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)


def _outage(rows: pd.DataFrame, run: Any) -> dict[str, Any]:
    running = rows[rows["state"] == "running"]
    after = running[(running["start_ns"] >= run.end_ns).fillna(value=False)]
    restart = after["start_ns"].min() if len(after) else None
    nodes = rows.loc[rows["attempt"] == run.attempt, "nodes"].dropna()
    return {
        "job": str(run.job), "end_ns": run.end_ns, "primary_cause": run.primary_cause,
        "nodes": nodes.iloc[-1] if len(nodes) else "",
        "down_h": None if restart is None else (restart - run.end_ns) / NS_PER_H,
        "repeated_h": _repeated_h(rows, running, run.end_ns, after),
        "gpu_count": rows["gpu_count"].max(), "node_count": rows["node_count"].max(),
    }  # fmt: skip


def _repeated_h(
    rows: pd.DataFrame, running: pd.DataFrame, end_ns: int, after: pd.DataFrame
) -> float | None:
    """Return the running time since the last checkpoint, or that of the steps done again."""
    if after.empty:
        return None
    saved = rows.loc[(rows["state"] == "checkpoint") & (rows["end_ns"] <= end_ns), "end_ns"]
    ended = running[running["end_ns"].notna() & (running["end_ns"] > running["start_ns"])]
    if len(saved):
        begins, ends = (ended[name].astype("int64") for name in ("start_ns", "end_ns"))
        return float(measure_within(begins, ends, [int(saved.max())], [end_ns])[0]) / NS_PER_H
    steps = ended[(ended["start_ns"] < end_ns) & (ended["last_step"] > ended["first_step"])]
    next_step = after.sort_values("start_ns")["first_step"].iloc[0]
    if steps.empty or pd.isna(next_step):
        return None
    last = steps.sort_values("start_ns").iloc[-1]
    per_step = (last["end_ns"] - last["start_ns"]) / (last["last_step"] - last["first_step"] + 1)
    return max(float(last["last_step"]) + 1 - float(next_step), 0.0) * float(per_step) / NS_PER_H


class Cost(NamedTuple):
    """A cost in the best unit that the log allows, and the input that it lacks."""

    amount: float | None
    unit: str
    basis: str
    doubt: str

    def fields(self, doubt: str = "", *, share: float = 1.0) -> Mapping[str, Any]:
        """Return the fields of a finding; of the cost only a share belongs to it."""
        return {
            "cost": None if self.amount is None else self.amount * share,
            "cost_unit": self.unit,
            "cost_basis": self.basis,
            "doubt": "; ".join(text for text in (doubt, self.doubt) if text),
        }


def cost_of(rows: pd.DataFrame) -> Cost:
    """Add up outages in GPU-hours, or in node-hours where no number of GPUs is known."""
    counted = rows[rows["down_h"].notna()]
    if counted.empty:
        where = "no failed run of a job is" if rows.empty else "no restart of the failed runs is"
        why = f"no cost: {where} in the log; add scheduler records (sacct) or the job's log"
        return Cost(None, "", "", why)
    doubts = []
    if len(counted) < len(rows):
        doubts.append(f"{len(rows) - len(counted)} of {len(rows)} failed runs were not restarted")
    if counted["repeated_h"].isna().any():
        doubts.append("the cost lacks work repeated since the last checkpoint: log checkpoints")
    hours = counted["down_h"] + counted["repeated_h"].fillna(0)
    for name, unit in (("gpu_count", "GPU-hours"), ("node_count", "node-hours")):
        if counted[name].notna().all():
            amount = float((hours * counted[name]).sum())
            basis = f"restart and repeated work of {len(counted)} failed runs"
            if unit == "node-hours":
                doubts.append("GPUs per node are not in the log: times their number in GPU-hours")
            return Cost(amount, unit, basis, "; ".join(doubts))
    return Cost(
        None, "", "", "no cost: the log has no number of GPUs or nodes of the job (AllocTRES)"
    )


def states_cost(timeline: pd.DataFrame, states: tuple[str, ...]) -> tuple[float, float, int]:
    """Return GPU-hours and hours in some states of jobs, and how many rows these are.

    GPU-hours are NaN where a row has no number of GPUs.
    """
    rows = timeline[timeline["state"].isin(states) & timeline["end_ns"].notna()]
    # Replicas, and several logs of one job, tell the same span again.
    rows = rows.drop_duplicates(["job", "state", "start_ns", "end_ns"])
    hours = (rows["end_ns"] - rows["start_ns"]).astype("float64") / NS_PER_H
    gpu_h = (
        hours * rows["gpu_count"].astype("Float64").to_numpy("float64", na_value=float("nan"))
    ).sum(skipna=False)
    return float(gpu_h), float(hours.sum()), len(rows)
