"""In which cells of time entities were read, and whether one was read twice in a cell."""

from __future__ import annotations

import numpy as np

from workbench.load._power.runs import Runs

# Entities times cells, per reading, up to which a picture of them is quicker than sorting.
_DENSE = 16
Extent = tuple[np.ndarray, np.ndarray, np.ndarray, bool]


def extent(runs: Runs, cells: np.ndarray, start: int, end: int) -> Extent:
    """Return the entities, the first and last cell of each, and whether one may have two in one.

    Parameters
    ----------
    runs
        Whose the readings are.
    cells
        Cell of each reading; at least one.
    start, end
        The lowest and the highest cell.
    """
    if runs.starts is not None:
        is_later = cells[1:] > cells[:-1]
        is_later[runs.starts[1:] - 1] = True
        if is_later.all():
            ends = np.append(runs.starts[1:], len(cells)) - 1
            return _of_runs(runs.codes, cells[runs.starts], cells[ends])
    codes = runs.per_row
    low = int(codes.min())
    rows, span = int(codes.max()) - low + 1, end - start + 1
    key = (codes.astype(np.int64) - low) * span + (cells - start)
    if rows * span <= _DENSE * len(cells):
        is_there = np.zeros(rows * span, dtype=bool)
        is_there[key] = True
        is_repeated = int(np.count_nonzero(is_there)) < len(key)
        picture = is_there.reshape(rows, span)
        present = np.flatnonzero(picture.any(axis=1))
        inside = picture[present]
        last = end - inside[:, ::-1].argmax(axis=1)
        return present + low, start + inside.argmax(axis=1), last, is_repeated
    unique = np.unique(key)
    who, when = np.divmod(unique, span)
    begins = np.r_[0, np.flatnonzero(who[1:] != who[:-1]) + 1]
    ends = np.r_[begins[1:], len(who)] - 1
    is_repeated = len(unique) < len(key)
    return who[begins] + low, start + when[begins], start + when[ends], is_repeated


def _of_runs(codes: np.ndarray, first: np.ndarray, last: np.ndarray) -> Extent:
    """Put the runs of each entity together; inside a run no cell occurs twice."""
    order = np.lexsort((first, codes))
    codes, first, last = codes[order], first[order], last[order]
    same = codes[1:] == codes[:-1]
    begins = np.r_[0, np.flatnonzero(~same) + 1]
    is_repeated = bool((same & (first[1:] <= last[:-1])).any())
    return codes[begins], first[begins], np.maximum.reduceat(last, begins), is_repeated
