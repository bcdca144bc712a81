"""Record power while a command runs."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench import __version__
from workbench._shared.writing import write_whole
from workbench.errors import RecordError
from workbench.record._sensors import (
    NotFoundError,
    Sampler,
    Values,
    amd_sampler,
    nvml_sampler,
    rapl_sampler,
)

_PART_ROWS = 60_000
_PART_S = 60.0
_SAMPLERS: tuple[Callable[[str], Sampler], ...] = (nvml_sampler, amd_sampler, rapl_sampler)
_LONGEST_PERIOD_S = 3600.0
_NO_END = "the end of the recording was never written: it was killed, or the disk was full"


@dataclass(frozen=True)
class Recording:
    """Outcome of a recording.

    Attributes
    ----------
    folder
        Where its files are; ``load.power`` reads it.
    exit_code
        Of the command, as a shell gives it.
    reading_count
        Rows that are in complete files.
    entities
        What was sampled.
    missing
        What could not be, in words.
    error
        Why sampling ended before the command did; empty if it did not.
    lost_count
        Rows that were read and could not be written.
    """

    folder: Path
    exit_code: int
    reading_count: int
    entities: tuple[str, ...]
    missing: tuple[str, ...]
    error: str = ""
    lost_count: int = 0


def record(command: Sequence[str], out: str | Path, *, period_s: float = 0.1) -> Recording:
    """Run a command and sample the power of this machine until it ends.

    GPUs are asked through NVML or ``amd-smi``, CPU packages through the kernel's energy
    counters. The command runs whatever happens to the sampling, and gets every signal; what
    was sampled is in files that are each complete, at most a minute after it was read.

    Parameters
    ----------
    command
        The command and its words. It is not given to a shell.
    out
        Folder to write; it must not hold a recording yet.
    period_s
        Time between readings, in s. ``amd-smi`` is not asked more than once a second.

    Returns
    -------
    Recording
        Exit code of the command, rows written, and what is missing.

    Raises
    ------
    RecordError
        If there is no such command, ``out`` cannot be written or holds a recording, or
        ``period_s`` is out of range.

    Notes
    -----
    Written are ``power_0001.parquet``, ... (a row per sensor and moment, stamps of the wall
    clock, halfway between asking and the answer) and ``recording.json``: command, host, GPUs
    with limits and driver, sampling method and period, what is missing, and the exit code.
    NVML's power is the mean of the last second from Ampere on, an instant before;
    ``average_w`` and ``instant_w`` are written too where the driver offers them.

    References
    ----------
    NVML API reference, nvmlDeviceGetPowerUsage and NVML_FI_DEV_POWER_*.
    """
    command = _words(command)
    folder = _checked(command, Path(out), period_s)
    samplers, missing = _found(socket.gethostname().split(".")[0] or "host")
    about = _about(command, samplers, missing, period_s)
    # True until the end is written over it, which a full disk or a kill may prevent.
    about |= {"start_ns": time.time_ns(), "error": _NO_END}
    with stops_passed_on() as stops:
        try:
            _claim(folder, about)  # says what runs, if this process is killed
            writer = Writer(folder, about, part_rows=_PART_ROWS, part_s=_PART_S)
            loop = Loop(samplers, writer, period_s=_period(samplers, period_s))
            code = _run(command, loop, stops, folder)
        finally:
            for sampler in samplers:
                sampler.close()
        for sampler in samplers:
            missing += [f"{reason} ({n:,} times)" for reason, n in sampler.missing.items()]
        about |= {
            "missing": missing,
            "end_ns": time.time_ns(),
            "exit_code": code,
            "signals": stops.names,
            "reading_count": writer.written_count,
            "lost_count": writer.row_count - writer.written_count,
            "late_count": loop.late_count,
            "clock_steps": loop.clock_steps,
            "error": loop.error,
        }
        unfinished = _finished(folder, about)
    entities = tuple(sensor["entity"] for sensor in about["sensors"])
    error = loop.error or unfinished
    lost = writer.row_count - writer.written_count
    return Recording(
        folder, code, writer.written_count, entities, tuple(missing), error, lost_count=lost
    )


def _run(command: Sequence[str], loop: Loop, stops: Stops, folder: Path) -> int:
    # Before the command, so that its first second is measured, too.
    loop.start()
    try:
        child = start(command)
    except RecordError:
        loop.finish()
        # Nothing ran, so there is no recording; the folder is free for the next attempt.
        for path in (folder / ABOUT, *folder.glob("power_*.parquet")):
            path.unlink(missing_ok=True)
        raise
    try:
        stops.to(child)
        return exit_code(child)
    finally:
        loop.finish()


def _words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(command, str | bytes):
        msg = f"command must be a list of words, such as {shlex.split(str(command))}"
        raise RecordError(msg)
    return [os.fspath(word) for word in command]


def _claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Take the folder for this recording; of several that begin at once one gets it."""
    try:
        # Mode x fails if the file exists, so that one of two recorders wins.
        (folder / ABOUT).open("x").close()
        write_about(folder, about)
    except FileExistsError:
        raise _held(folder) from None
    except OSError as error:
        (folder / ABOUT).unlink(missing_ok=True)
        msg = f"{folder}: cannot be written ({error.strerror}); name another folder"
        raise RecordError(msg) from None


