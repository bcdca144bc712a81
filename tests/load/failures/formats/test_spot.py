"""Spot traces: the public ones to the last row, then what damage does to others."""

import pandas as pd
import pytest

from workbench.errors import LoadError
from workbench.load._failures.formats import spot
from workbench.load._files.archive import Source
from workbench.load._files.time import Given
from workbench.tables import FAILURES, TIMELINE


@pytest.fixture
def log(tmp_path):
    """Write a trace and read it."""

    def read(text, tz="UTC"):
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return spot.read(Source("trace.csv", path), Given(tz=tz))

    return read


def found(part):
    return {(row.finding, row.what): row.count for row in part.findings.frame().itertuples()}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "added", "removed"), [("p3-trace.csv", 177, 167), ("g4dn-trace.csv", 79, 74)]
)
def test_public_traces_of_nodes_are_read_to_the_last_change(real_data, name, added, removed):
    source = Source(name, real_data("failures-spot") / name)
    assert spot.looks_like(source.head(), name)
    part = spot.read(source, Given())
    FAILURES.check(part.failures)
    TIMELINE.check(part.timeline)
    assert len(part.failures) == removed
    assert len(part.timeline) == added
    assert part.timeline["end_ns"].isna().sum() == added - removed
    assert set(part.failures["clock"]) == {"own"}
    assert found(part) == {("read", "changes"): added + removed}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "counts", "joins"), [("a100x1-east1b.txt", 268, 0), ("v100x1-east1c.txt", 1477, 15)]
)
def test_public_counts_are_read_and_their_joins_pointed_out(real_data, name, counts, joins):
    source = Source(name, real_data("failures-spot") / name)
    assert spot.looks_like(source.head(), name)
    part = spot.read(source, Given(tz="UTC"))
    by = found(part)
    assert by["read", "counts"] == counts
    jumps = "times that jump back, where files were joined; each segment is read separately"
    assert by.get(("suspicious", jumps), 0) == joins
    assert part.timeline["attempt"].nunique() == joins + 1
    assert part.timeline["start_ns"].is_monotonic_increasing
    assert (part.timeline["end_ns"] >= part.timeline["start_ns"]).all()


@pytest.mark.oracle
def test_the_falls_of_a_public_count_add_up(real_data):
    source = Source("a100", real_data("failures-spot") / "a100x1-east1b.txt")
    part = spot.read(source, Given(tz="UTC"))
    assert part.failures["line_count"].sum() == 154
    first = part.failures.iloc[0]
    assert (first["line"], first["line_count"]) == (4, 1)
    assert first["start_ns"] == pd.Timestamp("2021-12-11 11:15:50", tz="UTC").value
    assert part.failures["node"].isna().all()


def test_the_first_join_of_a_public_count_is_named(real_data):
    source = Source("v100", real_data("failures-spot") / "v100x1-east1c.txt")
    frame = spot.read(source, Given(tz="UTC")).findings.frame()
    assert frame.query("finding == 'suspicious'")["where"].tolist() == ["line 4"]


def test_a_node_runs_from_add_to_remove_and_may_come_again(log):
    part = log("0,add,a\n5000,remove,a\n7000,add,a\n")
    assert part.timeline["attempt"].tolist() == [1, 2]
    assert part.timeline["start_ns"].tolist() == [0, 7_000_000_000]
    assert part.timeline["end_ns"].isna().tolist() == [False, True]
    [failure] = part.failures.itertuples()
    assert (failure.node, failure.start_ns, failure.category) == ("a", 5_000_000_000, "scheduler")
    assert failure.cause == "spot instance taken back"


@pytest.mark.parametrize(
    ("line", "finding", "what", "failures"),
    [
        ("9000,add,a", "suspicious", "nodes added twice", 0),
        ("9000,remove,b", "suspicious", "nodes removed that were absent", 1),
        ("1,add,b", "suspicious", "times that jump back, within a trace of nodes", 0),
        ("9000,lost,a", "dropped", "lines that are not like the others", 0),
        ("\x00\x01", "dropped", "lines that are not like the others", 0),
    ],
)
def test_contradictions_are_counted(log, line, finding, what, failures):
    part = log(f"8000,add,a\n{line}\n")
    assert found(part)[finding, what] == 1
    assert len(part.failures) == failures


def test_nothing_is_counted_across_a_join(log):
    part = log("2026-01-02, 08:00:00, 9\n2026-01-02, 07:00:00, 4\n2026-01-02, 07:01:00, 2\n")
    assert part.failures["line_count"].tolist() == [2]
    assert part.timeline["node_count"].tolist() == [4, 2, 9]


def test_a_count_needs_a_zone(log):
    with pytest.raises(LoadError, match="line 1: '2026-01-02 08:00:00' has no time zone"):
        log("2026-01-02, 08:00:00, 9\n", tz=None)


def test_a_trace_without_a_change_is_empty(log):
    part = log("not a trace\n")
    assert part.failures.empty
    assert part.timeline.empty


@pytest.mark.parametrize(
    "head", [b"", b"JobID|State\n", b"1,2,3\n", b"0,added,node1\n", b"\xff\x00"]
)
def test_other_files_are_not_taken_for_traces(head):
    assert not spot.looks_like(head, "trace.csv")
