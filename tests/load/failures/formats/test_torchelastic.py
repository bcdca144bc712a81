"""Failures as torchrun reports them. The forms are those of torch.distributed.elastic:
`ErrorHandler.record_exception` (error.json) and `ChildFailedError` (the block)."""

import json

import pandas as pd
import pytest

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench import load
from workbench.errors import LoadError
from workbench.load._failures.formats import torchelastic

# The block as torchrun 2.x prints it at the end of a console log.
BLOCK = """\
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-05-01_10:00:02
  host      : gpu-07.cluster
  rank      : 9 (local_rank: 1)
  exitcode  : -15 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4711
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:00
  host      : gpu-07.cluster
  rank      : 8 (local_rank: 0)
  exitcode  : -9 (pid: 4710)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4710
============================================================
"""


def error_file(message, timestamp="1700000000"):
    extra = {"py_callstack": "Traceback (most recent call last):\n  ..."}
    extra |= {} if timestamp is None else {"timestamp": timestamp}
    return json.dumps({"message": {"message": message, "extraInfo": extra}})


def only(part):
    assert len(part.failures) == 1
    return part.failures.iloc[0]


def test_reads_an_error_file(tmp_path):
    row = only(read(torchelastic, tmp_path, error_file("ValueError: loss is NaN\nmore"), node="n1"))
    assert row["cause"] == "ValueError: loss is NaN"
    assert (row["kind"], row["category"], row["severity"]) == ("torchelastic", "software", "fatal")
    assert (row["start_ns"], row["clock"], row["assumed"]) == (
        1_700_000_000_000_000_000,
        "epoch",
        "",
    )
    assert (row["node"], row["line"]) == ("n1", 1)


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "software"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "gpu"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu memory"),
        ("OSError: [Errno 28] No space left on device", "storage"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1", "unknown"),
        ("AssertionError: shapes", "software"),
    ],
)
def test_sorts_exceptions_into_categories(tmp_path, message, category):
    assert only(read(torchelastic, tmp_path, error_file(message)))["category"] == category


def test_an_error_file_without_a_time_has_no_clock(tmp_path):
    part = read(torchelastic, tmp_path, error_file("ValueError: x", timestamp=None))
    assert only(part)["clock"] == "none"
    assert findings(part) == {}


@pytest.mark.parametrize("stamp", ["0", "-5", "NaN", "soon", "9" * 5000, True, {}, 1e300])
def test_a_time_that_is_none_is_missing_and_counted(tmp_path, stamp):
    part = read(torchelastic, tmp_path, error_file("ValueError: x", timestamp=stamp))
    assert only(part)["clock"] == "none"
    assert [kind for kind, _ in findings(part).values()] == ["suspicious"]


def test_a_message_may_be_plain_text(tmp_path):
    text = '{"message": "RuntimeError: bad", "extraInfo": {"timestamp": "1700000000"}}'
    assert only(read(torchelastic, tmp_path, text))["cause"] == "RuntimeError: bad"
    assert recognised(torchelastic, text, "attempt_0/3/error.json")
    assert not recognised(torchelastic, text, "attempt_0/3/other.json")


def test_the_exit_code_stands_in_for_a_missing_message(tmp_path):
    text = '{"message": {"message": "<NONE>", "errorCode": -11}}'
    row = only(read(torchelastic, tmp_path, text))
    assert (row["cause"], row["category"], row["code"]) == ("ended by SIGSEGV", "software", "-11")


def test_reads_the_block_of_a_console_log(tmp_path):
    part = read(torchelastic, tmp_path, "epoch 1\n" + BLOCK, tz="UTC")
    failures = part.failures.set_index("rank")
    assert failures["cause"].to_dict() == {9: "ended by SIGTERM", 8: "ended by SIGKILL"}
    assert failures["category"].to_dict() == {9: "follow-on", 8: "unknown"}
    assert failures.loc[8, "start_ns"] == ns("2024-05-01 10:00:00")
    assert failures.loc[8, ["node", "code", "assumed"]].tolist() == [
        "gpu-07.cluster",
        "-9",
        "tz=UTC",
    ]
    assert failures.loc[8, "line"] == 17


def test_blocks_of_several_tasks_may_be_interleaved(tmp_path):
    lines = BLOCK.splitlines()
    other = (
        BLOCK.replace("gpu-07", "gpu-99").replace("rank      : 8", "rank      : 80").splitlines()
    )
    mixed = "\n".join(f"0: {a}\n1: {b}" for a, b in zip(lines, other, strict=True))
    failures = read(torchelastic, tmp_path, mixed, tz="UTC").failures
    roots = failures[failures["code"] == "-9"]
    assert roots.set_index("node")["rank"].to_dict() == {"gpu-07.cluster": 8, "gpu-99.cluster": 80}


