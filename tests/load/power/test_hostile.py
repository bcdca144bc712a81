"""Whatever a power log holds, loading it gives tables or one error that says what to do."""

import gzip

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.power.power_files import HEADER, flagged, found, loaded, query_rows, stamp
from workbench.errors import LoadError
from workbench.tables import POWER, POWER_ENTITIES, POWER_STATES, QUALITY

STATES = "timestamp, index, power.draw [W], utilization.gpu [%], clocks_event_reasons.active"
DMON = (
    "#Date       Time        gpu   pwr gtemp\n#YYYYMMDD   HH:MM:SS    Idx     W     C\n"
    " 20250131   08:00:00      0    66    40\n 20250131   08:00:01      0    67    40\n"
)
QUERY = (
    "==============NVSMI LOG==============\n\nTimestamp     : Fri Jan 31 08:00:00 2025\n"
    "Attached GPUs : 1\nGPU 00000000:01:00.0\n    GPU Power Readings\n"
    "        Average Power Draw : 70.10 W\n        Current Power Limit : 500.00 W\n"
)


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Write a file; give its path."""
    folder = tmp_path_factory.mktemp("hostile")

    def to(raw, name="gpu.csv"):
        path = folder / name
        path.write_bytes(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogateescape"))
        return path

    return to


def text(rows, header=HEADER):
    return "\n".join([header, *rows, ""])


def checked(log):
    """Check every table of a load."""
    POWER.check(log.power)
    POWER_STATES.check(log.states)
    POWER_ENTITIES.check(log.entities)
    QUALITY.check(log.quality)
    return log


def outcome(path, **said):
    """Load; give the powers, or none where loading is refused with an error of our own."""
    try:
        return checked(loaded(path, **said)).power["power_w"].tolist()
    except LoadError as error:
        return [] if str(path) in str(error) else [str(error)]


# --- files that break off -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whole", "powers"),
    [
        (text([f"{stamp(n)}, 0, {70 + n}.50 W, 5 %, 0x0000000000000004" for n in range(3)], STATES),
         [70.5, 71.5, 72.5]),
        (text([f"{stamp(n)}, 0, {70 + n}.50" for n in range(3)]), [70.5, 71.5, 72.5]),
        (text(query_rows([70.5, 71.5, 72.5])).replace("\n", "\r\n"), [70.5, 71.5, 72.5]),
        (DMON, [66, 67]),
        (QUERY, [70.1]),
    ],
)  # fmt: skip
def test_of_a_file_cut_at_any_byte_the_rows_before_the_cut_stay(write, whole, powers):
    raw = whole.encode()
    lines_before = 0
    for end in range(len(raw) + 1):
        got = outcome(write(raw[:end]))
        assert got == powers[: len(got)], raw[:end]
        # What was read once stays.
        assert len(got) >= lines_before
        lines_before = len(got)
    assert got == powers


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_cut_in_gzip_keeps_what_could_be_unpacked(write, where):
    raw = gzip.compress(text(query_rows(range(100, 2100))).encode(), mtime=0)
    end = {"first": 12, "middle": len(raw) // 2, "last": len(raw) - 4}[where]
    path = write(raw[:end], "gpu.csv.gz")
    got = outcome(path)
    assert got == [float(n) for n in range(100, 100 + len(got))]
    if got:
        assert flagged(loaded(path))


# --- odd content --------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n", b" ", b"\0", b"\0" * 5000, b"\xff\xfe", b"\xef\xbb\xbf", bytes(range(256)) * 40,
     b"power.draw", b"power.draw [W]", b"timestamp, power.draw [W]\n", b"#", b"# gpu pwr\n",
     b"timestamp, power.draw [W]\n\n\n", b"NVSMI LOG=", b"====NVSMI LOG====\nGPU 0000:01:00.0\n",
     b"PAR1", b"PK\x03\x04", b"nvidia_gpu_exporter GPU capture", b'"' * 1000, b"," * 100_000,
     HEADER.encode() + b"\n" + b"\0" * 1000, HEADER.encode("utf-16"),
     b"timestamp, index, power.draw [W]\r2025/01/31 08:00:00.000, 0, 70 W\r"],
    ids=lambda raw: repr(raw[:24]),
)  # fmt: skip
def test_files_without_a_reading_are_refused_with_their_name(write, raw):
    with pytest.raises(LoadError, match=r"gpu\.csv"):
        loaded(write(raw))


def test_a_header_alone_says_that_there_are_no_readings(write):
    with pytest.raises(LoadError, match="a header of nvidia-smi and no readings"):
        loaded(write(HEADER + "\n"))


@pytest.mark.parametrize("cell", ["1e308 W", "-1e308 W", "1e999 W", "-5 W", "NaN", "inf", "0x10",
                                  "7 0 W", "70 mWh", "٧٠ W", "70,5 W", "''", "None", "1_000 W",
                                  "<b>70</b>", "=1+1", "70 W W", "+", ".", "e5"])  # fmt: skip
def test_no_cell_becomes_a_power_that_it_is_not(write, cell):
    rows = [*query_rows([70]), f"{stamp(1)}, 0, {cell}", *query_rows([72], start_s=2)]
    log = checked(loaded(write(text(rows))))
    assert log.power["power_w"].dropna().tolist() == [70, 72]
    told = log.quality[~log.quality["finding"].eq("read")]
    assert told["where"].str.contains("line 3").any()


@pytest.mark.parametrize(
    "line",
    ["", " ", ",", ",,", "a", "a,b,c,d,e", '"', '","', '"a', "\0", "# comment", "2025", "-" * 500,
     "timestamp", "x" * 100_000, "power", "\x1b[31mred", "2025/01/31 08:00:01.000", "\u2028,\u2028,",
     "ab\udcffcd", "2025/01/31 08:00:01.000, 0, 71.00 W, 9, 9"],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_odd_lines_between_rows_cost_no_row(write, line):
    rows = [*query_rows([70]), line, *query_rows([72], start_s=2)]
    log = checked(loaded(write(text(rows))))
    assert log.power["power_w"].tolist() == [70, 72]
    assert (log.power["time_ns"].diff().dropna() == 2_000_000_000).all()
    if line.strip(", \u2028"):
        assert log.quality["where"].dropna().str.contains("line 3").any()


def test_a_line_of_megabytes_is_passed_over(write):
    rows = [*query_rows([70]), "x" * (40 << 20), *query_rows([72], start_s=2)]
    log = checked(loaded(write(text(rows))))
    assert log.power["power_w"].tolist() == [70, 72]


def test_a_file_of_one_endless_line_is_refused(write):
    with pytest.raises(LoadError, match=r"gpu\.csv"):
        loaded(write("timestamp, power.draw [W], " + "x, " * (1 << 22)))


@pytest.mark.parametrize("count", [4_000, 1_000_000])
@pytest.mark.slow
def test_columns_without_number_are_read_or_refused(write, count):
    header = HEADER + "".join(f", c{n}" for n in range(count))
    rows = [row + ", 0" * count for row in query_rows([70, 71])]
    got = outcome(write(text(rows, header)))
    assert got == ([70, 71] if count < 5_000 else [])


def test_names_that_are_markup_stay_text(write):
    name = "<script>alert(1)</script>"
    header = "timestamp, uuid, name, power.draw [W]"
    log = checked(loaded(write(text([f"{stamp(0)}, {name}, {name}, 70 W"], header))))
    assert log.entities[["entity", "model"]].iloc[0].tolist() == [name, name]


def test_a_header_that_names_a_column_twice_takes_the_first(write):
    log = loaded(write(text([f"{stamp(0)}, 0, 70 W, 80 W"], HEADER + ", power.draw [W]")))
    assert log.power["power_w"].tolist() == [70]


def test_a_thousand_gpus_in_one_file_are_a_thousand_entities(write):
    rows = query_rows([100 + n % 7 for n in range(3000)], gpus=1000, period_s=5)
    log = checked(loaded(write(text(rows))))
    assert len(log.entities) == 1000
    assert log.entities["entity"].iloc[[1, 10, 999]].tolist() == ["gpu1", "gpu10", "gpu999"]


def test_a_clock_that_jumps_by_years_is_told(write):
    rows = [*query_rows([70, 71]), f"{stamp(0, day='2019/01/01')}, 0, 72 W",
            *query_rows([73], start_s=3)]  # fmt: skip
    log = checked(loaded(write(text(rows))))
    assert log.power["power_w"].tolist() == [72, 70, 71, 73]
    assert found(log, "go back in time")["where"] == "line 4: gpu0"


@pytest.mark.parametrize("stamped", ["9999/12/31 23:59:59.999", "0000/00/00 00:00:00.000",
                                     "2200/01/01 00:00:00.000", "1970/01/01 00:00:00.000"])  # fmt: skip
@pytest.mark.parametrize("tz", ["UTC", "Asia/Kathmandu", "-12:00"])
def test_stamps_at_the_ends_of_time_are_left_out(write, stamped, tz):
    rows = [f"{stamped}, 0, 1 W", *query_rows([70])]
    assert outcome(write(text(rows)), tz=tz) == [70]


@pytest.mark.slow
@given(
    raw=st.binary(max_size=400),
    head=st.sampled_from([HEADER + "\n", STATES + "\n", "# gpu pwr\n# Idx W\n", QUERY, ""]),
)
def test_no_bytes_break_the_loader(write, raw, head):
    outcome(write(head.encode() + raw), period_s=1)


cells = st.one_of(
    st.just("70.00 W"), st.just("[N/A]"), st.text(max_size=12), st.floats().map(str),
    st.integers().map(str), st.just(stamp(1)),
)  # fmt: skip


@pytest.mark.slow
@given(rows=st.lists(st.lists(cells, min_size=1, max_size=5), max_size=12))
def test_no_cells_break_the_loader(write, rows):
    lines = [f"{stamp(n)}, " + ", ".join(row) for n, row in enumerate(rows)]
    path = write(text([*query_rows([70]), *lines], STATES).encode("utf-8", "surrogatepass"))
    outcome(path)


@pytest.mark.slow
@given(
    powers=st.lists(st.floats(0, 4_999).map(lambda w: round(w, 2)), min_size=1, max_size=60),
    gpus=st.integers(1, 5),
    shuffled=st.randoms(use_true_random=False),
)
def test_the_order_of_the_lines_does_not_change_what_is_loaded(write, powers, gpus, shuffled):
    rows = query_rows(powers, gpus=gpus)
    straight = loaded(write(text(rows))).power
    shuffled.shuffle(rows)
    pd.testing.assert_frame_equal(loaded(write(text(rows))).power, straight)
