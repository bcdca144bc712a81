"""Thousands of logs, each read by itself: the tables are those of all of them together."""

import gzip
import io
import os
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from workbench import load
from workbench._shared.cluster import batches_on_cluster
from workbench.errors import LoadError, WorkbenchError
from workbench.load._failures import reader
from workbench.load._failures.formats import kernel_log
from workbench.load._failures.formats.system_log import Line, Lines

TABLES = ("failures", "timeline", "nodes", "quality")
BY_NAME = re.compile(r"node\d+")


def xid(second, code=79, bus="1b", host=""):
    stamp = f"2025-03-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{stamp}+00:00 {host}NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=1, name=a, x\n"


def quiet(second):
    return xid(second).partition("NVRM")[0] + "eth0: renamed from veth1\n"


def assert_same(log, expected):
    for name in TABLES:
        assert_frame_equal(getattr(log, name), getattr(expected, name))


# Every line that holds a word is found, whatever lies around it.

WORDS = (*kernel_log._NEEDLES, *kernel_log.needles(), *kernel_log._BOOT)
PIECES = st.one_of(
    st.sampled_from([*WORDS, *(word.upper() for word in WORDS), b"\n", b"\r\n", b"\0"]),
    st.binary(max_size=6),
    st.sampled_from(["Xıd", "faıl", "ſtall", "\u212ailled", "ERROR"]).map(str.encode),
)


@given(pieces=st.lists(PIECES, max_size=30), size=st.integers(1, 60))
def test_the_lines_found_are_those_that_hold_a_word(pieces, size):
    text = b"".join(pieces)
    file, words = io.BytesIO(text), kernel_log.needles() + kernel_log._BOOT
    stream = SimpleNamespace(readinto=lambda block: file.readinto(block[:size]))
    lines = Lines(stream, kernel_log._NEEDLES, words)
    hits = [line for line in lines if line.is_hit]
    # The independent path: one line after the other, one word after the other.
    each = text.removesuffix(b"\n").split(b"\n") if text else []
    assert hits == [
        Line(number, line, is_hit=True)
        for number, line in enumerate(each, 1)
        if any(word in line for word in kernel_log._NEEDLES)
        or any(word in line.lower() for word in words)
    ]
    assert lines.count == len(each)


# Order and cuts do not matter.


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory) -> list[Path]:
    """Write logs of three hosts, in pieces that overlap, and a file that is not a log."""
    folder, draw = tmp_path_factory.mktemp("logs"), random.Random(3)
    for node in range(3):
        seconds = sorted(draw.sample(range(86_400), 40))
        lines = [xid(s, draw.choice([13, 48, 79]), draw.choice(["1b", "3b"])) for s in seconds]
        for number, (first, last) in enumerate([(0, 18), (12, 30), (28, 40)]):
            text = "".join(lines[first:last]).encode()
            (folder / f"node{node}.log.{number}").write_bytes(text)
    (folder / "node9.log").write_text("a shopping list\nmilk\n")
    return sorted(folder.iterdir())


