"""Jobs recorded operation by operation come in whole nanoseconds, or say why not."""

import contextlib
import itertools

import pandas as pd
import pytest

from workbench import load
from workbench.errors import LoadError, WorkbenchError
from workbench.load.kinds import kinds_of
from workbench.tables import JOB_OPERATIONS

ROW = {
    "dp_rank": 0, "stage": 0, "step": 16, "optype": "forward-compute", "start_ts": 0.25,
    "duration": 0.5, "seq_id": 0, "mb_id": 0, "gmc": 0,
}  # fmt: skip


@pytest.fixture
def job_file(tmp_path):
    def write(*rows, name="job.parquet"):
        frame = pd.DataFrame([ROW | row for row in rows])
        path = tmp_path / name
        frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(path)
        return path

    return write


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "rows"), [("SE", 107_328), ("ST", 6_784)])
def test_real_jobs_load_whole(real_data, name, rows):
    table = load.job_operations(real_data("stragglers-bytedance") / f"trace-{name}.parquet")
    assert len(table) == rows
    assert JOB_OPERATIONS.check(table) is table


@pytest.mark.parametrize("name", ["job.parquet", "job.csv"])
def test_times_are_nanoseconds_and_only_computations_have_a_micro_batch(job_file, name):
    send = {"optype": "forward-send", "start_ts": 0.75, "duration": 0.001, "mb_id": -1, "gmc": -1}
    table = load.job_operations(job_file({}, send, name=name))
    assert table["start_ns"].tolist() == [250_000_000, 750_000_000]
    assert table["dur_ns"].tolist() == [500_000_000, 1_000_000]
    assert table["micro_batch"].isna().tolist() == [False, True]
    assert table["chunk"].isna().tolist() == [False, True]


def test_other_names_and_units_are_understood(job_file, tmp_path):
    frame = pd.read_parquet(job_file({"start_ts": 3, "duration": 2})).rename(
        columns={"optype": "op", "dp_rank": "dp"}
    )
    frame.to_parquet(tmp_path / "other.parquet")
    table = load.job_operations(
        tmp_path / "other.parquet", columns={"operation": "op", "dp_rank": "dp"}, time_unit="us"
    )
    assert table[["start_ns", "dur_ns"]].iloc[0].tolist() == [3_000, 2_000]


def test_markers_are_left_out_and_counted(job_file):
    table = load.job_operations(job_file({}, {"optype": "first-op"}))
    assert len(table) == 1
    assert table.attrs["left_out"] == {"first-op": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"duration": -1.0}, "column for 'dur_ns': 1 values are not a finite time from 0"),
        ({"start_ts": float("nan")}, "column for 'start_ns': 1 values are not a finite time"),
        ({"duration": 1e300}, "column for 'dur_ns'"),
        ({"stage": -1}, "column for 'stage': 1 values are not a whole number from 0"),
        ({"mb_id": -1}, "column for 'micro_batch'"),
        ({"step": 1.5}, "column for 'step'"),
    ],
)
def test_values_that_cannot_be_are_named_with_their_row(job_file, row, message):
    with pytest.raises(LoadError, match=f"{message}.* in row 1"):
        load.job_operations(job_file({}, row))


