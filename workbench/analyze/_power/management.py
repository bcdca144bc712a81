"""Capping when a feed is short: power allocated along the delivery tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import datasets
from workbench._shared.numbers import Floats, Ints, in_range, not_negative, positive
from workbench.analyze._power.grid import by_entity
from workbench.analyze._power.hierarchy import Feeds, feeds, places_in
from workbench.errors import WorkbenchError
from workbench.tables import POWER_LOADS, POWER_MANAGEMENT

PowerPolicy = Literal["cost", "priority", "slack"]
POWER_POLICIES = ("cost", "priority", "slack")
# Rounding of a sum of watts: less than this share of a limit is not an overload.
_ROUNDING = 1e-9
_MOST_OVERLOAD = 1e3  # of a feed that may draw nothing


@dataclass(frozen=True)
class FeedShortage:
    """A feed that may draw less than usual for some time.

    Parameters
    ----------
    share
        Of the peak of what the feed would draw, how much is missing; a limit below that stays.
    entity
        Feed that is short; the root of the topology by default.
    start_min
        When it begins, in minutes after the first instant of the loads.
    duration_min
        How long it lasts, in minutes; to the end of the loads by default.

    Raises
    ------
    WorkbenchError
        If a number is out of its range.
    """

    share: float = 0.1
    entity: str | None = None
    start_min: float = 0.0
    duration_min: float | None = None

    def __post_init__(self) -> None:
        in_range("share", self.share, least=0, most=1)
        not_negative("start_min", self.start_min)
        if self.duration_min is not None:
            positive("duration_min", self.duration_min)


def power_management(
    loads: pd.DataFrame,
    topology: pd.DataFrame,
    *,
    policy: PowerPolicy = "cost",
    shortage: FeedShortage | None = None,
    delay_s: float = 0.0,
    breaker: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Cap loads so that every feed keeps its limit, instant by instant.

    A job waits for its slowest GPU. It is therefore cheaper to cut all GPUs of one job a little
    than a few of them a lot, and the cost of a cap is the speed of the whole job, including GPUs
    on feeds with power to spare.

    Parameters
    ----------
    loads
        Table :data:`workbench.tables.POWER_LOADS`.
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`. What lies below a load is ignored.
    policy
        ``"cost"``: the least GPU time lost per watt first. ``"priority"``: the lowest priority
        first, within it in proportion to slack. ``"slack"``: all loads in proportion to their
        slack, which is demand above the floor.
    shortage
        A feed that is short; only limits of the topology by default.
    delay_s
        Time from a measurement to the cap that follows it. Until then a feed can be above its
        limit, which its breaker bears for a while.
    breaker
        What breakers bear: this ratio of the limit for so many seconds; by default the one
        published point in ``published/power_breakers.csv``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_MANAGEMENT`. Where floors exceed a limit, the limit is
        kept, loads are cut below their floors, and both are marked. An instant at which any
        demand is unknown has no result.

    Raises
    ------
    WorkbenchError
        If loads and topology do not fit, no instant has all demands, or an option makes no sense.

    Notes
    -----
    A feed that loses the share l draws ``sum of its children / (1 - l)``. Feeds are relieved one
    after the other, the lowest first. For ``"cost"``, cutting job j to the slowdown s takes
    ``min(s / slowdown_per_w, slack)`` from each of its loads below the feed and costs ``s x GPUs of
    j``; jobs are taken in the order of GPUs per watt. This is exact for one short feed. With
    several that hold each other, relief from the highest down is tried as well and the cheaper
    of both is kept; that can still miss the least cost.

    A breaker that bears the ratio r for T seconds trips when the sum of ``(draw / limit)^2 - 1``
    over time reaches ``(r^2 - 1) T``; the sum falls while the draw is below the limit, to 0 at
    the least. Caps are lifted as late as they are set; waiting GPUs of a capped job are taken to
    draw what they drew.

    References
    ----------
    Wu et al., Dynamo: Facebook's Data Center-Wide Power Management System, ISCA 2016.

    Examples
    --------
    >>> from workbench import analyze, simulate
    >>> loads, topology = simulate.power_loads(shortage_share=0.1)
    >>> table = power_management(loads, topology)
    >>> row = table[table["entity"] == "msb1/sb1/row1"]
    >>> bool((row["granted_w"] <= row["limit_w"] * (1 + 1e-9)).all()), bool(row["is_capped"].any())
    (True, True)
    """
    case = Case.of(loads, topology)
    limits = case.limits(shortage)
    cells = _cells(case, not_negative("delay_s", delay_s))
    cut = case.cuts(policy, limits)
    granted = case.demand - cut
    if cells:
        # A cap holds back what was above it when it was measured, and nothing else.
        cap = np.where(cut > 0, granted, np.inf)
        late = np.full_like(cap, np.inf)
        late[:, cells:] = cap[:, :-cells]
        granted = np.minimum(case.demand, late)
    return POWER_MANAGEMENT.of(_table(case, limits, granted, _allowance(breaker)))


