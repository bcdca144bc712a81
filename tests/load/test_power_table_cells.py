"""Tables that people keep themselves: cells with units, values, names and damage."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.errors import LoadError
from workbench.load import power_table
from workbench.load._power_part import NoPowerError, PowerGiven
from workbench.load.archive import sources

SECOND = 10**9
START = 1_700_000_000


@pytest.fixture
def read(tmp_path):
    """Write a table and read it with this reader alone."""

    def do(content, name="table.csv", **given):
        path = tmp_path / name
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        source = sources(path)[0]
        assert power_table.looks_like(source.head(1 << 16), source.label)
        return power_table.read_power(source, PowerGiven(**given))

    return do


def watts(part):
    """Return the powers by entity, in the order of the file."""
    by = part.readings.groupby("entity", observed=True)["power_w"]
    return {str(name): values.tolist() for name, values in by}


def said(part, finding):
    frame = part.findings.frame()
    return frame.loc[frame["finding"] == finding, "what"].tolist()


def test_bytes_that_are_no_utf8_cost_neither_the_file_nor_the_difference_of_names(tmp_path):
    path = tmp_path / "a.csv"
    rows = f"time,entity,power_w\n{START},a,1\n{START},B\xfc,2\n{START},B\xe4,3\n"
    path.write_bytes(f"{rows}{START},\xff,1,5\n{START},c\u00fc,4\n".encode("latin-1"))
    part = power_table.read_power(sources(path)[0], PowerGiven())
    assert watts(part) == {"a": [1], r"B\xfc": [2], r"B\xe4": [3], r"c\xfc": [4]}
    frame = part.findings.frame().set_index("finding")
    assert frame.loc["repaired", ["count", "where"]].tolist() == [4, "line 3"]
    assert frame.loc["left out", ["count", "where"]].tolist() == [1, "line 5"]


@pytest.mark.parametrize("size", [1 << 10, 5 << 20])
def test_bytes_that_are_no_utf8_are_found_in_any_block(tmp_path, size):
    path = tmp_path / "a.csv"
    row = f"{START},\u00e4,1\n".encode()
    rows = size // len(row)
    bad = f"{START},\xe4,2\n".encode("latin-1")
    path.write_bytes(b"time,entity,power_w\n" + row * rows + bad + row)
    part = power_table.read_power(sources(path)[0], PowerGiven())
    assert watts(part) == {"\u00e4": [1] * (rows + 1), r"\xe4": [2]}
    frame = part.findings.frame().set_index("finding")
    assert frame.loc["repaired", ["count", "where"]].tolist() == [1, f"line {rows + 2:,}"]


def test_cells_of_a_wide_table_may_name_their_units(read):
    text = "Time,node1_gpu0,node1_gpu1,users\n"
    rows = f"{START},312 W,1.20 kW,3\n{START + 15},315 W,,4\n"
    part = read(text + rows)
    assert watts(part) == {
        "node1/gpu0": [312, 315],
        "node1/gpu1": [1200, pytest.approx(np.nan, nan_ok=True)],
    }
    line = {"time": START, "host": "n1", "power": "1.5 kW"}
    assert watts(read(json.dumps(line) + "\n", "p.jsonl")) == {"n1": [1500]}


@pytest.mark.parametrize(
    ("row", "given"), [("312 W,700 W,420 W", {}), ("312,700,420", {"unit": "W"})]
)
def test_limits_beside_powers_that_nothing_names_are_not_drawn(read, row, given):
    part = read(f"Time,gpu 0,gpu 0 limit,gpu 0 max\n{START},{row}\n", **given)
    assert watts(part) == {"gpu0": [312]}
    assert [what for what in said(part, "set aside") if "a limit" in what] == [
        "column 'gpu 0 limit': a limit, no power that is drawn",
        "column 'gpu 0 max': a limit, no power that is drawn",
    ]


def test_of_two_times_the_one_that_needs_no_zone_is_taken(read):
    text = f"time,unix_time,epoch,power_w\n2023-11-14 23:13:20,{START},3,5\n"
    assert read(text).readings["time_ns"].tolist() == [START * SECOND]
    # An epoch may be one of training.
    told = read("time,epoch,power_w\n2023-11-14 22:13:20,3,5\n", tz="UTC")
    assert told.readings["time_ns"].tolist() == [START * SECOND]


def test_columns_whose_cells_say_watts_lose_none_beside_them(read):
    text = f"time,node1,node2,cooling_w,users\n{START},600 W,610 W,50,7\n"
    part = read(text)
    assert watts(part) == {"node1": [600], "node2": [610], "cooling": [50]}
    total = read(f"time,node1,node2,Total power\n{START},600 W,610 W,1210 W\n")
    assert watts(total) == {"node1": [600], "node2": [610]}
    late = "".join(f"{START + n},600 W,{'' if n < 25 else '500 W'}\n" for n in range(40))
    assert np.isfinite(watts(read("time,node1,node2\n" + late))["node2"]).sum() == 15
    late = late.replace(",\n", ",N/A\n")
    assert np.isfinite(watts(read("time,node1,node2\n" + late))["node2"]).sum() == 15
    bare = f"time,node1,node2\n{START},0.6 kW,0.7\n"
    assert watts(read(bare)) == {"node1": [600]}
    assert "name no unit" in said(read(bare), "set aside")[0]
    assert watts(read(bare, unit="kW")) == {"node1": [600], "node2": [700]}


def test_a_bare_cell_among_those_with_a_unit_is_no_power(read):
    part = read(f"time,node1\n{START},0.7 kW\n{START + 1},0.8\n{START + 2},0\n")
    assert np.nan_to_num(watts(part)["node1"], nan=-1).tolist() == [700, -1, 0]
    assert "without a unit, which others have" in said(part, "left out")[0]


def test_objects_in_a_line_are_told_apart(read):
    line = {"time": START, "host": "n1", "gpu0": {"power_w": 600}, "gpu1": {"power_w": 100}}
    assert watts(read(json.dumps(line) + "\n", "p.jsonl")) == {"n1/gpu0": [600], "n1/gpu1": [100]}
    line = {"time": START, "host": "n1", "gpu": {"power_w": 600}, "cpu": {"power_w": 100}}
    assert watts(read(json.dumps(line) + "\n", "p.jsonl")) == {"n1/gpu": [600], "n1/cpu": [100]}


def test_lines_that_a_quote_swallows_are_counted(read):
    lines = [f"{START + n},n{n % 2},5" for n in range(20)]
    lines[3] = f'{START + 3},"n1,5'
    part = read("time,host,power_w\n" + "\n".join(lines) + "\n")
    frame = part.findings.frame()
    swallowed = frame[frame["what"].str.contains("swallowed|go over lines")]
    assert len(part.readings) + swallowed["count"].sum() >= 19


def test_values_of_named_things_need_a_unit(read):
    text = f"timestamp,node,value\n{START},n1,1.2\n{START},n2,1.3\n"
    with pytest.raises(
        LoadError, match=r"\['value'\] name no unit; if they are powers, pass unit="
    ):
        read(text)
    part = read(text, unit="kW", scope="node_ac")
    assert watts(part) == {"n1": [1200], "n2": [1300]}
    assert part.entities["n1"]["scope"] == "node_ac"
    series = f'"Series";"Time";"Value"\n"gpu0";"{START}";312.5\n"gpu1";"{START}";212.5\n'
    assert watts(read(series, unit="W")) == {"gpu0": [312.5], "gpu1": [212.5]}


def test_values_of_several_quantities_are_never_powers_alone(read):
    text = f"#group,x\n_time,_value,_field,host\n{START},312,power_draw,n1\n{START},40,temp,n1\n"
    with pytest.raises(NoPowerError, match=r"'_field' says what each row measures; keep the rows"):
        read(text, unit="W")


def test_values_beside_a_column_of_kinds_are_refused(read):
    text = f"time,host,type,value\n{START},n1,temp,45\n{START},n1,power,400\n"
    with pytest.raises(NoPowerError, match=r"columns \['type'\] may say what each value is"):
        read(text, unit="W")


def test_names_that_a_terminal_would_obey_or_that_never_end_are_written_safely(read):
    names = ["a\x1b[31mb", "a\x1b[32mb", "x" * 5000, "x" * 5000 + "y"]
    lines = "".join(
        json.dumps({"time": START, "host": name, "power_w": 5}) + "\n" for name in names
    )
    told = list(watts(read(lines, "p.jsonl")))
    assert len(set(told)) == 4
    assert all(name.isprintable() and len(name) < 400 for name in told)
