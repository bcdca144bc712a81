"""Likeness of a synthetic trace to the real one, and leaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import KINDS
from workbench._shared.numbers import Floats, not_negative
from workbench.analyze._perfmodel.graph.execution_graph import execution_graph
from workbench.analyze._perfmodel.replays.change import Change, changed_weights
from workbench.analyze._perfmodel.timing.replay import replay
from workbench.analyze._perfmodel.twins.chain import Chain, fitted_chain, perplexity
from workbench.analyze._perfmodel.twins.leaks import Score, leak_scores
from workbench.analyze._perfmodel.twins.operations import (
    KIND_NAMES,
    host_operations,
    on_one_clock,
    rank_graphs,
)
from workbench.analyze._traces.breakdown import time_breakdown
from workbench.analyze._traces.collectives import collectives
from workbench.tables import TRACE_LIKENESS, ExecutionGraph, Trace
from workbench.tables.trace_profile import CHAIN_DEPTH, SYNC

Frames: TypeAlias = Sequence[pd.DataFrame]

# A trace that waits for the host is moved by neither of the first two.
_CHANGES = (
    Change(factor=0.5, kind="compute"),
    Change(factor=2.0, kind="communication"),
    Change(factor=0.5, part="CPU"),
)
_PARTS = ("compute", "exposed_communication", "exposed_memory", "exposed_other", "idle")
_SHAPES = {"duration": "dur", "size": "size", "gap": "gap"}
_MOST_RANKS = 8
# Classes of size of a kind, and the least gap between two of them, as a logarithm.
_CLASSES, _LEAST_GAP = 6, 0.25
# Sizes and times are rounded and perturbed by a few per cent, so as not to be those of the source.
_PERTURBED = 0.1


@dataclass(frozen=True, kw_only=True)
class LikenessLimits:
    """From which scores on a synthetic trace is unlike the real one; chosen, and changeable.

    Parameters
    ----------
    mix_share
        Most total variation distance of kinds, and of kinds with sizes.
    shape_distance
        Most Kolmogorov-Smirnov distance of sizes, durations and gaps of a kind.
    order_share
        Least share of the order in the real trace that the synthetic one predicts.
    move_ratio
        Most difference from 1 of ratios: the time of a step, and what a what-if makes of it.
    part_share
        Most difference between the shares of a part of the time.
    """

    mix_share: float = 0.1
    shape_distance: float = 0.2
    order_share: float = 0.9
    move_ratio: float = 0.1
    part_share: float = 0.1

    def __post_init__(self) -> None:
        for limit in fields(self):
            not_negative(limit.name, getattr(self, limit.name))


def trace_likeness(
    real: Trace, synthetic: Trace, *, limits: LikenessLimits | None = None
) -> pd.DataFrame:
    """Score how like the real trace a synthetic one is, and what it gives away.

    Behaviour is the score that counts: the same what-if must move both alike. A trace with the
    right kernels in the wrong order passes mix and shape, and fails there.

    Parameters
    ----------
    real
        The trace that the synthetic one stands for, or a held-out rank of its job: then the
        scores tell what the profile says of ranks it has not seen.
    synthetic
        From :func:`workbench.simulate.traces_like`, or any other generator.
    limits
        From which scores on it is unlike.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRACE_LIKENESS`: ``score`` (mix, shape, order, behaviour,
        leak), ``kind``, ``value``, ``limit`` (missing where nothing can tell), ``used_ratio``
        (distance from a perfect score, of what is allowed) and ``verdict``: pass, FAIL or not
        checked.

    Raises
    ------
    WorkbenchError
        If one of the traces has no GPU work.

    Notes
    -----
    Mix: total variation distance, of kinds and of kinds with classes of size (of duration, where no
    size is recorded). Shape: Kolmogorov-Smirnov distance per kind; values within 10 % of each other
    count as equal, as twins are rounded and perturbed. Order: perplexity of the real order under a
    chain of depth 5 fitted on the synthetic one (limit: that of the kinds independent of each
    other), and (H0 - Hs) / (H0 - Hr) with H the log perplexity of the real order under no order,
    the synthetic and the real chain. Behaviour: each of up to 8 ranks is replayed alone, the median
    counts; a move is the replayed time with a change over that without. Of several ranks the job
    is replayed as well, with waits between ranks. Leak: share of source names, not counting those
    of the CUDA runtime; longest run of equal (kind, size, duration) beside the 99 % quantile for
    independent sequences with the same frequencies, ln(n m (1 - p)) / -ln p plus a Gumbel term; and
    the distance to the nearest source rank over that of the source ranks from each other.

    References
    ----------
    Run by chance: R. Arratia and M. S. Waterman, Advances in Mathematics 55 (1985) 13.
    """
    bounds = limits or LikenessLimits()
    events = [on_one_clock(trace.events) for trace in (real, synthetic)]
    graphs = [rank_graphs(table) for table in events]
    sides = _with_tokens(
        [host_operations(table, of_rank) for table, of_rank in zip(events, graphs, strict=True)]
    )
    scores = [
        *_mix(sides, bounds),
        *_shape(sides, bounds),
        *_order(sides, bounds),
        *_behaviour(events, graphs, bounds),
        *leak_scores(events, sides),
    ]
    table = pd.DataFrame(scores, columns=["score", "kind", "value", "limit", "used_ratio"])
    verdict = np.where(table["used_ratio"] <= 1, "pass", "FAIL")
    table["verdict"] = np.where(table["limit"].isna(), "not checked", verdict)
    table["used_ratio"] = table["used_ratio"].clip(0, 10)
    return TRACE_LIKENESS.of(table)


def _with_tokens(sides: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Encode each operation of both sides as a token: kind and rough size (without, duration).

    Classes of size are divided where the real trace has the widest gaps between sizes: with edges
    at round numbers, a size beside an edge would change its class by chance.
    """
    size = [np.log(side["size"].where(side["size"] > 0, side["dur"] + 1)) for side in sides]
    tokens = [100 * side["kind"] for side in sides]
    for number in range(len(KINDS)):
        values = np.unique(size[0][sides[0]["kind"] == number])
        gaps = np.diff(values)
        widest = np.sort(np.argsort(-gaps, kind="stable")[: _CLASSES - 1])
        widest = widest[gaps[widest] > _LEAST_GAP]
        edges = (values[widest] + values[widest + 1]) / 2
        for at, side in enumerate(sides):
            is_kind = side["kind"] == number
            tokens[at] = tokens[at] + np.where(is_kind, np.searchsorted(edges, size[at]), 0)
    return [side.assign(token=token) for side, token in zip(sides, tokens, strict=True)]


def _mix(operations: Frames, limits: LikenessLimits) -> Iterator[Score]:
    for kind, column in (("kinds", "kind"), ("kinds and sizes", "token")):
        shares = [side[column].value_counts(normalize=True) for side in operations]
        distance = 0.5 * float(shares[0].sub(shares[1], fill_value=0).abs().sum())
        yield "mix", kind, distance, limits.mix_share, _used(distance, limits.mix_share)


def _shape(operations: Frames, limits: LikenessLimits) -> Iterator[Score]:
    for number, kind in enumerate(KIND_NAMES):
        for words, column in _SHAPES.items():
            sides = [side.loc[side["kind"] == number, column] for side in operations]
            if column == "size":
                sides = [side[side > 0] for side in sides]
            if kind == SYNC or not (len(sides[0]) and len(sides[1])):
                continue
            values = [side.to_numpy(dtype=np.float64) for side in sides]
            distance = ks_distance(*values, tolerance=_PERTURBED)
            used = _used(distance, limits.shape_distance)
            yield "shape", f"{words} of {kind}", distance, limits.shape_distance, used


def ks_distance(first: Floats, second: Floats, *, tolerance: float = 0.0) -> float:
    """Return the largest difference of two empirical distributions.

    With a tolerance, values that differ by that ratio or less count as equal.
    """
    largest = 0.0
    for one, other in ((first, second), (second, first)):
        points = np.sort(one)
        below = np.searchsorted(points, points, side="right") / len(points)
        # Relative, and at least the ns that rounding can move a time.
        reach = points * (1 + tolerance) + (tolerance > 0)
        near = np.searchsorted(np.sort(other), reach, side="right") / len(other)
        largest = max(largest, float((below - near).max()))
    return largest


def _order(operations: Frames, limits: LikenessLimits) -> Iterator[Score]:
    tokens = {token for side in operations for token in side["token"]}
    sides = [_by_rank(side) for side in operations]
    chain = fitted_chain(sides[1], depth=CHAIN_DEPTH)

    def log_perplexity(model: Chain) -> float:
        return float(np.log(perplexity(model, sides[0], symbol_count=len(tokens))))

    under, without = log_perplexity(chain), log_perplexity({(): chain[()]})
    best = log_perplexity(fitted_chain(sides[0], depth=CHAIN_DEPTH))
    free = log_perplexity(fitted_chain(sides[0], depth=0))
    values = np.exp([under, without]).tolist()
    yield "order", "perplexity under its chain", values[0], values[1], values[0] / values[1]
    # A sequence without any order has none to predict.
    share = (free - under) / (free - best) if free - best > 1e-9 else 1.0
    used = _used(1 - share, 1 - limits.order_share)
    yield "order", "share of the order predicted", share, limits.order_share, used


def _by_rank(side: pd.DataFrame) -> list[list[int]]:
    return [group.tolist() for _, group in side.groupby("rank")["token"]]


def _behaviour(
    events: list[pd.DataFrame], graphs: list[dict[int, ExecutionGraph]], limits: LikenessLimits
) -> Iterator[Score]:
    sides = [_rank_behaviours(*side) for side in zip(events, graphs, strict=True)]
    medians = [side.median() for side in sides]
    for part in [f"{name} share" for name in _PARTS]:
        difference = abs(medians[1][part] - medians[0][part])
        used = _used(difference, limits.part_share)
        yield "behaviour", part.replace("_", " "), difference, limits.part_share, used
    for kind in [name for name in medians[0].index if not name.endswith("share")]:
        yield _moved("", kind, (medians[0][kind], medians[1][kind]), limits)
    if min(map(len, graphs)) < 2:
        return
    jobs = [_job_behaviour(side) for side in events]
    for kind in jobs[0]:
        yield _moved("job, ", kind, (jobs[0][kind], jobs[1][kind]), limits)


def _moved(whose: str, kind: str, values: tuple[float, float], limits: LikenessLimits) -> Score:
    ratio = values[1] / values[0] if values[0] else 1.0
    used = _used(abs(ratio - 1), limits.move_ratio)
    return "behaviour", f"{whose}{kind}", ratio, 1 + limits.move_ratio, used


def _used(distance: float, allowed: float) -> float:
    """Return the share of the allowed distance that is used; all of none only if there is none."""
    if allowed > 0:
        return max(distance, 0.0) / allowed
    return 0.0 if distance <= 0 else np.inf


def _rank_behaviours(events: pd.DataFrame, graphs: Mapping[int, ExecutionGraph]) -> pd.DataFrame:
    """Replay ranks alone: shares of the time, time of a step, and moves."""
    ranks = np.array(list(graphs))
    chosen = ranks[np.unique(np.linspace(0, len(ranks) - 1, _MOST_RANKS).astype(int))]
    rows = []
    for rank in chosen.tolist():
        alone = events[events["rank"] == rank]
        parts = time_breakdown(alone).iloc[0]
        span = max(float(parts["span_ns"]), 1.0)
        shares = {f"{name} share": float(parts[f"{name}_ns"]) / span for name in _PARTS}
        rows.append({**_replayed(alone, graphs[rank]), **shares})
    return pd.DataFrame(rows)


def _job_behaviour(events: pd.DataFrame) -> dict[str, float]:
    return _replayed(events, execution_graph(events, collectives=collectives(events)))


def _replayed(events: pd.DataFrame, graph: ExecutionGraph) -> dict[str, float]:
    whole = max(float(replay(graph).max()), 1.0)
    steps = max(int(events["step"].nunique()), 1)
    values = {"time of a step": whole / steps}
    kinds = {None, *events["kind"].dropna().unique()}
    for change in _CHANGES:
        # What a trace has none of does not move it.
        values[change.question] = 1.0
        has_any = (graph.thread >= 0).any() if change.part == "CPU" else change.kind in kinds
        if has_any:
            weight = changed_weights(events, graph, [change])[0]
            values[change.question] = float(replay(graph, weight_ns=weight).max()) / whole
    return values
