"""Rules on failure logs and flight recordings: causes, lemon nodes, crash loops, hangs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._failures.causes import cause_shares, reported_by
from workbench.analyze._failures.failure_rates import standby_nodes
from workbench.analyze._failures.failure_rows import LEFT_OUT, NO_FAILURE, NS_PER_H, counted
from workbench.analyze._failures.failure_trend import failure_gaps, failure_trend
from workbench.analyze._failures.hang.suspects import flight_suspects
from workbench.analyze._failures.job_failures import crash_loops, job_failures
from workbench.analyze._failures.lemon_nodes import lemon_nodes
from workbench.analyze._failures.outages import cost_of, outages, states_cost
from workbench.analyze._lib.finding_rules import (
    Confidence,
    Finding,
    first_of,
    needs,
    rows_of,
    rule,
)
from workbench.errors import WorkbenchError
from workbench.tables import JOB_FAILURES, TIMELINE, Bundle, FailureLog, FlightRecording

_META = "arXiv:2410.21680, Revisiting reliability in large-scale machine learning research clusters"
_LLAMA = "arXiv:2407.21783, The Llama 3 herd of models, section 3.3.4"
_XID = "NVIDIA Xid errors, docs.nvidia.com/deploy/xid-errors"
_RECORDER = "PyTorch flight recorder, pytorch.org/tutorials/unstable/flight_recorder_tutorial"
_CROW = "MIL-HDBK-189C, Crow-AMSAA model"


# A job is over if nothing ran for so long after its failure; hangs end by timeouts of up to 30 min.
_LASTS_ON_NS, _CHAIN_NS = round(NS_PER_H), round(NS_PER_H / 2)
# Reports of which the cause stands elsewhere: they come after it.
_NO_CAUSE = ("unknown", "scheduler")
_NO_ACTION = {
    "software": "read the output of the job just before it",
    "gpu": "drain the node and run a diagnosis of its GPUs (dcgmi diag -r 3)",
    "gpu memory": "drain the node and run a diagnosis of its GPUs (dcgmi diag -r 3)",
    "nvlink": "drain the node and read the state of its links (nvidia-smi nvlink -s)",
    "host": "drain the node and read its kernel log",
    "network": "read the error counters of the port, cable and switch",
    "storage": "read the logs of the storage, and its free space",
    "unknown": "look for its cause: flight-recorder dumps of the ranks, kernel logs of the hosts",
    "scheduler": "read the limits and the state of the job (scontrol show job, sacct)",
}

_NO_OUTAGES = outages(TIMELINE.empty(), JOB_FAILURES.empty())
# States in which a job holds no GPUs.
_IDLE = {"queued", "ended"}
_STARTING = ("starting", "terminating", "health check", "joining", "loading")


class Failing:
    """The tables that several rules on failures read, each computed once."""

    domain = "failures"
    needs = ("failure logs",)

    def __init__(self, log: FailureLog, last_step_ns: int = 0) -> None:
        self.log = log
        self.last_step_ns = last_step_ns

    @cached_property
    def of_one_clock(self) -> pd.DataFrame:
        """Failures of the clock that most of them are on."""
        rows = self.log.failures
        if rows.empty:
            return rows
        # Clocks with an own zero are one per file: times of two files do not compare.
        clock = rows["clock"].where(rows["clock"] == "epoch", rows["clock"] + rows["source"])
        most: pd.DataFrame = rows[clock == clock.mode().iloc[0]]
        return most

    @cached_property
    def failures(self) -> pd.DataFrame:
        """Failures of one clock as one reporter tells them.

        Kernel, scheduler and job each report a failure: counting all of them counts it thrice.
        """
        rows = self.of_one_clock
        if rows.empty:
            return rows
        try:
            return reported_by(rows, "kernel")
        except WorkbenchError:
            return reported_by(rows)

    @cached_property
    def end(self) -> pd.DataFrame:
        """The one of these that explains the timeouts and exits after it; none if there is none."""
        rows = self.ending
        # That a job failed is no reason where anything else is told; the earliest reason led to
        # the others.
        for are_reasons in (~rows["category"].isin(_NO_CAUSE), rows["code"].ne("FAILED")):
            if are_reasons.any():
                return rows[are_reasons].iloc[:1]
        return rows.iloc[-1:]

    def told_by(self, rows: pd.DataFrame) -> str:
        """Name the rule that tells of these failures, if they are those with which the log ends."""
        return "last_failure" if set(rows.index) <= set(self.end.index) else ""

    @property
    def elsewhere(self) -> str:
        """Describe which failures are not counted because they are on another clock."""
        others = self.log.failures.drop(index=self.of_one_clock.index)["source"]
        if others.empty:
            return ""
        files = others.unique()
        names = ", ".join(files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
        return (
            f"{len(others):,} failures of {names} are on other clocks and not counted: diagnose "
            "each file separately"
        )

    @cached_property
    def counted(self) -> pd.DataFrame:
        """Those that count as failures."""
        return counted(self.failures, LEFT_OUT)[0] if len(self.failures) else self.failures

    @cached_property
    def fatal(self) -> pd.DataFrame:
        """Those of every reporter and clock that count; if there are none, the warnings."""
        rows = self.log.failures
        fatal = counted(rows, LEFT_OUT)[0]
        return fatal if len(fatal) else counted(rows, NO_FAILURE)[0]

    @cached_property
    def of_gpus(self) -> pd.DataFrame:
        """Fatal errors of GPUs that are named, with an action."""
        rows = self.log.failures
        is_gpu = rows["category"].isin(["gpu", "gpu memory", "nvlink"]) & rows["device"].notna()
        return rows[(rows["severity"] == "fatal") & is_gpu & rows["action"].notna()]

    @cached_property
    def ending(self) -> pd.DataFrame:
        """The failures with which the log ends, in their order; none if it goes on after them."""
        rows = self.fatal
        if rows.empty:
            return rows
        if (rows["clock"] == "epoch").all():
            rows = rows.sort_values("start_ns", kind="stable")
            last_ns = int(rows["end_ns"].max())
            goes_on_ns = last_ns + _LASTS_ON_NS
            runs = self.log.timeline[self.log.timeline["clock"] == "epoch"]
            spans = self.log.nodes[self.log.nodes["clock"] == "epoch"]
            is_started_again = runs["state"].eq("running") & (runs["start_ns"] > last_ns)
            is_over = not (spans["last_ns"] > goes_on_ns).fillna(value=False).any()
            is_over &= not (runs["end_ns"] > goes_on_ns).fillna(value=False).any()
            is_over &= not is_started_again.fillna(value=False).any()
            is_over &= self.last_step_ns <= goes_on_ns
            # What stopped an earlier run of the job did not stop the last one.
            begun = runs[runs["job"].isin(rows["job"].dropna()) & (runs["start_ns"] <= last_ns)]
            last_runs = begun.groupby("job", observed=True)["start_ns"].max()
            first_ns = max(last_ns - _CHAIN_NS, int(last_runs.min() if len(last_runs) else 0))
            return rows[(rows["start_ns"] >= first_ns) & is_over]
        if rows["source"].nunique() > 1 or rows["start_ns"].notna().any():
            return rows.iloc[:0]  # times of two clocks do not tell what came last
        return rows.sort_values("line", kind="stable").iloc[-1:]

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """Nodes that were watched for some time, on the clock of the failures."""
        nodes = self.log.nodes[self.log.nodes["clock"].isin(self.failures["clock"])
                               & (self.log.nodes["clock"] == "epoch")]  # fmt: skip
        return nodes[nodes["last_ns"] > nodes["first_ns"]]

    @classmethod
    def of(cls, bundle: Bundle) -> Failing | None:
        """Take the failures of a bundle, or a log that was read whole and reports none."""
        log = bundle.failures
        steps = pd.Series(dtype="Int64") if bundle.job is None else bundle.job.steps["end_ns"]
        last_step_ns = int(steps.max()) if steps.notna().any() else 0
        return cls(log, last_step_ns) if log is not None and _could_look(log) else None

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Failed runs of jobs with what failed on their nodes."""
        rows = self.log.failures
        return job_failures(rows[rows["clock"] == "epoch"], self.log.timeline)

    @cached_property
    def outages(self) -> pd.DataFrame:
        """Failed runs with the time to their restart and the work that was repeated."""
        # Without a timeline there is nothing to join, and its clocks may not fit.
        return outages(self.log.timeline, self.runs) if len(self.log.timeline) else _NO_OUTAGES

    def outages_of(self, rows: pd.DataFrame, *, before_min: float = 10) -> pd.DataFrame:
        """Return the outages of runs on whose nodes one of some failures struck shortly before."""
        table = self.outages
        kept = []
        for run in rows_of(table):
            near = rows["start_ns"].between(run.end_ns - before_min * 6e10, run.end_ns + 3e11)
            is_here = rows["node"].isin(str(run.nodes).split(",")) | (rows["job"] == run.job)
            kept.append(bool((near & is_here).any()))
        return table[pd.Series(kept, index=table.index, dtype=bool)]

    @cached_property
    def observed_gpu_h(self) -> float:
        """GPU-hours of all states in which jobs hold their GPUs; NaN if their number is unknown."""
        holding = [state for state in self.log.timeline["state"].unique() if state not in _IDLE]
        return states_cost(self.log.timeline, tuple(holding))[0]

    def phase(self, states: tuple[str, ...], least_share: float) -> dict[str, Any] | None:
        """Return the cost of states of jobs, None if they are less than a share of all time."""
        needs(len(self.log.timeline), 1, "states of a job with start and end")
        gpu_h, hours, count = states_cost(self.log.timeline, states)
        holding = tuple(set(self.log.timeline["state"]) - _IDLE)
        all_h = states_cost(self.log.timeline, holding)[1]
        if not count or not all_h or hours < least_share * all_h:
            return None
        is_known = bool(np.isfinite(gpu_h) & np.isfinite(self.observed_gpu_h))
        return {
            "cost": gpu_h if is_known else None,
            "cost_unit": "GPU-hours" if is_known else "",
            "cost_basis": f"{count} span{'s' * (count > 1)} of the timeline times the GPUs of the "
            "job" if is_known else "",
            "time_share": min(gpu_h / self.observed_gpu_h, 1.0) if is_known else None,
            "doubt": "" if is_known else "no cost: the log has no number of GPUs of the job",
        }  # fmt: skip


