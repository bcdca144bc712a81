"""Tables that people keep themselves: columns, units, times, entities, and what is refused."""

import gzip
import json
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.power.power_tables import SECOND, START, said, watts
from workbench import load
from workbench.errors import LoadError
from workbench.load._files.archive import sources
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.formats.table.columns import power_name
from workbench.load._power.part import NoPowerError, PowerOptions


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("power_w", 1), ("power [W]", 1), ("power.draw [W]", 1), ("Power (kW)", 1e3),
        ("power_kw", 1e3), ("power_MW", 1e6), ("power_mW", 1e-3), ("watts", 1), ("powerWatts", 1),
        ("power_draw_W", 1), ("usage_milli_watts", 1e-3), ("Sys_Total_Power_kW", 1e3),
        ("power_w_mean", 1), ("input_power.mean", None), ("power", None), ("pwr", None),
        ("power_mw", None), ("power_megawatts", 1e6), ("power_\u00b5W", 1e-6),
        ("power [\u03bcW]", 1e-6), ("power_\ufffdW", None),
    ],
)  # fmt: skip
def test_units_are_read_from_names(name, factor):
    assert power_name(name).factor == factor


@pytest.mark.parametrize(
    "name",
    ["power_limit_w", "power_violation_us", "power_state", "energy_j", "temperature", "row",
     "enforced_limit_milli_watts", "power_cap_w", "power_used_percent", "power_energy_kwh"],
)  # fmt: skip
def test_names_of_other_things_are_no_powers(name):
    assert power_name(name) is None


def test_supercloud_tables_are_read(read_table):
    text = (
        "timestamp,gpu_index,utilization_gpu_pct,utilization_memory_pct,memory_free_MiB,"
        "memory_used_MiB,temperature_gpu,temperature_memory,power_draw_W,pcie_link_width_current\n"
        "1613000000.123,0,50.0,10.0,30000,2510,40,39,61.25,16\n"
        "1613000000.223,1,101.0,10.0,30000,2510,41,39,62.5,16\n"
    )
    part = read_table(text, node="r1")
    assert watts(part) == {"r1/gpu0": [61.25], "r1/gpu1": [62.5]}
    assert part.readings["time_ns"].tolist() == [1613000000123000000, 1613000000223000000]
    assert part.entities["r1/gpu1"]["scope"] == "gpu"
    assert part.entities["r1/gpu1"]["assumed"] == "node=r1"
    assert part.states["busy_share"].tolist() == [0.5, pytest.approx(np.nan, nan_ok=True)]
    assert part.states["temperature_c"].tolist() == [40, 41]
    assert said(part, "assumed") == ["times count s since 1970, by their size"]


def test_acme_tables_have_a_column_per_server_and_ask_for_the_unit(read_table):
    text = (
        "Time,172.31.0.1,172.31.0.2\n2023-07-01 08:00:00+08:00,500,\n"
        "2023-07-01 08:00:15+08:00,510,620\n2023-07-01 08:00:15+08:00,511,620\n"
    )
    with pytest.raises(LoadError, match=r"columns \['172.31.0.1', .*name no unit; .*pass unit="):
        read_table(text)
    part = read_table(text, unit="W", scope="node_ac")
    assert watts(part)["172.31.0.1"] == [500, 510, 511]
    assert part.readings["time_ns"].iloc[0] == 1688169600 * SECOND
    assert part.entities["172.31.0.2"] == {
        "scope": "node_ac", "method": "unknown", "unit": "W", "node": "172.31.0.2",
        "clock": "epoch", "assumed": "scope=node_ac, unit=W",
    }  # fmt: skip


def test_wide_columns_of_gpus_are_named_as_elsewhere(read_table):
    part = read_table("time_s,node1_gpu0 [kW],node1_gpu10 [kW],note\n1700000000,0.5,0.7,x\n")
    assert watts(part) == {"node1/gpu0": [500], "node1/gpu10": [700]}
    assert part.entities["node1/gpu10"]["node"] == "node1"
    part = read_table("time_s,gpu0_power_w,gpu1_power_w\n1700000000,5,7\n", node="n9")
    assert watts(part) == {"n9/gpu0": [5], "n9/gpu1": [7]}