def test_what_cannot_be_read_is_one_clear_error(job_file, tmp_path):
    (tmp_path / "noise.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(LoadError, match="cannot be read as Parquet or CSV"):
        load.job_operations(tmp_path / "noise.parquet")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load.job_operations(tmp_path / "absent.parquet")
    with pytest.raises(LoadError, match=r"no column \['op'\]"):
        load.job_operations(job_file({}), columns={"operation": "op"})
    with pytest.raises(LoadError, match=r"names \['opp'\], which the table does not have"):
        load.job_operations(job_file({}), columns={"opp": "op"})
    with pytest.raises(LoadError, match="time_unit must be one of"):
        load.job_operations(job_file({}), time_unit="h")


def test_a_file_may_lack_the_order_of_equal_operations(job_file):
    rows = [{"start_ts": 3.0, "mb_id": 1}, {"start_ts": 1.0}, {"start_ts": 2.0, "step": 17}]
    frame = pd.read_parquet(job_file(*rows)).drop(columns="seq_id")
    path = job_file({})
    frame.to_parquet(path)
    table = load.job_operations(path)
    assert table[["step", "sequence", "micro_batch"]].to_numpy().tolist() == [
        [16, 0, 0], [16, 1, 1], [17, 0, 0]
    ]  # fmt: skip


def test_without_interleaving_the_stage_is_the_chunk(job_file):
    path = job_file({"stage": 3})
    pd.read_parquet(path).drop(columns="gmc").to_parquet(path)
    with pytest.raises(LoadError, match=r"columns=\{'chunk': <the column of the stage>\}"):
        load.job_operations(path)
    assert load.job_operations(path, columns={"chunk": "stage"})["chunk"].tolist() == [3]


def test_operations_may_have_other_names(job_file):
    path = job_file({"optype": "fwd"}, {"optype": "bwd"}, {"optype": "optimizer"})
    table = load.job_operations(
        path, operations={"fwd": "forward-compute", "bwd": "backward-compute"}
    )
    assert sorted(table["operation"].astype(str)) == [
        "backward-compute", "forward-compute", "optimizer"
    ]  # fmt: skip
    assert table["micro_batch"].notna().sum() == 2
    with pytest.raises(LoadError, match=r"operations= names \['forwards'\]"):
        load.job_operations(path, operations={"forwards": "forward-compute"})


@pytest.mark.parametrize("with_order", [True, False])
def test_rows_of_tensor_parallel_ranks_become_one(job_file, with_order):
    rows = [
        {"tp": tp, "seq_id": n, "mb_id": n, "start_ts": n + tp / 8, "duration": 0.5}
        for n in (0, 1)
        for tp in (0, 1)
    ]
    path = job_file(*rows)
    if not with_order:
        pd.read_parquet(path).drop(columns="seq_id").to_parquet(path)
    table = load.job_operations(path, columns={"tp_rank": "tp"})
    assert table["start_ns"].tolist() == [0, 1_000_000_000]
    assert table["dur_ns"].tolist() == [625_000_000, 625_000_000]
    assert table["sequence"].tolist() == [0, 1]
    assert table.attrs["left_out"] == {"rows of other tensor-parallel ranks": 2}


def test_integer_nanoseconds_since_1970_stay_exact(job_file):
    start = 1_700_000_000_123_456_789
    path = job_file({"start_ts": start, "duration": 1_001}, name="job.csv")
    table = load.job_operations(path, time_unit="ns")
    assert table[["start_ns", "dur_ns"]].iloc[0].tolist() == [start, 1_001]


def test_the_resolution_of_floats_is_told_and_refused_if_too_coarse(job_file):
    path = job_file({"start_ts": 10.0, "duration": 0.5})
    assert load.job_operations(path).attrs["resolution_ns"] < 10
    frame = pd.read_parquet(path).astype({"start_ts": "float32"})
    frame.to_parquet(path)
    assert load.job_operations(path).attrs["resolution_ns"] == 954
    frame.assign(start_ts=frame["start_ts"] + 1.7e9).to_parquet(path)
    with pytest.raises(LoadError, match=r"starts up to .* in steps of 128,000,000,000 ns"):
        load.job_operations(path)


def test_a_file_of_operations_is_told_from_other_files(job_file, tmp_path, imbalance_demo):
    table, text = tmp_path / "traces.parquet", tmp_path / "notes.csv"
    pd.DataFrame({"name": ["a"], "step": [1]}).to_parquet(table)
    text.write_text("")
    files = [job_file({}), job_file({}, name="job.csv"), imbalance_demo / "synthetic_job.parquet"]
    assert all("job operations" in kinds_of(path) for path in files)
    others = [table, text, imbalance_demo / "truth.csv"]
    assert not any("job operations" in kinds_of(path) for path in others)


TIMES = {"start_ts": [5_000_000_007, 6_000_000_000], "duration": [900_000_001, 500_000_000]}


@pytest.mark.parametrize("time_unit", ["s", "us", "ns"])
@pytest.mark.parametrize(
    "start", ["datetime64[ns]", "datetime64[ns, UTC]", "timedelta64[ns]", "datetime64[us]"]
)
def test_points_in_time_and_spans_are_exact_whatever_the_unit(job_file, time_unit, start):
    path = job_file({}, {"mb_id": 1, "seq_id": 1})
    frame = pd.read_parquet(path).assign(**TIMES)
    spans = frame["duration"].astype("timedelta64[ns]")
    stored = frame["start_ts"].astype("timedelta64[ns]" if "delta" in start else "datetime64[ns]")
    stored = stored.dt.tz_localize("UTC") if "UTC" in start else stored.astype(start)
    frame.assign(duration=spans, start_ts=stored).to_parquet(path)
    table = load.job_operations(path, time_unit=time_unit)
    lost = 7 if "[us]" in start else 0
    assert table["start_ns"].tolist() == [5_000_000_007 - lost, 6_000_000_000]
    assert table["dur_ns"].tolist() == TIMES["duration"]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("duration", pd.to_datetime([5, 6]), r"'dur_ns' holds points in time \(datetime64"),
        ("start_ts", pd.to_datetime([5, None]), "'start_ns': 1 values are not a finite time"),
        ("duration", pd.to_timedelta([5, -6]), "'dur_ns': 1 values are not a finite time from 0"),
    ],
)
def test_times_that_are_no_durations_or_lack_are_refused_by_name(job_file, column, values, message):
    path = job_file({}, {})
    pd.read_parquet(path).assign(**{column: values}).to_parquet(path)
    with pytest.raises(LoadError, match=message):
        load.job_operations(path)


