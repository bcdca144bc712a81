"""Files that lie together are not always of one job: then the quality table says so."""

import gc
import io
import json
import re
import shutil
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.load.conftest import event, launched
from workbench import analyze, cli, load, plot
from workbench.cli import app
from workbench.cli._app import _print_findings
from workbench.errors import LoadError
from workbench.load._fleet.same_job import same_job
from workbench.tables import folded_findings

BEGIN = datetime(2026, 3, 2, 15, 0, tzinfo=UTC)


def suspicious(quality):
    return quality.loc[quality["finding"] == "suspicious", "what"].tolist()


def kernels(*names):
    return [each for n, name in enumerate(names) for each in launched(n + 1, 100 * n, kernel=name)]


RESNET = ("winograd", "bn_fw", "relu", "max_pool", "sgemm")
GPT = ("flash_fwd", "ampere_bf16", "layer_norm", "gelu", "relu")


@pytest.mark.parametrize(
    ("files", "sign"),
    [
        ({"resnet.json": (RESNET, {}), "gpt.json": (GPT, {})}, r"little in common \(20% of"),
        (
            {"a.json": (GPT, {}), "b.json": (GPT, {})},
            "no file states a rank or contains a collective",
        ),
        (
            {
                "a.json": (GPT, {"rank": 0, "world_size": 1}),
                "b.json": (GPT, {"rank": 3, "world_size": 8}),
            },
            r"jobs of different sizes \(1 and 8 ranks\)",
        ),
    ],
)
def test_traces_of_several_jobs_are_not_silently_ranks_of_one(trace_file, files, sign):
    paths = [
        trace_file(kernels(*names), name=name, **({"distributedInfo": info} if info else {}))
        for name, (names, info) in files.items()
    ]
    (what,) = (w for w in suspicious(load.traces(paths).quality) if "as ranks of one" in w)
    assert load.traces(paths, rank=[0, 1]).quality["what"].ne(what).all(), "the caller is believed"
    assert re.search(sign, what)
    assert what.endswith("load each by itself")


def test_ranks_that_do_the_same_work_are_one_job(trace_file):
    work = kernels(*GPT, "ncclDevKernel_AllReduce_Sum")
    last = kernels(*GPT[1:], "cross_entropy", "ncclDevKernel_AllReduce_Sum")
    for told in ({}, {"world_size": 2}):
        infos = [{"distributedInfo": {"rank": n, **told}} if told else {} for n in (0, 1)]
        paths = [
            trace_file(events, name=f"{n}{len(told)}.json", **info)
            for n, (events, info) in enumerate(zip((work, last), infos, strict=True))
        ]
        assert suspicious(load.traces(paths).quality) == []


def test_two_jobs_of_one_rank_each_are_told_apart(trace_file):
    info = {"distributedInfo": {"rank": 0, "world_size": 1}}
    paths = [trace_file([event("a", 1)], name=f"{n}.json", **info) for n in "ab"]
    with pytest.raises(LoadError, match="the only rank of its job"):
        load.traces(paths)


def result(begin_ms):
    marks = [("run_start", 0), ("block_start", 1), ("block_stop", 50), ("run_stop", 60)]
    return "".join(
        ":::MLLOG "
        + json.dumps(
            {
                "time_ms": begin_ms + 1000 * at,
                "event_type": "INTERVAL_START" if key.endswith("start") else "INTERVAL_END",
                "key": key,
                "value": None,
                "metadata": {},
            }
        )
        + "\n"
        for key, at in marks
    )


def test_several_runs_of_a_benchmark_are_not_attempts_of_one_job(tmp_path):
    begin_ms = int(BEGIN.timestamp() * 1000)
    for run in range(3):
        path = tmp_path / f"result_{run}.txt"
        path.write_text(result(begin_ms + run * 600_000))
        one = load.job_log(path, progress=False)
        assert suspicious(one.quality) == []
    job = load.job_log(tmp_path, progress=False)
    (row,) = job.quality[job.quality["finding"] == "suspicious"].itertuples()
    assert row.what.startswith("runs of a benchmark that ended")
    assert row.count == 3


def power_of_run(folder, begin_ms, nodes=2):
    folder.mkdir(parents=True)
    for node in range(nodes):
        record = {"namespace": "", "event_type": "POINT_IN_TIME", "key": "power_reading"}
        lines = (
            f":::MLLOG {json.dumps({**record, 'time_ms': begin_ms + 1000 * n, 'value': 400 + n % 7 + node})}"
            for n in range(30)
        )
        (folder / f"node_{node}.txt").write_text("\n".join(lines))


