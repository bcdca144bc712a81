"""The benchmark of the lab runs and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(real_data, tmp_path):
    assert real_data("lengths-documents")
    assert real_data("stragglers-bytedance")
    done = subprocess.run(
        [sys.executable, "benchmarks/imbalance.py", "--rounds", "1", "--out", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    table = (tmp_path / "imbalance.md").read_text()
    assert table in done.stdout
    assert "M documents/s" in table
    rows = json.loads((tmp_path / "imbalance.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
