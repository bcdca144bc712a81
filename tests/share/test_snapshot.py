"""Controls become pictures of their state; everything that changes from run to run goes."""

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from workbench.explore.view import FigureView
from workbench.share import _normalise, _snapshot
from workbench.share._snapshot import STATE_MIME, VIEW_MIME
from workbench.share.bundle import PLOTLY_MIME

HOSTILE = "<img src=x onerror=alert(1)>"


def drawn(figure):
    return f"<svg>{len(figure['data'])}</svg>"


def displayed(data):
    return new_output("display_data", data=data)


def notebook_of(*outputs, models=None):
    notebook = new_notebook(cells=[new_code_cell("show()", outputs=list(outputs))])
    if models is not None:
        state = {
            name: {"model_name": kind, "model_module": "m", "state": state}
            for name, (kind, state) in models.items()
        }
        notebook.metadata["widgets"] = {STATE_MIME: {"state": state}}
    return nbformat.from_dict(notebook)


def figure_of(title):
    return {"data": [{"type": "bar", "y": [1]}], "layout": {"title": {"text": title}}}


def explorer_models(*controls, outputs):
    names = [f"control{number}" for number in range(len(controls))]
    models = {
        "box": ("VBoxModel", {"children": ["IPY_MODEL_row", "IPY_MODEL_out"]}),
        "row": ("HBoxModel", {"children": [f"IPY_MODEL_{name}" for name in names]}),
        "out": ("OutputModel", {"outputs": outputs}),
    }
    return models | dict(zip(names, controls, strict=True))


def frozen(*controls, outputs, draw=drawn):
    view = displayed({VIEW_MIME: {"model_id": "box"}, "text/plain": "VBox(...)"})
    notebook = notebook_of(view, models=explorer_models(*controls, outputs=outputs))
    _snapshot.add_pictures(notebook, draw)
    return notebook.cells[0].outputs[0].data, notebook


def test_a_view_that_changes_in_place_becomes_the_picture_of_its_last_figure():
    live = FigureView()
    live.show(json.dumps(figure_of("freq is 3")))
    models = {
        "box": ("VBoxModel", {"children": ["IPY_MODEL_view"]}),
        "view": ("AnyModel", {"content": "IPY_MODEL_text"}),
        "text": ("HTMLModel", {"value": live.content.value}),
    }
    begun = {PLOTLY_MIME: figure_of("freq is 1"), VIEW_MIME: {"model_id": "box"}}
    notebook = notebook_of(displayed(begun), models=models)
    assert list(_snapshot.figures(notebook)) == []
    _snapshot.add_pictures(notebook, drawn)
    data = notebook.cells[0].outputs[0].data
    assert set(data) == {"text/html", "text/plain", "image/svg+xml"}
    assert "freq is 3" in data["text/html"]


def test_an_explorer_becomes_its_picture_with_the_state_of_its_controls():
    shown = [{"output_type": "display_data", "data": {PLOTLY_MIME: figure_of("freq is 2")}}]
    data, notebook = frozen(
        ("IntSliderModel", {"description": "freq", "value": 2}),
        ("DropdownModel", {"description": "kind", "_options_labels": ["a", "dots"], "index": 1}),
        ("CheckboxModel", {"description": "log", "value": True}),
        ("FloatRangeSliderModel", {"description": "window [ms]:", "value": [0.5, 2.0]}),
        outputs=shown,
    )
    note = (
        "Snapshot at freq = 2, kind = dots, log = on, window [ms] = 0.5 to 2. "
        "Run the notebook to move the controls."
    )
    assert set(data) == {"text/html", "text/plain", "image/svg+xml"}
    assert data["text/plain"] == note
    assert data["text/html"].startswith('<figure><img alt="freq is 2" src="data:image/svg+xml;')
    assert data["text/html"].endswith(f"<figcaption>{note}</figcaption></figure>")
    assert "widgets" not in notebook.metadata


def test_without_a_browser_an_explorer_is_at_least_its_title():
    shown = [{"output_type": "display_data", "data": {PLOTLY_MIME: figure_of(HOSTILE)}}]
    data, _ = frozen(outputs=shown, draw=lambda _figure: None)
    assert "image/svg+xml" not in data
    assert data["text/html"].startswith("<figure><p>")


def test_names_in_controls_and_messages_are_escaped():
    shown = [{"output_type": "stream", "name": "stdout", "text": HOSTILE}]
    labels = {"description": "name", "_options_labels": [HOSTILE], "index": 0}
    data, _ = frozen(("DropdownModel", labels), outputs=shown)
    assert HOSTILE not in data["text/html"]
    assert "&lt;img src=x onerror=alert(1)&gt;" in data["text/html"]


