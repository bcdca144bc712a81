"""What NCCL itself expects a collective to take: its published latencies and a bandwidth."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from workbench import datasets
from workbench.analyze._perfmodel.kernel_models.hardware import gpu_row

_US = 1e-6
_ALL_REDUCE = "all-reduce"
MODELLED = (_ALL_REDUCE, "all-gather", "reduce-scatter")


@cache
def _tuning() -> pd.Series:
    table = pd.read_csv(datasets.path("published") / "nccl_tuning.csv")
    return table.set_index(["quantity", "algorithm", "protocol"])["value"]


def expected_seconds(gpu: str, collective: str, ranks: int, nodes: int, size: float) -> float:
    """Give the time of the best algorithm and protocol by NCCL's own model.

    Rings have ``2 (n - 1)`` steps for an all-reduce and ``n - 1`` for the others; as many of
    them as there are nodes cross the network. A tree goes up and down once. The bandwidth of
    the bus is that of the link or, across nodes, of all adapters of a node, if that is less.
    """
    row = gpu_row(gpu)
    per_node = -(-ranks // nodes)
    bus = float(row["link_bytes_per_s"])
    if nodes > 1:
        bus = min(bus, float(row["network_bytes_per_s"]) * per_node)
    times = [
        _ring(protocol, collective, ranks, nodes, size / bus)
        for protocol in ("LL", "LL128", "Simple")
    ]
    if collective == _ALL_REDUCE and nodes > 1:
        times += [
            _tree(protocol, per_node, nodes, ranks, size / bus)
            for protocol in ("LL", "LL128", "Simple")
        ]
    return min(times)


def _ring(protocol: str, collective: str, ranks: int, nodes: int, at_bus_s: float) -> float:
    rounds = 2 if collective == _ALL_REDUCE else 1
    steps = rounds * (ranks - 1)
    crossing = 0 if nodes == 1 else rounds * nodes if rounds == 2 else nodes - 1
    tuning = _tuning()
    latency = tuning[("base latency", "ring", protocol)]
    latency += (steps - crossing) * tuning[("link latency", "ring", protocol)]
    latency += crossing * tuning[("network latency", "ring", protocol)]
    share = tuning[("bandwidth share", "ring", protocol)]
    return float(latency * _US + at_bus_s / share * steps / ranks)


def _tree(protocol: str, per_node: int, nodes: int, ranks: int, at_bus_s: float) -> float:
    tuning = _tuning()
    latency = tuning[("base latency", "tree", protocol)]
    latency += 2 * (per_node - 1) * tuning[("link latency", "tree", protocol)]
    latency += 2 * np.ceil(np.log2(nodes)) * tuning[("network latency", "tree", protocol)]
    share = tuning[("bandwidth share", "tree", protocol)]
    return float(latency * _US + at_bus_s / share * 2 * (ranks - 1) / ranks)
