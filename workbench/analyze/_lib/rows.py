"""The rows of an events table as plain arrays, so that analyses need not touch each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._profiler_steps import STEP_CATEGORIES, step_number
from workbench.errors import WorkbenchError
from workbench.kernel_kinds import KINDS
from workbench.tables import EVENTS, Table

Ints: TypeAlias = NDArray[np.int64]

MISSING = -1
LAUNCH_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_runtime"}
)
_WORK_COLUMNS = ("rank", "start_ns", "dur_ns", "kind", "device")
# What text is in a column: object for pandas 2, str for pandas 3.
_TEXT = pd.Series(["text"]).dtype


class Work(NamedTuple):
    """The GPU work of an events table, one entry per row, in order of rank and start."""

    row: Ints
    """Position in the events table."""
    rank: Ints
    start: Ints
    end: Ints
    kind: Ints
    """Position in :data:`workbench.kernel_kinds.KINDS`."""
    device: Ints
    """GPU index, -1 if missing."""


def checked(events: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the events table, or raise if one of the columns does not fit it."""
    needed = {name: EVENTS.columns[name] for name in columns}
    return Table(EVENTS.name, EVENTS.meaning, needed).check(events)


def gpu_work(events: pd.DataFrame, *columns: str) -> Work:
    """Pick the rows that occupied a GPU.

    Rows without a kind (annotations, synchronisation, everything on the host) are
    not GPU work. The columns for this are checked, and those that are named.
    """
    checked(events, *_WORK_COLUMNS, *columns)
    code = codes(events["kind"])
    row = np.flatnonzero(code >= 0)
    rank = events["rank"].to_numpy()[row].astype(np.int64)
    start = events["start_ns"].to_numpy()[row]
    order = in_order(rank, start)
    if order is not None:
        row, rank, start = row[order], rank[order], start[order]
    kinds = [_kind_number(str(kind)) for kind in events["kind"].cat.categories]
    return Work(
        row=row,
        rank=rank,
        start=start,
        end=start + events["dur_ns"].to_numpy()[row],
        kind=np.array(kinds, dtype=np.int64)[code[row]],
        device=taken(events["device"], row),
    )


def required(work: Work, events: pd.DataFrame, purpose: str) -> Work:
    """Return the GPU work, or say why there is none to analyse."""
    if len(work.row) == 0:
        msg = f"no GPU work, so no {purpose}: {_contents(events)}"
        raise WorkbenchError(msg)
    return work


def _contents(events: pd.DataFrame) -> str:
    if events.empty:
        return "there are no events"
    counts = events["category"].value_counts()
    largest = ", ".join(f"{count:,} {name}" for name, count in counts[counts > 0].head(4).items())
    ranks = events["rank"].nunique()
    return (
        f"the {len(events):,} events of {ranks} rank{'s' * (ranks != 1)} are {largest}. "
        "Record the trace with GPU activities switched on"
    )


def _kind_number(kind: str) -> int:
    if kind not in KINDS:
        msg = f"kind {kind!r} in the events table is not one of {KINDS}"
        raise WorkbenchError(msg)
    return KINDS.index(kind)


def codes(column: pd.Series) -> NDArray[np.signedinteger]:
    """Return the positions of a category column's values in its categories, -1 if missing."""
    return np.asarray(column.cat.codes)


def code_of(column: pd.Series, value: str) -> int:
    """Return the position of a value in the categories of a column; -2 if it never occurs."""
    found = column.cat.categories.get_indexer(pd.Index([value]))
    return int(found[0]) if found[0] >= 0 else -2


def step_numbers(events: pd.DataFrame) -> Ints:
    """Return the number of the step of training that each row marks; -1 where it marks none."""
    numbers = [step_number(str(name)) for name in events["name"].cat.categories]
    number = np.array([MISSING if each is None else each for each in numbers] + [MISSING])
    marks = [str(name) in STEP_CATEGORIES for name in events["category"].cat.categories]
    is_mark = np.append(np.array(marks, dtype=bool), False)[codes(events["category"])]
    return np.where(is_mark, number[codes(events["name"])], MISSING)


def taken(column: pd.Series, row: Ints) -> Ints:
    """Return the values of a nullable integer column at some positions, -1 where missing."""
    values = column.array.take(row)
    return np.asarray(values.to_numpy(dtype="int64", na_value=MISSING))


def in_order(*keys: NDArray[np.integer]) -> Ints | None:
    """Return the order that sorts by the keys, first key first; None if it is the present one."""
    if len(keys[0]) < 2:
        return None
    tied: NDArray[np.bool_] | None = None
    for key in keys:
        falls, stays = key[1:] < key[:-1], key[1:] == key[:-1]
        if (falls if tied is None else tied & falls).any():
            return np.lexsort(keys[::-1])
        tied = stays if tied is None else tied & stays
    return None


