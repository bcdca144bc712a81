"""To which category an exception or a signal of a training process belongs."""

from __future__ import annotations

import re
import signal

# The first that matches counts. Running out of GPU memory is a matter of the program, not a
# fault of the memory, so it is software; "gpu memory" is for uncorrectable errors.
_BY_TEXT = [
    (re.compile(r"uncorrectable ecc|ECC error", re.IGNORECASE), "gpu memory"),
    (re.compile(r"uncorrectable nvlink|nvlink error", re.IGNORECASE), "nvlink"),
    (re.compile(r"out of memory|OutOfMemoryError|MemoryError|bad_alloc"), "software"),
    (re.compile(r"device-side assert|invalid device ordinal|invalid argument"), "software"),
    (re.compile(r"CUDA error|Cuda failure|CUDNN_STATUS|CUBLAS_STATUS", re.IGNORECASE), "gpu"),
    (re.compile(r"No space left on device|Stale file handle|Input/output error"), "storage"),
    (re.compile(r"Read-only file system|Transport endpoint is not connected"), "storage"),
    (re.compile(r"ncclSystemError|unhandled system error|network error|ibv_"), "network"),
    (re.compile(r"collective operation timeout|NCCL|DistBackendError"), "unknown"),
    (re.compile(r"Connection (reset|closed|refused)|BrokenPipe|Rendezvous"), "unknown"),
    (re.compile(r"SignalException|KeyboardInterrupt|SystemExit"), "unknown"),
]
# Signals that a program brings on itself. SIGKILL, SIGTERM, SIGABRT and SIGBUS have many
# senders (memory killer, scheduler, watchdog, full shared memory) that nobody recorded.
_OWN_FAULT = {"SIGSEGV", "SIGFPE", "SIGILL"}


def category_of_error(text: str) -> str:
    """Return the category of an exception by its type and message."""
    return next((category for pattern, category in _BY_TEXT if pattern.search(text)), "software")


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def category_of_signal(name: str) -> str:
    """Return the category of a process that ended by a signal."""
    return "software" if name in _OWN_FAULT else "unknown"
