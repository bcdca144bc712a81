"""The benchmark of narrow types runs, and says which published claims hold here."""

import json

import pytest


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(torch_here, tmp_path, capsys):
    from benchmarks import low_precision

    assert low_precision.main(["--rounds", "1", "--out", str(tmp_path)]) == 0
    table = (tmp_path / "low_precision.md").read_text()
    assert table in capsys.readouterr().out
    assert "holds here for" in table
    rows = json.loads((tmp_path / "low_precision.json").read_text())["rows"]
    rounding = [row["ratio"] for row in rows if "relative error" in row["what"]]
    assert rounding == pytest.approx([1, 1, 1, 1], abs=0.01)
