"""Rules on failure logs and flight recordings: causes, lemon nodes, crash loops, hangs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pandas as pd

from workbench.analyze._failures.causes import cause_shares, reported_by
from workbench.analyze._failures.hang.suspects import flight_suspects
from workbench.analyze._failures.job_failures import crash_loops, job_failures
from workbench.analyze._failures.lemon_nodes import lemon_nodes
from workbench.analyze._failures.lifetimes import failure_gaps
from workbench.analyze._failures.recurrence import failure_trend
from workbench.analyze._lib.finding_rules import Confidence, Finding, first_of, rows_of, rule
from workbench.errors import WorkbenchError
from workbench.tables import Bundle, FailureLog, FlightRecording

_META = "arXiv:2410.21680, Revisiting reliability in large-scale machine learning research clusters"
_LLAMA = "arXiv:2407.21783, The Llama 3 herd of models, section 3.3.4"
_XID = "NVIDIA Xid errors, docs.nvidia.com/deploy/xid-errors"
_RECORDER = "PyTorch flight recorder, pytorch.org/tutorials/unstable/flight_recorder_tutorial"
_CROW = "MIL-HDBK-189C, Crow-AMSAA model"


class Failing:
    """The tables that several rules on failures read, each computed once."""

    domain = "failures"
    needs = ("failure logs",)

    def __init__(self, log: FailureLog) -> None:
        self.log = log

    @cached_property
    def failures(self) -> pd.DataFrame:
        """Failures of one clock as one reporter tells them.

        Kernel, scheduler and job each report a failure: counting all of them counts it thrice.
        """
        rows = self.log.failures
        # Clocks with an own zero are one per file: times of two files do not compare.
        clock = rows["clock"].where(rows["clock"] == "epoch", rows["clock"] + rows["source"])
        rows = rows[clock == clock.mode().iloc[0]]
        try:
            return reported_by(rows, "kernel")
        except WorkbenchError:
            return reported_by(rows)

    @cached_property
    def counted(self) -> pd.DataFrame:
        """Those that count as failures."""
        rows = self.failures
        return rows[(rows["severity"] != "info") & ~rows["category"].isin(["planned", "follow-on"])]

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """Nodes that were watched for some time, on the clock of the failures."""
        nodes = self.log.nodes[self.log.nodes["clock"].isin(self.failures["clock"])
                               & (self.log.nodes["clock"] == "epoch")]  # fmt: skip
        return nodes[nodes["last_ns"] > nodes["first_ns"]]

    @classmethod
    def of(cls, bundle: Bundle) -> Failing | None:
        """Take the failures of a bundle if there are any."""
        log = bundle.failures
        return cls(log) if log is not None and len(log.failures) else None

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Failed runs of jobs with what failed on their nodes."""
        rows = self.log.failures
        return job_failures(rows[rows["clock"] == "epoch"], self.log.timeline)


class Hung:
    """The flight recording of a job."""

    domain = "failures"
    needs = ("flight-recorder dumps",)

    def __init__(self, recording: FlightRecording) -> None:
        self.suspects = flight_suspects(recording)

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


@rule(Failing, reference=_LLAMA)
def leading_cause(
    failing: Failing, *, fewest_failures: float = 3, least_share: float = 0.25
) -> Iterator[Finding]:
    """One cause leads the failures."""
    if len(failing.counted) < fewest_failures:
        return
    table = cause_shares(failing.failures)
    top = first_of(table)
    if float(top["failure_share"]) < least_share or top["failure_count"] < fewest_failures:
        return
    rows = failing.counted[failing.counted["cause"] == top["cause"]]
    if (rows["category"] == "unknown").all():
        return
    confidence: Confidence = "high" if float(top["low_share"]) >= least_share else "medium"
    yield Finding(
        f"{top['cause']} leads the failures: {int(top['failure_count'])} of "
        f"{int(table['failure_count'].sum())} "
        f"({top['low_share']:.0%} to {top['high_share']:.0%} of them)",
        where=_some(rows["node"]) or "hosts not told",
        cost=float(top["failure_count"]),
        cost_unit="failures",
        cost_basis="failures of this cause in the logs",
        confidence=confidence,
        evidence="analyze.cause_shares, plot.cause_shares (notebook 03)",
        next_step=_some(rows["action"], 1) or "look at what its hosts have in common",
    )


