"""Power in Prometheus: answers of its API. The samples are made, in the form of /api/v1/query_range;
names and labels are those of dcgm-exporter 2 to 4, Kepler, nvidia_gpu_exporter and AMD's exporter."""

import json
import time

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from tests.load.power.power_texts import (
    T0,
    S,
    answer,
    count_of,
    findings,
    read,
    readings,
    recognised,
    series,
    written,
)
from workbench import load
from workbench.errors import LoadError
from workbench.load._power.formats import prometheus as prometheus_power
from workbench.load._power.formats.prometheus_metrics import meaning_of
from workbench.load._power.part import NoPowerError


def loaded(tmp_path, *result, **given):
    return read(prometheus_power, tmp_path, answer(*result), **given)


def test_a_range_query_gives_every_sample_at_its_millisecond(tmp_path):
    each = series([])
    each["values"] = [[1435781430.781, "627.43"], [1435781445.781, "1e2"]]
    part = loaded(tmp_path, each)
    assert part.readings["time_ns"].tolist() == [1435781430781000000, 1435781445781000000]
    assert part.readings["power_w"].tolist() == [627.43, 100.0]
    assert set(part.readings["entity"]) == {"node7/gpu3"}


def test_an_instant_query_gives_one_reading_of_each_gpu(tmp_path):
    vectors = [series([], gpu=str(gpu)) for gpu in range(3)]
    for each in vectors:
        del each["values"]
        each["value"] = [T0 + 0.5, "400"]
    part = read(prometheus_power, tmp_path, answer(*vectors, kind="vector"))
    assert readings(part) == [(f"node7/gpu{gpu}", 0.5, 400.0) for gpu in range(3)]


def test_says_what_the_labels_say_of_a_gpu(tmp_path):
    facts = loaded(tmp_path, series([1])).entities["node7/gpu3"]
    assert {key: facts[key] for key in ("scope", "method", "node", "device", "clock")} == {
        "scope": "gpu", "method": "avg_1s", "node": "node7", "device": "3", "clock": "epoch",
    }  # fmt: skip
    old = loaded(tmp_path, series([1], modelName="Tesla V100-SXM2-16GB")).entities
    assert old["node7/gpu3"]["method"] == "instant"


@pytest.mark.parametrize(
    ("name", "kind", "factor", "scope"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", "power", 1, "gpu"),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", "power", 1, "gpu"),
        ("dcgm_power_usage", "power", 1, "gpu"),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "instant", 1, "gpu"),
        ("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", "instant", 1, "gpu"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy", 1e-3, "gpu"),
        ("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "limit", 1, "gpu"),
        ("DCGM_FI_DEV_POWER_VIOLATION", "violation", 1, "gpu"),
        ("DCGM_FI_DEV_CPU_POWER_WATTS", "power", 1, "cpu"),
        ("nvidia_smi_power_draw_average_watts", "average", 1, "gpu"),
        ("nvidia_smi_energy_joules_total", "energy", 1, "gpu"),
        ("amd_gpu_energy_consumed", "energy", 1e-6, "gpu"),
        ("GPU_PACKAGE_POWER", "power", 1, "gpu"),
        ("gpud_gpu_power_current_usage_milli_watts", "power", 1e-3, "gpu"),
        ("habanalabs_power_mW", "power", 1e-3, "gpu"),
        ("ipmi_dcmi_power_consumption_watts", "power", 1, "node_ac"),
        ("pdu_outlet_power_kw", "power", 1e3, "pdu"),
        ("site:power_MW", "power", 1e6, "unknown"),
        ("instance:gpu_power_watts:sum", "power", 1, "unknown"),
        ("meter_energy_kwh_total", "energy", 3.6e6, "unknown"),
    ],
)
def test_a_name_tells_kind_unit_and_scope(name, kind, factor, scope):
    found = meaning_of(name)
    assert (found.kind, found.factor, found.scope) == (kind, factor, scope)


@pytest.mark.parametrize(
    "name",
    [
        "up",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS",
        "DCGM_FI_DEV_XID_ERRORS",
        "node_cpu_seconds_total",
        "kepler_pod_cpu_watts",
        "kepler_container_gpu_joules_total",
        "kepler_node_cpu_idle_watts",
        "redfish_chassis_power_maximum_consumed_watts",
        "psu_capacity_watts",
        "http_requests_total",
    ],
)
def test_what_is_no_reading_of_power_has_no_meaning(name):
    assert meaning_of(name) is None


def test_the_old_and_the_new_name_of_a_field_mean_one_thing(tmp_path):
    old = loaded(tmp_path, series([300, 301]))
    new = loaded(tmp_path, series([300, 301], "DCGM_FI_DEV_BOARD_POWER_WATTS"))
    assert readings(old) == readings(new)
    assert old.entities == new.entities


