"""The profile of a trace: what a statistical twin is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib.rows import MISSING, step_numbers
from workbench.analyze._perfmodel.twins.chain import fitted_chain
from workbench.analyze._perfmodel.twins.motif import Fold, folds
from workbench.analyze._perfmodel.twins.operations import (
    KIND_NAMES,
    host_operations,
    on_one_clock,
    rank_graphs,
)
from workbench.errors import PerformanceModelError
from workbench.tables import Trace, TraceProfile
from workbench.tables.trace_profile import (
    CHAIN_DEPTH,
    MOST_OPERATIONS,
    QUANTILE_COUNT,
    SYNC,
    Block,
    KindProfile,
    Operation,
    bucket,
)

_ORDER = ["kind", "stream", "operation", "group"]
_SKELETON = ["kind", "stream", "waits", "back", "operation", "group"]
_NEED_SPREAD = 2
# Ranks that begin further apart than this were not recorded together.
_LONGEST_START_NS = 60e9


def trace_profile(trace: Trace) -> TraceProfile:
    """Describe one or several ranks of a trace by a few kB of statistics, without any name.

    A profile can be shared where the trace cannot: it knows kinds of work, distributions of sizes
    and times and the order of kinds, and :func:`workbench.simulate.traces_like` draws a trace from
    it that behaves alike.

    Parameters
    ----------
    trace
        From :func:`workbench.load.traces`: profiler events of one job, one rank or several.

    Returns
    -------
    workbench.tables.TraceProfile
        Quantiles of size, duration and host time per kind; the order of one step as a motif of
        repeated blocks and as a Markov chain of variable length; launch latency; and how ranks
        differ. :func:`workbench.load.write_trace_profile` writes it as JSON.

    Raises
    ------
    WorkbenchError
        If the trace has no GPU work.
    PerformanceModelError
        If a step has more operations than a profile may hold.

    Notes
    -----
    Host time and waits come from the execution graph (:func:`execution_graph`): time in calls that
    wait for the GPU is not a time of the host. Of a collective that was matched across ranks the
    shortest duration counts, the transfer; waiting arises again in a twin. Steps and ranks with the
    most frequent order are averaged position by position. Repeated blocks are found by the
    autocorrelation of that order; sizes, durations and gaps are kept to half an octave. Size and
    duration are joined by a Gaussian copula with parameter 2 sin(pi r / 6) for the rank correlation
    r of Spearman.

    References
    ----------
    Chakra, arXiv:2305.14516, for the idea of sharing generated traces; its generative models are
    not public, and this is none of them. R. B. Nelsen, An Introduction to Copulas (2006).
    """
    events = on_one_clock(trace.events)
    rows = host_operations(events, rank_graphs(events))
    rows = rows[rows["step"] != MISSING] if _mostly_in_steps(rows) else rows.assign(step=MISSING)
    instances = [group for _, group in rows.groupby(["rank", "step"], sort=True)]
    alike = _most_frequent(instances)
    if (count := len(alike[1][0])) > MOST_OPERATIONS:
        msg = f"a step has {count:,} operations, more than {MOST_OPERATIONS:,}; "
        raise PerformanceModelError(msg + "profile a trace with steps (profiler.step())")
    mean, tail_ns = _mean_step(events, alike, instances)
    found = folds(mean)
    sized = set(rows.loc[rows["size"] > 0, "kind"].tolist())
    operations, motif = _coded(found, sized)
    launches = rows.loc[rows["lag"] >= 0, "lag"]
    compute = rows[rows["kind"] == KINDS.index("compute")]
    return TraceProfile(
        rank_count=int(rows["rank"].nunique()),
        step_count=int(rows.groupby("rank")["step"].nunique().min()),
        is_synthetic=trace.is_synthetic,
        kinds=_kinds(rows),
        operations=operations,
        motif=motif,
        chain=_chain(motif),
        launch_ns=_rounded(launches.median() if len(launches) else 0),
        tail_ns=_rounded(tail_ns),
        start_ns=quantiles(_starts(trace, rows)),
        compute_noise_ratio=_noise(compute, "dur"),
        host_noise_ratio=_noise(rows, "gap"),
        doubts=_doubts(rows, instances, alike[0]),
    )


def quantiles(values: Any) -> tuple[float, ...]:
    """Return the quantiles of a profile, to three digits: exact values are nobody's business."""
    points = np.quantile(np.asarray(values, dtype=np.float64), np.linspace(0, 1, QUANTILE_COUNT))
    return tuple(_rounded(point) for point in points)


