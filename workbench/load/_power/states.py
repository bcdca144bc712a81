"""What explains power, of several files, in order and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.load._power.part import PowerPart
from workbench.load._power.rows import by_entity
from workbench.tables import POWER_STATES


def joined_states(
    parts: Sequence[PowerPart], names: Sequence[Mapping[str, str]], entities: pd.Series
) -> pd.DataFrame:
    """Make table POWER_STATES of the files; of rows with one stamp the first is kept."""
    text = pd.Series([""]).dtype
    categories = pd.Index(entities.to_numpy(), dtype=text)
    code_of = {name: code for code, name in enumerate(entities)}
    frames = []
    for part, renamed in zip(parts, names, strict=True):
        if part.states is None or not len(part.states):
            continue
        old = part.states["entity"].astype("category").cat
        new = [code_of[renamed[str(name)]] for name in old.categories]
        place = np.array(new, dtype=np.int32)[old.codes.to_numpy()]
        entity = pd.Categorical.from_codes(place, categories=categories)
        known = [name for name in POWER_STATES.columns if name in part.states]
        frames.append(part.states[known].assign(entity=entity))
        part.states = None
    if not frames:
        empty = POWER_STATES.empty()
        return empty.assign(entity=pd.Categorical([], categories=categories))
    # Columns that no file has are filled in last: they would be sorted for nothing.
    states = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    codes, times = states["entity"].cat.codes.to_numpy(), states["time_ns"].to_numpy()
    order = by_entity(codes, times)
    codes, times = codes[order], times[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(codes) != 0) | (np.diff(times) != 0)
    return POWER_STATES.check(_filled(states.take(order[is_new]).reset_index(drop=True)))


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of the table; what no format knows is missing."""
    columns: dict[str, Any] = {}
    for name, column in POWER_STATES.columns.items():
        dtype: Any = column.dtype
        if name in frame:
            columns[name] = frame[name].astype(dtype)
        elif dtype == "Int64":
            none = np.ones(len(frame), dtype=bool)
            columns[name] = pd.arrays.IntegerArray(np.zeros(len(frame), np.int64), none)
        else:
            columns[name] = np.full(len(frame), np.nan)
    return pd.DataFrame(columns, copy=False)