@pytest.mark.parametrize(
    "text",
    ["9223372036854775794", "9.223372036854776e+18", "140737488355328", "140737488355331.0",
     "2147483632", "2147483647"],
)  # fmt: skip
def test_blanks_of_dcgm_are_missing_and_counted(tmp_path, text):
    part = loaded(tmp_path, series([300, text, 301]))
    assert [watts for *_, watts in readings(part)] == [300, None, 301]
    assert count_of(part, "DCGM says that it has none") == 1


def test_an_energy_that_runs_through_a_small_blank_is_kept(tmp_path):
    energy = series([2147483631, 2147483640, 2147483650], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    part = loaded(tmp_path, series([1, 1, 1]), energy)
    assert part.counters["energy_j"].tolist() == [2147483.631, 2147483.640, 2147483.650]


def test_nan_and_infinities_are_missing_and_counted(tmp_path):
    part = loaded(tmp_path, series([300, "NaN", "+Inf", "-Inf", 301]))
    assert [watts for *_, watts in readings(part)] == [300, None, None, None, 301]
    assert count_of(part, "not a number") == 3


def test_a_negative_power_is_left_as_it_was_written(tmp_path):
    assert readings(loaded(tmp_path, series([-5])))[0][2] == -5


def test_mig_slices_repeat_the_power_of_the_whole_gpu_and_it_is_taken_once(tmp_path):
    slices = [series([80, 90], GPU_I_PROFILE="1g.5gb", GPU_I_ID=str(i)) for i in (1, 2, 8)]
    part = loaded(tmp_path, series([80, 90]), *slices)
    assert readings(part) == [("node7/gpu3", 0, 80), ("node7/gpu3", 15, 90)]
    assert count_of(part, "taken once") == 6


def test_a_gpu_that_changes_hands_is_one_gpu(tmp_path):
    before = series([100, 110, None, None], pod="train-0", namespace="ml")
    after = series([None, None, 120, 130], pod="train-1", namespace="ml")
    part = loaded(tmp_path, after, before)
    assert [watts for *_, watts in readings(part)] == [100, 110, 120, 130]
    assert len(part.entities) == 1


def test_readings_of_one_gpu_that_differ_at_one_instant_are_flagged(tmp_path):
    part = loaded(tmp_path, series([100, 110]), series([100, 111], pod="other"))
    assert [watts for *_, watts in readings(part)] == [100, 110]
    assert count_of(part, "differ at one instant") == 1


def test_a_value_is_taken_before_a_missing_one_of_the_same_instant(tmp_path):
    part = loaded(tmp_path, series(["NaN", 110]), series([100, "NaN"], pod="other"))
    assert [watts for *_, watts in readings(part)] == [100, 110]


def test_energy_limit_clock_load_and_reasons_come_along(tmp_path):
    others = {
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": [700, 500],
        "DCGM_FI_DEV_SM_CLOCK": [1980, 1410],
        "DCGM_FI_DEV_GPU_UTIL": [100, 37],
        "DCGM_FI_DEV_GPU_TEMP": [60, 61],
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": [4, 0],
        "DCGM_FI_DEV_POWER_VIOLATION": [39997999904, 39997999905],
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": [1000, 11500],
    }
    part = loaded(tmp_path, series([650, 499]), *(series(v, name) for name, v in others.items()))
    assert part.states["limit_w"].tolist() == [700, 500]
    assert part.states["clock_mhz"].tolist() == [1980, 1410]
    assert part.states["busy_share"].tolist() == [1, 0.37]
    assert part.states["temperature_c"].tolist() == [60, 61]
    assert part.states["reasons"].tolist() == [4, 0]
    assert part.states["power_violation_ns"].tolist() == [39997999904, 39997999905]
    assert part.counters["energy_j"].tolist() == [1, 11.5]
    assert part.entities["node7/gpu3"]["limit_w"] == 500


def test_a_load_that_is_a_share_already_is_not_divided_again(tmp_path):
    part = loaded(tmp_path, series([1, 1]), series([0.25, 1], "DCGM_FI_DEV_GPU_UTIL_RATIO"))
    assert part.states["busy_share"].tolist() == [0.25, 1]


def test_states_that_cannot_be_are_missing_and_counted(tmp_path):
    limit = series([-1, 700], "DCGM_FI_DEV_ENFORCED_POWER_LIMIT")
    part = loaded(tmp_path, series([1, 1]), limit, series([250, 50], "DCGM_FI_DEV_GPU_UTIL"))
    assert part.states["limit_w"].isna().tolist() == [True, False]
    assert part.states["busy_share"].isna().tolist() == [True, False]
    assert count_of(part, "cannot be") == 2


def test_the_enforced_limit_is_taken_before_the_requested_one(tmp_path):
    part = loaded(
        tmp_path,
        series([1]),
        series([700], "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
        series([500], "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    )
    assert part.states["limit_w"].tolist() == [500]


def test_a_counter_that_falls_is_kept_as_written(tmp_path):
    energy = series([9000, 10000, 500], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    assert loaded(tmp_path, energy).counters["energy_j"].tolist() == [9, 10, 0.5]


def test_of_average_and_instant_power_the_one_that_was_asked_for_is_taken(tmp_path):
    both = (series([300]), series([330], "DCGM_FI_DEV_POWER_USAGE_INSTANT"))
    assert readings(loaded(tmp_path, *both))[0][2] == 300
    instant = loaded(tmp_path, *both, reading="instant")
    assert readings(instant)[0][2] == 330
    assert instant.entities["node7/gpu3"]["method"] == "instant"
    assert count_of(instant, "other kinds of power") == 1


def kepler(values, zone, unit="watts", **labels):
    name = f"kepler_node_cpu_{unit}"
    gone = {"gpu": None, "UUID": None, "Hostname": None, "modelName": None}
    return series(values, name, **gone, zone=zone, node_name="worker-1", **labels)


def test_zones_of_rapl_that_lie_inside_each_other_are_never_kept_together(tmp_path):
    zones = [kepler([w], zone) for zone, w in (("package", 120), ("core", 90), ("dram", 12))]
    part = loaded(tmp_path, *zones)
    assert readings(part) == [("worker-1/package", 0, 120), ("worker-1/dram", 0, 12)]
    assert part.entities["worker-1/package"]["scope"] == "cpu"
    assert count_of(part, "inside a wider one") == 1
    wide = loaded(tmp_path, kepler([150], "psys"), *zones)
    assert readings(wide) == [("worker-1/psys", 0, 150)]
    assert count_of(wide, "inside a wider one") == 3


def test_zones_of_other_nodes_are_told_apart(tmp_path):
    part = loaded(tmp_path, kepler([150], "psys"), kepler([90], "core") | {
        "metric": {"__name__": "kepler_node_cpu_watts", "zone": "core", "node_name": "worker-2"}
    })  # fmt: skip
    assert {name for name, *_ in readings(part)} == {"worker-1/psys", "worker-2/core"}


def test_what_is_split_among_pods_by_a_model_is_set_aside(tmp_path):
    part = loaded(tmp_path, kepler([120], "package"), series([5], "kepler_pod_cpu_watts", pod="x"))
    assert [name for name, *_ in readings(part)] == ["worker-1/package"]
    assert findings(part)["skipped by design", prometheus_power._OTHER] == 1


def test_a_recording_rule_is_a_thing_of_its_own_whose_scope_nobody_knows(tmp_path):
    gone = {"gpu": None, "UUID": None, "Hostname": None, "modelName": None}
    rule = series([5000], "instance:gpu_power_watts:sum", **gone, instance="n1:9400")
    part = loaded(tmp_path, rule)
    ((name, facts),) = part.entities.items()
    assert name == "n1/instance:gpu_power_watts:sum"
    assert facts["scope"] == "unknown"
    told = loaded(tmp_path, rule, scope="node_dc").entities[name]
    assert (told["scope"], told["assumed"]) == ("node_dc", "scope=node_dc")


def test_a_series_without_a_name_asks_for_its_unit(tmp_path):
    summed = series([5000, 5100], None, gpu=None, UUID=None, modelName=None)
    with pytest.raises(LoadError, match=r"series 1: has no name.*unit='W'"):
        loaded(tmp_path, summed)
    part = loaded(tmp_path, summed, unit="kW", scope="rack")
    assert readings(part) == [("node7", 0, 5e6), ("node7", 15, 5.1e6)]
    assert part.entities["node7"]["assumed"] == "unit=kW, scope=rack"


def test_partitions_of_an_amd_gpu_without_a_sensor_are_not_gpus_at_rest(tmp_path):
    labels = {"gpu": None, "UUID": None, "Hostname": None, "hostname": "node-a"}
    parts = [
        series([748 * (not n)], "gpu_package_power", gpu_id=str(n), gpu_partition_id=str(n),
               **labels)
        for n in range(3)
    ]  # fmt: skip
    part = loaded(tmp_path, *parts)
    assert readings(part) == [("node-a/gpu0", 0, 748)]
    assert count_of(part, "partitions") == 2


def test_hosts_are_told_by_whatever_label_names_them(tmp_path):
    for labels in ({"Hostname": "n1"}, {"Hostname": None, "node": "n1"},
                   {"Hostname": None, "instance": "n1:9400"}):  # fmt: skip
        assert readings(loaded(tmp_path, series([1], **labels)))[0][0] == "n1/gpu3"
    local = series([1], Hostname=None, instance="localhost:9400")
    assert readings(loaded(tmp_path, local, node="n1"))[0][0] == "n1/gpu3"


def test_without_a_host_a_gpu_is_told_by_its_uuid(tmp_path):
    two = [series([w], Hostname=None, UUID=f"GPU-{w}") for w in (1, 2)]
    assert [name for name, *_ in readings(loaded(tmp_path, *two))] == ["GPU-1", "GPU-2"]


def test_a_bare_uuid_is_that_of_a_gpu(tmp_path):
    uuid = "0ae5d4d3-2c4b-4b1c-9d5f-000000000001"
    gone = {"gpu": None, "UUID": None, "modelName": None}
    each = series([30], "nvidia_smi_power_draw_watts", **gone, uuid=uuid)
    assert readings(loaded(tmp_path, each))[0][0] == f"node7/GPU-{uuid}"


def test_an_answer_that_is_an_error_says_so(tmp_path):
    text = '{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}'
    assert recognised(prometheus_power, text)
    with pytest.raises(NoPowerError, match="exceeded maximum resolution"):
        read(prometheus_power, tmp_path, text)


def test_an_answer_that_found_nothing_says_so(tmp_path):
    with pytest.raises(NoPowerError, match="the query found nothing"):
        read(prometheus_power, tmp_path, answer())


def test_warnings_of_the_server_are_passed_on(tmp_path):
    text = answer(series([1]), warnings=["partial response: store down"])
    assert count_of(read(prometheus_power, tmp_path, text), "partial response") == 1


@pytest.mark.parametrize(("count", "expected"), [(10_999, 0), (11_000, 1), (11_001, 1)])
def test_a_series_that_is_as_long_as_a_query_may_be_is_flagged(tmp_path, count, expected):
    part = loaded(tmp_path, series([1] * count))
    assert count_of(part, "the most that one query may return") == expected


def test_several_answers_in_one_file_are_read(tmp_path):
    text = answer(series([1])) + "\n" + answer(series([None, 2])) + "\n"
    assert [watts for *_, watts in readings(read(prometheus_power, tmp_path, text))] == [1, 2]


def test_an_answer_of_any_layout_is_read(tmp_path):
    tight = answer(series([1, 2]), series([3], gpu="1"))
    loose = json.dumps(json.loads(tight), indent=4)
    assert readings(read(prometheus_power, tmp_path, loose)) == readings(
        read(prometheus_power, tmp_path, tight)
    )


def test_a_cut_answer_keeps_every_sample_before_the_cut(tmp_path):
    text = answer(*(series(range(100), gpu=str(gpu)) for gpu in range(3)))
    whole = readings(read(prometheus_power, tmp_path, text))
    for cut in range(400, len(text) - 1, 97):
        try:
            part = read(prometheus_power, tmp_path, text[:cut])
        except NoPowerError:
            assert text[:cut].count('"],') + text[:cut].count('"]]') == 0
            continue
        found = readings(part)
        assert found == whole[: len(found)]
        assert len(found) >= text[:cut].count('"],') + text[:cut].count('"]]') - 1
        assert count_of(part, "does not end") == 1


@hypothesis_given(st.lists(st.one_of(st.floats(), st.integers(-9, 9)), max_size=20))
def test_every_float_of_a_series_is_read_as_python_reads_it(tmp_path_factory, values):
    part = loaded(tmp_path_factory.getbasetemp(), series([*values, 1]))
    known = [v if np.isfinite(v) and abs(v) < 1e9 else None for v in map(float, values)]
    for (*_, found), expected in zip(readings(part), known, strict=False):
        assert expected is None or found == expected


def test_the_front_door_joins_power_and_energy_of_one_gpu_from_two_files(tmp_path):
    written(tmp_path, answer(series([300, 310])), "power.json")
    energy = series([1000, 5000], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    written(tmp_path, answer(energy), "energy.json")
    log = load.power(tmp_path)
    assert log.entities["entity"].tolist() == ["node7/gpu3"]
    assert log.entities["method"].tolist() == ["avg_1s"]
    assert (len(log.power), len(log.counters)) == (2, 2)


@pytest.mark.slow
def test_half_a_million_samples_a_second_are_read(tmp_path):
    rng = np.random.default_rng(0)
    many = [
        series([f"{v:.3f}" for v in rng.uniform(100, 700, 10_000)], gpu=str(n % 8), UUID=f"GPU-{n}",
               Hostname=f"node{n // 8}")
        for n in range(100)
    ]  # fmt: skip
    path = written(tmp_path, answer(*many))
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        part = read(prometheus_power, tmp_path, path.read_bytes())
        best = min(best, time.process_time() - start)
    assert len(part.readings) == 1_000_000
    assert best < 2
    assert part.readings["time_ns"].iloc[-1] == (T0 + 15 * 9_999) * S
