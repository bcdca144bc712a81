"""A command runs as without the recorder; what was sampled meanwhile is in complete files."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from workbench import cli
from workbench.errors import RecordError
from workbench.record import record, recording
from workbench.record import recording as _files
from workbench.record import recording as _loop

QUICK = ["true"]


def rows_of(folder):
    return [
        row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]


def about(folder):
    return json.loads((folder / "recording.json").read_text())


@pytest.fixture(autouse=True)
def stops_are_heard():
    """Take signals as a shell's foreground does; jobs in the background ignore some of them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def no_other_sensors(monkeypatch):
    monkeypatch.setattr(recording, "_SAMPLERS", (recording.nvml_sampler,))


def test_every_gpu_is_sampled_from_before_the_command_to_after_its_end(nvml, tmp_path):
    done = record(["sleep", "0.3"], tmp_path / "run", period_s=0.05)
    rows = rows_of(tmp_path / "run")
    described = about(tmp_path / "run")
    assert done.exit_code == 0
    assert done.reading_count == len(rows) >= 6
    assert {row["entity"].split("/")[1] for row in rows} == {"gpu0", "gpu1"}
    assert {row["power_w"] for row in rows} == {500.123, 500.124}
    assert described["start_ns"] <= rows[0]["time_ns"] <= rows[-1]["time_ns"] <= described["end_ns"]
    assert nvml.is_shut


def test_the_files_say_how_they_were_sampled(nvml, tmp_path):
    record(QUICK, tmp_path / "run")
    path = tmp_path / "run" / "power_0001.parquet"
    note = json.loads(pq.read_schema(path).metadata[_files.KEY])
    assert note["sensors"][0]["method"] == "avg_1s"
    assert note["sensors"][0]["model"] == "NVIDIA H100 80GB HBM3"
    assert note["period_s"] == 0.1
    assert about(tmp_path / "run")["command"] == QUICK


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_of_the_command_is_passed_on(tmp_path, code):
    assert record(["sh", "-c", f"exit {code}"], tmp_path / "run").exit_code == code


def test_a_command_that_a_signal_killed_gives_the_code_a_shell_would(tmp_path):
    assert record(["sh", "-c", "kill -9 $$"], tmp_path / "run").exit_code == 137


def test_without_anything_to_sample_the_command_runs_and_what_is_missing_is_said(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    done = record(QUICK, tmp_path / "run")
    assert (done.exit_code, done.reading_count) == (0, 0)
    assert "workbench[record]" in done.missing[0]
    assert about(tmp_path / "run")["missing"] == list(done.missing)


def test_sampling_that_fails_does_not_stop_the_command(nvml, tmp_path, monkeypatch):
    def full(self, time_ns, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.Writer, "add", full)
    done = record(["sh", "-c", f"touch {tmp_path}/it_ran"], tmp_path / "run")
    assert done.exit_code == 0
    assert "No space left" in done.error
    assert (tmp_path / "it_ran").exists()


def test_long_recordings_are_written_in_parts_that_are_each_complete(nvml, tmp_path):
    writer = _files.Writer(tmp_path, {}, part_rows=4)
    for at in range(5):
        writer.add(at, [("a", {"power_w": 1.0}), ("b", {})])
    assert [len(pq.read_table(path)) for path in sorted(tmp_path.glob("*.parquet"))] == [4, 4]
    writer.flush()
    writer.flush()
    assert writer.part_count == 3


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path):
    def stop(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _files.write_whole(tmp_path / "power_0001.parquet", stop)
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_written_a_minute_after_its_first_reading_however_slow_reading_is(tmp_path):
    writer = _files.Writer(tmp_path, {}, part_rows=1000, part_s=0.05)
    writer.add(1, [("a", {"power_w": 1.0})])
    assert writer.part_count == 0
    time.sleep(0.06)
    writer.add(2, [("a", {"power_w": 1.0})])
    assert writer.part_count == 1


def test_files_are_for_those_whom_the_user_lets_read_them(nvml, tmp_path):
    before = os.umask(0o077)
    try:
        record(QUICK, tmp_path / "run")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()}
    assert modes == {"power_0001.parquet": 0o600, "recording.json": 0o600}


