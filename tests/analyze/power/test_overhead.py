"""The overhead per GPU: made nodes of known truth, and meters that cannot tell it."""

import re

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, load, tables
from workbench.errors import WorkbenchError

SECOND = 10**9
BEGIN = 1_772_000_000 * SECOND


def meters(*rows):
    """Make both tables from node, device, scope, seconds and watts of each meter."""
    power, entities = [], []
    for node, device, scope, seconds, watts in rows:
        name = node if device is None else f"{node}/{device}"
        name += "" if scope != "node_dc" else " DC"
        times = BEGIN + np.asarray(seconds, dtype="int64") * SECOND
        power.append(pd.DataFrame({"time_ns": times, "entity": name, "power_w": watts}))
        entities.append(
            {
                "entity": name, "scope": scope, "method": "instant", "node": node, "device": device,
                "reading_count": len(times), "missing_count": 0, "clock": "epoch", "assumed": "",
                "first_ns": times[0], "last_ns": times[-1], "source": "made",
            }
        )  # fmt: skip
    table = pd.concat(power, ignore_index=True).sort_values(["entity", "time_ns"])
    table["entity"] = table["entity"].astype("category")
    return (
        analyze_table("POWER", table.reset_index(drop=True)),
        analyze_table("POWER_ENTITIES", pd.DataFrame(entities)),
    )


def analyze_table(name, frame):
    table = getattr(tables, name)
    return table.cast(frame.reindex(columns=list(table.columns)))


def test_a_node_that_reads_longer_than_its_gpus_is_compared_over_the_time_of_both():
    # Over all its readings the node draws less per GPU: it idled before the GPUs were logged.
    node = np.r_[np.full(100, 300.0), np.full(101, 2000.0)]
    power, entities = meters(
        ("a", None, "node_ac", range(201), node),
        ("a", "0", "gpu", range(110, 201, 2), 700.0),
        ("a", "1", "gpu", range(110, 201, 5), 500.0),
    )
    assert analyze.overhead_w_measured(power, entities) == pytest.approx(400)
    naive = (node.mean() - 1200) / 2
    assert naive < 0


def test_two_sides_of_one_node_are_one_power_and_nodes_weigh_as_they_have_gpus():
    power, entities = meters(
        ("a", None, "node_ac", range(60), 1000.0),
        ("a", None, "node_dc", range(60), 900.0),
        ("a", "0", "gpu", range(60), 600.0),
        ("b", None, "node_ac", range(60), 1500.0),
        *(("b", str(n), "gpu", range(60), 400.0) for n in range(3)),
        ("c", None, "node_ac", range(60), 9000.0),
    )
    assert analyze.overhead_w_measured(power, entities) == pytest.approx((400 + 300) / 4)


def test_nodes_below_their_gpus_are_refused():
    power, entities = meters(
        ("a", None, "node_ac", range(60), 500.0), ("a", "0", "gpu", range(60), 600.0)
    )
    with pytest.raises(WorkbenchError, match="nodes show 100 W per GPU less than their GPUs"):
        analyze.overhead_w_measured(power, entities)


def test_gpus_alone_tell_no_overhead():
    power, entities = meters(("a", "0", "gpu", range(60), 600.0))
    with pytest.raises(WorkbenchError, match="no node has a meter of its own"):
        analyze.overhead_w_measured(power, entities)


def test_the_made_fleet_is_measured_as_a_comparison_second_by_second_has_it(fleet_demo):
    log = load.power(fleet_demo / "power", tz="UTC", node=re.compile(r"node\d+"), progress=False)
    wide = log.power.pivot_table(
        index="time_ns", columns="entity", values="power_w", observed=True
    ).interpolate(method="index", limit_area="inside")
    gpus = log.entities[log.entities["scope"] == "gpu"].groupby("node")["entity"].apply(list)
    beside = [
        (wide[node] - wide[names].sum(axis=1, skipna=False)).mean() for node, names in gpus.items()
    ]
    plain = sum(beside) / gpus.map(len).sum()
    assert analyze.overhead_w_measured(log.power, log.entities) == pytest.approx(plain, rel=0.02)
