"""Failures, powers and injections that people keep in tables of their own."""

import json
from functools import partial

import pandas as pd
import pytest

from workbench import analyze, load
from workbench.errors import LoadError
from workbench.tables import FAILURES

FAILED = pd.DataFrame(
    {
        "when": ["2026-01-02 03:00:00", "2026-01-02 09:00:00", "2026-01-05 00:00:00"],
        "host": ["a", "b", "a"],
        "why": ["GPU lost", "ECC error", "GPU lost"],
        "xid": [79, 95, 79],
        "colour": ["red", "blue", "red"],
    }
)
NAMED = {"time": "when", "node": "host", "cause": "why", "code": "xid"}


@pytest.fixture(params=["csv", "parquet"])
def file(request, tmp_path):
    def write(frame):
        path = tmp_path / f"own.{request.param}"
        if request.param == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
        return path

    return write


# --- failures ---


def test_failures_are_read_by_the_names_of_the_callers_columns(file):
    log = load.failure_table(file(FAILED), columns=NAMED, tz="America/New_York")
    table = FAILURES.check(log.failures)
    assert table["start_ns"].tolist() == [
        pd.Timestamp(text, tz="America/New_York").value for text in FAILED["when"]
    ]
    assert table[["node", "cause", "code"]].to_numpy().tolist() == [
        ["a", "GPU lost", "79"], ["b", "ECC error", "95"], ["a", "GPU lost", "79"],
    ]  # fmt: skip
    assert set(table["category"]) == {"unknown"}
    assert set(table["assumed"]) == {"tz=America/New_York"}
    assert log.nodes["node"].tolist() == ["a", "b"]
    told = log.quality.set_index("what")["where"]
    assert told["columns that are not read"] == "colour"


def test_stamps_with_a_zone_and_numbers_since_1970_need_no_tz(file):
    utc = pd.to_datetime(FAILED["when"], utc=True).dt.as_unit("ns")
    for times in (utc, utc.astype("int64") // 10**6, utc.astype("int64") // 10**9):
        log = load.failure_table(file(FAILED.assign(when=times)), columns=NAMED)
        assert log.failures["start_ns"].tolist() == utc.astype("int64").tolist()
        assert set(log.failures["assumed"]) == {""}


def test_local_stamps_need_a_zone(file):
    with pytest.raises(LoadError, match="tz="):
        load.failure_table(file(FAILED), columns=NAMED)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": "date"}, r"no column \['date'\]; it has \['when', 'host', 'why'"),
        (NAMED | {"node": "hostname"}, r"no column \['hostname'\]; it has"),
        (NAMED | {"color": "colour"}, r"columns= names \['color'\], which the table does not have"),
        ({"time": "when", "node": "host"}, "say neither cause nor code, the first is line"),
        (NAMED | {"rank": "why"}, "column for 'rank': 3 values are not a whole number from 0 to"),
        ({"time": "colour", "cause": "why"}, "column 'colour' holds no time that can be read"),
    ],
)
def test_columns_that_are_not_there_or_hold_something_else_are_refused(file, columns, message):
    with pytest.raises(LoadError, match=message):
        load.failure_table(file(FAILED), columns=columns, tz="UTC")


def test_rows_without_a_time_are_counted_and_ends_before_starts_refused(file):
    lacking = FAILED.assign(when=["2026-01-02 03:00:00", None, "2026-01-05 00:00:00"])
    log = load.failure_table(file(lacking), columns=NAMED, tz="UTC")
    assert len(log.failures) == 2
    assert "rows without a time" in set(log.quality["what"])
    ended = FAILED.assign(till=["2026-01-02 03:30:00", "2026-01-01 09:00:00", None])
    with pytest.raises(LoadError, match="1 failures end before they begin"):
        load.failure_table(file(ended), columns=NAMED | {"end": "till"}, tz="UTC")


def test_jobs_of_eight_digits_stay_apart_where_a_cell_made_their_column_floats(tmp_path):
    path = tmp_path / "own.parquet"
    FAILED.assign(job=[12345678, 12345679, None]).to_parquet(path)
    jobs = load.failure_table(path, columns=NAMED, tz="UTC").failures["job"]
    assert jobs.dropna().tolist() == ["12345678", "12345679"]


