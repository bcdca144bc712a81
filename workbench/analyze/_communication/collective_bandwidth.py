"""Collectives of a trace against the model, and which link makes some of them slow."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from workbench._shared.numbers import share_between
from workbench.analyze._communication.collective_scaling import (
    COLLECTIVE_ALGORITHMS,
    collective_scaling,
    network_levels,
)
from workbench.analyze._communication.places import Network, network_of
from workbench.tables import COLLECTIVE_BANDWIDTH, COLLECTIVES, SLOW_LINKS

_KEY = ["operation", "members", "size_bytes"]
PEERS = ["operation", "rank_count", "node_count", "scope", "size_bytes"]
_PARTIAL = "ranks of the group are missing: the shortest duration may hold waiting"
_EXPLAINED = "all its groups are slow, and a suspect explains them: it is not cleared"
_INSIDE = -1
_Link = tuple[int, int]


def collective_bandwidth(
    collectives: pd.DataFrame,
    *,
    gpus_per_node: int = 8,
    levels: pd.DataFrame | None = None,
    places: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Put the bus bandwidth measured in a trace beside that of the model and of other groups.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of :func:`workbench.analyze.collectives`.
    gpus_per_node
        Ranks of a node; rank r is adapter (rail) r modulo this of node r divided by it. Not used
        where there are ``places``.
    levels
        As for :func:`workbench.analyze.collective_scaling`. The innermost level is taken to be
        the node; a group with one rank per node is modelled on the levels beyond it.
    places
        Table :data:`workbench.tables.RANK_PLACES`, of :func:`rank_places` or your own.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_BANDWIDTH`, one row per collective, members and
        size. Kernels without a match, a size or an agreed bus bandwidth are dropped;
        ``attrs["left_out"]`` counts them.

    Raises
    ------
    WorkbenchError
        If ``gpus_per_node`` is not a whole number from 1, or ``places`` lacks a rank.
    PerformanceModelError
        If ``levels`` are wrong.

    Notes
    -----
    The duration of a collective is the shortest of its ranks, that of the last to come: the others
    wait. It needs no common clock. A peer is another group of as many ranks on as many nodes,
    with the same scope: a path across switches is not compared with one below a switch.
    """
    COLLECTIVES.check(collectives)
    is_usable = collectives["operation"].isin(list(COLLECTIVE_ALGORITHMS))
    is_usable &= collectives[["collective", "bus_gb_per_s"]].notna().all(axis=1)
    for name in ("transfer_min_ns", "size_bytes"):
        is_usable &= (collectives[name] > 0).fillna(value=False).astype(bool)
    rows = collectives[is_usable & (collectives["rank_count"] > 1)]
    table = _measured(rows, network_of(rows["rank"].tolist(), places, gpus_per_node))
    network = network_levels() if levels is None else levels
    modelled = [_modelled(row, network) for row in table.to_dict("records")]
    table["modelled_gb_per_s"] = [rate for rate, _ in modelled]
    table["algorithm"] = [name for _, name in modelled]
    table["model_ratio"] = table["bus_gb_per_s"] / table["modelled_gb_per_s"]
    peers = table.groupby(PEERS)["bus_gb_per_s"]
    ratio = table["bus_gb_per_s"] / peers.transform("max")
    table["peer_ratio"] = ratio.where(peers.transform("size") > 1)
    return COLLECTIVE_BANDWIDTH.of(
        table, {"left_out": {"no match, size or bus bandwidth": len(collectives) - len(rows)}}
    )


def _measured(rows: pd.DataFrame, network: Network) -> pd.DataFrame:
    """Make one row per collective, then one per members and size."""
    rows = rows.assign(
        operation=rows["operation"].astype(str),
        node=rows["rank"].map(network.node),
        is_whole=rows["is_complete"].fillna(value=True).astype(bool),
    ).sort_values(["collective", "rank"])
    single = rows.groupby("collective").agg(
        operation=("operation", "first"),
        members=("rank", lambda ranks: ",".join(map(str, ranks))),
        rank_count=("rank", "size"),
        node_count=("node", "nunique"),
        size_bytes=("size_bytes", "median"),
        dur_ns=("transfer_min_ns", "first"),
        bus_gb_per_s=("bus_gb_per_s", "first"),
        is_whole=("is_whole", "all"),
    )
    single = single.astype({"size_bytes": "int64", "dur_ns": "float64", "bus_gb_per_s": "float64"})
    table = single.groupby(_KEY, sort=True).agg(
        rank_count=("rank_count", "first"),
        node_count=("node_count", "first"),
        collective_count=("dur_ns", "size"),
        dur_ns=("dur_ns", "median"),
        bus_gb_per_s=("bus_gb_per_s", "median"),
        is_whole=("is_whole", "all"),
    )
    table = table.reset_index()
    scopes = {key: network.scope(map(int, key.split(","))) for key in set(table["members"])}
    table["scope"] = table["members"].map(scopes).astype(object)
    table["doubt"] = table.pop("is_whole").map({True: "", False: _PARTIAL}).astype(object)
    return table


