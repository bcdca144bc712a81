"""Run a command so that a stop reaches it exactly once, and wait for it to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from workbench.errors import RecordError

_SIGNALLED = 128
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the command, or say why it cannot be."""
    try:
        return subprocess.Popen(list(command))
    except OSError as error:
        msg = f"{command[0]}: cannot be run ({error.strerror})"
        raise RecordError(msg) from None


@contextlib.contextmanager
def stops_passed_on(child: subprocess.Popen[bytes]) -> Iterator[list[str]]:
    """Pass signals on to the command while it runs; give the names of those that came.

    Ctrl-C in a terminal reaches every process of the foreground, the command too; passed on
    once more it would interrupt what the command does about it.
    """
    came: list[str] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)
        if number != signal.SIGINT or not _terminal_tells_all():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    before: dict[int, Any] = {}
    for stop in _PASSED_ON:
        if signal.getsignal(stop) != signal.SIG_IGN:  # as nohup and shells in scripts ask
            before[stop] = signal.signal(stop, pass_on)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command; give its exit code as a shell would."""
    code = child.wait()
    return code if code >= 0 else _SIGNALLED - code


def _terminal_tells_all() -> bool:
    """Say whether this process is in the foreground of a terminal, as the command is then."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    except (OSError, ValueError):
        return False
