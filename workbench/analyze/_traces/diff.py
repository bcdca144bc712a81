"""Differences between two traces: kernels, and modules of models matched node by node."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import count
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._traces.modules import NODE_KINDS, attributed, short_operator, stable_name
from workbench.tables import TRACE_DIFF

By: TypeAlias = Literal["name", "category", "step", "module"]

CHANGES = ("both", "added", "removed")


def trace_diff(
    events_a: pd.DataFrame, events_b: pd.DataFrame, *, by: By = "name", short_names: bool = False
) -> pd.DataFrame:
    """Compare how often things happened in two traces, and how long they took.

    Traces rarely cover the same number of steps, so compare the durations per step; the totals are
    there to be checked.

    Parameters
    ----------
    events_a
        Table :data:`workbench.tables.EVENTS` to start from.
    events_b
        Table :data:`workbench.tables.EVENTS` to compare with it.
    by
        ``"name"``: by category and name. ``"category"``: by category. ``"step"``: by category and
        step, where the first step of one trace is set beside the first of the other whatever their
        numbers; rows outside every step are one row without a step. ``"module"``: GPU work by
        module or range and the operator inside it that launched it, whatever kernels that took;
        ``name`` is the path in the tree of :func:`workbench.analyze.model_tree`, ``category`` the
        kind of its last node.
    short_names
        Compare names without template arguments and parameter lists, which differ between versions
        of a library.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRACE_DIFF`, largest change of duration first.

    Raises
    ------
    ValueError
        If ``by`` is none of the four.
    WorkbenchError
        If with ``by="module"`` a trace has no GPU work.

    Notes
    -----
    Durations are summed over rows and ranks. Rows inside one another (operators inside operators)
    count each, so only sums of GPU work and of runtime calls are times that were spent. Per step
    means: what lies in steps, divided by the number of pairs of rank and step, and with
    ``by="step"`` by the number of ranks that have the step; work outside of steps is in no mean.

    Two trees are aligned from the root down. Names are compared without numbers of instances,
    addresses, lines and names of compiled functions; children of two matched nodes are matched by
    the longest common runs of their names, then, where they changed places, by name and order.
    Every piece of GPU work counts in one row, so the differences add up to that of the GPU time.

    References
    ----------
    Python documentation, ``difflib.SequenceMatcher``: longest matching blocks.
    """
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise ValueError(msg)
    if by == "module":
        a, b = module_sums(events_a, events_b)
    else:
        a, b = (_sums(events, by, short_names=short_names) for events in (events_a, events_b))
    joined = a.merge(b, on=list(a.index.names), how="outer", suffixes=("_a", "_b"))
    joined = joined.fillna(0).astype("int64").reset_index()
    a_steps, b_steps = (
        _step_counts(events, joined["step"].to_numpy()) for events in (events_a, events_b)
    )
    change = np.select([joined["count_a"] == 0, joined["count_b"] == 0], [1, 2], 0)
    table = pd.DataFrame(
        {
            "category": joined["category"].astype("category"),
            "name": joined["name"].mask(joined["name"] == "").astype("category"),
            "step": arrays.nullable(joined["step"].to_numpy(), "Int32"),
            "change": arrays.labelled(change, CHANGES),
            "a_count": joined["count_a"],
            "b_count": joined["count_b"],
            "difference_count": joined["count_b"] - joined["count_a"],
            "a_total_ns": joined["total_a"],
            "b_total_ns": joined["total_b"],
            "difference_ns": joined["total_b"] - joined["total_a"],
            "total_ratio": arrays.shares(joined["total_b"], joined["total_a"]),
            "a_per_step_ns": arrays.shares(joined["stepped_a"], a_steps),
            "b_per_step_ns": arrays.shares(joined["stepped_b"], b_steps),
        }
    )
    order = np.argsort(-table["difference_ns"].abs().to_numpy(), kind="stable")
    return TRACE_DIFF.check(table.iloc[order].reset_index(drop=True))


def short_name(name: str) -> str:
    """Return a name without template arguments, parameters, return type and step number.

    Examples
    --------
    >>> short_name("void at::native::add_kernel<float, Tuple<int>>(float*, int)")
    'at::native::add_kernel'
    """
    short, before = name, ""
    while short != before:
        before = short
        # From the inside out, a level of brackets per round.
        short = re.sub(r"<[^<>]*>|\([^()]*\)", "", short)
    short = re.sub(r"^(?:void|static|\s)+\s|#\d+$", "", short).strip()
    return short or name


# Codes differ from trace to trace, so the texts behind them are compared.
def _sums(events: pd.DataFrame, by: By, *, short_names: bool) -> pd.DataFrame:
    arrays.checked(events, "rank", "dur_ns", "name", "category", "step")
    everything = np.full(len(events), MISSING)
    name = arrays.codes(events["name"]).astype(np.int64) if by == "name" else everything
    step = _positions(events) if by == "step" else everything
    groups = arrays.grouped(arrays.codes(events["category"]).astype(np.int64), name, step)
    category, name, step = groups.keys
    names = [str(text) for text in events["name"].cat.categories]
    if short_names:
        names = [short_name(text) for text in names]
    categories = [str(text) for text in events["category"].cat.categories]
    sums = pd.DataFrame(
        {
            "category": np.array([*categories, ""], dtype=object)[category],
            "name": np.array([*names, ""], dtype=object)[name],
            "step": step,
            "count": groups.sizes(),
            "total": groups.total(events["dur_ns"].to_numpy()),
            "stepped": groups.total(_in_steps(events, events["dur_ns"].to_numpy())),
        }
    )
    return sums.groupby(["category", "name", "step"]).sum()


def _in_steps(events: pd.DataFrame, dur_ns: Ints, row: Ints | None = None) -> Ints:
    has_step = events["step"].notna().to_numpy()
    return np.where(has_step if row is None else has_step[row], dur_ns, 0)


def _positions(events: pd.DataFrame) -> Ints:
    # By position, because numbers of steps depend on when the profiler was started.
    step = events["step"].to_numpy(dtype="int64", na_value=MISSING)
    steps = np.unique(step[step != MISSING])
    return np.where(step == MISSING, MISSING, np.searchsorted(steps, step))


def _step_counts(events: pd.DataFrame, position: Ints) -> Ints:
    step = _positions(events)
    pairs = arrays.grouped(
        events["rank"].to_numpy()[step != MISSING].astype(np.int64), step[step >= 0]
    )
    per_step = np.bincount(pairs.keys[1], minlength=int(position.max(initial=0)) + 1)
    is_one_step = (position != MISSING).any()
    return np.where(
        position == MISSING, 0 if is_one_step else len(pairs.bounds), per_step[position]
    )


# Two trees of modules side by side: which node of one is which of the other.

_Pairs: TypeAlias = list[tuple[int, int]]
# Category, name, count, total and what of it lies in steps [ns].
_Row: TypeAlias = tuple[str, str, int, int, int]

# Beyond this, longest common runs take too long (products of two numbers of children).
_MOST_PAIRS = 250_000


class _Side:
    """The tree of one trace, and the GPU work by node and operator."""

    def __init__(self, events: pd.DataFrame) -> None:
        joined = attributed(events, by_rank=False)
        self.labels = [stable_name(name) for name in joined.tree.name]
        self.kinds = [NODE_KINDS[kind] for kind in joined.tree.kind]
        self.children: dict[int, list[int]] = defaultdict(list)
        for node, parent in enumerate(joined.tree.parent):
            self.children[parent].append(node)
        name = np.append(arrays.codes(events["name"]), MISSING)[joined.operator]
        groups = arrays.grouped(joined.node, name.astype(np.int64))
        length = joined.work.end - joined.work.start
        total = groups.total(length)
        stepped = groups.total(_in_steps(events, length, joined.work.row))
        names = [short_operator(str(name)) for name in events["name"].cat.categories]
        self.own: dict[int, list[tuple[str, int, int, int]]] = defaultdict(list)
        for node, code, *sums in zip(*groups.keys, groups.sizes(), total, stepped, strict=True):
            operator = names[code] if code != MISSING else ""
            size, ns, in_steps = map(int, sums)
            self.own[int(node)].append((operator, size, ns, in_steps))


def module_sums(
    events_a: pd.DataFrame, events_b: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add up the GPU work of two traces by aligned node and operator."""
    a, b = _Side(events_a), _Side(events_b)
    sides = (a, b)
    rows: tuple[list[_Row], ...] = ([], [])
    waiting: list[tuple[int, int, str]] = [(0, 0, "")]
    while waiting:
        node_a, node_b, path = waiting.pop()
        pair = (node_a, node_b)
        for side, node, into in zip(sides, pair, rows, strict=True):
            for operator, size, ns, in_steps in side.own[node] if node != MISSING else ():
                name = " > ".join(filter(None, (path, operator)))
                kind = "operator" if operator else side.kinds[node]
                into.append((kind, name, size, ns, in_steps))
        below = [
            side.children[node] if node != MISSING else []
            for side, node in zip(sides, pair, strict=True)
        ]
        labels = [
            [side.labels[node] for node in nodes] for side, nodes in zip(sides, below, strict=True)
        ]
        pairs = matched(*labels)
        shown = [labels[1][j] if i == MISSING else labels[0][i] for i, j in pairs]
        several = Counter(shown)
        number: dict[str, count[int]] = defaultdict(count)
        for (i, j), label in zip(pairs, shown, strict=True):
            spelled = f"{label}[{next(number[label])}]" if several[label] > 1 else label
            waiting.append(
                (
                    MISSING if i == MISSING else below[0][i],
                    MISSING if j == MISSING else below[1][j],
                    f"{path} > {spelled}" if path else spelled,
                )
            )
    return _framed(rows[0]), _framed(rows[1])


def matched(a: Sequence[str], b: Sequence[str]) -> _Pairs:
    """Pair equal names of two lists; -1 stands for none on the other side.

    Examples
    --------
    >>> matched(["norm", "linear", "drop"], ["linear", "norm", "linear"])
    [(0, 1), (1, 2), (2, -1), (-1, 0)]
    """
    pairs: _Pairs = []
    if len(a) * len(b) <= _MOST_PAIRS:
        blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
        pairs = [(x + k, y + k) for x, y, size in blocks for k in range(size)]
    left = set(range(len(a))) - {i for i, _ in pairs}
    right: dict[str, list[int]] = defaultdict(list)
    for j in sorted(set(range(len(b))) - {j for _, j in pairs}, reverse=True):
        right[b[j]].append(j)
    # What changed places, by name and order.
    pairs += [(i, right[a[i]].pop() if right[a[i]] else MISSING) for i in sorted(left)]
    pairs = sorted(pairs, key=lambda pair: pair[0])
    return pairs + [(MISSING, j) for j in sorted(j for rest in right.values() for j in rest)]


def _framed(rows: list[_Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["category", "name", "count", "total", "stepped"])
    return frame.assign(step=MISSING).groupby(["category", "name", "step"]).sum()