def test_power_of_several_runs_of_a_benchmark_is_not_of_one_job(tmp_path):
    begin_ms = int(BEGIN.timestamp() * 1000)
    power_of_run(tmp_path / "result_0", begin_ms)
    assert suspicious(load.power(tmp_path, progress=False).quality) == []
    power_of_run(tmp_path / "result_1", begin_ms + 600_000)
    power_of_run(tmp_path / "result_2", begin_ms + 1_200_000)
    quality = load.power(tmp_path, progress=False).quality
    (row,) = quality[quality["what"].str.contains("several runs")].itertuples()
    assert (row.finding, row.count) == ("suspicious", 3)
    assert "node_0.txt" in row.what


def write_job(folder, begin=BEGIN, minutes=50):
    """Write a job log in seconds since 1970: its time is known."""
    first = int(begin.timestamp())
    rows = [f"{first + 60 * n},{first + 60 * n + 60},{n}" for n in range(minutes)]
    (folder / "steps.csv").write_text("\n".join(["start,end,step", *rows, ""]))


def write_power(folder, begin, minutes=60):
    """Write what a host with local stamps recorded from five minutes before the job."""
    stamps = (begin + timedelta(minutes=n) for n in range(-5, minutes - 5))
    rows = [f"{at:%Y/%m/%d %H:%M:%S}.000, 0, 400.00 W" for at in stamps]
    (folder / "gpu.csv").write_text("\n".join(["timestamp, index, power.draw [W]", *rows, ""]))


@pytest.mark.parametrize(
    ("zone", "said", "told"),
    [
        (-5.0, "UTC", ("5:00:00 earlier", "-05:00")),
        (5.5, "UTC", ("5:30:00 later", "+05:30")),
        (-8.0, "Europe/Berlin", ("9:00:00 earlier", "-08:00")),
    ],
)
def test_a_log_in_another_zone_is_told_with_the_zone_that_fits(tmp_path, zone, said, told):
    write_job(tmp_path)
    write_power(tmp_path, BEGIN + timedelta(hours=zone))
    when, right = told
    for quality in (
        load.fleet(tmp_path, tz=said, progress=False).quality,
        load.quality(tmp_path, tz=said, progress=False),
    ):
        (what,) = suspicious(quality)
        assert what.startswith(f"power logs are {when} than the job log: another zone?")
        assert f'were read in {said}; pass tz="{right}"' in what
    assert suspicious(load.fleet(tmp_path, tz=right, progress=False).quality) == []
    result = CliRunner().invoke(cli.app, ["check", "--tz", said, str(tmp_path)])
    assert result.exit_code == 1
    assert f"pass --tz {right}" in result.stdout
    fitting = CliRunner().invoke(cli.app, ["check", "--tz", right, str(tmp_path)])
    assert "another zone" not in fitting.stdout


def test_logs_of_one_time_or_of_part_of_it_are_left_alone(tmp_path):
    write_job(tmp_path)
    for begin, minutes in ((BEGIN, 60), (BEGIN + timedelta(minutes=30), 60), (BEGIN, 20)):
        write_power(tmp_path, begin, minutes)
        assert suspicious(load.fleet(tmp_path, tz="UTC", progress=False).quality) == []


def test_a_log_that_fits_at_no_or_at_many_offsets_is_told_without_a_zone(tmp_path):
    write_job(tmp_path)
    write_power(tmp_path, BEGIN + timedelta(days=9))
    (what,) = suspicious(load.fleet(tmp_path, tz="UTC", progress=False).quality)
    assert "power logs and the job log share no time (215:05:00 between): of one job?" in what
    write_power(tmp_path, BEGIN - timedelta(hours=6), minutes=240)
    (what,) = suspicious(load.fleet(tmp_path, tz="UTC", progress=False).quality)
    assert "power logs are 3:00:00 to 6:00:00 earlier than the job log: another zone?" in what


XID = "gpu7 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."


def test_failures_of_another_zone_are_told_and_those_of_another_hour_are_not(tmp_path):
    write_job(tmp_path)
    local = BEGIN - timedelta(hours=7)
    lines = [f"{local + timedelta(minutes=n):%Y-%m-%dT%H:%M:%S} {XID}" for n in (1, 20, 48)]
    (tmp_path / "kern.log").write_text("\n".join([*lines, ""]))
    (what,) = suspicious(load.fleet(tmp_path, tz="UTC", progress=False).quality)
    assert what.startswith("failure logs are 7:00:00 earlier than the job log: another zone?")
    assert 'pass tz="-07:00"' in what
    (tmp_path / "kern.log").write_text(lines[0] + "\n")
    assert suspicious(load.fleet(tmp_path, tz="UTC", progress=False).quality) == []


