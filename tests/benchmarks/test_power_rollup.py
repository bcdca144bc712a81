"""The benchmark of roll-ups: it runs, and both tools give the same energy."""

import json

import pytest

from benchmarks import power_rollup


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys):
    options = ["--node-days", "2", "4", "--seconds", "1200"]
    paths = ["--scratch", str(tmp_path), "--out", str(tmp_path)]
    assert power_rollup.main([*options, *paths]) == 0
    assert (tmp_path / "power_rollup.md").read_text() in capsys.readouterr().out
    rows = json.loads((tmp_path / "power_rollup.json").read_text())["rows"]
    assert [row["what"] for row in rows] == [
        "roll-up of 19,200 readings (2 files)",
        "roll-up of 38,400 readings (4 files)",
    ]
