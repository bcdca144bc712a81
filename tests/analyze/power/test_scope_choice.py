"""Which meters stand for a job where a folder holds several kinds of them."""

import pandas as pd
import pytest

from workbench import analyze
from workbench.tables import POWER, POWER_ENTITIES


def metered(*things):
    """Return readings and entities of (name, scope, node or None, file)."""
    power = pd.DataFrame(
        [(at, name, 100.0) for name, *_ in things for at in (0, 10**9)],
        columns=["time_ns", "entity", "power_w"],
    ).astype({"entity": "category"})
    rows = [
        {"entity": name, "scope": scope, "method": "unknown", "node": node, "device": None,
         "model": None, "period_s": 1.0, "reading_count": 2, "missing_count": 0, "first_ns": 0,
         "last_ns": 10**9, "clock": "epoch", "assumed": "", "limit_w": None, "source": source}
        for name, scope, node, source in things
    ]  # fmt: skip
    return POWER.check(power), POWER_ENTITIES.check(POWER_ENTITIES.cast(pd.DataFrame(rows)))


GPUS = [(f"n{n}/gpu{g}", "gpu", f"n{n}", "gpu.csv") for n in range(3) for g in range(8)]


def test_one_node_with_a_meter_of_its_own_does_not_stand_for_all_others():
    power, entities = metered(("n0", "node_ac", "n0", "ipmi.log"), *GPUS)
    kept = analyze.power_of_scope(power, entities)
    assert kept.attrs == {"scope": "gpu", "left_out": {"node_ac": 1}}
    assert len(kept) == 48


def test_nodes_come_before_the_gpus_in_them_where_all_are_metered():
    nodes = [(f"n{n}", "node_ac", f"n{n}", "ipmi.log") for n in range(3)]
    assert analyze.power_of_scope(*metered(*GPUS, *nodes)).attrs["scope"] == "node_ac"


def test_servers_without_a_host_count_each_and_gpus_by_their_file():
    servers = [(f"srv{n}", "unknown", None, "wide.csv") for n in range(4)]
    gpus = [(f"gpu{n}", "gpu", None, "gpu.csv") for n in range(8)]
    assert analyze.power_of_scope(*metered(*servers, *gpus)).attrs["scope"] == "unknown"


@pytest.mark.parametrize("scope", ["rack", "facility", "utility"])
def test_what_feeds_several_nodes_stands_for_them_where_nothing_else_does(scope):
    assert analyze.power_of_scope(*metered(("x", scope, None, "x"))).attrs["scope"] == scope
