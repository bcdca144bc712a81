"""Run a command so that a stop reaches it exactly once, and wait for it to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
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
    return code if code >= 0 else _SIGNALLED - code


def _terminal_tells_all() -> bool:
    """Say whether this process is in the foreground of a terminal, as the command is then.

    Where its input comes from says nothing of that: ``< /dev/null`` leaves it there.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
