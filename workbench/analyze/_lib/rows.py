"""The rows of an events table as plain arrays, so that analyses need not touch each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.arrays import FloatingArray, IntegerArray

from workbench._shared.collective_names import OPERATIONS, UNKNOWN, operation_of
from workbench._shared.kernel_kinds import KINDS, RECORD_GPU_WORK
from workbench._shared.profiler_steps import STEP_CATEGORIES, step_number
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS

Ints: TypeAlias = NDArray[np.int64]

MISSING = -1
# Categories of calls that can launch GPU work, by vendor.
LAUNCH_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_runtime",
     "privateuse1_driver", "glow_runtime"}
)  # fmt: skip
# How PyTorch names what it records around each phase of torch.compile.
_PHASE_OF_COMPILER = "(dynamo_timed)"
_WORK_COLUMNS = ("rank", "start_ns", "dur_ns", "kind", "device")
# What text is in a column: object for pandas 2, str for pandas 3.
_TEXT = pd.Series(["text"]).dtype


class Work(NamedTuple):
    """The GPU work of an events table, one entry per row, in order of rank and start."""

    row: Ints  # position in the events table
    rank: Ints
    start: Ints
    end: Ints
    kind: Ints  # Position in :data:`workbench._shared.kernel_kinds.KINDS`
    device: Ints  # GPU index, -1 if missing


def checked(events: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the events table, or raise if one of the columns does not fit it."""
    return EVENTS.part(columns).check(events)


def gpu_work(events: pd.DataFrame, *columns: str) -> Work:
    """Pick the rows that occupied a GPU.

    Rows without a kind (annotations, synchronisation, everything on the host) are not GPU work. The
    columns for this are checked, and those that are named.
    """
    checked(events, *_WORK_COLUMNS, *columns)
    code = codes(events["kind"])
    row = np.flatnonzero(code >= 0)
    rank = events["rank"].to_numpy()[row].astype(np.int64)
    start = events["start_ns"].to_numpy()[row]
    order = in_order(rank, start)
    if order is not None:
        row, rank, start = row[order], rank[order], start[order]
    kinds = [str(kind) for kind in events["kind"].cat.categories]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        msg = f"kind {unknown[0]!r} in the events table is not one of {KINDS}"
        raise WorkbenchError(msg)
    return Work(
        row=row,
        rank=rank,
        start=start,
        end=start + events["dur_ns"].to_numpy()[row],
        kind=np.array(list(map(KINDS.index, kinds)), dtype=np.int64)[code[row]],
        device=taken(events["device"], row),
    )


def required(work: Work, events: pd.DataFrame, purpose: str) -> Work:
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
    held = f"the {len(events):,} events of {ranks} rank{'s' * (ranks != 1)} are {largest}"
    return f"{held}; {RECORD_GPU_WORK}"


def codes(column: pd.Series) -> NDArray[np.signedinteger]:
    """Return the positions of a category column's values in its categories, -1 if missing."""
    return np.asarray(cast("pd.Categorical", column.array).codes)


def code_of(column: pd.Series, value: str) -> int:
    """Return the position of a value in the categories of a column; -2 if it never occurs."""
    position = int(column.cat.categories.get_indexer(pd.Index([value]))[0])
    return position if position >= 0 else -2


def step_numbers(events: pd.DataFrame) -> Ints:
    """Return the number of the step of training that each row marks; -1 where it marks none."""
    numbers = np.full(len(events), MISSING)
    row, number = step_marks(events)
    numbers[row] = number
    return numbers


