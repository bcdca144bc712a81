"""Small notebooks and the browser for the tests of pages."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workbench.share import _execute
from workbench.share.svg import why_no_pictures

OPENING = """# Who waits for whom?

**Question.** Which rank comes last?

**Answer.** Rank 7, in 5 of 8 collectives.

**Data.** A made-up job. **Runs in** 2 s."""

IMPORTS = """import plotly.graph_objects as go
import ipywidgets
from workbench.explore.panel import Explorer"""

FIGURE = """late = 7 if data is None else len(data)
meta = {"source": "a made-up job", "origin": "data set" if data is None else "own"}
layout = {"title": {"text": f"Rank {late} comes <b>last</b>"}, "meta": meta}
go.Figure(go.Bar(x=["a", "b"], y=[1, late]), layout=layout)"""

EXPLORER = """def draw(freq, kind):
    title = f"freq is {freq}, drawn as {kind}"
    return go.Figure(go.Scatter(y=[freq, 1, freq], mode=kind), layout={"title": {"text": title}})

explorer = Explorer(
    draw,
    freq=ipywidgets.IntSlider(2, min=1, max=4, description="freq"),
    kind=ipywidgets.Dropdown(options=["lines", "markers"], description="kind"),
)
explorer"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Pretend to run notebooks: give the outputs of every code cell by its source."""
    outputs: dict[str, Any] = {}

    def execute(notebook: Any, *_path: Any, **_options: Any) -> None:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                made = outputs.get(cell.source, [])
                if isinstance(made, BaseException):
                    raise made
                cell.outputs = [nbformat.from_dict(output) for output in made]

    monkeypatch.setattr(_execute, "execute", execute)
    draw_as(monkeypatch, "<svg><text>still</text></svg>")
    return outputs


def draw_as(monkeypatch: pytest.MonkeyPatch, picture: str) -> None:
    """Let every figure have the same picture, so that no browser is needed."""
    for module in ("report", "_exporter"):
        place = import_module(f"workbench.share.{module}")
        monkeypatch.setattr(place, "svg_of", lambda _figure: picture)


@pytest.fixture
def notebook(tmp_path: Path, write_notebook: Callable[..., Path]) -> Path:
    """Write a notebook of three cells."""
    return write_notebook(tmp_path / "01_waits.ipynb", "figure", "table", "other")


@pytest.fixture(scope="session")
def chromium(absent: Callable[[str], NoReturn]) -> None:
    """Need a browser and kaleido."""
    if reason := why_no_pictures():
        absent(reason)


@pytest.fixture(scope="session")
def code() -> SimpleNamespace:
    """Give cells that import what is needed, show a figure, show an explorer."""
    return SimpleNamespace(imports=IMPORTS, figure=FIGURE, explorer=EXPLORER)


@pytest.fixture(scope="session")
def write_notebook() -> Callable[..., Path]:
    """Give a function that writes a notebook: texts starting with # are Markdown, others code."""

    def write(path: Path, *sources: str, parameters: str = "data = None") -> Path:
        cells = [
            new_markdown_cell(source) if source.startswith("#") else new_code_cell(source)
            for source in (OPENING, *sources)
        ]
        if parameters:
            cells.insert(1, new_code_cell(parameters, metadata={"tags": ["parameters"]}))
        nbformat.write(new_notebook(cells=cells), path)
        return path

    return write


@pytest.fixture
def interrupted(tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    """Give a function that runs a program until its kernel works, then presses Ctrl-C.

    The notebooks of the program hold the cell ``waiting``. Returned are the process id of the kernel,
    and what the program printed on stderr.
    """

    def run(program: str) -> tuple[int, str]:
        mark = tmp_path / "pid"
        # A shell that starts something in the background makes it ignore Ctrl-C.
        heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        started = subprocess.Popen(
            [sys.executable, "-c", heeding + program], stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 90
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < deadline, "no notebook started"
            assert started.poll() is None, started.stderr.read() if started.stderr else ""
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=60)
        return int(mark.read_text()), errors

    return run


@pytest.fixture
def waiting(tmp_path: Path) -> str:
    """Give a cell that writes the process id of its kernel to ``pid``, and waits."""
    mark = str(tmp_path / "pid")
    return (
        f"import os, pathlib, time\npathlib.Path({mark!r}).write_text(str(os.getpid()))\n"
        "time.sleep(300)"
    )