@rule(Failing, reference=_XID)
def broken_gpu(failing: Failing, *, most_causes: float = 3) -> Iterator[Finding]:
    """A fatal error of a GPU whose manual asks for a reset, a restart or a replacement."""
    rows = failing.log.failures
    is_gpu = rows["category"].isin(["gpu", "gpu memory", "nvlink"]) & rows["device"].notna()
    rows = rows[(rows["severity"] == "fatal") & is_gpu & rows["action"].notna()]
    counts = rows["cause"].value_counts()
    named = list(counts.index[: int(most_causes)])
    for cause in [*named, None]:
        of_cause = (
            rows[~rows["cause"].isin(named)] if cause is None else rows[rows["cause"] == cause]
        )
        if of_cause.empty:
            continue
        places = of_cause["node"].fillna("host not told") + " " + of_cause["device"]
        title = cause or f"{len(counts) - len(named)} other fatal GPU errors"
        title = title[0].upper() + title[1:]
        yield Finding(
            f"{title} on {places.nunique()} GPU{'s' * (places.nunique() > 1)}",
            where=_some(places),
            cost=float(len(of_cause)),
            cost_unit="failures",
            cost_basis="fatal errors of this kind",
            doubt="" if of_cause["node"].notna().all() else "the log names no host; pass node=",
            evidence="load.failures(...).failures, plot.incidents (notebook 03)",
            next_step=_some(of_cause["action"], 2),
        )


@rule(Failing, reference=_META)
def lemon_node(failing: Failing, *, fewest_nodes: float = 5) -> Iterator[Finding]:
    """A node fails more often than chance has it."""
    rows = failing.failures[failing.failures["node"].isin(failing.nodes["node"])]
    if len(failing.nodes) < fewest_nodes or len(rows) < 3:
        return
    table = lemon_nodes(rows, nodes=failing.nodes)
    for row in rows_of(table[table["is_lemon"]]):
        causes = failing.counted.loc[failing.counted["node"] == row.node, "cause"]
        yield Finding(
            f"Node {row.node} failed {row.failure_count} times, {row.expected_count:.2g} were "
            "to be expected: a lemon",
            where=f"{row.node}: {_some(causes, 3)}",
            cost=float(row.failure_count - row.expected_count),
            cost_unit="failures",
            cost_basis="failures beyond the mean rate of all nodes",
            confidence="high" if row.adjusted_p_value_share < 0.01 else "medium",
            evidence="analyze.lemon_nodes, plot.lemon_nodes (notebook 03)",
            next_step=f"drain {row.node}, run a stress test, send it to repair",
        )


@rule(Failing, reference=_META)
def crash_loop(
    failing: Failing, *, least_count: float = 3, within_h: float = 2
) -> Iterator[Finding]:
    """A job fails again and again shortly after its start."""
    if failing.log.timeline.empty:
        return
    table = crash_loops(failing.runs, least_count=int(least_count), within_h=within_h)
    for job, loops in table.groupby("job"):
        hours = float((loops["last_ns"] - loops["first_ns"]).sum()) / 3.6e12
        times = f" in {len(loops)} series" if len(loops) > 1 else ""
        yield Finding(
            f"Job {job} failed up to {loops['run_count'].max()} times in a row{times}, each "
            f"within {within_h:g} h of the last",
            where=f"job {job}, most often by {loops['primary_cause'].mode().iloc[0]}",
            cost=hours,
            cost_unit="h of the job",
            cost_basis="first to last failure of each series",
            confidence="high",
            evidence="analyze.crash_loops",
            next_step="stop restarting it; the cause is in its code, its data or one of its nodes",
        )


@rule(Failing, reference=_CROW)
def failures_increase(failing: Failing, *, most_p: float = 0.05) -> Iterator[Finding]:
    """Failures become more frequent."""
    rows = failing.failures[failing.failures["node"].isin(failing.nodes["node"])]
    if len(rows) < 5:
        return
    row = first_of(failure_trend(rows, failing.nodes))
    if pd.isna(row["growth_ratio"]) or row["p_value_share"] > most_p or row["growth_ratio"] <= 1:
        return
    yield Finding(
        f"Failures become more frequent: they grow with time to the power "
        f"{row['growth_ratio']:.2g} ({row['low_growth_ratio']:.2g} to "
        f"{row['high_growth_ratio']:.2g})",
        where=f"{int(row['node_count'])} nodes, {int(row['failure_count'])} failures",
        confidence="high" if row["p_value_share"] < most_p / 5 else "medium",
        evidence="analyze.failure_trend, plot.recurrence (notebook 03)",
        next_step="compare causes before and after the change; look for one node or one driver",
    )


