"""When nodes fail: many histories of a cluster at once, with lemons, bursts and repairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import in_range, not_negative, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES, RESTART_PHASES, SLOW_TIMES

Process: TypeAlias = Literal["poisson", "interval", "renewal", "weibull"]
_MOST_FAILURES = 10_000_000


@dataclass(frozen=True)
class FailureProcess:
    """How often the nodes of a cluster fail.

    Parameters
    ----------
    failure_interval_min
        Mean time between failures of the whole cluster, in minutes.
    process
        ``"poisson"``: failures are independent; ``"interval"``: exactly one per interval;
        ``"renewal"``: nothing fails while the job recovers; ``"weibull"``: every node renews
        itself with Weibull gaps of the same mean.
    node_count
        Nodes of the cluster.
    weibull_shape
        Below 1 failures of a node come in bursts, above 1 they are spread evenly.
    is_aged
        Whether Weibull nodes have been running long before; new ones all start at 0, which
        changes how many failures there are in the first months.
    lemon_share
        Share of nodes that are lemons.
    lemon_failure_share
        Share of all failures that hit lemons.
    together_share
        Share of failures that hit further replicas too, e.g. of the same rack.
    together_count
        Replicas such a failure hits.
    repair_min
        Mean time until a failed node is a spare again (exponential); None: it is not known.

    Raises
    ------
    WorkbenchError
        If a number is out of its range.
    ValueError
        If the process is none of the four.
    """

    failure_interval_min: float = 18.0
    process: Process = "poisson"
    node_count: int = 12_288
    weibull_shape: float = 1.0
    is_aged: bool = False
    lemon_share: float = 0.0
    lemon_failure_share: float = 0.0
    together_share: float = 0.0
    together_count: int = 2
    repair_min: float | None = None

    def __post_init__(self) -> None:
        if self.process not in get_args(Process):
            msg = f"process must be one of {get_args(Process)}, not {self.process!r}"
            raise ValueError(msg)
        positive("failure_interval_min", self.failure_interval_min)
        in_range("weibull_shape", self.weibull_shape, least=0.1)
        for name in ("node_count", "together_count"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("lemon_share", "lemon_failure_share", "together_share"):
            in_range(name, getattr(self, name), least=0, most=1)
        if self.repair_min is not None:
            not_negative("repair_min", self.repair_min)
        if (self.lemon_share > 0) != (self.lemon_failure_share > 0):
            msg = "lemons need both lemon_share (of nodes) and lemon_failure_share (of failures)"
            raise WorkbenchError(msg)
        if self.lemon_share > 0 and not round(self.lemon_share * self.node_count):
            msg = f"lemon_share={self.lemon_share:g} of {self.node_count} nodes is not one node"
            raise WorkbenchError(msg)

    def node_weights(self) -> NDArray[np.float64]:
        """Return every node's share of the failures; lemons have the highest numbers."""
        lemons = round(self.lemon_share * self.node_count)
        if not lemons:
            return np.full(self.node_count, 1 / self.node_count)
        weights = np.full(
            self.node_count, (1 - self.lemon_failure_share) / max(self.node_count - lemons, 1)
        )
        weights[-lemons:] = self.lemon_failure_share / lemons
        normed: NDArray[np.float64] = weights / weights.sum()
        return normed