def _finished(folder: Path, about: Mapping[str, Any]) -> str:
    """Write what is known at the end; say why it could not be, as the command's code counts."""
    try:
        write_about(folder, about)
    except OSError as error:
        return f"{ABOUT} covers the beginning only: {error}"
    return ""


def _held(folder: Path) -> RecordError:
    return RecordError(f"{folder}: holds a recording already; name another folder")


def _checked(command: Sequence[str], folder: Path, period_s: float) -> Path:
    if not command:
        msg = "there is no command to run; write it after --, as in: -- python train.py"
        raise RecordError(msg)
    if shutil.which(command[0]) is None:
        msg = f"{command[0]}: there is no such command; give its full path"
        raise RecordError(msg)
    if not 0 < period_s <= _LONGEST_PERIOD_S:
        msg = f"period_s must be above 0 and at most {_LONGEST_PERIOD_S:g}; got {period_s!r}"
        raise RecordError(msg)
    if (folder / ABOUT).exists() or list(folder.glob("power_*.parquet")):
        raise _held(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder}: cannot be made ({error.strerror}); name another folder"
        raise RecordError(msg) from None
    if not os.access(folder, os.W_OK):
        msg = f"{folder}: is not writable; name another folder"
        raise RecordError(msg)
    return folder


def _found(host: str) -> tuple[list[Sampler], list[str]]:
    """Try every way of sampling; say of each that is not here what was looked for."""
    samplers: list[Sampler] = []
    missing: list[str] = []
    for make in _SAMPLERS:
        try:
            samplers.append(make(host))
        except NotFoundError as error:
            missing.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the command runs
            missing.append(f"{make.__name__}: {type(error).__name__}: {error}")
    return samplers, missing


def _period(samplers: Sequence[Sampler], period_s: float) -> float:
    return max([period_s, *(sampler.least_period_s for sampler in samplers)])


def _about(
    command: Sequence[str], samplers: Sequence[Sampler], missing: list[str], period_s: float
) -> dict[str, Any]:
    return {
        "command": list(command),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "workbench": __version__,
        "samplers": [sampler.name for sampler in samplers],
        "period_s": _period(samplers, period_s),
        "asked_period_s": period_s,
        "sensors": [asdict(sensor) for sampler in samplers for sensor in sampler.sensors],
        "missing": list(missing),
    }


# Run a command so that a stop reaches it exactly once, and wait for it to the end.

_SIGNALLED = 128
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the command, or say why it cannot be."""
    try:
        return subprocess.Popen(list(command))
    except OSError as error:
        msg = f"{command[0]}: cannot be run ({error.strerror})"
        raise RecordError(msg) from None


class Stops:
    """Signals that came while the recorder ran, each passed on to the command.

    Ctrl-C in a terminal reaches every process of the foreground, the command too; passed on
    once more it would interrupt what the command does about it.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def to(self, child: subprocess.Popen[bytes]) -> None:
        """Pass on to this command, also what came before it ran."""
        self._child = child
        for number in self._early:
            self._tell(number)

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal and pass it on; once the command has ended it only is noted."""
        self.names.append(signal.Signals(number).name)
        if self._child is None:
            self._early.append(number)
        elif number != signal.SIGINT or not _terminal_tells_all():
            self._tell(number)

    def _tell(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


@contextlib.contextmanager
def stops_passed_on() -> Iterator[Stops]:
    """Pass signals on to the command, from before it runs until all files are written.

    One that comes while the files are written must not break that off.
    """
    came = Stops()
    before: dict[int, Any] = {}
    is_main = threading.current_thread() is threading.main_thread()
    for stop in _PASSED_ON if is_main else ():
        if signal.getsignal(stop) != signal.SIG_IGN:  # as nohup and shells in scripts ask
            before[stop] = signal.signal(stop, came.take)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command; give its exit code as a shell would."""
    code = child.wait()
    # Popen gives -n for signal n, a shell 128 + n.
    return code if code >= 0 else _SIGNALLED - code


def _terminal_tells_all() -> bool:
    """Return whether this process is in the foreground of a terminal, as the command is then.

    Where its input comes from says nothing of that: ``< /dev/null`` leaves it there.
    """
    try:
        # O_NOCTTY: asking must not make the terminal that of this process.
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# The files of a recording: each is put in place when it is complete, so none is ever half.

