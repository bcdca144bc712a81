"""Power of AMD's GPUs. The samples are made, in the forms of amd-smi 24 to 26 (metric, monitor) and
rocm-smi 5 to 6 (--showpower)."""

import json

import pytest

from tests.load.power.power_texts import T0, S, count_of, read, readings, recognised
from workbench.errors import LoadError
from workbench.load._power.formats import amd_smi
from workbench.load._power.part import NoPowerError

HEADER = "timestamp,gpu,socket_power,gfx_voltage,throttle_status,gfx_activity,hotspot,vcn\n"
BANNER = "'CTRL' + 'C' to stop watching output:\n"


def row(second, gpu, watts, busy=77):
    return f"{T0 + second},{gpu},{watts},N/A,UNTHROTTLED,{busy},65,\"['N/A', 'N/A']\"\n"


def metric(gpu=0, **more):
    return {
        "gpu": gpu,
        "usage": {"gfx_activity": {"value": 87, "unit": "%"}},
        "power": {
            "socket_power": {"value": 542, "unit": "W"},
            "gfx_voltage": "N/A",
            "throttle_status": "UNTHROTTLED",
        },
    } | more


def loaded(tmp_path, document, **given):
    text = json.dumps(document)
    assert recognised(amd_smi, text)
    return read(amd_smi, tmp_path, text, **given)


def test_a_watched_table_is_read_though_its_header_repeats(tmp_path):
    text = BANNER + HEADER + row(0, 0, 238) + row(0, 1, "N/A") + HEADER + row(1, 0, "240 W")
    assert recognised(amd_smi, text)
    part = read(amd_smi, tmp_path, text, node="n1")
    assert readings(part) == [("n1/gpu0", 0, 238), ("n1/gpu1", 0, None), ("n1/gpu0", 1, 240)]
    assert part.states["busy_share"].tolist() == [0.77] * 3
    assert part.states["temperature_c"].tolist() == [65] * 3
    assert count_of(part, "headers that repeat") == 1


def test_the_table_of_monitor_is_read_and_its_partitions_once(tmp_path):
    text = f"timestamp,gpu,xcp,power_usage,hotspot_temperature\n{T0},0,0,210,50\n{T0},0,1,210,50\n"
    assert recognised(amd_smi, text)
    part = read(amd_smi, tmp_path, text)
    assert readings(part) == [("gpu0", 0, 210)]
    assert count_of(part, "partitions") == 1


def test_stamps_of_a_table_may_be_dates(tmp_path):
    text = "timestamp,gpu,socket_power\n2023-11-14T22:13:20Z,0,535\n"
    assert readings(read(amd_smi, tmp_path, text)) == [("gpu0", 0, 535)]
    with pytest.raises(LoadError, match="has no time zone"):
        read(amd_smi, tmp_path, text.replace("Z", ""))


@pytest.mark.parametrize(
    "power",
    [
        {"socket_power": {"value": 542, "unit": "W"}},
        {"socket_power": 542},
        {"socket_power": "542"},
        {"socket_power": "542 W"},
        {"socket_power": {"value": "542", "unit": "W"}},
        {"socket_power": {"value": 542}},
        {"current_socket_power": {"value": 542, "unit": "W"}},
        {"average_socket_power": {"value": 542, "unit": "W"}},
        {"socket_power": {"value": 542000, "unit": "mW"}},
    ],
)
def test_every_version_of_the_json_gives_its_watts(tmp_path, power):
    for document in ([metric(power=power)], {"gpu_data": [metric(power=power)]}):
        part = loaded(tmp_path, document)
        assert [watts for *_, watts in readings(part)] == [542]


def test_a_limit_is_no_reading(tmp_path):
    limit = {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 700, "unit": "W"}}
    part = loaded(tmp_path, [metric(limit=limit)])
    assert [watts for *_, watts in readings(part)] == [542]
    assert part.states["limit_w"].tolist() == [700]
    assert part.entities["gpu0"]["limit_w"] == 700


def test_energy_is_in_joules_and_raw_counts_are_15_3_microjoules(tmp_path):
    for energy, joules in (
        ({"total_energy_consumption": {"value": 178319501.7, "unit": "J"}}, 178319501.7),
        ({"energy_accumulator": 1_000_000}, 15.3),
        ({"energy_accumulator": 1_000_000, "counter_resolution": 15.259}, 15.259),
    ):
        part = loaded(tmp_path, [metric(energy=energy)])
        assert part.counters["energy_j"].tolist() == pytest.approx([joules])