class Groups(NamedTuple):
    """Entries gathered by one or more keys."""

    number: Ints
    """Number of the group of each entry; groups are numbered in order of their keys."""
    keys: list[Ints]
    """For each key its value per group."""
    order: Ints | None
    """Order that brings the entries of a group together; None if they are together."""
    bounds: Ints
    """Where each group begins in that order."""

    def smallest(self, values: Ints) -> Ints:
        """Return the smallest value of each group."""
        return np.minimum.reduceat(self._gathered(values), self.bounds)

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each group."""
        return np.maximum.reduceat(self._gathered(values), self.bounds)

    def total(self, values: Ints) -> Ints:
        """Return the sum of each group, exactly."""
        return np.add.reduceat(self._gathered(values), self.bounds)

    def sizes(self) -> Ints:
        """Return how many entries each group has."""
        return np.diff(np.append(self.bounds, len(self.number)))

    def _gathered(self, values: Ints) -> Ints:
        return values if self.order is None else values[self.order]


def grouped(*keys: Ints) -> Groups:
    """Gather entries that agree in all keys."""
    if len(keys[0]) == 0:
        none = np.zeros(0, dtype=np.int64)
        return Groups(none, [none for _ in keys], None, none)
    order = in_order(*keys)
    ordered = keys if order is None else [key[order] for key in keys]
    changes = np.zeros(len(keys[0]) - 1, dtype=bool)
    for key in ordered:
        changes |= key[1:] != key[:-1]
    bounds = np.append(0, np.flatnonzero(changes) + 1)
    number = np.repeat(np.arange(len(bounds)), np.diff(np.append(bounds, len(keys[0]))))
    if order is not None:
        scattered = np.empty_like(number)
        scattered[order] = number
        number = scattered
    return Groups(number, [key[bounds] for key in ordered], order, bounds)


def launches_of(events: pd.DataFrame, row: Ints) -> Ints:
    """Return the position of the call that launched each piece of GPU work, -1 if none.

    Labels of calls that a selection of rows has left out count as no launch.

    Raises
    ------
    WorkbenchError
        If a launch label points to something that cannot launch, as happens when
        the index was reset after rows were dropped.
    """
    label = taken(events["launch"], row)
    if isinstance(events.index, pd.RangeIndex) and events.index[:1].tolist() == [0]:
        position = np.where(label < len(events), label, MISSING)
    else:
        position = events.index.get_indexer(pd.Index(label)).astype(np.int64)
    found = np.flatnonzero(position >= 0)
    ranks = events["rank"].to_numpy()
    launching = position[found]
    wrong = (codes(events["kind"])[launching] >= 0) | (ranks[launching] != ranks[row[found]])
    if wrong.any():
        bad = found[wrong][0]
        msg = (
            f"row {events.index[row[bad]]}: launch {label[bad]} is not a call on its rank; "
            "keep the index of the loaded table when you select rows"
        )
        raise WorkbenchError(msg)
    return position


def nullable(values: Ints, dtype: Literal["Int32", "Int64"]) -> pd.Series:
    """Turn an array with -1 for missing into a column with missing values."""
    column: pd.Series = pd.Series(values).astype(dtype)
    return column.mask(values == MISSING)


def shares(part: pd.Series | Ints, whole: pd.Series | Ints) -> pd.Series:
    """Divide; undefined shares (nothing of nothing) are missing."""
    part = pd.Series(part).astype("Float64").reset_index(drop=True)
    whole = pd.Series(whole).astype("Float64").reset_index(drop=True)
    return part / whole.mask(whole == 0)


def labelled(positions: Ints, names: Sequence[str]) -> pd.Categorical:
    """Turn positions in a list of names into a category column; -1 is missing."""
    return pd.Categorical.from_codes(
        positions.tolist(), categories=pd.Index(list(names), dtype=_TEXT)
    )


def relabelled(positions: Ints, column: pd.Series) -> pd.Series:
    """Turn positions in the categories of a column into a column with those that occur."""
    names = [str(name) for name in column.cat.categories]
    return pd.Series(labelled(positions, names)).cat.remove_unused_categories()


def texts(positions: Ints, names: Sequence[str]) -> pd.Series:
    """Turn positions in a list of names into a text column; -1 is missing."""
    known = np.array([*names, None], dtype=object)
    return pd.Series(known[positions], dtype=_TEXT)
