"""Logs of a power analyser, as MLPerf Inference submissions keep them."""

import pytest

from tests.load.power.power_files import SECOND, flagged, found, loaded
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of

T0_NS = 1_614_732_150 * SECOND


def line(second, watts, more=""):
    return (
        f"Time,03-03-2021 00:42:{30 + second:02d}.170,Watts,{watts},Volts,248.950000,"
        f"Amps,0.029660,PF,0.411800,Mark,2021-03-03_00-42-01_ranging{more}\n"
    )


@pytest.fixture
def log(tmp_path):
    """Write a log and load it."""

    def write_and_load(text, name="spl.txt", **given):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return loaded(path, **given)

    return write_and_load


def test_every_line_is_a_reading_of_the_system(log, tmp_path):
    read = log(line(0, "3.040000") + line(1, "3.330000"), node="rpi4")
    assert read.power["power_w"].tolist() == [3.04, 3.33]
    assert (read.power["time_ns"] - T0_NS).tolist() == [170_000_000, 1_170_000_000]
    assert read.entities[["entity", "scope", "method"]].iloc[0].tolist() == [
        "rpi4", "node_ac", "average"
    ]  # fmt: skip
    assert found(read, "says nothing of where it meters")["finding"] == "assumed"
    assert kinds_of(tmp_path) == {"power logs"}


def test_the_sum_of_channels_is_taken(log):
    channels = ",Ch1,Watts,1.0,Volts,1,Amps,1,PF,1,Ch2,Watts,2.0,Volts,1,Amps,1,PF,1"
    read = log(line(0, "3.0", channels) * 1)
    assert read.power["power_w"].tolist() == [3.0]
    assert found(read, "channels")["finding"] == "noted"


def test_a_zone_is_asked_for(log):
    with pytest.raises(LoadError, match=r"line 1: .* has no time zone; pass tz="):
        log(line(0, "3.0"), tz=None)


def test_what_is_no_reading_is_counted(log):
    cut = line(3, "3.6").split(",Volts")[0]
    text = line(0, "3.0") + "the daemon restarted\n" + line(1, "nan W") + line(2, "-1.000000") + cut
    read = log(text, scope="node_dc")
    assert read.power["power_w"].fillna(-9).tolist() == [3.0, -9, -9]
    assert found(read, "not readings")[["finding", "where"]].tolist() == ["dropped", "line 2"]
    assert found(read, "not numbers")[["finding", "where"]].tolist() == ["dropped", "line 3"]
    assert found(read, "break off")[["finding", "where"]].tolist() == ["truncated", "line 5"]
    assert any("negative" in each for each in flagged(read))


def test_runs_of_a_system_that_nobody_named_are_not_taken_for_one(tmp_path):
    for folder, hour in (("a", "00"), ("b", "06")):
        (tmp_path / folder).mkdir()
        text = (line(0, "3.0") + line(1, "3.1")).replace(" 00:42", f" {hour}:42")
        (tmp_path / folder / "spl.txt").write_text(text)
    apart = loaded(tmp_path)
    assert apart.entities["entity"].tolist() == ["node (a/spl.txt)", "node (b/spl.txt)"]
    assert any("unknown host" in each for each in flagged(apart))
    assert loaded(tmp_path, node="rpi4").entities["entity"].tolist() == ["rpi4"]