def _could_look(log: FailureLog) -> bool:
    """Return whether a log has failures, or was read and has no line that may hold one unread."""
    found = log.quality["finding"]
    is_read = bool((log.quality["count"][found == "read"] > 0).any())
    is_whole = not found.isin(["dropped", "truncated", "suspicious"]).any()
    return bool(len(log.failures)) or (is_read and is_whole)


class Hung:
    """The flight recording of a job."""

    domain = "failures"
    needs = ("flight-recorder dumps",)

    def __init__(self, recording: FlightRecording) -> None:
        self.suspects = flight_suspects(recording)
        pending = recording.entries[recording.entries["state"] != "completed"]
        self.held_count = pending["rank"].nunique()
        # The watchdog ends a hang when the first of its operations has waited so long.
        self.timeout_s = (
            float(pending["timeout_ms"].astype("Float64").min() or 0) / 1e3
            if len(pending["timeout_ms"].dropna())
            else 0.0
        )

    def cost(self, rank_count: int) -> dict[str, Any]:
        """Return what ranks lose until the watchdog ends the hang; nothing without a timeout."""
        if not self.timeout_s:
            return {}
        basis = f"{rank_count} waiting rank{'s' * (rank_count != 1)} of a GPU each, until the "
        basis += f"watchdog ends the hang after {self.timeout_s:.3g} s"
        cost = rank_count * self.timeout_s / 3600
        return {"cost": cost, "cost_unit": "GPU-hours", "cost_basis": basis}

    @classmethod
    def of(cls, bundle: Bundle) -> Hung | None:
        """Take the flight recording of a bundle."""
        return cls(bundle.flight) if bundle.flight is not None else None


