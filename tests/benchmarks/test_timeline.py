"""The benchmark of the timeline runs and says what it measured."""

import json

from benchmarks import timeline


def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys):
    assert timeline.main(["--rounds", "1", "--most", "20000", "--out", str(tmp_path)]) == 0
    table = (tmp_path / "timeline.md").read_text()
    assert table in capsys.readouterr().out
    rows = json.loads((tmp_path / "timeline.json").read_text())["rows"]
    assert [row["what"] for row in rows] == ["whole trace of 20,000 events"]
    assert rows[0]["ratio"] > 0
