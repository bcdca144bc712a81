"""A node of accelerator cards that serves a recommendation model: which resource binds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from workbench import datasets
from workbench._shared.numbers import Floats, in_range, not_negative, positive, whole_number
from workbench.analyze._imbalance.table_sharding import ShardingAssumptions, table_sharding
from workbench.errors import WorkbenchError
from workbench.tables import EMBEDDING_TABLES, INFERENCE_NODE

Interaction = Literal["dot", "cross", "concatenation"]
_GIB, _DENSE_BYTES = 1 << 30, 4
# Of a card's memory, for tables that lie on every card.
_SMALL_SHARE = 0.1
_SPLIT = "a table is larger than a card has room for: rows are spread over all cards"


@dataclass(frozen=True)
class InferenceCard:
    """An accelerator card; bandwidths are one way.

    Parameters
    ----------
    name
        What it is called.
    int8_tops
        Dense int8 peak [10^12 operations/s]; sheets that count zeros print twice that.
    memory_gb, memory_gb_per_s
        Memory [10^9 bytes] and its bandwidth.
    pcie_gb_per_s
        Of the lanes that the slot has.
    tdp_w
        Power for which it is cooled.

    Raises
    ------
    WorkbenchError
        If a number is not above 0.
    """

    name: str
    int8_tops: float
    memory_gb: float
    memory_gb_per_s: float
    pcie_gb_per_s: float
    tdp_w: float
    doubt: str = ""

    def __post_init__(self) -> None:
        for field in fields(self)[1:-1]:
            positive(field.name, getattr(self, field.name))


@dataclass(frozen=True, eq=False)
class RecommendationModel:
    """A recommendation model: embedding tables, dense layers and how they meet.

    Parameters
    ----------
    tables
        Table :data:`workbench.tables.EMBEDDING_TABLES`, as it is served: ``element_bytes`` 1 for
        int8.
    bottom, top
        Widths of the layers behind the dense features and behind the interaction.
    dense
        Dense features.
    interaction
        ``"dot"`` products of all pairs, low-rank ``"cross"`` layers, or ``"concatenation"``.
    cross_layers, cross_rank
        Of the cross.
    name
        What the model is called.

    Raises
    ------
    WorkbenchError
        If a number or the interaction is not possible.
    """

    tables: pd.DataFrame
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    dense: int = 13
    interaction: Interaction = "dot"
    cross_layers: int = 3
    cross_rank: int = 512
    name: str = "own model"

    def __post_init__(self) -> None:
        EMBEDDING_TABLES.check(self.tables)
        widths = [*self.bottom, *self.top, self.dense, self.cross_layers, self.cross_rank]
        for width in widths:
            whole_number("a width", width, least=0)
        if self.interaction not in get_args(Interaction) or self.tables.empty or not self.top:
            msg = f"a model needs tables, a top and an interaction of {get_args(Interaction)}, not "
            raise WorkbenchError(msg + f"{len(self.tables)}, {self.top} and {self.interaction!r}")

    def _joined(self) -> tuple[int, int]:
        """Return the width of the interaction's output, and its multiplications beyond weights."""
        dims = [*([self.bottom[-1]] if self.bottom else []), *self.tables["dim_count"].tolist()]
        if self.interaction != "dot":
            return sum(dims), 0
        # As PyTorch does it: all pairs in one batched product, of which half is used.
        return dims[0] + len(dims) * (len(dims) - 1) // 2, len(dims) ** 2 * max(dims)

    @property
    def weight_count(self) -> int:
        """Weights of the dense layers, without biases."""
        width, _ = self._joined()
        layers = [*pairwise([self.dense, *self.bottom]), *pairwise([width, *self.top])]
        is_cross = self.interaction == "cross"
        cross = is_cross * self.cross_layers * 2 * width * self.cross_rank
        return sum(before * after for before, after in layers) + cross

    @property
    def flop_count(self) -> int:
        """Operations of one sample: two per multiplication of a matrix product."""
        return 2 * (self.weight_count + self._joined()[1])


