"""Runs of Slurm jobs as tables of failures and of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._failures.formats.slurm.states import FAILURE_STATES, cause_of
from workbench.load._failures.hostlist import hosts
from workbench.load._files.findings import Findings
from workbench.load._files.log_file import SECOND, Given, failure_rows
from workbench.tables import TIMELINE

_TEXT_LENGTH = 200
_SHOWN = ("JobID", "JobName", "State", "ExitCode", "Reason", "NodeList", "FailedNode", "Comment")
_USED = dict.fromkeys(
    (*_SHOWN, "word", "end_ns", "hosts", "job", "step_states", "line", "is_local")
)
# What is pointed out as a crash loop: a note, which changes no number.
_LOOP_STARTS, _LOOP_NS = 5, 3600 * SECOND


def failures_of(jobs: pd.DataFrame, given: Given, label: str) -> pd.DataFrame:
    """Return table FAILURES: one row per run that ended otherwise than COMPLETED."""
    failed = jobs[jobs["word"].isin(FAILURE_STATES)].sort_values("end_ns", kind="stable")
    failed = failed[list(_USED)]
    rows = []
    for run in failed.to_dict("records"):
        meaning = FAILURE_STATES[run["word"]]
        known = pd.notna(run["end_ns"])
        end = int(run["end_ns"]) if known else None
        row = {"start_ns": end, "end_ns": end, "clock": "epoch" if known else "none"}
        row |= {"node": _node(run), "job": run["job"], "kind": "slurm", "code": run["word"]}
        row |= {"cause": cause_of(run["State"], run["ExitCode"])}
        row |= {"category": meaning.category, "severity": meaning.severity}
        row |= {"other_codes": run["step_states"], "text": _text(run), "line": run["line"]}
        row |= {"assumed": f"tz={given.tz}" if run["is_local"] else ""}
        rows.append(row)
    return failure_rows(rows, label)


def _node(run: Mapping[Any, Any]) -> str | None:
    """Return the node that Slurm blames, or the only one that the job had."""
    named: tuple[str, ...] = ()
    if run["FailedNode"]:
        try:
            named = hosts(str(run["FailedNode"]))
        except LoadError:
            named = ()
    nodes = named or run["hosts"]
    return nodes[0] if isinstance(nodes, tuple) and len(nodes) == 1 else None


def _text(run: Mapping[Any, Any]) -> str:
    parts = [f"{name}={run[name]}" for name in _SHOWN if run[name] not in ("", "None")]
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"


def timeline_of(jobs: pd.DataFrame, label: str) -> pd.DataFrame:
    """Return table TIMELINE: for each run, the wait in the queue and the run itself."""
    common = jobs[["job", "attempt", "node_count", "gpu_count", "line"]].copy()
    ended = jobs["word"].isin(FAILURE_STATES) | jobs["word"].eq("COMPLETED")
    common["outcome"] = jobs["word"].where(ended)
    began = jobs["start_ns"].notna() & ~jobs["word"].eq("PENDING")
    running = common.assign(state="running", start_ns=jobs["start_ns"], end_ns=jobs["end_ns"])
    joined = {each: ",".join(each) or None for each in set(jobs["hosts"])}
    running["nodes"] = [joined[each] for each in jobs["hosts"]]
    since = jobs["eligible_ns"].mask((jobs["eligible_ns"] > jobs["start_ns"]).fillna(value=True))
    since = since.fillna(jobs["submit_ns"]).fillna(jobs["eligible_ns"])
    until = jobs["start_ns"].where(began, jobs["end_ns"])
    queued = common.assign(state="queued", start_ns=since, end_ns=until, nodes=None)
    queued["outcome"] = common["outcome"].mask(began)
    # No time, or less than none, was spent waiting where a requeued job kept its stamps.
    waited = since.notna() & ~(since >= until).fillna(value=False)
    # A run whose times are missing or impossible is listed all the same.
    lost = ~began & ~waited
    running.loc[lost, ["start_ns", "end_ns"]] = pd.NA
    rows = pd.concat([queued[waited], running[began | lost]])
    rows["clock"] = rows["start_ns"].notna().map({True: "epoch", False: "none"})
    rows = rows.assign(replica=None, first_step=None, last_step=None, source=label)
    rows = rows.sort_values(["start_ns", "line"], kind="stable").reset_index(drop=True)
    if rows.empty:
        return TIMELINE.empty()
    return TIMELINE.check(TIMELINE.cast(rows), label)


def note_crash_loops(jobs: pd.DataFrame, findings: Findings) -> None:
    """Point out jobs that were started again and again within an hour."""
    begun = jobs[jobs["start_ns"].notna()]
    fifth = begun.groupby("job")["start_ns"].shift(_LOOP_STARTS - 1)
    quick = begun[((begun["start_ns"] - fifth) <= _LOOP_NS).fillna(value=False)]
    for job, runs in begun[begun["job"].isin(quick["job"])].groupby("job"):
        what = f"job {job} is in a crash loop: {_LOOP_STARTS} starts or more within an hour"
        findings.add("noted", what, len(runs), f"line {int(runs['line'].iloc[0]):,}")
