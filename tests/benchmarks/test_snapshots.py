"""The benchmark of snapshots and findings runs and says what it measured."""

import json

import pytest

from benchmarks import snapshots


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(snapshots, "ACTIONS", (3_000,))
    assert snapshots.main(["--rounds", "1", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "snapshots.md").read_text() in capsys.readouterr().out
    rows = json.loads((tmp_path / "snapshots.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
