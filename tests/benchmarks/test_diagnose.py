"""The benchmark of diagnose: the job that it makes is one, and it says what it measured."""

import json
import tarfile

import pytest

from benchmarks import diagnose
from workbench import load


@pytest.fixture
def archive(tmp_path):
    """Pack the traces of two ranks, one step of one kernel each."""
    path = tmp_path / "job.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for rank in range(2):
            at = 1_700_000_000_000_000
            shared = {"ph": "X", "pid": 1, "tid": 1}
            ids = {"correlation": 1, "stream": 7, "device": 0}
            events = [
                {**shared, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": at, "dur": 90},
                {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1,
                 "dur": 5, "args": ids},
                {**shared, "cat": "kernel", "name": "gemm", "ts": at + 9, "dur": 20 + rank,
                 "pid": 0, "args": ids},
            ]  # fmt: skip
            about = {"backend": "nccl", "rank": rank, "world_size": 2}
            text = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": events}
            file = tmp_path / f"worker{rank}.json"
            file.write_text(json.dumps(text))
            packed.add(file, file.name)
    return path


def test_further_ranks_are_the_same_traces_under_other_numbers(archive, tmp_path):
    folder = diagnose.make_job(archive, tmp_path, 5, 5_000)
    trace = load.traces(folder, progress=False)
    assert trace.ranks["rank"].tolist() == [0, 1, 2, 3, 4]
    assert (trace.ranks["world_size"] == 5).all()
    work = trace.events[trace.events["kind"].notna()]
    assert (work["dur_ns"] == 20_000 + 1_000 * (work["rank"] % 2)).all()
    assert work.groupby("rank").size().min() > 1


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(archive, tmp_path, capsys):
    options = ["--ranks", "2", "--size-mb", "0.01", "--rounds", "1", "--archive", str(archive)]
    assert diagnose.main([*options, "--scratch", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "diagnose.md").read_text() in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "diagnose.json").read_text())["rows"]
    assert row["ratio"] > 0
    assert list(tmp_path.glob("bench-*")) == []
