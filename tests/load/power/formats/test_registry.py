"""Every format of power telemetry is told from all others, and from what is not power."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.load.power.formats.nvidia import test_console_table as test_nvidia_table
from workbench import datasets, load
from workbench.load._files.signatures import POWER_FORMATS
from workbench.load._power.formats import (
    amd_smi,
    codecarbon,
    dcgmi_dmon,
    hl_smi,
    ipmi,
    ptdaemon,
    redfish,
    zeus,
)
from workbench.load._power.formats import mlperf as mlperf_power
from workbench.load._power.formats import prometheus as prometheus_power
from workbench.load._power.formats.nvidia import capture as nvidia_capture
from workbench.load._power.formats.nvidia import console_table as nvidia_table
from workbench.load._power.formats.nvidia import dmon as nvidia_dmon
from workbench.load._power.formats.nvidia import polls as nvidia_smi
from workbench.load._power.formats.nvidia import query as nvidia_query
from workbench.load._power.formats.registry import power_format_of
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.formats.table import recorded as recorded_power
from workbench.load.kinds import kinds_of

STAMP = "2025/01/31 08:00:00.000"
DCGM = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",Hostname="n1"} 52.636\n'
MATRIX = {"resultType": "matrix", "result": [{"metric": {}, "values": [[1435781430.781, "1"]]}]}
MLLOG = {"namespace": "", "time_ms": 1715960310416, "event_type": "POINT_IN_TIME"}
PAGE = "# HELP node_hwmon_power_average_watt Power\nnode_hwmon_power_average_watt 5\n"
SMI = {"gpu": 0, "power": {"socket_power": {"value": 10, "unit": "W"}}}
SAMPLES = [
    (nvidia_smi, f"timestamp, power.draw [W], utilization.gpu [%]\n{STAMP}, 73.94 W, 0 %\n"),
    (nvidia_smi, f"timestamp, name, index, power.draw [W]\n{STAMP}, NVIDIA H100, 0, 73.94\n"),
    (nvidia_dmon, "# gpu    pwr  gtemp\n# Idx      W      C\n    0    631     63\n"),
    (nvidia_dmon, "#Date,Time,gpu,pwr\n#YYYYMMDD,HH:MM:SS,Idx,W\n20250131,08:00:00,0,66\n"),
    (nvidia_query, "====NVSMI LOG====\n\nTimestamp : Fri Jan 31 08:00:00 2025\n"),
    (nvidia_table, test_nvidia_table.OLD),
    (mlperf_power, ":::MLLOG " + json.dumps(MLLOG | {"key": "power_reading", "value": 6930})),
    (mlperf_power, "  0: :::MLLOG " + json.dumps(MLLOG | {"key": "interconnect_power_est"})),
    (ptdaemon, "Time,03-03-2021 00:42:30.170,Watts,3.040000,Volts,248.95,Amps,0.02,PF,0.41\n"),
    (zeus, "start_time,window_name,elapsed_time,gpu0_energy\n1715960318.5,step,2,600\n"),
    (codecarbon, "timestamp,run_id,duration,emissions,gpu_power,gpu_energy\n"
                 "2024-05-01T10:00:00,a,3600,0.1,700,0.2\n"),
    (dcgmi_dmon, "#Entity   POWER    TOTEC\nID        W        mJ\nGPU 0     52.6     1000\n"),
    (hl_smi, "index, name, power.draw [W], temperature.aip [C]\n0, HL-225, 103, 36\n"),
    (hl_smi, "timestamp, index, power.draw [W], utilization.aip [%]\nTue Nov 14 2023, 0, 1, 3\n"),
    (hl_smi, "0, 01P4-HL3090A0-18, HL-325L, 1.22.1, 131072 MiB, 226 W, 850 W, 36 C, 0 %\n"),
    (amd_smi, json.dumps([SMI])),
    (amd_smi, "timestamp,gpu,socket_power,gfx_activity\n1700000000,0,238,77\n"),
    (amd_smi, "device,Average Graphics Package Power (W)\ncard0,35.0\n"),
    (prometheus_power, DCGM),
    (prometheus_power, PAGE),
    (prometheus_power, json.dumps({"status": "success", "data": MATRIX})),
    (redfish, json.dumps({"Id": "EnvironmentMetrics", "PowerWatts": {"Reading": 374}})),
    (redfish, json.dumps({"time": "2025-01-31T08:00:00Z", "data": {"PowerControl": []}})),
    (ipmi, "    Instantaneous power reading:          297 Watts\n"),
    (ipmi, "PS1 Input Power  | 290 Watts         | ok\n"),
    (recorded_power, json.dumps({"workbench_recording": 1, "sensors": []}, indent=2)),
    (power_table, "time,node,power_w\n2025-01-31T08:00:00Z,n1,6000\n"),
    (power_table, "Time,172.31.0.1-0,172.31.0.1-1\n2023-07-01 08:00:00+08:00,61.5,62\n"),
    (power_table, "Time,node1 gpu 0\n2023-07-01 08:00:00,61.5 W\n2023-07-01 08:00:15,1.20 kW\n"),
    (power_table, "timestamp,node,value\n2025-01-31T08:00:00Z,n1,6000\n"),
    (power_table, "timestamp,uuid,energy_j\n2025-01-31T08:00:00Z,GPU-1,6000\n"),
    (power_table, '{"time": "2025-01-31T08:00:00Z", "node": "n1", "power_w": 6000}\n'),
]  # fmt: skip
OTHERS = {
    "users.csv": "time,users,requests\n2025-01-31T08:00:00Z,4,5.5\n2025-01-31T08:00:09Z,5,6\n",
    "loss.csv": "timestamp,loss,learning_rate\n1700000000,4.5,0.1\n1700000001,4.4,0.1\n",
    "lengths.csv": "length,count\n128,10\n256,20\n",
    "injections.csv": "layer,bit,is_sdc\n1,30,1\n2,3,0\n",
    "page.txt": "# HELP up Whether it answers\n",
    "notes.txt": "The power.draw of GPU 0 rose, and POWER was cut at 300 W | by hand\n",
    "values.csv": "time,node,value\n2025-01-31T08:00:00Z,n1,4.5\n2025-01-31T08:00:09Z,n1,5\n",
    "steps.csv": "time,node,step,energy_j\n2025-01-31T08:00:00Z,n1,4,5\n",
    "trace.json": '{"traceEvents": [{"ph": "X", "name": "power_w", "ts": 1, "dur": 2}]}',
    "dmesg.txt": "[Fri Jan 31 08:00:00 2025] NVRM: Xid (PCI:0000:1b:00): 79, fell off the bus\n",
}


@pytest.mark.parametrize(("reader", "text"), SAMPLES)
def test_every_format_is_recognised_by_its_own_reader(reader, text):
    found = power_format_of(text.encode(), "file")
    assert found is not None
    assert found.NAME == reader.NAME


@pytest.mark.oracle
def test_captures_are_recognised_by_their_own_reader(real_data):
    files = sorted(real_data("power-nvidia-smi").glob("*.txt"))
    heads = [path.read_bytes()[: 1 << 16] for path in files]
    assert {power_format_of(head, "file").NAME for head in heads} == {nvidia_capture.NAME}


def test_there_is_a_sample_of_every_format():
    names = {reader.NAME for reader, _ in SAMPLES} | {nvidia_capture.NAME}
    assert names == {form.reader.NAME for form in POWER_FORMATS}


XID = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="n1"} 79 1435781430700\n'


def test_codes_of_errors_that_prometheus_kept_are_failures_with_or_without_power(tmp_path):
    path = tmp_path / "page.txt"
    path.write_text("# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n" + XID)
    assert kinds_of(tmp_path) == {"failure logs"}
    path.write_text("# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n" + XID + DCGM)
    assert kinds_of(tmp_path) == {"failure logs", "power logs"}
    assert len(load.fleet(tmp_path, tz="UTC", progress=False).failures.failures) == 1


@pytest.mark.parametrize("name", ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_POWER_USAGE"])
def test_answers_of_prometheus_are_told_by_the_metric_they_are_of(tmp_path, name):
    of = {"metric": {"__name__": name, "gpu": "0"}, "values": [[1435781430.781, "79"]]}
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [of]}}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    kind = "failure logs" if "XID" in name else "power logs"
    assert kinds_of(tmp_path) == {kind}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_power_is_not_taken_for_it_in_a_folder(tmp_path, name):
    (tmp_path / name).write_text(OTHERS[name])
    assert "power logs" not in kinds_of(tmp_path)


def test_cells_in_watts_make_a_table_of_power_in_a_folder(tmp_path):
    text = "Time,feed a,feed b\n2025-01-31T08:00:00Z,61.5 kW,62 kW\n"
    (tmp_path / "panel.csv").write_text(text)
    assert kinds_of(tmp_path) == {"power logs"}
    told = load.fleet(tmp_path, progress=False).power.power
    assert told["power_w"].tolist() == [61_500, 62_000]


def test_a_log_of_steps_with_their_power_is_both(tmp_path):
    lines = [f"{1_700_000_000 + 10 * n},{n},10,2.5,600" for n in range(5)]
    (tmp_path / "log.csv").write_text(
        "timestamp,step,duration_s,loss,power_w\n" + "\n".join([*lines, ""])
    )
    assert kinds_of(tmp_path) == {"job logs", "power logs"}
    told = load.fleet(tmp_path, progress=False)
    assert (len(told.job.steps), len(told.power.power)) == (5, 5)


def test_parquet_of_other_things_is_not_taken_for_power_in_a_folder(tmp_path):
    table = pa.table({"time": pa.array([1_700_000_000]), "loss": pa.array([4.5])})
    pq.write_table(table, tmp_path / "loss.parquet")
    assert "power logs" not in kinds_of(tmp_path)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [
    "kineto-dlrm-8rank", "kineto-h100", "kineto-resnet", "chakra-et", "failures-kmsg",
    "failures-slurm", "flight-recorder", "lengths-documents",
    "lengths-requests", "lengths-wikipedia", "stragglers-bytedance", "iterations-vtrain",
    "profiles-h100", "dlrm-locality",
])  # fmt: skip
def test_the_other_data_of_the_project_is_not_taken_for_power(real_data, name):
    assert "power logs" not in kinds_of(real_data(name))


def test_what_is_bundled_beside_power_is_not_taken_for_it():
    for path in sorted(datasets.path("fleet-demo").iterdir()):
        assert ("power logs" in kinds_of(path)) == (path.name == "power"), path
