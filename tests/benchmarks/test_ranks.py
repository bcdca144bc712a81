"""The benchmark of rank-by-rank analysis: it runs, and says how time and memory grew."""

import json

import pytest

from benchmarks import ranks


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(dlrm, tmp_path, capsys):
    options = ["--ranks", "2", "4", "--size-mb", "0.01", "--workers", "0", "--archive", str(dlrm)]
    assert ranks.main([*options, "--scratch", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "ranks.md").read_text() in capsys.readouterr().out
    rows = json.loads((tmp_path / "ranks.json").read_text())["rows"]
    two, four, exponent, memory, cpu = rows
    assert two["ratio"] > 0
    assert four["ratio"] > 0
    assert exponent["what"] == "exponent of CPU time, 2 to 4 ranks"
    assert memory["what"] == "peak memory of findings, 4 ranks"
    assert cpu["ratio"] > 0