def summit(**columns):
    stamps = pa.array([START, START + 1], pa.timestamp("s", "UTC"))
    return pa.table({"timestamp": stamps, "hostname": ["h01n01"] * 2} | columns)


def test_summit_sensors_are_gpus_and_sockets_of_their_node(read_table):
    power = {f"p{p}_gpu{g}_power": np.array([100 + 3 * p + g] * 2, np.int16)
             for p in (0, 1) for g in (0, 1, 2)}  # fmt: skip
    power |= {"p0_power": np.array([180, 181], np.int16), "total_power": [1500, 1501]}
    part = read_table(summit(**power), "summit.parquet")
    assert watts(part)["h01n01/gpu5"] == [105, 105]
    assert watts(part)["h01n01/cpu0"] == [180, 181]
    assert part.entities["h01n01/gpu5"]["scope"] == "gpu"
    assert part.entities["h01n01/cpu0"]["scope"] == "cpu"
    assert "h01n01/total" in part.entities


def test_summit_means_of_ten_seconds_are_averages(read_table):
    names = ("count", "min", "max", "mean", "std")
    part = read_table(summit(**{f"input_power.{name}": [1.0, 2.0] for name in names}), "s.parquet")
    assert watts(part) == {"h01n01": [1.0, 2.0]}
    facts = part.entities["h01n01"]
    assert (facts["scope"], facts["method"]) == ("node_ac", "average")
    assert len(said(part, "skipped by design")) == 4


def test_summit_cluster_sums_tell_when_nodes_are_missing(read_table):
    columns = {"count_inp": [4600, 4626], "size_inp": [4626] * 2, "sum_inp": [5e6, 5.1e6]}
    table = summit(**columns).drop_columns(["hostname"])
    part = read_table(table.append_column("mean_inp", pa.array([1.0, 1.0])), "cluster.parquet")
    assert watts(part) == {"cluster": [5e6, 5.1e6]}
    (row,) = part.findings.frame().query("finding == 'suspicious'").to_dict("records")
    assert "too low" in row["what"]
    assert (row["count"], row["where"]) == (1, "99.4% of the nodes at worst")


def test_google_shares_are_no_watts(read_table):
    text = "time,measured_power_util,production_power_util\n300000000,0.61,0.58\n"
    with pytest.raises(NoPowerError, match=r"shares of a capacity .* not watts; multiply by"):
        read_table(text)


def test_gcm_power_is_in_milliwatts_without_saying_so(read_table):
    record = {"time": START, "hostname": "a", "gpu_id": 3, "gpu_util": 97, "power_draw": 412_000,
              "power_used_percent": 58, "mem_used_percent": 3}  # fmt: skip
    part = read_table(json.dumps(record) + "\n", "gcm.json")
    assert watts(part) == {"a/gpu3": [412.0]}
    assert part.entities["a/gpu3"]["unit"] == "W"
    nested = {"int": {k: record[k] for k in ("time", "gpu_id", "power_draw")},
              "normal": {"hostname": "a", "power_used_percent": 58}}  # fmt: skip
    assert watts(read_table(json.dumps(nested) + "\n", "gcm.json")) == {"a/gpu3": [412.0]}


def test_gpud_milliwatts_and_its_limit(read_table):
    text = "timestamp,uuid,usage_milli_watts,enforced_limit_milli_watts\n1700000000,GPU-7,65000,700000\n"
    part = read_table(text)
    assert watts(part) == {"GPU-7": [65.0]}
    assert part.states["limit_w"].tolist() == [700.0]


