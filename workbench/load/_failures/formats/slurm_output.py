"""Ends of jobs as Slurm writes them into their output: ``slurmstepd: error: *** JOB 7 ...``."""

from __future__ import annotations

import re

from workbench.load._failures.formats.slurm import FAILURE_STATES
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.signatures import SLURM_LINES
from workbench.load._files.text import console_lines
from workbench.load._files.time import Given, LogPart, iso_ns, log_part, one_line, zone_for

NAME = "Slurm job output"
_MARKS = tuple(mark.decode() for mark in SLURM_LINES)

# slurmstepd, slurmd and srun write the same words; ON names the first host of the step.
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP|REBOOT|Het[A-Za-z]{1,12}) (?:StepId=)?(?P<job>\d{1,12})"
    r"(?:[.+_]\S{1,60})?(?: ON (?P<node>\S{1,255}))? CANCELLED AT "
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
    r"(?: DUE [Tt][Oo] (?P<why>[^*,]{1,80}?)\s*(?:,[^*]{0,120})?)?\s*\*\*\*"
)
# The cgroup's killer, and Slurm's own (OverMemoryKill), of which a second line names no job. Where
# several daemons run on one machine, each writes its host behind its name.
_MEMORY = re.compile(
    r"(?:slurmstepd(?:-(?P<node>[\w.-]{1,255}))?: error: )?(?:"
    r"[Dd]etected \d{1,9} oom[-_]kill event(?:\(s\)|s)? in "
    r"(?:step |StepId=|step=|job )?(?P<job>\d{1,12})"
    r"|(?:Job(?:Id=)?|Step(?:Id=)?) ?(?P<over>\d{1,12})(?:[.+_]\S{1,60})? exceeded (?:virtual )?"
    r"memory limit"
    r"|Exceeded (?:job|step) (?:virtual )?memory limit)"
)
_TASK = re.compile(
    r"srun: error: (?P<node>[\w.-]{1,255}): tasks? [\d,-]{1,200}: (?P<why>Out Of Memory|Bus error"
    r"|Segmentation fault|Illegal instruction|Killed|Exited with exit code (?P<exit>\d{1,9}))"
)
_NODE = re.compile(r"srun: error: Node failure on (?P<node>\S{1,255})")
_TASKS = {
    "Out Of Memory": ("OUT_OF_MEMORY", "out of host memory", "software"),
    "Bus error": ("SIGBUS", "ended by SIGBUS", "unknown"),
    "Segmentation fault": ("SIGSEGV", "ended by SIGSEGV", "software"),
    "Illegal instruction": ("SIGILL", "ended by SIGILL", "software"),
    "Killed": ("SIGKILL", "ended by SIGKILL", "unknown"),
}
# That Slurm ended a job, or one of its tasks, follows from a reason that is told beside it.
_FOLLOWS = ("CANCELLED", "EXIT", "SIGKILL")
_WHY = (
    ("TIME LIMIT", "TIMEOUT"), ("NODE FAIL", "NODE_FAIL"), ("PREEMPT", "PREEMPTED"),
    ("OOM", "OUT_OF_MEMORY"), ("MEMORY", "OUT_OF_MEMORY"), ("DEADLINE", "DEADLINE"),
    ("REQUEUE", "REQUEUED"),
)  # fmt: skip
_OF_FILE = re.compile(r"slurm-(\d{1,12})(?:_\d+)?(?:\.\w+)?\.(?:out|err)")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    text = head.decode(errors="replace")
    return any(pattern.search(text) for pattern in (_CANCELLED, _MEMORY, _TASK, _NODE))


