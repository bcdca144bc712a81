"""Instants as logs write them, in nanoseconds since the Unix epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation

from workbench.load._files.log_file import SECOND

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what is subtracted has no zone either
_LATEST_S = (1 << 63) // SECOND
_FIRST_YEAR, _LAST_YEAR = 1970, 2261
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?"
    r"\s*(?:(Z|UTC)|([+-]\d\d):?(\d\d)|([+-]\d\d))?"
)


def epoch_ns(value: object) -> int | None:
    """Turn seconds since the epoch, a number or text, into ns; None if they can be none.

    Instants at or before 1970 are none: logs write 0 for a time they do not have.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 40:
        return None
    try:
        seconds = Decimal(value.strip() if isinstance(value, str) else repr(value))
    except (InvalidOperation, ValueError):
        return None
    if not seconds.is_finite() or not 0 < seconds < _LATEST_S:
        return None
    return int((seconds * SECOND).to_integral_value())


def iso_ns(text: object, zone: tzinfo | None = None) -> int | None:
    """Turn a stamp such as ``2024-05-01T10:00:00.5Z`` into ns; None if it is none.

    ``zone`` is that of stamps without one; without it they are refused.
    """
    match = _ISO.fullmatch(text.strip()) if isinstance(text, str) and len(text) < 64 else None
    if match is None:
        return None
    *fields, fraction, utc, hours, minutes, hours_only = match.groups()
    try:
        moment = datetime(*map(int, fields))  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        return None
    part_ns = int((fraction or "0").ljust(9, "0"))
    if utc:
        zone = UTC
    elif hours or hours_only:
        sign = -1 if (hours or hours_only).startswith("-") else 1
        east = timedelta(hours=int(hours or hours_only), minutes=sign * int(minutes or 0))
        if abs(east) >= timedelta(days=1):
            return None
        zone = timezone(east)
    return None if zone is None else local_ns(moment, zone, part_ns)


def local_ns(moment: datetime, zone: tzinfo, part_ns: int = 0) -> int | None:
    """Turn a local time into ns; None if a clock change makes it ambiguous or impossible."""
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        return None
    # Lines of many ranks come in any order, so nothing tells which hour of two is meant.
    early, late = (moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    if early is None or early != late:
        return None
    since = moment - early - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return seconds * SECOND + part_ns if seconds > 0 else None
