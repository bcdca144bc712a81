"""Kernel logs: errors of GPUs (Xid, amdgpu), NVSwitches (SXid), hosts, networks and disks.

Read as ``dmesg`` prints them (seconds since boot, ``-T``, ``--time-format iso``, ``--decode``,
``--raw``), as ``journalctl`` does (short, precise, iso, full, unix, monotonic, json), as
rsyslog writes ``kern.log`` and ``syslog`` in both of its styles, and from ``/dev/kmsg``.

Notes
-----
``dmesg -T`` computes its times from the seconds since boot; they are wrong by the time the
host was suspended. Prefer ``journalctl -k -o short-iso-precise``.

References
----------
NVIDIA, *XID Errors* (docs.nvidia.com/deploy/xid-errors): form of the line and catalogue.
NVIDIA, *Fabric Manager User Guide*, appendix D: form and severity of SXid lines.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from workbench.load._failures.formats.system_log import has_stamp, read_system_log
from workbench.load._failures.kernel_messages import (
    RECOVERED,
    kernel_message,
    needles,
    without_recovered,
)
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import fold_of
from workbench.load._files.time import Given, LogPart
from workbench.load._files.xid_codes import pci_address, sxid_meaning, xid_meaning
from workbench.tables import SAYS_SYNTHETIC

NAME = "kernel log"
_NEEDLES = (
    b"Xid",
    b"off the bus",
    b"The NVIDIA GPU",
    b"GPU reset begin!",
    b"uncorrectable hardware error",
    b"timeout, signaled seq",
    b"SYNTHETIC",
    b"Linux version ",
    b"-- Boot ",
    b"-- Reboot --",
)
_LOOKED_AT_LINES = 60
_GPU_LINE = re.compile(
    rb"NVRM: Xid \(|SXid \(PCI:|NVRM: The NVIDIA GPU |NVRM: .*off the bus|"
    rb"amdgpu.*(GPU reset begin!|uncorrectable)"
)
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")

_DEVICE = re.compile(
    r"(?:PCI:)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?(?![0-9A-Fa-f])"
)
# Repetitions are bounded: a hostile line of a megabyte must not take a minute.
_XID = re.compile(
    r"(?P<kind>S?Xid) \((?P<device>[^)\s,]{1,40})(?:[ ,][^)]{0,60})?\): "
    r"(?P<code>\d{1,6})(?!\d)(?:, (?P<text>.*))?"
)
_NVLINK5 = re.compile(r"(?:^|, )(?P<unit>[A-Z][A-Z0-9_]+) (?P<severity>Fatal|Non-?fatal) ")
_SXID_TEXT = re.compile(r"(?P<severity>Fatal|Non-fatal), (?:Link -?\d+ )?(?P<cause>[^(]*[^( ])")
_AMD_ERRORS = re.compile(r"\b(?P<count>\d{1,12}|no) (?:new )?uncorrectable hardware errors")
_AMD_RING = re.compile(r"ring (?P<ring>\S+) timeout, signaled seq")
_LINES_OF_ONE_MESSAGE = 3
_RECOVERED = re.compile(r"recovery action changed from .{1,60} to 0x0 \(None\)")
_BOOT = (b"linux version ",)
_BOOTED = re.compile(r"(?:^|\] )Linux version \d")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    lines = [line for line in head.split(b"\n") if line.strip()][:_LOOKED_AT_LINES]
    lines = [_COLOURS.sub(b"", line) for line in lines]
    if fold := fold_of(head):
        lines = [line for line in lines if not fold.is_rest(line.decode(errors="replace"))]
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()  # may be cut
    stamped = sum(has_stamp(line.decode(errors="replace")) for line in lines)
    is_data = head.lstrip().startswith((b"{", b"[{"))
    reports = not is_data and any(_GPU_LINE.search(line) for line in lines)
    return 2 * stamped > len(lines) or reports


def read(source: Source, settings: Given) -> LogPart:
    log = read_system_log(source, settings, _NEEDLES, lambda: _Kernel().failure, needles() + _BOOT)
    return replace(log, failures=without_recovered(log.failures, log.findings))


class _Kernel:
    def __init__(self) -> None:
        self._named = (0, "")
        self._is_booted = False
        self._links_up: set[str | None] = set()
        self._failed: set[tuple[str | None, str | None]] = set()

    def failure(self, text: str, number: int, findings: Findings) -> Row:
        if match := _XID.search(text):
            if _XID.search(text, match.start("text") if match["text"] else match.end()):
                remark = "lines that report several Xids, of which the first is taken"
                findings.add("suspicious", remark, 1, f"line {number:,}")
            return _nvidia(match)
        if "off the bus" in text or "The NVIDIA GPU" in text:
            return self._off_the_bus(text, number)
        if "amdgpu" in text and (found_amd := _amd(text)):
            return found_amd
        if "workbench: SYNTHETIC" in text:
            findings.add("noted", SAYS_SYNTHETIC)
        elif "NVRM: Xid" in text:
            remark = "a line about an Xid whose form is not known"
            findings.add("dropped", remark, 1, f"line {number:,}")
        return self._of_host(text)

    def _of_host(self, text: str) -> Row:
        """Recognise what is no matter of a GPU; a link that was never up is not a failure."""
        self._is_booted = self._is_booted or bool(_BOOTED.search(text))
        row = kernel_message(text)
        key = (row.get("code"), row.get("device"))
        if row.get("kind") == RECOVERED:
            self._links_up.add(row["device"])
            return row if key in self._failed else {}
        if key[0] == "link down" and self._is_booted and key[1] not in self._links_up:
            return {}  # ports without a cable are down from the boot on
        self._failed.add(key)
        return row

    def _off_the_bus(self, text: str, number: int) -> Row:
        """Read the forms that give no number, one of which goes over three lines."""
        address = _DEVICE.search(text.partition("NVRM:")[2])
        if "off the bus" not in text or "NVRM" not in text:
            self._named = (number, address[0]) if address else self._named
            return {}
        is_told_before = number - self._named[0] < _LINES_OF_ONE_MESSAGE
        # The long form names the GPU one or two lines before it says that it is gone.
        device = address[0] if address else self._named[1] if is_told_before else ""
        row: Row = {"kind": "xid", "code": "79", **xid_meaning("79")}
        return row | {"device": pci_address(device) if device else None}


def _nvidia(match: re.Match[str]) -> Row:
    code, text = match["code"], match["text"] or ""
    if match["kind"] == "Xid":
        # Xid 154 is sent as well when the action is taken back: recovery action None.
        if code == "154" and _RECOVERED.search(text):
            return {}
        row = _xid(code, match["device"])
        if row.get("category") == "nvlink" and (link := _NVLINK5.search(text)):
            cause = f"{row['cause']}: {link['unit']}"
            return row | {"cause": cause, "severity": _severity(link["severity"])}
        return row
    meaning = sxid_meaning(code)
    row = {"kind": "sxid", "code": code, "device": pci_address(match["device"])}
    row |= {"category": "nvlink", **meaning}
    if stated := _SXID_TEXT.match(text):
        row["severity"] = _severity(stated["severity"])
        if "category" not in meaning:
            row["cause"] = f"NVSwitch: {stated['cause']}"
    return row


@lru_cache(maxsize=1024)
def _xid(code: str, device: str) -> Row:
    """Return what all lines of one GPU and code have in common; never change it."""
    return {"kind": "xid", "code": code, "device": pci_address(device), **xid_meaning(code)}


def _amd(text: str) -> Row:
    device = _DEVICE.search(text)
    row: Row = {"kind": "amdgpu", "severity": "fatal", "action": "reset the GPU"}
    row["device"] = pci_address(device[0]) if device else None
    errors = _AMD_ERRORS.search(text)
    # amdgpu logs its counters without an error, too: "no new uncorrectable hardware errors".
    if errors and errors["count"].lstrip("0") in ("", "no"):
        return {}
    if errors or "uncorrectable hardware error" in text:
        return row | {"code": "RAS", "cause": "uncorrectable hardware error", "category": "gpu"}
    if ring := _AMD_RING.search(text):
        cause = f"GPU did not finish in time (ring {ring['ring']})"
        return row | {"code": "ring timeout", "cause": cause, "category": "gpu"}
    if "GPU reset begin!" in text:
        row |= {"code": "reset", "cause": "GPU is reset", "category": "follow-on"}
        return row | {"action": "see the failure before it"}
    return {}


def _severity(word: str) -> str:
    return "fatal" if word == "Fatal" else "warning"
