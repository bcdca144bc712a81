"""Power of Intel's Gaudi. The samples are made, in the forms of `hl-smi -Q ... -f csv` 1.10 to
1.22, with and without header and units."""

import pytest

from tests.load.power.power_texts import T0, S, count_of, read, readings, recognised
from workbench import load
from workbench.errors import LoadError
from workbench.load._power.formats import hl_smi

HEADER = "timestamp, index, name, power.draw [W], temperature.aip [C], utilization.aip [%]\n"
BARE = (
    "0, 01P4-HL3090A0-18-P64W98-10-03-11, HL-325L, 1.22.1-97ec1a4, 131072 MiB, 226 W, 850 W, 36 C,"
    " 5 %\n"
    "1, 01P4-HL3090A0-18-P64W98-10-03-12, HL-325L, 1.22.1-97ec1a4, 131072 MiB, 230 W, 850 W, 37 C,"
    " 6 %\n"
)


def row(second, index, watts, unit=""):
    stamp = f"Tue Nov 14 22:13:{20 + second} UTC 2023"
    return f"{stamp}, {index}, HL-225, {watts}{unit}, 36, 15\n"


@pytest.mark.parametrize("unit", ["", " W"])
def test_a_table_with_header_and_time_is_read(tmp_path, unit):
    text = HEADER + row(0, 0, 103, unit) + row(0, 1, 105, unit) + row(1, 0, 104, unit)
    assert recognised(hl_smi, text)
    part = read(hl_smi, tmp_path, text, node="n1")
    assert readings(part) == [("n1/hpu0", 0, 103), ("n1/hpu1", 0, 105), ("n1/hpu0", 1, 104)]
    assert part.states["busy_share"].tolist() == [0.15] * 3
    assert part.entities["n1/hpu0"]["model"] == "HL-225"


def test_the_front_door_knows_it_from_the_table_of_nvidia_smi(tmp_path):
    path = tmp_path / "power.csv"
    path.write_text(HEADER + row(0, 0, 103) + row(1, 0, 104))
    log = load.power(path, node="n1")
    assert log.entities["entity"].tolist() == ["n1/hpu0"]


def test_without_a_header_the_units_of_cells_tell_the_columns(tmp_path):
    assert recognised(hl_smi, BARE)
    part = read(hl_smi, tmp_path, BARE)
    assert [(name, watts) for name, _, watts in readings(part)] == [("hpu0", 226), ("hpu1", 230)]
    assert part.entities["hpu0"]["limit_w"] == 850
    assert part.entities["hpu0"]["clock"] == "own"
    assert part.states["busy_share"].tolist() == [0.05, 0.06]
    assert count_of(part, "has no header") == 1


def test_snapshots_without_time_ask_for_it(tmp_path):
    with pytest.raises(LoadError, match=r"second reading of 'hpu0'.*hl-smi -Q timestamp"):
        read(hl_smi, tmp_path, BARE * 2)
    part = read(hl_smi, tmp_path, BARE * 2, period_s=1)
    assert part.readings["time_ns"].tolist() == [0, 0, S, S]
    part = read(hl_smi, tmp_path, f"{T0}\n{BARE}{T0 + 1}\n{BARE}")
    assert [at for _, at, _ in readings(part)] == [0, 0, 1, 1]


def test_an_accelerator_is_told_by_uuid_where_there_is_no_index(tmp_path):
    text = (
        "name, uuid, power.draw [W], temperature.aip [C]\n"
        "HL-205, 00P1-HL2000A1-14-P64X00-16-07-11, 102, 29\n"
    )
    part = read(hl_smi, tmp_path, text)
    assert list(part.entities) == ["00P1-HL2000A1-14-P64X00-16-07-11"]


def test_a_table_that_names_no_accelerator_asks_for_one(tmp_path):
    text = "timestamp, power.draw [W], temperature.aip [C]\n" + f"{T0}, 102, 29\n"
    with pytest.raises(LoadError, match=r"line 2: no column tells which accelerator"):
        read(hl_smi, tmp_path, text)


def test_a_cell_that_says_there_is_nothing_is_missing(tmp_path):
    part = read(hl_smi, tmp_path, HEADER + row(0, 0, "N/A") + row(1, 0, "garbage"))
    assert [watts for *_, watts in readings(part)] == [None, None]
    assert count_of(part, "not numbers") == 1


def test_a_cut_table_never_gives_a_number_that_was_cut(tmp_path):
    text = HEADER + "".join(row(n, 0, 100 + n) for n in range(9))
    for cut in range(len(HEADER) + len(row(0, 0, 100)), len(text), 13):
        part = read(hl_smi, tmp_path, text[:cut])
        whole = text[:cut].count("\n") - 1
        assert [watts for *_, watts in readings(part)] == [100 + n for n in range(whole)]


@pytest.mark.parametrize(
    "text",
    ["timestamp, index, power.draw [W]\n2024/01/01 00:00:00.000, 0, 5 W\n", "HL-225\n", "{}"],
)
def test_what_is_not_of_a_gaudi_is_not_recognised(text):
    assert not recognised(hl_smi, text)