def test_the_last_exception_of_a_traceback_is_the_cause(tmp_path):
    old = "  traceback : Signal 9 (SIGKILL) received by PID 4710"
    new = (
        "  traceback : Traceback (most recent call last):\n"
        '    File "train.py", line 3, in main\n'
        "    KeyError: 'x'\n\n    RuntimeError: CUDA error: device-side assert triggered"
    )
    text = BLOCK.replace(old, new).replace("-9 (pid", "1 (pid")
    row = read(torchelastic, tmp_path, text, tz="UTC").failures.set_index("rank").loc[8]
    assert row["cause"] == "RuntimeError: CUDA error: device-side assert triggered"
    assert row["category"] == "software"


def test_an_exit_code_without_traceback_says_what_to_do(tmp_path):
    text = BLOCK.replace("-9 (pid", "1 (pid").replace(
        "Signal 9 (SIGKILL) received by PID 4710",
        "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    )
    row = read(torchelastic, tmp_path, text, tz="UTC").failures.set_index("rank").loc[8]
    assert "@record" in row["cause"]
    assert row["category"] == "unknown"


def test_local_times_need_the_zone(tmp_path):
    with pytest.raises(
        LoadError, match="line 7: 'time: 2024-05-01_10:00:02' has no time zone; pass tz="
    ):
        read(torchelastic, tmp_path, BLOCK)


def test_a_wrong_zone_is_refused(tmp_path):
    with pytest.raises(LoadError, match="tz='Mars/Olympus' is not a time zone"):
        read(torchelastic, tmp_path, BLOCK, tz="Mars/Olympus")


def test_an_hour_that_a_clock_change_repeats_has_no_time(tmp_path):
    text = BLOCK.replace("2024-05-01_10:00:00", "2024-11-03_01:30:00")
    part = read(torchelastic, tmp_path, text, tz="America/New_York")
    row = part.failures.set_index("rank").loc[8]
    assert row["clock"] == "none"
    assert next(iter(findings(part).values())) == ("suspicious", 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"message": {"message": "ValueError: x", "extraInfo": {"py_ca',
        '{"message": {"message": ' * 100_000,
        '{"message": {"message": 7}}',
        '{"message": {"message": null, "errorCode": "x"}}',
    ],
)
def test_a_damaged_error_file_is_refused_by_name(tmp_path, text):
    with pytest.raises(LoadError, match=r"some\.log: holds no error of torchelastic"):
        read(torchelastic, tmp_path, text)


def test_a_console_log_may_begin_with_json(tmp_path):
    text = '{"message": {"message": 7}, "lr": 1e-4}\n' + BLOCK.replace("ChildFailedError", "")
    padded = text.replace("\n", "\n" + "x" * 5000 + "\n", 1)
    assert len(read(torchelastic, tmp_path, padded, tz="UTC").failures) == 2


def test_noise_gives_nothing_but_no_error(tmp_path):
    noise = bytes(range(256)) * 2000 + b"\nRoot Cause (first observed failure):\n[0]:\n  time : x\n"
    part = read(torchelastic, tmp_path, noise)
    assert part.failures.empty
    assert ("dropped", 1) in findings(part).values()


def test_recognises_its_own_and_nothing_else():
    assert recognised(torchelastic, error_file("x"))
    assert recognised(torchelastic, BLOCK)
    assert [name for name, text in FOREIGN.items() if recognised(torchelastic, text)] == []


@pytest.mark.parametrize(
    "before",
    [
        "2024-05-01T10:00:03.123456789Z ",
        "2024-05-01T10:00:03.1+02:00 stderr F ",
        "[pod/train-worker-0/pytorch] ",
        "[1,0]<stderr>:",
        "(TrainWorker pid=12, ip=10.0.0.1) ",
        "node-1: ",
        "704.7s\t1469\t",
        "trainer-0  | ",
        "[default0]:",
        " 12: ",
    ],
)
def test_what_collectors_put_before_every_line_does_no_harm(tmp_path, before):
    text = "".join(f"{before}{line}\n" for line in BLOCK.splitlines())
    part = read(torchelastic, tmp_path, text, tz="UTC")
    assert part.failures["rank"].tolist() == [9, 8]
    assert part.failures["node"].tolist() == ["gpu-07.cluster"] * 2
    assert part.failures["clock"].tolist() == ["epoch"] * 2


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("run_4ktd/attempt_0/3/error.json", 3),
        ("attempt_12/11/error.json", 11),
        ("run/3/error.json", None),
        ("attempt_0/error.json", None),
    ],
)
def test_the_folder_of_an_error_file_names_the_rank_on_its_node(tmp_path, name, rank):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(error_file("ValueError: loss is NaN"))
    (row,) = load.failures(tmp_path).failures.to_dict("records")
    assert (None if pd.isna(row["rank"]) else row["rank"]) == rank
    assert ("rank of its node" in row["assumed"]) == (rank is not None)
