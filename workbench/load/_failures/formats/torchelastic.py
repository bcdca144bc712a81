"""Failures as ``torchrun`` reports them: error files, and the block it prints at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import LoadError
from workbench.load._failures.formats.nccl_log import (
    category_of_error,
    category_of_signal,
    signal_name,
)
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.signatures import TORCHELASTIC_LINES
from workbench.load._files.tables import json_documents
from workbench.load._files.text import console_lines
from workbench.load._files.time import (
    Given,
    LogPart,
    epoch_ns,
    iso_ns,
    log_part,
    one_line,
    zone_for,
)

NAME = "torchelastic"
_ERROR_FILE = re.compile(rb'\s*\{\s*"message"\s*:\s*\{\s*"message"\s*:')
_PLAIN_ERROR = re.compile(rb'\s*\{\s*"message"\s*:\s*"')
_ERROR_FILE_NAME = re.compile(r"(error|reply)[\w.-]*\.json(\.(gz|bz2|xz|zstd?|lz4))?$")

# What collectors put before each line: a stamp (kubectl, container runtimes, notebooks), and
# the task: that of srun, torchrun, kubectl --prefix, mpirun, Ray, docker compose or pdsh.
_TASK = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
    r"|[\d.]{1,12}s\t\d+\t)?"
    r"\s*(\d+: |\[[a-z][\w./-]{0,200}\]:? ?|\[\d+,\d+\]<std\w{3}>: ?|\([^()]{1,100}\) "
    r"|[\w.-]{1,100} +\| |(?!(?:time|host|rank|exitcode|error_file|traceback|msg):)"
    r"[a-z][\w.-]{0,100}: (?=  |\[\d+\]:|={10}|-{10}|Root Cause|Failures:))?"
)
_ROOT = re.compile(r"Root Cause(?: \(first observed failure\))?:\s*$")
_OTHERS = re.compile(r"(?:Other )?Failures:\s*$")
_ENTRY = re.compile(r"\[(\d+)\]:\s*$")
_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?\s*(.*)$")
_RULE = re.compile(r"^\s*([=*])\1{9,}\s*$")
_DASHES = re.compile(r"^\s*-{10,}\s*$")
_EXCEPTION = re.compile(
    r"^\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning))\b(:.*)?$"
)
_RANK = re.compile(r"(\d+)")
_EXIT = re.compile(r"(-?\d+)")
_NO_TRACEBACK = "no traceback recorded; decorate main() with torch's @record"
_LARGEST_RANK = 1 << 31
_RANK_IN_PATH = re.compile(r"(?:^|[/!])attempt_\d{1,6}/(\d{1,6})/[^/]+$")


def looks_like(head: bytes, label: str) -> bool:
    if _ERROR_FILE.match(head) or any(signature in head for signature in TORCHELASTIC_LINES):
        return True
    # {"message": "..."} alone could be anything, so the name has to say it too.
    return bool(_PLAIN_ERROR.match(head) and _ERROR_FILE_NAME.search(label))


def read(source: Source, settings: Given) -> LogPart:
    """Read an error file or a console log.

    The global rank is in the block only; of an error file the folder names that on its node. The
    stamp of the block is local time of the agent's host, that of an error file seconds since
    the epoch.

    References
    ----------
    torch.distributed.elastic.multiprocessing.errors (``ErrorHandler``, ``ChildFailedError``).
    """
    findings = Findings(source.label)
    head = source.head()
    rows: list[dict[str, Any]] = []
    if head.lstrip()[:1] == b"{" and not any(signature in head for signature in TORCHELASTIC_LINES):
        rows = _error_file(source, settings, findings)
    if not rows:
        # A console log may begin with JSON, too: many print their configuration first.
        console = Findings(source.label)
        rows = _console(source, settings, console)
        _refuse_nothing(rows, head, findings)
        findings = console
    return log_part(findings, rows)


def _refuse_nothing(rows: list[dict[str, Any]], head: bytes, findings: Findings) -> None:
    if rows or not (_ERROR_FILE.match(head) or _PLAIN_ERROR.match(head)):
        return
    table = findings.frame()
    remark = table.loc[table["finding"] != "read", "what"].tolist()
    msg = (
        f"{findings.source}: holds no error of torchelastic ({'; '.join(remark) or 'no JSON'}); "
        'it writes one object like {"message": {"message": ..., "extraInfo": ...}}'
    )
    raise LoadError(msg)


def _error_file(source: Source, settings: Given, findings: Findings) -> list[dict[str, Any]]:
    rows = []
    for line, document in json_documents(source, findings):
        row = _row_of_document(document, findings)
        if row is None:
            remark = "JSON without a message of an error"
            findings.add("skipped by design", remark, 1, f"line {line:,}")
            continue
        rows.append(row | _of_path(source.label) | {"node": settings.node, "line": line})
    return rows


def _of_path(label: str) -> dict[str, Any]:
    """Take the rank from ``attempt_0/3/error.json``; it counts the processes of one node."""
    match = _RANK_IN_PATH.search(label)
    return {"rank": int(match[1]), "assumed": "rank of its node"} if match else {}


def _row_of_document(document: Any, findings: Findings) -> dict[str, Any] | None:
    message = document.get("message") if isinstance(document, dict) else None
    extra: Any = document.get("extraInfo") if isinstance(document, dict) else None
    code: Any = None
    if isinstance(message, dict):
        extra, code = message.get("extraInfo", extra), message.get("errorCode")
        message = message.get("message")
    if not isinstance(message, str):
        return None
    stamp = extra.get("timestamp") if isinstance(extra, dict) else None
    start_ns = epoch_ns(stamp)
    if stamp is not None and start_ns is None:
        findings.add("suspicious", "times that are not seconds since 1970 (left without a time)")
    row: dict[str, Any] = {"start_ns": start_ns, "end_ns": start_ns}
    if start_ns is None:
        row["clock"] = "none"
    exit_code = code if isinstance(code, int) and not isinstance(code, bool) and code else None
    return row | _blame(message, exit_code) | {"text": one_line(message)}


def _blame(message: str, exit_code: int | None) -> dict[str, Any]:
    """Return what failed, judged by an exception's text and (if known) the exit code."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    code = None if exit_code is None else str(exit_code)
    usual = {"kind": "torchelastic", "code": code, "severity": "fatal"}
    if first and first != "<NONE>":
        return usual | {"cause": one_line(first), "category": category_of_error(message[:4096])}
    return usual | _of_exit_code(exit_code)