def inference_card(name: str) -> InferenceCard:
    """Look up a card by its name, in the bundled ``published/inference_cards.csv``.

    Parameters
    ----------
    name
        E.g. ``"NNP-I 1100"``, ``"T4"``, ``"L4"`` or ``"MTIA v1"``.

    Returns
    -------
    InferenceCard
        Peaks of its data sheet; ``dataclasses.replace`` changes any of them.

    Raises
    ------
    WorkbenchError
        If it is not in the file.

    Examples
    --------
    >>> inference_card("T4").int8_tops
    130.0
    """
    rows = _published("inference_cards")
    row = _named(rows, "card", name, "InferenceCard(...)")
    numbers = {field.name: float(row[field.name]) for field in fields(InferenceCard)[1:-1]}
    return InferenceCard(name=name, **numbers, doubt=row["doubt"])


def recommendation_model(name: str, *, element_bytes: int = 1) -> RecommendationModel:
    """Look up a published model by its name, in ``published/inference_models.csv``.

    Parameters
    ----------
    name
        ``"DLRM, one-hot"`` or ``"DLRM v2"``.
    element_bytes
        Bytes per element of the tables as they are served.

    Returns
    -------
    RecommendationModel
        Its tables and layers; the file names the publication.

    Raises
    ------
    WorkbenchError
        If it is not in the file.

    Examples
    --------
    >>> recommendation_model("DLRM v2").weight_count
    16030464
    """
    row = _named(_published("inference_models"), "model", name, "RecommendationModel(...)")
    counts = {key: [int(text) for text in row[key].split()] for key in _LISTS}
    tables = pd.DataFrame({"row_count": counts["rows"], "pooling_ratio": counts["lookups"]})
    tables["table"] = [f"table {number}" for number in range(len(tables))]
    tables = tables.assign(dim_count=int(row["dim_count"]), element_bytes=element_bytes)
    return RecommendationModel(
        EMBEDDING_TABLES.cast(tables), tuple(counts["bottom"]), tuple(counts["top"]),
        int(row["dense_count"]), row["interaction"],  # type: ignore[arg-type]
        int(row["cross_layers"]), int(row["cross_rank"]), name,
    )  # fmt: skip


_LISTS = ("bottom", "top", "rows", "lookups")


@cache
def _published(name: str) -> list[dict[str, str]]:
    table = pd.read_csv(datasets.path("published") / f"{name}.csv", dtype=str)
    return [{str(key): str(value) for key, value in row.items()}
            for row in table.fillna("").to_dict("records")]  # fmt: skip


def _named(rows: list[dict[str, str]], key: str, name: str, remedy: str) -> dict[str, str]:
    if name not in (names := [row[key] for row in rows]):
        msg = f"no {key} {name!r}; there are {names}, or make a {remedy}"
        raise WorkbenchError(msg)
    return rows[names.index(name)]


