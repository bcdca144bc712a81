"""Notebooks as a newcomer runs them: offline, with nothing but the bundled data."""

import copy
import csv
import importlib
import re
from pathlib import Path

import nbformat
import pytest

from tests.browser.controls import KINDS_OF_CONTROLS
from tests.notebooks.conftest import ON_BUNDLED_DATA
from tests.notebooks.runs import without_values
from workbench import datasets
from workbench.share import _execute, _normalise, _snapshot
from workbench.share.bundle import PLOTLY_MIME, title_of

publish = importlib.import_module("workbench.share.publish")
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

pytestmark = [pytest.mark.slow, pytest.mark.essential]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def run(request, runs):
    """Give a notebook's name, the notebook with its pictures, the seconds it took, the answers."""
    run = runs.offline(request.param)
    notebook, answers = run.notebook, run.answers
    answers["published"] = publish.difference(
        without_values(copy.deepcopy(notebook)), request.param
    )
    _normalise.without_progress(notebook)
    _snapshot.add_pictures(notebook, lambda _figure: "<svg></svg>")
    return request.param.stem, notebook, run.seconds, answers


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def figures_of(notebook):
    return [o.data[PLOTLY_MIME] for o in outputs_of(notebook) if PLOTLY_MIME in o.get("data", {})]


def test_it_runs_without_a_word_on_the_error_stream(run):
    _, notebook, *_ = run
    assert list(_execute.failures(notebook)) == []
    assert [o.text for o in outputs_of(notebook) if o.get("name") == "stderr"] == []


def test_it_shows_as_much_as_the_published_one(run):
    name, notebook, *_ = run
    published = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    assert len(figures_of(notebook)) == len(figures_of(published)) > 0
    blocks = [o.data.get("text/html", "") for o in outputs_of(notebook) if "data" in o]
    assert any("<figure>" in block for block in blocks)


def test_publishing_it_again_changes_nothing_where_bundled_data_are_all_it_shows(run):
    name, *_, moved = run
    assert moved["published"] == "" or name not in ON_BUNDLED_DATA


def test_it_says_that_the_data_is_synthetic_on_every_figure_of_data(run):
    _, notebook, *_ = run
    for figure in figures_of(notebook):
        meta = figure["layout"]["meta"]
        # A formula and a published table need no data, and handwritten digits and flights are real.
        if not re.search("closed form|arXiv|handwritten|flights|data sheets|cards", meta["source"]):
            assert meta["synthetic"] is True, title_of(figure)
            assert re.search("-demo|-truth|seed", meta["source"]), title_of(figure)
        assert meta["synthetic"] or "-demo" not in meta["source"], title_of(figure)


def test_it_is_done_while_the_reader_waits(run):
    _, _, seconds, _ = run
    assert seconds < 60


def test_each_explorer_changes_its_figure_when_a_control_moves(run):
    _, notebook, _, moved = run
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    names = re.findall(r"\bexplore\.(\w+)\(", code)
    assert len(moved["changed"]) == len(names) > 0
    answers = zip(names, moved["changed"], strict=True)
    assert [name for name, changed in answers if not any(changed.values())] == []


def test_each_kind_of_control_is_moved_in_a_real_browser(run):
    *_, moved = run
    assert set(moved["kinds"]) <= set(KINDS_OF_CONTROLS)


def test_the_trace_notebook_finds_the_injected_slow_rank(run):
    name, notebook, *_ = run
    if name != "01_traces":
        return
    with (datasets.path("fleet-demo") / "truth.csv").open() as file:
        (slow,) = [row["rank"] for row in csv.DictReader(file) if row["what"] == "slow rank"]
    titles = [title_of(figure) for figure in figures_of(notebook)]
    assert [
        title
        for title in titles
        if title.startswith(f"Rank {slow} is the straggler: the others wait")
    ]
