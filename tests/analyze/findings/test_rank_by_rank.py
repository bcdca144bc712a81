"""Findings of a job whose ranks are loaded one after the other are those of a load of all."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

from data.make._fleet.kineto import trace_text
from data.make._fleet.troubled_trace import run_traced, traced_job
from tests.analyze.conftest import build
from tests.analyze.findings.jobs import even, steps_of
from workbench import analyze, load
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._traces import rank_evidence
from workbench.analyze._traces.late_arrivals import positions_of
from workbench.analyze._traces.rank_evidence import _ANALYSES
from workbench.cli import app
from workbench.errors import LoadError
from workbench.load._traces import reader
from workbench.load._traces.rank_files import RankFile
from workbench.tables import TELLING_RANKS, Bundle

# So low that every rule on traces which can find something does.
ANY = {
    f"{rule}.{name}": value
    for rule, name, value in (
        ("straggler", "least_share", 1e-4), ("straggler", "least_step_share", 1e-5),
        ("exposed_communication", "least_share", 1e-6), ("slow_group", "most_ratio", 1.0),
        ("slow_group", "least_share", 1e-9), ("host_bound", "least_share", 1e-5),
        ("long_pauses", "least_share", 1e-5), ("gpus_unused", "least_share", 1e-9),
        ("synchronising_calls", "least_share", 1e-6),
        ("data_loader", "least_share", 1e-5), ("tiny_kernels", "least_share", 1e-6),
        ("pageable_copies", "least_share", 1e-7), ("slow_copies", "least_share", 1e-7),
        ("slow_copies", "least_bytes", 1.0), ("slow_copies", "least_gb_per_s", 1e3),
        ("allocator_calls", "least_share", 1e-7), ("first_step", "least_ratio", 1.0),
        ("uneven_steps", "least_ratio", 1.0), ("uneven_steps", "least_share", 1e-9),
        ("clock_disagreement", "least_offset_us", 0.01),
        ("unclassified_kernels", "least_share", 1e-9),
    )
}  # fmt: skip


def assert_same(whole, each):
    assert_frame_equal(whole.findings, each.findings)
    assert_frame_equal(whole.rules, each.rules)
    for name, table in whole.tables.items():
        assert_frame_equal(table, each.tables[name], check_categorical=False)


def assert_found_alike(path, *, thresholds=None):
    whole, files = load.traces(path, progress=False), load.rank_files(path)
    found = analyze.findings(whole, thresholds=thresholds)
    assert_same(found, analyze.findings(files, thresholds=thresholds))
    return found.findings


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Write jobs with a trouble each, once."""
    written = {}

    def of(trouble, *, ranks=16, seed=6):
        if trouble not in written:
            folder = tmp_path_factory.mktemp("job")
            history = run_traced(traced_job({trouble: 0.1}, seed=seed, ranks=ranks, steps=4))
            for rank in range(ranks):
                text = trace_text(history, rank).encode()
                (folder / f"rank_{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text, 1))
            written[trouble] = folder
        return written[trouble]

    return of


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize("thresholds", [None, ANY], ids=["usual", "lowered"])
def test_eight_real_ranks_have_the_findings_of_the_whole(dlrm, thresholds):
    rules = set(assert_found_alike(dlrm, thresholds=thresholds)["rule"])
    assert {"exposed_communication", "data_loader"} <= rules
    assert thresholds is None or {"straggler", "clock_disagreement", "pageable_copies"} <= rules


@pytest.mark.parametrize(
    ("trouble", "rule"),
    [("slow rank", "straggler"), ("late host", "straggler"),
     ("slow data loader", "data_loader"), ("synchronising calls", "synchronising_calls")],
)  # fmt: skip
def test_a_made_job_with_a_trouble_has_the_findings_of_the_whole(trouble, rule, job):
    assert rule in set(assert_found_alike(job(trouble))["rule"])
    assert_found_alike(job(trouble), thresholds=ANY)


@pytest.mark.slow
def test_sixty_four_ranks_have_the_findings_of_the_whole(fleet_demo, tmp_path):
    files = sorted((fleet_demo / "traces").glob("*.json.gz"))
    for number in range(64):
        held = json.loads(gzip.decompress(files[number % len(files)].read_bytes()))
        held["distributedInfo"] |= {"rank": number, "world_size": 64}
        text = json.dumps(held).encode()
        (tmp_path / f"trace{number}.json.gz").write_bytes(gzip.compress(text, 1))
    assert_found_alike(tmp_path, thresholds=ANY)


@pytest.mark.long
def test_only_a_rank_that_is_blamed_for_its_host_is_loaded_again(job, monkeypatch):
    """All ranks are read once; what the host did is asked of one window of one rank."""
    again = []
    whole = RankFile.load
    monkeypatch.setattr(RankFile, "load", lambda file: again.append(file.rank) or whole(file))
    found = analyze.findings(load.rank_files(job("late host")), rules=["straggler"]).findings
    blamed = int(found["where"].iloc[0].removeprefix("rank ").split(",")[0])
    assert set(again) == {blamed}
    assert "host in" in found["where"].iloc[0]


@pytest.mark.long
def test_ranks_that_cannot_be_read_are_named_and_keep_no_others_from_being_judged(job, tmp_path):
    for file in job("slow rank").iterdir():
        (tmp_path / file.name).hardlink_to(file)
    (tmp_path / "rank_3.pt.trace.json.gz").unlink()
    text = gzip.decompress((job("slow rank") / "rank_3.pt.trace.json.gz").read_bytes())
    (tmp_path / "rank_3.pt.trace.json").write_bytes(b'{"distributedInfo": {"rank": 3, "world_size": 16}, "traceEvents": [}' + text[:99])  # fmt: skip
    found = analyze.findings(load.rank_files(tmp_path))
    dropped = found.tables["traces.quality"].query("finding == 'dropped'")
    assert dropped["source"].str.endswith("rank_3.pt.trace.json").tolist() == [True]
    assert len(found.tables["traces.ranks"]) == 15
    assert {"straggler", "missing_ranks"} <= set(found.findings["rule"])
    (tmp_path / "rank_3.pt.trace.json").unlink()
    fewer = load.traces(tmp_path, progress=False)
    assert_frame_equal(found.findings, analyze.findings(fewer).findings)


def test_ranks_without_gpu_work_are_no_data(tmp_path):
    row = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    for rank in range(2):
        held = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [row]}
        (tmp_path / f"{rank}.json").write_text(json.dumps(held))
    whole = load.traces(tmp_path, progress=False)
    rules = [analyze.findings(held).rules for held in (whole, load.rank_files(tmp_path))]
    assert_frame_equal(*rules)
    assert set(rules[0]["state"]) == {"no data"}


