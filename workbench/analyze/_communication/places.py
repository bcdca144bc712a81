"""Collectives by place: inside a node, on one rail, over several, and across switches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import whole_number
from workbench.errors import WorkbenchError
from workbench.tables import (
    COLLECTIVE_BANDWIDTH,
    COLLECTIVE_SCOPES,
    COLLECTIVES,
    PLACE_BANDWIDTH,
    RANK_PLACES,
    RANKS,
)

INSIDE = "one node"
_SHOWN = 8
# Of a pair in such a group nothing can be told, and pairs grow as the square.
_MOST_NODES = 256
# torch.profiler.tensorboard_trace_handler names files <host>_<pid>.<time>.pt.trace.json.
_FILE_NAME = re.compile(r"(?:^|[/\\!])([^/\\!]+)_\d{2,}(?:\.\d{9,})?\.pt\.trace\.json(?:\.\w+)?$")
# People give these as worker_name, with the number of a rank in the place of the process.
_NO_HOSTS = re.compile(r"(?i)(?:global_?)?(?:rank|worker|gpu|process|trace|step|profile)s?[-_.]?")
OWN_HOST = "; every rank names another host, which a container may have made up"


def rank_places(ranks: pd.DataFrame) -> pd.DataFrame:
    """Read from the traces of a job on which node each rank ran.

    Host names are in exports of Nsight Systems, in metadata added with ``add_metadata("hostname",
    ...)`` and in the file names of ``torch.profiler.tensorboard_trace_handler``. None of these
    tells the rail or the switch: assign them as columns, or make the whole table yourself.

    Parameters
    ----------
    ranks
        Table :data:`workbench.tables.RANKS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RANK_PLACES`, one row per rank: ``rank``, ``node``, ``rail``
        and ``switch`` (both missing), ``basis``.

    Raises
    ------
    WorkbenchError
        If the traces of some ranks name no host.

    Examples
    --------
    >>> ranks = RANKS.empty().reindex(range(3)).assign(
    ...     rank=range(3), rank_source="trace", format="kineto", clock="epoch", event_count=0,
    ...     source=[f"gpu-{n // 2:02}_{412 + n}.1700000000000.pt.trace.json" for n in range(3)],
    ... )
    >>> rank_places(RANKS.of(ranks))["node"].tolist()
    ['gpu-00', 'gpu-00', 'gpu-01']
    """
    RANKS.check(ranks)
    stated = ranks["host"] if "host" in ranks else pd.Series(None, ranks.index, dtype=object)
    named = ranks["source"].map(_host_in_name)
    node = stated.astype(object).where(stated.notna(), named)
    if node.isna().any():
        unknown = ranks.loc[node.isna().to_numpy(), "rank"].tolist()
        msg = (
            f"the traces of {len(unknown):,} of {len(ranks):,} ranks name no host (ranks "
            f"{unknown[:_SHOWN]}); pass places= with a row per rank and its node"
        )
        raise WorkbenchError(msg)
    basis = np.where(stated.notna(), "host name in the trace", "host name in the file name")
    lone = OWN_HOST if len(ranks) > 1 and node.nunique() == len(ranks) else ""
    rows = {"rank": ranks["rank"], "node": node, "rail": pd.NA, "switch": None}
    table = pd.DataFrame(rows).assign(basis=[f"{text}{lone}" for text in basis])
    return RANK_PLACES.of(table.sort_values("rank", ignore_index=True))


def _host_in_name(source: str) -> str | None:
    match = _FILE_NAME.search(source)
    return match[1] if match and not _NO_HOSTS.fullmatch(match[1]) else None


class Network(NamedTuple):
    """Nodes by number, in order of their first rank, with the rail and switch of every rank."""

    node: dict[int, int]
    rail: dict[int, int]
    switch: dict[int, str | None]  # by number of the node
    names: list[str]
    has_rails: bool

    def scope(self, members: Iterable[int]) -> str:
        """Name the links that messages between these ranks need."""
        ranks = list(members)
        nodes = {self.node[rank] for rank in ranks}
        if len(nodes) == 1:
            return INSIDE
        if len({self.switch[node] for node in nodes}) > 1:
            return "across switches"
        if not self.has_rails:
            return "between nodes"
        return "one rail" if len({self.rail[rank] for rank in ranks}) == 1 else "several rails"


def network_of(ranks: Iterable[int], places: pd.DataFrame | None, gpus_per_node: int) -> Network:
    """Place ranks on nodes: by a table, or by their number on equal nodes."""
    per_node = whole_number("gpus_per_node", gpus_per_node, least=1)
    used = sorted(set(ranks))
    if places is None:
        node, rail = ({rank: divmod(rank, per_node)[at] for rank in used} for at in (0, 1))
        return Network(node, rail, dict.fromkeys(node.values()), [], has_rails=True)
    RANK_PLACES.check(places, "places")
    if lacking := sorted(set(used) - set(places["rank"].tolist())):
        msg = f"places has no row for ranks {lacking[:_SHOWN]} of the collectives; add them"
        raise WorkbenchError(msg)
    rows = places.sort_values("rank")
    number, names = pd.factorize(rows["node"].astype(object))
    order = rows.groupby("node").cumcount()
    rails = rows["rail"].astype("Int64").fillna(order)
    switches = rows["switch"].astype(object).where(rows["switch"].notna(), None)
    ranks_ = rows["rank"].tolist()
    return Network(
        dict(zip(ranks_, number.tolist(), strict=True)),
        dict(zip(ranks_, rails.astype("int64").tolist(), strict=True)),
        dict(zip(number.tolist(), switches, strict=True)),
        [str(name) for name in names],
        has_rails=bool(rows["rail"].notna().all()),
    )


def collective_scopes(
    collectives: pd.DataFrame, *, gpus_per_node: int = 8, places: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Add up collectives by the links they use: in one node, on one rail, over several, beyond.

    The duration of a kernel holds waiting for the last rank, so a late rank makes the links of all
    others look slow. Here only the shortest duration of each collective is transfer.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of :func:`workbench.analyze.collectives`.
    gpus_per_node
        Without ``places``: rank r is adapter (rail) r modulo this of node r divided by it.
    places
        Table :data:`workbench.tables.RANK_PLACES`, of :func:`rank_places` or your own.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_SCOPES`, most transfer first.
        ``attrs["left_out"]`` counts kernels without a match.

    Raises
    ------
    WorkbenchError
        If ``places`` lacks a rank, or ``gpus_per_node`` is not a whole number from 1.

    Notes
    -----
    Transfer of a collective is its number of ranks times the shortest of their durations, waiting
    the rest of their kernel time. Bus bandwidths are averaged with the transfer time as weight.
    """
    COLLECTIVES.check(collectives)
    rows = collectives[collectives["collective"].notna() & collectives["transfer_min_ns"].notna()]
    rows = rows.sort_values(["collective", "rank"])
    network = network_of(rows["rank"].tolist(), places, gpus_per_node)
    members = rows.groupby("collective")["rank"].agg(lambda ranks: ",".join(map(str, ranks)))
    single = rows.groupby("collective").agg(
        operation=("operation", "first"), rank_count=("rank", "size"), kernel_ns=("dur_ns", "sum"),
        least_ns=("transfer_min_ns", "first"), bus=("bus_gb_per_s", "first"),
        sizes=("size_bytes", "count"), size_bytes=("size_bytes", "mean"),
    )  # fmt: skip
    scopes = {ranks: network.scope(map(int, ranks.split(","))) for ranks in set(members)}
    single = single.assign(
        operation=single["operation"].astype(str), members=members, scope=members.map(scopes),
        transfer_ns=single["rank_count"] * single["least_ns"].astype("int64"),
        is_sized=(single["sizes"] == single["rank_count"]),
    )  # fmt: skip
    single["weight"] = single["transfer_ns"].where(single["bus"].notna(), 0).astype("float64")
    single["moved"] = (single["bus"].astype("Float64") * single["weight"]).astype("Float64")
    keys = ["scope", "operation"]
    table = single.groupby(keys, as_index=False).agg(
        collective_count=("members", "size"), group_count=("members", "nunique"),
        size_bytes=("size_bytes", "sum"), kernel_ns=("kernel_ns", "sum"),
        transfer_ns=("transfer_ns", "sum"), is_sized=("is_sized", "all"),
        weight=("weight", "sum"), moved=("moved", "sum"),
    )  # fmt: skip
    table["size_bytes"] = table["size_bytes"].round().astype("Int64").where(table["is_sized"])
    total = table["kernel_ns"].where(table["kernel_ns"] > 0, 1)
    table["waiting_share"] = (1 - table["transfer_ns"] / total).clip(0, 1)
    table.loc[table["kernel_ns"] == 0, "waiting_share"] = 0.0
    weight = table["weight"].astype("Float64").mask(table["weight"] == 0)
    table["bus_gb_per_s"] = table["moved"] / weight
    order = table.sort_values(["transfer_ns", *keys], ascending=[False, True, True])
    return COLLECTIVE_SCOPES.of(
        order.reset_index(drop=True), {"left_out": {"no match": len(collectives) - len(rows)}}
    )


