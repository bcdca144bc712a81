"""Tables that people keep themselves: cells with units, values, names and damage."""

import json

import numpy as np
import pytest

from tests.load.power.power_tables import SECOND, START, said, watts
from workbench.errors import LoadError
from workbench.load._files.archive import sources
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.part import NoPowerError, PowerOptions


def test_bytes_that_are_no_utf8_cost_neither_the_file_nor_the_difference_of_names(tmp_path):
    path = tmp_path / "a.csv"
    rows = f"time,entity,power_w\n{START},a,1\n{START},B\xfc,2\n{START},B\xe4,3\n"
    path.write_bytes(f"{rows}{START},\xff,1,5\n{START},c\u00fc,4\n".encode("latin-1"))
    part = power_table.read_power(sources(path)[0], PowerOptions())
    assert watts(part) == {"a": [1], r"B\xfc": [2], r"B\xe4": [3], r"c\xfc": [4]}
    frame = part.findings.frame().set_index("finding")
    assert frame.loc["repaired", ["count", "where"]].tolist() == [4, "line 3"]
    assert frame.loc["dropped", ["count", "where"]].tolist() == [1, "line 5"]


@pytest.mark.parametrize("size", [1 << 10, 5 << 20])
def test_bytes_that_are_no_utf8_are_found_in_any_block(tmp_path, size):
    path = tmp_path / "a.csv"
    row = f"{START},\u00e4,1\n".encode()
    rows = size // len(row)
    bad = f"{START},\xe4,2\n".encode("latin-1")
    path.write_bytes(b"time,entity,power_w\n" + row * rows + bad + row)
    part = power_table.read_power(sources(path)[0], PowerOptions())
    assert watts(part) == {"\u00e4": [1] * (rows + 1), r"\xe4": [2]}
    frame = part.findings.frame().set_index("finding")
    assert frame.loc["repaired", ["count", "where"]].tolist() == [1, f"line {rows + 2:,}"]


def test_cells_of_a_wide_table_may_name_their_units(read_table):
    text = "Time,node1_gpu0,node1_gpu1,users\n"
    rows = f"{START},312 W,1.20 kW,3\n{START + 15},315 W,,4\n"
    part = read_table(text + rows)
    assert watts(part) == {
        "node1/gpu0": [312, 315],
        "node1/gpu1": [1200, pytest.approx(np.nan, nan_ok=True)],
    }
    line = {"time": START, "host": "n1", "power": "1.5 kW"}
    assert watts(read_table(json.dumps(line) + "\n", "p.jsonl")) == {"n1": [1500]}


@pytest.mark.parametrize(
    ("row", "given"), [("312 W,700 W,420 W", {}), ("312,700,420", {"unit": "W"})]
)
def test_limits_beside_powers_that_nothing_names_are_not_drawn(read_table, row, given):
    part = read_table(f"Time,gpu 0,gpu 0 limit,gpu 0 max\n{START},{row}\n", **given)
    assert watts(part) == {"gpu0": [312]}
    assert [what for what in said(part, "skipped by design") if "a limit" in what] == [
        "column 'gpu 0 limit': a limit, no power that is drawn",
        "column 'gpu 0 max': a limit, no power that is drawn",
    ]


def test_of_two_times_the_one_that_needs_no_zone_is_taken(read_table):
    text = f"time,unix_time,epoch,power_w\n2023-11-14 23:13:20,{START},3,5\n"
    assert read_table(text).readings["time_ns"].tolist() == [START * SECOND]
    # An epoch may be one of training.
    told = read_table("time,epoch,power_w\n2023-11-14 22:13:20,3,5\n", tz="UTC")
    assert told.readings["time_ns"].tolist() == [START * SECOND]


