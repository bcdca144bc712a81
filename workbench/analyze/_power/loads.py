"""Loads to manage: what meters show, with floors, priorities and what a cap would cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._shared.numbers import in_range, positive, whole_number
from workbench.analyze._power.curve import extended_curve, published_curve
from workbench.analyze._power.grid import by_entity
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, POWER_GRID, POWER_LOADS, POWER_TOPOLOGY

_ASSUMED_GPUS, _ASSUMED_GPU_W = 8, 700.0
_FEED = "feed"


def power_loads(  # noqa: PLR0913 - each is a fact that meters do not state
    grid: pd.DataFrame,
    *,
    steps: pd.DataFrame | None = None,
    gpu_count: int | None = None,
    gpu_w: float | None = None,
    floor_share: float = 0.7,
    smoothing_share: float = 0.0,
    curve: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Take what meters show as the loads of one job, and say what a cap would cost.

    A power limit acts on GPUs only: what a node draws beside them cannot be cut. Change columns for
    other jobs and priorities: ``loads.assign(job=..., priority=..., step_s=...)``.

    Parameters
    ----------
    grid
        Table :data:`workbench.tables.POWER_GRID` of meters of one level, GPUs or nodes.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS` of the job; without it, or where it is empty,
        the length of a step is missing.
    gpu_count
        GPUs behind each meter; 8 are assumed by default, and the doubt says so.
    gpu_w
        Rated power of a GPU, in W: of a node's peak, at most so much per GPU can be cut. Not
        needed for meters of GPUs; 700 W are assumed by default, and the doubt says so.
    floor_share
        Smallest limit, as a share of the power of GPUs at the peak of their meter.
    smoothing_share
        Floor of power smoothing, as a share of the peak of each meter
        (:class:`workbench.analyze.SmoothingPlan`): idle cycles fill what is below it, and no cap
        may go below it.
    curve
        Table :data:`workbench.tables.POWER_CURVE` of one configuration: speed against limit. By
        default the published one of GB200.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_LOADS`: all of one job with the same priority;
        ``step_s`` is the median step. Meters that never read are left out, and the doubt says so.

    Raises
    ------
    WorkbenchError
        If no meter reads, the grid is uneven, the curve is none or several, or a number makes no
        sense.

    Notes
    -----
    With peak P of a meter and ``G = min(P, GPUs x gpu_w)`` of it in GPUs, the floor is
    ``P - (1 - floor_share) G``, and ``slowdown_per_w = (1 - speed at floor_share) / (P - floor)``:
    the straight line from the peak to the floor. Speed bends down, so caps in between cost less
    than that. Below the limits of the curve, lost speed grows with the square.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": [0, 1], "entity": ["n1", "n1"], "power_w": [5e3, 7e3]})
    >>> cells = cells.assign(covered_share=1.0).astype({"entity": "category"})
    >>> power_loads(cells, gpu_count=8, gpu_w=700, floor_share=0.75)["floor_w"].tolist()
    [5600.0, 5600.0]
    """
    POWER_GRID.check(grid)
    in_range("floor_share", floor_share, least=0, most=1)
    in_range("smoothing_share", smoothing_share, least=0, most=1)
    grid, silent_count = _heard(grid)
    times, power = by_entity(grid)
    lost_share, doubts = _lost_share(curve, floor_share)
    if silent_count:
        doubts.append(f"{silent_count:,} meters without readings left out")
    count, gpu_w, assumed = _gpus(gpu_count, gpu_w)
    peak = np.nanmax(power, axis=1)
    in_gpus = np.minimum(peak, count * gpu_w)
    held = smoothing_share * peak
    span = (1 - floor_share) * in_gpus
    per_w = np.divide(lost_share, span, out=np.zeros_like(span), where=span > 0)
    floor = np.maximum(peak - span, held)
    table = grid[["time_ns", "entity"]].assign(
        demand_w=np.maximum(power, held[:, None]).ravel(),
        floor_w=np.repeat(floor, times.size), job="job", priority=0, gpu_count=count,
        slowdown_per_w=np.repeat(per_w, times.size), step_s=_step_s(steps),
        doubt="; ".join([*assumed, *doubts]),
    )  # fmt: skip
    return POWER_LOADS.of(table)


