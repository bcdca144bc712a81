"""Logs of NVIDIA's fabric manager: errors of NVSwitches.

References
----------
NVIDIA, *Fabric Manager User Guide*, appendix D: NVSwitch errors by number.
"""

from __future__ import annotations

import re

from workbench.load._failures.formats.system_log import BEGINNING, read_system_log
from workbench.load._failures.line_prefix import without_prefix
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.time import Given, LogPart
from workbench.load._files.xid_codes import pci_address, sxid_meaning

NAME = "fabric manager log"
_NEEDLES = (b"detected NVSwitch ",)
_STAMP = re.compile(r"\[[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d\] \[[A-Z]+\] \[tid \d+\]")
_ERROR = re.compile(
    r"detected NVSwitch (?P<severity>non-fatal|fatal) error (?P<code>\d{1,6})(?!\d)"
    r"(?:.* pci bus id (?P<device>[0-9A-Fa-f:.]{5,40}))?"
)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    lines = head.decode(errors="replace").splitlines()
    return any(_STAMP.match(without_prefix(line, BEGINNING).rest) for line in lines)


def read(source: Source, settings: Given) -> LogPart:
    return read_system_log(source, settings, _NEEDLES, lambda: _failure)


def _failure(text: str, _line: int, _findings: Findings) -> Row:
    error = _ERROR.search(text)
    if error is None:
        return {}
    row: Row = {"kind": "sxid", "code": error["code"], "category": "nvlink"}
    row |= sxid_meaning(error["code"])
    row["device"] = pci_address(error["device"]) if error["device"] else None
    row["severity"] = "fatal" if error["severity"] == "fatal" else "warning"
    return row
