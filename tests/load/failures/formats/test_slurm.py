"""Slurm accounting: the records as its users know them, then the runs of jobs."""

import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._failures.formats import slurm
from workbench.load._failures.formats.slurm import gpu_count, hosts, read_records
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.time import Given, duration_ns
from workbench.tables import FAILURES, SAYS_SYNTHETIC, TIMELINE

HEADER = "JobID|JobName|State|ExitCode|Submit|Start|End|Elapsed|NNodes|NodeList|AllocTRES"


def record(job="7", state="FAILED", start="08:00:00", end="09:00:00", **other):
    """Write one record; times of 2 January 2026."""
    cells = {
        "JobID": job,
        "JobName": "train",
        "State": state,
        "ExitCode": "0:0",
        "Submit": "2026-01-02T07:00:00",
        "Start": f"2026-01-02T{start}" if start[2:3] == ":" else start,
        "End": f"2026-01-02T{end}" if end[2:3] == ":" else end,
        "NNodes": "2",
        "NodeList": "n[1-2]",
        "AllocTRES": "cpu=4,gres/gpu=16,node=2",
        **other,
    }
    return "|".join(cells.get(name, "") for name in HEADER.split("|"))


@pytest.fixture
def log(tmp_path):
    """Write lines and read them."""

    def read(*lines, header=HEADER, tz="UTC", **given_):
        path = tmp_path / "sacct.txt"
        raw = b"\n".join(each if isinstance(each, bytes) else each.encode() for each in lines)
        path.write_bytes(header.encode() + b"\n" + raw + b"\n" if header else raw)
        return slurm.read(Source("sacct.txt", path), Given(tz=tz, **given_))

    return read


def found(part):
    """Findings as {(finding, what): count}."""
    frame = part.findings.frame()
    return {(row.finding, row.what): row.count for row in frame.itertuples(index=False)}


def ns(text):
    return pd.Timestamp(text, tz="UTC").value


# Records


def records_of(path):
    """Read a file record by record; returns the findings too."""
    findings = Findings(path.name)
    return read_records(Source(path.name, path), findings), findings.frame()


def as_written(records, separator):
    """Write records as sacct would, but with line breaks inside of a text as backslash n."""
    names = [name.split(".")[0] for name in records.names]
    rows = [names, *records.rows]
    return "\n".join(separator.join(row).replace("\n", "\\n") for row in rows)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["one-multiline", "multiple-multiline", "fake-line-break"])
def test_records_torn_by_line_breaks_become_what_the_peer_expects(real_data, name):
    folder = real_data("failures-slurm")
    records, quality = records_of(folder / f"sample-sacct-{name}.txt")
    expected = (folder / f"sample-sacct-{name}-expected.txt").read_text()
    assert as_written(records, "|#") == expected
    joined = quality.loc[quality["finding"] == "repaired", "count"].sum()
    assert joined == (3 if name.startswith("multiple") else 1)


def test_a_clean_file_is_read_as_it_is(real_data):
    path = real_data("failures-slurm") / "sample-sacct-one-multiline-expected.txt"
    records, quality = records_of(path)
    assert as_written(records, "|#") == path.read_text()
    # The file has no line end behind its last line.
    assert quality["finding"].tolist() == ["truncated"]
    assert "End.1" in records.names


# Real files


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("sample-sacct-fake-line-break.txt", 3),
        ("sample-sacct-multiple-multiline.txt", 3),
        ("sample-sacct-output-invalid-utf8.txt", 3),
        ("sample-sacct-output-midnight-edge-case.txt", 306),
        ("sample-sacct-output-with-invalid-lines.txt", 0),
        ("sample-sacct-output.txt", 1),
        ("sample-sacct-running-output.txt", 1),
    ],
)
def test_real_files_are_read(real_data, name, runs):
    path = real_data("failures-slurm") / name
    source = Source(name, path)
    assert slurm.looks_like(source.head(), name)
    part = slurm.read(source, Given(tz="America/Los_Angeles"))
    FAILURES.check(part.failures)
    TIMELINE.check(part.timeline)
    assert part.findings.count("runs of jobs") == runs
    assert part.timeline.query("state == 'running'").groupby("job").ngroups == runs


