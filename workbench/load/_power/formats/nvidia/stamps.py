"""Stamps of ``nvidia-smi``, which name no zone: read, and placed by the order of the lines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._power.rows import SECOND

EXAMPLE = "2025/01/31 08:00:00.000"
NOT_A_TIME = np.iinfo(np.int64).min
_FREE = re.compile(
    r"(\d{4})[/-]?(\d\d)[/-]?(\d\d)[ T]+(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?", re.ASCII
)
_QUARTER_NS = 900 * SECOND
# Rows of one poll overtake each other by less than this, and a clock that is set back jumps.
_JUMP_NS = 60 * SECOND
# Two rows that are nearer belong to one side of the change.
_NEAR_NS = 1_800 * SECOND
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times of the host
_FIRST_YEAR, _LAST_YEAR = 1971, 2200
_FIRST_NS, _LAST_NS = (
    np.datetime64(str(year), "ns").astype(np.int64) for year in (_FIRST_YEAR, _LAST_YEAR)
)
# As the driver writes them, which Arrow reads by the million per second.
_USUAL = r"^\d{4}[/-]\d\d[/-]\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}$"


def local_ns(cells: pa.Array) -> np.ndarray:
    """Read local stamps as ns since 1970 of the host's own calendar; ``NOT_A_TIME`` if none."""
    cells = pc.utf8_trim(cells, ' \t"')
    result = np.full(len(cells), NOT_A_TIME, dtype=np.int64)
    usual = pc.match_substring_regex(cells, _USUAL).to_numpy(zero_copy_only=False)
    stamps = cells if usual.all() else cells.filter(pa.array(usual))
    try:
        moments = pc.cast(pc.replace_substring(stamps, "/", "-"), pa.timestamp("ns"))
        result[usual] = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
        result[(result < _FIRST_NS) | (result >= _LAST_NS)] = NOT_A_TIME
    except pa.ArrowInvalid:
        pass  # one impossible day, such as 2025/02/30, fails the whole cast
    for row in np.flatnonzero(result == NOT_A_TIME):
        result[row] = free_ns(cells[int(row)].as_py())
    return result


def free_ns(text: str) -> int:
    """Read one local stamp in any of the forms that people and tools make of it."""
    match = _FREE.fullmatch(text.strip()) if len(text) < 64 else None
    if match is None:
        return NOT_A_TIME
    *fields, fraction = match.groups()
    try:
        moment = datetime(*map(int, fields))  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        return NOT_A_TIME
    if not _FIRST_YEAR <= moment.year < _LAST_YEAR:
        return NOT_A_TIME
    since = moment - _EPOCH
    total = since.days * 86_400 + since.seconds
    return total * SECOND + int((fraction or "").ljust(9, "0"))


def utc_ns(local: np.ndarray, lines: np.ndarray, zone: tzinfo, label: str) -> np.ndarray:
    """Turn local times, in the order they were written, into ns since the Unix epoch.

    In the hour that a clock change repeats, the order tells which of the two is meant.
    """
    if zone is UTC or not len(local):
        return local
    quarters, code = np.unique(local // _QUARTER_NS, return_inverse=True)
    moments = [_EPOCH + timedelta(seconds=int(q) * 900) for q in quarters]
    early = np.array([_offset_ns(moment, zone, 0) for moment in moments])
    late = np.array([_offset_ns(moment, zone, 1) for moment in moments])
    is_gap = (early < late)[code]
    if is_gap.any():
        row = int(is_gap.argmax())
        raise _impossible(local[row], lines[row], zone, label, "does not exist")
    result: np.ndarray = local - early[code]
    is_twice = (early > late)[code]
    row = _decide(result, local, is_twice, (early - late)[code])
    if row >= 0:
        raise _impossible(local[row], lines[row], zone, label, "is there twice")
    return result


def _offset_ns(moment: datetime, zone: tzinfo, fold: int) -> int:
    offset = moment.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)
    return int(offset.total_seconds()) * SECOND


def _decide(
    result: np.ndarray, local: np.ndarray, is_twice: np.ndarray, shift_ns: np.ndarray
) -> int:
    """Say of each stretch inside a repeated hour whether it is the first or the second one.

    Returns the first row of which nothing tells, -1 if there is none.
    """
    edges = np.flatnonzero(np.diff(is_twice.astype(np.int8), prepend=0, append=0))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        back = start + 1 + np.flatnonzero(np.diff(local[start:end]) < -_JUMP_NS)
        follows = start > 0 and 0 <= local[start] - local[start - 1] < _NEAR_NS
        leads = end < len(local) and 0 <= local[end] - local[end - 1] < _NEAR_NS
        if len(back) == 1:
            second = int(back[0])
        elif not len(back) and follows != leads:
            second = end if follows else start
        else:
            return int(start)
        result[second:end] += shift_ns[second:end]
    return -1


def _impossible(local: int, line: int, zone: tzinfo, label: str, message: str) -> LoadError:
    moment = _EPOCH + timedelta(microseconds=int(local) // 1_000)
    text = moment.isoformat(" ", "milliseconds")
    return LoadError(
        f"{label}, line {int(line):,}: {text} {message} in {zone} (clock change); pass the offset "
        'that the host had, such as tz="+02:00", or the zone it really keeps'
    )