def _step_s(steps: pd.DataFrame | None) -> float:
    if steps is None or steps.empty:
        return np.nan
    LOGGED_STEPS.check(steps)
    return float((steps["end_ns"] - steps["start_ns"]).median() / 1e9)


def _heard(grid: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Leave out meters that never read, and count them."""
    reads = grid["power_w"].notna().groupby(grid["entity"], observed=True).any()
    if not reads.any():
        msg = "no meter of the grid has a reading; pass analyze.power_grid of a log with power"
        raise WorkbenchError(msg)
    heard = grid[grid["entity"].isin(reads.index[reads])]
    entity = heard["entity"].cat.remove_unused_categories()
    return heard.assign(entity=entity), int((~reads).sum())


def _lost_share(curve: pd.DataFrame | None, floor_share: float) -> tuple[float, list[str]]:
    """Return the speed lost at the floor, and why it is in doubt."""
    if floor_share == 1:
        return 0.0, []
    known = published_curve() if curve is None else curve
    if known.groupby(["gpu", "job", "configuration"]).ngroups != 1:
        msg = "curve must hold one GPU, job and configuration; choose its rows"
        raise WorkbenchError(msg)
    limit = floor_share * float(known["limit_w"].max())
    rows = extended_curve(known, limit, method="quadratic") if limit > 0 else known.iloc[:0]
    if rows.empty:
        msg = "floor_share is 0, a GPU without power; give the smallest limit it can be set to"
        raise WorkbenchError(msg)
    (row,) = rows[rows["limit_w"] == limit].to_dict("records")
    doubts = ["speed by limit is a published curve"] if curve is None else []
    if row["is_extrapolated"]:
        doubts.append(f"speed at {100 * floor_share:g} % of the power is extrapolated")
    # Noise of a sweep can make a capped GPU faster, which no cap does.
    return max(1 - float(row["speed_ratio"]), 0.0), doubts


def _gpus(gpu_count: int | None, gpu_w: float | None) -> tuple[int, float, list[str]]:
    count = _ASSUMED_GPUS if gpu_count is None else whole_number("gpu_count", gpu_count, least=1)
    doubts = [f"{count} GPUs per meter assumed"] if gpu_count is None else []
    if gpu_w is None and count == 1:
        return count, np.inf, doubts
    if gpu_w is None:
        doubts.append(f"{_ASSUMED_GPU_W:g} W per GPU assumed")
    return count, _ASSUMED_GPU_W if gpu_w is None else positive("gpu_w", gpu_w), doubts


def single_feed(
    grid: pd.DataFrame, *, limit_w: float | None = None, level: str = "node"
) -> pd.DataFrame:
    """Make a delivery tree of one feed over all meters, for who has no topology available.

    Parameters
    ----------
    grid
        Table :data:`workbench.tables.POWER_GRID`.
    limit_w
        What the feed allows, in W; without it nothing is limited until a
        :class:`workbench.analyze.FeedShortage` does so.
    level
        Level of the meters, as in a topology: gpu, node, rack.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOPOLOGY`: ``entity``, ``parent``, ``level``,
        ``nameplate_w``, ``limit_w``; the root is called ``feed``. It has no ``loss_share``.

    Raises
    ------
    WorkbenchError
        If no meter reads, one has the name of the root, or the limit is not positive.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": [0], "entity": ["n1"], "power_w": [5e3]})
    >>> cells = cells.assign(covered_share=1.0).astype({"entity": "category"})
    >>> single_feed(cells, limit_w=4e3)["parent"].tolist()[1:]
    ['feed']
    """
    POWER_GRID.check(grid)
    names = list(_heard(grid)[0]["entity"].cat.categories)
    if _FEED in names:
        msg = f"a meter is called {_FEED!r}, as the root is; make a topology of your own"
        raise WorkbenchError(msg)
    limit = np.nan if limit_w is None else positive("limit_w", limit_w)
    table = pd.DataFrame({
        "entity": [_FEED, *names], "parent": [None, *[_FEED] * len(names)],
        "level": ["feed", *[level] * len(names)], "nameplate_w": np.nan,
        "limit_w": [limit, *[np.nan] * len(names)],
    })  # fmt: skip
    return POWER_TOPOLOGY.of(table)