def test_what_other_commands_of_slurm_print_is_not_taken_for_accounting(real_data):
    folder = real_data("failures-slurm")
    others = [path for path in folder.iterdir() if not path.name.startswith("sample-sacct-")]
    assert len(others) == 11
    assert [p.name for p in others if slurm.looks_like(p.read_bytes()[:4096], p.name)] == []


def test_five_thousand_wide_records_take_well_under_a_second(real_data):
    path = real_data("failures-slurm") / "sample-sacct-running-output-large.txt"
    took = []
    for _ in range(3):
        began = time.perf_counter()
        part = slurm.read(Source("large", path), Given(tz="UTC"))
        took.append(time.perf_counter() - began)
    assert min(took) < 1
    assert part.findings.count("records written twice") == 5039
    [run] = part.timeline.itertuples()
    assert (run.job, run.state, run.gpu_count, run.nodes) == (
        "6539191_195",
        "running",
        1,
        "learnnode0423",
    )
    assert run.start_ns == ns("2023-04-16T16:52:27")
    assert pd.isna(run.end_ns)


def test_bytes_that_are_no_text_are_mended_and_counted(real_data):
    path = real_data("failures-slurm") / "sample-sacct-output-invalid-utf8.txt"
    part = slurm.read(Source("bad", path), Given(tz="UTC"))
    [row] = part.findings.frame().query("finding == 'repaired'").itertuples()
    assert (row.count, row.where) == (1, "line 12")


def test_the_demo_job_fails_once_and_runs_again(fleet_demo):
    path = fleet_demo / "failures" / "synthetic_sacct.txt"
    part = slurm.read(Source("demo", path), Given(tz="UTC"))
    [failure] = part.failures.itertuples()
    assert (failure.job, failure.code, failure.category) == ("481516", "NODE_FAIL", "host")
    assert failure.start_ns == failure.end_ns == ns("2026-01-12T08:00:53")
    assert pd.isna(failure.node)
    assert failure.assumed == "tz=UTC"
    table = part.timeline
    assert table["state"].tolist() == ["queued", "running", "queued", "running"]
    assert table["attempt"].tolist() == [1, 1, 2, 2]
    assert table["gpu_count"].eq(8).all()
    assert table["nodes"].dropna().tolist() == ["node001,node002", "node002,node003"]
    assert table["outcome"].dropna().tolist() == ["NODE_FAIL", "COMPLETED"]
    assert part.findings.count(SAYS_SYNTHETIC) == 2


# Damage


DAMAGE = {
    "too few fields": ("7|train|FAILED", "dropped", "records with too few fields"),
    "a separator in a name": (
        record(JobName="a|b"),
        "dropped",
        "records with too many fields: a text contains the separator",
    ),
    "no job number": (
        record(job="train"),
        "dropped",
        "records without a job number where JobID should be",
    ),
    "another message": (
        "sacct: error: slurmdbd",
        "dropped",
        "lines that are not parts of a record",
    ),
    "its header again": (HEADER, "skipped by design", "headers repeated"),
    "the same again": (record(job="1"), "skipped by design", "records written twice"),
    "an unknown state": (
        record(state="EXPLODED"),
        "suspicious",
        "state 'EXPLODED', which is not one of Slurm's",
    ),
    "no host list": (record(NodeList="n[4-1]"), "dropped", "host lists that cannot be read"),
    "too many hosts": (
        record(NodeList="n[1-9999]x[1-9999]"),
        "dropped",
        "host lists that cannot be read",
    ),
    "ends before it starts": (
        record(end="07:30:00"),
        "suspicious",
        "runs that end before they start; their times are missing",
    ),
    "a wrong duration": (
        record(Elapsed="02:00:00"),
        "suspicious",
        "runs that took longer or shorter than Elapsed says; check the time zone",
    ),
    "no end": (record(end="Unknown"), "suspicious", "runs that ended without an end time"),
    "no time": (record(end="soon"), "dropped", "stamps that are not times; they are missing"),
}