def test_gpu_power_lab_lines_are_read(read_table):
    line = {"ts": "2026-08-17T10:00:00.010Z", "rung_id": "r", "phase": "steady", "power_w": 1050.5,
            "temp_c": 60.0, "sm_mhz": 1900, "sm_util": 100, "energy_mj": 5, "throttle_mask": 4}  # fmt: skip
    part = read_table(json.dumps(line) + "\n", "rung-1.ndjson", scope="gpu")
    assert watts(part) == {"rung-1": [1050.5]}
    assert part.states[["clock_mhz", "busy_share", "reasons"]].to_numpy().tolist() == [
        [1900, 1.0, 4]
    ]
    assert "entity named after the file" in part.entities["rung-1"]["assumed"]


@pytest.mark.parametrize(("size", "watts_then", "unit"), [(412_000, 412.0, "mW"), (30, 3e7, "MW")])
def test_mw_is_told_from_its_size_and_noted(read_table, size, watts_then, unit):
    part = read_table(f"time_ms,entity,power_mw\n1700000000000,a,{size}\n")
    assert watts(part) == {"a": [pytest.approx(watts_then)]}
    assert f"taken for {unit}" in said(part, "assumed")[-1]
    assert part.entities["a"]["assumed"] == f"unit={unit}"
    assert watts(read_table(f"time_ms,entity,power_mw\n1700000000000,a,{size}\n", unit="kW"))[
        "a"
    ] == [pytest.approx(size * 1e3)]


def test_a_unit_that_nobody_says_is_asked_for(read_table):
    with pytest.raises(LoadError, match=r"table.csv: columns \['power'\] name no unit; pass unit="):
        read_table("time,rack,power\n1700000000,r1,5\n")
    assert watts(read_table("time,rack,power\n1700000000,r1,5\n", unit="kW")) == {"r1": [5000]}


