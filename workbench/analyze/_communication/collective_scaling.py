"""Collectives from one rank to hundreds of thousands: time by algorithm on a network of levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import datasets
from workbench.analyze._lib.rows import bus_factor
from workbench.errors import PerformanceModelError
from workbench.tables import COLLECTIVE_SCALING, NETWORK_LEVELS

Floats = NDArray[np.float64]
_PARTIAL = "groups are not all full, and counted as if: ranks of the last one send more far away"
_PARTIAL_SHARE = 0.1
_OF_ALGORITHM = (
    "modelled_ns", "latency_ns", "control_ns", "transfer_ns", "bus_gb_per_s", "slowest_level",
    "is_chosen",
)  # fmt: skip


def network_levels() -> pd.DataFrame:
    """Return the levels of a published network, to start from: change its cells to yours.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.NETWORK_LEVELS`: ``level``, ``group_count``,
        ``latency_us``, ``gb_per_s``, ``oversubscription_ratio``. Relative latencies and
        oversubscription were printed; microseconds and sizes of groups are assumed, as the
        bundled ``published/network_levels.csv`` says.

    References
    ----------
    NCCLX, arXiv:2510.20171v4, figure 7.
    """
    table = pd.read_csv(datasets.path("published") / "network_levels.csv")
    return NETWORK_LEVELS.check(NETWORK_LEVELS.cast(table))


def collective_scaling(
    rank_counts: Sequence[int],
    sizes_bytes: Sequence[int],
    *,
    collective: str = "all-reduce",
    levels: pd.DataFrame | None = None,
    algorithms: Sequence[str] | None = None,
    control_us: float = 1.5,
) -> pd.DataFrame:
    """Model the time of a collective by algorithm, and choose the fastest.

    Parameters
    ----------
    rank_counts, sizes_bytes
        Every number of ranks with every size, as nccl-tests counts sizes: what a rank reduces,
        all that it gathers, all that it sends in an all-to-all, its own share included.
    collective
        ``"all-reduce"``, ``"all-gather"``, ``"reduce-scatter"`` or ``"all-to-all"``.
    levels
        Table :data:`workbench.tables.NETWORK_LEVELS`; by default that of :func:`network_levels`.
    algorithms
        Those to compare, of :data:`workbench.analyze.COLLECTIVE_ALGORITHMS`; all by default. A
        library has some of them only: NCCL has ring, tree, PAT and direct.
    control_us
        Time of the control messages to one peer of an all-to-all. By default what makes them
        2.5 times the puts of 8 MB among 256 ranks, as printed for NCCLX.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_SCALING`. All of it is modelled, nothing measured.

    Raises
    ------
    PerformanceModelError
        If a number makes no sense, a name is unknown, or the levels hold fewer ranks.

    Notes
    -----
    With n ranks, size S, n_l units at level l, latency a_l, bandwidth b_l after oversubscription,
    S_l = S / (n_0 ... n_(l-1)), and r = 2 for all-reduce, else 1; a and b are those of the
    slowest level in use, P_l the ranks below one unit of level l, T the time of control:

    ================== ==================================================================
    ring               r (n - 1) (a + S / (n b)); all-to-all: n (n - 1) / 2 such steps
    hierarchical ring  sum of r (n_l - 1) (a_l + S_l / (n_l b_l))
    recursive doubling sum of r (ceil(log2 n_l) a_l + (1 - 1 / n_l) S_l / b_l)
    tree               in the node as hierarchical ring, beyond it 2 ceil(log2 n_l) a_l each
                       and 2 S_1 / b once: two trees, pipelined without end
    PAT                ceil(log2 n) a + (1 - 1 / n) S / b
    direct             a + (n - 1) T + sum of (P_l - P_(l-1)) S / (n b_l)
    two-phase          a_0 + a + (P_0 - 1 + n / P_0 - 1) T + (1 - 1 / P_0) S / b_0 + as direct
                       beyond the node
    Bruck              ceil(log2 n) (a + S / (2 b)), exact for powers of 2
    ================== ==================================================================

    Messages do not slow one another beyond the oversubscription; reductions in switches
    (NVLS, SHARP) and the time to compute a sum are not in it.

    References
    ----------
    Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49; Bruck et al., IEEE TPDS 8 (1997) 1143;
    NCCLX, arXiv:2510.20171v4, table 2 (control messages).

    Examples
    --------
    >>> table = collective_scaling([8, 98_304], [64_000_000])
    >>> best = table[table["is_chosen"]]
    >>> list(zip(best["rank_count"], best["algorithm"], strict=True))
    [(8, 'recursive doubling'), (98304, 'recursive doubling')]
    """
    known = COLLECTIVE_ALGORITHMS.get(collective, ())
    chosen = known if algorithms is None else [name for name in known if name in algorithms]
    every = {name for names in COLLECTIVE_ALGORITHMS.values() for name in names}
    if not chosen or (algorithms is not None and not set(algorithms) <= every):
        msg = f"no algorithm of {algorithms} for {collective!r}; known: {COLLECTIVE_ALGORITHMS}"
        raise PerformanceModelError(msg)
    network = network_levels() if levels is None else _checked(levels)
    sizes = _whole("sizes_bytes", sizes_bytes, 0).astype(np.float64)
    if not (np.isfinite(control_us) and control_us >= 0):
        msg = f"control_us is {control_us}; it must be a time from 0"
        raise PerformanceModelError(msg)
    parts = [
        _compared(collective, chosen, _used(network, int(ranks)), sizes, control_us / 1e6)
        for ranks in _whole("rank_counts", rank_counts, 1)
    ]
    table = pd.DataFrame(
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    )
    return COLLECTIVE_SCALING.check(COLLECTIVE_SCALING.cast(table))


class _Used(NamedTuple):
    """The levels that some ranks use: names, units, latency, bandwidth, ranks below a unit."""

    ranks: int
    names: list[str]
    units: Floats
    latency_s: Floats
    bytes_per_s: Floats
    below: Floats

    @property
    def share(self) -> Floats:
        """Of the buffer: what is left for a rank at each level."""
        return np.asarray(1 / np.cumprod([1.0, *self.units[:-1]]))

    @property
    def peers(self) -> Floats:
        """How many peers of a rank share each level with it and none before."""
        return np.diff(np.minimum(np.append(1.0, self.below), self.ranks))

    def at_slowest(self, latencies: float, volume: float) -> tuple[Floats, Floats]:
        """Put all latencies and all volume on the slowest levels."""
        levels = np.arange(len(self.units))
        slow = (levels == self.latency_s.argmax(), levels == self.bytes_per_s.argmin())
        return latencies * slow[0] * self.latency_s, volume * slow[1] / self.bytes_per_s


# Seconds of latency and seconds per byte of the size, by level, and the peers to control.
_Cost = tuple[Floats, Floats, float]


def _ring(used: _Used, rounds: int) -> _Cost:
    n = used.ranks
    # Of an all-to-all, every share is forwarded from rank to rank.
    steps = rounds * (n - 1) if rounds else n * (n - 1) / 2
    return *used.at_slowest(steps, steps / n), 0.0


def _hierarchical_ring(used: _Used, rounds: int) -> _Cost:
    steps = rounds * (used.units - 1)
    return steps * used.latency_s, steps / used.units * used.share / used.bytes_per_s, 0.0


def _recursive_doubling(used: _Used, rounds: int) -> _Cost:
    _, transfer, _ = _hierarchical_ring(used, rounds)
    return rounds * _log2(used.units) * used.latency_s, transfer, 0.0


def _tree(used: _Used, rounds: int) -> _Cost:
    latency, transfer, _ = _hierarchical_ring(used, rounds)
    beyond = np.arange(len(used.units)) > 0
    slow = beyond & (used.bytes_per_s == used.bytes_per_s[1:].min(initial=np.inf))
    # Only one of several equally slow levels, since all carry the same bytes at the same time.
    slow &= np.cumsum(slow) == 1
    trees = rounds * _log2(used.units) * used.latency_s
    whole = slow * rounds / used.units[0] / used.bytes_per_s
    return np.where(beyond, trees, latency), np.where(beyond, whole, transfer), 0.0


def _pat(used: _Used, _rounds: int) -> _Cost:
    return *used.at_slowest(float(_log2(used.ranks)), 1 - 1 / used.ranks), 0.0


def _direct(used: _Used, _rounds: int) -> _Cost:
    latency, _ = used.at_slowest(1.0, 0.0)
    return latency, used.peers / used.ranks / used.bytes_per_s, used.ranks - 1.0


def _two_phase(used: _Used, _rounds: int) -> _Cost:
    latency, transfer, _ = _direct(used, 0)
    inside = used.units[0]
    local = np.arange(len(used.units)) == 0
    if len(local) > 1:
        latency = latency + local * used.latency_s
    first = (1 - 1 / inside) / used.bytes_per_s
    return latency, np.where(local, first, transfer), inside + np.ceil(used.ranks / inside) - 2


def _bruck(used: _Used, _rounds: int) -> _Cost:
    steps = float(_log2(used.ranks))
    return *used.at_slowest(steps, steps / 2), 0.0


def _log2(count: Floats | int) -> Floats:
    return np.ceil(np.log2(count))


_ROUNDS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 0}
_ONE_ROUND = ("ring", "hierarchical ring", "PAT", "recursive doubling")
COLLECTIVE_ALGORITHMS = {
    "all-reduce": ("ring", "hierarchical ring", "tree", "recursive doubling"),
    "all-gather": _ONE_ROUND,
    "reduce-scatter": _ONE_ROUND,
    "all-to-all": ("ring", "direct", "two-phase", "Bruck"),
}
_COSTS: dict[str, Callable[[_Used, int], _Cost]] = {
    "ring": _ring,
    "hierarchical ring": _hierarchical_ring,
    "recursive doubling": _recursive_doubling,
    "tree": _tree,
    "PAT": _pat,
    "direct": _direct,
    "two-phase": _two_phase,
    "Bruck": _bruck,
}


def _compared(
    collective: str, algorithms: Sequence[str], used: _Used, sizes: Floats, control_s: float
) -> dict[str, Any]:
    """Return the columns for one number of ranks: by size, then by algorithm."""
    latency, control, transfer, names = [], [], [], []
    for algorithm in algorithms:
        costs = (np.zeros(1), np.zeros(1), 0.0)
        if used.ranks > 1:
            costs = _COSTS[algorithm](used, _ROUNDS[collective])
        by_level = costs[0] + sizes[:, None] * costs[1]
        names.append(np.array(used.names or [""], dtype=object)[by_level.argmax(axis=1)])
        latency.append(np.full(len(sizes), costs[0].sum()))
        control.append(np.full(len(sizes), costs[2] * control_s))
        transfer.append(sizes * costs[1].sum())
    parts = np.stack([latency, control, transfer]).transpose(0, 2, 1) * 1e9
    total = parts.sum(axis=0)
    # Of equally fast ones the first is chosen.
    is_chosen = np.arange(len(algorithms)) == total.argmin(axis=1)[:, None]
    bus = np.full(total.shape, np.nan)
    factor = bus_factor(collective, used.ranks) or 0.0
    np.divide(sizes[:, None] * factor, total, out=bus, where=total > 0)
    room = float(used.units.prod()) / used.ranks
    columns = [total, *parts, bus, np.stack(names).T, is_chosen]
    shared = {"collective": collective, "rank_count": used.ranks}
    shared["doubt"] = _PARTIAL if room > 1 + _PARTIAL_SHARE else ""
    table = dict(zip(_OF_ALGORITHM, (column.ravel() for column in columns), strict=True))
    table["algorithm"] = np.tile(np.array(algorithms, dtype=object), len(sizes))
    table["size_bytes"] = np.repeat(sizes, len(algorithms))
    return table | {name: np.full(total.size, value) for name, value in shared.items()}


def _used(levels: pd.DataFrame, ranks: int) -> _Used:
    """Fill the levels from the innermost on."""
    below, counts = [1], []
    for limit in levels["group_count"].tolist():
        if below[-1] >= ranks:
            break
        left = -(-ranks // below[-1])
        counts.append(left if pd.isna(limit) else min(int(limit), left))
        below.append(below[-1] * counts[-1])
    if below[-1] < ranks:
        msg = (
            f"the levels hold {below[-1]:,} ranks, not {ranks:,}; leave the last group_count empty"
        )
        raise PerformanceModelError(msg)
    rows = levels.iloc[: len(counts)]
    rate = (rows["gb_per_s"] / rows["oversubscription_ratio"]).to_numpy(np.float64) * 1e9
    latency = rows["latency_us"].to_numpy(np.float64) / 1e6
    numbers = (np.array(counts, np.float64), latency, rate, np.array(below[1:], np.float64))
    return _Used(ranks, rows["level"].tolist(), *numbers)


def _checked(levels: pd.DataFrame) -> pd.DataFrame:
    NETWORK_LEVELS.check(levels, "levels")
    if levels.empty or not (levels["gb_per_s"] > 0).all():
        msg = "levels needs a row, and gb_per_s above 0 in each; see analyze.network_levels()"
        raise PerformanceModelError(msg)
    if levels["group_count"].iloc[:-1].isna().any():
        msg = "levels: only the last level may leave group_count empty; say how many units it has"
        raise PerformanceModelError(msg)
    return levels


def _whole(name: str, values: Sequence[int], least: int) -> NDArray[np.int64]:
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    bad = ~(np.isfinite(numbers) & (numbers >= least) & (numbers == np.floor(numbers)))
    if not len(numbers) or bad.any():
        shown = f"{numbers[bad][0]:g}" if len(numbers) else "empty"
        msg = f"{name} is {shown}; it must hold whole numbers from {least}, e.g. [{max(least, 8)}]"
        raise PerformanceModelError(msg)
    return numbers.astype(np.int64)
