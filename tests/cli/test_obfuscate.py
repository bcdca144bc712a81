"""``workbench obfuscate``: what it writes, prints, refuses and exits with."""

import json

import pytest
from typer.testing import CliRunner

from workbench import cli, load


@pytest.fixture
def run():
    """Run the command; give what it printed and its exit code."""
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def clean_trace(tmp_path):
    rows = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
         "ts": 1, "dur": 2, "args": {"correlation": 1}},
    ]  # fmt: skip
    path = tmp_path / "source" / "rank0.pt.trace.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": rows}))
    return path


def test_obfuscate_writes_a_copy_and_tells_what_stays_visible(run, clean_trace, tmp_path):
    result = run("obfuscate", clean_trace, tmp_path / "copy", "--factor", "2")
    assert result.exit_code == 0
    assert "  ratios of times: all (every speed, for whoever knows" in result.stdout
    assert "..." not in result.stdout
    events = load.traces(tmp_path / "copy", progress=False).events
    assert events["dur_ns"].tolist() == [4_000, 10_000]
    assert set(events["name"]) == {"cudaLaunchKernel", "kernel_1"}


def test_obfuscate_names_what_it_could_not_read_and_exits_with_1(run, clean_trace, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    clean_trace.rename(folder / clean_trace.name)
    (folder / "rank1.json").write_text("this is not a trace")
    result = run("obfuscate", folder, tmp_path / "copy", "--json")
    assert result.exit_code == 1
    assert "not in the copy" in result.stderr
    assert "rank1.json" in result.stderr
    assert {row["what"] for row in json.loads(result.stdout)} >= {"ranks", "ratios of times"}


def test_obfuscate_overwrites_nothing(run, clean_trace, tmp_path):
    assert run("obfuscate", clean_trace, tmp_path / "copy").exit_code == 0
    result = run("obfuscate", clean_trace, tmp_path / "copy")
    assert result.exit_code == 2
    assert "is not an empty folder" in result.stderr
    assert run("obfuscate", clean_trace.parent, clean_trace.parent / "new").exit_code == 2