def test_powers_of_gpus_without_a_unit_are_left_to_the_front_door(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,node,gpu,power_draw\n1700000000,n,0,400000\n1700000001,n,0,410000\n")
    log = load.power(path)
    assert log.power["power_w"].tolist() == [400, 410]
    assert log.entities["assumed"].tolist() == ["unit=mW"]


@pytest.mark.parametrize(
    ("stamp", "column"),
    [
        (f"{START}", "time"), (f"{START}.0", "Timestamp"), (f"{START}000", "ts"),
        (f"{START}000000", "time_us"), (f"{START}000000000", "time_ns"), ("1.7e9", "time"),
        ("2023-11-14T22:13:20Z", "time"), ("2023-11-14 22:13:20+00:00", "datetime"),
        ("2023-11-14T23:13:20.000+0100", "time"), ("2023-11-14 22:13:20 UTC", "time"),
    ],
)  # fmt: skip
def test_times_of_many_forms_are_one_instant(read_table, stamp, column):
    part = read_table(f"{column},entity,power_w\n{stamp},a,1\n")
    assert part.readings["time_ns"].tolist() == [START * SECOND]


def test_local_times_ask_for_their_zone(read_table):
    text = "time,entity,power_w\n2023/11/14 22:13:20.000,a,1\n"
    with pytest.raises(LoadError, match=r"line 2: .* has no time zone; pass tz="):
        read_table(text)
    assert read_table(text, tz="UTC").readings["time_ns"].tolist() == [START * SECOND]
    assert read_table(text, tz="+01:00").entities["a"]["assumed"] == "tz=+01:00"


def test_a_zone_that_is_not_needed_is_not_noted(read_table):
    part = read_table("time,entity,power_w\n2023-11-14T22:13:20Z,a,1\n", tz="Asia/Tokyo")
    assert part.entities["a"]["assumed"] == ""


def test_times_from_an_own_zero_are_kept_apart(read_table):
    part = read_table("elapsed_s,gpu,power_w\n0,0,1\n0.5,0,2\n")
    assert part.readings["time_ns"].tolist() == [0, SECOND // 2]
    assert part.entities["gpu0"]["clock"] == "own"
    with pytest.raises(LoadError, match=r"about 0.25, are not times since 1970; name the column"):
        read_table("time,gpu,power_w\n0,0,1\n0.5,0,2\n")


def test_cells_without_number_are_missing_and_counted(read_table):
    text = "time,entity,power_w\n" + "".join(
        f"{START + n},a,{cell}\n"
        for n, cell in enumerate(["1", "", "NaN", "[N/A]", "null", "2 kW", "7.5 W", "much", "3"])
    )
    part = read_table(text)
    expected = [1, None, None, None, None, 2000, 7.5, None, 3]
    assert (
        part.readings["power_w"].astype(object).where(lambda v: v.notna(), None).tolist()
        == expected
    )
    (row,) = part.findings.frame().query("finding == 'dropped'").to_dict("records")
    assert row["what"] == "cells of 'power_w' that are not numbers; they are missing"
    assert (row["count"], row["where"]) == (1, "line 9: much")


def test_odd_lines_are_counted_and_the_others_keep_their_numbers(read_table):
    text = (
        "# written by hand\n\ntime,entity,power_w\n"
        f"{START},a,1\n\n{START + 1},a\n{START + 2},a,3\nyesterday,a,4\n{START + 3},,5\n{START + 4},a,6\n"
    )
    part = read_table(text)
    assert part.readings["line"].tolist() == [4, 7, 10]
    places = (
        part.findings.frame().query("finding == 'dropped'").set_index("what")["where"].to_dict()
    )
    assert places == {
        "rows without a time": "line 8",
        "rows that do not name what was metered": "line 9",
        "rows with another number of cells than the header": "line 6",
    }


@pytest.mark.parametrize("separator", ["\t", ";", "|", ", "])
def test_separators_and_byte_order_marks(read_table, separator):
    lines = [["time", "node", "gpu", "power_w"], [str(START), "n", "2", "5"]]
    text = "\ufeff" + "\r\n".join(separator.join(line) for line in lines) + "\r\n"
    assert watts(read_table(text.encode())) == {"n/gpu2": [5]}


def test_packed_and_archived_tables_are_read(read_table):
    text = f"time,node,gpu,power_w\n{START},n,2,5\n".encode()
    assert watts(read_table(gzip.compress(text), "a.csv.gz")) == {"n/gpu2": [5]}
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"time": [START], "rack": ["r"], "power_w": [1.5]}), buffer)
    packed = gzip.compress(buffer.getvalue().to_pybytes())
    assert watts(read_table(packed, "a.parquet.gz")) == {"r": [1.5]}


def test_a_cut_off_gzip_file_is_read_to_where_it_breaks(read_table):
    text = "time,node,gpu,power_w\n" + "".join(
        f"{START + n},n,0,{n % 700}\n" for n in range(50_000)
    )
    part = read_table(gzip.compress(text.encode())[:-2_000], "a.csv.gz")
    assert 1_000 < len(part.readings) < 50_000
    assert said(part, "truncated")


@pytest.mark.parametrize(
    "dtype", ["uint16", "int16", "int32", "uint64", "float16", "float32", "float64", "str"]
)
def test_parquet_numbers_of_any_type(read_table, dtype):
    table = pa.table(
        {"time": [START, START + 1], "gpu": pa.array([0, 1], pa.uint8()),
         "power_w": pa.array(np.array([5, 7]).astype(dtype))}
    )  # fmt: skip
    assert watts(read_table(table, "a.parquet")) == {"gpu0": [5], "gpu1": [7]}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_parquet_stamps_of_any_unit_and_zone(read_table, unit, zone):
    stamps = pa.array([START, None], pa.timestamp("s")).cast(pa.timestamp(unit))
    stamps = stamps.cast(pa.timestamp(unit, zone)) if zone else stamps
    table = pa.table({"when": stamps, "rack": ["r", "r"], "power_w": [1, 2]})
    if zone is None:
        with pytest.raises(LoadError, match="times in column 'when' have no time zone; pass tz="):
            read_table(table, "a.parquet")
    part = read_table(table, "a.parquet", tz="UTC")
    assert part.readings["time_ns"].tolist() == [START * SECOND]
    assert "rows without a time" in said(part, "dropped")