def _of_exit_code(exit_code: int | None) -> dict[str, Any]:
    if exit_code is None:
        return {"cause": "unknown", "category": "unknown"}
    # A shell reports signal n as 128 + n, Python as -n.
    number = -exit_code if exit_code < 0 else exit_code - 128
    if exit_code < 0 or 0 < number <= 64:
        name = signal_name(number)
        return {"cause": f"ended by {name}", "category": category_of_signal(name)}
    return {"cause": f"exit code {exit_code} ({_NO_TRACEBACK})", "category": "unknown"}


@dataclass
class _Entry:
    line: int
    is_root: bool
    fields: dict[str, str] = field(default_factory=dict)
    exception: str = ""


@dataclass
class _Block:
    """State of the block that one task prints; tasks may print at the same time."""

    section: str = ""
    entry: _Entry | None = None

    def feed(self, number: int, text: str) -> _Entry | None:
        if _ROOT.search(text) or _OTHERS.search(text):
            self.section, self.entry = "root" if _ROOT.search(text) else "others", None
        elif not self.section or _DASHES.match(text):
            self.entry = None
        elif _RULE.match(text):
            self.section, self.entry = "", None
        elif _ENTRY.search(text):
            self.entry = _Entry(number, self.section == "root")
            return self.entry
        elif self.entry is not None:
            self._fill(self.entry, text)
        return None

    def _fill(self, entry: _Entry, text: str) -> None:
        if (match := _FIELD.match(text)) and match[1] not in entry.fields:
            entry.fields[match[1]] = match[2].strip()
        elif "traceback" in entry.fields and (match := _EXCEPTION.match(text)):
            # The last exception of a traceback is the one that ended the process.
            entry.exception = text.strip()


def _console(source: Source, settings: Given, findings: Findings) -> list[dict[str, Any]]:
    blocks: dict[str, _Block] = {}
    entries: list[_Entry] = []
    for number, text in console_lines(source, findings):
        before: re.Match[str] = _TASK.match(text)  # type: ignore[assignment]
        block = blocks.setdefault((before[1] or "").strip(), _Block())
        if entry := block.feed(number, text[len(before[0].rstrip(" ")) :]):
            entries.append(entry)
    rows = []
    for entry in entries:
        if not {"rank", "exitcode"} & entry.fields.keys():
            findings.add("dropped", "entries without rank and exit code", 1, f"line {entry.line:,}")
            continue
        rows.append(_row_of_entry(entry, source.label, settings, findings))
    return rows


def _row_of_entry(entry: _Entry, label: str, settings: Given, findings: Findings) -> dict[str, Any]:
    fields = entry.fields
    exit_match = _EXIT.match(fields.get("exitcode", ""))
    # Bounded: a line may hold any number of digits.
    exit_code = int(exit_match[1][:12]) if exit_match else None
    traceback = fields.get("traceback", "")
    message = entry.exception
    if (
        not message
        and traceback
        and not traceback.startswith(("To enable", "Signal", "Traceback", "<"))
    ):
        message = traceback
    rank = _RANK.match(fields.get("rank", ""))
    row = _blame(message, exit_code) | _time_of(entry, label, settings, findings)
    if not entry.is_root:
        row["category"] = "follow-on"
    words = [f"{n} {fields[n]}" for n in ("rank", "exitcode", "error_file") if n in fields]
    return row | {
        "node": fields.get("host") or settings.node,
        "rank": int(rank[1]) if rank and int(rank[1][:12]) < _LARGEST_RANK else None,
        "text": one_line(", ".join([*words, message or traceback])),
        "line": entry.line,
    }


def _time_of(entry: _Entry, label: str, settings: Given, findings: Findings) -> dict[str, Any]:
    stamp = entry.fields.get("time", "")
    if not stamp or stamp.startswith("<"):
        return {"clock": "none"}
    zone = zone_for(settings, label=label, line=entry.line, text=f"time: {stamp}")
    start_ns = iso_ns(stamp, zone)
    if start_ns is None:
        remark = "stamps that are not times, or ambiguous at a clock change (left without a time)"
        findings.add("suspicious", remark, 1, f"line {entry.line:,}")
        return {"clock": "none"}
    return {"start_ns": start_ns, "end_ns": start_ns, "assumed": f"tz={settings.tz}"}