def failure_times(  # noqa: PLR0913 - every number of an experiment, by name
    process: FailureProcess,
    *,
    horizon_min: float,
    seed: int,
    runs: int = 20,
    replicas: int = 12,
    recovery_min: float | Mapping[str, float] = 10.0,
    recovery_spread: float = 0.0,
    warm_up_min: float = 0.0,
) -> pd.DataFrame:
    """Draw when nodes fail and how long each recovery takes, over many histories.

    Parameters
    ----------
    process
        How often nodes fail.
    horizon_min
        Length of every run, in minutes.
    seed
        Seed of all that is random; the same seed gives the same table.
    runs
        Histories to draw.
    replicas
        Data-parallel replicas; nodes belong to them in order, in equal parts.
    recovery_min
        Mean recovery in minutes; a number, or minutes by phase: ``"detection"``, ``"allocation"``,
        ``"NCCL init"``, ``"checkpoint load"``, ``"first step"``, ``"recovery"`` (the rest).
    recovery_spread
        Standard deviation of the logarithm of every phase (lognormal, mean kept); 0: none.
    warm_up_min
        How long before the run failures begin; what they still cost within it counts. With
        at least the recovery, a run is a segment of an endless history.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_TIMES`, in order of run and time. The last row of
        every run is a failure beyond the horizon: so a run without any is there too.

    Raises
    ------
    WorkbenchError
        If a number is out of range, a phase is unknown, or more than 10 million failures
        would be drawn.

    Notes
    -----
    A Weibull node with mean gap *m* has scale ``m / gamma(1 + 1/k)``; if aged, its first gap
    is the residual ``U scale G^(1/k)`` with G from a gamma distribution of shape ``1 + 1/k``.

    Examples
    --------
    >>> drawn = failure_times(FailureProcess(), horizon_min=1440, seed=1, runs=2)
    >>> drawn.groupby("run")["time_min"].max().ge(1440).tolist()
    [True, True]
    """
    positive("horizon_min", horizon_min)
    for name, value in (("recovery_spread", recovery_spread), ("warm_up_min", warm_up_min)):
        not_negative(name, value)
    for name, value in (("runs", runs), ("replicas", replicas)):
        whole_number(name, value, least=1)
    if replicas > process.node_count:
        msg = f"{process.node_count} nodes cannot form {replicas} replicas"
        raise WorkbenchError(msg)
    _refuse_more(runs * (horizon_min + warm_up_min) / process.failure_interval_min)
    phases = _phases(recovery_min)
    rng = np.random.default_rng(seed)
    table = _strikes(process, rng, runs, horizon_min + warm_up_min)
    table["time_min"] -= warm_up_min
    replica = (table["node"] * replicas // process.node_count).astype("Int32")
    # All of them, however many a job has that these failures are replayed with.
    table["replica"] = replica if replicas > 1 else pd.array([pd.NA] * len(table), dtype="Int32")
    table["wait_min"] = 0.0
    for phase, column in RESTART_PHASES.items():
        mean = phases.get(phase, 0.0)
        noise = rng.standard_normal(len(table)) if recovery_spread and mean else 0.0
        # Less half the variance in the exponent, so that the lognormal keeps its mean.
        table[column] = mean * np.exp(recovery_spread * noise - recovery_spread**2 / 2 * bool(mean))
    if process.process == "renewal":
        table = _after_recovery(table, horizon_min)
    repair = process.repair_min
    table["repair_min"] = np.nan if repair is None else rng.exponential(repair, len(table))
    table["is_follow_on"] = False
    return FAILURE_TIMES.of(_together(table, process, rng, replicas), {"synthetic": True})


def slow_times(
    *,
    per_day: float,
    dur_min: float,
    speed_ratio: float,
    horizon_min: float,
    seed: int,
    runs: int = 20,
) -> pd.DataFrame:
    """Draw when stragglers slow the whole job down.

    Parameters
    ----------
    per_day
        Stragglers per day of the job.
    dur_min
        How long each lasts, in minutes.
    speed_ratio
        Speed of the job meanwhile, 1 is full speed.
    horizon_min
        Length of every run, in minutes.
    seed
        Seed of all that is random.
    runs
        Histories to draw.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SLOW_TIMES`: ``run``, ``start_min``, ``dur_min``,
        ``speed_ratio``.

    Raises
    ------
    WorkbenchError
        If a number is out of range.

    Examples
    --------
    >>> slow = slow_times(per_day=1, dur_min=30, speed_ratio=0.8, horizon_min=14400, seed=1, runs=1)
    >>> float(slow["speed_ratio"].max())
    0.8
    """
    positive("horizon_min", horizon_min)
    whole_number("runs", runs, least=1)
    not_negative("per_day", per_day)
    not_negative("dur_min", dur_min)
    in_range("speed_ratio", speed_ratio, least=0, most=1)
    _refuse_more(runs * per_day * horizon_min / 1440, "stragglers")
    rng = np.random.default_rng([seed, 5])
    counts = rng.poisson(per_day * horizon_min / 1440, runs)
    run = np.repeat(np.arange(runs, dtype=np.int32), counts)
    start = rng.random(len(run)) * horizon_min
    table = pd.DataFrame({"run": run, "start_min": start})
    table = table.assign(dur_min=float(dur_min), speed_ratio=float(speed_ratio))
    return SLOW_TIMES.check(table.sort_values(["run", "start_min"], ignore_index=True))


def _strikes(
    process: FailureProcess, rng: np.random.Generator, runs: int, span: float
) -> pd.DataFrame:
    """Return run, time and node of every failure, and of one beyond the end of every run."""
    run, time, node = _struck(process, rng, runs, span)
    run, node = np.append(run, np.arange(runs)), np.append(node, np.zeros(runs, dtype=np.int64))
    time = np.append(time, span + rng.exponential(process.failure_interval_min, runs))
    # lexsort sorts by its last key first: by run, then by time.
    order = np.lexsort((time, run))
    return pd.DataFrame(
        {"run": run[order].astype(np.int32), "time_min": time[order], "node": node[order]}
    )


def _struck(
    process: FailureProcess, rng: np.random.Generator, runs: int, span: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    if process.process == "weibull":
        return _weibull(process, rng, runs, span)
    mean = process.failure_interval_min
    if process.process == "interval":
        first = rng.random(runs) * mean
        count = np.ceil((span - first) / mean).astype(np.int64)
        run = np.repeat(np.arange(runs), count)
        nth = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
        time = first[run] + nth * mean
    else:
        run = np.repeat(np.arange(runs), rng.poisson(span / mean, runs))
        time = rng.random(len(run)) * span
    if process.lemon_share:
        weights = np.cumsum(process.node_weights())
        node = np.searchsorted(weights, rng.random(len(run)) * weights[-1], side="right")
        # A draw of exactly the last weight would lie beyond the last node.
        node = np.minimum(node, process.node_count - 1)
    else:
        node = rng.integers(0, process.node_count, len(run))
    return run, time, node


def _weibull(
    process: FailureProcess, rng: np.random.Generator, runs: int, span: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Let every node renew itself: all clocks move on by one gap at a time."""
    shape = process.weibull_shape
    _refuse_more(runs * process.node_count, "clocks of nodes")
    # Nodes that never fail have a clock beyond every horizon.
    mean = process.failure_interval_min / np.maximum(process.node_weights(), 1e-200)
    scale = np.tile(mean / math.gamma(1 + 1 / shape), runs)
    lane = np.arange(len(scale))
    clock = scale * rng.weibull(shape, len(scale))
    if process.is_aged:
        residual = rng.gamma(1 + 1 / shape, 1, len(scale)) ** (1 / shape)
        clock = rng.random(len(scale)) * scale * residual
    rounds: list[tuple[NDArray[Any], NDArray[Any]]] = []
    total = 0
    while True:
        kept = clock < span
        lane, clock = lane[kept], clock[kept]
        if not len(lane):
            break
        rounds.append((lane, clock))
        total += len(lane)
        _refuse_more(total)
        clock = clock + scale[lane] * rng.weibull(shape, len(lane))
    lanes = np.concatenate([values for values, _ in rounds] or [np.zeros(0, dtype=np.int64)])
    times = np.concatenate([values for _, values in rounds] or [np.zeros(0)])
    return lanes // process.node_count, times, lanes % process.node_count


def _after_recovery(table: pd.DataFrame, horizon: float) -> pd.DataFrame:
    """Let nothing fail during a recovery: clocks of failures stand still meanwhile."""
    recovery = table[list(RESTART_PHASES.values())].sum(axis=1)
    before = recovery.groupby(table["run"]).cumsum() - recovery
    table = table.assign(time_min=table["time_min"] + before)
    beyond = ~table["run"].duplicated(keep="last")
    return table[(table["time_min"] < horizon) | beyond].reset_index(drop=True)


def _together(
    table: pd.DataFrame, process: FailureProcess, rng: np.random.Generator, replicas: int
) -> pd.DataFrame:
    extra = min(int(process.together_count), replicas) - 1
    if not process.together_share or extra < 1:
        return table
    hit = table[rng.random(len(table)) < process.together_share]
    more = pd.concat([hit] * extra, ignore_index=True)
    step = np.repeat(np.arange(1, extra + 1), len(hit))
    more["replica"] = (more["replica"] + step) % replicas
    more = more.assign(repair_min=np.nan, is_follow_on=True)
    table, more = table.astype({"node": "Int64"}), more.astype({"node": "Int64"})
    more["node"] = pd.array([pd.NA] * len(more), dtype="Int64")
    rows = pd.concat([table, more], ignore_index=True)
    return rows.sort_values(["run", "time_min", "is_follow_on"], ignore_index=True, kind="stable")


def _phases(recovery: float | Mapping[str, float]) -> dict[str, float]:
    phases = dict(recovery) if isinstance(recovery, Mapping) else {"recovery": recovery}
    if unknown := [name for name in phases if name not in RESTART_PHASES]:
        msg = f"recovery_min has no phase {unknown}; there are {list(RESTART_PHASES)}"
        raise WorkbenchError(msg)
    for name, minutes in phases.items():
        not_negative(f"recovery_min[{name!r}]", minutes)
    return {name: float(minutes) for name, minutes in phases.items()}


def _refuse_more(count: float, what: str = "failures") -> None:
    if count > _MOST_FAILURES:
        msg = f"about {count:,.0f} {what}; draw at most {_MOST_FAILURES:,}: fewer or shorter runs"
        raise WorkbenchError(msg)
