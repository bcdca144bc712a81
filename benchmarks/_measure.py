"""Measured actions, each in a fresh process, and what is known of the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

_CHILD = Path(__file__).with_name("_child.py")
_PEER_FOLDER = Path(__file__).resolve().parents[1] / ".venv-hta"
PEER = "HolisticTraceAnalysis 0.5.0 with pandas 2"
_PEER_NEEDS = ("HolisticTraceAnalysis==0.5.0", "pandas>=2.2,<3")
_LIBRARIES = ("ai-infra-workbench", "pandas", "pyarrow", "numpy")


@dataclass
class Runs:
    """The measured runs of one action on one file."""

    results: list[dict[str, Any]] = field(default_factory=list)

    def median(self, part: str, what: str) -> float:
        """Return the median of a cost, e.g. ``("load", "wall_s")``."""
        return statistics.median(result[part][what] for result in self.results)

    def seen(self, what: str) -> Any:
        """Return what the last run saw, e.g. the number of rows."""
        return self.results[-1]["seen"].get(what)


def run(
    action: str,
    path: Path,
    *,
    python: Path | None = None,
    cache: Path | None = None,
    engine: str = "auto",
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run one action of ``_child.py`` in a fresh process and return its costs.

    Parameters
    ----------
    action
        ``workbench``, ``hta``, ``gunzip`` or ``json``.
    path
        The trace.
    python
        Interpreter; None is the one that runs this.
    cache
        Cache directory of the loader.
    engine
        Engine of the loader.
    environment
        Further environment variables.

    Raises
    ------
    RuntimeError
        If the process fails; holds the end of its error output.
    """
    command = [str(python or sys.executable), str(_CHILD), action, str(path), str(cache or "")]
    done = subprocess.run(
        [*command, engine],
        capture_output=True,
        text=True,
        check=False,
        # Byte code is kept, as that of an installed package is: the peer's came with it.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
    )
    if done.returncode:
        msg = f"{' '.join(command)} failed:\n{done.stderr[-2000:]}"
        raise RuntimeError(msg)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def peer() -> Path:
    """Return the interpreter of HolisticTraceAnalysis, installed from PyPI if it is not yet.

    It has an environment of its own, since it needs an older pandas.

    Raises
    ------
    RuntimeError
        If it cannot be installed; holds the end of pip's error output.
    """
    python = _PEER_FOLDER / "bin" / "python"
    ready = _PEER_FOLDER / "ready"
    wanted = "\n".join(_PEER_NEEDS)
    if not ready.is_file() or ready.read_text(encoding="ascii") != wanted:
        print(f"installing {PEER} into {_PEER_FOLDER.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(_PEER_FOLDER)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *_PEER_NEEDS], capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"cannot install {PEER}; --no-peer measures without it:\n{done.stderr[-2000:]}"
            raise RuntimeError(msg)
        ready.write_text(wanted, encoding="ascii")
    return python


def read_once(path: Path) -> None:
    """Read a file, so that it is in memory when the first measured process wants it."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def seconds(*actions: Callable[[], object], rounds: int) -> list[float]:
    """Return the median processor time of each action, taken in turn: noise hits them alike."""
    times: list[list[float]] = [[] for _ in actions]
    for action in actions:
        action()
    for _ in range(rounds):
        for action, taken in zip(actions, times, strict=True):
            began = time.process_time()
            action()
            taken.append(time.process_time() - began)
    return [statistics.median(each) for each in times]


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def machine() -> dict[str, str]:
    """Describe the machine and what runs on it."""
    info = {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": _field("/proc/meminfo", "MemTotal") or "unknown",
        "system": platform.platform(),
        "python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }
    return info | {name: version(name) for name in _LIBRARIES}


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
    return found[0] if found else ""