def test_documents_with_a_time_inside_or_before_them_are_a_series(tmp_path):
    inside = "\n".join(json.dumps([metric(timestamp=T0 + n)]) for n in range(3))
    before = "\n".join(f"{T0 + n}\n{json.dumps([metric()], indent=4)}" for n in range(3))
    outer = "\n".join(json.dumps({"timestamp": T0 + n, "gpu_data": [metric()]}) for n in range(3))
    for text in (inside, before, outer):
        assert recognised(amd_smi, text)
        assert readings(read(amd_smi, tmp_path, text)) == [("gpu0", n, 542) for n in range(3)]


def test_a_snapshot_without_time_loads_and_two_of_them_ask_for_it(tmp_path):
    one = json.dumps([metric(0), metric(1)])
    part = read(amd_smi, tmp_path, one)
    assert part.readings["time_ns"].tolist() == [0, 0]
    assert part.entities["gpu0"]["clock"] == "own"
    with pytest.raises(LoadError, match=r"second reading of 'gpu0'.*--watch 1 --csv"):
        read(amd_smi, tmp_path, one + "\n" + one)
    part = read(amd_smi, tmp_path, one + "\n" + one, period_s=1)
    assert part.readings["time_ns"].tolist() == [0, 0, S, S]


def test_the_second_die_of_a_module_is_not_lost_but_reported_by_the_first(tmp_path):
    cards = {
        f"card{n}": {
            "Average Graphics Package Power (W)": text,
            "Card Series": "AMD INSTINCT MI250",
        }
        for n, text in enumerate(["90.0", "N/A (Secondary die)"])
    }
    part = loaded(tmp_path, cards | {"system": {"Driver version": "6.7"}})
    assert [(name, watts) for name, _, watts in readings(part)] == [("gpu0", 90)]
    facts = part.entities["gpu0"]
    assert (facts["method"], facts["model"]) == ("average", "AMD INSTINCT MI250")
    assert count_of(part, "N/A by design") == 1


@pytest.mark.parametrize(
    "name", ["Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"]
)
def test_tables_of_rocm_smi_are_read_with_the_time_before_them(tmp_path, name):
    page = f"device,{name}\ncard0,35.0\ncard1,36.0\n\n"
    text = f"{T0}\n{page}{T0 + 1}\n{page}"
    assert recognised(amd_smi, text)
    assert readings(read(amd_smi, tmp_path, text)) == [
        ("gpu0", 0, 35), ("gpu1", 0, 36), ("gpu0", 1, 35), ("gpu1", 1, 36),
    ]  # fmt: skip


def test_sections_of_a_table_without_power_are_set_aside(tmp_path):
    text = (
        "device,GPU use (%)\ncard0,42\n\ndevice,Average Graphics Package Power (W)\ncard0,210.0\n"
    )
    part = read(amd_smi, tmp_path, text)
    assert [watts for *_, watts in readings(part)] == [210]
    assert count_of(part, "rows of tables without power") == 1


def test_cells_that_are_no_number_are_missing_and_counted(tmp_path):
    part = read(amd_smi, tmp_path, HEADER + row(0, 0, "oops") + row(1, 0, "5 V") + row(2, 0, 240))
    assert [watts for *_, watts in readings(part)] == [None, None, 240]
    assert count_of(part, "not numbers") == 2


def test_a_load_beyond_100_per_cent_is_missing(tmp_path):
    part = read(amd_smi, tmp_path, HEADER + row(0, 0, 240, busy=65535))
    assert part.states["busy_share"].isna().tolist() == [True]


def test_a_cut_table_never_gives_a_number_that_was_cut(tmp_path):
    text = "timestamp,gpu,socket_power\n" + "".join(f"{T0 + n},0,{400 + n}\n" for n in range(20))
    for cut in range(45, len(text), 11):
        part = read(amd_smi, tmp_path, text[:cut])
        whole = text[:cut].count("\n") - 1
        assert [watts for *_, watts in readings(part)] == [400 + n for n in range(whole)]


def test_cut_json_gives_the_documents_before_the_cut(tmp_path):
    text = "".join(json.dumps([metric(timestamp=T0 + n)]) + "\n" for n in range(5))
    for cut in range(text.index("\n") + 1, len(text), 29):
        found = readings(read(amd_smi, tmp_path, text[:cut]))
        whole = text[:cut].count("\n")
        assert [at for _, at, _ in found[:whole]] == list(range(whole))
        assert len(found) <= whole + 1


def test_a_file_without_power_says_so(tmp_path):
    with pytest.raises(NoPowerError, match="holds no reading of power"):
        read(amd_smi, tmp_path, '[{"gpu": 0, "usage": {"gfx_activity": 3}}]')


@pytest.mark.parametrize("text", ["timestamp, power.draw [W]\n", '{"gpu": 1}', "a,b\n1,2\n", ""])
def test_what_is_not_amds_is_not_recognised(text):
    assert not recognised(amd_smi, text)
