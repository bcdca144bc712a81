"""A figure that changes in place, under a hand: in JupyterLab and in Notebook 7.

Notebook is not among the requirements: where it is missing, it is installed beside them for the
test. ``JUPYTERLAB_OF_TEST`` names another JupyterLab to try, e.g. ``jupyterlab==4.4.*``.
"""

import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.controls import KERNEL
from tests.browser.test_jupyterlab import CHANGE_S, START_S, end_kernels, serving, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.essential]

# Drawing each of 100 levels would take 10 s.
DRAW = """import time

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench.explore import Explorer


def draw(level):
    time.sleep(0.1)
    figure = go.Figure([
        go.Scatter(x=[1, 2, 3], y=[level, 50, 10], name="one"),
        go.Scatter(x=[1, 2, 3], y=[10, level, 30], name="two"),
    ])
    return figure.update_layout(title_text=f"level {level}", xaxis_title="time [s]")
"""
SHOW = """Explorer(
    draw, level=widgets.SelectionSlider(options=range(100), value=20, description="level")
)"""
PLACES = {"jupyterlab": "lab/tree/view.ipynb?reset", "notebook": "notebooks/view.ipynb"}
PACKAGES = {"jupyterlab": os.environ.get("JUPYTERLAB_OF_TEST"), "notebook": "notebook>=7,<8"}
# Notebook 7.6 raises this while it starts, with any notebook.
ERROR_OF_NOTEBOOK = "Cannot read properties of undefined (reading 'schema')"
INDICATOR = ".jp-Notebook-ExecutionIndicator"
TITLE = ".workbench-figure .gtitle"
STATE = """() => {
    const {_fullLayout: layout, _fullData: data} = document.querySelector(".workbench-figure");
    return {range: layout.xaxis.range, seen: data.map(trace => trace.visible)};
}"""
WATCH = """() => {
    window.titles = [];
    const look = () => {
        const title = document.querySelector(".workbench-figure .gtitle")?.textContent;
        if (title && title !== window.titles.at(-1)) window.titles.push(title);
        requestAnimationFrame(look);
    };
    look();
}"""


@pytest.fixture(scope="module", params=PLACES)
def address(request, tmp_path_factory, absent):
    """Give the address of a notebook with one explorer."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "notebooks").mkdir()
    cells = [new_code_cell(DRAW), new_code_cell(SHOW)]
    notebook = new_notebook(cells=cells, metadata=KERNEL)
    nbformat.write(notebook, folder / "notebooks" / "view.ipynb")
    package = PACKAGES[request.param]
    python = sys.executable if package is None else python_with(package, folder / "python", absent)
    with serving(folder, request.param, python) as server:
        yield f"{server}/{PLACES[request.param]}"
        end_kernels(server)


def python_with(package, folder, absent):
    """Install a package from PyPI in front of those that are installed here."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    own, ours = Path(sysconfig.get_path("purelib", vars={"base": str(folder)})), sys.prefix
    # Added as a site, so that an editable installation in it counts, too.
    ours_at = sysconfig.get_path("purelib")
    (own / "ours.pth").write_text(f"import site; site.addsitedir({ours_at!r})")
    command = [python, "-m", "pip", "install", "-q", "--ignore-installed", "--no-deps", package]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        absent(f"{package} cannot be installed here; PyPI is needed")
    # Extensions for the browser lie beside the packages.
    for kind in ("labextensions", "lab/schemas", "lab"):
        for theirs in (Path(ours) / "share" / "jupyter" / kind).glob("*"):
            mine = folder / "share" / "jupyter" / kind / theirs.name
            if not mine.exists():
                mine.parent.mkdir(parents=True, exist_ok=True)
                mine.symlink_to(theirs)
    return str(python)


def shown(page, title):
    wait_until(lambda: page.text_content(TITLE) == title, CHANGE_S, f"{title!r} does not come")


def middle(box, share=0.5):
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def test_zoom_legend_and_slider_survive_a_move_and_only_the_newest_state_is_drawn(address, opened):
    with opened(address, policy=False, known=ERROR_OF_NOTEBOOK) as page:
        run_all(page)
        shown(page, "level 20")
        figure = page.locator(".workbench-figure").element_handle()
        kept = hide_and_zoom(page)
        page.mouse.click(*middle(page.locator(".noUi-target").first.bounding_box(), 0.5))
        readout = page.locator(".widget-readout").first
        wait_until(lambda: readout.text_content() != "20", CHANGE_S, "the slider stands still")
        shown(page, f"level {readout.text_content()}")
        assert page.evaluate(STATE) == kept
        drag(page)
        assert page.evaluate(STATE) == kept
        assert page.evaluate("figure => figure.isConnected", figure)


def test_a_saved_notebook_shows_its_figure_where_no_kernel_knows_its_widgets(tmp_path, opened):
    notebook = new_notebook(cells=[new_code_cell(DRAW), new_code_cell(SHOW)], metadata=KERNEL)
    NotebookClient(notebook, store_widget_state=False).execute()
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "view.ipynb")
    with (
        serving(tmp_path, "jupyterlab") as server,
        opened(f"{server}/{PLACES['jupyterlab']}", policy=False) as page,
    ):
        title = page.locator(".jp-OutputArea-output .gtitle")
        title.first.wait_for(timeout=START_S * 1000)
        assert title.all_text_contents() == ["level 20"]
        assert "model not found" not in page.locator(".jp-Notebook").inner_text()
        end_kernels(server)


def run_all(page):
    # Run before the kernel is there, and a dialog asks which one to use.
    for ready in (".jp-KernelName:has-text('Python 3')", f"{INDICATOR}[data-status='idle']"):
        page.wait_for_selector(ready, timeout=START_S * 1000)
    page.wait_for_timeout(1_000)
    page.click(".lm-MenuBar-item:has-text('Run')")
    page.click(".lm-Menu-item:has-text('Run All Cells') >> nth=0")
    page.wait_for_selector(TITLE, timeout=START_S * 1000)


def hide_and_zoom(page):
    """Hide the second entry of the legend, zoom with the mouse, and return what is seen then."""
    whole = page.evaluate(STATE)
    page.locator(".workbench-figure .legendtoggle").nth(1).click()
    wait_until(lambda: page.evaluate(STATE)["seen"] == [True, "legendonly"], CHANGE_S, "not hidden")
    plot = page.locator(".workbench-figure .nsewdrag").first.bounding_box()
    page.mouse.move(*middle(plot, 0.3))
    page.mouse.down()
    page.mouse.move(*middle(plot, 0.6), steps=5)
    page.mouse.up()
    wait_until(lambda: page.evaluate(STATE)["range"] != whole["range"], CHANGE_S, "no zoom")
    return page.evaluate(STATE)


def drag(page):
    """Drag the slider over seventy states, each of which takes the kernel a tenth of a second."""
    page.evaluate(WATCH)
    handle = page.locator(".noUi-handle").first.bounding_box()
    track = page.locator(".noUi-target").first.bounding_box()
    page.mouse.move(*middle(handle))
    page.mouse.down()
    for share in range(25, 96):
        page.mouse.move(*middle(track, share / 100))
        page.wait_for_timeout(15)
    during = len(page.evaluate("window.titles"))
    page.mouse.up()
    let_go = time.monotonic()
    shown(page, f"level {page.locator('.widget-readout').first.text_content()}")
    # Some were drawn while the hand moved, and none waited in a queue.
    assert during > 2
    assert time.monotonic() - let_go < 3
    assert len(page.evaluate("window.titles")) < 60