@dataclass(frozen=True)
class InferenceNode:
    """A host with cards, and how close to their peaks they come.

    Attributes
    ----------
    card
        The card.
    cards
        How many.
    batch
        Samples that are computed together.
    placement
        ``"sharded"``: tables are spread over the cards, and every card computes its part of the
        batch; ``"replicated"``: every card holds the model and serves batches of its own.
    compute_share, memory_share, pcie_share
        Of the peaks that are reached. The defaults are conventions, not measurements.
    hit_share
        Of look-ups that a cache on the chip serves, e.g. from :func:`row_cache`.
    weights_on_chip
        Whether the dense weights stay on the chip; else each batch reads them from memory.
    launch_us
        Fixed time per batch.
    network_gb_per_s
        Of the host; None leaves the network out.
    row_extra_bytes
        Scale and offset beside each quantized row.
    index_bytes, vector_bytes
        Of an index, and of an element of what is sent between cards.
    """

    card: InferenceCard
    cards: int = 6
    batch: int = 256
    placement: Literal["sharded", "replicated"] = "sharded"
    compute_share: float = 0.5
    memory_share: float = 0.5
    pcie_share: float = 0.8
    hit_share: float = 0.0
    weights_on_chip: bool = False
    launch_us: float = 50.0
    network_gb_per_s: float | None = None
    row_extra_bytes: int = 8
    index_bytes: int = 4
    vector_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("cards", "batch", "index_bytes", "vector_bytes"):
            whole_number(name, getattr(self, name), least=1)
        whole_number("row_extra_bytes", self.row_extra_bytes, least=0)
        not_negative("launch_us", self.launch_us)
        positive("network_gb_per_s", self.network_gb_per_s or 1)
        for name in ("compute_share", "memory_share", "pcie_share"):
            in_range(name, getattr(self, name), least=0, most=1, strictly=True)
        in_range("hit_share", self.hit_share, least=0, most=1)
        if self.placement not in ("sharded", "replicated"):
            msg = f"placement must be sharded or replicated, not {self.placement!r}"
            raise WorkbenchError(msg)


def inference_node(
    model: RecommendationModel, nodes: InferenceNode | Iterable[InferenceNode]
) -> pd.DataFrame:
    """Work out which resource of a node binds when it serves a recommendation model.

    Parameters
    ----------
    model
        From :func:`recommendation_model`, or of your own tables and layers.
    nodes
        One or several nodes: cards, batches or efficiencies to compare.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INFERENCE_NODE`, one row per node and resource.

    Raises
    ------
    TableError
        If the tables of the model are no such table.

    Notes
    -----
    Per batch b, for the busiest of c cards. Compute: ``(b/c) flop / (peak share)``. Memory:
    ``b sum pooling (dim element + extra) (1 - hit)`` of its tables, and the weights once, over
    bandwidth x share. PCIe: indices, dense features and the pooled vectors of other cards, or the
    vectors that it sends, whichever is more. Sharded: the smallest tables, up to a tenth of a
    card's memory, lie on every card; :func:`table_sharding` spreads the others by look-ups, and
    their vectors are exchanged. Dense weights are int8. Batches are pipelined: throughput is that
    of the slowest resource, latency the sum of all. Random reads and small products come in by the
    shares alone.
    """
    chosen = [nodes] if isinstance(nodes, InferenceNode) else list(nodes)
    # Where tables lie does not depend on the batch.
    placed = cache(lambda node: _placed(model, node))
    rows = [row for node in chosen for row in _rows(model, node, placed)]
    return INFERENCE_NODE.of(rows)


def _rows(
    model: RecommendationModel, node: InferenceNode, placed: Callable[[InferenceNode], _Placement]
) -> list[dict[str, Any]]:
    is_replicated = node.placement == "replicated"
    alone = replace(node, cards=1) if is_replicated else node
    copies = node.cards if is_replicated else 1
    times, needed, doubt = _times(model, alone, placed(replace(alone, batch=1)))
    # A card of a replicated node is a node of its own; they share the network of the host.
    if "network" in times:
        times["network"] *= copies
    held = node.cards * node.card.memory_gb * 1e9
    slowest = max(times.values())
    # The node first: where names are cut, it is the part that differs.
    shown = f"{node.cards} x {node.card.name}, batch {node.batch:,}, {model.name}"
    return [
        {
            "setting": shown + (", replicated" if is_replicated else ""),
            "card": node.card.name,
            "card_count": node.cards,
            "batch_count": node.batch,
            "resource": resource,
            "busy_ns": seconds * 1e9,
            "throughput_per_s": copies * node.batch / seconds,
            "is_binding": seconds == slowest,
            "latency_ns": sum(times.values()) * 1e9,
            "needed_bytes": copies * needed,
            "held_bytes": held,
            "fits": copies * needed <= held,
            "doubt": "; ".join(filter(None, [node.card.doubt, doubt])),
        }
        for resource, seconds in times.items()
        if seconds > 0
    ]