@rule(Failing, reference=_CROW)
def failure_bursts(failing: Failing, *, most_p: float = 0.01) -> Iterator[Finding]:
    """Failures come in bursts, so a mean interval misleads."""
    if len(failing.counted) < 10:
        return
    row = first_of(failure_gaps(failing.failures))
    if pd.isna(row["shape_ratio"]) or row["p_value_share"] > most_p or row["shape_ratio"] >= 1:
        return
    yield Finding(
        f"Failures come in bursts: Weibull shape {row['shape_ratio']:.2g} where a Poisson process "
        "has 1",
        where=f"{int(row['gap_count'])} intervals, mean {row['mean_h']:.3g} h",
        confidence="high",
        doubt="a plan made with the mean interval is too optimistic after a failure",
        evidence="analyze.failure_gaps",
        next_step="look for a common cause of failures close together: rack, switch, power",
    )


@rule(Failing, reference=_META)
def unknown_cause(
    failing: Failing, *, least_share: float = 0.3, fewest_failures: float = 5
) -> Iterator[Finding]:
    """Many failures have no known cause."""
    rows = failing.counted
    unknown = rows["cause"].isna() | (rows["category"] == "unknown")
    if len(rows) < fewest_failures or unknown.mean() < least_share:
        return
    yield Finding(
        f"{unknown.mean():.0%} of the failures have no known cause",
        where=_some(rows.loc[unknown, "source"], 3),
        cost=float(unknown.sum()),
        cost_unit="failures",
        cost_basis="failures without a cause",
        evidence="analyze.cause_shares, plot.cause_shares (notebook 03)",
        next_step="add kernel logs of the hosts (dmesg -T) and the job's stderr",
    )


@rule(Failing, reference=_META)
def fabric_errors(failing: Failing, *, fewest_failures: float = 3) -> Iterator[Finding]:
    """Errors of links and network gather on few nodes."""
    rows = failing.counted[failing.counted["category"].isin(["network", "nvlink"])]
    if len(rows) < fewest_failures or rows["node"].notna().sum() == 0:
        return
    counts = rows["node"].value_counts()
    if counts.iloc[0] < max(fewest_failures, 0.5 * len(rows)):
        return
    yield Finding(
        f"{counts.iloc[0]} of {len(rows)} network and link errors are on {counts.index[0]}",
        where=f"{counts.index[0]}: {_some(rows.loc[rows['node'] == counts.index[0], 'device'], 3)}",
        cost=float(counts.iloc[0]),
        cost_unit="failures",
        cost_basis="link and network failures of this node",
        confidence="medium",
        doubt="a cable has two ends: the switch port may be the cause",
        evidence="load.failures(...).failures (notebook 03)",
        next_step="reseat or replace cable and transceiver; read the error counters of both ends",
    )


@rule(Hung, reference=_RECORDER)
def hang(hung: Hung) -> Iterator[Finding]:
    """A collective hangs: which rank the others wait for."""
    rows = hung.suspects[hung.suspects["rank"].notna()]
    if rows.empty or (rows["verdict"] == "nothing hangs").all():
        return
    row = first_of(rows)
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    yield Finding(
        f"Rank {int(row['rank'])}{others} holds up a hang of {int(row['waiting_count'])} ranks: "
        f"{row['reason']}",
        where=f"rank {int(row['rank'])}, {row['operation']} "
        f"{row['seq'] if pd.notna(row['seq']) else ''} of {row['description'] or row['group']}",
        cost=float(row["waiting_count"]),
        cost_unit="ranks that wait",
        cost_basis="ranks that wait for it, directly or through others",
        confidence=str(row["confidence"]) if pd.notna(row["confidence"]) else "low",  # type: ignore[arg-type]
        doubt="" if row["verdict"] == "found" else "the dumps do not prove it",
        evidence="analyze.flight_suspects, plot.flight_suspects (notebook 03)",
        next_step=f"py-spy dump on rank {int(row['rank'])}; {row['evidence']}",
    )
