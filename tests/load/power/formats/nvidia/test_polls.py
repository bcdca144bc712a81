"""Logs of nvidia-smi, in every form that its options and its users give them."""

import gzip

import numpy as np
import pandas as pd
import pytest

from tests.load.power.power_files import HEADER, SECOND, flagged, found, loaded, query_rows, stamp
from workbench.errors import LoadError

START_NS = pd.Timestamp("2025-01-31 08:00", tz="UTC").value


@pytest.fixture
def log(tmp_path):
    """Write lines to a file and load it."""

    def write_and_load(*lines, end="\n", name="gpu.csv", **given):
        path = tmp_path / name
        raw = "".join(line + end for line in lines)
        path.write_bytes(raw.encode() if isinstance(raw, str) else raw)
        return loaded(path, **given)

    return write_and_load


def powers(read):
    return read.power["power_w"].tolist()


def entity(read):
    assert len(read.entities) == 1
    return read.entities.iloc[0]


# --- captures of real GPUs ----------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "model", "watts", "idle_dmon", "load_dmon"),
    [
        ("h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", [69.85, 69.85, 629.45, 631.95],
         [69, 69, 69, 69, 69], [631, 634, 633, 634, 636]),
        ("h100-mig", "NVIDIA H100 80GB HBM3", [71.27, 71.15, 432.21, 433.78],
         [70, 70, 70, 70, 70], [438, 440, 437, 439, 439]),
        ("h200", "NVIDIA H200", [77.67, 77.71, 627.32, 627.40],
         [77, 77, 77, 77, 77], [630, 628, 629, 632, 630]),
    ],
)  # fmt: skip
def test_captures_of_real_gpus_load_with_the_powers_they_print(
    real_data, name, model, watts, idle_dmon, load_dmon
):
    path = real_data("power-nvidia-smi") / f"linux-x86_64__nvidia-{name}__590.48.01.txt"
    read = loaded(path, tz=None)
    by_entity = read.power.groupby("entity", observed=True)["power_w"].agg(list)
    # In order of time: -q and --query-gpu when idle, and again under load.
    assert by_entity["gpu0"] == watts
    assert by_entity["gpu0 (dmon, idle)"] == idle_dmon
    assert by_entity["gpu0 (dmon, load)"] == load_dmon
    entities = read.entities.set_index("entity")
    assert entities.loc["gpu0", ["model", "method", "limit_w"]].tolist() == [model, "avg_1s", 700]
    assert entities["clock"].tolist() == ["epoch", "own", "own"]
    assert flagged(read) == []


@pytest.mark.oracle
def test_a_capture_tells_its_zone_by_the_time_it_was_collected(real_data):
    path = real_data("power-nvidia-smi") / "linux-x86_64__nvidia-h200__590.48.01.txt"
    read = loaded(path, tz=None)
    first = pd.Timestamp(read.power["time_ns"].iloc[0], tz="UTC")
    assert first == pd.Timestamp("2026-07-03T22:10:45Z")
    assert found(read, "told by the time of the capture")["where"] == "tz=+00:00"


@pytest.mark.oracle
def test_a_board_split_by_mig_has_its_power_once_and_no_utilisation(real_data):
    path = real_data("power-nvidia-smi") / "linux-x86_64__nvidia-h100-mig__590.48.01.txt"
    states = loaded(path, tz=None).states
    board = states[states["entity"].eq("gpu0")]
    assert len(board) == 4
    assert board["busy_share"].isna().all()
    assert board["reasons"].tolist() == [1, 1, 0, 0]
    assert board["clock_mhz"].tolist() == [345, 345, 1980, 1980]


@pytest.mark.oracle
def test_the_average_and_the_instant_of_a_capture_are_told_apart(real_data):
    path = real_data("power-nvidia-smi") / "linux-x86_64__nvidia-h100-mig__590.48.01.txt"
    read = loaded(path, tz=None, reading="instant")
    assert powers(read)[:2] == [72.63, 70.72]
    assert read.entities["method"].iloc[0] == "instant"


# --- forms of --query-gpu -----------------------------------------------------


def test_cells_with_units_are_watts(log):
    read = log("timestamp, power.draw [W], utilization.gpu [%]", f"{stamp(0)}, 73.94 W, 5 %")
    assert powers(read) == [73.94]
    assert read.states["busy_share"].tolist() == [0.05]
    assert read.power["time_ns"].tolist() == [START_NS]
    assert entity(read)["assumed"] == "tz=UTC"