@pytest.mark.parametrize("ends", [["2026-01-02 03:30:00", None, None], [None] * 3])
def test_a_failure_without_an_end_is_no_row_without_a_time(file, ends):
    log = load.failure_table(file(FAILED.assign(end=ends)), columns=NAMED, tz="UTC")
    lasting = (log.failures["end_ns"] - log.failures["start_ns"]) / 60e9
    assert lasting.tolist() == [30 if end else 0 for end in ends]
    assert set(log.quality["finding"]) == {"noted", "read"}


def test_reports_of_one_fault_are_one_incident(file):
    close = FAILED.assign(
        when=["2026-01-02 03:00:00", "2026-01-02 03:01:00", "2026-01-02 03:02:00"]
    )
    one = close.assign(host="a", why="GPU lost", xid=79)
    assert len(load.failure_table(file(one), columns=NAMED, tz="UTC").failures) == 1
    assert len(load.failure_table(file(one), columns=NAMED, tz="UTC", window_s=0).failures) == 3


def test_a_last_row_that_may_be_cut_is_left_out_and_told(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("time,node,cause\n2026-01-02T03:00Z,a,GPU lost\n2026-01-03T03:00Z,b,GP")
    log = load.failure_table(path)
    assert log.failures["cause"].tolist() == ["GPU lost"]
    assert log.quality.query("finding == 'truncated'")["count"].tolist() == [1]


# --- powers ---


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_powers_are_read_by_the_names_of_the_callers_columns(tmp_path, ending):
    own = pd.DataFrame(
        {
            "when": [1_767_000_000, 1_767_000_001] * 2, "host": ["a", "a", "b", "b"],
            "draw": [0.1, 0.2, 0.3, 0.4], "cap": [0.7] * 4, "note": ["x"] * 4,
        }
    )  # fmt: skip
    path = tmp_path / f"own.{ending}"
    if ending == "csv":
        own.to_csv(path, index=False)
    elif ending == "parquet":
        own.to_parquet(path)
    else:
        own.to_json(path, orient="records", lines=True)
    log = load.power(
        path, columns={"time": "when", "node": "host", "power_kw": "draw"}, scope="node_dc"
    )
    assert sorted(log.power["power_w"]) == pytest.approx([100, 200, 300, 400])
    assert log.entities["node"].tolist() == ["a", "b"]
    in_unit = load.power(path, columns={"time": "when", "node": "host", "power": "draw"},
                         unit="kW", scope="node_dc")  # fmt: skip
    assert sorted(in_unit.power["power_w"]) == pytest.approx([100, 200, 300, 400])
    told = log.quality[log.quality["what"].str.contains("columns= does not name it")]
    assert len(told) == 2


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (
            {"time": "when", "power_w": "watts"},
            LoadError,
            r"no column \['watts'\]; it has \['when'",
        ),
        ({"time": "when"}, ValueError, "must name time and one of"),
        ({"time": "when", "power": "draw"}, ValueError, "say in which unit with unit="),
        ({"time": "when", "power_w": "draw", "rack": "x"}, ValueError, r"names \['rack'\], which"),
        ({"time": "draw", "power_w": "draw"}, ValueError, "a column of the file twice"),
    ],
)
def test_power_columns_that_are_not_there_or_mean_nothing_are_refused(
    tmp_path, columns, error, message
):
    path = tmp_path / "own.csv"
    path.write_text("when,draw\n1767000000,5\n1767000001,6\n")
    with pytest.raises(error, match=message):
        load.power(path, columns=columns)


# --- injections ---


def test_injection_records_are_read_from_json_lines_as_from_csv(tmp_path):
    rows = pd.DataFrame(
        {"run": [5, 6], "layer": ["conv1", "fc"], "b": [30, 2], "wrong": [7, 0], "nan": [1, 0]}
    )
    csv, lines = tmp_path / "r.csv", tmp_path / "r.jsonl"
    rows.to_csv(csv, index=False)
    rows.to_json(lines, orient="records", lines=True)
    named = {
        "exp_id": "run",
        "layer": "layer",
        "bit": "b",
        "sdc_count": "wrong",
        "due_count": "nan",
    }
    one, two = (load.injection_records(path, columns=named) for path in (csv, lines))
    for name in ("campaign", "faults", "outcomes"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(two, name))