def _cells(case: Case, delay_s: float) -> int:
    if delay_s and np.isnan(case.period_s):
        msg = "the loads have one instant; a delay needs several"
        raise WorkbenchError(msg)
    return int(np.ceil(delay_s / case.period_s)) if delay_s else 0


def _allowance(breaker: tuple[float, float] | None) -> float:
    """Return how much overload a breaker bears: (ratio^2 - 1) x seconds."""
    if breaker is None:
        breaker = _published_breaker()
    ratio = in_range("the ratio of breaker", breaker[0], least=1, strictly=True)
    return float((ratio**2 - 1) * positive("the seconds of breaker", breaker[1]))


@cache
def _published_breaker() -> tuple[float, float]:
    row = pd.read_csv(datasets.path("published") / "power_breakers.csv").iloc[0]
    return float(row["overload_ratio"]), float(row["carried_s"])


def _table(case: Case, limits: Floats, granted: Floats, allowance: float) -> pd.DataFrame:
    rows = case.entities
    demand, drawn, floor = (case.drawn(name) for name in (case.demand, granted, case.floor))
    lowered = case.demand - granted
    slowdown = np.minimum(lowered * case.slowdown_per_w[:, None], 1)
    is_cut = lowered > _ROUNDING * case.demand
    below = is_cut & (granted < case.floor * (1 - _ROUNDING))
    own = np.full((3, len(case.fed.names), case.times.size), np.nan)
    for at in rows:
        indices = case.below[at][0]
        own[:, at] = [values[indices].max(axis=0) for values in (is_cut, below, slowdown)]
    # An idle load needs less than its floor.
    needed = case.drawn(np.minimum(case.floor, case.demand))
    own[1] = np.where(case.is_load[:, None], own[1], needed > limits * (1 + _ROUNDING))
    trip = _trip_ratio(drawn, limits, case.period_s / allowance)
    doubts = [*case.doubts]
    if (trip[rows] > 0).any():
        doubts.append("breakers: one published point, and a curve through it")
    table = {
        "demand_w": demand, "limit_w": np.where(np.isfinite(limits), limits, np.nan),
        "granted_w": drawn, "loss_w": drawn * np.where(case.is_load, 0, case.loss_share)[:, None],
        "floor_w": floor, "is_capped": own[0] > 0, "is_below_floor": own[1] > 0,
        "slowdown_share": own[2], "trip_ratio": trip,
    }  # fmt: skip
    for name in ("demand_w", "granted_w", "loss_w", "slowdown_share", "trip_ratio"):
        table[name] = np.where(case.is_known, table[name], np.nan)
    for name in ("is_capped", "is_below_floor"):
        table[name] = table[name] & case.is_known
    frame = pd.DataFrame({name: values[rows].ravel() for name, values in table.items()})
    names = case.fed.names[rows]
    jobs = [
        case.job_names[case.job[case.below[at][0][0]]] if case.is_load[at] else None for at in rows
    ]
    codes = np.repeat(np.arange(len(rows)), case.times.size)
    return frame.assign(
        time_ns=np.tile(case.times, len(rows)),
        entity=pd.Categorical.from_codes(codes, categories=names),
        is_load=np.repeat(case.is_load[rows], case.times.size),
        job=np.repeat(np.array(jobs, dtype=object), case.times.size),
        doubt="; ".join(doubts),
    )


def _trip_ratio(drawn: Floats, limits: Floats, share_per_unit: float) -> Floats:
    """Sum the overload of every feed over time, as a share of what its breaker bears."""
    ratio = np.where(drawn > 0, np.inf, 0.0)
    np.divide(drawn, limits, out=ratio, where=limits > 0)
    overload = np.minimum(ratio, _MOST_OVERLOAD) ** 2 - 1
    overload = np.where(np.abs(overload) <= 3 * _ROUNDING, 0, overload) * share_per_unit
    heat = np.zeros_like(overload)
    # A loop, since a breaker cools to 0 and no further.
    for at in range(overload.shape[1]):
        heat[:, at] = np.maximum(heat[:, at - 1] * (at > 0) + overload[:, at], 0)
    return np.where(np.isfinite(limits), heat, np.nan)


