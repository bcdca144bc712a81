"""Job logs in Parquet, as loggers store histories: the same steps as from text."""

import pandas as pd
import pytest

from workbench import load
from workbench.errors import LoadError

HISTORY = {
    "_step": range(6),
    "_timestamp": [1_767_225_600.25 + 1.5 * number for number in range(6)],
    "_runtime": [1.5 * number for number in range(6)],
    "train/loss": [3.0, 2.5, None, 2.0, 1.9, 1.8],
    "gradients": [{"bins": [1, 2]}] * 6,
}


def same_steps(first, second):
    pd.testing.assert_frame_equal(
        first.steps.drop(columns=["line", "source"]), second.steps.drop(columns=["line", "source"])
    )


def test_a_history_in_parquet_is_the_same_log_as_in_csv(tmp_path):
    history = pd.DataFrame(HISTORY)
    history.to_parquet(tmp_path / "history.parquet")
    history.drop(columns="gradients").to_csv(tmp_path / "history.csv", index=False)
    stored = load.job_log(tmp_path / "history.parquet", progress=False)
    same_steps(stored, load.job_log(tmp_path / "history.csv", progress=False))
    assert stored.steps["end_ns"].tolist()[-1] == 1_767_225_607_750_000_000
    left = stored.quality[stored.quality["finding"] == "skipped by design"]
    assert left["where"].tolist() == ["gradients"]
    bundle = load.bundle(tmp_path / "history.parquet", progress=False)
    assert len(bundle.job.steps) == len(stored.steps) == 5


def test_stamps_in_parquet_keep_their_zone_or_need_one(tmp_path):
    ends = pd.date_range("2026-01-01 01:00", periods=3, freq="s", tz="Europe/Paris")
    table = pd.DataFrame({"step": [0, 1, 2], "ended": ends, "took_ms": 250})
    columns = {"end": "ended", "duration_ms": "took_ms"}
    table.to_parquet(tmp_path / "own.parquet")
    steps = load.job_log(tmp_path / "own.parquet", columns=columns, progress=False).steps
    assert steps["end_ns"].iloc[0] == 1_767_225_600_000_000_000
    assert (steps["end_ns"] - steps["start_ns"]).tolist() == [250_000_000] * 3
    table.assign(ended=ends.tz_localize(None)).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(LoadError, match=r"own\.parquet, line 1: .* has no time zone; pass tz="):
        load.job_log(tmp_path / "own.parquet", columns=columns, progress=False)


def test_parquet_that_is_no_history_or_is_damaged_is_refused(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(LoadError, match="is not a recognized job log"):
        load.job_log(tmp_path, progress=False)
    pd.DataFrame(HISTORY).to_parquet(tmp_path / "other.parquet")
    whole = (tmp_path / "other.parquet").read_bytes()
    (tmp_path / "other.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=r"other\.parquet"):
        load.job_log(tmp_path, progress=False)