@pytest.mark.parametrize(("line", "finding", "what"), DAMAGE.values(), ids=list(DAMAGE))
def test_damage_is_counted_and_spares_other_records(log, line, finding, what):
    part = log(record(job="1"), line, record(job="2"))
    assert found(part)[finding, what] == 1
    assert {"1", "2"} <= set(part.failures["job"])


def test_a_record_cut_off_at_the_end_of_the_file_is_counted(log):
    part = log(record(job="1"), record(job="2")[:40])
    assert found(part)["dropped", "records with too few fields"] == 1
    assert part.failures["job"].tolist() == ["1"]


def test_a_text_with_line_breaks_in_the_last_column_stays_with_its_record(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|State|Comment\n7|FAILED|one\ntwo\n\nthree\n8|FAILED|\n")
    records, _ = records_of(path)
    assert [row[2] for row in records.rows] == ["one\ntwo\n\nthree", ""]


def test_a_header_alone_is_an_empty_log(log):
    part = log()
    assert part.failures.empty
    assert part.timeline.empty


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (bytes(range(256)) * 50, "no header with JobID and State"),
        (b"7|FAILED\n", "without --noheader"),
        (b"JobID      State\n---------- -----\n7   FAILED\n", "sacct --parsable2"),
        (b"JobID|State\n7|FAILED\nJobID|State|End\n", "another header with other columns"),
        (b"JobID|State\n7|FAILED\nState|JobID\n", "another header with other columns"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(tmp_path, content, complaint):
    path = tmp_path / "sacct.txt"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=complaint):
        slurm.read(Source("sacct.txt", path), Given(tz="UTC"))


@pytest.mark.long
@given(st.lists(st.text("|#7\\n\n ,[]-" + "é", max_size=30), max_size=12))
def test_no_noise_after_the_header_stops_the_reader(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("noise") / "sacct.txt"
    path.write_text("\n".join([HEADER, *noise, record(job="42")]), newline="")
    part = slurm.read(Source("sacct.txt", path), Given(tz="UTC"))
    left = sum(count for (finding, _), count in found(part).items() if finding == "dropped")
    assert "42" in set(part.timeline["job"]) or left


# Time


def test_local_times_need_a_zone(log):
    with pytest.raises(
        LoadError, match=r"line 2: '2026-01-02T07:00:00' has no time zone; pass tz="
    ):
        log(record(), tz=None)


def test_a_file_without_times_needs_no_zone(log):
    part = log(record(start="Unknown", end="Unknown", Submit=""), tz=None)
    assert part.failures["clock"].tolist() == ["none"]


@pytest.mark.parametrize("stamp", ["2026-01-02T09:00:00+0100", "1767340800", "2026-01-02 08:00Z"])
def test_stamps_with_an_offset_need_no_zone(log, stamp):
    part = log(record(start="Unknown", end=stamp, Submit=""), tz=None)
    assert part.failures["start_ns"].tolist() == [ns("2026-01-02T08:00:00")]
    assert part.failures["assumed"].tolist() == [""]


def test_an_unknown_zone_is_refused(log):
    with pytest.raises(LoadError, match="tz='Mars' is not a time zone"):
        log(record(), tz="Mars")


@pytest.mark.parametrize("stamp", ["2025-10-26T02:30:00", "2025-03-30T02:30:00"])
def test_a_time_within_a_change_of_the_clock_is_not_guessed(log, stamp):
    part = log(record(start="Unknown", end=stamp), tz="Europe/Berlin")
    assert part.failures["clock"].tolist() == ["none"]
    [what] = [what for finding, what in found(part) if finding == "dropped"]
    assert "ambiguous or impossible in Europe/Berlin" in what


def test_elapsed_settles_a_time_within_a_change_of_the_clock(log):
    begun = "2025-10-26T00:00:00"
    part = log(
        record(start=begun, end="2025-10-26T02:30:00", Submit=begun, Elapsed="03:30:00"),
        tz="Europe/Berlin",
    )
    assert part.failures["start_ns"].tolist() == [ns("2025-10-26T01:30:00")]
    assert ("repaired", "times of end that were missing, computed from Elapsed") in found(part)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2-03:41:40", 186_100), ("00:23.779", 23.779), ("09:48:37", 35_317), ("UNLIMITED", None)],
)
def test_durations(text, seconds):
    assert duration_ns(text) == (None if seconds is None else round(seconds * 1e9))


# Jobs


def test_steps_belong_to_their_job_and_tell_of_what_it_does_not(log):
    steps = [record(job="7.batch"), record(job="7.extern", state="COMPLETED")]
    part = log(record(ExitCode="1:0"), *steps, record(job="7.0", state="OUT_OF_MEMORY"))
    [failure] = part.failures.itertuples()
    assert (failure.code, failure.other_codes) == ("OUT_OF_MEMORY", "FAILED")
    assert (failure.cause, failure.category) == ("out of host memory", "software")
    assert len(part.timeline) == 2


def test_runs_of_a_job_are_numbered_by_time(log):
    again = record(
        start="10:00:00", end="11:00:00", Submit="2026-01-02T09:00:00", state="COMPLETED"
    )
    part = log(again, record(state="REQUEUED"), record(job="8"))
    runs = part.timeline.query("job == '7' and state == 'running'")
    assert list(zip(runs["attempt"], runs["outcome"], strict=True)) == [
        (1, "REQUEUED"),
        (2, "COMPLETED"),
    ]


def test_a_later_record_of_the_same_run_completes_it(log):
    part = log(record(state="RUNNING", end="Unknown"), record(state="COMPLETED"))
    [run] = part.timeline.query("state == 'running'").itertuples()
    assert (run.attempt, run.outcome, run.end_ns) == (1, "COMPLETED", ns("2026-01-02T09:00:00"))
    assert (
        found(part)["skipped by design", "earlier records of a run that a later one completes"] == 1
    )


@pytest.mark.parametrize("job", ["7_3", "7+1", "7_[5-9]"])
def test_members_of_arrays_and_of_mixed_jobs_are_jobs(log, job):
    part = log(record(job=job), record(job=f"{job}.batch"))
    assert part.failures["job"].tolist() == [job]


def test_a_waiting_and_a_running_job_have_no_end(log):
    part = log(
        record(job="1", state="PENDING", start="Unknown", end="Unknown", NodeList="None assigned"),
        record(job="2", state="RUNNING", end="Unknown"),
    )
    assert part.failures.empty
    table = part.timeline.set_index(["job", "state"])["end_ns"]
    assert table.isna().to_dict() == {
        ("1", "queued"): True,
        ("2", "queued"): False,
        ("2", "running"): True,
    }


def test_a_job_cancelled_in_the_queue_never_ran(log):
    part = log(record(state="CANCELLED by 1000", start="None", NodeList="None assigned"))
    [row] = part.timeline.itertuples()
    assert (row.state, row.outcome) == ("queued", "CANCELLED")
    [failure] = part.failures.itertuples()
    assert (failure.cause, failure.category, failure.severity) == (
        "cancelled by user 1000",
        "planned",
        "info",
    )


@pytest.mark.parametrize(
    ("state", "category", "severity"),
    [
        ("NODE_FAIL", "host", "fatal"),
        ("BOOT_FAIL", "host", "fatal"),
        ("OUT_OF_MEMORY", "software", "fatal"),
        ("PREEMPTED", "scheduler", "fatal"),
        ("TIMEOUT", "scheduler", "fatal"),
        ("DEADLINE", "scheduler", "fatal"),
        ("FAILED", "unknown", "fatal"),
    ],
)
def test_what_a_state_says(log, state, category, severity):
    [failure] = log(record(state=state)).failures.itertuples()
    assert (failure.kind, failure.code) == ("slurm", state)
    assert (failure.category, failure.severity) == (category, severity)


@pytest.mark.parametrize(
    ("columns", "node"),
    [({"NodeList": "n7"}, "n7"), ({"NodeList": "n[7-8]"}, None), ({"NodeList": ""}, None)],
)
def test_the_node_is_named_where_there_is_only_one(log, columns, node):
    [failure] = log(record(**columns)).failures.itertuples()
    assert failure.node == node or (node is None and pd.isna(failure.node))


def test_slurm_may_name_the_failed_node(log):
    part = log(f"{record()}|n8", header=f"{HEADER}|FailedNode")
    assert part.failures["node"].tolist() == ["n8"]


def test_one_number_in_two_clusters_is_two_jobs(log):
    part = log(f"{record()}|a", f"{record()}|b", header=f"{HEADER}|Cluster")
    assert part.failures["job"].tolist() == ["7@a", "7@b"]
    assert part.timeline["attempt"].eq(1).all()


def test_a_crash_loop_is_pointed_out(log):
    minutes = range(6)
    runs = [
        record(start=f"08:{m}0:00", end=f"08:{m}5:00", Submit=f"2026-01-02T08:{m}0:00", state=state)
        for m, state in zip(minutes, ["REQUEUED"] * 5 + ["FAILED"], strict=True)
    ]
    part = log(*runs)
    assert found(part)["noted", "job 7 is in a crash loop: 5 starts or more within an hour"] == 6


def test_columns_may_come_in_any_order_and_with_any_separator(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text("End^State^JobID^\n2026-01-02T09:00:00^NODE_FAIL^7^\n")
    part = slurm.read(Source("x", path), Given(tz="UTC"))
    assert part.failures["start_ns"].tolist() == [ns("2026-01-02T09:00:00")]


# Hosts and GPUs


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003,007]", "node001 node002 node003 node007"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("a[1,3],b,c[09-10]d", "a1 a3 b c09d c10d"),
        ("login1", "login1"),
        ("node[9-11]", "node9 node10 node11"),
        ("rack-1[2-3].example", "rack-12.example rack-13.example"),
        ("None assigned", ""),
        ("", ""),
    ],
)
def test_host_lists_are_expanded(text, names):
    assert hosts(text) == tuple(names.split())


