"""Prefixes that collectors put before the lines of a log: host, file, or time of collection."""

from __future__ import annotations

import re
from typing import NamedTuple

from workbench.load._files.time import iso_ns

OF_CONTAINER = "time at which the container wrote the line"
# kubelet's files of containers: stamp, stream, and F for a full or P for a partial line.
_CONTAINER = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
    r"std(?:out|err) [FP] "
)
# grep -H and -rn: file, perhaps the number of the line.
_FILE = re.compile(r"(?P<file>[^\s:\[\]{}\"<>|]{1,400}):(?:\d{1,12}:)?(?=\S)")
# pdsh, clush, talosctl: host and a blank.
_HOST = re.compile(r"(?P<host>(?=[\w.:-]*[A-Za-z.:])\w[\w.-]{0,252}): +")
_KERNEL = re.compile(r"NVRM: |nvidia-nvswitch\d+: |amdgpu |\[rank\d+\]:|\w\S*:\d+:\d+ \[\d+\] ")
# Names that say what a file holds, and not of whom it is.
_GENERAL = re.compile(
    r"(?:kern|kernel|dmesg|syslog|messages|journal|journalctl|console|log|logs|var|stderr|stdout|"
    r"out|err|all|output|system|tmp|home|remote|nccl|boot|\d+|\.+)",
    re.IGNORECASE,
)
_ENDING = re.compile(r"(?:\.(?:log|txt|out|err|gz|old|\d{1,8}))+$", re.IGNORECASE)
_WORDS = re.compile(
    r"[._-](?:kern|kernel|dmesg|syslog|messages|journal|console|log)$", re.IGNORECASE
)
_MOST = 3


class Prefix(NamedTuple):
    key: str
    """As written; lines of one key come from one place."""
    host: str | None
    time_ns: int | None
    rest: str


def without_prefix(text: str, is_line: re.Pattern[str]) -> Prefix:
    r"""Take off what collectors put before a line, if what follows is known to begin one.

    Examples
    --------
    >>> without_prefix("node7: [Sun Feb 23 16:24:18 2025] NVRM: x", re.compile(r"\["))[:2]
    ('node7: ', 'node7')
    """
    line, host, time_ns = text, None, None
    for _ in range(_MOST):
        if match := _CONTAINER.match(line):
            time_ns = iso_ns(match["stamp"])
        elif is_line.match(line) or _KERNEL.match(line):
            break
        elif match := _HOST.match(line):
            host = match["host"]
        elif match := _FILE.match(line):
            host = host_of_file(match["file"]) or host
        else:
            break
        line = line[match.end() :]
    is_known = bool(is_line.match(line) or _KERNEL.match(line))
    if not is_known:
        # Words before a colon are not a host unless a line surely begins after them.
        line, host = (line if host is None and time_ns is not None else text), None
        time_ns = time_ns if line != text else None
    # The stamp of a container's line is not a part of its place.
    key = text[: len(text) - len(line)] if host else ""
    return Prefix(_CONTAINER.sub("", key), host, time_ns, line)


def host_of_file(name: str) -> str | None:
    """Name the host of a file: its name, else the folder around it; None if both are general.

    Examples
    --------
    >>> host_of_file("/var/log/remote/node01/kern.log.1"), host_of_file("gpu7_dmesg.txt")
    ('node01', 'gpu7')
    >>> host_of_file("/var/log/messages") is None
    True
    """
    for name_part in reversed(name.split("/")):
        stem = _WORDS.sub("", _WORDS.sub("", _ENDING.sub("", name_part)))
        if stem and not _GENERAL.fullmatch(stem):
            return stem
    return None
