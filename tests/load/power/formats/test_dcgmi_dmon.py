"""What dcgmi dmon prints: fields and units, repeated headers, and time from elsewhere."""

import pytest

from workbench import load
from workbench.errors import LoadError

HEADER = ["#Entity   POWER                 TOTEC", "ID        W                     mJ"]
ROWS = ["GPU 0     52.636                1000", "GPU 1     53.5                  2000"]


@pytest.fixture
def power(tmp_path):
    """Write what was printed and load it."""

    def read(lines, **said):
        path = tmp_path / "dmon.txt"
        path.write_text("\n".join([*lines, ""]))
        return load.power(path, progress=False, **said)

    return read


def told(log):
    return {(row.finding, row.what): row.count for row in log.quality.itertuples()}


def test_rows_are_a_period_apart_that_the_caller_names(power):
    log = power([*HEADER, *ROWS, *HEADER, *ROWS], period_s=0.5, node="n1")
    assert log.entities["entity"].tolist() == ["n1/gpu0", "n1/gpu1"]
    assert log.entities["clock"].tolist() == ["own", "own"]
    assert log.entities["assumed"].tolist() == ["node=n1, period_s=0.5"] * 2
    assert log.power["time_ns"].tolist() == [0, 500_000_000] * 2
    assert log.power["power_w"].tolist() == [52.636, 52.636, 53.5, 53.5]
    assert log.counters["energy_j"].tolist() == [1, 1, 2, 2]


def test_stamps_before_the_rows_are_read(power):
    lines = [f"2024-05-01T10:00:{n:02d}.5+0200 {text}" for n, text in enumerate([*HEADER, *ROWS])]
    log = power(lines)
    assert log.entities["clock"].tolist() == ["epoch", "epoch"]
    assert log.power["time_ns"].tolist() == [1714550402500000000, 1714550403500000000]


def test_without_a_time_the_error_says_how_to_get_one(power):
    with pytest.raises(LoadError, match=r"line 3: rows of dcgmi dmon hold no time; pass period_s="):
        power([*HEADER, *ROWS])


def test_stamps_without_a_date_are_refused(power):
    with pytest.raises(
        LoadError, match="'10:00:00' is not a stamp with a date; log with: dcgmi dmon"
    ):
        power([HEADER[0], HEADER[1], "10:00:00 GPU 0  52 1"])


def test_local_stamps_need_a_zone(power):
    with pytest.raises(LoadError, match="has no time zone; pass tz="):
        power([*HEADER, "2024-05-01 10:00:00 GPU 0  52 1"])


def test_units_are_those_of_the_header(power):
    log = power(["#Entity POWER", "ID mW", "GPU 0 52636"], period_s=1)
    assert log.power["power_w"].tolist() == pytest.approx([52.636])


def test_a_unit_that_is_missing_is_assumed_and_told(power):
    log = power(["#Entity POWER", "GPU 0 52"], period_s=1)
    assert told(log)["assumed", "POWER without a unit taken as W, as DCGM writes it"] == 1


@pytest.mark.parametrize(("reading", "expected"), [(None, 50), ("average", 50), ("instant", 60)])
def test_of_two_powers_the_asked_one_is_taken(power, reading, expected):
    lines = ["#Entity POWER POWINST EPLMT GPUTL", "ID W W W %", "GPU 0 50 60 700 40"]
    log = power(lines, period_s=1, reading=reading)
    assert log.power["power_w"].tolist() == [expected]
    assert log.states[["limit_w", "busy_share"]].values.tolist() == [[700, 0.4]]


def test_instances_of_a_gpu_are_not_counted_beside_it(power):
    log = power(
        [*HEADER, ROWS[0], "GPU-I 0   52.636   1000", "GPU-CI 0   52.636   1000"], period_s=1
    )
    assert log.entities["entity"].tolist() == ["gpu0"]
    what = "rows of parts of a GPU or CPU, which repeat the draw of the whole"
    assert told(log)["skipped by design", what] == 2


def test_cells_that_are_no_number_are_missing_and_counted(power):
    cells = ["N/A", "oops", "inf", "140737488355328.0", "9223372036854775794"]
    log = power([*HEADER, ROWS[0], *(f"GPU 0  {cell}  1" for cell in cells), "GPU 0 5"], period_s=1)
    assert log.power["power_w"].isna().sum() == 5
    assert told(log)["dropped", "cells of POWER that are not numbers"] == 4
    assert told(log)["dropped", "rows with more or fewer cells than the header"] == 1


def test_a_header_alone_is_refused(power):
    with pytest.raises(LoadError, match="holds a header of dcgmi dmon and no row of a device"):
        power(HEADER)