def test_what_was_read_before_a_failure_is_kept(nvml, tmp_path, monkeypatch):
    calls = []

    def fails(self):
        calls.append(1)
        if len(calls) > 2:
            raise ValueError
        return [("n/gpu0", {"power_w": 500.0})]

    monkeypatch.setattr("workbench.record._sensors.Nvml.read", fails)
    done = record(["sleep", "0.3"], tmp_path / "run", period_s=0.02)
    assert done.error.startswith("ValueError")
    assert [row["power_w"] for row in rows_of(tmp_path / "run")] == [500.0, 500.0]


def test_a_way_of_sampling_that_breaks_does_not_stop_the_command(nvml, tmp_path, monkeypatch):
    nvml.refuses = {"nvmlDeviceGetCount"}
    done = record(["sh", "-c", "exit 3"], tmp_path / "run")
    assert done.exit_code == 3
    assert "NVMLError: Not Supported" in done.missing[0]


def test_a_disk_that_is_full_at_the_end_does_not_hide_the_exit_code(nvml, tmp_path, monkeypatch):
    real, calls = recording.write_about, []

    def full_at_the_end(folder, about):
        calls.append(about)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        real(folder, about)

    monkeypatch.setattr(recording, "write_about", full_at_the_end)
    done = record(["sh", "-c", "exit 3"], tmp_path / "run")
    assert done.exit_code == 3
    assert "No space left" in done.error


def test_a_disk_that_is_full_at_the_start_is_said_before_anything_runs(nvml, tmp_path, monkeypatch):
    def full(folder, about):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording, "write_about", full)
    with pytest.raises(RecordError, match=r"cannot be written .No space left on device"):
        record(["touch", str(tmp_path / "it_ran")], tmp_path / "run")
    assert not (tmp_path / "it_ran").exists()
    assert not list((tmp_path / "run").iterdir())
    assert nvml.is_shut


def test_of_two_recordings_that_begin_at_once_one_gets_the_folder(nvml, tmp_path, monkeypatch):
    real = recording._about

    def other_is_first(*words):
        (tmp_path / "run" / "recording.json").write_text("of the other")
        return real(*words)

    monkeypatch.setattr(recording, "_about", other_is_first)
    with pytest.raises(RecordError, match="holds a recording already"):
        record(QUICK, tmp_path / "run")
    assert (tmp_path / "run" / "recording.json").read_text() == "of the other"


