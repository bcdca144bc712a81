"""Databases of MLflow: each run a log, its metrics as they were logged."""

import sqlite3
from contextlib import closing

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of

T0_MS = 1_700_000_000_000


def metrics(run, count=4, first_ms=T0_MS):
    for n in range(count):
        at = first_ms + 1000 * n
        # A float that needs all its digits, as a loss of 32 bits has.
        yield ("train/loss", 2.0999999046325684 - n, at, run, n, 0)
        yield ("step_time_s", 0.25, at + 1, run, n, 0)


@pytest.fixture
def write(tmp_path):
    def put(runs, rows):
        path = tmp_path / "mlflow.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "CREATE TABLE metrics (key VARCHAR(250), value FLOAT, timestamp BIGINT, run_uuid "
                "VARCHAR(32), step BIGINT, is_nan BOOLEAN, "
                "PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
            )
            database.execute("CREATE TABLE runs (run_uuid VARCHAR(32), lifecycle_stage TEXT)")
            database.executemany("INSERT INTO runs VALUES (?, ?)", runs)
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.commit()
        return path

    return put


def test_steps_losses_and_durations_come_from_the_metrics(write):
    path = write([("a1", "active")], metrics("a1"))
    steps = load.job_log(path).steps
    assert steps["loss"].tolist() == [2.0999999046325684 - n for n in range(4)]
    assert steps["end_ns"].tolist() == [(T0_MS + 1000 * n) * 10**6 for n in range(4)]
    assert (steps["end_ns"] - steps["start_ns"]).eq(25 * 10**7).all()
    assert kinds_of(path) == {"job logs"}


def test_each_run_is_a_log_and_deleted_ones_are_told(write):
    rows = [*metrics("b2", first_ms=T0_MS + 10**6), *metrics("a1"), *metrics("c3", first_ms=T0_MS)]
    path = write([("a1", "active"), ("b2", "active"), ("c3", "deleted")], rows)
    log = load.job_log(path)
    assert log.steps["attempt"].tolist() == [1] * 4 + [2] * 4
    assert "runs that were deleted" in log.quality["what"].tolist()


def test_a_value_that_is_no_number_is_missing_and_odd_rows_are_counted(write):
    rows = [
        *metrics("a1"),
        ("loss", "high", T0_MS, "a1", 9, 0),
        ("train/loss", 0.0, -1, "a1", 1, 0),
    ]
    nan = ("train/loss", 0.0, T0_MS + 9000, "a1", 9, 1)
    log = load.job_log(write([("a1", "active")], [*rows, nan]))
    assert log.steps["loss"].isna().tolist() == [False] * 4
    dropped = log.quality.set_index("what")["count"]
    assert dropped["metrics without time, value and step"] == 2


def test_metrics_as_one_table_are_refused_since_each_row_is_no_step(tmp_path):
    path = tmp_path / "metrics.csv"
    rows = [f"{row[0]},{row[1]},{row[2]},{row[3]},{row[4]},0\n" for row in metrics("a1")]
    path.write_text("key,value,timestamp,run_uuid,step,is_nan\n" + "".join(rows))
    with pytest.raises(LoadError, match="a row per metric"):
        load.job_log(path)


def test_another_database_is_no_job_log(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE metrics (name TEXT)")
    with pytest.raises(LoadError, match="SQLite database with the tables metrics"):
        load.job_log(path)
