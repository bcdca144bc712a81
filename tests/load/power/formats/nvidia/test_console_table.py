"""The table that nvidia-smi prints for people, logged again and again."""

import re

import pytest

from tests.load.power.power_files import SECOND, flagged, found, loaded
from workbench.errors import LoadError
from workbench.load._power.formats.nvidia import console_table as nvidia_table
from workbench.load.kinds import kinds_of

HEAD = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 590.48.01              Driver Version: 590.48.01      CUDA Version: 13.1     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
""".lstrip()
RULE = (
    "+-----------------------------------------+------------------------+----------------------+\n"
)
MIG = """
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
|  0    2   0   0  |              26MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |
|                  |               0MiB / 24739MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
"""
# A driver of 2019: shorter names, another frame, no blank before the limit.
OLD = """Mon Dec  2 08:00:00 2019
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 418.67       Driver Version: 418.67       CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:1A:00.0 Off |                    0 |
| N/A   38C    P0    55W / 300W |     11MiB / 32480MiB |     12%      Default |
+-------------------------------+----------------------+----------------------+
|   1  GeForce RTX 208...  Off  | 00000000:1B:00.0 Off |                  N/A |
| 30%   41C    P8    N/A /  N/A |     11MiB / 11019MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
"""


def gpu(index, power="98W", limit="700W", busy="99%", bus="1A"):
    return (
        f"|   {index}  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off |           0 |\n"
        f"| N/A   42C    P0  {power:>13} /  {limit} |      59MiB /  81559MiB | {busy:>7} Default |\n"
        "|                                         |                        |             Enabled |\n"
        + RULE
    )


def stamp(second):
    return f"Tue Jul 14 09:00:{second:02d} 2026       \n"


@pytest.fixture
def log(tmp_path):
    """Write a log and load it."""

    def write_and_load(text, **given):
        path = tmp_path / "smi.log"
        path.write_text(text)
        return loaded(path, **given)

    return write_and_load


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "watts", "model"),
    [
        ("h100-80gb-hbm3", [69, 629], "NVIDIA H100 80GB HBM3"),
        ("h100-mig", [98, 432], "NVIDIA H100 80GB HBM3"),
        ("h200", [77, 628], "NVIDIA H200"),
    ],
)
def test_tables_of_real_gpus_are_read(real_data, log, name, watts, model):
    path = real_data("power-nvidia-smi") / f"linux-x86_64__nvidia-{name}__590.48.01.txt"
    sections = re.split(r"#{80}\n", path.read_text())
    read = log("".join(part for part in sections if "Pwr:Usage/Cap" in part))
    assert read.power["power_w"].tolist() == watts
    assert read.entities[["entity", "model", "limit_w", "method"]].iloc[0].tolist() == [
        "gpu0", model, 700, "avg_1s"
    ]  # fmt: skip
    assert found(read, "whole watts")["finding"] == "noted"


def test_every_table_is_a_reading_of_each_gpu(log):
    text = "".join(
        stamp(s) + HEAD + gpu(0, f"{100 + s}W") + gpu(1, f"{200 + s}W", bus="1B") + MIG
        for s in range(5)
    )
    read = log(text, node="n1")
    by = read.power.groupby("entity", observed=True)["power_w"].agg(list)
    assert by.to_dict() == {
        "n1/gpu0": [100, 101, 102, 103, 104],
        "n1/gpu1": [200, 201, 202, 203, 204],
    }
    assert read.entities["period_s"].tolist() == [1, 1]
    assert read.states[["limit_w", "busy_share", "temperature_c"]].iloc[0].tolist() == [
        700,
        0.99,
        42,
    ]
    assert flagged(read) == []


def test_old_drivers_and_gpus_without_power_are_read(log):
    read = log(OLD)
    assert read.power["power_w"].fillna(-1).tolist() == [55, -1]
    assert read.entities[["model", "method"]].iloc[0].tolist() == ["Tesla V100-SXM2...", "instant"]
    assert read.states["limit_w"].fillna(-1).tolist() == [300, -1]


@pytest.mark.parametrize("cell", ["N/A", "ERR!", "Unknown Error"])
def test_a_power_that_is_not_told_is_missing(log, cell):
    read = log(stamp(0) + HEAD + gpu(0, cell) + stamp(1) + HEAD + gpu(0))
    assert read.power["power_w"].fillna(-1).tolist() == [-1, 98]


def test_a_table_that_breaks_off_is_counted(log):
    text = stamp(0) + HEAD + gpu(0) + stamp(1) + HEAD + gpu(0)
    cut = text[: text.rindex("| N/A   42C")]
    read = log(cut)
    assert len(read.power) == 1
    assert found(read, "breaks off")[["finding", "count", "where"]].tolist() == [
        "dropped", 1, "line 21"
    ]  # fmt: skip


def test_without_times_the_period_is_asked_for(log):
    text = (HEAD + gpu(0)) * 3
    with pytest.raises(LoadError, match="holds no time; pass period_s="):
        log(text)
    read = log(text, period_s=2)
    assert read.power["time_ns"].tolist() == [0, 2 * SECOND, 4 * SECOND]
    mixed = log(HEAD + gpu(0) + stamp(0) + HEAD + gpu(0))
    assert len(mixed.power) == 1
    assert found(mixed, "without a time above")["finding"] == "dropped"


def test_a_zone_is_asked_for(log):
    with pytest.raises(LoadError, match="has no time zone; pass tz="):
        log(stamp(0) + HEAD + gpu(0), tz=None)


def test_other_readings_than_the_one_it_shows_are_refused(log):
    with pytest.raises(LoadError, match=r"shows power.draw of GPUs only"):
        log(stamp(0) + HEAD + gpu(0), reading="instant")


def test_a_log_of_training_that_begins_with_the_table_is_no_power_log(tmp_path):
    lines = "".join(f"iteration {n} / 100 | loss {n}\n" for n in range(40))
    text = stamp(0) + HEAD + gpu(0) + lines.replace("iteration", "[rank0] iteration")
    assert not nvidia_table.looks_like(text.encode(), "train.log")
    (tmp_path / "train.log").write_text(text)
    assert "power logs" not in kinds_of(tmp_path)


def test_a_stamp_is_that_of_one_table_only(log):
    cut = stamp(0) + HEAD + gpu(0)[:90].split("\n")[0] + "\n| N/A   42C    P0   62"
    text = stamp(10) + HEAD + gpu(0, "60W") + cut + stamp(50) + HEAD + gpu(0, "77W")
    read = log(text)
    assert read.power["power_w"].tolist() == [60]
    assert found(read, "without a time above")["finding"] == "dropped"


def test_hosts_in_one_file_are_told_apart_or_refused(log):
    one, other = gpu(0, "60W", bus="06"), gpu(0, "160W", bus="1A")
    read = log("".join(stamp(5 * n) + HEAD + (one, other)[n % 2] for n in range(6)))
    by = read.power.groupby("entity", observed=True)["power_w"].agg(list)
    assert by.to_dict() == {"gpu 00000000:06:00.0": [60] * 3, "gpu 00000000:1A:00.0": [160] * 3}
    assert any("several hosts in one file" in each for each in flagged(read))
    same_bus = (
        gpu(0, "60W"),
        gpu(0, "160W").replace("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB "),
    )
    with pytest.raises(LoadError, match=r"GPU 0 is NVIDIA H100.* and Tesla V100.* several hosts"):
        log("".join(stamp(5 * n) + HEAD + same_bus[n % 2] for n in range(4)))


@pytest.mark.parametrize("cell", ["[N/A] /  700W", "N/A /  700W"])
def test_the_limit_of_a_gpu_without_power_is_read(log, cell):
    text = stamp(0) + HEAD + gpu(0).replace("98W /  700W", cell)
    assert log(text).states["limit_w"].tolist() == [700]
