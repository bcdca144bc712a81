"""Kernel messages about host, network and disks: a table of patterns next to this file."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from workbench.load._files.findings import Findings
from workbench.load._files.time import SECOND
from workbench.load._files.xid_codes import pci_address

RECOVERED = "recovered"
_OF_A_GPU = ("gpu", "gpu memory")
_ADDRESS = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?(?![\w:])")
_TABLE = Path(__file__).with_name("kernel_messages.csv")
# Patterns look at the beginning of a line: a hostile one of a megabyte must not take a minute.
_LOOKED_AT_CHARS = 2000
# What a line holds, in any case, if it may be about an error.
ERROR_NEEDLES = (
    b"error", b"fail", b"fatal", b"panic", b"oops", b"lockup", b"hung", b"stall", b"corrupt",
    b"segfault", b"uncorr", b"unrecover", b"timed out", b"abort", b"killed",
    b":err ", b":crit ", b":alert", b":emerg",
)  # fmt: skip
_ERROR = re.compile(
    r"\b(?:errors?|fail(?:ed|ing|ures?|s)?|fatal|panic|oops|lockup|hung|stall(?:s|ed)?|"
    r"corrupt(?:ed|ion)?|segfault|uncorr\w{0,9}|unrecover\w{0,6}|timed out|"
    r"abort(?:s|ed|ing)?|killed)\b(?![-=])|:\s*(?:err|crit|alert|emerg)\s*: ",
    re.IGNORECASE,
)


class _Rule(NamedTuple):
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    row: dict[str, Any]
    """Columns of table FAILURES; empty if the message reports no failure, of kind "recovered"
    if it reports the end of one."""


def needles() -> tuple[bytes, ...]:
    """Return what lines hold, in lower case, of which the table knows or an error speaks."""
    needles = {needle.encode() for rule in _rules() if rule.row for needle in rule.needles}
    # Another one that is part of a needle finds its lines as well.
    needles -= {n for n in needles if any(e in n for e in ERROR_NEEDLES)}
    return (*sorted(needles), *ERROR_NEEDLES)


def kernel_message(text: str) -> dict[str, Any]:
    """Recognise what a message reports; {} if it reports no failure that the table knows.

    Examples
    --------
    >>> kernel_message("EXT4-fs error (device nvme0n1p2): ext4_find_entry: inode #2")["device"]
    'nvme0n1p2'
    >>> kernel_message("EDAC MC0: Giving out device to module skx_edac")
    {}
    """
    rule, match = _matched(text)
    if rule is None or match is None or not rule.row:
        return {}
    device = match.groupdict().get("device")
    if (
        device is None
        and rule.row.get("category") in _OF_A_GPU
        and (address := _ADDRESS.search(text))
    ):
        device = address[0]
    return rule.row | {"device": pci_address(device) if device else None}


def is_unknown_error(text: str) -> bool:
    return bool(_ERROR.search(text[:_LOOKED_AT_CHARS])) and _matched(text)[0] is None


def _matched(text: str) -> tuple[_Rule | None, re.Match[str] | None]:
    beginning = text[:_LOOKED_AT_CHARS]
    lower = beginning.lower()
    for rule in _rules():
        if any(needle in lower for needle in rule.needles) and (
            match := rule.pattern.search(beginning)
        ):
            return rule, match
    return None, None


@cache
def _rules() -> tuple[_Rule, ...]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(_rule(row) for row in csv.DictReader(file))


def _rule(row: dict[str, str]) -> _Rule:
    names = ("code", "cause", "category", "severity", "action")
    columns = {"kind": "kernel", **{name: row[name] for name in names}} if row["code"] else {}
    if row["ends"]:
        # How long transports and file systems try, before a job notices, stands in the cause.
        columns = {"kind": RECOVERED, "code": row["ends"], "cause": row["within_s"]}
    return _Rule(tuple(row["needle"].split("|")), re.compile(row["pattern"]), columns)


def without_recovered(failures: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Skipped by design what ended by itself before a job notices, and the rows that say so."""
    is_end = failures["kind"] == RECOVERED
    if not is_end.any():
        return failures
    ordered = failures.sort_values("line", kind="stable")
    grouped = ordered.groupby(["node", "code", "device"], dropna=False)
    following = grouped[["kind", "start_ns", "cause"]].shift(-1)
    is_back = following["kind"] == RECOVERED
    within_ns = pd.to_numeric(following["cause"].where(is_back)) * SECOND
    pause = (following["start_ns"] - ordered["start_ns"]).astype("Float64")
    is_short = is_back & (pause <= within_ns).fillna(value=False)
    is_short = is_short.reindex(failures.index) & ~is_end
    remark = "links and servers that recovered before a job notices"
    findings.add("skipped by design", remark, int(is_short.sum()))
    return failures[~is_end & ~is_short].reset_index(drop=True)