@pytest.mark.parametrize("over", ["the job", "the step"])
def test_an_order_counted_over_more_than_equal_operations_is_counted_again(tmp_path, over):
    rows = [
        ROW | {"step": step, "optype": kind, "mb_id": batch, "start_ts": step * 10.0 + at}
        for step in (3, 4, 5)
        for at, (kind, batch) in enumerate(
            (kind, batch) for batch in (0, 1) for kind in ("forward-compute", "backward-compute")
        )
    ]
    frame = pd.DataFrame(rows)
    frame["seq_id"] = frame.groupby("optype" if over == "the job" else "step").cumcount() + 1
    frame.to_parquet(tmp_path / "job.parquet")
    table = load.job_operations(tmp_path / "job.parquet")
    equal = table.groupby(["step", "operation"], observed=True)["sequence"]
    assert equal.agg(list).tolist() == [[0, 1]] * 6
    assert (table["sequence"] == table["micro_batch"]).all()


def test_numbers_too_large_are_refused_with_their_limit_and_steps_may_be_huge(job_file):
    path = job_file({"step": 3_000_000_000})
    assert load.job_operations(path)["step"].tolist() == [3_000_000_000]
    with pytest.raises(LoadError, match=r"from 0 to 2,147,483,647, the first is 3000000000 in row"):
        load.job_operations(job_file({"stage": 3_000_000_000}))
    with pytest.raises(LoadError, match="the first is nan in row 1"):
        load.job_operations(job_file({}, {"duration": float("nan")}))


def test_spaces_beside_separators_are_no_part_of_names(job_file):
    path = job_file({}, name="job.csv")
    plain = load.job_operations(path)
    path.write_text(path.read_text().replace(",", ", "))
    pd.testing.assert_frame_equal(load.job_operations(path), plain)
    assert "job operations" in kinds_of(path)


def test_columns_that_cannot_be_told_apart_are_refused(job_file):
    path = job_file({}, {}, name="job.csv")
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{head},step", *(f"{row},1" for row in rows)]))
    with pytest.raises(LoadError, match=r"columns \['step'\] are there twice"):
        load.job_operations(path)
    path.write_text("\n".join([head, *(f"{row},1" for row in rows)]))
    with pytest.raises(LoadError, match="more fields than the header"):
        load.job_operations(path)


@pytest.mark.parametrize("column", range(11))
@pytest.mark.parametrize("value", ["9" * 400, "inf", "-inf", "1e400", "nan"])
def test_numbers_beyond_any_table_are_refused_by_name(tmp_path, column, value):
    head = "step,dp_rank,stage,optype,mb_id,start_ts,duration,gmc,mc,seq_id,rank"
    row = ["0", "0", "0", "forward-compute", "0", "0.5", "0.25", "0", "0", "0", "0"]
    other = [*row[:1], "1", *row[2:]]
    row[column] = value
    path = tmp_path / "job.csv"
    path.write_text("\n".join([head, ",".join(row), ",".join(other), ""]))
    with contextlib.suppress(WorkbenchError):
        JOB_OPERATIONS.check(load.job_operations(path))


def tensor_ranks(path, *, ahead_ns=0, slow_ns=0):
    """Write three steps of four tensor-parallel ranks; rank 2 is off in step 1, or slow."""
    rows, dur_ns = [], 1_000_000
    for step, rank in itertools.product(range(3), range(4)):
        start_ns = step * 100_000_000 + (ahead_ns if (step, rank) == (1, 2) else 0)
        for number, name in itertools.product(range(6), ("forward-compute", "backward-compute")):
            own_ns = dur_ns + (slow_ns if rank == 2 else 0)
            rows.append((step, 0, 0, name, number, number, 0, rank, start_ns, own_ns))
            start_ns += dur_ns + slow_ns + 10_000
    names = [
        "step",
        "dp_rank",
        "stage",
        "optype",
        "seq_id",
        "mb_id",
        "gmc",
        "tp_rank",
        "start_ts",
        "duration",
    ]
    pd.DataFrame(rows, columns=names).to_csv(path, index=False)
    return load.job_operations(path, columns={"tp_rank": "tp_rank"}, time_unit="ns")


@pytest.mark.parametrize("ahead_ns", [-700_000, 300_000, 40_000_000])
def test_a_rank_whose_clock_is_off_makes_operations_doubtful_and_not_slower(tmp_path, ahead_ns):
    right, off = (tensor_ranks(tmp_path / "job.csv", ahead_ns=ns) for ns in (0, ahead_ns))
    assert off.equals(right)
    assert "doubts" not in right.attrs
    (doubt,) = off.attrs["doubts"]
    assert "clocks of tensor-parallel ranks 2 are off" in doubt


def test_a_slow_tensor_parallel_rank_makes_operations_slower_and_no_clock_doubtful(tmp_path):
    table = tensor_ranks(tmp_path / "job.csv", slow_ns=300_000)
    assert set(table["dur_ns"]) == {1_300_000}
    assert "doubts" not in table.attrs
