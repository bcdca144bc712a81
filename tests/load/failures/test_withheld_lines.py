"""Lines that a journal, a terminal or a runtime shows in another form than it logged."""

import json
import re
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._files.text import fold_of

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name={name}, GPU has fallen off the bus."
CALLED = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, "
    "NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before "
    "timing out."
)
WITHHELD = "messages that journalctl withheld; write the log with journalctl --all"
SAID = {"tz": "UTC", "year": 2026, "progress": False}


def entry(message, second=0):
    return {
        "__REALTIME_TIMESTAMP": f"17723592{second:02d}000000", "_HOSTNAME": "gpu-7",
        "_TRANSPORT": "kernel", "PRIORITY": "3", "MESSAGE": message,
    }  # fmt: skip


def loaded(folder, text, name="some.log"):
    path = folder / name
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return load.bundle(path, **SAID).failures


def quality(log, finding):
    rows = log.quality[log.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


@settings(max_examples=8)
@given(
    name=st.binary(min_size=1, max_size=12).filter(lambda name: not {10, 13, 44} & {*name}),
    spaced=st.booleans(),
    end=st.sampled_from([b"", b"\r", b"\x1b[0m", b"\n"]),
)
def test_a_message_as_bytes_reports_what_its_text_does(tmp_path_factory, name, spaced, end):
    """A journal writes a message as numbers if any byte of it is not printable."""
    raw = XID.encode().replace(b"{name}", name) + end
    line = json.dumps(entry(list(raw), 5), separators=None if spaced else (",", ":"))
    log = loaded(
        tmp_path_factory.mktemp("journal"), f"{json.dumps(entry('usb 1-1: new'))}\n{line}\n"
    )
    (row,) = log.failures.to_dict("records")
    assert (row["code"], row["node"], row["device"]) == ("79", "gpu-7", "0000:9b:00")
    assert row["start_ns"] == 1_772_359_205_000_000_000


# A journal of nine entries, made by systemd-journal-remote and printed by journalctl of systemd
# 252.39 with TZ=UTC. Entry 2 has a byte that is not UTF-8 in its name, 3 ends with a carriage
# return, 4 is coloured, 5 has two lines, 6 is longer than 4,096 bytes, 7 has a byte of 0 and 8 a
# tab in its name; 9 is empty, and only JSON shows it.
SHORT = """\
2026-03-01T10:00:00+0000 gpu-7 kernel: {xid:python}
2026-03-01T10:00:01+0000 gpu-7 kernel: [84B blob data]
2026-03-01T10:00:02+0000 gpu-7 kernel: {xid:python}
2026-03-01T10:00:03+0000 gpu-7 kernel: {xid:python}
2026-03-01T10:00:04+0000 gpu-7 kernel: {xid:python}
                                       second line
2026-03-01T10:00:05+0000 gpu-7 kernel: {xid:python }{xs}
2026-03-01T10:00:06+0000 gpu-7 kernel: [83B blob data]
2026-03-01T10:00:07+0000 gpu-7 kernel: {xid:t        ab}
"""
BEFORE_THE_HOST = {
    "short": "Mar 01 10:00:{n:02d}",
    "short-iso": "2026-03-01T10:00:{n:02d}+0000",
    "short-precise": "Mar 01 10:00:{n:02d}.000000",
    "short-full": "Sun 2026-03-01 10:00:{n:02d} UTC",
    "short-unix": "17723592{n:02d}.000000",
}


def printed(form):
    text = re.sub(r"\{xid:(.*?)\}", lambda match: XID.format(name=match[1]), SHORT)
    text = text.replace("{xs}", "x" * 5000)
    stamp = BEFORE_THE_HOST[form]
    text = re.sub(
        r"^2026-03-01T10:00:(\d\d)\+0000", lambda match: stamp.format(n=int(match[1])), text,
        flags=re.MULTILINE,
    )  # fmt: skip
    return text.replace(" " * 39, " " * (len(stamp.format(n=0)) + len(" gpu-7 kernel: ")))


@pytest.mark.parametrize("form", BEFORE_THE_HOST)
def test_text_that_journalctl_withheld_is_counted_as_unread_with_the_cure(tmp_path, form):
    log = loaded(tmp_path, printed(form))
    (row,) = log.failures.to_dict("records")
    assert (row["code"], row["node"], row["line_count"]) == ("79", "gpu-7", 6)
    assert quality(log, "dropped") == {WITHHELD: 2}
    assert quality(log, "skipped by design") == {"lines that report none": 1}


@pytest.mark.parametrize("separator", ["", "\x1e"], ids=["json", "json-seq"])
def test_json_of_a_journal_withholds_long_messages_only(tmp_path, separator):
    """Bytes are numbers there; null is over 4,096 bytes, and an empty message is empty."""
    raw = XID.encode().replace(b"{name}", b"%s")
    messages = [
        XID.format(name="python"), list(raw % b"py\xff\xfethon"), XID.format(name="python") + "\r",
        list(b"\x1b[31m" + raw % b"python" + b"\x1b[0m"), XID.format(name="python") + "\nsecond line",
        None, list(raw % b"py\x00thon"), XID.format(name="t\tab"), "",
    ]  # fmt: skip
    lines = [separator + json.dumps(entry(text, n)) for n, text in enumerate(messages)]
    log = loaded(tmp_path, "\n".join(lines) + "\n")
    (row,) = log.failures.to_dict("records")
    assert (row["code"], row["node"], row["line_count"]) == ("79", "gpu-7", 7)
    assert quality(log, "dropped") == {WITHHELD: 1}


CURSOR = "s=2f3dfe41b75d48969d412aaa0c3a6711;i=1;b=0123456789abcdef0123456789abcdef;m=f4240"


@pytest.mark.parametrize(
    "text",
    [
        f"Sun 2026-03-01 10:00:00.000000 UTC [{CURSOR}]\n    _HOSTNAME=gpu-7\n    MESSAGE={XID}\n",
        f"__CURSOR={CURSOR}\n__REALTIME_TIMESTAMP=1772359200000000\n_HOSTNAME=gpu-7\nMESSAGE={XID}\n\n",
        json.dumps(entry(XID), indent="\t", separators=(",", " : ")) + "\n",
        f"data: {json.dumps(entry(XID))}\n\n",
    ],
    ids=["verbose", "export", "json-pretty", "json-sse"],
)
def test_entries_over_several_lines_are_refused_with_the_way_out(tmp_path, text):
    """Stamp, host and message stand on lines of their own; a message of bytes on one a byte."""
    with pytest.raises(LoadError, match="write an entry a line: journalctl -k --all -o json"):
        loaded(tmp_path, text * 3)


def folded(text, width, *, pads):
    """Fold lines as a terminal does, which may fill up the last part with blanks."""
    parts = [
        line[start : start + width] for line in text.splitlines()
        for start in range(0, len(line), width)
    ]  # fmt: skip
    return "".join(f"{part:<{width if pads else 0}}\n" for part in parts)


def watchdog(ranks):
    return "".join(
        f"[rank{rank}]:[E429 13:55:49.{rank:09d} ProcessGroupNCCL.cpp:632] [Rank {rank}] {CALLED}\n"
        for rank in range(ranks)
    )


@pytest.mark.long
@settings(max_examples=8)
@given(width=st.integers(60, 200), pads=st.booleans(), ranks=st.integers(3, 9))
def test_folded_lines_of_ranks_report_what_whole_lines_do(tmp_path_factory, width, pads, ranks):
    folder = tmp_path_factory.mktemp("folded")
    whole = loaded(folder, watchdog(ranks), "whole.log").failures
    log = loaded(folder, folded(watchdog(ranks), width, pads=pads))
    columns = ["code", "ranks", "rank_count", "start_ns", "text"]
    assert log.failures[columns].equals(whole[columns])
    ((remark, _),) = quality(log, "repaired").items()
    assert f"at {width} columns" in remark


@settings(max_examples=8)
@given(width=st.integers(50, 100))
def test_a_code_that_a_terminal_cut_in_two_is_read_whole(tmp_path_factory, width):
    lines = "".join(
        f"2026-03-01T10:{minute:02d}:00+00:00 gpu-7 kernel: {XID.format(name='python')}\n"
        for minute in range(4)
    )
    log = loaded(tmp_path_factory.mktemp("folded"), folded(lines, width, pads=False))
    assert set(log.failures["code"]) == {"79"}


@pytest.mark.parametrize(
    "text",
    [
        watchdog(8),
        "".join(
            f"step {n:06d} loss 1.2345 and some more words of equal length\n" for n in range(90)
        ),
        "".join(
            f"step {n} loss {3 / (n + 1):.4f} and words that say nothing\n" for n in range(900)
        ),
        textwrap.fill("many words of a text that an editor has folded at spaces " * 30, 71),
    ],
    ids=["equal lines", "fixed width", "one form", "prose"],
)
def test_lines_that_end_at_one_width_are_not_folded(text):
    assert fold_of(text.encode()) is None


def test_what_the_runtime_prints_of_a_watchdog_is_one_timeout_of_its_rank(tmp_path):
    text = (
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated "
        f"with exception: [Rank 5] {CALLED}\n"
    )
    (row,) = loaded(tmp_path, text).failures.to_dict("records")
    assert (row["kind"], row["code"], row["rank"]) == ("nccl", "timeout", 5)


LATE = {
    "watchdog": (watchdog(1), "timeout"),
    "runtime": (f"  what():  [PG ID 0 Rank 5] {CALLED}\n", "timeout"),
    "time limit": (
        "slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n",
        "TIMEOUT",
    ),
    "kernel": (f"2026-03-01T10:00:00+00:00 gpu-7 kernel: {XID.format(name='python')}\n", "79"),
    "panic": (
        "2026-03-01T10:00:00+00:00 gpu-7 kernel: Kernel panic - not syncing: Fatal\n",
        "panic",
    ),
}


@pytest.mark.parametrize("kind", LATE)
def test_a_failure_far_behind_the_beginning_of_a_file_is_found(tmp_path, kind):
    text, code = LATE[kind]
    printed = "".join(
        f"step {n} loss {3 / (n + 1):.4f} says the training loop\n" for n in range(3000)
    )
    assert len(printed) > 1 << 16
    assert loaded(tmp_path, printed + text).failures["code"].tolist() == [code]
