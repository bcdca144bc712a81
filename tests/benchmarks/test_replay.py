"""The benchmark of replays runs, agrees with its peer and says what it measured."""

import json

import numpy as np
import pytest

from benchmarks import replay


def test_made_graphs_have_no_circles_and_join_all_ranks():
    source, target, weight = replay.made_graph(64_000)
    time = replay._first_replay(source, target, weight)
    assert len(time) == 64_000
    assert (time[target] >= time[source] + weight).all()
    assert len(np.unique(source // 1_000 - target // 1_000)) > 1


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys, monkeypatch, real_data):
    real_data("kineto-hta")
    monkeypatch.setattr(replay, "PEER_TASKS", 6_400)
    monkeypatch.setattr(replay, "EVENTS_WANTED", 30_000)
    monkeypatch.setattr(replay, "TRACE", ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"))
    arguments = ["--rounds", "1", "--tasks", "12800", "--out", str(tmp_path)]
    assert replay.main(arguments) == 0
    table = (tmp_path / "replay.md").read_text()
    assert table in capsys.readouterr().out
    rows = json.loads((tmp_path / "replay.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
    assert any("bytes per task" in row["unit"] for row in rows)
