"""What explains power, of several files, in order and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.load._power_part import PowerPart
from workbench.tables import POWER_STATES


def joined_states(
    parts: Sequence[PowerPart], names: Sequence[Mapping[str, str]], entities: pd.Series
) -> pd.DataFrame:
    """Make table POWER_STATES of the files; of rows with one stamp the first is kept."""
    text = pd.Series([""]).dtype
    categories = pd.Index(entities.to_numpy(), dtype=text)
    code_of = {name: code for code, name in enumerate(entities)}
    frames = []
    for part, known in zip(parts, names, strict=True):
        if part.states is None or not len(part.states):
            continue
        entity = part.states["entity"].astype("category")
        new = [code_of[known[str(name)]] for name in entity.cat.categories]
        codes = np.array(new, dtype=np.int32)[entity.cat.codes.to_numpy()]
        frames.append(_filled(part.states, pd.Categorical.from_codes(codes, categories=categories)))
        part.states = None
    if not frames:
        empty = POWER_STATES.empty()
        return empty.assign(entity=pd.Categorical([], categories=categories))
    states = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    codes, times = states["entity"].cat.codes.to_numpy(), states["time_ns"].to_numpy()
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(codes) != 0) | (np.diff(times) != 0)
    return POWER_STATES.check(states.take(order[is_new]).reset_index(drop=True))


def _filled(frame: pd.DataFrame, entity: pd.Categorical) -> pd.DataFrame:
    """Give the columns of the table; what a format does not know is missing."""
    columns = {}
    for name, column in POWER_STATES.columns.items():
        if name == "entity":
            columns[name] = pd.Series(entity)
        elif name in frame:
            columns[name] = frame[name].astype(column.dtype).reset_index(drop=True)
        else:
            columns[name] = pd.Series(index=pd.RangeIndex(len(frame)), dtype=column.dtype)
    return pd.DataFrame(columns, copy=False)