# Loads on their delivery tree, as arrays: a row per load, a column per instant.


@dataclass(frozen=True, eq=False)
class Case:
    """Loads and the feeds above them.

    ``below[v]`` holds, for entity v of the topology, the loads below it and the watts that v
    draws for each of their watts; nothing for what lies below a load.
    """

    fed: Feeds
    times: Ints
    demand: Floats
    is_known: NDArray[np.bool_]
    floor: Floats
    priority: Ints
    job: Ints
    job_names: NDArray[np.object_]
    gpu_count: Floats
    slowdown_per_w: Floats
    step_s: Floats
    limit_w: Floats
    loss_share: Floats
    is_load: NDArray[np.bool_]
    below: list[tuple[Ints, Floats]]
    doubts: tuple[str, ...]

    @classmethod
    def of(cls, loads: pd.DataFrame, topology: pd.DataFrame) -> Case:
        """Check both tables against each other and lay them out."""
        POWER_LOADS.check(loads, "loads")
        fed = feeds(topology)
        loads = loads.assign(entity=loads["entity"].cat.remove_unused_categories())
        times, demand = by_entity(loads, "demand_w")
        first = loads.iloc[:: times.size]
        is_known: NDArray[np.bool_] = np.asarray(~np.isnan(demand).any(axis=0))
        if not is_known.any():
            msg = (
                f"no instant has all of {len(demand):,} demands: leave out the loads that are "
                "never metered together, or make the cells of the grid longer"
            )
            raise WorkbenchError(msg)
        positions = places_in(fed, pd.Index(first["entity"].to_numpy()), "the loads")
        loss = _losses(topology)
        doubts = [text for text in loads["doubt"].unique() if text]
        if not is_known.all():
            doubts.append(f"{(~is_known).sum():,} of {times.size:,} instants without all meters")
        number, jobs = pd.factorize(first["job"])
        is_load = np.zeros(len(fed.names), dtype=bool)
        is_load[positions] = True
        fixed = {name: _fixed(loads, name) for name in ("priority", "gpu_count", "slowdown_per_w")}
        return cls(
            fed, times, np.where(is_known, demand, 0.0), is_known, by_entity(loads, "floor_w")[1],
            fixed["priority"].astype(np.int64), number.astype(np.int64), np.asarray(jobs, object),
            fixed["gpu_count"], fixed["slowdown_per_w"],
            first["step_s"].to_numpy(dtype=np.float64),
            topology["limit_w"].fillna(np.inf).to_numpy(dtype=np.float64),
            loss, is_load,
            _below(fed, positions, 1 / (1 - loss)), tuple(doubts),
        )  # fmt: skip

    @cached_property
    def entities(self) -> Ints:
        """Positions of the loads and of the feeds above them."""
        return np.array([at for at, (loads, _) in enumerate(self.below) if len(loads)])

    @cached_property
    def roots(self) -> Ints:
        """Positions of the roots."""
        return np.flatnonzero(self.fed.parent < 0)

    @property
    def period_s(self) -> float:
        """Length of a cell; a delay and a breaker need two instants."""
        return float(np.median(np.diff(self.times))) / 1e9 if self.times.size > 1 else np.nan

    @cached_property
    def job_gpus(self) -> Floats:
        """GPUs of each job, wherever they are."""
        return np.asarray(np.bincount(self.job, weights=self.gpu_count), dtype=np.float64)

    @cached_property
    def slack(self) -> Floats:
        """Watts of each load above its floor."""
        return np.maximum(self.demand - self.floor, 0)

    def drawn(self, watts: Floats) -> Floats:
        """Return the draw of every entity, losses included, for given loads."""
        result = np.zeros((len(self.below), watts.shape[1]))
        for at, (loads, weights) in enumerate(self.below):
            result[at] = weights @ watts[loads]
        return result

    def slowdowns(self, lowered: Floats) -> Floats:
        """Return the share of its speed that each job loses: that of its slowest load."""
        result = np.zeros((self.job.max() + 1, lowered.shape[1]))
        np.maximum.at(result, self.job, np.minimum(lowered * self.slowdown_per_w[:, None], 1))
        return result

    def position(self, entity: str | None) -> int:
        """Return the position of a feed; of the one root if None."""
        if entity is None:
            if len(self.roots) == 1:
                return int(self.roots[0])
            names = [str(name) for name in self.fed.names[self.roots][:3]]
            msg = f"the topology has {len(self.roots)} roots, e.g. {names}; name the short feed"
            raise WorkbenchError(msg)
        at = int(self.fed.names.get_indexer(pd.Index([entity], dtype=object))[0])
        if at < 0 or not len(self.below[at][0]):
            msg = f"{entity!r} feeds no load; name an entity of the topology that has loads below"
            raise WorkbenchError(msg)
        return at

    def limits(self, shortage: FeedShortage | None = None) -> Floats:
        """Return the limit of every entity at every instant, infinite where there is none."""
        limits = np.repeat(self.limit_w[:, None], self.times.size, axis=1)
        if shortage is None:
            return limits
        at = self.position(shortage.entity)
        loads, weights = self.below[at]
        level = (1 - shortage.share) * (weights @ self.demand[loads]).max()
        after_min = (self.times - self.times[0]) / 60e9
        last = np.inf if shortage.duration_min is None else shortage.duration_min
        is_short = (after_min >= shortage.start_min) & (after_min - shortage.start_min < last)
        if not is_short.any():
            msg = (
                f"the shortage begins after {shortage.start_min:g} min; the loads end after "
                f"{after_min[-1]:.3g} min"
            )
            raise WorkbenchError(msg)
        limits[at, is_short] = np.minimum(limits[at, is_short], level)
        return limits

    def cuts(self, policy: str, limits: Floats) -> Floats:
        """Return the watts that every load is cut, so that no feed is above its limit."""
        if policy not in POWER_POLICIES:
            msg = f"no policy is called {policy!r}; there are {list(POWER_POLICIES)}"
            raise WorkbenchError(msg)
        cut = np.zeros_like(self.demand)
        slack = self.slack
        over = self.drawn(self.demand) > limits * (1 + _ROUNDING)
        # Cuts only lower what is drawn, so other feeds need no look.
        short = [at for at in self.entities[::-1] if over[at].any()]
        if policy == "cost":
            for instant in np.flatnonzero(over.any(axis=0)).tolist():
                at_fault = [at for at in short if over[at, instant]]
                cut[:, instant] = _least_cost(self, at_fault, limits[:, instant], instant)
        else:
            groups = self.priority if policy == "priority" else np.zeros_like(self.priority)
            for at in short:
                for group in np.unique(groups[self.below[at][0]]):
                    room = np.where((groups == group)[:, None], slack - cut, 0)
                    self._relieve(at, limits[at], cut, room)
        # Floors give way last: a tripped breaker would take all of them.
        for at in short:
            self._relieve(at, limits[at], cut, self.demand - cut)
        return cut

    def _relieve(self, at: int, limit: Floats, cut: Floats, room: Floats) -> None:
        """Cut loads below a feed in proportion to their room, until it is at its limit."""
        loads, weights = self.below[at]
        excess = weights @ (self.demand[loads] - cut[loads]) - limit
        excess = np.where(excess > _ROUNDING * limit, excess, 0)
        available = weights @ room[loads]
        share = np.divide(excess, available, out=np.zeros_like(excess), where=available > 0)
        cut[loads] += np.minimum(share, 1) * room[loads]


