"""Notebooks as a newcomer runs them: offline, with nothing but the bundled data."""

import csv
import re
import time
from pathlib import Path

import nbformat
import pytest

from workbench import datasets
from workbench.share import _execute
from workbench.share import _exporter as _normalise
from workbench.share import _figures as _snapshot
from workbench.share.bundle import PLOTLY_MIME, title_of

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def run(request, tmp_path_factory):
    """Run a notebook without mirror, cache or network; give it and the seconds it took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(datasets.MIRROR_ENV, raising=False)
        patch.setenv(datasets.CACHE_ENV, str(tmp_path_factory.mktemp("cache")))
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")
        notebook = nbformat.read(request.param, as_version=4)
        start = time.monotonic()
        _execute.execute(notebook, request.param, timeout_s=300, show_progress=False)
        seconds = time.monotonic() - start
    _normalise.without_progress(notebook)
    _snapshot.add_pictures(notebook, lambda _figure: "<svg></svg>")
    return request.param.stem, notebook, seconds


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def figures_of(notebook):
    return [o.data[PLOTLY_MIME] for o in outputs_of(notebook) if PLOTLY_MIME in o.get("data", {})]


def test_it_runs_without_a_word_on_the_error_stream(run):
    _, notebook, _ = run
    assert [o.text for o in outputs_of(notebook) if o.get("name") == "stderr"] == []


def test_it_shows_as_much_as_the_published_one(run):
    name, notebook, _ = run
    published = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    assert len(figures_of(notebook)) == len(figures_of(published)) > 0
    blocks = [o.data.get("text/html", "") for o in outputs_of(notebook) if "data" in o]
    assert any("<figure>" in block for block in blocks)


def test_it_says_that_the_data_is_synthetic_on_every_figure_of_data(run):
    _, notebook, _ = run
    for figure in figures_of(notebook):
        meta = figure["layout"]["meta"]
        # A formula and a published table need no data, and handwritten digits are real.
        if not re.search("closed form|arXiv|handwritten", meta["source"]):
            assert meta["synthetic"] is True, title_of(figure)
            assert re.search("-demo|-truth|seed", meta["source"]), title_of(figure)
        assert meta["synthetic"] or "-demo" not in meta["source"], title_of(figure)


def test_it_is_done_while_the_reader_waits(run):
    _, _, seconds = run
    assert seconds < 60


def test_the_trace_notebook_finds_the_injected_slow_rank(run):
    name, notebook, _ = run
    if name != "01_traces":
        return
    with (datasets.path("fleet-demo") / "truth.csv").open() as file:
        (slow,) = [row["rank"] for row in csv.DictReader(file) if row["what"] == "slow rank"]
    titles = [title_of(figure) for figure in figures_of(notebook)]
    assert [title for title in titles if title.startswith(f"Rank {slow} makes the others wait")]
