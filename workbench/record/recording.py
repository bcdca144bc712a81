"""Record power while a command runs."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.errors import RecordError
from workbench.record import _child
from workbench.record._amd import amd_sampler
from workbench.record._files import ABOUT, Writer, write_about
from workbench.record._loop import Loop
from workbench.record._nvml import nvml_sampler
from workbench.record._rapl import rapl_sampler
from workbench.record._sampler import NotFoundError, Sampler

_PART_ROWS = 60_000
_PART_S = 60.0
_SAMPLERS: tuple[Callable[[str], Sampler], ...] = (nvml_sampler, amd_sampler, rapl_sampler)
_LONGEST_PERIOD_S = 3600.0
_NO_END = "the end of the recording was never written: it was killed, or the disk was full"


@dataclass(frozen=True)
class Recording:
    """What became of a recording.

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
    with _child.stops_passed_on() as stops:
        try:
            _claim(folder, about)  # says what runs, if this process is killed
            writer = Writer(folder, about, part_rows=_PART_ROWS, part_s=_PART_S)
            loop = Loop(samplers, writer, period_s=_period(samplers, period_s))
            code = _run(command, loop, stops, folder)
        finally:
            for sampler in samplers:
                sampler.close()
        for each in samplers:
            missing += [f"{what} ({n:,} times)" for what, n in each.missing.items()]
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


def _run(command: Sequence[str], loop: Loop, stops: _child.Stops, folder: Path) -> int:
    loop.start()
    try:
        child = _child.start(command)
    except RecordError:
        loop.finish()
        # Nothing ran, so there is no recording; the folder is free for the next attempt.
        for path in (folder / ABOUT, *folder.glob("power_*.parquet")):
            path.unlink(missing_ok=True)
        raise
    try:
        stops.to(child)
        return _child.exit_code(child)
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
        return f"{ABOUT} tells of the beginning only: {error}"
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
        msg = f"{folder}: may not be written; name another folder"
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