def _some(values: pd.Series, most: int = 5) -> str:
    """Name the most frequent values, and how many more there are."""
    counts = values.dropna().astype(str).value_counts()
    named = ", ".join(
        f"{name} ({count})" if count > 1 else str(name) for name, count in counts.head(most).items()
    )
    return named + (f" and {len(counts) - most} more" if len(counts) > most else "")


def _actions(actions: pd.Series, most: int = 2) -> str:
    """Name the actions that manuals ask for most often."""
    return "; ".join(actions.dropna().astype(str).value_counts().index[:most])


@rule(Failing, reference=_LLAMA)
def leading_cause(
    failing: Failing, *, fewest_failures: float = 3, least_share: float = 0.25
) -> Iterator[Finding]:
    """One cause leads the failures."""
    needs(len(failing.counted), fewest_failures, "failures of one reporter and clock")
    table = cause_shares(failing.failures)
    top = first_of(table)
    if float(top["failure_share"]) < least_share or top["failure_count"] < fewest_failures:
        return
    rows = failing.counted[failing.counted["cause"] == top["cause"]]
    if (rows["category"] == "unknown").all():
        return
    confidence: Confidence = "high" if float(top["low_share"]) >= least_share else "medium"
    name = said_of(str(top["cause"]), len(rows[["node", "device"]].drop_duplicates()))
    yield Finding(
        f"{int(top['failure_count'])} of {int(table['failure_count'].sum())} failures "
        f"({top['low_share']:.0%} to {top['high_share']:.0%}) have one cause: {name}",
        where=_some(rows["node"]) or "hosts unknown",
        **cost_of(failing.outages_of(rows)).fields(failing.elsewhere),
        confidence=confidence,
        evidence="analyze.cause_shares, plot.cause_shares (docs/failures.md)",
        next_step=_actions(rows["action"].replace("none", None), 1)
        or "look at what its hosts have in common",
    )