def place_bandwidth(
    bandwidth: pd.DataFrame,
    *,
    gpus_per_node: int = 8,
    places: pd.DataFrame | None = None,
    least_bytes: int = 1_000_000,
) -> pd.DataFrame:
    """Return for every pair of nodes the bandwidth that collectives between them have reached.

    A collective is as fast as its slowest link, so a node with a slow link slows all nodes of its
    groups. A pair is judged by its *fastest* group: that is what its links can do at least.

    Parameters
    ----------
    bandwidth
        Table :data:`workbench.tables.COLLECTIVE_BANDWIDTH`.
    gpus_per_node, places
        As for :func:`collective_scopes`.
    least_bytes
        Smaller collectives are left out: their latency hides the bandwidth.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PLACE_BANDWIDTH`, one row per pair of nodes that some group
        has, and per node with a group inside it; ``attrs["left_out"]`` counts groups of over 256
        nodes, which tell nothing of a pair. Which link is the cause: :func:`slow_links`.

    Raises
    ------
    WorkbenchError
        If ``places`` lacks a rank, or ``gpus_per_node`` is not a whole number from 1.
    """
    COLLECTIVE_BANDWIDTH.check(bandwidth)
    rows = bandwidth[bandwidth["size_bytes"] >= least_bytes]
    fastest = rows.groupby("members")["bus_gb_per_s"].max()
    groups = [[int(rank) for rank in str(members).split(",")] for members in fastest.index]
    network = network_of({rank for group in groups for rank in group}, places, gpus_per_node)
    nodes = [np.unique([network.node[rank] for rank in group]) for group in groups]
    pairs = [
        pd.DataFrame({"node_count": len(at), "bus": float(bus), **_pairs(at)})
        for at, bus in zip(nodes, fastest, strict=True)
        if len(at) <= _MOST_NODES
    ]
    if not pairs:
        table = PLACE_BANDWIDTH.empty()
    else:
        table = pd.concat(pairs).groupby(["low", "high"], as_index=False).agg(
            group_count=("bus", "size"), least_node_count=("node_count", "min"),
            best_gb_per_s=("bus", "max"),
        )  # fmt: skip
        table = _named(table, network)
    table.attrs["left_out"] = {f"groups of over {_MOST_NODES} nodes": len(groups) - len(pairs)}
    return table


def _pairs(nodes: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return all pairs of nodes, or the one node with itself."""
    low, high = np.triu_indices(len(nodes), k=int(len(nodes) > 1))
    return {"low": nodes[low], "high": nodes[high]}


def _named(table: pd.DataFrame, network: Network) -> pd.DataFrame:
    names = dict(enumerate(network.names))
    smallest = table["least_node_count"]
    table = table.assign(
        node=[names.get(number, f"node {number}") for number in table["low"]],
        other_node=[names.get(number, f"node {number}") for number in table["high"]],
        scope=np.where(table["low"] == table["high"], "inside the node", "between nodes"),
        doubt=[f"only seen in groups of {n} nodes or more" if n > 2 else "" for n in smallest],
    )
    most = table.groupby("scope")["best_gb_per_s"].transform("max")
    table["best_ratio"] = table["best_gb_per_s"] / most.where(most > 0, 1.0)
    return PLACE_BANDWIDTH.of(table)
