"""Events of a Kubernetes cluster: nodes that were lost, pods that were evicted or killed."""

from __future__ import annotations

import re

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Record, Row
from workbench.load._files.tables import json_documents, records
from workbench.load._files.time import Given, LogPart, iso_ns, log_part, one_line
from workbench.load._files.xid_codes import pci_address, xid_meaning

NAME = "Kubernetes events"

_MARKS = (b'"involvedObject"', b'"regarding"')
_EVENT_KIND = re.compile(rb'"kind"\s*:\s*"Event(List)?"')
# As the kernel writes it, as part of a reason (GpuXid48), or as a set of codes ({"31":true}).
_XID = re.compile(
    r"Xid[^0-9\n]{0,3}\(([^)\n]{1,40})\)[:,]? ?(\d{1,4})|Xid\w{0,8}?\W{0,6}(\d{1,4})\b",
    re.IGNORECASE,
)
_XID_SET = re.compile(r"^\{()\"(\d{1,4})()\": ?true")
_XID_OF_SET = re.compile(r"\"(\d{1,4})\": ?true")
_JOBS = {"Job", "JobSet", "PyTorchJob", "MPIJob", "RayJob", "TrainJob", "TFJob", "Workflow"}
_MOST_REPEATS = 1 << 53
_BETWEEN = "events that stand for repeats (when those in between were is not recorded)"

# reason: cause, category, severity. Kubernetes calls some of them Normal, as it expected them.
_LOST, _OOM = "node not ready", "process killed, out of memory"
_REASONS = {
    "NodeNotReady": (_LOST, "host", "fatal"),
    "NodeNotReachable": (_LOST, "host", "fatal"),
    "Rebooted": ("node rebooted", "host", "fatal"),
    "NodeShutdown": ("node shut down", "host", "fatal"),
    "Shutdown": ("node shut down", "host", "fatal"),
    "NodeHasDiskPressure": ("node short of disk", "storage", "warning"),
    "NodeHasInsufficientMemory": ("node short of memory", "host", "warning"),
    "NodeHasInsufficientPID": ("node short of process numbers", "host", "warning"),
    "SystemOOM": (_OOM, "host", "fatal"),
    "OOMKilling": (_OOM, "host", "fatal"),
    "OOMKilled": (_OOM, "host", "fatal"),
    "Evicted": ("pod evicted", "host", "fatal"),
    "TaintManagerEviction": ("pod evicted from a tainted node", "follow-on", "fatal"),
    "Preempted": ("pod preempted", "scheduler", "fatal"),
    "Preempting": ("pod preempted", "scheduler", "fatal"),
    "FailedScheduling": ("pod cannot be scheduled", "scheduler", "warning"),
    "NotTriggerScaleUp": ("pod cannot be scheduled", "scheduler", "warning"),
    "BackOff": ("container keeps failing", "follow-on", "warning"),
    "BackoffLimitExceeded": ("job failed too often", "follow-on", "fatal"),
    "DeadlineExceeded": ("job ran longer than allowed", "scheduler", "fatal"),
    "Unhealthy": ("health probe failed", "unknown", "warning"),
    "NodeNotSchedulable": ("node cordoned", "planned", "info"),
    "PreemptScheduled": ("machine to be taken away", "planned", "fatal"),
    "TerminateScheduled": ("machine to be taken away", "planned", "fatal"),
    "RebootScheduled": ("machine to be rebooted", "planned", "fatal"),
    "RedeployScheduled": ("machine to be moved", "planned", "fatal"),
    "FreezeScheduled": ("machine to be paused", "planned", "warning"),
    "FailedMount": ("volume cannot be mounted", "storage", "warning"),
    "FailedAttachVolume": ("volume cannot be attached", "storage", "warning"),
    "FilesystemIsReadOnly": ("file system is read-only", "storage", "fatal"),
    "Ext4Error": ("file-system error", "storage", "warning"),
    "IOError": ("input/output error", "storage", "warning"),
    "CorruptDockerImage": ("corrupt container image", "storage", "warning"),
    "NetworkNotReady": ("network of the node not ready", "network", "warning"),
    "FailedCreatePodSandBox": ("pod sandbox cannot be created", "network", "warning"),
    "UnregisterNetDevice": ("network device lost", "network", "warning"),
    "KernelOops": ("kernel error", "software", "warning"),
    "TaskHung": ("task hung in the kernel", "host", "warning"),
    "MemoryReadError": ("host memory error", "host", "warning"),
    "Failed": ("container failed", "software", "warning"),
}
_NORMAL_FAILURES = {
    "NodeNotReady", "NodeNotReachable", "Preempted", "Preempting", "TaintManagerEviction",
    "NodeHasDiskPressure", "NodeHasInsufficientMemory", "NodeHasInsufficientPID", "NodeShutdown",
    "Shutdown", "NodeNotSchedulable",
}  # fmt: skip


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - names say nothing
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return False
    is_event = _EVENT_KIND.search(head) is not None
    return any(mark in head for mark in _MARKS) and (is_event or b'"reason"' in head)


