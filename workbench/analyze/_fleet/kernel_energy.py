"""Energy by kernel, operator or module: power readings explained by what the GPU was running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
import scipy

from workbench._shared.kernel_kinds import classify
from workbench._shared.numbers import not_negative, positive
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.energy_curves import SECOND, Floats, Ints, offset_ns
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._lib.rows import MISSING, Work
from workbench.analyze._traces.modules import NODE_KINDS, Tree, attributed, short_operator
from workbench.errors import WorkbenchError
from workbench.tables import KERNEL_ENERGY, POWER

# Fewer independent readings per unknown would fit noise.
_FEWEST_PER_KIND = 10
# Above this the columns of a regression count as collinear (Belsley).
_WORST_CONDITION = 30.0
# Another averaging or clock that leaves less than this of the squared error is the better one.
_BETTER_SHARE = 0.7
_OTHERS = ((0.1, 0.0), (0.25, 0.0), (4.0, 0.0), (10.0, 0.0), *((1.0, by) for by in (-2, -1, 1, 2)))
_RESAMPLES, _LEVEL, _FEWEST_WITH_KIND = 400, 0.95, 5
IDLE, UNEXPLAINED = "idle", "not explained"
By: TypeAlias = Literal["kind", "rule", "operator", "module"]
# What takes less of the GPU time than this has too few readings for a power of its own.
_LEAST_SHARE = 0.01
_OTHER, _NO_OPERATOR = "[other]", "[no operator]"
_OF_OPERATORS = ("category", "process", "thread", "launch", "external_id", "correlation")


def kernel_energy(
    events: pd.DataFrame,
    power: pd.DataFrame,
    *,
    average_s: float,
    idle_w: float | None = None,
    clock_offset_s: float = 0.0,
    by: By = "kind",
) -> pd.DataFrame:
    """Estimate the energy of kernels, operators or modules, from power beside the trace.

    A meter sees the sum. Where the mix of kernels changes from reading to reading, their powers can
    be told apart; where it does not, nobody can, and this function refuses instead of splitting
    the energy by time. Power adds up over kernels that run at once, which is an assumption.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of one rank with one GPU.
    power
        Table :data:`workbench.tables.POWER` of that GPU: one entity.
    average_s
        Time that a reading averages, up to its time stamp, in s. Take it from the description of
        the meter: ``power.draw`` of nvidia-smi averages 1 s on Ampere (except GA100) and newer,
        ``power.draw.instant`` far less.
    idle_w
        Power of the GPU without work in W, where it is known; else it is fitted as well, which
        takes a GPU that is idle now and then.
    clock_offset_s
        How far the clock of the meter is ahead of that of the trace, in s.
    by
        ``"kind"``: compute, communication, memory, other; ``"rule"``: the rule that recognizes the
        name, e.g. gemm or attention; ``"operator"``: the innermost operator around the launch;
        ``"module"``: the innermost module or annotated range, as :func:`model_tree` joins them,
        layers merged. Where the readings cannot tell the innermost modules apart, those around
        them count, at the deepest level of the tree that can be told.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.KERNEL_ENERGY`: a row per kind, then ``idle`` and what is
        ``not explained``. Their energies add up to that of the readings. Operators below 1 % of
        the GPU time are one row, ``[other]``; modules below it count in the module around them.

    Raises
    ------
    WorkbenchError
        If the events are of several GPUs, the readings of several entities; if they do not overlap;
        if the readings are too few, or too slow for kinds that always occur in the same proportion;
        if no operator or module was recorded; or if another averaging time or another clock
        explains the readings much better.

    Notes
    -----
    Non-negative least squares of ``p_i = idle + sum_k w_k s_ik`` with the weight dt_i that a
    reading stands for; s_ik is the share of the averaged time in which kind k was running. Energy
    ``E_k = w_k sum_i s_ik dt_i``. Intervals are percentiles of 400 resamples of blocks of readings,
    each twice as long as the averaging, since neighbours share it. Refused are condition numbers
    of the scaled columns above 30, and fewer than 10 independent readings per unknown.

    References
    ----------
    D. A. Belsley, E. Kuh, R. E. Welsch: Regression Diagnostics (1980), chapter 3: condition number
    and which columns are collinear. Z. Yang et al.: Part-time Power Measurements (SC 2024): times
    that NVIDIA GPUs average.
    """
    window = positive("average_s", average_s)
    gpu, levels = _levels(events, by)
    stamps, watts = _readings(power, offset_ns(clock_offset_s), gpu, window)
    period = float(np.median(np.diff(stamps))) / SECOND
    # After a gap a reading stands for a usual period: of the time before it nothing is known.
    lasted = np.minimum(
        np.diff(stamps, prepend=stamps[0] - round(period * SECOND)) / SECOND, 2 * period
    )
    known = None if idle_w is None else not_negative("idle_w", idle_w)
    independent = lasted.sum() / max(window, period)
    # What ran when decides on the level, not the watts, which would make the intervals too narrow.
    for labels in levels:
        work = _Work.of(gpu, labels)
        fit = _Fit.of(_shares(work, stamps, window), watts, lasted, known)
        why_not = _too_few(independent, fit, window) or _alike(
            fit, [*work.names, *([IDLE] if known is None else [])], window
        )
        if not why_not:
            break
    else:
        raise WorkbenchError(why_not)
    _refuse_other_meter(fit, work, stamps, watts, window)
    low, high = _interval(fit, block=int(np.ceil(2 * max(window, period) / period)))
    return _table(fit, work.names, (low, high), known)


class _Work(NamedTuple):
    names: list[str]
    starts: list[Ints]  # by kind
    ends: list[Ints]

    @classmethod
    def of(cls, work: Work, labels: pd.Series) -> _Work:
        number, names = pd.factorize(labels, sort=True)
        inside = [number == at for at in range(len(names))]
        starts, ends = ([side[mask] for mask in inside] for side in (work.start, work.end))
        return cls([*map(str, names)], starts, ends)


def _levels(events: pd.DataFrame, by: By) -> tuple[Work, list[pd.Series]]:
    """Return the work of one GPU and its labels; of modules at every level, the deepest first."""
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise WorkbenchError(msg)
    columns = _OF_OPERATORS if by == "operator" else ()
    work = arrays.required(arrays.gpu_work(events, "name", *columns), events, f"energy by {by}")
    gpus = pd.DataFrame({"rank": work.rank, "device": work.device}).drop_duplicates()
    if len(gpus) > 1:
        msg = f"the events are of {len(gpus)} GPUs, one power meter is of one; choose a rank, e.g. "
        msg += f"events[events['rank'] == {gpus['rank'].iloc[0]}]"
        raise WorkbenchError(msg)
    if by == "module":
        return work, _by_module(events)
    return work, [_by_operator(events, work) if by == "operator" else _by_name(events, work, by)]


def _by_name(events: pd.DataFrame, work: Work, by: By) -> pd.Series:
    named = events["name" if by == "rule" else "kind"].iloc[work.row]
    if by == "rule":
        categories = named.cat.categories
        named = named.map(dict(zip(categories, classify(categories)["rule"], strict=True)))
    return named.astype(str)


def _by_operator(events: pd.DataFrame, work: Work) -> pd.Series:
    nest = arrays.nest(events, work)
    is_known = nest.starter != MISSING
    if not is_known.any():
        msg = "no operator was recorded around the launches of GPU work, so no energy by operator; "
        msg += "record CPU activities too, or use by='rule'"
        raise WorkbenchError(msg)
    started = events["name"].iloc[nest.row[nest.starter[is_known]]]
    labels = pd.Series(_NO_OPERATOR, index=range(len(work.row)), dtype=object)
    # Of a category column only the names that occur are shortened.
    named = started.cat.remove_unused_categories().map(short_operator)
    labels[is_known] = named.astype(object).to_numpy()
    lasted = pd.Series(work.end - work.start)
    is_small = lasted.groupby(labels).transform("sum") < _LEAST_SHARE * lasted.sum()
    return labels.mask(is_small, _OTHER)


def _by_module(events: pd.DataFrame) -> list[pd.Series]:
    """Return the module of all GPU work at every level of the tree, the deepest first."""
    joined = attributed(events, merged=True)
    tree = joined.tree
    lasted = joined.work.end - joined.work.start
    own = np.bincount(joined.node, weights=lasted, minlength=len(tree.name)).astype(np.int64)
    is_large = tree.totals(own) >= _LEAST_SHARE * lasted.sum()
    depth, paths = _paths(tree)
    is_users = np.isin(tree.kind, [NODE_KINDS.index(kind) for kind in ("module", "range")])
    if not (is_users & is_large).any():
        msg = "no module or annotated range was recorded around the launches of GPU work, so no "
        msg += "energy by module; record with_modules or with_stack, or use by='operator'"
        raise WorkbenchError(msg)
    levels: list[pd.Series] = []
    for level in range(max(depth), 0, -1):
        home = list(range(len(depth)))
        # Parents stand before their children, so theirs is settled already.
        for node, above in enumerate(tree.parent):
            if above != MISSING and (depth[node] > level or not is_large[node]):
                home[node] = home[above]
        labels = pd.Series(np.array(paths, dtype=object)[np.array(home)[joined.node]])
        if not levels or not labels.equals(levels[-1]):
            levels.append(labels)
    return levels


def _paths(tree: Tree) -> tuple[list[int], list[str]]:
    """Return the depth of each node, and the names on the way to it, without that of the rank."""
    depth, paths = [0] * len(tree.name), [_OTHER] * len(tree.name)
    for node, above in enumerate(tree.parent):
        if above != MISSING:
            depth[node] = depth[above] + 1
            paths[node] = f"{paths[above]} > " * (depth[above] > 0) + tree.name[node]
    return depth, paths


def _readings(power: pd.DataFrame, ahead_ns: int, work: Work, window: float) -> tuple[Ints, Floats]:
    """Return the readings that average nothing but time of the trace."""
    POWER.check(power)
    entities = [str(name) for name in power["entity"].unique()]
    if len(entities) > 1:
        msg = f"the power is of {len(entities)} entities ({', '.join(entities[:3])}, ...), the "
        msg += f"events of one GPU; choose one, e.g. power[power['entity'] == {entities[0]!r}]"
        raise WorkbenchError(msg)
    usable = power.dropna(subset=["power_w"]).drop_duplicates("time_ns").sort_values("time_ns")
    stamps = usable["time_ns"].to_numpy(dtype=np.int64) - ahead_ns
    first, last = int(work.start.min()), int(work.end.max())
    inside = (stamps - round(window * SECOND) >= first) & (stamps <= last)
    if inside.sum() < 2:
        span = " to ".join(f"{at / SECOND:.3f}" for at in (first, last))
        has = (
            f"{stamps[0] / SECOND:.3f} to {stamps[-1] / SECOND:.3f} s" if len(stamps) else "nothing"
        )
        msg = (
            f"the trace lasts from {span} s and the readings cover {has}: {inside.sum()} of them "
            f"average {window:g} s of the trace and nothing else; record both at once, and pass "
            "clock_offset_s if their clocks differ"
        )
        raise WorkbenchError(msg)
    return stamps[inside], usable["power_w"].to_numpy(dtype=np.float64)[inside]


def _shares(work: _Work, stamps: Ints, window: float) -> Floats:
    length = max(round(window * SECOND), 1)
    columns = [
        measure_within(starts, ends, stamps - length, stamps) / length
        for starts, ends in zip(work.starts, work.ends, strict=True)
    ]
    return np.column_stack(columns).astype(np.float64)


class _Fit(NamedTuple):
    columns: Floats  # shares, and ones where idle power is fitted
    watts: Floats  # above idle power where that is known
    lasted_s: Floats
    powers_w: Floats

    @classmethod
    def of(cls, shares: Floats, watts: Floats, lasted: Floats, idle_w: float | None) -> _Fit:
        columns = shares if idle_w is not None else np.c_[shares, np.ones(len(shares))]
        above = watts - (idle_w or 0.0)
        root = np.sqrt(lasted)
        # Shares of rare kinds are tiny, and the solver compares absolute sizes.
        scale = np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
        scaled = columns / scale
        powers = scipy.optimize.nnls(scaled * root[:, None], above * root)[0] / scale
        return cls(columns, above, lasted, powers)

    def squared_error(self) -> float:
        rest = self.watts - self.columns @ self.powers_w
        return float((self.lasted_s * rest**2).sum())


def _too_few(independent: float, fit: _Fit, window: float) -> str:
    unknown = fit.columns.shape[1]
    if independent >= _FEWEST_PER_KIND * unknown:
        return ""
    return (
        f"{len(fit.watts):,} readings, of which {independent:.0f} are independent as each "
        f"averages {window:g} s, cannot tell {unknown} powers; at least "
        f"{_FEWEST_PER_KIND * unknown} are needed: record for longer, or with a faster meter"
    )


def _alike(fit: _Fit, names: list[str], window: float) -> str:
    """Name what occurs in fixed proportion: any split of its power explains the readings."""
    weighted = fit.columns * np.sqrt(fit.lasted_s)[:, None]
    norms = np.linalg.norm(weighted, axis=0)
    if (absent := norms == 0).any():
        return (
            f"{names[int(absent.argmax())]!r} runs in no reading, so its power is unknown; "
            "leave its events out, or record power for the whole trace"
        )
    _, sizes, directions = np.linalg.svd(weighted / norms, full_matrices=False)
    condition = sizes[0] / max(sizes[-1], np.finfo(float).tiny)
    if condition <= _WORST_CONDITION:
        return ""
    weights = np.abs(directions[-1])
    alike = [name for name, weight in zip(names, weights, strict=True) if weight > 0.2]
    listed = ", ".join(alike[:-1]) + " and " * (len(alike) > 1) + alike[-1]
    return (
        f"the powers of {listed} cannot be separated: readings that average {window:g} s "
        f"always hold them in nearly the same proportion (condition number {condition:,.0f}, "
        f"limit {_WORST_CONDITION:.0f}); use a faster meter or a trace in which the mix changes"
    ) + ", or pass idle_w" * (IDLE in alike)


def _refuse_other_meter(fit: _Fit, work: _Work, stamps: Ints, watts: Floats, window: float) -> None:
    """Refuse an averaging time, or a clock, that is clearly not that of the readings."""
    idle_w = None if fit.columns.shape[1] > len(work.names) else watts[0] - fit.watts[0]
    best, words = fit.squared_error(), ""
    limit = _BETTER_SHARE * best
    for factor, shift in _OTHERS:
        moved = stamps - round(shift * window * SECOND)
        shares = _shares(work, moved, factor * window)
        if (error := _Fit.of(shares, watts, fit.lasted_s, idle_w).squared_error()) < min(
            best, limit
        ):
            best = error
            words = f"average_s={factor * window:g}" if shift == 0 else ""
            words = words or f"a clock of the meter ahead by {shift * window:g} s more"
    if words:
        msg = (
            f"the readings do not average the {window:g} s before them: {words} leaves "
            f"{best / fit.squared_error():.0%} of the squared error; pass the average_s of the "
            "meter, and clock_offset_s if its clock differs from that of the trace"
        )
        raise WorkbenchError(msg)


def _interval(fit: _Fit, block: int) -> tuple[Floats, Floats]:
    """Resample blocks of readings; each needs the sums of its products only."""
    count = max(len(fit.watts) // block, 1)
    number = np.minimum(np.arange(len(fit.watts)) // block, count - 1)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    scale = np.linalg.norm(fit.columns, axis=0)
    columns = fit.columns / scale
    weighted = columns * fit.lasted_s[:, None]
    gram = np.add.reduceat(weighted[:, :, None] * columns[:, None, :], first)
    right = np.add.reduceat(weighted * fit.watts[:, None], first)
    powers = np.array([*_resampled(gram, right)]) / scale
    low, high = np.quantile(powers, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    # The estimate itself is possible, also where the resamples are few and lopsided.
    return np.minimum(low, fit.powers_w), np.maximum(high, fit.powers_w)


def _resampled(gram: Floats, right: Floats) -> Iterator[Floats]:
    rng = np.random.default_rng(0)
    for _ in range(_RESAMPLES):
        drawn = rng.integers(0, len(gram), len(gram))
        total = gram[drawn].sum(axis=0)
        # A resample may hold a rare kind nowhere; then its power is any, and 0 is one of them.
        sizes, directions = np.linalg.eigh(total)
        root = np.sqrt(np.maximum(sizes, sizes[-1] * 1e-12))
        yield scipy.optimize.nnls(
            directions.T * root[:, None], (directions.T @ right[drawn].sum(axis=0)) / root
        )[0]


def _table(
    fit: _Fit, kinds: list[str], interval: tuple[Floats, Floats], idle_w: float | None
) -> pd.DataFrame:
    total_s = float(fit.lasted_s.sum())
    busy = fit.columns.T @ fit.lasted_s
    powers, (low, high) = fit.powers_w, interval
    if idle_w is not None:
        busy = np.append(busy, total_s)
        powers, low, high = (np.append(side, idle_w) for side in (powers, low, high))
    counts = [*(fit.columns[:, : len(kinds)] > 0).sum(axis=0), len(fit.watts)]
    measured = float((fit.watts * fit.lasted_s).sum()) + (idle_w or 0.0) * total_s
    energy = powers * busy
    table = pd.DataFrame(
        {
            "kind": [*kinds, IDLE],
            "busy_s": busy, "power_w": powers, "low_w": low, "high_w": high,
            "energy_j": energy, "low_j": low * busy, "high_j": high * busy,
            "reading_count": counts,
            "is_sure": (low > 0) & (np.array(counts) >= _FEWEST_WITH_KIND),
        }
    )  # fmt: skip
    rest = {"kind": UNEXPLAINED, "busy_s": total_s, "energy_j": measured - energy.sum()}
    rest |= {"reading_count": len(fit.watts), "is_sure": True}
    table = pd.concat([table, pd.DataFrame([rest])], ignore_index=True)
    return KERNEL_ENERGY.of(table)