def _rounded(value: float) -> float:
    return float(f"{float(value):.3g}")


def _mostly_in_steps(rows: pd.DataFrame) -> bool:
    return 2 * int((rows["step"] != MISSING).sum()) >= len(rows)


def _most_frequent(
    instances: list[pd.DataFrame],
) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Choose the steps whose work has the most frequent order, and of these those alike in waits.

    Waits are mostly guessed from times, so that steps of the same work differ in them.
    """
    works = _largest(instances, lambda step: _key(_works(step), _ORDER))
    return works, _largest(works, lambda step: _key(step, _SKELETON))


def _largest(
    steps: list[pd.DataFrame], key: Callable[[pd.DataFrame], object]
) -> list[pd.DataFrame]:
    alike: dict[object, list[pd.DataFrame]] = {}
    for step in steps:
        alike.setdefault(key(step), []).append(step)
    return max(alike.values(), key=lambda group: (len(group), len(group[0])))


def _key(step: pd.DataFrame, columns: list[str]) -> tuple[object, ...]:
    return tuple(map(tuple, step[columns].to_numpy().tolist()))


def _works(step: pd.DataFrame) -> pd.DataFrame:
    return step[step["kind"] != KIND_NAMES.index(SYNC)]


def _mean_step(
    events: pd.DataFrame, alike: tuple[list[pd.DataFrame], ...], instances: list[pd.DataFrame]
) -> tuple[pd.DataFrame, float]:
    """Average steps of one order; scale the host time so that its sum is that of all steps."""
    works, steps = alike
    mean = steps[0].reset_index(drop=True).astype({"size": "float64", "gap": "float64"})
    is_work = mean["kind"] != KIND_NAMES.index(SYNC)
    for name in ("dur", "size"):
        columns = [_works(step)[name].to_numpy(dtype=np.float64) for step in works]
        mean.loc[is_work, name] = np.mean(columns, axis=0)
    mean["gap"] = np.mean([step["gap"].to_numpy(dtype=np.float64) for step in steps], axis=0)
    mean.loc[0, "gap"], tail_ns = _step_marks(events, instances)
    inside = np.mean([step["gap"].iloc[1:].sum() for step in instances])
    scale = float(inside) / max(float(mean["gap"].iloc[1:].sum()), 1.0)
    # The host time before the first operation was measured from the mark of the step.
    mean["gap"] = mean["gap"].where(mean.index == 0, mean["gap"] * scale)
    return mean, tail_ns


def _step_marks(events: pd.DataFrame, instances: list[pd.DataFrame]) -> tuple[float, float]:
    """Return the mean host time before the first and after the last operation of a step."""
    numbers = step_numbers(events)
    is_mark = numbers != MISSING
    marks = {
        (rank, number): (start, start + length)
        for rank, number, start, length in zip(
            events["rank"].to_numpy()[is_mark].tolist(), numbers[is_mark].tolist(),
            events["start_ns"].to_numpy()[is_mark].tolist(),
            events["dur_ns"].to_numpy()[is_mark].tolist(), strict=True,
        )
    }  # fmt: skip
    begins, tails = [0.0], [0.0]
    for step in instances:
        first, last = step.iloc[0], step.iloc[-1]
        if mark := marks.get((int(first["rank"]), int(first["step"]))):
            begins.append(max(float(first["time"] - mark[0]), 0.0))
            tails.append(max(float(mark[1] - last["time"] - last["own"]), 0.0))
    return tuple(float(np.mean(times[1:] or [0.0])) for times in (begins, tails))  # type: ignore[return-value]


def _coded(
    found: Sequence[Fold], sized: set[int]
) -> tuple[tuple[Operation, ...], tuple[Block, ...]]:
    numbers: dict[Operation, int] = {}
    blocks = []
    for repeats, rows in found:
        value = np.where(rows["kind"].isin(sized), rows["size"], rows["dur"])
        rounded = [_rounded(number) for number in value]  # as the quantiles are
        halves = np.where(rows["kind"] == KIND_NAMES.index(SYNC), 0, bucket(rounded))
        columns = [rows[name].tolist() for name in _SKELETON]
        listed = [
            Operation(KIND_NAMES[kind], stream, half, waits, back, operation, group)
            for kind, stream, waits, back, operation, group, half in zip(
                *columns, halves.tolist(), strict=True
            )
        ]
        codes = tuple(numbers.setdefault(operation, len(numbers)) for operation in listed)
        blocks.append(Block(repeats, codes, tuple(bucket(rows["gap"]).tolist())))
    return tuple(numbers), tuple(blocks)


def _chain(motif: Sequence[Block]) -> Any:
    step = [code for block in motif for code in block.operations * block.repeats]
    # Twice, so that the begin of a step follows the end of the one before.
    return fitted_chain([[*step, *step]], depth=CHAIN_DEPTH)


def _kinds(rows: pd.DataFrame) -> dict[str, KindProfile]:
    kinds = {}
    for code in sorted(set(_works(rows)["kind"].tolist())):
        group = rows[rows["kind"] == code]
        sized = group[group["size"] > 0]
        kinds[KIND_NAMES[code]] = KindProfile(
            count=len(group),
            dur_ns=quantiles(group["dur"]),
            gap_ns=quantiles(group["gap"]),
            size_bytes=quantiles(sized["size"]) if len(sized) else (),
            correlation=_rank_correlation(sized["size"], sized["dur"]),
        )
    return kinds


def _rank_correlation(size: pd.Series, duration: pd.Series) -> float:
    if size.nunique() < _NEED_SPREAD or duration.nunique() < _NEED_SPREAD:
        return 0.0
    spearman = float(np.corrcoef(size.rank(), duration.rank())[0, 1])
    return round(float(np.clip(2 * np.sin(np.pi * spearman / 6), -1, 1)), 3)


def _noise(rows: pd.DataFrame, column: str) -> float:
    """Return the standard deviation of the log of the ranks' mean time per step."""
    sums = rows.groupby(["rank", "step"])[column].sum().groupby("rank").median()
    sums = sums[sums > 0]
    if len(sums) < _NEED_SPREAD:
        return 0.0
    return min(round(float(np.log(sums).std(ddof=1)), 3), 2.0)


def _starts(trace: Trace, rows: pd.DataFrame) -> NDArray[np.float64]:
    first = rows.groupby("rank")["time"].min().to_numpy(dtype=np.float64)
    first = first - first.min()
    comparable = bool((trace.ranks["clock"] == "epoch").all()) and first.max() < _LONGEST_START_NS
    return first if comparable else np.zeros(1)


def _doubts(
    rows: pd.DataFrame, instances: list[pd.DataFrame], chosen: list[pd.DataFrame]
) -> tuple[str, ...]:
    doubts = []
    talks = rows["kind"] == KINDS.index("communication")
    if rows["rank"].nunique() < _NEED_SPREAD and talks.any():
        doubts.append("one rank: waiting for other ranks counts as transfer")
    if 2 * len(chosen) < len(instances):
        doubts.append(f"the order is that of {len(chosen)} of {len(instances)} steps and ranks")
    if rows["operation"].isin(("send", "receive", "send-receive")).any():
        doubts.append("point-to-point transfers are drawn as collectives of all ranks")
    if (rows["step"] == MISSING).all():
        doubts.append("no steps are marked: the whole trace is one")
    return tuple(doubts)