def test_columns_whose_cells_say_watts_lose_none_beside_them(read_table):
    text = f"time,node1,node2,cooling_w,users\n{START},600 W,610 W,50,7\n"
    part = read_table(text)
    assert watts(part) == {"node1": [600], "node2": [610], "cooling": [50]}
    zeros = f"time,node1 power,errors\n{START},600 W,0\n{START + 1},600 W,3\n"
    assert list(watts(read_table(zeros))) == ["table"]
    total = read_table(f"time,node1,node2,Total power\n{START},600 W,610 W,1210 W\n")
    assert watts(total) == {"node1": [600], "node2": [610]}
    late = "".join(f"{START + n},600 W,{'' if n < 25 else '500 W'}\n" for n in range(40))
    assert np.isfinite(watts(read_table("time,node1,node2\n" + late))["node2"]).sum() == 15
    late = late.replace(",\n", ",N/A\n")
    assert np.isfinite(watts(read_table("time,node1,node2\n" + late))["node2"]).sum() == 15
    bare = f"time,node1,node2\n{START},0.6 kW,0.7\n"
    assert watts(read_table(bare)) == {"node1": [600]}
    assert "name no unit" in said(read_table(bare), "skipped by design")[0]
    assert watts(read_table(bare, unit="kW")) == {"node1": [600], "node2": [700]}


def test_a_bare_cell_among_those_with_a_unit_is_no_power(read_table):
    part = read_table(f"time,node1\n{START},0.7 kW\n{START + 1},0.8\n{START + 2},0\n")
    assert np.nan_to_num(watts(part)["node1"], nan=-1).tolist() == [700, -1, 0]
    assert "without a unit, which others have" in said(part, "dropped")[0]


def test_objects_in_a_line_are_told_apart(read_table):
    line = {"time": START, "host": "n1", "gpu0": {"power_w": 600}, "gpu1": {"power_w": 100}}
    assert watts(read_table(json.dumps(line) + "\n", "p.jsonl")) == {
        "n1/gpu0": [600],
        "n1/gpu1": [100],
    }
    line = {"time": START, "host": "n1", "gpu": {"power_w": 600}, "cpu": {"power_w": 100}}
    assert watts(read_table(json.dumps(line) + "\n", "p.jsonl")) == {
        "n1/gpu": [600],
        "n1/cpu": [100],
    }


def test_lines_that_a_quote_swallows_are_counted(read_table):
    lines = [f"{START + n},n{n % 2},5" for n in range(20)]
    lines[3] = f'{START + 3},"n1,5'
    part = read_table("time,host,power_w\n" + "\n".join(lines) + "\n")
    frame = part.findings.frame()
    swallowed = frame[frame["what"].str.contains("swallowed|go over lines")]
    assert len(part.readings) + swallowed["count"].sum() >= 19


def test_values_of_named_things_need_a_unit(read_table):
    text = f"timestamp,node,value\n{START},n1,1.2\n{START},n2,1.3\n"
    with pytest.raises(
        LoadError, match=r"\['value'\] name no unit; if they are powers, pass unit="
    ):
        read_table(text)
    part = read_table(text, unit="kW", scope="node_ac")
    assert watts(part) == {"n1": [1200], "n2": [1300]}
    assert part.entities["n1"]["scope"] == "node_ac"
    series = f'"Series";"Time";"Value"\n"gpu0";"{START}";312.5\n"gpu1";"{START}";212.5\n'
    assert watts(read_table(series, unit="W")) == {"gpu0": [312.5], "gpu1": [212.5]}


def test_values_of_several_quantities_are_never_powers_alone(read_table):
    text = f"#group,x\n_time,_value,_field,host\n{START},312,power_draw,n1\n{START},40,temp,n1\n"
    with pytest.raises(NoPowerError, match=r"'_field'\] may say what each value is; keep the rows"):
        read_table(text, unit="W")


def test_values_beside_a_column_of_kinds_are_refused(read_table):
    text = f"time,host,type,value\n{START},n1,temp,45\n{START},n1,power,400\n"
    with pytest.raises(NoPowerError, match=r"columns \['type'\] may say what each value is"):
        read_table(text, unit="W")


def test_names_that_a_terminal_would_obey_or_that_never_end_are_written_safely(read_table):
    names = ["a\x1b[31mb", "a\x1b[32mb", "x" * 5000, "x" * 5000 + "y"]
    lines = "".join(
        json.dumps({"time": START, "host": name, "power_w": 5}) + "\n" for name in names
    )
    told = list(watts(read_table(lines, "p.jsonl")))
    assert len(set(told)) == 4
    assert all(name.isprintable() and len(name) < 400 for name in told)