def test_nounits_keeps_the_unit_of_the_header(log):
    read = log("timestamp, power.draw [W], clocks.current.sm [MHz]", f"{stamp(0)}, 73.94, 1980")
    assert powers(read) == [73.94]
    assert read.states["clock_mhz"].tolist() == [1980]


def test_units_may_be_mixed_within_a_row(log):
    read = log("timestamp, power.draw [W], utilization.gpu [%]", f"{stamp(0)}, 17.65, 0 %",
               f"{stamp(1)}, 18.65 W, 1")  # fmt: skip
    assert powers(read) == [17.65, 18.65]
    assert read.states["busy_share"].tolist() == [0.0, 0.01]


def test_other_units_of_power_are_converted(log):
    read = log(HEADER, f"{stamp(0)}, 0, 0.5 kW", f"{stamp(1)}, 0, 73940 mW")
    assert powers(read) == [500, pytest.approx(73.94)]


def test_a_unit_that_only_the_caller_knows_is_used_and_told(log):
    read = log("timestamp, index, power.draw", f"{stamp(0)}, 0, 73940", unit="mW")
    assert powers(read) == [pytest.approx(73.94)]
    assert entity(read)["assumed"] == "tz=UTC, unit=mW"


@pytest.mark.parametrize(
    "cell",
    ["[N/A]", "N/A", "[Not Supported]", "[Function Not Found]", "[Unknown Error]", "", "[GPU is lost]",
     "[Requested functionality has been deprecated]", "ERR!", "nan", "[Insufficient Permissions]"],
)  # fmt: skip
def test_every_mark_of_a_missing_reading_is_missing_and_not_zero(log, cell):
    read = log(HEADER, f"{stamp(0)}, 0, {cell}", f"{stamp(1)}, 0, 70.00 W")
    assert np.isnan(powers(read)[0])
    assert entity(read)[["reading_count", "missing_count"]].tolist() == [1, 1]
    assert found(read, "without power")["where"] == "line 2: gpu0"
    assert flagged(read) == []


def test_cells_that_are_no_number_are_counted_with_their_place(log):
    read = log(HEADER, f"{stamp(0)}, 0, 70.00 W", f"{stamp(1)}, 0, 7o.00 W")
    assert found(read, "not numbers")[["finding", "where"]].tolist() == [
        "dropped", "line 3: ' 7o.00 W'"
    ]  # fmt: skip


