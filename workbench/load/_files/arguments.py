"""What callers say of failure logs, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.log_file import Given
from workbench.load._files.zones import zone_of

Hosts = str | Mapping[str, str] | re.Pattern[str] | None
BootTime = str | datetime | pd.Timestamp | None
_YEARS = (1990, 2100)


def checked(tz: str | None, year: int | None, boot_time: BootTime) -> Given:
    """Return what was said if it can be used; ValueError if it cannot."""
    if year is not None:
        given: object = year
        is_whole = isinstance(given, int) and not isinstance(given, bool)
        if not is_whole or not _YEARS[0] <= year <= _YEARS[1]:
            msg = f"year must be a whole number from {_YEARS[0]} to {_YEARS[1]}; got {year!r}"
            raise ValueError(msg)
    tz = None if tz is None else _zone_name(tz)
    return Given(tz, year, None if boot_time is None else _boot(boot_time, tz))


def host_of(label: str, node: Hosts) -> str | None:
    r"""Return the host of a file as ``node`` tells it; None if it does not.

    The file name is asked first, then the folders (or the archive) around it. Of several
    parts of a dict that fit, the longest counts.

    Examples
    --------
    >>> host_of("logs/node12/kern.log", re.compile(r"node\d+"))
    'node12'
    >>> host_of("node12.log", {"node1": "a", "node12": "b"})
    'b'
    """
    if node is None or isinstance(node, str):
        return node
    for place in (re.split(r"[/!]", label)[-1], label):
        if isinstance(node, re.Pattern):
            if found := node.search(place):
                return found[1] if node.groups else found[0]
        elif parts := [part for part in node if part in place]:
            return node[max(parts, key=len)]
    return None


def check_hosts(node: Hosts) -> None:
    """Refuse what can tell no host."""
    is_pattern = isinstance(node, re.Pattern) and isinstance(node.pattern, str)
    is_dict = isinstance(node, Mapping) and all(
        isinstance(text, str) for pair in node.items() for text in pair
    )
    if not (node is None or (isinstance(node, str) and node) or is_pattern or is_dict):
        msg = (
            "node must be a host, a dict from a part of the file name to a host, or a pattern "
            f're.compile(r"node\\d+"); got {node!r}'
        )
        raise TypeError(msg)


def _zone_name(tz: str) -> str:
    try:
        found = zone_of(tz)
    except LoadError:
        msg = f'tz must be a time zone such as "UTC", "Europe/Berlin" or "+01:00"; got {tz!r}'
        raise ValueError(msg) from None
    return "UTC" if found is UTC else str(found).removeprefix("UTC")


def _boot(boot_time: str | datetime | pd.Timestamp, tz: str | None) -> pd.Timestamp:
    boot = None
    if isinstance(boot_time, str | datetime):
        try:
            boot = pd.Timestamp(boot_time)
        except (ValueError, OverflowError):
            boot = None
    if boot is None or pd.isna(boot):
        msg = f'boot_time must be a stamp like "YYYY-MM-DD hh:mm:ss+00:00"; got {boot_time!r}'
        raise ValueError(msg)
    if not _YEARS[0] <= boot.year <= _YEARS[1]:
        msg = f"boot_time must lie between {_YEARS[0]} and {_YEARS[1]}; got {boot_time!r}"
        raise ValueError(msg)
    if boot.tzinfo is None and tz is None:
        msg = f"boot_time {str(boot_time)!r} has no time zone; add one (+00:00) or pass tz"
        raise ValueError(msg)
    if boot.tzinfo is None and tz is not None:
        boot = pd.Timestamp(boot.to_pydatetime().replace(tzinfo=zone_of(tz)))
    return boot.tz_convert("UTC")