def _times(
    model: RecommendationModel, node: InferenceNode, placement: _Placement
) -> tuple[dict[str, float], int, str]:
    """Return the seconds of each resource per batch, the bytes needed, and a doubt."""
    card, cards, batch = node.card, node.cards, node.batch
    pooling, vectors = (
        model.tables["pooling_ratio"].to_numpy(dtype=np.float64),
        model.tables["dim_count"].to_numpy(dtype=np.float64) * node.vector_bytes,
    )
    row_bytes = _row_bytes(model, node)
    needed = int((placement.copies * model.tables["row_count"] * row_bytes).sum())
    read = placement.share @ (pooling * row_bytes) * batch * (1 - node.hit_share)
    # Pooled vectors of tables that not every card holds are sent to the card of the sample.
    sent = ((placement.share > 0) & (placement.copies < cards)) @ vectors * batch / cards
    dense = model.dense * _DENSE_BYTES * batch
    received = placement.share @ pooling * node.index_bytes * batch + dense / cards
    received += sent.sum() - sent
    pcie = np.maximum(received, sent * (cards - 1)).max()
    flops = model.flop_count * batch / cards
    times = {
        "compute": flops / (card.int8_tops * 1e12 * node.compute_share),
        "memory": (read.max() + model.weight_count * (not node.weights_on_chip))
        / (card.memory_gb_per_s * 1e9 * node.memory_share),
        "PCIe": pcie / (card.pcie_gb_per_s * 1e9 * node.pcie_share),
        "launch": node.launch_us / 1e6,
    }
    if node.network_gb_per_s:
        host = pooling.sum() * node.index_bytes * batch + dense
        times["network"] = host / (node.network_gb_per_s * 1e9)
    seconds = {name: float(value) for name, value in times.items()}
    return seconds, needed + cards * model.weight_count, placement.doubt


class _Placement(NamedTuple):
    share: Floats
    """Of the look-ups of each table (columns) on each card (rows)."""
    copies: Floats
    """Cards that hold each table; fewer than all if its vectors are exchanged."""
    doubt: str = ""


def _row_bytes(model: RecommendationModel, node: InferenceNode) -> Floats:
    sizes = model.tables["dim_count"] * model.tables["element_bytes"] + node.row_extra_bytes
    return sizes.to_numpy(dtype=np.float64)


def _placed(model: RecommendationModel, node: InferenceNode) -> _Placement:
    """Put small tables on every card, and spread the others by look-ups."""
    tables, cards, room = model.tables, node.cards, node.card.memory_gb * 1e9
    sizes = tables["row_count"].to_numpy() * _row_bytes(model, node)
    order = np.argsort(sizes, kind="stable")
    is_small = np.zeros(len(sizes), dtype=bool)
    is_small[order] = np.cumsum(sizes[order]) <= _SMALL_SHARE * room
    share = np.full((cards, len(sizes)), 1 / cards)
    copies = np.where(is_small | (cards == 1), cards, 1.0)
    if cards == 1 or is_small.all():
        return _Placement(share, np.full(len(sizes), float(cards)))
    # What lies beside a row counts as further columns, so that a shard has its true size.
    extra = -(-node.row_extra_bytes // tables["element_bytes"])
    large = tables.assign(dim_count=tables["dim_count"] + extra)[~is_small]
    left = (room - sizes[is_small].sum() - model.weight_count) / _GIB
    try:
        memory = ShardingAssumptions(memory_gib=max(left, 1e-9), ranks_per_host=cards)
        shards = table_sharding(large, ranks=cards, balance_by="lookup", assumptions=memory)
    except WorkbenchError:
        return _Placement(share, copies, _SPLIT)
    positions = dict(zip(tables["table"], range(len(tables)), strict=True))
    share[:, ~is_small] = 0
    share[shards["rank"].to_numpy(), shards["table"].map(positions).to_numpy()] = 1
    return _Placement(share, copies)