@pytest.mark.parametrize("text", ["n[1-2", "n]1[", "n[a-b]", "n[2-1]", "a,,b", ",a", "a,", "n[]"])
def test_what_is_no_host_list_is_refused(text):
    with pytest.raises(LoadError, match="is not a host list"):
        hosts(text)


@pytest.mark.parametrize(
    "text", ["n[1-1000001]", "n[1-999999],m[1-2]", "a[0-999]b[0-999]c[0-9]", "n[1-999999999999999]"]
)
def test_host_lists_without_measure_are_refused_at_once(text):
    with pytest.raises(LoadError, match="more than 1,000,000 hosts"):
        hosts(text)


@given(st.integers(0, 99_999), st.integers(1, 50), st.integers(0, 6))
def test_a_range_names_every_host_once(first, count, width):
    written = [f"n{number:0{width}d}" for number in range(first, first + count)]
    text = f"n[{written[0][1:]}-{written[-1][1:]}]"
    assert hosts(text) == tuple(written)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("cpu=2,gres/gpu=8,node=1", 8),
        ("gres/gpu:h100=8", 8),
        ("gres/gpu=8,gres/gpu:h100=8", 8),
        ("gres/gpu:a100=2,gres/gpu:h100=4", 6),
        ("gpu:8", 8),
        ("gpu:volta:8(S:0-1)", 8),
        ("gpu:h100:4(IDX:0,2-4)", 4),
        ("PER_NODE:gpu:8", 8),
        ("gres/gpumem=8,cpu=2", None),
        ("", None),
    ],
)
def test_gpus_are_counted_once(text, count):
    assert gpu_count(text) == count


