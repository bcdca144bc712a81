"""Times in a table, whatever they are written as, in ns."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.time import REMEDY, Times, utc_ns, zone_of

_NS_PER = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_IN_NAME = re.compile(r"_(ns|us|ms|s|sec|seconds)$|^(seconds|elapsed(?:_time)?)$", re.IGNORECASE)
# Since 1970, stamps of the years 1980 to 2200 are of this size.
_SINCE_1970 = {unit: (315_532_800 * 10**9 // ns, 7_258_118_400 * 10**9 // ns)
               for unit, ns in _NS_PER.items()}  # fmt: skip
_LATEST_NS = 7_258_118_400 * 10**9


@dataclass(frozen=True)
class Clock:
    """How the times of a table are meant, told once for all of its parts.

    ``per_unit_ns`` is missing for times that carry their own meaning (stamps with a zone or in
    ``zone``); ``kind`` is epoch or own; ``said`` is what was taken from the size of numbers.
    """

    per_unit_ns: int | None = None
    kind: str = "epoch"
    zone: str | None = None
    said: str = ""


def clock_of(first: pa.Array, column: str, tz: str | None, label: str) -> Clock:
    """Say how times are meant, from the first part of them.

    Raises
    ------
    LoadError
        If they are local and ``tz`` is None, or no times.
    """
    kind = first.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None and tz is None:
            msg = f"{label}: times in column {column!r} have no time zone; pass {REMEDY}"
            raise LoadError(msg)
        return Clock(zone=tz if kind.tz is None else None)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _counted(_numbers(first), column, label)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if (numbers := _as_numbers(first)) is not None:
            return _counted(numbers, column, label)
        return Clock(zone=tz)
    msg = f"{label}: column {column!r} holds {kind}, no times; save it as a timestamp or a number"
    raise LoadError(msg)


def _counted(values: np.ndarray, column: str, label: str) -> Clock:
    """Tell what numbers count: by the name of their column, or by their size."""
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    middle = float(np.median(known)) if len(known) else 0.0
    named = _IN_NAME.search(column.strip())
    by_size = next((u for u, (low, high) in _SINCE_1970.items() if low <= middle <= high), None)
    if named:
        unit = (named[1] or "s").lower()
        unit = "s" if unit in ("sec", "seconds") else unit
        kind = "epoch" if by_size == unit else "own"
        return Clock(_NS_PER[unit], kind)
    if by_size is None:
        msg = (
            f"{label}: numbers in column {column!r}, about {middle:,.6g}, are no times since 1970; "
            "name the column after what they count, e.g. time_s or time_ms"
        )
        raise LoadError(msg)
    return Clock(_NS_PER[by_size], said=f"times count {by_size} since 1970, by their size")


def to_ns(times: pa.Array, clock: Clock, lines: np.ndarray, findings: Findings) -> Times:
    """Turn times into ns (Int64), missing where there is none; say which used the zone."""
    if pa.types.is_timestamp(times.type):
        return _all(_stamps(times, clock, lines, findings), is_local=times.type.tz is None)
    if clock.per_unit_ns is not None:
        if pa.types.is_string(times.type) or pa.types.is_large_string(times.type):
            times = _parsed(_numeric_or_null(times))
        return _all(_scaled(times, clock.per_unit_ns, lines, findings), is_local=False)
    texts = pd.Series(times.to_pandas(), dtype=pd.Series([""]).dtype).fillna("")
    texts = texts.str.replace(r"^(\d{4})/(\d\d)/(\d\d)", r"\1-\2-\3", regex=True)
    texts = texts.str.replace(r"\s*(?:UTC|GMT)\s*$", "Z", regex=True)
    blank = texts.str.strip().eq("").to_numpy()
    _tell("rows without a time", blank, lines, findings)
    return utc_ns(texts, pd.Series(lines), clock.zone, findings)


def _all(ns: pd.Series, *, is_local: bool) -> Times:
    return Times(ns, pd.Series(is_local, index=ns.index))


def is_exact(kind: pa.DataType) -> bool:
    """Say whether times are whole numbers of one unit, which need no checks one by one."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None))


def unit_ns(kind: pa.DataType, clock: Clock) -> int:
    """Return the ns of one unit of exact times."""
    return _NS_PER[kind.unit] if pa.types.is_timestamp(kind) else clock.per_unit_ns or 1


def _stamps(times: pa.Array, clock: Clock, lines: np.ndarray, findings: Findings) -> pd.Series:
    if times.type.tz is None:
        naive = pd.Series(_ns_or_null(times, lines, findings)).astype("datetime64[ns]")
        zone = zone_of(clock.zone or "UTC")
        placed = naive.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
        what = f"local times that the clock change makes ambiguous or impossible in {clock.zone}"
        _tell(
            f"{what}; pass an offset", (placed.isna() & naive.notna()).to_numpy(), lines, findings
        )
        raw = placed.dt.tz_convert("UTC").dt.tz_localize(None).astype("int64")
        return raw.astype("Int64").mask(placed.isna())
    return _ns_or_null(times, lines, findings)


def _ns_or_null(times: pa.Array, lines: np.ndarray, findings: Findings) -> pd.Series:
    return _scaled(times.view(pa.int64()), _NS_PER[times.type.unit], lines, findings)


def _scaled(times: pa.Array, per_unit: int, lines: np.ndarray, findings: Findings) -> pd.Series:
    """Multiply by ns per unit; what cannot be a time becomes missing."""
    missing = np.asarray(times.is_null())
    _tell("rows without a time", missing, lines, findings)
    values = _numbers(times)
    if values.dtype.kind == "f":
        values = np.where(missing, np.nan, values)
        with np.errstate(invalid="ignore"):
            bad = ~missing & ~(np.abs(values) <= _LATEST_NS / per_unit)
        safe = np.where(missing | bad, 0, values)
        whole = np.floor(safe)
        # A float64 of seconds since 1970 resolves 0.24 us; what is below is noise.
        fraction = np.round((safe - whole) * per_unit)
        fraction = np.round(fraction, -3) if per_unit == _NS_PER["s"] else fraction
        ns = whole.astype(np.int64) * per_unit + fraction.astype(np.int64)
    else:
        bad = ~missing & (np.abs(values) > _LATEST_NS // per_unit)
        ns = np.where(missing | bad, 0, values).astype(np.int64) * per_unit
    _tell("rows whose time is beyond the year 2200 or no number", bad, lines, findings)
    return pd.Series(pd.arrays.IntegerArray(ns, missing | bad))


def _tell(what: str, bad: np.ndarray, lines: np.ndarray, findings: Findings) -> None:
    if bad.any():
        where = f"line {int(lines[int(bad.argmax())]):,}"
        findings.add("dropped", what, int(bad.sum()), where)


def _numbers(values: pa.Array) -> np.ndarray:
    """Return numbers as int64 or float64; 0 or NaN where they are missing."""
    if pa.types.is_integer(values.type):
        whole: np.ndarray = (
            values.fill_null(0).cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        )
        return whole
    cast: np.ndarray = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return cast


_NUMBER = r"^\s*[-+]?\d{1,19}(\.\d*)?([eE][-+]?\d{1,2})?\s*$"


def _as_numbers(texts: pa.Array) -> np.ndarray | None:
    """Return texts as numbers if most of them are, else None."""
    numeric = _numeric_or_null(texts)
    if numeric.null_count * 2 >= len(texts):
        return None
    known: np.ndarray = numeric.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    return known


def _numeric_or_null(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, None)


def _parsed(texts: pa.Array) -> pa.Array:
    """Return texts as whole numbers if they are some, else as floats."""
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts.cast(pa.float64())