def step_marks(events: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the rows that mark a step of training, and the numbers of these steps."""
    numbers = [step_number(str(name)) for name in events["name"].cat.categories]
    number = np.array([MISSING if of_name is None else of_name for of_name in numbers], np.int64)
    used = np.flatnonzero(number != MISSING)
    if len(used) == 0:
        return used, used
    # Names lie in order, so that those of steps are neighbours and few others are looked up.
    name = codes(events["name"])
    row = np.flatnonzero((name >= int(used[0])) & (name <= int(used[-1])))
    marks = [str(category) in STEP_CATEGORIES for category in events["category"].cat.categories]
    is_mark = np.array([*marks, False])[codes(events["category"])[row]]
    row = row[is_mark & (number[name[row]] != MISSING)]
    return row, number[name[row]]


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
        falls = key[1:] < key[:-1]
        if (falls if tied is None else tied & falls).any():
            return np.lexsort(keys[::-1])
        if key is not keys[-1]:
            stays = key[1:] == key[:-1]
            tied = stays if tied is None else tied & stays
    return None


class Groups(NamedTuple):
    """Entries gathered by one or more keys."""

    number: Ints  # number of the group of each entry; groups are numbered in order of their keys
    keys: list[Ints]  # for each key its value per group
    # order that brings the entries of a group together; None if they are together
    order: Ints | None
    bounds: Ints  # where each group begins in that order

    def smallest(self, values: Ints) -> Ints:
        return np.minimum.reduceat(self._gathered(values), self.bounds)

    def largest(self, values: Ints) -> Ints:
        return np.maximum.reduceat(self._gathered(values), self.bounds)

    def total(self, values: Ints) -> Ints:
        return np.add.reduceat(self._gathered(values), self.bounds)

    def sizes(self) -> Ints:
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

    Labels of calls that a selection of rows has dropped count as no launch.
    """
    label = taken(events["launch"], row)
    if isinstance(events.index, pd.RangeIndex) and events.index[:1].tolist() == [0]:
        position = np.where(label < len(events), label, MISSING)
    else:
        position = events.index.get_indexer(pd.Index(label)).astype(np.int64)
    is_found = position >= 0
    ranks = events["rank"].to_numpy()
    # Where all have a launch, as usual, there is nothing to choose.
    launching, of_row = (position, row) if is_found.all() else (position[is_found], row[is_found])
    wrong = (codes(events["kind"])[launching] >= 0) | (ranks[launching] != ranks[of_row])
    if wrong.any():
        bad = np.flatnonzero(is_found)[wrong][0]
        msg = (
            f"row {events.index[row[bad]]}: launch {label[bad]} is not a call on its rank; "
            "keep the index of the loaded table when you select rows"
        )
        raise WorkbenchError(msg)
    return position


def nullable(values: Ints, dtype: Literal["Int32", "Int64"]) -> pd.Series:
    """Turn an array with -1 for missing into a column with missing values."""
    return pd.Series(IntegerArray(values.astype(dtype.lower()), values == MISSING))


def shares(amount: pd.Series | Ints, total: pd.Series | Ints) -> pd.Series:
    """Divide; undefined shares (nothing of nothing) are missing."""
    over, under = (
        pd.Series(numbers).to_numpy(dtype="float64", na_value=np.nan) for numbers in (amount, total)
    )
    is_missing = np.isnan(over) | np.isnan(under) | (under == 0)
    share = np.divide(over, under, out=np.zeros(len(over)), where=~is_missing)
    return pd.Series(FloatingArray(share, is_missing))


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
    texts_of = np.array([*names, None], dtype=object)
    return pd.Series(texts_of[positions], dtype=_TEXT)


class Nest(NamedTuple):
    """The CPU operators of an events table, by thread and start."""

    row: Ints  # position in the events table
    parent: Ints  # the operator around each operator, as a position here; -1 if there is none
    starter: Ints  # for each piece of GPU work the operator that started it; -1 if none was found


def nest(events: pd.DataFrame, work: Work) -> Nest:
    """Find the operator around every operator and around every launch.

    The operator of a launch is the innermost one around the call on its thread. Where the call is
    missing or stands alone, the external id of the work or of its launch decides, unless it merely
    repeats the correlation, as profilers wrote it until 2022.

    While torch.compile traces a model it calls its operators with fake tensors. They compute
    nothing, so they are left out, and their time is that of the phase of the compiler around them.
    """
    is_operator = codes(events["category"]) == code_of(events["category"], "cpu_op")
    # A step is around all operators and is none itself, in whatever category it was written.
    operator = np.flatnonzero(is_operator & (step_numbers(events) == MISSING))
    launch = launches_of(events, work.row)
    call, call_number = np.unique(launch[launch != MISSING], return_inverse=True)
    row = np.concatenate([operator, call])
    is_call = np.arange(len(row)) >= len(operator)
    start = events["start_ns"].to_numpy()[row]
    end = np.where(is_call, start, start + events["dur_ns"].to_numpy()[row])
    thread = threads(events, row)
    order = np.lexsort((start - end, start, thread))
    parent = enclosing(start[order], end[order], thread[order])
    # From positions among operators and calls to positions among operators alone.
    position = np.append(np.cumsum(~is_call[order]) - 1, MISSING)
    operator = row[order][~is_call[order]]
    around = np.empty(len(row), dtype=np.int64)
    around[order] = position[parent]
    starter = np.full(len(launch), MISSING)
    starter[launch != MISSING] = around[is_call][call_number]
    lost = starter == MISSING
    starter[lost] = _by_external_id(events, operator, work.row[lost], launch[lost])
    above = position[parent[~is_call[order]]]
    is_real = _is_real(events, operator, above, starter)
    renumbered = np.append(np.where(is_real, np.cumsum(is_real) - 1, MISSING), MISSING)
    return Nest(operator[is_real], renumbered[above[is_real]], renumbered[starter])


def _is_real(
    events: pd.DataFrame, operator: Ints, parent: Ints, starter: Ints
) -> NDArray[np.bool_]:
    """Return which operators torch.compile did not merely trace; with each those around it."""
    names = events["name"].cat.categories.astype(str)
    is_phase = np.append(names.str.endswith(_PHASE_OF_COMPILER), False)[codes(events["name"])]
    real = np.ones(len(operator), dtype=bool)
    if not is_phase.any():
        return real
    phase = np.flatnonzero(is_phase & events["kind"].isna().to_numpy())
    start, thread = events["start_ns"].to_numpy(), threads(events, operator)
    of_phase = threads(events, phase)
    for number in np.unique(of_phase):
        rows = phase[of_phase == number]
        rows = rows[np.argsort(start[rows], kind="stable")]
        end = np.maximum.accumulate(start[rows] + events["dur_ns"].to_numpy()[rows])
        of_thread = np.flatnonzero(thread == number)
        at = np.searchsorted(start[rows], start[operator[of_thread]], "right") - 1
        real[of_thread] = (at < 0) | (start[operator[of_thread]] >= end[at])
    real |= is_phase[operator]
    # Kernels are tuned inside of phases, too.
    above = np.unique(np.concatenate([starter, parent[real]]))
    while (above := above[above != MISSING]).size:
        real[above] = True
        above = np.unique(parent[above])
    return real


def enclosing(start: Ints, end: Ints, group: Ints) -> Ints:
    """Find, for each interval, the latest earlier one of its group that still runs; -1 if none.

    Intervals come in order of group, start and (longest first) duration.

    Notes
    -----
    Every interval points to its predecessor. If that has ended, so has everything between it and
    what *it* points to, so the pointer may jump there; pointers double their reach until each finds
    an interval that still runs.
    """
    pointer = np.arange(len(start)) - 1
    pointer[np.append(True, group[1:] != group[:-1])[: len(start)]] = MISSING
    searching = np.flatnonzero(pointer != MISSING)
    while len(searching):
        over = end[pointer[searching]] <= start[searching]
        searching = searching[over]
        pointer[searching] = pointer[pointer[searching]]
        searching = searching[pointer[searching] != MISSING]
    return pointer


def threads(events: pd.DataFrame, row: Ints) -> Ints:
    process, thread = events["process"].cat, events["thread"].cat
    number = events["rank"].to_numpy()[row].astype(np.int64) * (len(process.categories) + 1)
    number = (number + codes(events["process"])[row]) * (len(thread.categories) + 1)
    return np.asarray(number + codes(events["thread"])[row])


# The fallback for GPU work whose launch is missing or stands alone: ids that two operators share
# decide nothing.
def _by_external_id(events: pd.DataFrame, operator: Ints, row: Ints, launch: Ints) -> Ints:
    rank = events["rank"].to_numpy()
    ids = pd.DataFrame({"rank": rank[operator], "id": taken(events["external_id"], operator)})
    ids = ids[~ids.duplicated(keep=False)]
    index = pd.MultiIndex.from_frame(ids)
    starter = np.full(len(row), MISSING)
    for candidate in (row, np.where(launch == MISSING, row, launch)):
        external = taken(events["external_id"], candidate)
        # Profilers until 2022 repeated the correlation as external id, which names no operator.
        is_usable = (external > 0) | (external < MISSING)
        is_usable &= external != taken(events["correlation"], candidate)
        position = index.get_indexer(pd.MultiIndex.from_arrays([rank[row], external]))
        hit = is_usable & (position >= 0) & (starter == MISSING)
        starter[hit] = ids.index.to_numpy()[position[hit]]
    return starter


# Such rows move no data of their own, or their partner cannot be told.
NOT_MATCHED = {
    "barrier": "moves no data",
    "wait": "moves no data",
    "coalesced": "stands for several collectives",
    "send": "its partner is not recorded",
    "receive": "its partner is not recorded",
}
# The bytes on the busiest link are a fixed multiple of size, by number of ranks n.
_PER_RANK = ("all-gather", "reduce-scatter", "all-to-all")
_ELEMENT_BYTES = {
    1: ("char", "byte", "bool", "int8", "uint8", "qint8", "quint8"),
    2: ("half", "bfloat16", "float16", "short", "int16", "uint16"),
    4: ("float", "float32", "int", "int32", "uint32", "complexhalf"),
    8: ("double", "float64", "long", "int64", "uint64", "complexfloat"),
    16: ("complexdouble",),
}


def operations(events: pd.DataFrame, row: Ints) -> Ints:
    """Return the operation of some rows as positions in OPERATIONS.

    What was recorded as the collective decides, else the name of the kernel.
    """
    unknown = OPERATIONS.index(UNKNOWN)
    by_column = []
    for column in ("collective", "name"):
        used, value = np.unique(codes(events[column])[row], return_inverse=True)
        names = [str(name) for name in events[column].cat.categories]
        of_used = [operation_of(names[code]) if code >= 0 else UNKNOWN for code in used]
        number = np.array([OPERATIONS.index(name) for name in of_used], dtype=np.int64)
        by_column.append(number[value])
    return np.where(by_column[0] == unknown, by_column[1], by_column[0])


def sizes(events: pd.DataFrame, row: Ints, operation: Ints) -> Ints:
    """Return the size of some collectives as nccl-tests counts it [bytes], -1 if missing.

    Notes
    -----
    The size is what a rank holds on the larger side: for all-gather all it receives, for
    reduce-scatter and all-to-all all it sends, for the others the one buffer. That is elements
    times the size of one element.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``.
    """
    sent, received = taken(events["in_count"], row), taken(events["out_count"], row)
    gathers = np.isin(operation, [OPERATIONS.index("all-gather"), OPERATIONS.index("gather")])
    return _bytes_of(events, row, np.where(gathers, received, sent))


def input_sizes(events: pd.DataFrame, row: Ints, operation: Ints) -> Ints:
    """Return the bytes of the tensors that a rank puts into some collectives, -1 if missing.

    Notes
    -----
    Chakra's converter counts so: for all-gather it is the share of one rank, where nccl-tests
    (:func:`sizes`) counts all shares.

    References
    ----------
    mlcommons/chakra: src/converter/pytorch_converter.py.
    """
    sent, received = taken(events["in_count"], row), taken(events["out_count"], row)
    ranks = taken(events["group_size"], row)
    is_derived = (operation == OPERATIONS.index("all-gather")) & (sent < 0) & (ranks > 0)
    is_derived &= received >= 0
    elements = np.where(is_derived, received // np.maximum(ranks, 1), sent)
    return _bytes_of(events, row, elements)


def _bytes_of(events: pd.DataFrame, row: Ints, elements: Ints) -> Ints:
    names = [str(name) for name in events["dtype"].cat.categories]
    # Code -1, a missing type, is the last entry.
    per_element = np.array([*map(_element_bytes, names), -1], dtype=np.int64)
    element_bytes = per_element[codes(events["dtype"])[row]]
    return np.where((elements >= 0) & (element_bytes > 0), elements * element_bytes, -1)


def _element_bytes(dtype: str) -> int:
    name = dtype.removeprefix("c10::").lower()
    if name.startswith("float8"):
        return 1
    return next((size for size, names in _ELEMENT_BYTES.items() if name in names), -1)


def bus_factor(operation: str, ranks: int) -> float | None:
    """Return by what the algorithm bandwidth is multiplied to get the bus bandwidth.

    Notes
    -----
    With n ranks: all-reduce 2 (n - 1) / n; all-gather, reduce-scatter and all-to-all (n - 1) / n;
    broadcast and reduce 1. None for operations without an agreed factor.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``.

    Examples
    --------
    >>> bus_factor("all-reduce", 8)
    1.75
    """
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    if operation in _PER_RANK:
        return (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce") else None
