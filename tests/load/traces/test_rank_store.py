"""A folder of one Parquet file per rank: complete, resumable, and the same bytes again."""

import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pyarrow.dataset
import pytest

from workbench import analyze, load
from workbench.errors import LoadError


@pytest.fixture
def job(tmp_path):
    """Write four ranks of a made job, one of which began to write and never ended an event."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(4):
        ids = {"correlation": 1, "stream": 7, "Collective name": "allreduce", "Group size": 4}
        events = [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5.001, "dur": 1,
             "pid": 1, "tid": 1, "args": {"correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 9 + rank,
             "dur": 20 - rank, "pid": 0, "tid": 7, "args": ids},
        ]  # fmt: skip
        about = {"backend": "nccl", "rank": rank, "world_size": 4}
        text = json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})
        (folder / f"worker{rank}.json").write_text(text)
    return folder


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_folder_loads_to_the_tables_of_the_source(job, tmp_path):
    load.write_ranks(load.rank_files(job), tmp_path / "stored", progress=False)
    assert min(bytes_of(tmp_path / "stored")) == "quality.csv"
    source, stored = (load.traces(path, progress=False) for path in (job, tmp_path / "stored"))
    for name in ("events", "ranks", "steps", "process_groups", "devices"):
        pd.testing.assert_frame_equal(getattr(stored, name), getattr(source, name))
    assert stored.events["launch"].dropna().tolist() == [0, 2, 4, 6]


@pytest.mark.long
def test_stored_ranks_are_analysed_one_by_one(job, tmp_path):
    load.write_ranks(load.rank_files(job), tmp_path / "stored", progress=False)
    analyses = [analyze.kernels, analyze.collective_waits]
    direct, stored = (
        analyze.by_rank(load.rank_files(path), analyses, progress=False)
        for path in (job, tmp_path / "stored")
    )
    for name in ("kernels", "collective_waits", "ranks"):
        pd.testing.assert_frame_equal(direct[name], stored[name])
    assert stored["collective_waits"]["wait_ns"].max() == 3_000


def test_any_engine_queries_the_folder(job, tmp_path):
    load.write_ranks(load.rank_files(job), tmp_path / "stored", progress=False)
    files = sorted((tmp_path / "stored").glob("*.parquet"))
    table = pyarrow.dataset.dataset(files).to_table(columns=["rank", "dur_ns"])
    assert table.group_by("rank").aggregate([("dur_ns", "max")])["dur_ns_max"].to_pylist() == [
        20_000, 19_000, 18_000, 17_000,
    ]  # fmt: skip


def test_a_second_run_does_only_what_lacks_or_changed(job, tmp_path, monkeypatch):
    from workbench.load._traces import rank_store

    stored = tmp_path / "stored"
    load.write_ranks(load.rank_files(job), stored, progress=False)
    before = bytes_of(stored)
    (stored / "rank00002.parquet").unlink()
    changed = job / "worker3.json"
    changed.write_text(changed.read_text().replace("AllReduce", "AllGather"))
    written, write = [], rank_store.parquet.write
    monkeypatch.setattr(
        rank_store.parquet, "write", lambda *a, **k: written.append(a[1].name) or write(*a, **k)
    )
    load.write_ranks(load.rank_files(job), stored, progress=False)
    assert written == ["rank00002.parquet", "rank00003.parquet"]
    after = bytes_of(stored)
    assert [name for name in after if after[name] != before[name]] == ["rank00003.parquet"]


def test_a_bad_file_is_a_row_and_its_old_copy_goes(job, tmp_path):
    stored = tmp_path / "stored"
    load.write_ranks(load.rank_files(job), stored, progress=False)
    bad = job / "worker1.json"
    bad.write_text('{"distributedInfo": {"rank": 1}, "traceEvents": [{"ts": ,}]}')
    quality = load.write_ranks(load.rank_files(job), stored, progress=False)
    assert quality.query("finding == 'dropped'")["source"].tolist() == [str(bad)]
    assert not (stored / "rank00001.parquet").exists()
    assert pd.read_csv(stored / "quality.csv")["finding"].eq("dropped").sum() == 1


def test_a_damaged_copy_is_written_anew(job, tmp_path):
    stored = tmp_path / "stored"
    load.write_ranks(load.rank_files(job), stored, progress=False)
    before = bytes_of(stored)
    (stored / "rank00000.parquet").write_bytes(b"PAR1 nothing else")
    load.write_ranks(load.rank_files(job), stored, progress=False)
    assert bytes_of(stored) == before


def test_ranks_of_another_job_are_not_mixed_in(job, tmp_path):
    stored = tmp_path / "stored"
    load.write_ranks(load.rank_files(job), stored, progress=False)
    (job / "worker3.json").unlink()
    with pytest.raises(LoadError, match=r"rank00003\.parquet: 1 files of ranks that the source"):
        load.write_ranks(load.rank_files(job), stored, progress=False)


def test_sets_that_share_a_rank_are_refused(job, tmp_path):
    for name in ("a", "b"):
        load.write(load.traces(job, progress=False), tmp_path / f"{name}.parquet")
    with pytest.raises(LoadError, match="two sets hold rank 0"):
        load.traces([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(LoadError, match=r"a\.parquet: holds 4 ranks together; 'workbench convert"):
        load.rank_files(tmp_path / "a.parquet")


@pytest.mark.slow
def test_a_run_that_is_killed_is_resumed_to_the_same_bytes(job, tmp_path):
    whole = tmp_path / "whole"
    load.write_ranks(load.rank_files(job), whole, progress=False)
    code = (
        "import sys; from workbench import load; print('go', flush=True);"
        "load.write_ranks(load.rank_files(sys.argv[1]), sys.argv[2], progress=False)"
    )
    for number in range(10):
        stored = tmp_path / f"killed{number}"
        run = subprocess.Popen(
            [sys.executable, "-c", code, str(job), str(stored)], stdout=subprocess.PIPE
        )
        run.stdout.readline()
        time.sleep(0.04 * number)
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        load.write_ranks(load.rank_files(job), stored, progress=False)
        assert bytes_of(stored) == bytes_of(whole)