def test_a_lone_control_is_replaced_by_words():
    view = displayed({VIEW_MIME: {"model_id": "s"}, "text/plain": "IntSlider(value=3)"})
    notebook = notebook_of(view, models={"s": ("IntSliderModel", {"value": 3})})
    _snapshot.add_pictures(notebook, drawn)
    assert notebook.cells[0].outputs[0].data == {"text/plain": _snapshot.LONE_CONTROL}


def test_a_view_without_its_state_is_replaced_too():
    notebook = notebook_of(displayed({VIEW_MIME: {"model_id": "gone"}}))
    _snapshot.add_pictures(notebook, drawn)
    assert notebook.cells[0].outputs[0].data == {"text/plain": _snapshot.LONE_CONTROL}


def test_a_figure_gets_its_picture_and_loses_html_that_needs_a_server():
    old = {PLOTLY_MIME: figure_of("late"), "text/html": "<script>", "image/svg+xml": "<svg>old"}
    notebook = notebook_of(displayed(old))
    _snapshot.add_pictures(notebook, drawn)
    data = notebook.cells[0].outputs[0].data
    assert set(data) == {PLOTLY_MIME, "image/svg+xml", "text/plain"}
    assert data["image/svg+xml"] == "<svg>1</svg>"
    assert data["text/plain"] == "Figure: late"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("loading:   0%|          | 0/8 [00:00<?, ?it/s]\n", None),
        ("\r 50%|█████     | 4/8\r100%|██████████| 8/8\ndone\n", "done\n"),
        ("x" * 1_000_000 + "7" * 1_000_000 + "\n", "x" * 1_000_000 + "7" * 1_000_000 + "\n"),
        ("counting 1\rcounting 2\n", "counting 2\n"),
        ("windows\r\nline ends\r\n", "windows\nline ends\n"),
        ("Kernel is running over TCP without encryption. All plain.\n", None),
        ("a share of 0% is fine | here\n", "a share of 0% is fine | here\n"),
    ],
)
def test_progress_bars_leave_nothing_behind(text, left):
    notebook = notebook_of(new_output("stream", name="stdout", text=text))
    _normalise.without_progress(notebook)
    assert [output.text for output in notebook.cells[0].outputs] == ([] if left is None else [left])


def test_the_pieces_of_a_stream_are_joined():
    pieces = [new_output("stream", name=n, text=t) for n, t in ("oa", "ob", "ec", "od")]
    notebook = notebook_of(*pieces)
    _normalise.without_progress(notebook)
    joined = [(output.name, output.text) for output in notebook.cells[0].outputs]
    assert joined == [("o", "ab"), ("e", "c"), ("o", "d")]


def test_a_bar_that_was_a_widget_goes_as_a_whole():
    bar = displayed({"text/plain": "  0%|          | 0/3 [00:00<?, ?it/s]", VIEW_MIME: {}})
    notebook = notebook_of(bar)
    _normalise.without_progress(notebook)
    assert notebook.cells[0].outputs == []


def test_paths_of_this_machine_are_hidden_wherever_they_stand(tmp_path, monkeypatch):
    folder = tmp_path / "repository" / "notebooks"
    monkeypatch.setenv("WORKBENCH_DATA_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    text = f"{folder}/x.json {folder.parent}/data {tmp_path}/mirror/set {tmp_path}/home/me"
    figure = figure_of(text)
    figure["data"][0]["y"] = {"dtype": "i1", "bdata": str(folder)}
    notebook = notebook_of(
        displayed({PLOTLY_MIME: figure, "text/plain": text}),
        new_output("stream", name="stdout", text=f"<object at 0x7f00deadbeef> {folder}2"),
    )
    _normalise.hide_paths(notebook, folder)
    bundle, stream = notebook.cells[0].outputs
    assert bundle.data["text/plain"] == "./x.json ../data <data>/set ~/me"
    assert bundle.data[PLOTLY_MIME]["layout"]["title"]["text"] == "./x.json ../data <data>/set ~/me"
    # A binary array is not text, and a longer name is another place.
    assert bundle.data[PLOTLY_MIME]["data"][0]["y"]["bdata"] == str(folder)
    assert stream.text.startswith("<object at 0x…> ../notebooks2")


def test_what_programs_leave_in_metadata_goes_and_tags_stay():
    notebook = notebook_of(new_output("execute_result", data={"text/plain": "1"}))
    notebook.cells[0].metadata = {"tags": ["parameters"], "execution": {"a": 1}, "scrolled": True}
    notebook.cells[0].id = "f00dfeed"
    notebook.metadata.update(jupytext={"a": 1}, title="kept", kernelspec={"name": "mine"})
    _normalise.normalise(notebook)
    cell = notebook.cells[0]
    assert (cell.id, cell.execution_count, cell.outputs[0].execution_count) == ("cell-00", 1, 1)
    assert cell.metadata == {"tags": ["parameters"]}
    assert set(notebook.metadata) == {"kernelspec", "language_info", "title"}
    assert notebook.metadata.kernelspec.name == "python3"
    nbformat.validate(notebook)
