"""The benchmark of goodput runs, agrees with its peer and says what it measured."""

import json

import pytest

from benchmarks import goodput


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys):
    assert goodput.main(["--rounds", "1", "--out", str(tmp_path)]) == 0
    table = (tmp_path / "goodput.md").read_text()
    assert table in capsys.readouterr().out
    assert "The event loop finds the same shares" in table
    rows = json.loads((tmp_path / "goodput.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
