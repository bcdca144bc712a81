"""Overhead per GPU: what a node draws beside its GPUs, where both have meters."""

from __future__ import annotations

import pandas as pd

from workbench.analyze._power.energy import energy
from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_ENTITIES

# AC, which the site pays for, before DC; `unknown` is a meter of a node whose side is not told.
_NODE, _GPU = ("node_ac", "node_dc", "unknown"), ("gpu", "module")


def overhead_w_measured(power: pd.DataFrame, entities: pd.DataFrame) -> float:
    """Measure the power per GPU that a node draws beside its GPUs: CPUs, fans, network, losses.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    entities
        Table :data:`workbench.tables.POWER_ENTITIES` of the same load.

    Returns
    -------
    float
        Watts per GPU, over all nodes with a meter of their own and meters of their GPUs.

    Raises
    ------
    WorkbenchError
        If no node has both, or nodes show less than their GPUs, so that meters disagree.

    Notes
    -----
    For every such node the mean power of node and GPUs over the time in which all of them
    read; the sum of the differences divided by the number of GPU meters. A GPU without a meter
    counts as overhead, and a meter at the AC side adds the losses of the power supplies.

    Examples
    --------
    >>> overhead_w_measured(POWER.empty(), POWER_ENTITIES.empty())
    Traceback (most recent call last):
    ...
    workbench.errors.WorkbenchError: no node has a meter of its own and meters of its GPUs
    """
    POWER.check(power)
    POWER_ENTITIES.check(entities)
    usable = entities[(entities["reading_count"] > 1) & (entities["clock"] == "epoch")]
    beside_w, count = 0.0, 0
    for _, meters in usable[usable["node"].notna()].groupby("node"):
        gpus = meters[meters["scope"].isin(_GPU)]
        nodes = meters[meters["scope"].isin(_NODE) & meters["device"].isna()]
        # Both sides of one node are the same power, metered twice.
        nodes = nodes.sort_values("scope", key=lambda scopes: scopes.map(_NODE.index)).head(1)
        both = pd.concat([nodes, gpus])
        begin, end = both["first_ns"].max(), both["last_ns"].min()
        if nodes.empty or gpus.empty or not begin < end:
            continue
        rows = power[power["entity"].isin(both["entity"])]
        mean = energy(rows, start_ns=int(begin), end_ns=int(end)).set_index("entity")["mean_w"]
        if mean.reindex(both["entity"]).isna().any():
            continue
        beside_w += float(mean[nodes["entity"]].sum() - mean[gpus["entity"]].sum())
        count += len(gpus)
    if not count:
        msg = "no node has a meter of its own and meters of its GPUs"
        raise WorkbenchError(msg)
    if beside_w < 0:
        msg = (
            f"nodes show {-beside_w / count:,.3g} W per GPU less than their GPUs, which cannot be: "
            "compare scope, unit and time zone of the two logs"
        )
        raise WorkbenchError(msg)
    return beside_w / count