def test_categories_and_missing_values_of_parquet(read_table):
    frame = pd.DataFrame(
        {"time_ms": [START * 1000] * 3, "host": pd.Categorical(["a", "b", None]),
         "power_kw": pd.array([1, None, 3], dtype="Int32")}
    )  # fmt: skip
    part = read_table(pa.Table.from_pandas(frame), "a.parquet")
    assert watts(part)["a"] == [1000]
    assert np.isnan(watts(part)["b"][0])
    assert said(part, "dropped") == ["rows that do not name what was metered"]


def test_an_index_of_stamps_is_the_time(read_table):
    index = pd.to_datetime([START], unit="s", utc=True)
    frame = pd.DataFrame({"gpu0_power_w": [5.0]}, index=index)
    assert watts(read_table(pa.Table.from_pandas(frame), "a.parquet")) == {"gpu0": [5]}


def test_average_and_instant_of_one_device_are_not_added(read_table):
    text = f"time,gpu,power_average_w,power_instant_w\n{START},0,500,900\n"
    assert watts(read_table(text)) == {"gpu0": [500]}
    instant = read_table(text, reading="instant")
    assert watts(instant) == {"gpu0": [900]}
    assert instant.entities["gpu0"]["method"] == "instant"
    assert said(instant, "skipped by design")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"power_w": [1]}), "no column of times"),
        (pa.table({"time": [START], "x": ["a"]}), "no column of powers"),
        (pa.table({"time": [START], "gpu": [0]}), "no column of powers"),
        (pa.table({"time": [START], "power_w": [[1]]}), "holds list<.*>, no numbers"),
        (pa.table({"time": [START], "power_w": [{"w": 1}]}), "holds struct<.*>, no numbers"),
        (pa.table({"time": [START], "node": [["a"]], "power_w": [1]}), "holds list<.*>, no names"),
        (pa.table({"time": [True], "power_w": [1]}), "holds bool, no times"),
        (pa.table({"time": [START, START], "power_w": [b"a", b"b"]}), "holds binary, no numbers"),
        (pa.table({"time": pa.nulls(2), "power_w": [1, 2]}), "holds no row with a time"),
        (pa.table({"time": pa.array([], pa.int64()), "power_w": pa.array([], pa.int64())}),
         "holds no row with a time"),
        (pa.table([[START], [1], [2]], names=["time", "power_w", "power_w"]), "occur twice"),
    ],
)  # fmt: skip
def test_parquet_of_another_kind_is_refused(read_table, table, words):
    with pytest.raises(LoadError, match=words):
        read_table(table, "a.parquet")


