"""Damaged and hostile files of power telemetry: an error that says what is wrong, or readings that
the entry point accepts, and never anything else."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.load.power.formats import (
    test_amd_smi,
    test_hl_smi,
    test_ipmi,
    test_ptdaemon,
    test_redfish,
)
from tests.load.power.formats.nvidia import test_console_table as test_nvidia_table
from tests.load.power.formats.test_prometheus_pages import PAGE, power_line
from tests.load.power.power_texts import T0, answer, read, series, written
from workbench import load
from workbench.errors import LoadError
from workbench.load._power.formats import amd_smi, hl_smi, ipmi, ptdaemon, redfish
from workbench.load._power.formats import prometheus as prometheus_power
from workbench.load._power.formats.nvidia import console_table as nvidia_table
from workbench.load._power.formats.table import reader as power_table
from workbench.tables import POWER, POWER_COUNTERS, POWER_ENTITIES, POWER_STATES

ENERGY = series([1000, 2000], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
LIMIT = series([700, 700], "DCGM_FI_DEV_ENFORCED_POWER_LIMIT")
FILES = {
    "answer": answer(series([300, 310]), ENERGY, LIMIT),
    "loose answer": json.dumps(json.loads(answer(series([300, 310]), ENERGY)), indent=1),
    "page": f"{T0}\n{PAGE}",
    "timed page": power_line(1, T0 * 1000) + power_line(2, T0 * 1000 + 500),
    "ipmitool": test_ipmi.block() * 2,
    "ipmi-dcmi": test_ipmi.freeipmi(host="n1"),
    "sdr": f"{T0}\nPwr Consumption  | 308 Watts | ok\n",
    "redfish": "\n".join(
        json.dumps(test_redfish.at(n, each))
        for n, each in enumerate([test_redfish.environment(), test_redfish.power()])
    ),
    "report": json.dumps(test_redfish.report(("/redfish/v1/Chassis/1/P#Power", "5", "x"))),
    "amd table": test_amd_smi.HEADER + test_amd_smi.row(0, 0, 238) + test_amd_smi.row(1, 0, 9),
    "amd json": json.dumps([test_amd_smi.metric(timestamp=T0)]),
    "hl table": test_hl_smi.HEADER + test_hl_smi.row(0, 0, 103),
    "hl bare": test_hl_smi.BARE,
    "nvidia table": test_nvidia_table.OLD,
    "ptdaemon": test_ptdaemon.line(0, "3.0") + test_ptdaemon.line(1, "3.1"),
    "counters": f"time,gpu,energy_mj\n{T0},0,5\n{T0 + 1},0,300005\n{T0 + 2},0,600005\n",
    "values": f"time;node;value\n{T0};n1;500\n{T0 + 1};n1;510\n",
    "cells with units": f"Time,a,b\n{T0},312 W,1.2 kW\n{T0 + 1},0.3 kW,300 W\n",
}
TOKENS = (
    b"NaN", b"Infinity", b"-1e309", b"1e999", b"9" * 400, b"\x00", b"\xff\xfe", b'"', b"}", b"[[",
    b"{}", b"null", b"[]", b"true", b"-", b"\n", b",", b"<script>", b"\\u0000", b"=", b":",
    "\N{RIGHT-TO-LEFT OVERRIDE}".encode(),
)  # fmt: skip


def check(path):
    """Load a file as a user would; whatever comes of it has to be sound."""
    try:
        log = load.power(path, tz="UTC", node="n1", unit="W", period_s=1, progress=False)
    except LoadError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert path.name in refusal
        return
    for table, frame in (
        (POWER, log.power), (POWER_ENTITIES, log.entities), (POWER_STATES, log.states),
        (POWER_COUNTERS, log.counters),
    ):  # fmt: skip
        table.check(frame)
    assert set(log.power["entity"]) <= set(log.entities["entity"])
    assert all(name.isprintable() and len(name) < 500 for name in log.entities["entity"])


@pytest.mark.parametrize("name", FILES)
def test_a_sound_file_loads(tmp_path, name):
    log = load.power(written(tmp_path, FILES[name]), tz="UTC", unit="W", period_s=1)
    assert len(log.power)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused_in_words_or_loads_soundly(tmp_path, name, data):
    raw = FILES[name].encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(len(raw), start + 40)))
        token = data.draw(st.sampled_from((b"", *TOKENS)))
        raw = raw[:start] + token + raw[end:]
    check(written(tmp_path, raw or b" "))


WRONG = [
    None,
    True,
    [],
    {},
    [1, 2],
    {"value": []},
    {"Reading": {}},
    "x",
    "",
    -1,
    1e308,
    "1e999",
    10**400,
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_values_of_another_type_are_missing_and_not_a_traceback(tmp_path, wrong):
    pair = {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": wrong}, "values": wrong}
    documents = [
        (prometheus_power, json.loads(answer(pair, series([1])))),
        (prometheus_power, json.loads(answer({"metric": wrong, "values": [[T0, wrong]]}))),
        (
            prometheus_power,
            json.loads(answer(series([1]) | {"values": [[wrong, "1"], [T0, wrong]]})),
        ),
        (prometheus_power, {"status": wrong, "data": {"resultType": wrong, "result": wrong}}),
        (redfish, test_redfish.environment(wrong)),
        (redfish, test_redfish.power(wrong, wrong, PowerLimit=wrong, PhysicalContext=wrong)),
        (redfish, test_redfish.report((wrong, wrong, wrong))),
        (redfish, {"PowerWatts": wrong, "Oem": wrong, "time": wrong, "node": wrong}),
        (amd_smi, [test_amd_smi.metric(power=wrong, timestamp=wrong)]),
        (amd_smi, [test_amd_smi.metric(gpu=wrong, power={"socket_power": wrong})]),
        (amd_smi, {"gpu_data": wrong, "timestamp": wrong, "socket_power": wrong}),
    ]
    for module, document in documents:
        try:
            part = read(module, tmp_path, json.dumps(document), tz="UTC", period_s=1)
        except LoadError:
            continue
        assert part.readings["power_w"].dtype == float
        assert part.readings["time_ns"].dtype == "int64"


@pytest.mark.parametrize("module", [prometheus_power, redfish, amd_smi])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 2000 + "]" * 2000])
def test_deep_nesting_is_refused_in_words(tmp_path, module, text):
    with pytest.raises(LoadError, match="holds no reading of power"):
        read(module, tmp_path, text)


@pytest.mark.parametrize("module", [prometheus_power, redfish, amd_smi, hl_smi, ipmi])
@pytest.mark.parametrize("text", [b"\0" * 4096, bytes(range(256)) * 16, b" \n\n", b"\xef\xbb\xbf"])
def test_noise_is_refused_in_words(tmp_path, module, text):
    with pytest.raises(LoadError):
        read(module, tmp_path, text)


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_taken_by_one_reader_only(name):
    head = FILES[name].encode()
    sure = (prometheus_power, redfish, amd_smi, hl_smi, ipmi, nvidia_table, ptdaemon)
    takers = [m.NAME for m in sure if m.looks_like(head, "")]
    # A plain table is asked last, and may be any of them.
    assert len(takers) == 1 or (not takers and power_table.looks_like(head, ""))


def test_an_endless_line_does_not_fill_the_memory(tmp_path):
    text = power_line(1, T0 * 1000) + "DCGM_FI_DEV_POWER_USAGE{" + "x" * 5_000_000 + "\n"
    part = read(prometheus_power, tmp_path, text)
    assert len(part.readings) == 1


def test_a_label_cannot_pass_for_a_sample(tmp_path):
    each = series([1], pod='x","values":[[1,"999"]],"y":"')
    trap = series([2], pod='"values": [[1700000000, "999"]]', gpu="4")
    part = read(prometheus_power, tmp_path, answer(each, trap))
    assert part.readings["power_w"].tolist() == [1, 2]


def test_the_same_series_twice_is_one(tmp_path):
    part = read(prometheus_power, tmp_path, answer(series([1, 2]), series([1, 2])))
    assert part.readings["power_w"].tolist() == [1, 2]


def test_samples_that_go_back_in_time_are_put_in_order(tmp_path):
    each = series([1, 2, 3])
    each["values"].reverse()
    part = read(prometheus_power, tmp_path, answer(each))
    assert part.readings["power_w"].tolist() == [1, 2, 3]
