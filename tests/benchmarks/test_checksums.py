"""The benchmark of checksums runs and says what it measured."""

import json

import pytest


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(torch_here, monkeypatch, tmp_path, capsys):
    from benchmarks import checksums

    monkeypatch.setattr(checksums, "SHAPES", ((32, 64, 64),))
    threads = torch_here.get_num_threads()
    assert checksums.main(["--rounds", "1", "--out", str(tmp_path)]) == 0
    assert torch_here.get_num_threads() == threads
    table = (tmp_path / "checksums.md").read_text()
    assert table in capsys.readouterr().out
    content = json.loads((tmp_path / "checksums.json").read_text())
    assert len(content["rows"]) == 3
    assert all(row["ratio"] > -100 for row in content["rows"])
    assert {"torch", "instructions"} <= set(content["machine"])
