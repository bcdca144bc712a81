"""Windows of Zeus as power: the public files, then windows that cannot be."""

import pytest

from workbench import load
from workbench.errors import LoadError

HEADER = "start_time,window_name,elapsed_time,gpu0_energy\n"


@pytest.fixture
def power(tmp_path):
    """Write a file of windows and load it."""

    def read(text, **said):
        path = tmp_path / "zeus.csv"
        path.write_text(text)
        return load.power(path, progress=False, **said)

    return read


def told(log):
    return {(row.finding, row.what): row.count for row in log.quality.itertuples()}


@pytest.mark.oracle
def test_public_windows_keep_their_energy_and_their_limits(real_data):
    path = real_data("power-zeus-sweeps") / "A40+resnet18+gpu0,1,2,3.csv"
    log = load.power(path, progress=False)
    assert log.entities["entity"].tolist() == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert set(log.entities["clock"]) == {"own"}
    assert log.entities["reading_count"].tolist() == [18] * 4
    first = log.power.iloc[:2]
    area = first["power_w"].mean() * first["time_ns"].diff().iloc[1] / 1e9
    assert area == pytest.approx(3991.397, rel=1e-6)
    assert log.counters["energy_j"].iloc[:2].tolist() == pytest.approx([0, 3991.397])
    assert log.states["limit_w"].iloc[:4].tolist() == [300, 300, 275, 275]


def test_stamps_since_1970_are_on_the_common_clock(power):
    log = power(HEADER + "1715960318.5,step,2,600\n", node="n1")
    assert log.entities[["entity", "clock", "method"]].values.tolist() == [
        ["n1/gpu0", "epoch", "average"]
    ]
    assert log.power["time_ns"].tolist() == [1715960318500000000, 1715960320500000000]
    assert log.power["power_w"].tolist() == [300, 300]


def test_windows_inside_another_one_are_not_counted_again(power):
    log = power(HEADER + "1,inner,1,50\n0,epoch,10,3000\n12,next,1,100\n10,touching,1,200\n")
    # A window ten times as long as the others has readings in between, or it would be a pause.
    expected = [300] * 11 + [200, 200, 100, 100]
    assert log.power["power_w"].tolist() == pytest.approx(expected)
    inside = "windows inside or across another one, whose energy is in that one"
    assert told(log)["skipped by design", inside] == 1
    assert log.power["time_ns"].is_monotonic_increasing


def test_windows_that_cannot_be_are_counted_and_the_others_read(power):
    log = power(
        HEADER + "0,a,1,nan\n2,b,1,-5\n4,c,0,1\n6,d,x,1\nsoon,e,1,1\n8,f,1,inf\n10,g,1,7\n12,h,1\n"
    )
    found = told(log)
    assert log.power["power_w"].dropna().tolist() == [7, 7]
    assert found["dropped", "windows without a duration"] == 1
    assert found["dropped", "windows without a usable time"] == 2
    assert found["dropped", "energies of gpu0_energy that can be none"] == 2
    assert found["dropped", "rows with more or fewer cells than the header"] == 1


def test_a_header_alone_is_refused(power):
    with pytest.raises(LoadError, match="holds a header and no window with a time"):
        power(HEADER)