@pytest.mark.long
def test_commands_never_load_all_ranks_of_a_large_job(job, monkeypatch, tmp_path):
    folder = job("slow rank")
    whole = load.quality(folder, progress=False)

    def refuse(*_args, **_options):
        raise AssertionError

    monkeypatch.setattr(reader, "_read_all", refuse)
    runner = CliRunner()
    shown = runner.invoke(app, ["diagnose", str(folder), "--csv", str(tmp_path)])
    assert shown.exit_code == 1, shown.output
    assert "Read: traces of 16 ranks" in shown.stdout
    assert "delays the other 15" in shown.stdout
    assert "SYNTHETIC DATA" in shown.stdout
    assert {"traces.late.csv", "traces.quality.csv"} <= {file.name for file in tmp_path.iterdir()}
    checked = runner.invoke(app, ["check", "--json", str(folder)])
    assert checked.exit_code == 0, checked.output
    assert len(json.loads(checked.stdout)[0]["findings"]) == len(whole)


def test_the_quality_of_many_ranks_is_that_of_a_load_of_all(job):
    told, whole = load.quality(job("slow rank")), load.traces(job("slow rank")).quality
    by = ["source", "finding", "what"]
    assert_frame_equal(*(table.sort_values(by, ignore_index=True) for table in (told, whole)))


@pytest.mark.long
def test_a_bundle_lists_the_ranks_of_a_large_job_where_told_so(job):
    listed = load.bundle(job("slow rank"), most_ranks=15, progress=False)
    assert listed.trace is None
    assert len(listed.rank_files) == 16
    assert "rank_files" in repr(listed)
    loaded = load.bundle(job("slow rank"), most_ranks=16, progress=False)
    assert loaded.rank_files is None
    assert_same(analyze.findings(loaded), analyze.findings(listed))


@pytest.mark.long
@settings(max_examples=20)
@given(seed=st.integers(0, 999), ranks=st.integers(1, 4))
def test_every_table_of_a_rank_is_that_of_all_ranks(seed, ranks):
    draws = np.random.default_rng(seed)
    own = even(4, ranks, seed=seed) * draws.uniform(0.5, 2.0, (4, ranks))
    rows, _ = steps_of(own, gap_us=float(draws.uniform(0, 40)), hidden=float(draws.uniform()))
    events = build(*rows)
    for analysis in _ANALYSES:
        whole = analysis(events)
        for rank, of_rank in events.groupby("rank"):
            expected = whole[whole["rank"] == rank].reset_index(drop=True)
            assert_frame_equal(analysis(of_rank), expected, check_categorical=False)