@pytest.mark.parametrize("separator", [",", ", ", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_line_ends_and_a_mark_of_utf8_do_not_matter(log, separator, end):
    lines = [HEADER, *query_rows([70, 80])]
    lines = [line.replace(", ", separator) for line in lines]
    read = log("\ufeff" + lines[0], *lines[1:], end=end)
    assert powers(read) == [70, 80]
    assert flagged(read) == []


def test_quoted_cells_are_read(log):
    read = log('"timestamp","index","power.draw [W]"', f'"{stamp(0)}","0","70.00 W"')
    assert powers(read) == [70]


def test_bytes_that_are_no_utf8_cost_their_row_only(tmp_path):
    path = tmp_path / "gpu.csv"
    rows = [HEADER, *query_rows([70]), f"{stamp(9)}, 0, \xff, 7", f"{stamp(10)}, 0, 80.00 W"]
    path.write_bytes("\n".join([*rows, ""]).encode("latin-1"))
    read = loaded(path)
    assert powers(read) == [70, 80]
    assert found(read, "not UTF-8")[["count", "where"]].tolist() == [1, "line 3"]
    assert found(read, "cells")[["finding", "count"]].tolist() == ["dropped", 1]


def test_gzip_is_read(tmp_path):
    path = tmp_path / "gpu.csv.gz"
    path.write_bytes(gzip.compress("\n".join([HEADER, *query_rows([70, 80]), ""]).encode()))
    assert powers(loaded(path)) == [70, 80]


def test_a_header_that_comes_again_starts_no_new_readings(log):
    rows = query_rows([70, 80])
    read = log(HEADER, rows[0], HEADER, rows[1])
    assert powers(read) == [70, 80]
    assert flagged(read) == []


def test_a_header_with_other_columns_is_read_as_it_says(log):
    read = log(HEADER, f"{stamp(0)}, 0, 70.00 W",
               "timestamp, power.draw [W], index", f"{stamp(1)}, 80.00 W, 0")  # fmt: skip
    assert powers(read) == [70, 80]
    assert found(read, "headers with other columns")["count"] == 1


def test_lines_that_the_shell_or_the_driver_printed_between_are_counted(log):
    read = log("nohup: ignoring input", HEADER, *query_rows([70]),
               "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error",
               "", *query_rows([80], start_s=1))  # fmt: skip
    assert powers(read) == [70, 80]
    assert found(read, "outside of tables")["where"] == "line 1"
    assert found(read, "more or fewer cells")[["count", "where"]].tolist() == [1, "line 4"]


def test_the_last_line_that_breaks_off_is_left_out(log):
    read = log(HEADER, *query_rows([70, 80]), "2024/04/18 10:13:28.", end="\n")
    assert powers(read) == [70, 80]
    read = log(HEADER, *query_rows([70, 80]), end="\n", name="whole.csv")
    assert powers(read) == [70, 80]


def test_a_number_that_may_be_cut_is_left_out(tmp_path):
    path = tmp_path / "gpu.csv"
    rows = "\n".join([HEADER, f"{stamp(0)}, 0, 70.00", f"{stamp(1)}, 0, 8"])
    path.write_text(rows)
    read = loaded(path)
    assert powers(read) == [70]
    assert found(read, "breaks off")["where"] == "line 3"
    path.write_text(rows.replace(", 8", ", 80.00 W"))
    assert powers(loaded(path)) == [70, 80]


def test_columns_of_the_power_state_are_read(log):
    read = log(
        "timestamp, index, power.draw [W], power.limit [W], enforced.power.limit [W], "
        "temperature.gpu, clocks_event_reasons.active, "
        "clocks_event_reasons_counters.sw_power_cap [us]",
        f"{stamp(0)}, 0, 690.00 W, 700.00 W, 650.00 W, 61, 0x0000000000000004, 1500 us",
    )
    state = read.states.iloc[0]
    assert state[["limit_w", "temperature_c", "reasons", "power_violation_ns"]].tolist() == [
        650, 61, 4, 1_500_000
    ]  # fmt: skip
    assert entity(read)["limit_w"] == 650


def test_a_limit_that_was_only_requested_is_noted(log):
    read = log("timestamp, index, power.draw [W], power.limit [W]", f"{stamp(0)}, 0, 90 W, 700 W")
    assert read.states["limit_w"].tolist() == [700]
    assert found(read, "those requested")["finding"] == "noted"


@pytest.mark.parametrize("prefix", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_single_columns_of_reasons_become_the_mask(log, prefix):
    read = log(
        f"timestamp, index, power.draw [W], {prefix}.sw_power_cap, {prefix}.hw_slowdown, "
        f"{prefix}.sw_thermal_slowdown",
        f"{stamp(0)}, 0, 690 W, Active, Not Active, Active",
        f"{stamp(1)}, 0, 690 W, [N/A], [N/A], [N/A]",
    )
    assert read.states["reasons"].tolist() == [0x24, pd.NA]


def test_a_column_of_energy_becomes_a_counter_in_joules(log):
    read = log("timestamp, index, power.draw [W], total_energy_consumption [mJ]",
               f"{stamp(0)}, 0, 70 W, 5000 mJ", f"{stamp(1)}, 0, 70 W, 75000 mJ")  # fmt: skip
    assert read.counters["energy_j"].tolist() == [5, 75]
    assert powers(read) == [70, 70]
    assert entity(read)["method"] == "unknown"


ALL_POWERS = (
    "timestamp, index, name, power.draw [W], power.draw.average [W], power.draw.instant [W], "
    "module.power.draw.instant [W]"
)


@pytest.mark.parametrize(
    ("given", "watts", "scope", "method"),
    [({}, 70, "gpu", "avg_1s"), ({"reading": "average"}, 71, "gpu", "avg_1s"),
     ({"reading": "instant"}, 72, "gpu", "instant"),
     ({"scope": "module"}, 99, "module", "instant")],
)  # fmt: skip
def test_reading_and_scope_choose_among_the_powers(log, given, watts, scope, method):
    row = f"{stamp(0)}, 0, NVIDIA GH200 480GB, 70 W, 71 W, 72 W, 99 W"
    read = log(ALL_POWERS, row, **given)
    assert powers(read) == [watts]
    assert entity(read)[["scope", "method"]].tolist() == [scope, method]
    assert found(read, "not taken")["count"] == 3


@pytest.mark.parametrize(
    ("model", "method"),
    [("NVIDIA H100 80GB HBM3", "avg_1s"), ("NVIDIA B200", "avg_1s"), ("NVIDIA L40S", "avg_1s"),
     ("NVIDIA GeForce RTX 4090", "avg_1s"), ("NVIDIA GB200", "avg_1s"),
     ("Tesla V100-SXM2-32GB", "instant"), ("Tesla T4", "instant"),
     ("NVIDIA A100-SXM4-80GB", "unknown"), ("NVIDIA X9", "unknown")],
)  # fmt: skip
def test_the_product_tells_what_power_draw_means(log, model, method):
    read = log("timestamp, index, name, power.draw [W]", f"{stamp(0)}, 0, {model}, 70 W")
    assert entity(read)[["method", "model"]].tolist() == [method, model]


def test_a_reading_that_is_not_there_is_asked_for_by_name(log):
    with pytest.raises(LoadError, match=r"no column for reading='instant', only power\.draw"):
        log(HEADER, *query_rows([70]), reading="instant")


# --- which GPU ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "cells", "names"),
    [
        ("index", ["1", "0"], ["gpu0", "gpu1"]),
        ("uuid", ["GPU-b1", "GPU-a2"], ["GPU-a2", "GPU-b1"]),
        ("pci.bus_id", ["00000000:83:00.0", "00000000:03:00.0"],
         ["gpu 00000000:03:00.0", "gpu 00000000:83:00.0"]),
        ("serial", ["1650522003820", "1650522003819"],
         ["gpu 1650522003819", "gpu 1650522003820"]),
    ],
)  # fmt: skip
def test_gpus_are_told_apart_by_any_column_that_names_them(log, column, cells, names):
    read = log(f"timestamp, {column}, power.draw [W]", f"{stamp(0)}, {cells[0]}, 70 W",
               f"{stamp(0.002)}, {cells[1]}, 80 W")  # fmt: skip
    assert read.entities["entity"].tolist() == names
    assert powers(read) == [80, 70]


def test_node_names_the_host_of_the_gpus(log):
    read = log(HEADER, *query_rows([70]), node="node7")
    assert entity(read)[["entity", "node", "device"]].tolist() == ["node7/gpu0", "node7", "0"]


def test_a_column_with_the_host_names_the_node(log):
    header = "timestamp, hostname, index, power.draw [W]"
    read = log(header, f"{stamp(0)}, n1, 0, 70 W", f"{stamp(0)}, n2, 0, 80 W", node="ignored")
    assert read.entities["entity"].tolist() == ["n1/gpu0", "n2/gpu0"]
    assert read.entities["node"].tolist() == ["n1", "n2"]


def test_one_index_of_two_gpus_is_two_gpus(log):
    read = log("timestamp, index, uuid, power.draw [W]", f"{stamp(0)}, 0, GPU-a, 70 W",
               f"{stamp(0)}, 0, GPU-b, 80 W")  # fmt: skip
    assert read.entities["entity"].tolist() == ["GPU-a", "GPU-b"]
    assert found(read, "told apart by UUID")["count"] == 1


def test_rows_that_do_not_tell_their_gpu_are_counted(log):
    read = log(HEADER, f"{stamp(0)}, 0, 70 W", f"{stamp(1)}, [N/A], 80 W")
    assert powers(read) == [70]
    assert found(read, "do not state their GPU")["where"] == "line 3"


def test_gpus_without_a_column_are_told_apart_by_their_order_in_each_poll(log):
    rows = query_rows([10, 20, 30, 11, 21, 31, 12, 22, 32], gpus=3)
    without = [", ".join(row.split(", ")[::2]) for row in rows]
    del without[4]  # the second poll lost a GPU, and nothing tells which
    read = log("timestamp, power.draw [W]", *without)
    by_gpu = read.power.groupby("entity", observed=True)["power_w"].agg(list).to_dict()
    assert by_gpu == {"gpu0": [10, 12], "gpu1": [20, 22], "gpu2": [30, 32]}
    assert found(read, "polls in which a GPU is missing")[["count", "where"]].tolist() == [
        2, "line 5"
    ]  # fmt: skip
    assert found(read, "by their order in each poll")["count"] == 3


def test_one_gpu_without_a_column_is_one_gpu(log):
    read = log("timestamp, power.draw [W]", f"{stamp(0)}, 70 W", f"{stamp(1)}, 80 W")
    assert read.entities["entity"].tolist() == ["gpu0"]
    assert found(read, "assumed to be one")["finding"] == "assumed"


def test_polls_too_fast_to_tell_apart_are_refused(log):
    rows = [f"{stamp(n * 0.01)}, 70 W" for n in range(100)]
    with pytest.raises(LoadError, match=r"gpu.csv, line 2: .*follow each other too fast"):
        log("timestamp, power.draw [W]", *rows)


def test_rows_of_mig_instances_do_not_count_the_board_again(log):
    header = "timestamp, index, uuid, name, power.draw [W]"
    board = f"{stamp(0)}, 0, GPU-a, NVIDIA H100, 300 W"
    slices = [f"{stamp(0.002 * n)}, 0, MIG-{n}, NVIDIA H100 MIG 1g.10gb, 300 W" for n in (1, 2)]
    read = log(header, board, *slices)
    assert powers(read) == [300]
    assert found(read, "MIG instances")[["finding", "count"]].tolist() == ["skipped by design", 2]


def test_mig_instances_without_their_board_count_it_once(log):
    header = "timestamp, index, uuid, power.draw [W]"
    rows = [f"{stamp(t + 0.002 * n)}, 0, MIG-{n}, 300 W" for t in (0, 1) for n in (1, 2)]
    read = log(header, *rows)
    assert powers(read) == [300, 300]
    assert found(read, "without their board")["finding"] == "suspicious"


# --- header, time, zone -------------------------------------------------------


def test_a_table_without_header_is_read_if_its_cells_tell_the_columns(log):
    rows = [f"{stamp(n // 2)}, {n % 2}, {70 + n}.00 W, {n} %" for n in range(6)]
    read = log(*rows)
    assert read.power.groupby("entity", observed=True)["power_w"].agg(list).to_dict() == {
        "gpu0": [70, 72, 74], "gpu1": [71, 73, 75]
    }  # fmt: skip
    told = found(read, "without header")
    assert told[["finding", "where"]].tolist() == [
        "assumed", "timestamp,index,power.draw [W],column 4"
    ]  # fmt: skip


def test_a_table_without_header_and_two_powers_is_refused_with_a_remedy(log):
    with pytest.raises(LoadError, match=r"has no header, .*; write the line that nvidia-smi"):
        log(f"{stamp(0)}, 0, 70.00 W, 700.00 W")


def test_stamps_need_a_zone(log):
    with pytest.raises(LoadError, match=r"gpu.csv, line 2: '2025/01/31 08:00:00.000' has no time "
                                        r'zone; pass tz="UTC"'):  # fmt: skip
        log(HEADER, *query_rows([70]), tz=None)


def test_a_zone_is_used_and_told(log):
    read = log(HEADER, *query_rows([70]), tz="Europe/Berlin")
    assert read.power["time_ns"].iloc[0] == START_NS - 3600 * SECOND
    assert entity(read)["assumed"] == "tz=Europe/Berlin"


def test_stamps_without_fraction_or_with_dashes_are_read(log):
    read = log("timestamp, index, power.draw [W]", "2025-01-31 08:00:00, 0, 70 W",
               "2025/01/31T08:00:01.5, 0, 80 W")  # fmt: skip
    assert (read.power["time_ns"] - START_NS).tolist() == [0, 1_500_000_000]


@pytest.mark.parametrize(
    "wrong",
    ["2025/02/29 08:00:00.000", "2025/01/31 24:00:00.000", "2025/01/31 08:60:00.000", "yesterday",
     "2025/13/31 08:00:00.000", "2025/01/31 08:00:61.000", "2025/01/31 08:00:00:000",
     "1025/01/31 08:00:00.000", "2025/01/00 08:00:00.000"],
)  # fmt: skip
def test_stamps_that_are_none_are_counted(log, wrong):
    read = log(HEADER, *query_rows([70]), f"{wrong}, 0, 80 W")
    assert powers(read) == [70]
    assert found(read, "not stamps like")["where"] == f"line 3: {wrong!r}"


def test_a_file_of_other_stamps_says_what_it_expects(log):
    with pytest.raises(LoadError, match=r"'1/31/2025 8:00' is not a stamp like 2025/01/31 08:00"):
        log(HEADER, "1/31/2025 8:00, 0, 70 W")


def berlin(texts):
    return [f"2025/10/26 {text}.000, 0, {n} W" for n, text in enumerate(texts)]


def hours(read):
    first = pd.Timestamp("2025-10-26", tz="UTC").value
    return ((read.power["time_ns"] - first) / SECOND / 3600).tolist()


def test_the_order_tells_the_two_hours_of_a_clock_change_apart(log):
    read = log(HEADER, *berlin(["01:30:00", "02:30:00", "02:00:00", "02:45:00", "03:00:00"]),
               tz="Europe/Berlin")  # fmt: skip
    # 02:30 in summer time, then 02:00 again, an hour later.
    assert hours(read) == [-0.5, 0.5, 1.0, 1.75, 2.0]
    assert not any("back" in text for text in flagged(read))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(["01:59:00", "02:00:00"], [-1 / 60, 0.0]), (["02:59:00", "03:00:00"], [2 - 1 / 60, 2.0])],
)
def test_a_log_that_ends_or_begins_in_the_repeated_hour_is_placed_by_its_neighbours(
    log, texts, expected
):
    read = log(HEADER, *berlin(texts), tz="Europe/Berlin")
    assert hours(read) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("texts", "line"),
    [(["02:10:00", "02:20:00"], 2), (["01:59:00", "02:10:00", "02:50:00", "03:00:00"], 3)],
)
def test_a_repeated_hour_that_nothing_places_is_refused(log, texts, line):
    with pytest.raises(LoadError, match=rf"line {line}: 2025-10-26 02:10:00.000 is there twice in "
                                        r"Europe/Berlin .*tz=\"\+02:00\""):  # fmt: skip
        log(HEADER, *berlin(texts), tz="Europe/Berlin")