def read(source: Source, settings: Given) -> LogPart:
    """Read the output of a job.

    Slurm says of a job and of each of its steps that it ended, and what each was killed for: that
    is one failure. Of a job that was cancelled without a reason somebody wanted it so.

    References
    ----------
    Slurm: src/slurmd/slurmstepd/req.c and src/plugins/task/cgroup/task_cgroup_memory.c.
    """
    findings = Findings(source.label)
    job_in_name = _OF_FILE.search(source.label)
    rows: list[Row] = []
    for number, text in console_lines(source, findings):
        if not any(mark in text for mark in _MARKS):
            continue
        row = _failure(text, settings, source.label, number, findings)
        if row is not None:
            row = {"job": job_in_name[1] if job_in_name else None, "node": settings.node} | row
            _put(rows, row | {"text": one_line(text), "line": number, "line_count": 1})
    nodes = {row["node"]: None for row in rows if row.get("node")}
    return log_part(findings, rows, nodes=nodes)


def _put(rows: list[Row], row: Row) -> None:
    """Append a row, or fill in what one of the same job and end dropped."""
    for earlier in rows:
        codes = earlier["code"], row["code"]
        is_one = codes[0] == codes[1] or any(code in _FOLLOWS for code in codes)
        if is_one and (earlier["job"] or row["job"]) == (row["job"] or earlier["job"]):
            earlier["line_count"] += 1
            if _rank(codes[1]) < _rank(codes[0]):
                names = ("code", "cause", "category", "severity", "text", "line")
                earlier |= {name: row[name] for name in names}
            if earlier.get("start_ns") is None and row.get("start_ns") is not None:
                earlier |= {name: row[name] for name in ("start_ns", "end_ns", "clock", "assumed")}
            earlier |= {name: row[name] for name in ("job", "node") if earlier[name] is None}
            return
    rows.append(row)


def _rank(code: str) -> int:
    """Order codes of one end: reasons first, then signals, then that it was cancelled."""
    return 2 if code == "CANCELLED" else int(code in _FOLLOWS)


def _failure(text: str, settings: Given, label: str, number: int, findings: Findings) -> Row | None:
    if match := _CANCELLED.search(text):
        return _cancelled(match, settings, label, number, findings)
    usual = {"kind": "slurmstepd", "severity": "fatal", "clock": "none"}
    if match := _MEMORY.search(text):
        told = {"job": match["job"] or match["over"], "node": match["node"]}
        row = usual | _of_state("OUT_OF_MEMORY")
        return row | {name: value for name, value in told.items() if value}
    if match := _TASK.search(text):
        exited = ("EXIT", f"exit code {match['exit']}", "follow-on")
        code, cause, category = _TASKS.get(match["why"], exited)
        return usual | {"code": code, "cause": cause, "category": category, "node": match["node"]}
    if match := _NODE.search(text):
        return usual | _of_state("NODE_FAIL") | {"node": match["node"]}
    if "srun: error: " in text or "slurmstepd: error: " in text:
        remark = "errors of Slurm that match no rule; not counted as failures"
        findings.add("suspicious", remark, 1, f"line {number:,}: {one_line(text)[:160]}")
    return None


def _cancelled(
    match: re.Match[str], settings: Given, label: str, number: int, findings: Findings
) -> Row:
    why = (match["why"] or "").upper()
    state = next((code for word, code in _WHY if word in why), "CANCELLED")
    zone = zone_for(settings, label=label, line=number, text=match[0])
    time_ns = iso_ns(match["stamp"], zone)
    row: Row = {"kind": "slurmstepd", "job": match["job"], **_of_state(state)}
    if why and state == "CANCELLED":
        row |= {"cause": f"cancelled: {why.lower()}", "category": "unknown", "severity": "fatal"}
    if time_ns is None:
        remark = "stamps that are not times, or ambiguous at a clock change (left without a time)"
        findings.add("suspicious", remark, 1, f"line {number:,}")
    clock = "none" if time_ns is None else "epoch"
    row |= {"start_ns": time_ns, "end_ns": time_ns, "clock": clock, "assumed": f"tz={settings.tz}"}
    return row | ({"node": match["node"]} if match["node"] else {})


def _of_state(state: str) -> Row:
    return {"code": state, **FAILURE_STATES[state]._asdict()}
