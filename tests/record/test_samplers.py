"""What the machine says becomes watts and joules, and what it does not say is missing by name."""

import stat
import sys

import pytest

from workbench.record import _sensors as _amd
from workbench.record import _sensors as _rapl
from workbench.record._sensors import NotFoundError, amd_sampler, nvml_sampler, rapl_sampler


def test_milliwatts_and_millijoules_of_the_driver_become_watts_and_joules(nvml):
    rows = nvml_sampler("node001").read()
    assert [entity for entity, _ in rows] == ["node001/gpu0", "node001/gpu1"]
    assert rows[1][1] == {
        "power_w": 500.124, "average_w": 501.0, "instant_w": 620.0, "energy_j": 12_345.678,
        "limit_w": 650.0, "clock_mhz": 1980.0, "busy_share": 1.0, "temperature_c": 63.0,
        "reasons": 4, "power_violation_ns": 39_997_999_904,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "method"), [(9, "avg_1s"), (7, "avg_1s"), (6, "instant"), (2, "instant")]
)
def test_the_meaning_of_a_reading_follows_the_architecture(nvml, architecture, method):
    nvml.architecture = architecture
    assert {sensor.method for sensor in nvml_sampler("n").sensors} == {method}


def test_the_meaning_is_unknown_if_the_driver_does_not_tell_the_architecture(nvml):
    nvml.refuses = {"nvmlDeviceGetArchitecture"}
    assert {sensor.method for sensor in nvml_sampler("n").sensors} == {"unknown"}


def test_what_a_driver_does_not_offer_is_missing_by_name_and_not_asked_again(nvml):
    nvml.refuses = {"nvmlDeviceGetTotalEnergyConsumption"}
    sampler = nvml_sampler("n")
    first = dict(sampler.missing)
    assert "energy_j" not in sampler.read()[0][1]
    assert sampler.missing == first
    assert any("energy_j" in what and "Not Supported" in what for what in first)


def test_a_gpu_that_falls_off_the_bus_gives_rows_without_power_and_is_counted(nvml):
    sampler = nvml_sampler("n")
    nvml.refuses = {"nvmlDeviceGetPowerUsage"}
    rows = sampler.read() + sampler.read()
    assert len(rows) == 4
    assert all("power_w" not in values for _, values in rows)
    assert sampler.missing["power_w of n/gpu0: Not Supported"] == 2


def test_a_driver_without_its_library_says_what_was_looked_for(nvml):
    nvml.refuses = {"nvmlInit"}
    with pytest.raises(NotFoundError, match=r"NVIDIA GPUs: .*library was not found"):
        nvml_sampler("n")


def test_an_absent_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotFoundError, match=r"workbench\[record\]"):
        nvml_sampler("n")


def test_a_driver_without_gpus_is_closed_again(nvml, monkeypatch):
    monkeypatch.setattr(type(nvml), "nvmlDeviceGetCount", lambda self: 0)
    with pytest.raises(NotFoundError, match="lists none"):
        nvml_sampler("n")
    assert nvml.is_shut


@pytest.fixture
def amd(tmp_path, monkeypatch):
    def say(text, code=0):
        command = tmp_path / "amd-smi"
        command.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(_amd.shutil, "which", lambda name: str(command))

    return say


GPU = '{"gpu": 3, "power": {"socket_power": %s}, "energy": {"total_energy_consumption": %s}}'
WITH_UNITS = GPU % ('{"value": 610, "unit": "W"}', '{"value": 1500, "unit": "mJ"}')


@pytest.mark.parametrize(
    ("text", "watts", "joules"),
    [
        (f"[{WITH_UNITS}]", 610.0, 1.5),
        (f'{{"gpu_data": [{WITH_UNITS}]}}', 610.0, 1.5),
        (f"[{GPU % ('610', '1.5')}]", 610.0, 1.5),
    ],
)
def test_amd_smi_of_all_ages_gives_watts_and_joules(amd, text, watts, joules):
    amd(text)
    ((entity, values),) = amd_sampler("n").read()
    assert entity == "n/gpu3"
    assert (values["power_w"], values["energy_j"]) == (watts, joules)


@pytest.mark.parametrize(
    "text", ["not json", "[]", "[1]", '[{"gpu": 0, "power": "N/A"}]', '{"gpu_data": 3}', "null"]
)
def test_amd_smi_that_gives_no_power_is_no_sampler(amd, text):
    amd(text)
    with pytest.raises(NotFoundError, match="gives no power"):
        amd_sampler("n")


def test_an_unknown_unit_is_no_number(amd):
    amd("[" + GPU % ('{"value": 610, "unit": "hp"}', "1") + "]")
    with pytest.raises(NotFoundError, match="gives no power"):
        amd_sampler("n")


def test_amd_smi_that_begins_to_fail_is_counted(amd):
    amd(f"[{WITH_UNITS}]")
    sampler = amd_sampler("n")
    amd("broken", code=1)
    assert sampler.read() == []
    assert sum(sampler.missing.values()) == 1


@pytest.fixture
def zones(tmp_path, monkeypatch):
    def zone(name, what, microjoules, wraps_at=1_000_000):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(f"{what}\n")
        (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
        (folder / "energy_uj").write_text(f"{microjoules}\n")

    monkeypatch.setattr(_rapl, "ZONES", tmp_path)
    return zone


def test_cpu_counters_that_wrap_go_on(zones):
    zones("intel-rapl:0", "package-0", 900_000)
    sampler = rapl_sampler("n")
    before = sampler.read()[0][1]["energy_j"]
    zones("intel-rapl:0", "package-0", 100_000)
    after = sampler.read()[0][1]["energy_j"]
    assert after - before == pytest.approx(0.2)


def test_parts_of_other_counters_are_not_sampled(zones):
    zones("intel-rapl:0", "package-0", 1)
    zones("intel-rapl:0:0", "core", 1)
    zones("intel-rapl:0:1", "dram", 1)
    zones("intel-rapl:1", "psys", 1)
    assert [sensor.scope for sensor in rapl_sampler("n").sensors] == ["cpu", "memory"]


def test_a_kernel_without_counters_says_where_they_were_looked_for(zones, tmp_path):
    with pytest.raises(NotFoundError, match=tmp_path.name):
        rapl_sampler("n")


def test_counters_that_may_not_be_read_say_what_to_do(zones):
    zones("intel-rapl:0", "package-0", "secret")
    with pytest.raises(NotFoundError, match="root only"):
        rapl_sampler("n")
