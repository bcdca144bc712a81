"""The time zone of local stamps: the caller names it, and none is ever assumed.

What becomes of stamps that a clock change makes ambiguous or impossible differs, and each reader
says so: ``_stamps`` and ``_local_times`` leave them without a time, ``_log_stamps`` lets the order
of the lines decide.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from workbench.errors import LoadError
from workbench.load._files.log_file import Given, needs

REMEDY = 'tz="UTC", or the zone in which the host wrote it'
_OFFSET = re.compile(r"(?:UTC)?([+-]\d\d:?\d\d)")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name such as ``UTC``, ``Europe/Berlin`` or ``+02:00``.

    Raises
    ------
    LoadError
        If it is no time zone.
    """
    try:
        text = name.strip()
        if text in ("UTC", "Z", "GMT"):
            return UTC
        if found := _OFFSET.fullmatch(text):
            return datetime.fromisoformat(f"2000-01-01T00:00:00{found[1]}").tzinfo or UTC
        return ZoneInfo(text)
    except (KeyError, ValueError, TypeError, OSError, AttributeError):
        msg = f"tz={name!r} is no time zone; name it like 'UTC', 'Europe/Berlin' or '+02:00'"
        raise LoadError(msg) from None


def zone_for(given: Given, *, label: str, line: int, text: str) -> tzinfo:
    """Return the zone that the caller gave, or ask for it because of this line."""
    if given.tz is None:
        raise no_zone(label=label, line=line, text=text)
    return zone_of(given.tz)


def no_zone(*, label: str, line: int, text: str) -> LoadError:
    """Make the error that asks for the zone because of this line."""
    return needs("time zone", label=label, line=line, text=text, remedy=REMEDY)