@rule(Failing, reference=_XID)
def broken_gpu(failing: Failing, *, most_causes: float = 3) -> Iterator[Finding]:
    """A fatal error of a GPU whose manual asks for a reset, a restart or a replacement."""
    rows = failing.of_gpus
    counts = rows["cause"].value_counts()
    named = list(counts.index[: int(most_causes)])
    for cause in [*named, None]:
        of_cause = (
            rows[~rows["cause"].isin(named)] if cause is None else rows[rows["cause"] == cause]
        )
        if of_cause.empty:
            continue
        device = "GPU " + of_cause["device"]
        places = (of_cause["node"] + " " + device).fillna(device + ", host not in the log")
        title = cause or f"{len(counts) - len(named)} other fatal GPU errors"
        gpus = f"{places.nunique()} GPU{'s' * (places.nunique() > 1)}"
        said = said_of(title, places.nunique())
        yield Finding(
            said if said != title else f"{title[0].upper()}{title[1:]} on {gpus}",
            where=_some(places),
            **cost_of(failing.outages_of(of_cause)).fields(
                "" if of_cause["node"].notna().all() else "the log names no host; pass node="
            ),
            evidence="load.failures(...).failures, explore.incidents (notebook 03)",
            next_step=_actions(of_cause["action"]),
            told_by=failing.told_by(of_cause),
        )


@rule(Failing, reference=_LLAMA)
def last_failure(failing: Failing) -> Iterator[Finding]:
    """The log ends with a failure."""
    rows = failing.ending
    if rows.empty:
        return
    row = first_of(failing.end)
    is_sure = row["category"] not in _NO_CAUSE
    later = [name for name in dict.fromkeys(rows["cause"].dropna()) if name != row["cause"]]
    yield Finding(
        f"The log ends with this failure: {said_of(row['cause']) or row['code']}",
        where=_place_of(row),
        **cost_of(failing.outages_of(rows)).fields(_warned(rows)),
        confidence="low" if _warned(rows) else "high" if is_sure else "medium",
        evidence="load.failures(...).failures, explore.incidents (notebook 03)",
        next_step=_action_of(row) + (f"; also seen: {', '.join(later[:3])}" if later else ""),
    )


