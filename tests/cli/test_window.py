"""The option --window, and a command whose reader has enough."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.load.conftest import launched
from workbench import cli, datasets

EVENTS = launched(1, 1)


@pytest.fixture
def run():
    """Run the command; give what it printed and its exit code."""
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def clean_trace(tmp_path):
    path = tmp_path / "rank0.pt.trace.json"
    about = {"distributedInfo": {"rank": 0, "world_size": 1}}
    path.write_text(json.dumps({**about, "traceEvents": EVENTS}))
    return path


@pytest.fixture
def two_windows(tmp_path):
    """Two recordings of one process, as PyTorch's own handler names them."""
    for second in (1, 2):
        start_us = 1_700_000_000_000_000 + second * 1_000_000
        rows = [{**row, "ts": row["ts"] + start_us, "dur": second} for row in EVENTS]
        path = tmp_path / "run" / f"node_7.{start_us * 1_000}.pt.trace.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"traceEvents": rows}))
    return path.parent


def test_a_window_can_be_chosen_and_is_named_where_it_is_not(run, two_windows):
    default = " ".join(run("diagnose", two_windows).output.split())
    assert "Read: traces of 1 rank" in default
    assert "number 1 of 0 to 1, in order of time, the last that every rank has" in default
    assert "--window" in default
    for command in ("check", "diagnose"):
        first = run(command, two_windows, "--window", "first").output
        assert "number 0 of 0 to 1" in " ".join(first.split())
    assert "! assumed" in run("check", two_windows).output
    too_late = run("diagnose", two_windows, "--window", "2")
    assert too_late.exit_code == 2
    assert "--window 2: rank 0 has 2 windows, numbered from 0" in too_late.output
    assert "must be first, last or the number" in run("check", "--window", "x", ".").output


def test_runs_are_compared_by_the_window_that_was_chosen(run, two_windows, tmp_path):
    shutil.copytree(two_windows, tmp_path / "other")
    ran = run("compare", two_windows, tmp_path / "other", "--window", "0")
    assert "number 0 of 0 to 1" in ran.output
    page = run("report", "--data", two_windows, "--window", "0", "--out", tmp_path / "out", "-h")
    assert "--window" in page.output


@pytest.mark.parametrize("command", ["check", "diagnose", "compare"])
def test_a_window_without_effect_is_refused(run, clean_trace, command):
    steps = datasets.path("fleet-demo") / "steps.jsonl"
    paths = [steps, steps] if command == "compare" else [clean_trace]
    ran = run(command, *paths, "--window", "last", *["--tz", "UTC"] * (command == "compare"))
    assert ran.exit_code == 2
    assert "--window has no effect: no process recorded several windows here" in ran.output


@pytest.mark.long
@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_a_reader_that_has_enough_ends_the_command_in_silence(clean_trace, command):
    words = [sys.executable, "-m", "workbench", command, str(clean_trace)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        ran.stdout.close()
        said = ran.stderr.read()
    assert (ran.returncode, said) == (141, b"")
