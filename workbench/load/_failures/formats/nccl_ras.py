"""Reports of NCCL's RAS subsystem, as ``ncclras`` prints them: what is wrong with a job now."""

from __future__ import annotations

import re

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.signatures import NCCL_RAS_LINES
from workbench.load._files.text import console_lines
from workbench.load._files.time import Given, LogPart, log_part, one_line

NAME = "NCCL RAS report"
_SECTION = re.compile(r"^\s*(Errors|Warnings|Job summary|Communicators\.\.\.)")
_PROBLEM = re.compile(r"^\s*(?:#\d+-\d+ \([0-9a-f]+\) )?(?P<what>[A-Z]{4,20})\s*$")
_PROCESS = re.compile(r"Process \d+ on node (?P<node>\S{1,255})")
# What each word means: cause, category, severity. Collectives outpace each other by a little
# in healthy jobs, too.
_MEANINGS = {
    "DEAD": ("processes of the job are dead", "unknown", "fatal"),
    "INCOMPLETE": ("processes of the job do not answer", "unknown", "fatal"),
    "MISMATCH": ("ranks of a communicator are at different collectives", "unknown", "warning"),
    "TIMEOUT": ("processes did not answer in time", "unknown", "warning"),
    "ABORT": ("a communicator was aborted", "unknown", "fatal"),
    "ERROR": ("a communicator reports an error", "unknown", "fatal"),
}


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    return NCCL_RAS_LINES[0] in head and (b"Job summary" in head or b"Errors" in head)


def read(source: Source, settings: Given) -> LogPart:
    """Read any number of reports on one job, one after the other.

    Each word of them is one row, however many processes and communicators it names and however
    often it is reported; what else is wrong follows from processes that are dead. Reports have
    no time.

    References
    ----------
    NVIDIA, *NCCL User Guide*, RAS.
    """
    findings = Findings(source.label)
    rows: list[Row] = []
    problems: dict[str, Row] = {}
    section, current = "", None
    for number, text in console_lines(source, findings):
        if match := _SECTION.match(text):
            section, current = match[1], None
        elif section in ("Errors", "Warnings") and (match := _PROBLEM.match(text)):
            current = problems.get(match["what"])
            if current is None:
                current = problems[match["what"]] = _row(match["what"], number, settings, problems)
                rows.append(current)
            else:
                current["line_count"] += 1
        elif current is not None:
            _detail(current, text)
    for row in rows:
        # Several hosts are at fault: none of them is "the" host.
        hosts = row.pop("hosts")
        row["node"] = next(iter(hosts)) if len(hosts) == 1 else settings.node
    return log_part(findings, rows)


def _row(status: str, number: int, settings: Given, problems: Row) -> Row:
    unknown = (f"{status.lower()}, as RAS reports it", "unknown", "fatal")
    cause, category, severity = _MEANINGS.get(status, unknown)
    row: Row = {"kind": "nccl", "code": f"RAS {status}", "cause": cause, "clock": "none"}
    category = "follow-on" if "DEAD" in problems else category
    row |= {"category": category, "severity": severity, "node": settings.node, "line": number}
    return row | {"line_count": 1, "text": "", "hosts": set()}


def _detail(row: Row, text: str) -> None:
    if text.strip() and len(row["text"]) < 200:
        row["text"] = one_line(f"{row['text']} {text}")
    if match := _PROCESS.search(text):
        row["hosts"].add(match["node"])
