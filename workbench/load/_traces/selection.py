"""Parts of a trace: events of some steps, some of their columns, and frames of ranks stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.arrays import IntegerArray

from workbench.errors import LoadError
from workbench.load._files.findings import quality_frame
from workbench.tables import EVENTS, QUALITY, Table, Trace

Steps: TypeAlias = tuple[int, int] | None
Columns: TypeAlias = Sequence[str] | None
Kept: TypeAlias = NDArray[np.bool_]
# Without these the events fit neither the table of ranks nor an axis of time.
_ALWAYS = ("rank", "start_ns", "dur_ns")


def checked_steps(steps: Steps) -> Steps:
    if steps is None:
        return None
    try:
        first, last = (int(step) for step in steps)
    except (TypeError, ValueError):
        first, last = 1, 0
    if first > last:
        msg = f"steps must be (first, last), the numbers of two steps in order, not {steps!r}"
        raise ValueError(msg)
    return first, last


def rows_within(step: pd.Series, steps: tuple[int, int], label: str) -> Kept:
    """Return which rows lie in the steps; LoadError if none does."""
    kept: Kept = step.between(*steps).fillna(value=False).to_numpy("bool")
    if not kept.any():
        known = step.dropna()
        there = f"steps {known.min()} to {known.max()}" if len(known) else "no marks of steps"
        msg = f"{label}: no event lies in steps {steps[0]} to {steps[1]}; the trace has {there}"
        raise LoadError(msg)
    return kept


def rows_of(events: pd.DataFrame, launch: pd.Series, kept: Kept) -> pd.DataFrame:
    """Link rows that are kept to launches that are; ``launch`` counts rows of all events."""
    position = np.cumsum(kept) - 1
    row = launch.fillna(0).to_numpy("int64")
    is_known = launch.notna().to_numpy("bool") & kept[row]
    values = pd.array(position[row], dtype="Int64")
    values[~is_known] = pd.NA
    return events.assign(launch=values).reset_index(drop=True)


def narrowed(trace: Trace, left_out: int, steps: tuple[int, int], label: str) -> Trace:
    """Return the other tables of a trace whose events are those of some steps."""
    events, ranks = trace.events, trace.ranks
    ends = events["start_ns"] + events["dur_ns"]

    def of_rank(values: pd.Series, how: str) -> pd.Series:
        return ranks["rank"].map(values.groupby(events["rank"]).agg(how))

    ranks = ranks.assign(
        first_ns=of_rank(events["start_ns"], "min").astype("Int64"),
        last_ns=of_rank(ends, "max").astype("Int64"),
        event_count=of_rank(events["start_ns"], "size").fillna(0).astype("int64"),
    )
    reason = f"outside of steps {steps[0]} to {steps[1]}"
    remark = quality_frame([(label, "skipped by design", reason, left_out, None)])
    return replace(
        trace,
        ranks=ranks,
        steps=trace.steps[trace.steps["step"].between(*steps)].reset_index(drop=True),
        quality=QUALITY.joined([trace.quality, remark]) if left_out else trace.quality,
    )


def within_steps(trace: Trace, steps: Steps, label: str) -> Trace:
    """Return a trace with the events of some steps, those of all where ``steps`` is None."""
    if steps is None:
        return trace
    kept = rows_within(trace.events["step"], steps, label)
    events = rows_of(trace.events[kept], trace.events.loc[kept, "launch"], kept)
    left_out = int(len(kept) - kept.sum())
    return narrowed(replace(trace, events=events), left_out, steps, label)


def checked_columns(columns: Columns) -> Columns:
    if columns is None:
        return None
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        msg = f"columns must list names of columns, e.g. columns=('name', 'kind'); got {columns!r}"
        raise TypeError(msg)
    return tuple(dict.fromkeys((*_ALWAYS, *columns)))


def judged_columns(columns: Columns) -> Columns:
    """Return the columns to read where findings about several ranks are to be made."""
    return None if columns is None else (*columns, "name", "kind")


def chosen_columns(there: Sequence[str], columns: Columns, label: str) -> list[str]:
    """Return which columns of events to keep, in their order; LoadError if one cannot be there."""
    if columns is None:
        return [*there]
    if unknown := [name for name in columns if name not in there and name not in EVENTS.columns]:
        msg = f"{label}: events have no column {unknown[0]!r}; they have {', '.join(there)}"
        raise LoadError(msg)
    return [name for name in there if name in columns]


def events_table(columns: Columns) -> Table:
    """Return the description of events of which some columns were loaded."""
    if columns is None:
        return EVENTS
    # Further arguments of events are columns that no table describes.
    return EVENTS.part(name for name in EVENTS.columns if name in columns)


def within_columns(trace: Trace, columns: Columns, label: str) -> Trace:
    """Return a trace with some columns of its events, all where ``columns`` is None."""
    if columns is None:
        return trace
    return replace(trace, events=trace.events[chosen_columns([*trace.events], columns, label)])


def concat(frames: Sequence[pd.DataFrame], *, sort_categories: bool = False) -> pd.DataFrame:
    """Stack the frames of the ranks; categories are united."""
    if len(frames) == 1:
        return frames[0]
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(chain.from_iterable(frames)):
        # Columns of texts may lack in some: not every profile records shapes.
        of_ranks = [frame[name] if name in frame else _texts_missing(frame) for frame in frames]
        if isinstance(of_ranks[0].dtype, pd.CategoricalDtype):
            arrays = [values.array for values in of_ranks]
            columns[str(name)] = _united(arrays, sort_categories=sort_categories)
        else:
            columns[str(name)] = pd.concat(of_ranks, ignore_index=True).array
    return pd.DataFrame(columns, copy=False)


def _texts_missing(frame: pd.DataFrame) -> pd.Series:
    codes, none = np.full(len(frame), -1, np.int8), pd.Index([], dtype="str")
    return pd.Series(pd.Categorical.from_codes(codes, categories=none))


def _united(arrays: Sequence[pd.Categorical], *, sort_categories: bool) -> pd.Categorical:
    """Stack categoricals; a tenth of the time of pandas' union where ranks share their texts."""
    lists = [array.categories.tolist() for array in arrays]
    texts = list(dict.fromkeys(chain.from_iterable(lists)))
    if sort_categories:
        texts.sort()
    position = {text: at for at, text in enumerate(texts)}
    codes = np.empty(sum(map(len, arrays)), np.int32)
    end = 0
    for array, own in zip(arrays, lists, strict=True):
        start, end = end, end + len(array)
        table = np.array([*map(position.__getitem__, own), -1], np.int32)
        codes[start:end] = table[array.codes]
    dtype = arrays[0].categories.dtype
    return pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype=dtype))


def all_missing(rows: int, dtype: str) -> IntegerArray:
    """Make an integer column without values; zeros cost no memory until they are written to."""
    mask = np.ones(rows, np.bool_)
    if dtype == "Int32":
        return IntegerArray(np.zeros(rows, np.int32), mask)
    return IntegerArray(np.zeros(rows, np.int64), mask)