def _modelled(row: dict[Any, Any], network: pd.DataFrame) -> tuple[float, str]:
    inside = -(-row["rank_count"] // row["node_count"])
    if inside == 1 and len(network) > 1:
        # With one rank per node, no message stays in the node.
        network = network.iloc[1:]
    else:
        fill = [inside, *network["group_count"].tolist()[1:]]
        network = network.assign(group_count=pd.array(fill, dtype="Int64"))
    table = collective_scaling(
        [row["rank_count"]], [row["size_bytes"]], collective=row["operation"], levels=network
    )
    best = table[table["is_chosen"]].iloc[0]
    return float(best["bus_gb_per_s"]), str(best["algorithm"])


def slow_links(
    bandwidth: pd.DataFrame,
    *,
    gpus_per_node: int = 8,
    slow_ratio: float = 0.8,
    least_bytes: int = 1_000_000,
    places: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Find the link that makes collectives slow, from the groups that use it and are not.

    A slow link slows every rank of its group, so the slowest ranks or nodes on average are often
    neighbours of the cause. But one fast group clears all links it uses. Of the rest, those are
    suspected that explain the most slow groups; where the same groups use several, no trace
    tells them apart.

    Parameters
    ----------
    bandwidth
        Table :data:`workbench.tables.COLLECTIVE_BANDWIDTH`.
    gpus_per_node, places
        As for :func:`collective_bandwidth`.
    slow_ratio
        A group is slow below this share of the bandwidth of the best of its peers.
    least_bytes
        Smaller collectives are left out: their latency hides a slow link.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SLOW_LINKS`, one row per link that some group with peers
        uses, suspects first. ``attrs["unexplained"]`` lists slow groups that no link explains
        without contradiction, e.g. because ranks were slow in turn.

    Raises
    ------
    WorkbenchError
        If a number is out of range, or ``places`` lacks a rank.

    Notes
    -----
    A group on several nodes uses one adapter per rank, a group in one node the links inside it.
    Candidates are links, all adapters of a node, of a rail or of the nodes of a switch, if no group
    that uses any of them is fast; the set that covers most slow groups is taken until all are
    covered.
    """
    COLLECTIVE_BANDWIDTH.check(bandwidth)
    share_between("slow_ratio", slow_ratio)
    rows = bandwidth[bandwidth["peer_ratio"].notna() & (bandwidth["size_bytes"] >= least_bytes)]
    medians = rows.groupby("members")["peer_ratio"].median()
    ratio = {str(members): float(value) for members, value in medians.items()}
    ranks = {members: [int(rank) for rank in members.split(",")] for members in ratio}
    network = network_of(
        {rank for group in ranks.values() for rank in group}, places, gpus_per_node
    )
    users: dict[_Link, set[str]] = defaultdict(set)
    for members, group in ranks.items():
        for link in sorted(_links(group, network)):
            users[link].add(members)
    slow = {members for members, value in ratio.items() if value < slow_ratio}
    suspects, unexplained = _suspects(users, slow, network)
    found = []
    for (node, rail), groups in users.items():
        names, alike = suspects.get((node, rail), ("", 0))
        doubt = f"the same groups use {alike} other suspects" if alike else ""
        if not names and groups <= slow:
            doubt = _EXPLAINED
        best = max(ratio[members] for members in groups)
        number = pd.NA if rail == _INSIDE else rail
        counts = (len(groups), len(groups & slow))
        found.append((node, number, *counts, best, names, alike, doubt))
    columns = [name for name in SLOW_LINKS.columns if name != "node_name"]
    table = pd.DataFrame(found, columns=columns)
    if network.names:
        table["node_name"] = [network.names[node] for node in table["node"]]
    order = (table["suspect"] == "").rename("is_free")
    table = table.assign(order=order).sort_values(["order", "best_ratio", "node", "rail"])
    return SLOW_LINKS.of(table.reset_index(drop=True), {"unexplained": sorted(unexplained)})


def _links(ranks: list[int], network: Network) -> set[_Link]:
    adapters = {(network.node[rank], network.rail[rank]) for rank in ranks}
    nodes = {node for node, _ in adapters}
    return adapters if len(nodes) > 1 else {(node, _INSIDE) for node in nodes}


def _suspects(
    users: dict[_Link, set[str]], slow: set[str], network: Network
) -> tuple[dict[_Link, tuple[str, int]], set[str]]:
    """Cover the slow groups by as few entities as possible that no fast group uses."""
    entities: dict[tuple[str, object, int], list[_Link]] = defaultdict(list)
    for node, rail in users:
        is_inside = rail == _INSIDE
        entities["inside the node" if is_inside else "link", node, rail].append((node, rail))
        if not is_inside:
            entities["node", node, _INSIDE].append((node, rail))
            entities["rail", _INSIDE, rail].append((node, rail))
            if (switch := network.switch[node]) is not None:
                entities["switch", switch, _INSIDE].append((node, rail))
    used = {
        entity: frozenset[str]().union(*(users[link] for link in links))
        for entity, links in entities.items()
        if len(links) > 1 or entity[0] not in {"node", "rail", "switch"}
    }
    used = {entity: groups for entity, groups in used.items() if groups <= slow}
    suspects: dict[_Link, tuple[str, int]] = {}
    left = set(slow)
    while used and (best := max(used.values(), key=lambda groups: len(groups & left))) & left:
        alike = [entity for entity, groups in used.items() if groups == best]
        for link in {link for entity in alike for link in entities[entity]}:
            scopes = sorted(entity[0] for entity in alike if link in entities[entity])
            suspects.setdefault(link, (" or ".join(scopes), len(alike) - 1))
        left -= best
    return suspects, left
