"""Leaks of a synthetic trace about its source: names, exact runs, nearness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, Ints, step_numbers

# Quantile of the Gumbel distribution of the longest run, and its Euler term together.
_GUMBEL_99 = 4.6
_LEAST_RANKS = 2
# Calls, waits and steps have the names that every trace has.
_COMMON = {*LAUNCH_CATEGORIES, "cuda_sync"}
# Score, kind, value, limit and the share of the allowed distance that is used.
Score: TypeAlias = tuple[str, str, float, float | None, float | None]


def leak_scores(
    events: Sequence[pd.DataFrame], operations: Sequence[pd.DataFrame]
) -> Iterator[Score]:
    """Score events and operations of a synthetic trace by what they share with the source."""
    names = [_names(side) for side in events]
    share = len(names[0] & names[1]) / max(len(names[0]), 1)
    yield "leak", "share of source names", share, 0.0, np.inf if share else 0.0
    both = _exact(*operations)
    pairs = [(a, b) for a in both[0] for b in both[1]]
    run = max(longest_run(a, b) for a, b in pairs)
    chance = max(run_by_chance(a, b) for a, b in pairs)
    yield "leak", "longest exact run", float(run), chance, run / max(chance, 0.1)
    nearest = min(_distance(a, b) for a, b in pairs)
    if len(both[0]) < _LEAST_RANKS:
        yield "leak", "nearest source / held-out", nearest, None, None
        return
    others = [
        min(_distance(a, b) for at, b in enumerate(both[0]) if at != rank)
        for rank, a in enumerate(both[0])
    ]
    typical = float(np.median(others))
    ratio = nearest / typical if typical else float(nearest >= typical)
    yield "leak", "nearest source / held-out", ratio, 1.0, 1 / max(ratio, 0.1)


def _names(events: pd.DataFrame) -> set[str]:
    is_own = ~events["category"].isin(_COMMON) & (step_numbers(events) < 0)
    names = set(events.loc[is_own, "name"].astype(str))
    return names | set(events["group"].dropna().astype(str))


def _exact(source: pd.DataFrame, drawn: pd.DataFrame) -> list[list[Ints]]:
    """Assign numbers to triples of kind, exact size and exact duration, by side and rank."""
    sides = [side[side["row"] >= 0] for side in (source, drawn)]
    both = pd.concat(sides, keys=[0, 1], names=["side"])
    codes = both.groupby(["kind", "size", "dur"]).ngroup().to_numpy()
    of_side = both.index.get_level_values("side").to_numpy()
    return [
        [codes[(of_side == side) & (both["rank"] == rank).to_numpy()] for rank in sorted(ranks)]
        for side, ranks in enumerate({*part["rank"]} for part in sides)
    ]


def longest_run(first: Ints, second: Ints) -> int:
    """Return the length of the longest run of neighbours that two sequences share.

    Windows of the lengths 1, 2, 4, ... are numbered by their contents; the longest length in
    common is then put together from those, the longest first.
    """
    line = np.concatenate([first, [-1], second, [-2]])
    split = len(first)
    doubled = [(1, np.unique(line, return_inverse=True)[1].reshape(-1))]
    while _common(doubled[-1][1], doubled[-1][0], split):
        length, number = doubled[-1]
        if 2 * length > min(len(first), len(second)):
            break
        doubled.append((2 * length, _paired(number, number, length)))
    total, reached = 0, np.zeros(len(line), dtype=np.int64)
    for length, number in reversed(doubled):
        longer = _paired(reached, number, total) if total else number
        if _common(longer, total + length, split):
            total, reached = total + length, longer
    return total


def _paired(left: Ints, right: Ints, offset: int) -> Ints:
    """Assign numbers to windows made of one window and the one that follows it."""
    count = min(len(left), len(right) - offset)
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    key = left[:count] * (int(right.max(initial=0)) + 1) + right[offset : offset + count]
    return np.asarray(np.unique(key, return_inverse=True)[1].reshape(-1))


def _common(number: Ints, length: int, split: int) -> bool:
    """Return whether a window lies in both sequences; none crosses the mark between them."""
    first = number[: max(split - length + 1, 0)]
    second = number[split + 1 : len(number) - (length == 1)]
    return bool(np.isin(first, second).any())


def run_by_chance(first: Ints, second: Ints) -> float:
    """Return the run that two independent sequences of these frequencies exceed in 1 % of cases."""
    shares = [pd.Series(side).value_counts(normalize=True) for side in (first, second)]
    chance = float(shares[0].mul(shares[1], fill_value=0).sum())
    if chance <= 0:
        return 0.0
    if chance >= 1:
        return float(min(len(first), len(second)))
    places = len(first) * len(second) * (1 - chance)
    return float(np.ceil(max((np.log(max(places, 1)) + _GUMBEL_99) / -np.log(chance), 1)))


def _distance(first: Ints, second: Ints) -> float:
    """Return the share of a sequence of which the other has no equal."""
    counts = [pd.Series(side).value_counts() for side in (first, second)]
    shared = np.minimum(counts[0], counts[1].reindex(counts[0].index).fillna(0)).sum()
    return 1 - float(shared) / max(len(first), 1)