@settings(max_examples=30)
@given(seed=st.integers(0, 9999))
def test_work_between_two_moments_is_that_of_the_events(seed):
    """Summed directly, window by window, which is what the moments replace."""
    draws = np.random.default_rng(seed)
    kinds = ["compute", "communication", "memory", "other"]
    rows = [
        {"rank": 0, "start_ns": int(start), "dur_ns": int(length), "name": "k",
         "kind": kinds[kind], "stream": int(kind), "step": int(start) // 400}
        for start, length, kind in zip(draws.integers(0, 1000, 30), draws.integers(0, 80, 30),
                                       draws.integers(0, 4, 30), strict=True)
    ]  # fmt: skip
    events = build(*rows)
    moments = rank_evidence.coverage_moments(events)
    time = moments["time_ns"].to_numpy()
    low, high = np.sort(draws.choice(time, 2))
    zero = np.zeros(1, np.int64)
    at = [positions_of(moments, zero, np.array([moment]))[0] for moment in (low, high)]
    for last, name in enumerate(rank_evidence.COVERED):
        work = events[events["kind"].isin(kinds[: last + 1])]
        ends = (work["start_ns"] + work["dur_ns"]).to_numpy()
        direct = measure_within(
            work["start_ns"].to_numpy(), ends, np.array([low]), np.array([high])
        )
        column = moments[name].to_numpy()
        assert column[at[1]] - column[at[0]] == direct[0]
        is_covered = np.zeros(1100, bool)  # a cell per nanosecond
        for row in work.itertuples():
            is_covered[row.start_ns : row.start_ns + row.dur_ns] = True
        assert is_covered[low:high].sum() == direct[0]


def test_a_bundle_refuses_what_is_no_table():
    with pytest.raises(TypeError, match=r"load\.rank_files"):
        Bundle.of(pd.DataFrame())


@pytest.mark.long
def test_the_telling_ranks_of_a_large_job_are_the_late_the_waiting_and_a_usual_one(job):
    """The naive choice, the ranks with most communication, shows only the victims."""
    files = load.rank_files(job("slow rank"))
    found = analyze.findings(files)
    shown = TELLING_RANKS.check(analyze.telling_ranks(found, most_ranks=4))
    late = int(found.findings["where"].iloc[0].removeprefix("rank ").split(",")[0])
    exposed = found.tables["traces.by_rank"]["exposed_communication_ns"].astype("int64")
    assert shown["rank"].iloc[0] == late
    assert {exposed.max(), exposed.sort_values().iloc[8]} <= set(exposed[shown["rank"]])
    assert late not in exposed.nlargest(4).index
    assert len(analyze.telling_ranks(found)) <= 8
    trace = files.load(shown["rank"])
    assert trace.ranks["rank"].tolist() == sorted(shown["rank"])
    whole = load.traces(job("slow rank")).events
    for rank in shown["rank"]:
        expected = whole[whole["rank"] == rank].drop(columns="launch").reset_index(drop=True)
        events = trace.events[trace.events["rank"] == rank].drop(columns="launch")
        assert_frame_equal(events.reset_index(drop=True), expected, check_categorical=False)
    assert analyze.telling_ranks(found, largest_whole_job=16).empty
    assert analyze.telling_ranks(analyze.findings(Bundle())).empty
    with pytest.raises(ValueError, match="at least 3"):
        analyze.telling_ranks(found, most_ranks=2)
    with pytest.raises(LoadError, match="99 of 16 listed ranks, 0 to 15"):
        files.load([99])


def test_a_bundle_reads_the_kinds_that_are_wanted(fleet_demo):
    held = load.bundle(fleet_demo, kinds=["traces"], progress=False)
    assert held.trace is not None
    assert held.power is None
    with pytest.raises(LoadError, match="but no injections"):
        load.bundle(fleet_demo, kinds=["injections"], progress=False)


@pytest.mark.slow
def test_a_cluster_finds_what_one_process_finds(job, absent):
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        absent("Dask is not installed; pip install 'ai-infra-workbench[cluster]'")
    files = load.rank_files(job("slow rank"))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        assert_same(analyze.findings(files), analyze.findings(files, client=client))
