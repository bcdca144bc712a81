"""Timeouts and network errors of collectives, as PyTorch's NCCL watchdog and NCCL log them."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from datetime import datetime

from workbench.load._failures.kernel_messages import is_unknown_error
from workbench.load._failures.line_prefix import OF_CONTAINER, Prefix, without_prefix
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.signatures import NCCL_LINES
from workbench.load._files.text import console_lines
from workbench.load._files.time import (
    Given,
    LogPart,
    iso_ns,
    local_ns,
    log_part,
    needs,
    one_line,
    zone_for,
)

NAME = "NCCL log"
_OWN_RANK = re.compile(r"\[rank(\d{1,9})\]:")
_GROUP_RANK = re.compile(r"\[(?:PG [^\]]{0,200}?)?Rank (\d{1,9})\]")
# glog: [E207 19:04:38.123186550 ProcessGroupNCCL.cpp:697]; the number is month * 100 + day,
# so newer PyTorch, which does not pad it, is as clear as older ones: E115 is 15 January.
_GLOG = re.compile(
    r"\[?[EWFI](\d{3,4}) (\d\d):(\d\d):(\d\d)\.(\d{1,9}) (?:\d+ )?ProcessGroupNCCL\.cpp:\d+\]"
)
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)[^)]*?Timeout\(ms\)=(\d+)\)"
    r" ran for (\d+) milliseconds"
)
_AT_WORK = re.compile(r"(?:Timeout at NCCL work|detected by watchdog at work): (\d{1,18})")
_STUCK = re.compile(r"Heartbeat monitor timed out!|watchdog got stuck for \d+ seconds")
# Ends without a timeout: an error of the GPU, or of NCCL, that the watchdog came upon.
_EXCEPTION = re.compile(r"watchdog thread terminated with exception: (.{1,400})")
# The runtime of C++ prints the exception of a watchdog without file and line.
_WATCHDOG = re.compile(
    r"ProcessGroupNCCL|Watchdog caught collective|watchdog (?:thread terminated|got stuck)"
)
_REPEATS = ("terminated with exception", "what():")

# What stands before a warning: host:pid:thread [gpu] file:line
_WARN_HEAD = re.compile(
    r"(?<![\w.-])([\w.-]{1,255}):\d+:\d+ (?:\[(\d{1,4})\] )?(?:\S{1,300}:\d+ )?$"
)
_STAMP_BEFORE = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?:? "
)
_ASYNC = re.compile(
    r"NET/IB ?: (?:(\S{1,100}:\d+) )?Got (?:non-fatal )?async (fatal )?event ?: "
    r"([^()]{1,200}?)\s*(?:\((\d+)\))?\s*$"
)
# What a line begins with, for telling what collectors put before it.
_BEGINNING = re.compile(
    r"\[rank\d|\[?[EWFI]\d{3,4} \d\d:|\[[EWFI] ProcessGroup|\[\d{4}-|\S+:\d+:\d+ "
)
_COMPLETION = re.compile(r"Got completion from peer (\S+) with (?:error |status=)(\d{1,4})")
_NO_CONNECTION = re.compile(
    r"Call to (?:connect|ibv_\w+|recv|send|bind)\S* (?:.*?)(?:failed|returned)|Net : "
)
_CUDA = re.compile(r"Cuda failure (?:\d+ )?'([^']+)'")

# Names of ibv_wc_status (libibverbs, verbs.h). 5 is what remains in the queue after another one.
_COMPLETIONS = {
    1: "local length error", 2: "local QP operation error", 4: "local protection error",
    5: "work request flushed", 8: "local access error", 9: "remote invalid request",
    10: "remote access error", 11: "remote operation error",
    12: "transport retry counter exceeded", 13: "receiver-not-ready retry counter exceeded",
}  # fmt: skip
_FLUSHED = 5
_HARMLESS_EVENTS = (
    "port active", "GID table change", "client reregistration", "P_Key", "LID change",
)  # fmt: skip
_HALF_YEAR = 6
_HEAD_LENGTH = 1000
_LARGEST_RANK = 1 << 31


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - names say nothing
    return any(signature in head for signature in NCCL_LINES)


def read(source: Source, settings: Given) -> LogPart:
    """Read a console log of a training job.

    A watchdog's stamp is when it noticed; the collective had hung for as long as it ran, which
    ``text`` says and ``start_ns`` does not subtract. A timeout names no cause: the rank that
    reports is one that waited.

    References
    ----------
    pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; nccl: src/transport/net_ib.
    """
    log = _Log(source.label, settings, Findings(source.label))
    for number, text in console_lines(source, log.findings):
        if _WATCHDOG.search(text):
            log.watchdog(number, text)
        elif "NCCL WARN" in text:
            log.warning(number, text)
        elif "WorkNCCL(" in text and (row := log.known(text)):
            row["line_count"] += 1
    nodes = {row["node"]: None for row in log.rows if row["node"]}
    return log_part(log.findings, log.rows, nodes=nodes)


@dataclass
class _Log:
    label: str
    given: Given
    findings: Findings
    rows: list[Row] = field(default_factory=list)
    # Rows of timeouts by rank and number of the collective: the watchdog repeats itself.
    _works: dict[tuple[int | None, str], Row] = field(default_factory=dict)
    _unsaid: dict[int | None, Row] = field(default_factory=dict)
    _prefix: Prefix = field(default=Prefix("", None, None, ""))
    _year: int | None = None
    _month: int | None = None
    # In an hour that comes twice, the stamp before tells which of the two is meant.
    _after_ns: int | None = None

    def watchdog(self, number: int, text: str) -> None:
        month = _GLOG.search(text)
        if month:
            self._follow_year(int(month[1]) // 100)
        work, at_work = _WORK.search(text), _AT_WORK.search(text)
        ended = _EXCEPTION.search(text)
        if not (work or at_work or ended or _STUCK.search(text)):
            return
        is_repeat = at_work or any(phrase in text for phrase in _REPEATS)
        if is_repeat and (row := self.known(text)):
            row["line_count"] += 1
            return
        row = self._row(number, text, _rank(text)) | self._glog_time(month, number, text)
        row |= _found(text, work, at_work, ended)
        if row["code"] == "exception" and (before := self._unsaid.pop(row["rank"], None)):
            # "Either an error or timeout", it said before; now it says which.
            before |= {name: row[name] for name in ("code", "cause", "category", "text")}
            before["line_count"] += 1
            return
        if at_work and not work:
            self._unsaid[row["rank"]] = row
        if row["rank"] is not None and not _OWN_RANK.search(text):
            self.findings.add("assumed", "the rank inside a process group is the global rank")
        if match := work or at_work:
            self._works[row["rank"], match[1]] = row
        self.rows.append(row)

    def known(self, text: str) -> Row | None:
        match = _WORK.search(text) or _AT_WORK.search(text)
        return self._works.get((_rank(text), match[1])) if match else None

    def warning(self, number: int, text: str) -> None:
        before, _, message = text.partition("NCCL WARN ")
        meaning = _meaning(message)
        if meaning is None:
            is_error = is_unknown_error(message)
            remark = "NCCL warnings that no rule recognizes as a failure"
            remark += "; they report an error" if is_error else ""
            finding = "suspicious" if is_error else "skipped by design"
            self.findings.add(finding, remark, 1, f"line {number:,}: {one_line(message)[:120]}")
            return
        head, own = _WARN_HEAD.search(before[-_HEAD_LENGTH:]), _OWN_RANK.search(before)
        row = self._row(number, text, int(own[1]) if own else None)
        if head is None:
            remark = "NCCL warnings without host and process before them; may be quoted"
            self.findings.add("suspicious", remark, 1, f"line {number:,}")
        if head:
            row |= {"node": head[1], "device": head[2]}
        self.rows.append(row | meaning | self._stamp_before(number, before))

    def _row(self, number: int, text: str, rank: int | None) -> Row:
        self._prefix = without_prefix(text, _BEGINNING)
        return {
            "kind": "nccl", "category": "unknown", "severity": "fatal", "line_count": 1,
            "node": self._prefix.host or self.given.node, "line": number, "text": one_line(text),
            "rank": rank if rank is None or rank < _LARGEST_RANK else None,
        }  # fmt: skip

    def _follow_year(self, month: int) -> None:
        """Follow the year over New Year; lines of other ranks may be a little late."""
        if self._year is None:
            self._year = self.given.year
        elif self._month is not None and self._month - month >= _HALF_YEAR:
            self._year += 1
            remark = "stamps without a year pass New Year; later ones got the next"
            self.findings.add("noted", remark)
        # Lines of several ranks are not in order around New Year, so the year goes back, too.
        elif self._month is not None and month - self._month >= _HALF_YEAR:
            self._year -= 1
        self._month = month

    def _glog_time(self, match: re.Match[str] | None, number: int, text: str) -> Row:
        taken_ns = self._prefix.time_ns
        if match is None:
            return self._stamp_before(number, text.partition("ProcessGroupNCCL")[0])
        if taken_ns is not None and (self._year is None or self.given.tz is None):
            return {"start_ns": taken_ns, "end_ns": taken_ns, "assumed": OF_CONTAINER}
        if self._year is None:
            remedy = "year=, the year in which the log begins"
            raise needs(what="year", label=self.label, line=number, text=text, remedy=remedy)
        zone = zone_for(self.given, label=self.label, line=number, text=text)
        month, day = divmod(int(match[1]), 100)
        try:
            moment = datetime(self._year, month, day, *map(int, match.group(2, 3, 4)))  # type: ignore[arg-type] # noqa: DTZ001
            instant = local_ns(moment, zone, int(match[5].ljust(9, "0")), self._after_ns)
        except ValueError:
            instant = None
        return self._time(instant, f"tz={self.given.tz}, year={self.given.year}", number)

    def _stamp_before(self, number: int, before: str) -> Row:
        """Take the time from what stands before the message, if there is a date and time."""
        match = _STAMP_BEFORE.search(before)
        if match is None:
            return {"clock": "none"}
        if (instant := iso_ns(match[1])) is not None:
            return {"start_ns": instant, "end_ns": instant}
        zone = zone_for(self.given, label=self.label, line=number, text=before)
        instant = iso_ns(match[1], zone, self._after_ns)
        return self._time(instant, f"tz={self.given.tz}", number)

    def _time(self, instant: int | None, assumed: str, number: int) -> Row:
        if instant is None:
            remark = "stamps that are not times in that year, or ambiguous at a clock change"
            remark += " (left without a time)"
            self.findings.add("suspicious", remark, 1, f"line {number:,}")
            return {"clock": "none"}
        self._after_ns = instant
        return {"start_ns": instant, "end_ns": instant, "assumed": assumed}


_Match = re.Match[str] | None


def _found(text: str, work: _Match, at_work: _Match, ended: _Match) -> Row:
    row = {"code": "timeout", "cause": "NCCL collective timed out"}
    if work:
        words = (
            f"{work[2]} (SeqNum {work[1]}) ran for {int(work[4][:15]) / 1000:,.0f} s, "
            f"timeout {int(work[3][:15]) / 1000:,.0f} s: {text}"
        )
        return row | {"text": one_line(words)}
    if at_work:
        return row
    if ended:
        cause = f"NCCL watchdog ended: {one_line(ended[1])[:120]}"
        return {"code": "exception", "cause": cause, "category": _category(ended[1])}
    return {"code": "heartbeat", "cause": "NCCL watchdog thread made no progress"}


def _category(error: str) -> str:
    return "unknown" if "remote process exited" in error else category_of_error(error)


def _rank(text: str) -> int | None:
    """Return the global rank, or where older versions print none the one inside the group."""
    match = _OWN_RANK.search(text) or _GROUP_RANK.search(text)
    return int(match[1]) if match else None


def _meaning(message: str) -> Row | None:
    if match := _ASYNC.search(message):
        event = match[3].strip()
        severity = "fatal" if match[2] or "fatal" in event or "catastrophic" in event else "warning"
        if any(event_name.lower() in event.lower() for event_name in _HARMLESS_EVENTS):
            severity = "info"
        row = {"code": match[4] or event, "cause": f"NIC event: {event}", "severity": severity}
        return row | {"category": "network"} | ({"device": match[1]} if match[1] else {})
    if match := _COMPLETION.search(message):
        status = int(match[2])
        cause = f"InfiniBand: {_COMPLETIONS.get(status, f'completion error {status}')}"
        category = "follow-on" if status == _FLUSHED else "network"
        return {"code": str(status), "cause": cause, "category": category}
    if match := _CUDA.search(message):
        cause = f"CUDA failure: {match[1][:120]}"
        return {"code": "cuda", "cause": cause, "category": category_of_error(message)}
    if _NO_CONNECTION.search(message):
        return {"code": "connection", "cause": one_line(message)[:120], "category": "network"}
    return None


# To which category an exception or a signal of a training process belongs.

# The first that matches counts. Running out of GPU memory is a matter of the program, not a
# fault of the memory, so it is software; "gpu memory" is for uncorrectable errors.
_BY_TEXT = [
    (re.compile(r"uncorrectable ecc|ECC error", re.IGNORECASE), "gpu memory"),
    (re.compile(r"uncorrectable nvlink|nvlink error", re.IGNORECASE), "nvlink"),
    (re.compile(r"out of memory|OutOfMemoryError|MemoryError|bad_alloc"), "software"),
    (re.compile(r"device-side assert|invalid device ordinal|invalid argument"), "software"),
    (re.compile(r"CUDA error|Cuda failure|CUDNN_STATUS|CUBLAS_STATUS", re.IGNORECASE), "gpu"),
    (re.compile(r"No space left on device|Stale file handle|Input/output error"), "storage"),
    (re.compile(r"Read-only file system|Transport endpoint is not connected"), "storage"),
    (re.compile(r"ncclSystemError|unhandled system error|network error|ibv_"), "network"),
    (re.compile(r"collective operation timeout|NCCL|DistBackendError"), "unknown"),
    (re.compile(r"Connection (reset|closed|refused)|BrokenPipe|Rendezvous"), "unknown"),
    (re.compile(r"SignalException|KeyboardInterrupt|SystemExit"), "unknown"),
]
# Signals that a program brings on itself. SIGKILL, SIGTERM, SIGABRT and SIGBUS have many
# senders (memory killer, scheduler, watchdog, full shared memory) that nobody recorded.
_OWN_FAULT = {"SIGSEGV", "SIGFPE", "SIGILL"}


def category_of_error(text: str) -> str:
    return next((category for pattern, category in _BY_TEXT if pattern.search(text)), "software")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def category_of_signal(name: str) -> str:
    return "software" if name in _OWN_FAULT else "unknown"