@pytest.mark.long
def test_equal_findings_of_many_files_are_one_line_and_keep_their_count(tmp_path):
    for node in range(64):
        (tmp_path / f"node{node:03d}").mkdir()
        write_power(tmp_path / f"node{node:03d}", BEGIN, minutes=5)
    quality = load.quality(tmp_path, tz="UTC", progress=False)
    rows = quality.to_dict("records")
    folded = folded_findings(rows)
    assert len(rows) >= 64
    assert len(folded) < 6
    assert sum(row["count"] for row in folded) == sum(row["count"] for row in rows)
    shown = CliRunner().invoke(cli.app, ["check", "--tz", "UTC", str(tmp_path)]).stdout
    assert "64 files with the same finding: " in shown
    assert "node000/gpu.csv" in shown
    assert "and 61 more:" in shown
    assert len(shown.splitlines()) < 12


@pytest.mark.long
@pytest.mark.parametrize("what", ["unrecognized kind", "member {} is odd"])
def test_folding_costs_in_proportion_to_the_findings(what):
    def cpu_s(count):
        rows = [
            {"source": f"a.zip!d/{n}.dat", "finding": "dropped", "what": what.format(n), "count": 1,
             "where": None}
            for n in range(count)
        ]  # fmt: skip
        result = {"error": None, "kinds": {}, "findings": rows}
        began = time.process_time()
        with redirect_stdout(io.StringIO()):
            _print_findings(result, ())
        return time.process_time() - began

    cpu_s(100)
    # A full collection of what other tests left in memory takes seconds, and would fall into one
    # of the two measurements by chance.
    gc.disable()
    try:
        large, small = (min(cpu_s(count) for _ in range(3)) for count in (32_000, 2_000))
    finally:
        gc.enable()
    assert large < 40 * max(small, 0.005)


def spanned(first_s, last_s):
    """Make a table of one entity or rank that was seen from one second to another."""
    second = 1_000_000_000
    return pd.DataFrame({"first_ns": [first_s * second], "last_ns": [last_s * second],
                         "clock": ["epoch"], "assumed": [""]})  # fmt: skip


@given(
    begins=st.lists(st.integers(0, 40), min_size=2, max_size=2),
    lengths=st.lists(st.integers(1, 10), min_size=2, max_size=2),
)
def test_data_are_apart_if_and_only_if_no_second_is_in_both(begins, lengths):
    """Hours of 2026, by sets of hours: an independent way to overlap."""
    start, hour = 1_768_204_800, 3_600
    hours = [set(range(begin, begin + length + 1))
             for begin, length in zip(begins, lengths, strict=True)]  # fmt: skip
    tables = [spanned(start + begin * hour, start + (begin + length) * hour)
              for begin, length in zip(begins, lengths, strict=True)]  # fmt: skip
    read = {"power logs": SimpleNamespace(entities=tables[0]),
            "traces": SimpleNamespace(ranks=tables[1])}  # fmt: skip
    texts = [row[2] for row in same_job("folder", read, None)]
    assert bool(texts) == (not hours[0] & hours[1])
    for text in texts:
        assert "share no time" in text
        assert "power logs" in text
        assert "traces" in text
    backwards = dict(reversed(read.items()))
    assert [row[2] for row in same_job("folder", backwards, None)] == texts


@pytest.mark.long
def test_a_folder_of_three_years_is_told_in_every_output(fleet_demo, tmp_path):
    shutil.copytree(fleet_demo / "traces", tmp_path / "traces")
    (tmp_path / "kernel.log").write_text(
        "2025-01-21T04:41:44Z node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off "
        "the bus.\n"
    )
    (tmp_path / "steps.jsonl").write_text(
        "\n".join(
            json.dumps(
                {
                    "time": f"2024-05-17T10:00:{n:02}Z",
                    "event": "step",
                    "step": n,
                    "step_time_ms": 1000,
                }
            )
            for n in range(10, 40)
        )
    )
    bundle = load.bundle(tmp_path, progress=False)
    (told,) = {what for what in bundle.quality["what"] if "share no time" in what}
    assert all(day in told for day in ("2024-05-17", "2025-01-2", "2026-01-12"))
    assert told in set(load.quality(tmp_path, progress=False)["what"])
    shown = CliRunner().invoke(app, ["diagnose", str(tmp_path)])
    assert "share no time" in " ".join(shown.stdout.split())
    page = plot.dashboard(analyze.findings(bundle), bundle, source="mixed").html
    assert "share no time" in page
    figure = plot.fleet_timeline(
        analyze.fleet_timeline(
            steps=bundle.job.steps, failures=bundle.failures.failures, ranks=bundle.trace.ranks
        )
    )
    ends = [pd.Timestamp(value) for axis in figure.select_xaxes() for value in axis.range or ()]
    assert (max(ends) - min(ends)).total_seconds() < 3600
    subtitle = " ".join(figure.layout.title.subtitle.text.split("<br>"))
    assert "not drawn, as it shares no time with the rest" in subtitle