@rule(Failing, reference=_XID)
def fatal_failure(failing: Failing, *, most_causes: float = 8) -> Iterator[Finding]:
    """A failure that stops a job, by its cause."""
    rows = failing.fatal.drop(index=failing.of_gpus.index, errors="ignore")
    if rows.empty:
        return
    leading = cause_shares(failing.failures)["cause"].head(1).tolist()
    cause = rows["cause"].fillna(rows["code"]).fillna("failure without a cause")
    named = list(cause.value_counts().index[: int(most_causes)])
    for name in [*named, None]:
        own = rows[~cause.isin(named)] if name is None else rows[cause == name]
        if own.empty:
            continue
        title = name or f"{cause.nunique() - len(named)} other causes of failures"
        actions = dict.fromkeys(_action_of(row) for _, row in own.iterrows())
        yield Finding(
            f"{title[0].upper()}{title[1:]}" + (f", {len(own):,} times" if len(own) > 1 else ""),
            where=_some(own.apply(_place_of, axis=1)),
            **cost_of(failing.outages_of(own)).fields(_warned(own)),
            confidence="low" if _warned(own) else "high",
            evidence="load.failures(...).failures, explore.incidents (notebook 03)",
            next_step="; ".join(list(actions)[:2]),
            told_by=failing.told_by(own) or "leading_cause" * (name in leading),
        )


def said_of(cause: str, gpu_count: int = 1) -> str:
    """Return a cause as a sentence; that of a driver without a verb in the past stays as it is."""
    fell = f"{gpu_count} GPU{'s' * (gpu_count > 1)} fell off the bus"
    return fell if cause == "GPU has fallen off the bus" else cause


def _warned(rows: pd.DataFrame) -> str:
    is_warning = bool((rows["severity"] == "warning").all())
    return "a warning: it stops no job by itself, and nothing worse is in the log" * is_warning


def _place_of(row: pd.Series) -> str:
    """Name job, node, device and rank of a failure, as far as they are known."""
    ranks = str(row["ranks"] or ("" if pd.isna(row["rank"]) else row["rank"]))
    names = {"job": row["job"], "": row["node"], "device": row["device"], "rank": ranks}
    named = [f"{noun} {name}".strip() for noun, name in names.items() if name and pd.notna(name)]
    return " ".join(named) or f"{str(row['source']).rsplit('/', 1)[-1]}, line {row['line']:,}"


def _action_of(row: pd.Series) -> str:
    action = row["action"]
    if pd.notna(action) and action not in ("", "none"):
        return str(action)
    return _NO_ACTION.get(str(row["category"]), "read the log just before it")


@rule(Failing, reference=_META)
def lemon_node(failing: Failing, *, fewest_nodes: float = 5) -> Iterator[Finding]:
    """A node fails more often than chance has it."""
    rows = failing.failures[failing.failures["node"].isin(failing.nodes["node"])]
    needs(len(failing.nodes), fewest_nodes, "nodes that were watched for some time")
    needs(len(rows), 3, "failures on these nodes")
    table = lemon_nodes(rows, nodes=failing.nodes)
    for row in rows_of(table[table["is_lemon"]]):
        own = failing.counted[failing.counted["node"] == row.node]
        causes = own["cause"]
        # Only failures beyond the mean rate are its own: the others would strike any node.
        excess = (row.failure_count - row.expected_count) / row.failure_count
        yield Finding(
            f"Node {row.node} is a lemon: it failed {row.failure_count} times, where "
            f"{row.expected_count:.2g} failures are expected",
            where=f"{row.node}: {_some(causes, 3)}",
            **cost_of(failing.outages_of(own)).fields(share=excess),
            confidence="high" if row.adjusted_p_value_share < 0.01 else "medium",
            evidence="analyze.lemon_nodes, explore.lemon_nodes (notebook 03)",
            next_step=f"drain {row.node}, run a stress test, send it to repair",
        )


