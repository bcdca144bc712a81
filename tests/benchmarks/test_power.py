"""The benchmark of power runs on a short log and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path):
    small = ["--lines", "2000", "--rounds", "1"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "benchmarks/power.py", *small, "--scratch", scratch,
         "--out", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tmp_path / "power.md").read_text() in done.stdout
    assert "synthetic" in done.stdout
    rows = json.loads((tmp_path / "power.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
    assert list(scratch.iterdir()) == []