def test_a_time_that_the_clock_change_leaves_out_is_refused(log):
    with pytest.raises(LoadError, match=r"line 2: 2025-03-30 02:30:00.000 does not exist in"):
        log(HEADER, "2025/03/30 02:30:00.000, 0, 70 W", tz="Europe/Berlin")


def test_a_table_without_times_asks_for_the_period(log):
    with pytest.raises(LoadError, match=r"line 2: holds no time; pass period_s="):
        log("index, power.draw [W]", "0, 70 W", "1, 80 W")


def test_a_table_without_times_is_on_a_clock_of_its_own(log):
    read = log("index, power.draw [W]", "0, 70 W", "1, 80 W", "0, 71 W", "1, 81 W", period_s=0.5)
    assert read.power["time_ns"].tolist() == [0, SECOND // 2, 0, SECOND // 2]
    assert read.entities["clock"].tolist() == ["own", "own"]
    assert read.entities["assumed"].tolist() == ["period_s=0.5"] * 2
    assert found(read, "unsynchronized clocks")["count"] == 2


# --- dmon ---------------------------------------------------------------------

DMON = "# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk"
DMON_UNITS = "# Idx      W      C      C      %      %    MHz    MHz"


def test_dmon_with_dates_and_times_is_read(log):
    lines = ["#Date       Time        gpu   pwr gtemp    sm  pclk",
             "#YYYYMMDD   HH:MM:SS    Idx     W     C     %   MHz",
             " 20250131   08:00:00      0    66    40    97  1980",
             " 20250131   08:00:00      1     -    41     -     -",
             " 20250131   08:00:02      0    67    40    98  1980"]  # fmt: skip
    read = log(*lines, name="dmon.txt")
    assert read.power["time_ns"].tolist() == [START_NS, START_NS + 2 * SECOND, START_NS]
    assert powers(read)[:2] == [66, 67]
    assert np.isnan(powers(read)[2])
    assert read.states["busy_share"].tolist()[:2] == [0.97, 0.98]
    assert read.states["clock_mhz"].tolist()[0] == 1980


def test_dmon_with_times_but_no_date_is_on_a_clock_of_its_own(log):
    lines = ["#Time        gpu   pwr", "#HH:MM:SS    Idx     W",
             " 23:59:59      0    66", " 00:00:00      0    67"]  # fmt: skip
    read = log(*lines, name="dmon.txt", tz=None)
    assert (read.power["time_ns"] // SECOND).tolist() == [86_399, 86_400]
    assert entity(read)["clock"] == "own"
    assert found(read, "without a date")["where"] == "line 3"


def test_dmon_without_times_asks_for_the_period_and_uses_it(log):
    lines = [DMON, DMON_UNITS, "    0    631     63     57    100     10   2619   1980",
             DMON, DMON_UNITS, "    0    632     63     57    100     10   2619   1980"]  # fmt: skip
    with pytest.raises(LoadError, match=r"dmon.txt, line 3: holds no time; pass period_s="):
        log(*lines, name="dmon.txt")
    read = log(*lines, name="dmon.txt", period_s=1)
    assert powers(read) == [631, 632]
    assert read.power["time_ns"].tolist() == [0, SECOND]


def test_dmon_as_csv_is_read(log):
    read = log("# gpu, pwr, gtemp", "# Idx, W, C", "0, 631, 63", name="dmon.csv", period_s=1)
    assert powers(read) == [631]


def test_dmon_without_power_says_what_to_log(log):
    with pytest.raises(LoadError, match="no readable power telemetry found"):
        log("# gpu     sm    mem", "# Idx      %      %", "    0    100     10")


# --- -q -----------------------------------------------------------------------


def snapshot(when, *boards):
    lines = ["", "==============NVSMI LOG==============", "",
             f"Timestamp                                 : {when}",
             "Driver Version                            : 550.163.01", "",
             f"Attached GPUs                             : {len(boards)}"]  # fmt: skip
    for number, powers_of in enumerate(boards):
        lines.append(f"GPU 00000000:0{number + 1}:00.0")
        lines += [f"    {line}" for line in powers_of]
    return lines


def readings(**values):
    return ["GPU Power Readings", *(f"    {n.replace('_', ' ')} : {v}" for n, v in values.items())]


def test_snapshots_are_read_one_after_the_other(log):
    first = readings(Average_Power_Draw="70.10 W", Current_Power_Limit="500.00 W")
    second = readings(Average_Power_Draw="N/A", Instantaneous_Power_Draw="31.64 W")
    read = log(*snapshot("Fri Jan 31 08:00:00 2025", first, second),
               *snapshot("Fri Jan 31 08:00:05 2025", first, second), name="q.txt")  # fmt: skip
    assert read.entities["entity"].tolist() == ["gpu0", "gpu1"]
    assert powers(read) == [70.1, 70.1, 31.64, 31.64]
    assert read.power["time_ns"].tolist()[:2] == [START_NS, START_NS + 5 * SECOND]
    assert read.states["limit_w"].dropna().tolist() == [500, 500]


def test_an_old_snapshot_is_read(log):
    board = ["Product Name : Tesla V100-SXM2-16GB", "Clocks Throttle Reasons",
             "    SW Power Cap : Active", "Power Readings", "    Power Draw : 248.11 W",
             "    Power Limit : 250.00 W", "    Enforced Power Limit : 240.00 W"]  # fmt: skip
    read = log(*snapshot("Fri Jan 31 08:00:00 2025", board), name="q.txt")
    assert powers(read) == [248.11]
    assert entity(read)[["method", "limit_w"]].tolist() == ["instant", 240]
    assert read.states["reasons"].tolist() == [4]


def test_a_snapshot_that_breaks_off_is_counted(log):
    board = readings(Average_Power_Draw="70.10 W")
    lines = [*snapshot("Fri Jan 31 08:00:00 2025", board),
             *snapshot("Fri Jan 31 08:00:05 2025", board)[:-1]]  # fmt: skip
    read = log(*lines, name="q.txt")
    assert powers(read) == [70.1]
    assert found(read, "breaks off before its power")["where"] == "line 18"


def test_a_query_without_power_says_so(log):
    with pytest.raises(LoadError, match="holds no power of a GPU with a stamp; log nvidia-smi -q"):
        log(*snapshot("Fri Jan 31 08:00:00 2025", ["Temperature", "    GPU : 40 C"]))
