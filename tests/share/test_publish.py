"""Publishing: a notebook that every reader can show, in the same bytes on every run."""

import base64
import copy
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

from workbench import share
from workbench.errors import PublishError
from workbench.share.bundle import PLOTLY_MIME, SVG_MIME
from workbench.share.publish import _settled

LEFTOVERS = """from tqdm.auto import tqdm
import os
print(sum(tqdm([1, 2, 3])), os.getcwd(), object())"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published(tmp_path_factory, write_notebook, code, chromium):
    """Publish a notebook twice; give its path and both texts."""
    path = tmp_path_factory.mktemp("published") / "waits.ipynb"
    moved = "explorer.controls['freq'].value = 4"
    write_notebook(path, code.imports, code.figure, code.explorer, moved, LEFTOVERS)
    first_difference = share.publish(path, progress=False)
    first = path.read_bytes()
    assert first_difference
    assert share.publish(path, progress=False) == ""
    return path, first, path.read_bytes()


@pytest.fixture
def node(published):
    return nbformat.reads(published[1].decode(), as_version=4)


def bundles(notebook):
    return [o.data for c in notebook.cells for o in c.get("outputs", []) if "data" in o]


@pytest.mark.browser
def test_publishing_twice_gives_the_same_bytes(published):
    _, first, second = published
    assert first == second


@pytest.mark.browser
def test_every_figure_has_a_picture_and_a_line_of_text(node):
    figures = [data for data in bundles(node) if PLOTLY_MIME in data]
    assert [data["text/plain"] for data in figures] == ["Figure: Rank 7 comes last"]
    assert all(data[SVG_MIME].startswith("<svg") for data in figures)


@pytest.mark.browser
def test_an_explorer_is_the_picture_of_its_last_state(node):
    (data,) = [data for data in bundles(node) if "Snapshot" in data["text/plain"]]
    note = "Snapshot at freq = 4, kind = lines. Run the notebook to move the controls."
    assert data["text/plain"] == note
    assert '<img alt="freq is 4, drawn as lines" src="data:image/svg+xml;' in data["text/html"]
    assert "<script" not in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" not in data


@pytest.mark.browser
def test_nothing_of_this_run_or_this_machine_is_left(published, node):
    text = published[1].decode()
    assert "widgets" not in node.metadata
    assert "0%" not in text
    assert str(published[0].parent) not in text
    assert not re.search(r"at 0x[0-9a-f]{6}", text)
    assert [cell.id for cell in node.cells] == [f"cell-{n:02d}" for n in range(len(node.cells))]
    assert node.cells[-1].outputs[0].text == "6 . <object object at 0x…>\n"


@pytest.mark.browser
def test_check_says_nothing_of_a_notebook_that_is_up_to_date(published, monkeypatch):
    path, first, _ = published
    # No browser is needed to check.
    monkeypatch.setattr(sys.modules["workbench.share.publish"], "svg_of", None)
    assert share.publish(path, check=True, progress=False) == ""
    assert path.read_bytes() == first


def packed(*values):
    return {"dtype": "f8", "bdata": base64.b64encode(np.array(values)).decode()}


@pytest.mark.parametrize(
    ("new", "is_kept"),
    [
        ({"x": [1.0 + 1e-15, 2]}, True),
        ({"x": [1.001, 2]}, False),
        ({"x": [1.0, 3]}, False),
        ({"x": [1.0 + 1e-8, 2]}, False),
        ({"x": [1.0]}, False),
        ({"x": packed(1.0, np.nan)}, False),
    ],
)
def test_numbers_that_differ_by_rounding_are_the_same(new, is_kept):
    old = {"x": [1.0, 2]}
    assert (_settled(copy.deepcopy(old), new) == old) == is_kept


@pytest.mark.parametrize(
    ("new", "is_kept"),
    [
        (packed(1.0 + 1e-15, np.nan), True),
        (packed(1.0 + 1e-8, np.nan), False),
        (packed(1.0), False),
        (packed(1.0, np.nan) | {"shape": "2, 1"}, False),
        (packed(1.0, np.nan) | {"dtype": "i8"}, False),
    ],
)
def test_packed_numbers_that_differ_by_rounding_are_the_same(new, is_kept):
    old = packed(1.0, np.nan)
    assert (_settled(dict(old), new) == old) == is_kept


def test_small_numbers_count_as_much_as_large_ones():
    assert _settled({"x": [1e-10]}, {"x": [1.001e-10]}) == {"x": [1.001e-10]}
    assert _settled(packed(1e-10), packed(1.001e-10)) == packed(1.001e-10)


@pytest.mark.browser
def test_check_reports_a_stale_figure_and_pictures_that_do_not_belong(published, tmp_path):
    notebook = json.loads(published[1])
    cells = [cell for cell in notebook["cells"] if cell.get("outputs")]
    figure, explorer = cells[0]["outputs"][0]["data"], cells[1]["outputs"][0]["data"]
    figure[SVG_MIME] = explorer.pop(SVG_MIME)
    figure[PLOTLY_MIME]["layout"]["title"]["text"] = "Rank 6 comes last"
    path = tmp_path / "stale.ipynb"
    path.write_text(json.dumps(notebook))
    before = path.read_bytes()
    difference = share.publish(path, check=True, progress=False)
    assert "picture of another figure" in difference
    assert '+      "image/svg+xml": [' in difference
    assert '-         "text": "Rank 6 comes last"' in difference
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "cell 3: ZeroDivisionError: division by zero"),
        ("import warnings\nwarnings.warn('old')", "cell 3 writes to the error stream: .*old"),
        ("import time\ntime.sleep(60)", "cell 3 took longer than 2 s"),
        ("import os\nos._exit(1)", "cell 3: the kernel died"),
        ("print('x' * 2_000_000)", r"would have 2\.00 MB, more than 1 MB; .*cell 3 \(2\.00 MB\)"),
    ],
)
def test_a_notebook_that_is_not_fit_to_read_is_refused(tmp_path, write_notebook, source, message):
    path = write_notebook(tmp_path / "bad.ipynb", source)
    before = path.read_bytes()
    with pytest.raises(PublishError, match=f"bad.ipynb.*{message}"):
        share.publish(path, timeout_s=2 if "sleep" in source else 60, progress=False)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.ipynb"]


def test_what_is_no_notebook_is_refused(tmp_path):
    with pytest.raises(PublishError, match=r"none\.ipynb: there is no such notebook"):
        share.publish(tmp_path / "none.ipynb")
    (tmp_path / "text.ipynb").write_text("{")
    with pytest.raises(PublishError, match=r"text\.ipynb is not a Jupyter notebook"):
        share.publish(tmp_path / "text.ipynb")


def test_parameters_replace_the_defaults_and_stay_in_one_cell(tmp_path, write_notebook):
    path = write_notebook(tmp_path / "p.ipynb", "print(repr(data))")
    for value in ("it's mine", ["a", "b"]):
        share.publish(path, parameters={"data": value}, progress=False)
        notebook = nbformat.read(path, as_version=4)
        tagged = [c for c in notebook.cells if c.metadata.get("tags") == ["injected-parameters"]]
        assert [cell.source for cell in tagged] == [f"data = {value!r}"]
        assert notebook.cells[-1].outputs[0].text == f"{value!r}\n"


def test_parameters_need_a_place_and_plain_values(tmp_path, write_notebook):
    path = write_notebook(tmp_path / "p.ipynb", parameters="")
    with pytest.raises(PublishError, match="no cell is tagged 'parameters', so data cannot be set"):
        share.publish(path, parameters={"data": 1})
    path = write_notebook(tmp_path / "p.ipynb")
    with pytest.raises(PublishError, match="parameter 'data' must be a text"):
        share.publish(path, parameters={"data": object()})


def test_ctrl_c_stops_the_kernel_and_leaves_the_file(
    tmp_path, write_notebook, waiting, interrupted
):
    path = write_notebook(tmp_path / "long.ipynb", waiting)
    before = path.read_bytes()
    kernel, errors = interrupted(f"from workbench import share; share.publish({str(path)!r})")
    assert "KeyboardInterrupt" in errors
    assert "Task was destroyed" not in errors
    assert not _is_alive(kernel)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["long.ipynb", "pid"]


def _is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A process that ended and is not yet collected by its parent is not alive.
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