def test_gpus_per_node_are_multiplied_by_nodes(tmp_path):
    path = Path(tmp_path, "sacct.txt")
    path.write_text("JobID|State|NNodes|AllocGRES\n7|RUNNING|4|PER_NODE:gpu:8\n8|RUNNING|1|gpu:2\n")
    part = slurm.read(Source("x", path), Given())
    assert part.timeline["gpu_count"].tolist() == [32, 2]


def test_a_state_that_a_narrow_column_cut_off_is_read(log):
    part = log(record(state="CANCELLED+"))
    assert part.failures["cause"].tolist() == ["cancelled"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("1K", 1024), ("16K", 16384), ("1.5", 2), ("9" * 20, 2), ("inf", 2), ("-2", 2), ("", 2)],
)
def test_numbers_of_nodes_are_whole_or_those_of_the_list(log, text, count):
    assert log(record(NNodes=text)).timeline["node_count"].tolist() == [count, count]


@pytest.mark.parametrize("other", [{"Elapsed": "01:4294967296:00"}, {"Submit": "9999999999"}])
def test_times_beyond_measure_are_missing(log, other):
    assert len(log(record(**other)).failures) == 1


CODES = HEADER.replace("ExitCode", "ExitCode|DerivedExitCode")


@pytest.mark.parametrize(
    ("printed", "derived", "step", "cause"),
    [
        ("72:0", "0:0", "", "job failed with exit code 72 or 200, which sacct prints alike"),
        ("0:0", "0:0", "", "job failed with exit code 128"),
        ("9:0", "0:0", "", "job failed with exit code 9 or 137 (killed by signal 9), which sacct"),
        ("9:0", "137:0", "", "job failed with exit code 137 (killed by signal 9)"),
        ("9:0", "9:0", "", "job failed with exit code 9"),
        ("9:0", "0:9", "", "job failed with exit code 137 (killed by signal 9)"),
        ("9:0", "0:0", "0:9", "job failed with exit code 137 (killed by signal 9)"),
        ("0:11", "0:0", "", "job failed, killed by signal 11"),
        ("0:125", "0:0", "", "out of host memory"),
        ("9:0", "0:0", "0:125", "out of host memory"),
    ],
)
def test_steps_decide_between_exit_codes_that_sacct_prints_alike(
    log, printed, derived, step, cause
):
    lines = [record(ExitCode=f"{printed}|{derived}")]
    if step:
        lines.append(record(job="7.0", ExitCode=f"{step}|"))
    (failure,) = log(*lines, header=CODES).failures.itertuples()
    assert failure.cause.startswith(cause)
    assert failure.cause.endswith("alike") == ("alike" in cause or cause.endswith("which sacct"))


