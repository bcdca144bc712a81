"""Rules on collectives by place: which node, or which of its links, slows the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pandas as pd

from workbench.analyze._communication.collective_bandwidth import (
    PEERS,
    collective_bandwidth,
    slow_links,
)
from workbench.analyze._communication.places import OWN_HOST, rank_places
from workbench.analyze._lib.finding_rules import Finding, LacksDataError, ranks_text, rows_of, rule
from workbench.analyze._traces.traced import Traced
from workbench.errors import WorkbenchError

_NCCL = "nccl-tests, doc/PERFORMANCE.md"
_SHOWN = 4


class Placed(Traced):
    """Collectives of a job whose traces say on which node each rank ran."""

    domain = "communication"

    @cached_property
    def places(self) -> pd.DataFrame:
        """The node of every rank."""
        try:
            places = rank_places(self.trace.ranks)
        except WorkbenchError as error:
            raise LacksDataError(str(error)) from error
        if places["node"].nunique() < 2:
            msg = "all ranks ran on one node, so there is no other to compare it with"
            raise LacksDataError(msg)
        return places

    @cached_property
    def bandwidth(self) -> pd.DataFrame:
        """Bus bandwidth of every group of ranks."""
        # Places first: without them, collectives need not be matched.
        return collective_bandwidth(places=self.places, collectives=self.collectives)

    def lost_ns(self, slow: set[str]) -> float:
        """Give the time that slow groups take beyond their usual peer, on the rank with most.

        Transfer that compute hides costs nothing.
        """
        table = self.bandwidth
        is_slow = table["members"].isin(slow)
        usual = table[~is_slow].groupby(PEERS)["dur_ns"].median().rename("usual_ns")
        rows = table[is_slow].join(usual, on=PEERS)
        lost = (rows["dur_ns"] - rows["usual_ns"]).clip(lower=0) * rows["collective_count"]
        by_rank = pd.DataFrame({"rank": rows["members"].str.split(","), "lost_ns": lost})
        by_rank = by_rank.explode("rank").astype({"rank": "int64"})
        sums = by_rank.groupby("rank")["lost_ns"].sum()
        exposed = self.by_rank["exposed_communication_ns"].astype("float64")
        return float(sums.clip(upper=exposed.reindex(sums.index).fillna(0.0)).max())

    def groups_of(self, links: pd.DataFrame) -> set[str]:
        """Give the groups of ranks that use any of some links."""
        nodes = self.places.sort_values("rank").groupby("node")["rank"].agg(list)
        used = set()
        for members in set(self.bandwidth["members"]):
            group = {int(rank) for rank in members.split(",")}
            for row in rows_of(links):
                ranks = nodes[row.node_name]
                is_inside = group <= set(ranks)
                # Host names do not tell rails: adapters are counted as ranks of the node are.
                if is_inside if pd.isna(row.rail) else ranks[row.rail] in group and not is_inside:
                    used.add(members)
        return used


@rule(Placed, reference=_NCCL)
def slow_node(
    placed: Placed, *, slow_ratio: float = 0.8, least_bytes: float = 1e6, least_share: float = 0.01
) -> Iterator[Finding]:
    """The links of one node slow all groups that use them.

    Every rank of a group is as slow as its slowest link, so only a group that is fast clears one.
    """
    links = slow_links(
        placed.bandwidth, places=placed.places, slow_ratio=slow_ratio, least_bytes=int(least_bytes)
    )
    suspects = links[links["suspect"] != ""]
    is_sure, is_rail = suspects["alike_count"] == 0, suspects["suspect"] == "rail"
    entity = suspects["node_name"].mask(is_rail, "rail " + suspects["rail"].astype("string"))
    for _, rows in suspects.groupby(entity.where(is_sure, "")):
        lost_ns = placed.lost_ns(placed.groups_of(rows))
        if lost_ns >= least_share * placed.gpu_ns:
            yield _finding(placed, rows, lost_ns, len(links.attrs["unexplained"]))


def _finding(placed: Placed, rows: pd.DataFrame, lost_ns: float, unexplained: int) -> Finding:
    nodes = sorted(set(rows["node_name"]))
    is_sure = bool((rows["alike_count"] == 0).all())
    named = " or ".join(nodes[:_SHOWN]) + (
        f" or {len(nodes) - _SHOWN} more" * (len(nodes) > _SHOWN)
    )
    kind = str(rows["suspect"].iloc[0])
    links = "Links inside" if kind == "inside the node" else "Network links of"
    subject = f"{links} node {named}"
    if is_sure and kind == "rail":
        subject = f"Network links of all nodes on rail {rows['rail'].iloc[0]}"
    at = placed.places[placed.places["node"].isin(nodes)]
    doubts = [
        "" if is_sure else "the same groups use these links, so no trace tells them apart",
        f"{unexplained} more slow groups are explained by no link" if unexplained else "",
        "every rank names another host" if OWN_HOST in str(at["basis"].iloc[0]) else "",
        ""
        if kind == "inside the node"
        else "host names tell no switches: a longer path looks slow",
    ]
    return Finding(
        f"{subject} are slow: groups that use them reach at most "
        f"{float(rows['best_ratio'].max()):.0%} of the bandwidth of others",
        where=f"{named}: {ranks_text(at['rank'])}",
        **placed.cost(lost_ns),
        cost_basis="shortest durations beyond the median of like groups, as far as exposed, on "
        "the rank with most",
        confidence="medium" if is_sure else "low",
        doubt="; ".join(filter(None, doubts)),
        evidence="analyze.slow_links, explore.place_bandwidth (docs/communication.md)",
        next_step="run nccl-tests inside and between these nodes; look at link errors, PCIe width "
        "and the cables of these adapters",
    )
