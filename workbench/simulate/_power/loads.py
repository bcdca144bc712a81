"""A made delivery tree with jobs on it, and one feed that becomes short by a known share."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from workbench._shared.numbers import in_range, whole_number
from workbench.tables import POWER_LOADS, POWER_TOPOLOGY

_LEVELS = ("utility", "msb", "switchboard", "row", "rack", "node", "gpu")
_BRANCHES, _GPUS = 2, 8
# Of what an entity draws, lost before what it feeds; in a node: CPUs, fans, network cards.
_LOSS = {"utility": 0.02, "msb": 0.01, "switchboard": 0.01, "row": 0.005, "rack": 0.02, "node": 0.2}
_GPU_W, _IDLE_SHARE, _FLOOR_SHARE, _SPREAD_SHARE = 650.0, 0.35, 0.6, 0.02
# Of the speed: of the large job, and of those of the first and the second row of a switchboard.
_LOST_AT_FLOOR = 0.25, 0.1, 0.2
_ROOM = 1.05  # limits of feeds that are not short, over the peak below them
_CELL_S, _CELLS, _FIRST, _LAST = 30, 60, 20, 40
_SHORT_ROW = "msb1/sb1/row1"
_STEP_S = 10.0, 2.0  # of the large job, and of the others


def power_loads(*, shortage_share: float = 0.1, seed: int = 7) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the loads of 256 GPUs on a delivery tree whose one row is short for ten minutes.

    Half of the GPUs, one node of two in every rack, train one model together. The others run a
    job per row; in ``msb1/sb1/row1`` they are idle but for minutes 10 to 20, when they make the
    row draw more than its limit.

    Parameters
    ----------
    shortage_share
        What is missing then, of the peak of the row: the truth to find. No other feed is ever
        short. Up to 0.19 is in the slack of the job of that row alone.
    seed
        Seed of the spread of power over GPUs.

    Returns
    -------
    tuple
        Tables :data:`workbench.tables.POWER_LOADS` and :data:`workbench.tables.POWER_TOPOLOGY`:
        half an hour in cells of 30 s, and utility, MSBs, switchboards, rows, racks, nodes, GPUs
        with limits and losses. Synthetic.

    Raises
    ------
    WorkbenchError
        If the share is not between 0 and 0.3, or the seed is not a whole number.

    Examples
    --------
    >>> loads, topology = power_loads()
    >>> loads["entity"].nunique(), len(topology)
    (256, 319)
    """
    in_range("shortage_share", shortage_share, least=0, most=0.3)
    rng = np.random.default_rng(whole_number("seed", seed, least=0))
    topology = _tree()
    gpus = topology.loc[topology["level"] == "gpu", "entity"].to_numpy()
    trains = np.array(["/node1/" in name for name in gpus])
    rows = np.array([name.rsplit("/", 3)[0] for name in gpus])
    is_short = ~trains & (rows == _SHORT_ROW)
    share = np.ones((len(gpus), _CELLS))
    share[is_short] = _IDLE_SHARE
    share[is_short, _FIRST:_LAST] = 1
    rated = _GPU_W * (1 + _SPREAD_SHARE * rng.uniform(-1, 1, len(gpus)))
    demand = rated[:, None] * share
    job = np.where(trains, "pretraining", np.char.add("job of ", rows.astype(str)))
    span = (1 - _FLOOR_SHARE) * rated
    is_first = np.char.endswith(rows.astype(str), "1")
    lost = np.where(trains, _LOST_AT_FLOOR[0], np.where(is_first, *_LOST_AT_FLOOR[1:]))
    columns = {
        "floor_w": _FLOOR_SHARE * rated, "job": job.astype(object), "priority": trains.astype(int),
        "slowdown_per_w": lost / span, "step_s": np.where(trains, *_STEP_S),
    }  # fmt: skip
    loads = pd.DataFrame({name: np.repeat(values, _CELLS) for name, values in columns.items()})
    codes = np.repeat(np.arange(len(gpus)), _CELLS)
    loads = loads.assign(
        time_ns=np.tile(np.arange(_CELLS, dtype=np.int64) * _CELL_S * 10**9, len(gpus)),
        entity=pd.Categorical.from_codes(codes, categories=pd.Index(gpus)),
        demand_w=demand.ravel(), gpu_count=1, doubt="",
    )  # fmt: skip
    peaks = _peaks(topology, dict(zip(gpus, demand, strict=True)))
    limits = {name: _ROOM * peak for name, peak in peaks.items()}
    limits[_SHORT_ROW] = (1 - shortage_share) * peaks[_SHORT_ROW]
    topology["limit_w"] = topology["entity"].map(limits)
    return POWER_LOADS.of(loads), POWER_TOPOLOGY.of(topology)


def _tree() -> pd.DataFrame:
    counts = dict.fromkeys(_LEVELS[1:-1], _BRANCHES) | {"gpu": _GPUS}
    rows: list[tuple[str, str | None, str]] = [("utility", None, "utility")]
    names = [""]
    for level, count in counts.items():
        word = {"switchboard": "sb"}.get(level, level)
        children = []
        for name, number in product(names, range(1, count + 1)):
            child = f"{name}/{word}{number}".lstrip("/")
            rows.append((child, name or "utility", level))
            children.append(child)
        names = children
    table = pd.DataFrame(rows, columns=["entity", "parent", "level"])
    rated = table["level"].map({"gpu": _GPU_W})
    return table.assign(
        nameplate_w=rated, limit_w=np.nan, loss_share=table["level"].map(_LOSS).fillna(0.0)
    )


def _peaks(topology: pd.DataFrame, demand: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the highest draw of every feed, children first."""
    drawn: dict[str, np.ndarray] = dict(demand)
    for name, parent in zip(topology["entity"][::-1], topology["parent"][::-1], strict=True):
        loss = float(topology["loss_share"].to_numpy()[topology["entity"] == name][0])
        drawn[name] = drawn[name] / (1 - loss)
        if isinstance(parent, str):
            drawn[parent] = drawn.get(parent, 0) + drawn[name]
    return {name: float(np.max(watts)) for name, watts in drawn.items() if name not in demand}
