"""What rows of measured times have in common: a unit, a GPU, and no silent repeats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import plain_table as plain
from workbench.load._files.floats import as_floats
from workbench.tables import QUALITY, Table

# Names of columns with times, and nanoseconds in one of their unit.
_TIMES = {"dur_ns": 1.0, "time_us": 1e3, "latency": 1e6, "latency_ms": 1e6, "latency(ms)": 1e6}


def positive_ns(values: pd.Series, per_unit: float, path: Path) -> pd.Series:
    """Give times as whole nanoseconds; what is not above 0 is named with its row."""
    numbers = as_floats(values)
    bad = ~(np.isfinite(numbers) & (np.rint(numbers * per_unit) >= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = (
            f"{path}: column for {str(values.name)!r}: {int(bad.sum()):,} times are not a number "
            f"above 0, the first is {values.iloc[[row]].tolist()[0]!r} in row {row:,}; leave out "
            "what was not measured"
        )
        raise LoadError(msg)
    return pd.Series(np.rint(numbers * per_unit).astype(np.int64), index=values.index)


def time_of(raw: pd.DataFrame, path: Path) -> pd.Series:
    """Find the one column with times, and give nanoseconds."""
    there = [name for name in _TIMES if name in raw]
    if len(there) != 1:
        msg = f"{path}: one column with times is needed, of {list(_TIMES)}; it has {there}"
        raise LoadError(msg)
    return positive_ns(raw[there[0]], _TIMES[there[0]], path)


def one_or_column(
    raw: pd.DataFrame, name: str, chosen: Sequence[str] | None, path: Path
) -> str | np.ndarray:
    """Give a column of names, or the one name that the caller chose for all rows."""
    if name in raw:
        return raw[name].astype(str).to_numpy()
    if chosen is None or isinstance(chosen, str) or len(chosen) != 1:
        msg = f"{path}: does not say its {name}; pass {name}s=[...] with the one it is"
        raise LoadError(msg)
    return chosen[0]


def finished(
    frame: pd.DataFrame,
    table: Table,
    *,
    dtypes: Sequence[str] | None,
    origin: str,
    findings: Sequence[tuple[str, str, int]] = (),
) -> pd.DataFrame:
    """Keep the types asked for, and say what was left out and what repeats."""
    frame = frame.reset_index(drop=True)
    found = list(findings)
    if dtypes is not None:
        kept = frame["dtype"].isin(list(dtypes))
        if not kept.any():
            msg = f"{origin}: no rows of type {list(dtypes)}; it has {sorted(set(frame['dtype']))}"
            raise LoadError(msg)
        others = frame.loc[~kept, "dtype"].value_counts()
        found += [("set aside", f"type {name} not asked for", int(n)) for name, n in others.items()]
        frame = frame[kept].reset_index(drop=True)
    key = [name for name in table.columns if name not in ("dur_ns", "source")]
    repeated = int(frame.duplicated(key).sum())
    if repeated:
        what = "the same was measured before; analyses take the median"
        found.append(("noted", what, repeated))
    result = table.check(table.cast(frame), origin)
    rows = [
        {"source": origin, "finding": finding, "what": what, "count": count, "where": None}
        for finding, what, count in found
    ]
    quality = pd.DataFrame(rows, columns=list(QUALITY.columns)) if rows else QUALITY.empty()
    result.attrs["quality"] = QUALITY.check(QUALITY.cast(quality))
    return result


def numbers_of(raw: pd.DataFrame, names: Sequence[str], path: Path) -> dict[str, pd.Series]:
    """Give columns as whole numbers from 1."""
    return {name: plain.whole(raw[name], path, least=1) for name in names}