@rule(Failing, reference=_META)
def crash_loop(
    failing: Failing, *, least_count: float = 3, within_h: float = 2
) -> Iterator[Finding]:
    """A job fails again and again shortly after its start."""
    needs(len(failing.log.timeline), 1, "runs of a job with start and end")
    table = crash_loops(failing.runs, least_count=int(least_count), within_h=within_h)
    for job, loops in table.groupby("job"):
        hours = float((loops["last_ns"] - loops["first_ns"]).sum()) / 3.6e12
        of_job = failing.log.timeline[failing.log.timeline["job"] == job]
        gpus = of_job["gpu_count"].max()
        times = f" in {len(loops)} series" if len(loops) > 1 else ""
        yield Finding(
            f"Job {job} failed up to {loops['run_count'].max()} times in a row{times}, each "
            f"within {within_h:g} h of the last",
            where=f"job {job}, most frequent cause: {loops['primary_cause'].mode().iloc[0]}",
            cost=hours * gpus if pd.notna(gpus) else None,
            cost_unit="GPU-hours" if pd.notna(gpus) else "",
            cost_basis="first to last failure of each series times the GPUs of the job"
            if pd.notna(gpus)
            else "",
            confidence="high",
            doubt=""
            if pd.notna(gpus)
            else f"no cost: {hours:.3g} h, but the log has no number of GPUs of the job",
            evidence="analyze.crash_loops (docs/failures.md)",
            next_step="stop restarting it; the cause is in its code, its data or one of its nodes",
        )


@rule(Failing, reference=_CROW)
def failures_increase(failing: Failing, *, most_p: float = 0.05) -> Iterator[Finding]:
    """Failures become more frequent."""
    rows = failing.failures[failing.failures["node"].isin(failing.nodes["node"])]
    needs(len(rows), 5, "failures on nodes that were watched for some time")
    row = first_of(failure_trend(rows, failing.nodes))
    if pd.isna(row["growth_ratio"]) or row["p_value_share"] > most_p or row["growth_ratio"] <= 1:
        return
    yield Finding(
        f"Failures become more frequent: they grow with time to the power "
        f"{row['growth_ratio']:.2g} ({row['low_growth_ratio']:.2g} to "
        f"{row['high_growth_ratio']:.2g})",
        where=f"{int(row['node_count'])} nodes, {int(row['failure_count'])} failures",
        confidence="high" if row["p_value_share"] < most_p / 5 else "medium",
        evidence="analyze.failure_trend (docs/failures.md)",
        next_step="compare causes before and after the change; look for one node or one driver",
    )


@rule(Failing, reference=_CROW)
def failure_bursts(failing: Failing, *, most_p: float = 0.01) -> Iterator[Finding]:
    """Failures come in bursts, so a mean interval misleads."""
    needs(len(failing.counted), 10, "failures")
    row = first_of(failure_gaps(failing.failures))
    if pd.isna(row["shape_ratio"]) or row["p_value_share"] > most_p or row["shape_ratio"] >= 1:
        return
    yield Finding(
        f"Failures come in bursts: Weibull shape {row['shape_ratio']:.2g} where a Poisson process "
        "has 1",
        where=f"{int(row['gap_count'])} intervals, mean {row['mean_h']:.3g} h",
        confidence="high",
        doubt="a plan made with the mean interval is too optimistic after a failure",
        evidence="analyze.failure_gaps (docs/failures.md)",
        next_step="look for a common cause of failures close together: rack, switch, power",
    )


@rule(Failing, reference=_META)
def unknown_cause(
    failing: Failing, *, least_share: float = 0.3, fewest_failures: float = 5
) -> Iterator[Finding]:
    """Many failures have no known cause."""
    rows = failing.counted
    needs(len(rows), fewest_failures, "failures")
    unknown = rows["cause"].isna() | (rows["category"] == "unknown")
    if unknown.mean() < least_share:
        return
    yield Finding(
        f"{unknown.mean():.0%} of the failures have no known cause",
        where=_some(rows.loc[unknown, "source"].str.split("/").str[-1], 3),
        **cost_of(failing.outages_of(rows[unknown])).fields(),
        evidence="analyze.cause_shares, plot.cause_shares (docs/failures.md)",
        next_step="add kernel logs of the hosts (dmesg -T) and the job's stderr",
    )


