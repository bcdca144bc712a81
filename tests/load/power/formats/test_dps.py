"""Metrics of DPS: nodes and what is in them, time from elsewhere, and damage."""

import json

import pytest

from workbench import load
from workbench.errors import LoadError

GPU = {"id": "0", "power_usage": 64.0, "energy_usage": 195.0, "energy_usage_unit": "Joules"}
GPU |= {"set_limit": 700.0, "temperature_celsius": 45.0}


def metrics(*, time=None, gpu=GPU, **node):
    poll = {"nodes": [{"name": "node001", "power_usage": 2074.0, "gpus": [gpu], **node}]}
    return {"time": time, **poll} if time else poll


@pytest.fixture
def power(tmp_path):
    """Write polls and load them."""

    def read(*polls, **said):
        path = tmp_path / "dps.json"
        texts = (p if isinstance(p, str) else json.dumps(p) for p in polls)
        path.write_text("\n".join(texts))
        return load.power(path, progress=False, **said)

    return read


def told(log):
    return {(row.finding, row.what): row.count for row in log.quality.itertuples()}


def test_nodes_and_gpus_are_read_at_the_time_beside_them(power):
    cpu = {"id": 1, "power_usage": 195.0, "energy_usage": 2, "energy_usage_unit": "kWh"}
    log = power(metrics(time="2024-05-01T10:00:00Z", cpus=[cpu]), scope="node_ac")
    entities = log.entities.set_index("entity")
    assert entities["scope"].to_dict() == {
        "node001": "node_ac", "node001/cpu1": "cpu", "node001/gpu0": "gpu",
    }  # fmt: skip
    assert entities.loc["node001/gpu0", ["node", "device", "limit_w"]].tolist() == [
        "node001", "0", 700,
    ]  # fmt: skip
    assert log.power["power_w"].tolist() == [2074, 195, 64]
    assert set(log.power["time_ns"]) == {1714557600 * 10**9}
    assert log.counters["energy_j"].tolist() == [7.2e6, 195]
    assert log.states[["limit_w", "temperature_c"]].values.tolist() == [[700, 45]]


def test_polls_may_be_a_period_apart_that_the_caller_names(power):
    log = power(metrics(), metrics(), metrics(), period_s=2)
    assert log.power["time_ns"].tolist() == [0, 2 * 10**9, 4 * 10**9] * 2
    assert set(log.entities["clock"]) == {"own"}


def test_without_a_time_the_error_says_how_to_get_one(power):
    with pytest.raises(LoadError, match="metrics of dpsctl hold no time; pass period_s="):
        power(metrics())


def test_a_poll_without_a_time_among_others_is_refused(power):
    with pytest.raises(LoadError, match="record 2: metrics of dpsctl hold no time"):
        power(metrics(time="2024-05-01T10:00:00Z"), metrics(), period_s=2)


def test_what_is_no_number_or_in_no_known_unit_is_missing_and_counted(power):
    odd = {**GPU, "power_usage": "warm", "energy_usage_unit": "Calories"}
    log = power(metrics(gpu=odd), {"nodes": [{"power_usage": 1}, 7]}, '{"nodes": [{"na', period_s=1)
    found = told(log)
    assert found["dropped", "power_usage that is not a number"] == 1
    assert found["dropped", "energies in 'Calories', which is not a known unit"] == 1
    assert found["dropped", "nodes without a name"] == 2
    assert found["truncated", "a JSON document that does not end"] == 1
    assert log.entities["reading_count"].tolist() == [1, 0]


def test_metrics_without_a_node_are_refused(power):
    with pytest.raises(LoadError, match="holds no node with a power"):
        power('{"nodes": [{"power_usage": 1}]}')