def test_objects_inside_a_line_are_named_by_both_and_broken_lines_counted(tmp_path):
    path = tmp_path / "r.jsonl"
    texts = [
        json.dumps({"run": n, "site": {"bit": n, "index": [0, n]}, "wrong": n}) for n in (1, 2)
    ]
    broken = ['{"run": 3, "wrong"', '{"run": 3, "run": 4}', "[1]", "1" * 5000, ""]
    path.write_text("\n".join([*texts, *broken]))
    named = {"exp_id": "run", "bit": "site.bit", "index": "site.index", "sdc_count": "wrong"}
    result = load.injection_records(path, columns=named)
    assert result.faults[["bit", "index"]].to_numpy().tolist() == [
        [1, '["0", "1"]'],
        [2, '["0", "2"]'],
    ]
    told = result.quality.set_index("what")["count"]
    assert told["lines that are not JSON objects"] == 4
    with pytest.raises(LoadError, match=r"no column \['bits'\]; it has \['run', 'site"):
        load.injection_records(path, columns=named | {"bit": "bits"})


# --- plain integers ---


def test_plain_integers_do_where_missing_ones_are_allowed(file):
    log = load.failure_table(file(FAILED), columns=NAMED, tz="UTC")
    plain = log.failures.astype({"start_ns": "int64", "end_ns": "int64"})
    assert FAILURES.check(plain) is plain
    watched = log.nodes.assign(
        first_ns=log.nodes["first_ns"].min(), last_ns=log.nodes["last_ns"].max() + 10**15
    )
    for ask in (
        partial(analyze.failure_rates, nodes=2, days=10),
        partial(analyze.failure_trend, nodes=watched.astype({"last_ns": "int64"})),
        analyze.failure_gaps,
    ):
        pd.testing.assert_frame_equal(ask(plain), ask(log.failures))
    for dtype in ("int32", "float64", "uint64", "object"):
        with pytest.raises(Exception, match="'start_ns' has dtype"):
            FAILURES.check(plain.astype({"start_ns": dtype}))


def test_injection_records_under_the_names_of_the_tables_need_no_columns(tmp_path):
    path = tmp_path / "own.jsonl"
    row = {"exp_id": 0, "layer": "fc", "bit": 30, "input_count": 9, "sdc_count": 4, "colour": "red"}
    path.write_text(json.dumps(row) + "\n")
    bare = load.injection_records(path)
    named = load.injection_records(path, columns={name: name for name in row if name != "colour"})
    pd.testing.assert_frame_equal(bare.outcomes, named.outcomes)
    pd.testing.assert_frame_equal(bare.faults, named.faults)
    assert any("colour" in str(where) for where in bare.quality["where"])
    path.write_text(json.dumps({"exp_id": 0, "bit": 30}) + "\n")
    with pytest.raises(LoadError, match="no column is named as a result"):
        load.injection_records(path)
    both = {"exp_id": 0, "outcome": "sdc", "golden": "1", "faulty": "2"}
    path.write_text(json.dumps(both) + "\n")
    with pytest.raises(LoadError, match="is to be believed"):
        load.injection_records(path)


def test_jobs_of_a_queue_that_did_well_are_no_failures(tmp_path):
    path = tmp_path / "queue.csv"
    path.write_text(
        "ID,SUBMITTED,TOT. DURATION,STATUS\n1,2025-05-01 10:00:00,5h 2m,SUCCEEDED\n"
        "2,2025-05-01 12:00:00,1h 2m,FAILED\n3,2025-05-01 13:00:00,2m,FAILED_NO_RESOURCE\n"
        "4,2025-05-01 14:00:00,2m,RUNNING\n"
    )
    columns = {"time": "SUBMITTED", "job": "ID", "cause": "STATUS"}
    log = load.failure_table(path, columns=columns, tz="UTC")
    # A row each would make a failure rate twice as high.
    assert log.failures["cause"].tolist() == ["FAILED", "FAILED_NO_RESOURCE"]
    told = log.quality[log.quality["what"] == "jobs in a state that is not a failure"]
    assert told[["finding", "count", "where"]].to_numpy().tolist() == [
        ["skipped by design", 2, "RUNNING, SUCCEEDED"]
    ]
