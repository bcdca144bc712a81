"""Notebooks as committed: a picture of every figure wherever scripts do not run."""

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter, get_exporter

from workbench.share.bundle import PLOTLY_MIME

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.essential]


def shown(path):
    """Count the figures and explorers that a reader should see."""
    notebook = nbformat.read(path, as_version=4)
    bundles = [o.data for c in notebook.cells for o in c.get("outputs", []) if "data" in o]
    return sum(PLOTLY_MIME in data or "<figure>" in data.get("text/html", "") for data in bundles)


def test_the_stock_exporter_shows_every_figure(notebooks, opened, tmp_path):
    total = 0
    for path in notebooks:
        # The same exporter and template as nbviewer; its scripts are out of reach here.
        body, _ = HTMLExporter().from_filename(str(path))
        page_file = tmp_path / f"{path.stem}.html"
        page_file.write_text(body, encoding="utf-8")
        with opened(page_file.as_uri(), scripts=False, policy=False) as page:
            pictures = page.locator(".jp-OutputArea-output img")
            sizes = pictures.evaluate_all("all => all.map(img => img.naturalWidth)")
            assert len([size for size in sizes if size > 50]) == shown(path), path.name
            total += len(sizes)
    assert total > 0


def test_nbconvert_makes_one_live_file_of_a_published_notebook(notebooks, opened, tmp_path):
    body, _ = get_exporter("wbreport")().from_filename(str(notebooks[0]))
    page_file = tmp_path / "page.html"
    page_file.write_text(body, encoding="utf-8")
    with opened(page_file.as_uri()) as page:
        page.wait_for_function("document.documentElement.classList.contains('wb-ready')")
        figures = page.locator(".wb-figure")
        assert page.locator(".wb-figure.wb-drawn .wb-plot").count() == figures.count() > 0
