"""The benchmarks work: what they measure on is right, and they say when a target is missed."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import load

ROOT = Path(__file__).resolve().parents[2]
US = 1_700_000_000_000_000


def event(name, at_us, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at_us} | more


@pytest.fixture
def source(tmp_path):
    """Write a trace of two steps: a launch, its kernel and the arrow between them in each."""
    events = []
    for step in (3, 4):
        at = US + 100 * step
        ids = {"correlation": step, "External id": 50 + step}
        events += [
            event(f"ProfilerStep#{step}", at, dur=90, cat="user_annotation"),
            event("cudaLaunchKernel", at + 10, dur=5, cat="cuda_runtime", args=ids),
            {"ph": "s", "id": step, "pid": 1, "tid": 1, "ts": at + 10, "cat": "ac2g", "name": "a"},
            event("gemm", at + 30, dur=20, cat="kernel", tid=7, args={**ids, "stream": 7}),
        ]
    events.append(event("never shifted", US + 250, dur=1, args={"Ev Idx": 1, "id": 0}))
    path = tmp_path / "source.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump(
            {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}, file
        )
    return path


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip


def enlarged(source, target, size_bytes):
    program = "import sys; from pathlib import Path; from benchmarks._enlarge import enlarge; "
    program += "print(enlarge(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))"
    return int(run("-c", program, source, target, size_bytes).stdout)


def test_a_repeated_trace_reads_like_one_longer_run(source, tmp_path):
    once, often = tmp_path / "once.json", tmp_path / "often.json"
    assert enlarged(source, once, 0) == 1
    assert once.read_bytes() == gzip.decompress(source.read_bytes())
    assert enlarged(source, often, 3 * once.stat().st_size) == 3
    small, large = load.traces(once, rank=0), load.traces(often, rank=0)
    assert len(large.events) == 3 * len(small.events)
    assert large.steps["step"].tolist() == [3, 4, 5, 6, 7, 8]
    kernels = large.events[large.events["kind"].notna()]
    assert kernels["correlation"].is_unique
    assert kernels["step"].tolist() == [3, 4, 5, 6, 7, 8]
    launches = large.events.loc[kernels["launch"]]
    assert launches["correlation"].tolist() == kernels["correlation"].tolist()
    assert (launches["start_ns"].to_numpy() == kernels["start_ns"].to_numpy() - 20_000).all()
    flows = [each["id"] for each in json.loads(often.read_text())["traceEvents"] if "id" in each]
    assert len(set(flows)) == 6
    assert json.loads(often.read_text())["deviceProperties"] == [{"id": 0}]


def test_repeating_gives_the_same_bytes_again(source, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert enlarged(source, first, 5000) == enlarged(source, second, 5000) > 1
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(source, tmp_path):
    options = ["--quick", "--no-peer", "--size-mb", "0.2", "--huge-mb", "0.3"]
    places = ["--source", source, "--scratch", tmp_path, "--out", tmp_path / "out"]
    done = run("benchmarks/traces.py", *options, *places)
    table = (tmp_path / "out" / "traces.md").read_text()
    assert table in done.stdout
    assert "| load again, from the cache |" in table
    content = json.loads((tmp_path / "out" / "traces.json").read_text())
    runs = content["runs"]
    assert runs["plain"][0]["seen"]["rows"] == runs["second"][0]["seen"]["rows"] > 1000
    assert all(runs[name][0]["load"]["wall_s"] > 0 for name in ("gunzip", "json", "huge"))
    assert list(tmp_path.glob("bench-*")) == []


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(7.99, "MISSED"), (8.0, "yes"), (None, "")], ids=str
)
def test_a_missed_target_is_said(ratio, verdict):
    program = (
        f"from benchmarks._table import Row; print(*Row('', '', '', {ratio}, 8).cells(), sep='|')"
    )
    assert run("-c", program).stdout.rstrip("\n").split("|")[-1] == verdict
