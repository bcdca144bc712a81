"""The worked example trains, and one run gives steps and traces that load."""

import subprocess
import sys
from pathlib import Path

import pytest

from workbench import load

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_and_record.py"
SMALL = "--steps 8 --width 32 --layers 1 --heads 2 --batch 2 --context 32 --trace-from 2"
SMALL += " --trace-steps 3 --evaluate-every 4 --evaluate-batches 2 --checkpoint-every 4"


@pytest.mark.slow
def test_one_run_gives_steps_and_traces_on_one_clock(torch_here, tmp_path):
    words = [sys.executable, str(EXAMPLE), "--out", str(tmp_path), *SMALL.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    trace = load.traces(tmp_path / "traces")
    log = load.job_log(tmp_path / "steps.jsonl")
    assert trace.steps["step"].tolist() == [2, 3, 4]
    assert log.steps["step"].tolist() == list(range(8))
    assert {"evaluation", "checkpoint", "run"} <= set(log.spans["kind"])
    traced = trace.steps.set_index("step")["start_ns"]
    logged = log.steps.set_index("step")["start_ns"].loc[traced.index]
    assert (abs(traced - logged) < 50_000_000).all()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step_000003.pt", "step_000007.pt",
    ]  # fmt: skip
    assert "no GPU" in done.stderr or trace.devices["name"].notna().any()