def _losses(topology: pd.DataFrame) -> Floats:
    if "loss_share" not in topology:
        return np.zeros(len(topology))
    loss: Floats = topology["loss_share"].fillna(0).to_numpy(dtype=np.float64)
    if (loss >= 1).any():
        name = topology["entity"].iloc[int(loss.argmax())]
        msg = f"the topology: loss_share of {name!r} is 1, so it feeds nothing; give less than 1"
        raise WorkbenchError(msg)
    return loss


def _fixed(loads: pd.DataFrame, column: str) -> Floats:
    _, values = by_entity(loads, column)
    if (values != values[:, :1]).any():
        load = int((values != values[:, :1]).any(axis=1).argmax())
        name = loads["entity"].iloc[load * values.shape[1]]
        msg = f"loads: {column} of {str(name)!r} changes over time; it must be the same throughout"
        raise WorkbenchError(msg)
    return values[:, 0]


def _below(fed: Feeds, positions: Ints, gain: Floats) -> list[tuple[Ints, Floats]]:
    """Collect the loads below every entity, and refuse loads below others and feeds without any."""
    number = dict(zip(positions.tolist(), range(len(positions)), strict=True))
    children = fed.children()
    result: list[tuple[Ints, Floats]] = [(np.empty(0, np.int64), np.empty(0))] * len(children)
    inside = np.zeros(len(children), dtype=bool)  # below a load
    for at, parent in enumerate(fed.parent):
        inside[at] = parent >= 0 and (inside[parent] or int(parent) in number)
        if inside[at] and at in number:
            msg = (
                f"{fed.names[at]!r} is below another load; pass loads of one level of the topology"
            )
            raise WorkbenchError(msg)
    for at in range(len(children) - 1, -1, -1):
        if at in number:
            result[at] = np.array([number[at]]), np.ones(1)
        elif not inside[at] and not children[at]:
            msg = (
                f"{fed.names[at]!r} of the topology has no load, so what feeds it is unknown; add "
                "its load (demand_w may be 0), or leave it out of the topology"
            )
            raise WorkbenchError(msg)
        elif not inside[at]:
            pieces = [result[child] for child in children[at]]
            loads, weights = (np.concatenate(side) for side in zip(*pieces, strict=True))
            result[at] = loads, weights * gain[at]
    return result


