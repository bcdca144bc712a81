"""Runs of the notebooks of the product: each is done once, whatever tests look at it."""

import fcntl
import importlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from tests.notebooks.conftest import ON_BUNDLED_DATA
from workbench import datasets
from workbench.share._execute import execute  # by name: pages of these runs replace it there
from workbench.share._prose import ABSENT_MIME
from workbench.share._tables import TABLE_MIME

_report = importlib.import_module("workbench.share.report")
# What a notebook displayed is in Out of its kernel, explorers with their controls.
MOVE_EXPLORERS = Path(__file__).with_name("explorers.py").read_text()
MOVE_EXPLORERS += "\nimport json\n\nprint(json.dumps(report(Out.values())))\n"


@dataclass
class Run:
    """A notebook that was run, the seconds it took, and how its explorers answered."""

    notebook: Any
    seconds: float
    answers: dict[str, Any]


class Runs:
    """Runs of notebooks, kept in a folder for all processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Pages are made side by side, and the environment is that of the whole process.
        self._one_at_a_time = threading.Lock()

    def offline(self, path: Path) -> Run:
        """Run a notebook as a newcomer does, without mirror, cache or network; move its controls."""
        return self._once(f"{path.stem}-offline", lambda: self._offline(path))

    def published(self, path: Path) -> Any:
        """Run a notebook on the best data available."""
        if path.stem in ON_BUNDLED_DATA:
            return self.offline(path).notebook
        return self._once(path.stem, lambda: _executed(path, for_pages=True)).notebook

    def _offline(self, path: Path) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(datasets.MIRROR_ENV, raising=False)
            patch.setenv(datasets.CACHE_ENV, str(self._folder / "cache"))
            for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
                patch.setenv(name, "http://127.0.0.1:9")
            move = new_code_cell(MOVE_EXPLORERS)
            run = _executed(path, move, for_pages=path.stem in ON_BUNDLED_DATA)
        run.answers = json.loads(run.notebook.cells.pop().outputs[0].text)
        run.seconds -= run.answers["seconds"]
        return run

    def _once(self, name: str, make: Callable[[], Run]) -> Run:
        with self._one_at_a_time, (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = self._folder / f"{name}.json"
            if not kept.exists():
                kept.write_text(json.dumps(asdict(make())))
        run = Run(**json.loads(kept.read_text()))
        run.notebook = nbformat.from_dict(run.notebook)
        return run


def without_values(notebook: Any) -> Any:
    """Take from a notebook what only pages need, beside the states of explorers."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for mime in (TABLE_MIME, ABSENT_MIME):
                output.get("data", {}).pop(mime, None)
    return notebook


def _executed(path: Path, *cells: Any, for_pages: bool) -> Run:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += cells
    # All states of all explorers take as long as the notebook itself.
    preamble = _report._PREAMBLE if for_pages else ""
    start = time.monotonic()
    execute(notebook, path, timeout_s=600, preamble=preamble, go_on=True, show_progress=False)
    return Run(notebook, time.monotonic() - start, {})
