"""``workbench watch``: what settles is read once, what is half written harms nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench import analyze, datasets, load
from workbench.cli import _watch
from workbench.cli._watch import Job

DEMO = datasets.path("fleet-demo")
OPTIONS = {
    "tz": "UTC",
    "year": None,
    "boot_time": None,
    "node": re.compile(r"node\d+"),
    "unit": None,
}
TRACES = sorted((DEMO / "traces").glob("*.gz"))


@pytest.fixture
def job(tmp_path):
    for name in ("run", "out", "cache"):
        (tmp_path / name).mkdir()
    return Job(tmp_path / "run", tmp_path / "out", OPTIONS, tmp_path / "cache")


def put(source, job, name=""):
    target = job.folder / (name or source.name)
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    return target


def looked(job):
    """Look until all has settled."""
    return [*job.look(), *job.look()]


def keys(found):
    return set(zip(found.findings["rule"], found.findings["where"], strict=True))


@pytest.mark.slow
def test_findings_are_those_of_the_whole_folder_loaded_at_once(job):
    shutil.copytree(DEMO, job.folder, dirs_exist_ok=True)
    lines = looked(job)
    bundle = load.bundle(job.folder, **OPTIONS, most_ranks=1, progress=False)
    expected = keys(analyze.findings(bundle))
    assert set(job.told) == expected
    assert len([line for line in lines if " new: " in line]) == len(expected) > 5
    page = (job.out / "findings.html").read_text()
    assert f"<title>{len(expected)} findings" in page
    assert not [path for path in job.out.iterdir() if path.name.startswith(".")]
    assert looked(job) == []  # nothing new, nothing done


@pytest.mark.long
def test_a_file_is_read_when_it_stays_the_same_and_never_again(job, monkeypatch):
    from workbench.load._traces import kept_columns

    parsed = []
    store = kept_columns.get_or_store

    def counted(directory, source, options, parse):
        return store(directory, source, options, lambda: parsed.append(source.label) or parse())

    monkeypatch.setattr(kept_columns, "get_or_store", counted)
    loaded = []
    bundle = load.bundle
    monkeypatch.setattr(
        load, "bundle", lambda paths, **rest: loaded.append(rest["kinds"]) or bundle(paths, **rest)
    )
    for trace in TRACES[:3]:
        put(trace, job)
    put(DEMO / "steps.jsonl", job)
    assert job.look() == []  # not settled
    assert parsed == []
    job.look()
    assert len(parsed) == 3
    put(TRACES[3], job)
    looked(job)
    assert len(parsed) == 4
    assert loaded == [{"failure logs"}, {"job logs"}]  # of both kinds
    (job.folder / "steps.jsonl").touch()
    looked(job)
    assert (len(parsed), len(loaded)) == (4, 4)


@pytest.mark.long
def test_a_half_written_file_is_told_and_then_replaced_by_the_whole_one(job):
    put(TRACES[0], job)
    half = job.folder / "node001_nvidia_smi.csv"
    half.write_text("timestamp, index, pow")
    lines = looked(job)
    assert not [line for line in lines if "Traceback" in line]
    put(DEMO / "power" / "synthetic_node001_nvidia_smi.csv", job, half.name)
    looked(job)
    assert "power logs" in job.tables
    assert job.tables["power logs"][1].power is not None


def test_a_log_that_grows_between_all_looks_is_read_and_a_trace_is_not(job):
    log = put(DEMO / "power" / "synthetic_node001_nvidia_smi.csv", job)
    lines = log.read_text().splitlines(keepends=True)
    trace = TRACES[0].read_bytes()

    def grow(share):
        log.write_text("".join(lines[: int(share * len(lines))]))
        (job.folder / TRACES[0].name).write_bytes(trace[: int(share * len(trace))])
        job.look()

    def readings():
        return len(job.tables["power logs"][1].power.power)

    grow(0.3)
    assert "power logs" not in job.tables  # whether it grows is not known yet
    grow(0.5)
    half = readings()
    assert 0 < half < len(lines)
    assert job.ranks == {}
    grow(0.7)
    assert readings() == half  # reading took a while, and as long is not a tenth of the time
    job.rests_until_s = 0
    grow(0.9)
    assert half < readings() < len(lines)
    assert job.ranks == {}


@pytest.mark.long
def test_the_newest_trace_of_a_rank_counts(job, monkeypatch):
    first = put(TRACES[6], job, "rank6.1.pt.trace.json.gz")
    put(TRACES[7], job)
    looked(job)
    chosen = []
    rank_files = load.rank_files
    monkeypatch.setattr(
        load, "rank_files", lambda paths, **rest: chosen.append(paths) or rank_files(paths, **rest)
    )
    time.sleep(0.02)
    second = put(TRACES[6], job, "rank6.2.pt.trace.json.gz")
    assert not [line for line in looked(job) if "not read" in line]
    assert second in chosen[-1]
    assert first not in chosen[-1]


@pytest.mark.long
def test_a_finding_that_goes_is_told_as_ended(job):
    shutil.copytree(DEMO / "failures", job.folder / "failures")
    shutil.copyfile(DEMO / "steps.jsonl", job.folder / "steps.jsonl")
    assert [line for line in looked(job) if " new: " in line]
    shutil.rmtree(job.folder / "failures")
    assert [line for line in looked(job) if " ended: " in line]


def test_its_own_page_and_hidden_files_are_not_watched(tmp_path):
    out = tmp_path / "_watch"
    out.mkdir()
    (out / "findings.html").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "x.tmp").write_text("x")
    assert Job(tmp_path, out, OPTIONS, tmp_path)._stamps() == {}


def test_the_cache_of_parsed_ranks_does_not_grow_without_end(job):
    for number in range(30):
        (job.cache / f"{number}.columns").write_text("")
    job._forget(10)
    assert len(list(job.cache.iterdir())) == 10


def test_more_files_than_one_job_writes_are_refused(job, monkeypatch):
    monkeypatch.setattr(_watch, "_MOST_FILES", 2)
    for number in range(4):
        (job.folder / f"{number}.log").write_text("x")
    with pytest.raises(_watch.WorkbenchError, match="watch a folder of one job"):
        job.look()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_follows_a_job_and_stops_cleanly(stop, tmp_path):
    folder, out, log = tmp_path / "run", tmp_path / "out", tmp_path / "log"
    folder.mkdir()
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from workbench.cli import app; app()"
    args = ["watch", folder, "--out", out, "--period-s", "0.1", "--tz", "UTC"]
    with log.open("w") as written:
        started = subprocess.Popen(
            [sys.executable, "-u", "-c", code, *map(str, args)],
            stdout=written, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        try:
            content = TRACES[6].read_bytes()
            half = folder / "rank6.pt.trace.json.gz"
            half.write_bytes(content[: len(content) // 3])  # no end of the gzip stream
            shutil.copyfile(TRACES[7], folder / TRACES[7].name)
            shutil.copyfile(DEMO / "steps.jsonl", folder / "steps.jsonl")
            wait_for((out / "findings.html").exists, started, log)
            half.write_bytes(content)
            for trace in TRACES[:6]:
                shutil.copyfile(trace, folder / trace.name)
            wait_for(lambda: log.read_text().count(" new: ") >= 2, started, log)
        finally:
            started.send_signal(stop)
            code = started.wait(30)
    text = log.read_text()
    assert (code, "Traceback" in text) == (0, False), text
    assert text.endswith("workbench: stopped\n")
    assert "findings" in (out / "findings.html").read_text()
    assert not list(tmp_path.glob("workbench-watch-*"))


def wait_for(condition, process, log, most_s=120):
    end = time.monotonic() + most_s
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def test_a_folder_that_is_not_there_is_an_error_of_usage():
    ran = subprocess.run(
        [sys.executable, "-m", "workbench", "watch", "no_such"], capture_output=True, text=True,
        check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ran.returncode == 2
    assert "no_such" in ran.stderr