def read(source: Source, settings: Given) -> LogPart:
    """Read ``kubectl get events -o json``, its watch, or one event per line.

    Events of type Warning are failures, and those of type Normal that mean the loss of a node
    or a pod (NodeNotReady of the node controller is one). A cluster keeps its events for an
    hour unless told otherwise, so one file may hold the end of the story only.

    References
    ----------
    Kubernetes API, core/v1 Event and events.k8s.io/v1 Event; node-problem-detector: config/.
    """
    findings = Findings(source.label)
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for line, document in json_documents(source, findings):
        for number, record in records(line, document, findings, key="items"):
            event = _unwrapped(record)
            reason, kind = event.get("reason"), event.get("type")
            if not isinstance(reason, str) or not _involved(event):
                findings.add("skipped by design", "JSON, not an event", 1, f"record {number:,}")
            elif kind != "Warning" and reason not in _NORMAL_FAILURES:
                findings.add("skipped by design", f"events of type {str(kind)[:20]}")
            else:
                _put(rows, seen, event, _row(event, reason, number, settings, findings))
    remark = "states of an event that a later one replaces"
    findings.add("skipped by design", remark, seen.get("", 0))
    nodes = {row["node"]: None for row in rows if row["node"]}
    return log_part(findings, rows, nodes=nodes)


def _unwrapped(record: Record) -> Record:
    """Take the event out of what watches and exporters put around it."""
    for name in ("object", "event"):
        inner = record.get(name)
        if isinstance(inner, dict) and "reason" in inner:
            return inner
    return record


def _put(rows: list[Row], seen: dict[str, int], event: Record, row: Row) -> None:
    """Append a row; an event that was updated (its count rose) replaces its earlier state."""
    uid = _dict(event, "metadata").get("uid")
    if not isinstance(uid, str) or not uid:
        rows.append(row)
    elif uid in seen:
        rows[seen[uid]] = row
        seen[""] = seen.get("", 0) + 1
    else:
        seen[uid] = len(rows)
        rows.append(row)


def _row(event: Record, reason: str, number: int, settings: Given, findings: Findings) -> Row:
    message = event.get("message") or event.get("note") or ""
    message = message if isinstance(message, str) else str(message)[:500]
    involved = _involved(event)
    kind, name = (_text(involved, key) for key in ("kind", "name"))
    namespace = _text(involved, "namespace")
    about = "/".join(name_part for name_part in (kind, namespace, name) if name_part)
    row = _meaning(reason, message) | _times(event, number, findings)
    return row | {
        "node": _node(event, kind, name) or settings.node, "kind": "kubernetes",
        "job": name if kind in _JOBS else None, "line_count": _count(event, number, findings),
        "text": one_line(f"{about}: {reason}: {message}"), "line": number,
    }  # fmt: skip


def _meaning(reason: str, message: str) -> Row:
    if "xid" in reason.lower() or "NVRM: Xid" in message:
        beginning = message[:4096]
        match = _XID.search(beginning) or _XID_SET.search(beginning) or _XID.search(reason[:200])
        code = (match[2] or match[3]) if match else None
        if match and code:
            device = pci_address(match[1]) if match[1] else None
            codes = _XID_OF_SET.findall(beginning) if beginning.startswith("{") else []
            listed = ", ".join(sorted({*codes} - {code}, key=int))
            return xid_meaning(code) | {"code": code, "device": device, "other_codes": listed}
        return {"cause": "Xid of a GPU", "category": "gpu", "code": reason[:60]}
    if reason not in _REASONS:
        return {"cause": one_line(reason)[:100], "code": reason[:60], "severity": "warning"}
    cause, category, severity = _REASONS[reason]
    return {"cause": cause, "category": category, "severity": severity, "code": reason}


def _times(event: Record, number: int, findings: Findings) -> Row:
    series = _dict(event, "series")
    first = _first_time(event, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    last = iso_ns(series.get("lastObservedTime"))
    last = last or _first_time(event, "lastTimestamp", "deprecatedLastTimestamp")
    first = first or last or iso_ns(_dict(event, "metadata").get("creationTimestamp"))
    if first is None:
        findings.add("suspicious", "events without a time", 1, f"record {number:,}")
        return {"clock": "none"}
    if last is not None and last < first:
        remark = "events whose last time is before the first (swapped)"
        findings.add("suspicious", remark, 1, f"record {number:,}")
        first, last = last, first
    return {"start_ns": first, "end_ns": last or first}


def _first_time(event: Record, *names: str) -> int | None:
    # Kubernetes writes the year 1 for a time it does not have; iso_ns takes that for none.
    return next((ns for name in names if (ns := iso_ns(event.get(name))) is not None), None)


def _count(event: Record, number: int, findings: Findings) -> int:
    stated = _dict(event, "series").get("count")
    stated = stated or event.get("count") or event.get("deprecatedCount") or 1
    if not isinstance(stated, int) or isinstance(stated, bool) or not 0 < stated < _MOST_REPEATS:
        remark = "invalid repeat counts (assumed to be 1)"
        findings.add("suspicious", remark, 1, f"record {number:,}")
        return 1
    if stated > 1:
        findings.add("noted", _BETWEEN)
    return stated


def _node(event: Record, kind: str, name: str) -> str | None:
    """Return the host: the object itself, or that of the reporter where it runs on nodes."""
    if kind == "Node" and name:
        return name
    for source in ("source", "deprecatedSource"):
        if host := _text(_dict(event, source), "host"):
            return host
    is_kubelet = event.get("reportingComponent", event.get("reportingController")) == "kubelet"
    return _text(event, "reportingInstance") or None if is_kubelet else None


def _involved(event: Record) -> Record:
    return _dict(event, "involvedObject") or _dict(event, "regarding")


def _dict(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _text(record: Record, name: str) -> str:
    value = record.get(name)
    return value[:255] if isinstance(value, str) else ""
