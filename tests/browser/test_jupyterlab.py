"""A notebook in a real JupyterLab: opened, run, a control moved, the figure seen to change.

How a control reaches its figure depends on the kind of control, not on the explorer: each kind is
moved here, and each control of each explorer in the kernel (tests/notebooks/test_runs.py).
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from tests.browser.conftest import NOTEBOOKS
from tests.browser.controls import KINDS_OF_CONTROLS, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]

START_S, RUN_S, CHANGE_S = 90, 180, 30
# anywidget 0.11 says so where the browser takes two seconds for a script; the figure comes later.
SLOW_SCRIPT = "[anywidget] Failed to initialize model."
KERNEL_IS_READY = "text=/Python 3 .*\\| Idle/"
PROMPTS = "all => all.map(prompt => prompt.textContent)"
CONTROLS = (
    ".jp-OutputArea-output select, .jp-OutputArea-output .noUi-handle, "
    ".jp-OutputArea-output .widget-toggle-buttons button:not(.mod-active), "
    ".jp-OutputArea-output .widget-checkbox input"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory, notebooks):
    """Start JupyterLab on a copy of the notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    root = folder / "notebooks"
    root.mkdir()
    for path in notebooks:
        shutil.copy(path, root)
    write_notebook(root / "controls.ipynb")
    write_campaign(root / "campaign.ipynb")
    with serving(folder, "jupyterlab") as address:
        yield address


@contextmanager
def serving(folder, application, python=sys.executable):
    """Serve the notebooks of a folder by JupyterLab or Notebook, with no settings of the user."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    command = [
        *(python, "-m", application, "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={folder / 'notebooks'}"),
        *("--IdentityProvider.token=", "--ServerApp.password="),
        *("--ServerApp.disable_check_xsrf=True", "--LabApp.news_url=None"),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    log = folder / "lab.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **{name: str(folder / name.lower()) for name in folders}},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(address, process, log), START_S, f"{application} did not start")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def write_campaign(path):
    """Write a notebook with the published cells that a running campaign needs, and no others."""
    notebook = nbformat.read(NOTEBOOKS / "04_pvf_fault_injection.ipynb", as_version=4)
    needed = r"^data = None|^from workbench|^results = |^DIGITS = "
    # So many sites that there is time to stop.
    code = [c.source.replace("4000", "40_000") for c in notebook.cells if c.cell_type == "code"]
    notebook.cells = [new_code_cell(text) for text in code if re.search(needed, text, re.MULTILINE)]
    nbformat.write(notebook, path)


@pytest.fixture
def lab(server):
    """Give the address of JupyterLab; no kernel outlives the test."""
    yield server
    end_kernels(server)


def answers(address, process, log):
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"{address}/api/status", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def end_kernels(address):
    with urllib.request.urlopen(f"{address}/api/sessions", timeout=10) as answer:
        sessions = json.load(answer)
    for session in sessions:
        place = f"{address}/api/sessions/{session['id']}"
        urllib.request.urlopen(urllib.request.Request(place, method="DELETE"), timeout=30).close()


def wait_until(is_true, limit_s, otherwise):
    deadline = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.3)


def run_all(page):
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_S * 1000)
    # Run before the kernel is there, and JupyterLab asks which one to use.
    page.wait_for_selector(KERNEL_IS_READY, timeout=START_S * 1000)
    page.click(".lm-MenuBar-item:has-text('Run')")
    page.click(".lm-Menu-item:has-text('Run All Cells') >> nth=0")
    # The copy is a published one and has numbers already: wait for the kernel to begin.
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    wait_until(lambda: "*" in "".join(prompts.evaluate_all(PROMPTS)), START_S, "no cell runs")
    wait_until(lambda: "*" not in "".join(prompts.evaluate_all(PROMPTS)), RUN_S, "the cells run on")


def move(page, control):
    """Set a control to its next value, as a hand would."""
    tag = control.evaluate("control => control.tagName")
    if tag == "SELECT":
        options = control.locator("option").count()
        now = control.evaluate("control => control.selectedIndex")
        control.select_option(index=(now + 1) % options)
    elif tag in {"BUTTON", "INPUT"}:
        control.click()
    else:
        control.focus()
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize(
    ("name", "explorers"), [("controls", len(KINDS_OF_CONTROLS)), ("01_traces", 3)]
)
def test_moving_a_control_of_any_kind_changes_its_figure(lab, opened, name, explorers):
    address = f"{lab}/lab/tree/{name}.ipynb?reset"
    with opened(address, policy=False, known=SLOW_SCRIPT) as page:
        run_all(page)
        assert page.locator(".jp-RenderedText[data-mime-type*='error']").count() == 0
        cells = page.locator(".jp-CodeCell").filter(has=page.locator(CONTROLS))
        wait_until(lambda: cells.count() == explorers, CHANGE_S, "explorers are missing")
        still = [cell for cell in cells.all() if not figure_changes(page, cell)]
        assert [cell.locator(".jp-InputArea").inner_text() for cell in still] == []


def figure_changes(page, cell):
    """Move the controls of a cell, one after the other, until its figure is another."""
    cell.scroll_into_view_if_needed()
    figure = cell.locator(".js-plotly-plot").first
    figure.wait_for(state="attached", timeout=CHANGE_S * 1000)
    before = figure.inner_html()
    for control in cell.locator(CONTROLS).all():
        move(page, control)
        if changes(figure, before):
            return True
    return False


def changes(figure, before):
    deadline = time.monotonic() + CHANGE_S / 3
    while time.monotonic() < deadline:
        if figure.count() and figure.inner_html() != before:
            return True
        time.sleep(0.1)
    return False


def test_a_campaign_runs_while_it_is_watched_and_stops_when_told(lab, opened, torch_here):
    with opened(f"{lab}/lab/tree/campaign.ipynb?reset", policy=False) as page:
        run_all(page)
        cell = page.locator(".jp-CodeCell").filter(
            has=page.locator(".jp-OutputArea-output button:has-text('Inject')")
        )
        cell.scroll_into_view_if_needed()
        figure = cell.locator(".js-plotly-plot").first
        figure.wait_for(state="attached", timeout=CHANGE_S * 1000)
        before = figure.inner_html()
        inject, stop = (
            cell.locator(f".jp-OutputArea-output button:has-text('{name}')")
            for name in ("Inject", "Stop")
        )
        inject.click()
        wait_until(
            lambda: "injecting" in cell.inner_text(), RUN_S, "nothing is injected, or not shown"
        )
        stop.click()
        wait_until(inject.is_enabled, CHANGE_S, "it does not stop")
        assert "stopped at" in cell.inner_text()
        assert changes(figure, before)