KEY = b"workbench.recording"
VERSION = 1
ABOUT = "recording.json"
SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("entity", pa.dictionary(pa.int32(), pa.string())),
        ("power_w", pa.float64()),
        ("average_w", pa.float64()),
        ("instant_w", pa.float64()),
        ("energy_j", pa.float64()),
        ("limit_w", pa.float64()),
        ("clock_mhz", pa.float64()),
        ("busy_share", pa.float64()),
        ("temperature_c", pa.float64()),
        ("reasons", pa.int64()),
        ("power_violation_ns", pa.int64()),
    ]
)


class Writer:
    """Keeps readings until a part is full, then writes it as a file of its own."""

    def __init__(
        self, folder: Path, about: Mapping[str, Any], *, part_rows: int, part_s: float = 60.0
    ) -> None:
        self._folder = folder
        self._about = about
        self._part_rows, self._part_s = part_rows, part_s
        self._begun_s = 0.0
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self.part_count = 0
        self.row_count = 0
        self.written_count = 0

    def add(self, time_ns: int, rows: Sequence[tuple[str, Values]]) -> None:
        """Keep the readings of one moment."""
        if not self._columns["time_ns"]:
            self._begun_s = time.monotonic()
        for entity, values in rows:
            row = {**values, "time_ns": time_ns, "entity": entity}
            for name, column in self._columns.items():
                column.append(row.get(name))
        self.row_count += len(rows)
        is_full = len(self._columns["time_ns"]) >= self._part_rows
        if is_full or time.monotonic() - self._begun_s >= self._part_s:
            self.flush()

    def flush(self) -> None:
        """Write what is kept as the next part."""
        if not self._columns["time_ns"]:
            return
        arrays = [pa.array(self._columns[field.name], field.type) for field in SCHEMA]
        note = json.dumps({"version": VERSION, **self._about}).encode()
        table = pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata({KEY: note}))
        path = self._folder / f"power_{self.part_count + 1:04d}.parquet"
        write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))
        self.part_count += 1
        self.written_count += table.num_rows
        self._columns = {name: [] for name in SCHEMA.names}


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write what is known of the recording, for people and for loaders."""
    text = json.dumps({"workbench_recording": VERSION, **about}, indent=2) + "\n"
    write_whole(folder / ABOUT, lambda file: file.write(text.encode()))


# Read all sensors at even times until told to stop.

_STEP_NS = 100_000_000  # the wall clock was set, rather than disciplined


class Loop(threading.Thread):
    """A thread that samples; a failure ends the sampling, never the command beside it.

    Attributes
    ----------
    late_count
        Times that were dropped because reading took longer than the period.
    clock_steps
        Times at which the wall clock was set, as ns since 1970 and ns forward.
    error
        Why sampling ended early; empty if it did not.
    """

    def __init__(self, samplers: Sequence[Sampler], writer: Writer, *, period_s: float) -> None:
        super().__init__(name="power sampling", daemon=True)
        self._samplers = samplers
        self._writer = writer
        self._period_s = period_s
        self._asked_to_stop = threading.Event()
        self.late_count = 0
        self.clock_steps: list[tuple[int, int]] = []
        self.error = ""

    def run(self) -> None:
        """Sample, until stopped or until reading or writing fails; write what is kept."""
        # The flush comes after a failure, too: what was read is kept.
        for work in (self._run, self._writer.flush):
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on
                self.error = self.error or f"{type(error).__name__}: {error}"

    def finish(self) -> None:
        """Take one reading more, write what is kept, and end."""
        self._asked_to_stop.set()
        self.join()

    def _run(self) -> None:
        if not self._samplers:
            return
        offset = time.time_ns() - time.monotonic_ns()
        due = time.monotonic()
        while True:
            is_last = self._asked_to_stop.is_set()
            for sampler in self._samplers:
                # Reading takes milliseconds; their middle is the best single time for all sensors.
                before = time.time_ns()
                rows = sampler.read()
                self._writer.add((before + time.time_ns()) // 2, rows)
            offset = self._watched(offset)
            if is_last:
                return
            # Added up, not counted from now: small delays do not accumulate.
            due += self._period_s
            behind = time.monotonic() - due
            if behind > 0:
                # Moments that have passed are skipped: a burst of late readings tells nothing.
                skipped = int(behind / self._period_s) + 1
                self.late_count += skipped
                due += skipped * self._period_s
            self._asked_to_stop.wait(max(0.0, due - time.monotonic()))

    def _watched(self, offset: int) -> int:
        """Note if the wall clock moved against the one that never steps."""
        now = time.time_ns() - time.monotonic_ns()
        if abs(now - offset) >= _STEP_NS:
            self.clock_steps.append((time.time_ns(), now - offset))
        return now
