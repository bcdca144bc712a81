"""Notebooks as they are committed: shown by every reader, and nothing of the run left in them."""

import base64
import re

import nbformat
import numpy as np

from workbench.share import _normalise
from workbench.share.bundle import PLOTLY_MIME, SVG_MIME, key_of


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def bundles_of(notebook):
    return [output.data for output in outputs_of(notebook) if "data" in output]


def points_in(values):
    """Count the points of a trace, which plotly writes as a list or as a packed array."""
    if isinstance(values, dict):
        return len(base64.b64decode(values["bdata"])) // np.dtype(values["dtype"]).itemsize
    return len(values)


def test_the_file_is_small_enough_to_open_anywhere(path):
    assert path.stat().st_size < 1_000_000


def test_every_cell_was_run_in_order_and_none_failed_or_complained(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert [o for o in outputs_of(notebook) if o.output_type == "error"] == []
    assert [o.text for o in outputs_of(notebook) if o.get("name") == "stderr"] == []


def test_every_figure_has_a_title_and_its_own_picture(notebook):
    figures = [data for data in bundles_of(notebook) if PLOTLY_MIME in data]
    assert figures
    for data in figures:
        assert re.match(r"Figure: (?!untitled)", data["text/plain"])
        assert data[SVG_MIME].startswith("<svg")
        assert f"defs-{key_of(data[PLOTLY_MIME])[:6]}" in data[SVG_MIME]


def test_every_explorer_is_a_picture_that_says_its_state(notebook):
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    snapshots = [data for data in bundles_of(notebook) if "Snapshot" in data.get("text/plain", "")]
    assert len(snapshots) == len(re.findall(r"\bexplore\.\w+\(", source))
    for data in snapshots:
        assert re.search(r"<img alt=\"[^\"]{10,}\" src=\"data:image/svg", data["text/html"])
        assert "Run the notebook to move the controls." in data["text/html"]


def test_no_output_needs_a_script_or_widget_state(notebook):
    assert "widgets" not in notebook.metadata
    for data in bundles_of(notebook):
        assert "<script" not in data.get("text/html", "")
        assert not [mime for mime in data if "widget-view" in mime or "javascript" in mime]


def test_no_progress_bar_was_left_behind(notebook):
    texts = [data.get("text/plain", "") for data in bundles_of(notebook)]
    texts += [output.text for output in outputs_of(notebook) if "text" in output]
    assert not [text for text in texts if re.search(r"\d%\|", text)]


def test_figures_stay_light(notebook):
    for data in bundles_of(notebook):
        for trace in data.get(PLOTLY_MIME, {}).get("data", []):
            assert points_in(trace.get("x") or trace.get("y") or []) <= 5_000


def test_publishing_would_change_nothing_around_the_outputs(path, notebook):
    _normalise.without_progress(notebook)
    _normalise.hide_paths(notebook, path.parent)
    _normalise.normalise(notebook)
    assert nbformat.writes(notebook).rstrip("\n") + "\n" == path.read_text(encoding="utf-8")