@rule(Failing, reference=_META)
def fabric_errors(failing: Failing, *, fewest_failures: float = 3) -> Iterator[Finding]:
    """Errors of links and network gather on few nodes."""
    rows = failing.counted[failing.counted["category"].isin(["network", "nvlink"])]
    needs(int(rows["node"].notna().sum()), fewest_failures, "network or link errors on nodes")
    counts = rows["node"].value_counts()
    if counts.iloc[0] < max(fewest_failures, 0.5 * len(rows)):
        return
    yield Finding(
        f"{counts.iloc[0]} of {len(rows)} network and link errors are on {counts.index[0]}",
        where=f"{counts.index[0]}: {_some(rows.loc[rows['node'] == counts.index[0], 'device'], 3)}",
        **cost_of(failing.outages_of(rows[rows["node"] == counts.index[0]])).fields(
            "a cable has two ends: the switch port may be the cause"
        ),
        confidence="medium",
        evidence="load.failures(...).failures (notebook 03)",
        next_step="reseat or replace cable and transceiver; read the error counters of both ends",
    )


@rule(Hung, reference=_RECORDER)
def hang(hung: Hung) -> Iterator[Finding]:
    """A collective hangs: which rank the others wait for."""
    rows = hung.suspects[hung.suspects["rank"].notna()]
    if (hung.suspects["verdict"] == "nothing hangs").all():
        return
    if rows.empty:
        yield _hang_of_nobody(first_of(hung.suspects), hung)
        return
    row = first_of(rows)
    ranks = _ranks(rows["rank"])
    waiting = int(row["waiting_count"])
    held = f"{waiting} rank{'s' * (waiting != 1)}" if waiting else "the job"
    number = f" {row['seq']}" if pd.notna(row["seq"]) else ""
    yield Finding(
        f"{ranks[0].upper()}{ranks[1:]} hold{'s' * (len(rows) == 1)} up {held}: "
        f"{_HELD_UP_BY.get(str(row['reason']), row['reason'])}",
        where=ranks
        + (f"; rank {int(row['rank'])} in " if len(rows) > 1 else ", in ")
        + f"{row['operation']}{number} of {row['description'] or row['group']}",
        **hung.cost(waiting),
        confidence=str(row["confidence"]) if pd.notna(row["confidence"]) else "low",  # type: ignore[arg-type]
        doubt="; ".join(_hang_doubts(row, hung)),
        evidence="analyze.flight_suspects, explore.flight_suspects (notebook 03)",
        next_step=f"py-spy dump on rank {int(row['rank'])}; {row['evidence']}",
    )


def _hang_of_nobody(row: pd.Series, hung: Hung) -> Finding:
    """Tell of a hang whose dumps do not show which rank holds up the others."""
    held = f"{hung.held_count} rank{'s hang' if hung.held_count != 1 else ' hangs'}"
    number = f" {row['seq']}" if pd.notna(row["seq"]) else ""
    place = f" in {row['operation']}{number}" if pd.notna(row["operation"]) else ""
    return Finding(
        f"{held}{place}; the dumps do not show which rank is to blame",
        where=f"group {row['group']}" if pd.notna(row["group"]) else "",
        **hung.cost(hung.held_count),
        confidence="low",
        doubt="; ".join([str(row["evidence"]), *_hang_doubts(row, hung)]),
        evidence="analyze.flight_suspects, explore.flight_suspects (notebook 03)",
        next_step="py-spy dump on every rank of the group; add the dumps of all its members",
    )


# What each reason of a suspect means, for those who have not read its documentation.
_HELD_UP_BY = {
    "never arrived": "a collective that the others have called was never called",
    "mismatch": "another operation was called than on the other ranks",
    "stalled": "a collective that other ranks have completed is still pending there",
    "not started": "the GPU has not started what the others have started",
    "stopped early": "the host stopped before its peers, which wait in the same operation",
    "deadlock": "ranks wait for each other in a circle",
    "no dump": "no dump was left, and all other ranks wait",
    "all entered": "all ranks have entered a collective that none completes",
}