@pytest.mark.long
@given(draw=st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(overlapping, draw):
    expected = load.failures(overlapping, node=BY_NAME, progress=False)
    mixed = draw.sample(overlapping, len(overlapping))
    assert_same(load.failures(mixed, node=BY_NAME, progress=False), expected)


@pytest.mark.long
@given(cuts=st.tuples(st.integers(1, 29), st.integers(0, 8)), seed=st.integers(0, 99))
def test_rotated_pieces_that_overlap_tell_what_the_whole_log_tells(tmp_path_factory, cuts, seed):
    draw, (cut, overlap) = random.Random(seed), cuts
    seconds = sorted(draw.sample(range(40_000), 30))
    lines = [xid(s, draw.choice([13, 79]), draw.choice(["1b", "3b"])) for s in seconds]
    folder = tmp_path_factory.mktemp("rotated")
    whole, old, new = (folder / name for name in ("node1.log", "node1.log.1.gz", "node1.log.0"))
    whole.write_text("".join(lines))
    old.write_bytes(gzip.compress("".join(lines[:cut]).encode()))
    new.write_text("".join(lines[max(cut - overlap, 0) :]))
    expected = load.failures(whole, node="node1", progress=False)
    log = load.failures([old, new], node="node1", progress=False)
    apart = ["source", "line"]
    assert_frame_equal(log.failures.drop(columns=apart), expected.failures.drop(columns=apart))
    assert_frame_equal(log.nodes, expected.nodes)


def test_an_xid_in_two_rotated_files_is_one_failure(tmp_path):
    (tmp_path / "node7.log").write_text(xid(7200) + quiet(7300))
    (tmp_path / "node7.log.1.gz").write_bytes(gzip.compress((quiet(60) + xid(7200)).encode()))
    packed = gzip.decompress((tmp_path / "node7.log.1.gz").read_bytes())
    text = packed + (tmp_path / "node7.log").read_bytes()
    assert text.count(b"Xid (") == 2  # a count of lines is one too many
    log = load.failures(tmp_path, node=BY_NAME, progress=False)
    assert len(log.failures) == 1
    twice = log.quality["what"] == "lines that another file contains, too; counted once"
    assert log.quality.loc[twice, "count"].tolist() == [1]


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_one_bad_and_one_cut_log_of_many_are_rows_that_say_which_and_why(tmp_path, count):
    text = (quiet(5) + xid(6) + quiet(7)).encode()
    for number in range(count - 2):
        (tmp_path / f"node{number:04d}.log").write_bytes(text)
    bad, cut = tmp_path / "node8000.log.gz", tmp_path / "node9000.log.gz"
    bad.write_bytes(b"\x1f\x8b\x08" + bytes(range(200)))
    draw = random.Random(1)
    long = text + "".join(quiet(draw.randrange(86_400)) for _ in range(2000)).encode()
    packed = gzip.compress(long)
    cut.write_bytes(packed[: len(packed) // 2])
    log = load.failures(tmp_path, node=BY_NAME, progress=False)
    assert log.failures["node"].nunique() == len(log.failures) == count - 1
    assert log.quality.query("finding == 'dropped'")["source"].tolist() == [str(bad)]
    truncated = log.quality.query("finding == 'truncated'")
    assert set(truncated["source"]) == {str(cut)}
    assert truncated["where"].str.contains("byte").any()


# At the workers of a cluster.


@pytest.fixture
def nodes(tmp_path) -> Path:
    """Write the logs of 12 nodes into a folder."""
    for number in range(12):
        text = "".join(xid(second, bus="3b") for second in range(60, 60 * (number + 2), 60))
        (tmp_path / f"node{number:02d}.log").write_text(text + quiet(9000))
    return tmp_path


@pytest.mark.slow
def test_a_cluster_gives_what_one_process_gives(nodes, two_workers, monkeypatch):
    alone = load.failures(nodes, node=BY_NAME, progress=False)
    said = {"node": BY_NAME, "client": two_workers, "progress": False}
    assert_same(load.failures(nodes, **said), alone)
    monkeypatch.setattr(reader, "_TASK_BYTES", 600 << 10)  # two files a task
    assert_same(load.failures(nodes, **said), alone)
    monkeypatch.chdir(nodes)
    named = [f"node{number:02d}.log" for number in range(12)]
    spread = load.failures(named, **said)
    apart = ["source"]
    assert_frame_equal(spread.failures.drop(columns=apart), alone.failures.drop(columns=apart))


@pytest.mark.slow
def test_a_log_that_kills_its_workers_is_a_row(nodes, two_workers):
    class Deadly(str):
        __slots__ = ()

        def __len__(self):
            return os._exit(1)

    log = load.failures(nodes, node={Deadly("node05"): "x"}, client=two_workers, progress=False)
    dropped = log.quality.query("finding == 'dropped'")
    assert dropped["source"].tolist() == [str(nodes / "node05.log")]
    assert dropped["what"].str.contains("its workers died").all()
    read = log.quality.query("finding == 'read' and what == 'lines'")["source"]
    assert read.nunique() == 11


@pytest.mark.slow
def test_a_log_that_a_worker_does_not_see_is_a_row(nodes, two_workers, monkeypatch):
    def vanishing(*args):
        (nodes / "node03.log").unlink(missing_ok=True)
        yield from batches_on_cluster(*args)

    monkeypatch.setattr(reader, "batches_on_cluster", vanishing)
    log = load.failures(nodes, node=BY_NAME, client=two_workers, progress=False)
    gone = log.quality.query("finding == 'dropped'")["what"]
    assert gone.str.contains("not found on worker").tolist() == [True]


@pytest.mark.slow
def test_a_question_of_a_worker_is_asked(nodes, two_workers):
    (nodes / "node20.log").write_text("Mar  1 10:00:00 node20 kernel: " + xid(1)[25:])
    with pytest.raises(LoadError, match=r"node20\.log, line 1: .* has no year; pass year="):
        load.failures(nodes, client=two_workers, progress=False)


def test_members_of_a_packed_archive_are_not_for_a_cluster(nodes, tmp_path):
    import tarfile

    path = tmp_path / "logs.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(nodes / "node00.log", "node00.log")
    with pytest.raises(WorkbenchError, match="unpack the archive for a cluster"):
        load.failures(path, node=BY_NAME, client=object(), progress=False)
