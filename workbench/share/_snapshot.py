"""Pictures for the outputs of a notebook that ran: figures, and controls as they stand."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from workbench.share.bundle import (
    EXPLORER_MIME,
    PLOTLY_MIME,
    SVG_MIME,
    picture,
    plain_text,
    title_of,
)

VIEW_MIME = "application/vnd.jupyter.widget-view+json"
STATE_MIME = "application/vnd.jupyter.widget-state+json"
_META = "workbench"
LONE_CONTROL = "[interactive control: run the notebook]"

Draw = Callable[[dict[str, Any]], str | None]
Models = dict[str, dict[str, Any]]


def add_pictures(notebook: Any, draw: Draw | None) -> None:
    """Add its picture to every figure, and replace controls by a picture of their state.

    ``draw`` gives None where it cannot draw. Without ``draw``, for readers that run scripts, a
    figure stays as it is, and controls without states give way to their figure. The widget state
    is gone afterwards.
    """
    models = _models(notebook)
    for output in outputs(notebook):
        data = output.data
        if VIEW_MIME in data:
            _freeze(output, models, draw)
        elif PLOTLY_MIME in data:
            _complete(data, draw)
    notebook.metadata.pop("widgets", None)


def outputs(notebook: Any) -> Iterator[Any]:
    """Go through the outputs that carry a MIME bundle."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "data" in output:
                yield output


def figures(notebook: Any) -> Iterator[dict[str, Any]]:
    """Go through the figures of a notebook as plotly JSON, those under controls excepted."""
    for output in outputs(notebook):
        if PLOTLY_MIME in output.data and not {VIEW_MIME, _META} & {*output.data, *output.metadata}:
            yield output.data[PLOTLY_MIME]


def provenance(notebook: Any) -> Iterator[dict[str, Any]]:
    """Go through what the figures of a notebook say of themselves, those under controls too."""
    return (meta for output in outputs(notebook) if (meta := meta_of(output)) is not None)


def meta_of(output: Any) -> dict[str, Any] | None:
    """Return the metadata of an output's figure; None if the output has no figure."""
    if PLOTLY_MIME not in output["data"]:
        kept: dict[str, Any] | None = output.get("metadata", {}).get(_META)
        return kept
    meta = (output["data"][PLOTLY_MIME].get("layout") or {}).get("meta")
    return meta if isinstance(meta, dict) else {}


def _complete(data: dict[str, Any], draw: Draw | None) -> None:
    figure = data[PLOTLY_MIME]
    data["text/plain"] = f"Figure: {title_of(figure)}"
    # Plotly's own HTML needs its server, and hides the picture where that is out of reach.
    data.pop("text/html", None)
    if draw is not None:
        data.pop(SVG_MIME, None)
        if (svg := draw(figure)) is not None:
            data[SVG_MIME] = svg


# The model id of a live control is random, so the control gives way to a picture.
def _freeze(output: Any, models: Models, draw: Draw | None) -> None:
    data = output.data
    view = data.pop(VIEW_MIME)
    data.pop(PLOTLY_MIME, None)  # as it was when it was displayed
    tree = list(_walk(str(view.get("model_id")), models))
    shown = [output for model in tree for output in _shown(model, models)]
    if not shown:
        data.pop("text/html", None)
        data["text/plain"] = LONE_CONTROL
        return
    note = _note(tree)
    pictures = [_still(shown_output, draw or _undrawn) for shown_output in shown]
    metas = (meta_of(shown_output) for shown_output in shown if "data" in shown_output)
    if meta := next(filter(None, metas), None):
        output["metadata"] = {**output.get("metadata", {}), _META: meta}
    caption = f"<figcaption>{html.escape(note)}</figcaption>"
    data["text/html"] = f"<figure>{''.join(still for still, _ in pictures)}{caption}</figure>"
    data["text/plain"] = note
    if svg := next((svg for _, svg in pictures if svg), None):
        data[SVG_MIME] = svg
    figures_shown = [of["data"][PLOTLY_MIME] for of in shown if PLOTLY_MIME in of.get("data", {})]
    if draw is None and figures_shown and EXPLORER_MIME not in data:
        data[PLOTLY_MIME] = figures_shown[0]


def _undrawn(_figure: dict[str, Any]) -> None:
    return None


def _shown(model: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """Give what a model shows: outputs, or a figure kept as compressed JSON in another model."""
    content = models.get(str(model.get("content")).removeprefix("IPY_MODEL_"), {})
    if packed := content.get("value"):
        figure = json.loads(zlib.decompress(base64.b64decode(packed)))
        return [{"output_type": "display_data", "data": {PLOTLY_MIME: figure}}]
    return model.get("outputs") or []


def _still(output: dict[str, Any], draw: Draw) -> tuple[str, str | None]:
    data = output.get("data", {})
    if PLOTLY_MIME not in data:
        text = data.get("text/plain") or output.get("text") or output.get("evalue") or ""
        return f'<pre tabindex="0">{html.escape(str(text))}</pre>', None
    title = title_of(data[PLOTLY_MIME])
    svg = draw(data[PLOTLY_MIME])
    return (picture(svg, title) if svg else f"<p>{html.escape(title)}</p>"), svg


def _note(tree: list[dict[str, Any]]) -> str:
    """Describe the state of the controls, e.g. ``Snapshot at rank = 7.``."""
    states = ", ".join(filter(None, map(_control_state, tree)))
    at = f" at {states}" if states else ""
    return f"Snapshot{at}. Run the notebook to move the controls."


def _control_state(model: dict[str, Any]) -> str:
    name = plain_text(model.get("description")).rstrip(":")
    if "_options_labels" in model:
        index = model.get("index")
        chosen = index if isinstance(index, (list, tuple)) else [index]
        labels = [model["_options_labels"][n] for n in chosen if n is not None]
        value = " to ".join(map(str, labels)) or "none"
    elif isinstance(model.get("value"), (bool, int, float, str, list)):
        value = _written(model["value"])
    else:
        return ""
    return f"{name} = {value}" if name else ""


def _written(value: Any) -> str:
    # Before numbers: True is an int to Python.
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list):
        return " to ".join(map(_written, value))
    return str(value)


def _models(notebook: Any) -> Models:
    saved = notebook.metadata.get("widgets", {}).get(STATE_MIME, {}).get("state", {})
    return {name: {**model["state"], "_kind": model["model_name"]} for name, model in saved.items()}


def _walk(name: str, models: Models) -> Iterator[dict[str, Any]]:
    if (model := models.get(name)) is None:
        return
    yield model
    for child in model.get("children") or []:
        yield from _walk(str(child).removeprefix("IPY_MODEL_"), models)


def drop_explorers(notebook: Any) -> None:
    """Remove states and provenance of explorers, which are for reports only."""
    for output in outputs(notebook):
        output.data.pop(EXPLORER_MIME, None)
        output.get("metadata", {}).pop(_META, None)