def _ranks(numbers: pd.Series, most: int = 6) -> str:
    """Name ranks, the first ones of many."""
    named = [str(int(number)) for number in numbers]
    if len(named) == 1:
        return f"rank {named[0]}"
    if len(named) > most:
        return f"ranks {', '.join(named[:most])} and {len(named) - most} more"
    return f"ranks {', '.join(named[:-1])} and {named[-1]}"


def _hang_doubts(row: pd.Series, hung: Hung) -> Iterator[str]:
    if row["verdict"] != "found":
        yield "the dumps do not prove it"
    if not hung.timeout_s:
        yield "no cost: the dumps have no timeout_ms, which says how long the ranks waited"


def _time(time_ns: float) -> str:
    """Write a time in the largest unit of which it has at least two."""
    for unit_ns, unit in ((NS_PER_H, "h"), (6e10, "min")):
        if time_ns >= 2 * unit_ns:
            return f"{time_ns / unit_ns:.3g} {unit}"
    return f"{time_ns / 1e9:.3g} s"


@rule(Failing, reference=_META)
def detection_time(failing: Failing, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Jobs stand still before anybody notices that they failed."""
    cost = failing.phase(("detecting",), least_share)
    if cost is None:
        return
    rows = failing.log.timeline[failing.log.timeline["state"] == "detecting"]
    median_ns = float((rows["end_ns"] - rows["start_ns"]).median())
    yield Finding(
        f"A failure is noticed after {_time(median_ns)} (median of {len(rows)})",
        where=f"job {_some(rows['job'], 3)}",
        **cost,
        evidence="load.failures(...).timeline, explore.goodput (notebook 03)",
        next_step="shorten the NCCL timeout, watch step times and heartbeats from outside",
    )


@rule(Failing, reference=_META)
def time_to_first_step(failing: Failing, *, least_share: float = 0.02) -> Iterator[Finding]:
    """Restarted jobs hold their GPUs for long before they train."""
    cost = failing.phase(_STARTING, least_share)
    if cost is None:
        return
    rows = failing.log.timeline[failing.log.timeline["state"].isin(_STARTING)]
    length = (rows["end_ns"] - rows["start_ns"]).astype("float64").groupby(rows["state"]).sum()
    longest = str(length.idxmax())
    yield Finding(
        f"Starts take {_time(length.sum())} in all, most of it {longest}",
        where=f"job {_some(rows['job'], 3)}",
        **cost,
        evidence="load.failures(...).timeline, explore.goodput (notebook 03)",
        next_step=f"shorten {longest}: keep containers, communicators and checkpoints warm",
        told_by="initialisation",
    )


@rule(Failing, reference=_META)
def too_few_spares(
    failing: Failing, *, least_share: float = 0.01, least_min: float = 5
) -> Iterator[Finding]:
    """Failed jobs wait for a node that replaces the failed one."""
    cost = failing.phase(("allocating",), least_share)
    if cost is None:
        return
    rows = failing.log.timeline[failing.log.timeline["state"] == "allocating"]
    wait_h = float(((rows["end_ns"] - rows["start_ns"]).astype("float64") / NS_PER_H).median())
    if 60 * wait_h < least_min:
        return
    nodes, advice = failing.nodes, "keep spare nodes"
    if len(nodes) > 1 and len(failing.counted):
        watched_h = float((nodes["last_ns"] - nodes["first_ns"]).astype("float64").sum()) / NS_PER_H
        share = min(len(failing.counted) / watched_h * wait_h, 1.0)
        count = max(standby_nodes(len(nodes), share), 1)
        verb = "node covers" if count == 1 else "nodes cover"
        advice = f"{count} spare {verb} the failures of 99 % of such waits (analyze.standby_nodes)"
    yield Finding(
        f"Jobs wait {60 * wait_h:.3g} min for another node (median of {len(rows)})",
        where=f"job {_some(rows['job'], 3)}",
        **cost,
        confidence="medium",
        evidence="load.failures(...).timeline, explore.spares (docs/failures.md)",
        next_step=advice,
    )