# The least GPU time lost: jobs in the order of what a watt of theirs costs.


def _least_cost(case: Case, short: list[int], limits: Floats, instant: int) -> Floats:
    """Relieve short feeds, the lowest or the highest first, whichever loses less."""
    best, least = np.zeros(len(case.job)), np.inf
    for order in (short, short[::-1])[: min(len(short), 2)]:
        cut = np.zeros(len(case.job))
        for at in order:
            _slow_down(case, at, limits[at], instant, cut)
        lost = float(case.job_gpus @ case.slowdowns(cut[:, None])[:, 0])
        if lost < least:
            best, least = cut, lost
    return best


def _slow_down(case: Case, at: int, limit: float, instant: int, cut: Floats) -> None:
    """Cut loads below one feed, job after job, until it is at its limit or all at their floors."""
    loads, weights = case.below[at]
    slack, per_w = case.slack[loads, instant], case.slowdown_per_w[loads]
    excess = float(weights @ (case.demand[loads, instant] - cut[loads])) - limit
    if excess <= _ROUNDING * limit:
        return
    slowed = case.slowdowns(cut[:, None])[:, 0]
    job = case.job[loads]
    # Loads that are no slower than their job already is cost nothing.
    free = np.maximum(_watts(slowed[job], per_w, slack) - cut[loads], 0)
    available = float(weights @ free)
    share = min(excess / available, 1.0) if available > 0 else 0.0
    cut[loads] += share * free
    excess -= share * available
    if excess <= _ROUNDING * limit:
        return
    for number, width in _priced(case, at, instant, slowed, excess):
        slowed[number] += width
    cut[loads] = np.maximum(cut[loads], _watts(slowed[job], per_w, slack))


def _watts(slowdown: Floats | float, per_w: Floats, slack: Floats) -> Floats:
    """Return the watts that loads can be cut before they are slower than that."""
    unlimited = np.full_like(slack, np.inf)
    return np.minimum(np.divide(slowdown, per_w, out=unlimited, where=per_w > 0), slack)


def _priced(
    case: Case, at: int, instant: int, slowed: Floats, excess: float
) -> Iterator[tuple[int, float]]:
    """Yield jobs and how much further to slow each, cheapest watts first, until none is short."""
    loads, weights = case.below[at]
    per_w, job = case.slowdown_per_w[loads], case.job[loads]
    ends = case.slack[loads, instant] * per_w
    open_ = np.flatnonzero(ends > slowed[job])
    open_ = open_[np.lexsort((ends[open_], job[open_]))]
    job, ends, watts_per = job[open_], ends[open_], weights[open_] / per_w[open_]
    is_first = np.r_[True, job[1:] != job[:-1]][: len(job)]
    # A job slows down until the next of its loads is at its floor and gives no more.
    width = ends - np.where(is_first, slowed[job], np.r_[0.0, ends[:-1]][: len(job)])
    so_far = np.cumsum(watts_per)
    total = np.bincount(job, watts_per, minlength=len(slowed))
    before = np.maximum.accumulate(np.where(is_first, so_far - watts_per, 0.0))
    rate = np.maximum(total[job] - (so_far - watts_per - before), watts_per)
    for segment in np.argsort(case.job_gpus[job] / rate, kind="stable"):
        if excess <= 0:
            return
        taken = min(width[segment], excess / rate[segment])
        excess -= taken * rate[segment]
        yield int(job[segment]), float(taken)
