"""The benchmark of failure logs runs and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path):
    small = ["--rounds", "1", "--lines", "5000", "--large-gb", "0.001", "--fleet-gb", "0.1", "0.2"]
    done = subprocess.run(
        [sys.executable, "benchmarks/failures.py", *small, "--out", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tmp_path / "failures.md").read_text() in done.stdout
    rows = json.loads((tmp_path / "failures.json").read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
