"""What a job did at every moment of its run, as its log tells: one state at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.energy_curves import Ints
from workbench.errors import WorkbenchError
from workbench.tables import WASTE_STATES

Flags = NDArray[np.bool_]
_NAMED = ("checkpoint", "evaluation", "restart", "initialisation")


def run_window(steps: pd.DataFrame, spans: pd.DataFrame) -> tuple[int, int] | None:
    """Give start and end of the run, as its spans and steps tell; None if there are none."""
    runs = spans[(spans["kind"] == "run") & spans["end_ns"].notna()]
    bounds = [(each["start_ns"], each["end_ns"]) for each in (runs, steps) if len(each)]
    if not bounds:
        return None
    starts = [int(start.min()) for start, _ in bounds]
    ends = [int(end.max()) for _, end in bounds]
    return min(starts), max(ends)


def lost_steps(steps: pd.DataFrame) -> Flags:
    """Say of each step whether a later attempt has it again, or one before it."""
    attempts = steps.groupby("attempt")["step"].min().sort_index()
    # The lowest step number from which any later attempt began.
    back_to = attempts[::-1].cummin()[::-1].shift(-1)
    limit = steps["attempt"].map(back_to).to_numpy(dtype=np.float64)
    number = steps["step"].to_numpy(dtype=np.float64)
    lost: Flags = np.nan_to_num(limit, nan=np.inf) <= number
    return lost


def restarts_of(steps: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Give the restarts: as the log names them, else from one attempt's last step to the next.

    Columns ``start_ns``, ``end_ns`` and ``attempt``, the one that ended.
    """
    named = spans[(spans["kind"] == "restart") & spans["end_ns"].notna()]
    order = steps.groupby("attempt").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    order = order.sort_values("first")
    if len(named):
        rows = named[["start_ns", "end_ns"]].astype("int64").sort_values("start_ns")
        began = order["first"].to_numpy()
        # The attempt that had begun before.
        before = np.searchsorted(began, rows["start_ns"].to_numpy(), side="right") - 1
        numbers = order.index.to_numpy(dtype=np.float64)
        found = np.where(before >= 0, numbers[np.maximum(before, 0)], np.nan) if len(order) else 1
        return rows.assign(attempt=found).reset_index(drop=True)
    pairs = zip(order["last"].iloc[:-1], order["first"].iloc[1:], order.index[:-1], strict=True)
    rows = pd.DataFrame(list(pairs), columns=["start_ns", "end_ns", "attempt"])
    return rows[rows["end_ns"] > rows["start_ns"]].reset_index(drop=True)


def run_states(
    steps: pd.DataFrame, spans: pd.DataFrame, window_ns: tuple[int, int]
) -> tuple[Ints, NDArray[np.int64]]:
    """Cut a window where the state changes.

    Returns
    -------
    tuple of numpy.ndarray
        Edges [ns], and of each stretch between two of them the position of its state in
        ``WASTE_STATES``.
    """
    first, last = window_ns
    if last <= first:
        msg = f"the window ends at {last} ns, which is not after its start at {first} ns"
        raise WorkbenchError(msg)
    parts = _parts(steps, spans)
    every = np.concatenate([np.array([first, last], dtype=np.int64), *map(np.concatenate, parts)])
    edges = np.unique(np.clip(every, first, last))
    state = np.full(len(edges) - 1, WASTE_STATES.index("not told"), dtype=np.int64)
    for number in range(len(parts) - 1, -1, -1):  # the first of the list has the last word
        state[_inside(edges, *parts[number])] = number
    return edges, state


def _parts(steps: pd.DataFrame, spans: pd.DataFrame) -> list[tuple[Ints, Ints]]:
    """Give the intervals of each state, the most telling first, in the order of the states."""
    lost = lost_steps(steps)
    starts, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    known = spans[spans["end_ns"].notna()].astype({"end_ns": "int64"})
    by_kind = {
        name: (part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        for name, part in ((name, known[known["kind"] == name]) for name in _NAMED)
    }
    again = restarts_of(steps, spans).astype({"start_ns": "int64", "end_ns": "int64"})
    by_kind["restart"] = (again["start_ns"].to_numpy(), again["end_ns"].to_numpy())
    parts = {"useful steps": (starts[~lost], ends[~lost]), "lost steps": (starts[lost], ends[lost])}
    parts |= by_kind | {
        "between steps": _pauses(steps),
        "unfinished step": _cut_short(steps, again),
    }
    return [parts[name] for name in WASTE_STATES if name in parts]


def _pauses(steps: pd.DataFrame) -> tuple[Ints, Ints]:
    """Give the pauses between steps of one attempt that are shorter than a usual step."""
    ordered = steps.sort_values(["attempt", "start_ns"])
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    same = np.diff(ordered["attempt"].to_numpy()) == 0
    usual = np.median(ends - starts) if len(starts) else 0
    short = same & (starts[1:] - ends[:-1] < usual)
    return ends[:-1][short], starts[1:][short]


def _cut_short(steps: pd.DataFrame, restarts: pd.DataFrame) -> tuple[Ints, Ints]:
    """Give the time from the last step that ended to each interruption."""
    return last_ends(steps, restarts), restarts["start_ns"].to_numpy(dtype=np.int64)


def last_ends(steps: pd.DataFrame, restarts: pd.DataFrame) -> Ints:
    """Give since when each restart's interruption had cost work: when the last step had ended.

    Restarts are in order of time. If a job was interrupted again before its next step ended, that
    is when the restart before it was over. Without a step or a restart before, it is the
    restart's own start.
    """
    began = restarts["start_ns"].to_numpy(dtype=np.int64)
    ends = np.sort(steps["end_ns"].to_numpy(dtype=np.int64))
    before = np.searchsorted(ends, began, side="right") - 1
    found = np.where(before >= 0, ends[before], began) if len(ends) else began.copy()
    over = np.maximum.accumulate(restarts["end_ns"].to_numpy(dtype=np.int64))[:-1]
    found[1:] = np.minimum(np.maximum(found[1:], over), began[1:])
    return np.asarray(found, dtype=np.int64)


def _inside(edges: Ints, starts: Ints, ends: Ints) -> Flags:
    """Say of each stretch between two edges whether any of some intervals holds it."""
    change = np.zeros(len(edges), dtype=np.int64)
    some = ends > starts
    low, high = (np.clip(each[some], edges[0], edges[-1]) for each in (starts, ends))
    np.add.at(change, np.searchsorted(edges, low), 1)
    np.add.at(change, np.searchsorted(edges, high), -1)
    held: Flags = np.cumsum(change)[:-1] > 0
    return held