def test_a_stop_while_files_are_written_breaks_nothing_off(nvml, tmp_path, monkeypatch):
    real = _files.Writer.flush

    def stopped(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        real(self)

    monkeypatch.setattr(_files.Writer, "flush", stopped)
    done = record(QUICK, tmp_path / "run")
    assert (done.exit_code, done.error) == (0, "")
    assert len(rows_of(tmp_path / "run")) == done.reading_count
    assert about(tmp_path / "run")["signals"] == ["SIGINT"]


def test_a_stop_before_the_command_runs_is_passed_on_to_it(tmp_path, monkeypatch):
    real = recording.start

    def stopped(command):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(command)

    monkeypatch.setattr(recording, "start", stopped)
    assert record(["sleep", "60"], tmp_path / "run").exit_code == 128 + signal.SIGTERM


def test_a_thread_may_record(nvml, tmp_path):
    done = []
    thread = threading.Thread(target=lambda: done.append(record(QUICK, tmp_path / "run")))
    thread.start()
    thread.join()
    assert done[0].exit_code == 0


@pytest.mark.parametrize("period_s", [1e-9, 5e-324])
def test_a_period_below_what_a_sensor_gives_is_that_of_the_sensor(nvml, tmp_path, period_s):
    record(["sleep", "0.1"], tmp_path / "run", period_s=period_s)
    assert about(tmp_path / "run")["period_s"] == 0.01


def test_words_may_be_paths_and_a_line_is_refused_with_the_words_it_is_of(tmp_path):
    assert record([Path("/bin/true")], tmp_path / "run").exit_code == 0
    with pytest.raises(RecordError, match=r"list of words, such as \['python', 'a b.py'\]"):
        record("python 'a b.py'", tmp_path / "other")


def test_reading_that_takes_longer_than_the_period_is_counted_not_caught_up(nvml, tmp_path):
    class Slow:
        name, least_period_s, sensors, missing = "slow", 0.0, [], {}

        def read(self):
            time.sleep(0.05)
            return [("a", {"power_w": 1.0})]

    loop = _loop.Loop([Slow()], _files.Writer(tmp_path, {}, part_rows=100), period_s=0.01)
    loop.start()
    time.sleep(0.2)
    loop.finish()
    assert loop.late_count >= 4
    assert loop.error == ""


def test_a_wall_clock_that_is_set_is_noted(tmp_path, monkeypatch):
    loop = _loop.Loop([], _files.Writer(tmp_path, {}, part_rows=100), period_s=1)
    now = time.time_ns() - time.monotonic_ns()
    assert loop._watched(now - 3_600_000_000_000) == pytest.approx(now, abs=1e8)
    assert loop.clock_steps[0][1] == pytest.approx(3.6e12, abs=1e8)


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ([], {}, "no command to run; write it after --"),
        (["no-such-command-here"], {}, "no such command"),
        (QUICK, {"period_s": 0}, "period_s must be above 0"),
        (QUICK, {"period_s": float("nan")}, "period_s must be above 0"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_runs(
    tmp_path, command, options, message
):
    with pytest.raises(RecordError, match=message):
        record(command, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_recording_is_never_written_over(nvml, tmp_path):
    record(QUICK, tmp_path / "run")
    with pytest.raises(RecordError, match="holds a recording already; name another folder"):
        record(QUICK, tmp_path / "run")


def test_a_command_that_does_not_start_leaves_the_folder_free(nvml, tmp_path):
    script = tmp_path / "no_program"
    script.write_bytes(b"\x7fELF no program at all")
    script.chmod(0o755)
    with pytest.raises(RecordError, match=r"cannot be run .Exec format error"):
        record([str(script)], tmp_path / "run", period_s=0.01)
    assert list((tmp_path / "run").iterdir()) == []
    assert record(QUICK, tmp_path / "run").exit_code == 0


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be made"):
        record(QUICK, tmp_path / "file" / "run")


def test_the_command_line_passes_on_words_and_exit_code(nvml, tmp_path):
    words = ["record", "--out", str(tmp_path / "run"), "--", "sh", "-c", "exit 7"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 7
    assert "readings of" in result.stderr


def test_options_of_the_command_are_not_those_of_the_recorder(nvml, tmp_path):
    words = ["record", "--out", str(tmp_path / "run"), "sh", "-c", "exit 4"]
    assert CliRunner().invoke(cli.app, words).exit_code in {2, 4}


LISTENS = """
import signal, sys, time
came = []
signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
open(sys.argv[1] + ".ready", "w").close()
end = time.monotonic() + 1
while time.monotonic() < end:
    time.sleep(0.05)
open(sys.argv[1], "w").write(str(len(came)))
"""


@pytest.mark.slow
def test_ctrl_c_reaches_the_command_once_whatever_its_input_is(tmp_path):
    note = tmp_path / "note"
    program = (
        "import signal, sys, os\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 0)\n"
        "from workbench.record import record\n"
        "record([sys.executable, '-c', sys.argv[1], sys.argv[2]], sys.argv[3])"
    )
    words = ["-c", program, LISTENS, str(note), str(tmp_path / "run")]
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, *words])
    deadline = time.monotonic() + 60
    while not note.with_name("note.ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert note.read_text() == "1"


CHILD = """
import signal, sys, time
def stop(number, frame):
    open(sys.argv[1], "a").write(signal.Signals(number).name + "\\n")
    time.sleep(0.2)
    sys.exit(9)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
open(sys.argv[1], "w").write("")
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_reaches_the_command_once_and_the_recording_is_complete(tmp_path, stop):
    note, folder = tmp_path / "note", tmp_path / "run"
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from workbench.cli import app\napp()"
    words = ["record", "--out", str(folder), "--", sys.executable, "-c", CHILD, str(note)]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, stop)
    _, described = process.communicate(timeout=60)
    assert process.returncode == 9, described
    assert note.read_text() == stop.name + "\n"
    assert about(folder)["signals"] == [stop.name]
    assert about(folder)["exit_code"] == 9
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def _full(*_arguments, **_options):
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_told_with_what_was_lost_and_check_repeats_it(nvml, tmp_path, monkeypatch):
    monkeypatch.setattr(_files.pq, "write_table", _full)
    done = record(["sleep", "0.2"], tmp_path / "run", period_s=0.05)
    assert done.reading_count == 0
    assert done.lost_count >= 4
    assert "No space left" in done.error
    described = about(tmp_path / "run")
    assert (described["reading_count"], described["lost_count"]) == (0, done.lost_count)
    result = CliRunner().invoke(cli.app, ["check", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "No space left" in result.output
    assert f"{done.lost_count} readings are lost" in result.output


def test_a_disk_that_fills_up_later_keeps_the_parts_before_and_check_exits_with_1(
    nvml, tmp_path, monkeypatch
):
    left = iter([_files.pq.write_table])

    def filling_up(*arguments, **options):
        next(left, _full)(*arguments, **options)

    monkeypatch.setattr(_files.pq, "write_table", filling_up)
    monkeypatch.setattr(recording, "_PART_ROWS", 4)
    done = record(["sleep", "0.4"], tmp_path / "run", period_s=0.05)
    assert done.reading_count == len(rows_of(tmp_path / "run")) == 4
    assert done.lost_count > 0
    result = CliRunner().invoke(cli.app, ["check", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert "! dropped" in result.output
    assert "the recording ended early" in result.output


def test_an_end_that_could_not_be_written_is_told_by_check(nvml, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_finished", lambda *_: "recording.json: No space left")
    record(QUICK, tmp_path / "run")
    result = CliRunner().invoke(cli.app, ["check", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert "the end of the recording was never written" in result.output


@pytest.fixture
def small_files():
    """Let the system refuse to write more than some bytes into a file, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, heard)


def test_what_the_system_refuses_to_write_is_told_by_record_and_again_by_check(
    nvml, tmp_path, small_files
):
    record(QUICK, tmp_path / "whole")
    chunk, described = (tmp_path / "whole" / n for n in ("power_0001.parquet", "recording.json"))
    assert described.stat().st_size + 1000 < chunk.stat().st_size
    folder = tmp_path / "run"
    small_files(described.stat().st_size + 1000)
    first = CliRunner().invoke(cli.app, ["record", "--out", str(folder), "--", *QUICK])
    assert first.exit_code == 1
    assert "File too large" in first.output
    assert sorted(path.name for path in folder.iterdir()) == ["recording.json"]
    again = CliRunner().invoke(cli.app, ["check", str(folder)])
    assert again.exit_code == 2
    lost = about(folder)["lost_count"]
    assert f"the recording ended early: {about(folder)['error']}; {lost} readings are lost" in (
        " ".join(again.output.split())
    )


def test_the_command_says_what_a_full_disk_lost(nvml, tmp_path, monkeypatch):
    monkeypatch.setattr(_files.pq, "write_table", _full)
    result = CliRunner().invoke(cli.app, ["record", "--out", str(tmp_path / "run"), "--", *QUICK])
    assert result.exit_code == 1
    assert "0 readings" in result.output
    assert "readings are lost" in result.output


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), sync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append("name"), replace(a, b))[1])
    _files.write_whole(tmp_path / "a", lambda file: file.write(b"x"))
    assert order == ["sync", "name", "sync"]