def test_damaged_parquet_is_named(read_table, tmp_path):
    pq.write_table(pa.table({"time": [START], "power_w": [1]}), tmp_path / "whole.parquet")
    raw = (tmp_path / "whole.parquet").read_bytes()
    for cut in (raw[:5], raw[: len(raw) // 2], raw[:-3], b"PAR1" + b"\0" * 50 + b"PAR1"):
        with pytest.raises(
            LoadError, match=r"a.parquet: cannot be read as Parquet .*copy it again"
        ):
            read_table(cut, "a.parquet")


@given(st.integers(0, 2_000), st.integers(0, 255))
def test_any_damaged_byte_of_parquet_gives_a_part_or_a_load_error(tmp_path_factory, at, value):
    path = tmp_path_factory.mktemp("power") / "a.parquet"
    table = pa.table({"time": [START, START + 1], "gpu": ["0", "1"], "power_w": [1.0, 2.0]})
    pq.write_table(table, path, write_page_checksum=True)
    raw = bytearray(path.read_bytes())
    raw[4 + at % (len(raw) - 4)] = value
    path.write_bytes(bytes(raw))
    with suppress(LoadError):
        part = power_table.read_power(sources(path)[0], PowerOptions(tz="UTC", unit="W"))
        assert len(part.readings) <= 2


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_after_a_header_gives_a_part_or_a_load_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("power") / "a.csv"
    path.write_text(f"time,entity,power_w\n{START},a,1\n{text}\n", newline="")
    with suppress(LoadError):
        part = power_table.read_power(sources(path)[0], PowerOptions(tz="UTC"))
        assert part.readings["entity"].iloc[0] == "a"


@given(st.binary(max_size=300))
def test_any_head_is_recognised_or_not(head):
    assert power_table.looks_like(head, "a") in (True, False)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "a,b\n1,2\n",
        "time\n1\n",
        "time,name\n1,x\n",
        '{"time": 1}\n',
        "{",
        "[1]",
        "time,a,a\n1,2,3\n",
    ],
)
def test_other_files_are_not_taken(head):
    assert not power_table.looks_like(head.encode(), "a.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,entity,power_w\n", "a header and no rows|holds no row"),
        (f"time,entity,power_w,power_w\n{START},a,1,1\n", "columns .* occur twice"),
        (f"time,node,power_w,cpu_watt\n{START},,,\n", "holds no row with a time and a name"),
    ],
)
def test_text_of_another_kind_is_refused(read_table, tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(LoadError, match=words):
        power_table.read_power(sources(path)[0], PowerOptions())


def test_a_folder_of_several_tables_is_one_load(tmp_path):
    for number in range(3):
        frame = pd.DataFrame({"time": [START + number], "rack": ["r1"], "power_kw": [1.0 + number]})
        frame.to_parquet(tmp_path / f"{number}.parquet")
    (tmp_path / "other.parquet").write_bytes(b"")
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "z.parquet")
    log = load.power(tmp_path)
    assert log.power["power_w"].tolist() == [1000, 2000, 3000]
    assert log.entities["scope"].tolist() == ["rack"]
    assert (log.quality["what"].str.contains("no column of times")).any()


@pytest.mark.parametrize("total", ["total_kw", "Total Power (kW)", "total_it_load_kw", "sum_kw"])
def test_a_column_that_sums_the_others_is_not_counted_beside_them(tmp_path, total):
    path = tmp_path / "hall.csv"
    path.write_text(f"time,srv1_kw,srv2_kw,{total}\n{START},5,6,11\n{START + 60},5,6,11\n")
    log = load.power(path, progress=False)
    assert log.power["power_w"].tolist() == [5000.0, 5000.0, 6000.0, 6000.0]
    assert log.quality["what"].str.contains("a sum of the others").sum() == 1


def test_a_sum_beside_gpus_alone_may_be_that_of_a_node_and_stays(read_table):
    part = read_table(
        f"time,gpu0_w,gpu1_w,total_w\n{START},500,600,2000\n{START + 1},500,600,2000\n"
    )
    assert [each["scope"] for each in part.entities.values()] == ["gpu", "gpu", "unknown"]


def test_a_wide_column_that_names_a_feed_is_metered_there(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text(f"time,rack1_kw,rack2_kw,utility_kw,srv9_kw\n{START},5,6,20,1\n")
    entities = load.power(path, progress=False).entities.set_index("entity")
    assert entities["scope"].to_dict() == {
        "rack1": "rack", "rack2": "rack", "srv9": "unknown", "utility": "utility",
    }  # fmt: skip
    told = load.power(path, scope="node_ac", progress=False).entities
    assert set(told["scope"]) == {"node_ac"}


def test_a_total_alone_or_of_one_thing_is_read(read_table):
    alone = read_table(f"time,total_kw\n{START},5\n{START + 60},5\n")
    assert len(alone.entities) == 1
    pair = read_table(f"time,rack1_total_kw,rack2_total_kw\n{START},5,6\n{START + 60},5,6\n")
    assert len(pair.entities) == 2