@pytest.mark.long
@given(code=st.integers(1, 255))
def test_the_code_that_a_job_left_is_always_among_those_named(tmp_path_factory, code):
    printed = code if code < 128 else code - 128
    path = tmp_path_factory.mktemp("codes") / "sacct.txt"
    path.write_text(f"{HEADER}\n{record(ExitCode=f'{printed}:0')}\n")
    (failure,) = slurm.read(Source("sacct.txt", path), Given(tz="UTC")).failures.itertuples()
    assert str(code) in failure.cause.replace(",", " ").split()


def test_a_job_whose_steps_failed_too_is_one_failure(log):
    steps = [record(job=f"7.{name}", ExitCode="1:0") for name in ("batch", "0")]
    steps.append(record(job="7.1", state="CANCELLED by 0", ExitCode="0:15"))
    assert log(record(ExitCode="1:0"), *steps).failures["job"].tolist() == ["7"]


@pytest.mark.parametrize(
    ("first", "second"), [("FAILED", "NODE_FAIL"), ("NODE_FAIL", "CANCELLED by 0")]
)
def test_a_heterogeneous_job_fails_once_by_its_most_telling_component(tmp_path, first, second):
    rows = [
        f"1011+0|{first}|1:0|2026-03-01T10:00:00|2026-03-01T12:00:00|n1",
        f"1011+1|{second}|1:0|2026-03-01T10:00:00|2026-03-01T12:00:01|n3",
        # The next run of the same job is another failure.
        "1011+0|NODE_FAIL|1:0|2026-03-01T12:10:00|2026-03-01T13:00:00|n1",
        "1011+1|FAILED|1:0|2026-03-01T12:10:00|2026-03-01T13:00:00|n3",
        "1012|FAILED|1:0|2026-03-01T10:00:00|2026-03-01T12:00:00|n4",
    ]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(["JobID|State|ExitCode|Start|End|NodeList", *rows]) + "\n")
    failures = load.failures(path, tz="UTC", progress=False).failures
    is_mixed = failures["job"].str.contains("+", regex=False)
    assert failures.loc[is_mixed, "code"].tolist() == ["NODE_FAIL"] * 2
    assert failures.loc[~is_mixed, "job"].tolist() == ["1012"]
