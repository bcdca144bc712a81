"""Outputs of a notebook as the HTML of a report page."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from workbench.share.bundle import (
    EXPLORER_MIME,
    PLOTLY_MIME,
    SVG_MIME,
    json_block,
    key_of,
    picture,
    plain_text,
    title_of,
)

# What stands above a figure on a page that was made from somebody's own data.
_NOT_OWN = {
    "data set": "Data set of the workbench, not your data",
    "published": "Published case, not your data",
    "model": "Model or simulation, not your data",
}
_SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_FORM_NAME = re.compile(r'(<form\b[^>]* aria-label=")[^"]*(")')
_EMPTY_HEADER = re.compile(r"<th(\s[^>]*)?>\s*</th>")


def to_html(output: Any, number: int, *, live: bool, is_own: bool = False) -> set[str]:
    """Reduce one output to what a page shows, changing it in place.

    Parameters
    ----------
    output
        An output with a MIME bundle; published, or executed with its pictures.
    number
        Its place on the page, so that equal figures get different ids.
    live
        Whether the page has plotly.js.
    is_own
        Whether the page was made from the reader's own data; then a figure of other data
        says so.

    Returns
    -------
    set of str
        Hashes of the scripts that this output may run, for the page's policy.
    """
    label = _NOT_OWN.get((meta_of(output) or {}).get("origin", "")) if is_own else None
    allowed = _reduced(output, number, live=live)
    if label and "text/html" in output.data:
        output.data["text/html"] = f'<p class="wb-origin">{label}</p>{output.data["text/html"]}'
    return allowed


def _reduced(output: Any, number: int, *, live: bool) -> set[str]:
    data = output.data
    if PLOTLY_MIME in data:
        output["data"] = {"text/html": _figure(data, number, live=live)}
    elif live and EXPLORER_MIME in data:
        states = str(data[EXPLORER_MIME])
        still = data.get("text/html", "")
        output["data"] = {"text/html": _explorer(states, still, number)}
        return {
            sha256_of(code) for attributes, code in _SCRIPT.findall(states) if _runs(attributes)
        }
    else:
        output["data"] = _quiet(data, number)
    return set()


def sha256_of(script: str) -> str:
    """Give the hash of a script as a Content-Security-Policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def sources_of(metas: Iterable[dict[str, Any]]) -> list[str]:
    """List where the data of figures comes from; generated data says so.

    Parameters
    ----------
    metas
        What figures say of themselves, as :func:`workbench.share._figures.provenance` gives it.

    Returns
    -------
    list of str
        Each source once, in order.
    """
    known = [meta for meta in metas if meta.get("source")]
    names = dict.fromkeys(str(meta["source"]) for meta in known)
    return [named(name, [meta for meta in known if meta["source"] == name]) for name in names]


def named(source: str, metas: Sequence[dict[str, Any]]) -> str:
    """Write a source; it is synthetic only if every one of its figures is."""
    is_synthetic = bool(metas) and all(meta.get("synthetic") for meta in metas)
    return f"{source} (synthetic)" if is_synthetic else source


def _figure(data: dict[str, Any], number: int, *, live: bool) -> str:
    figure = data[PLOTLY_MIME]
    title = title_of(figure)
    label = html.escape(title)
    svg = data.get(SVG_MIME)
    still = picture(svg, title) if svg else f"<p>{label}</p>"
    name = f"figure-{key_of(figure)[:8]}-{number}"
    if not live:
        return f'<div class="wb-figure" id="{name}">{still}</div>'
    drawn = {part: figure[part] for part in ("data", "layout", "frames") if part in figure}
    plot = f'<div class="wb-plot" role="figure" aria-label="{label}"></div>'
    return f'<div class="wb-figure" id="{name}">{still}{plot}{json_block(drawn)}</div>'


def _explorer(states: str, still: str, number: int) -> str:
    """Put the live explorer beside its picture; the page shows one of the two."""
    # Forms are landmarks, and landmarks of one page need names of their own.
    states = _FORM_NAME.sub(rf"\1Controls of explorer {number}\2", states, count=1)
    return (
        '<div class="wb-explorer-block">'
        f'<div class="wb-still">{_without_scripts(still)}</div>'
        f'<div class="wb-states">{states}</div></div>'
    )


def _quiet(data: dict[str, Any], number: int) -> dict[str, Any]:
    """Keep what can be shown without running anything."""
    kept = {mime: content for mime, content in data.items() if mime not in _NEEDS_SCRIPTS}
    block = kept.get("text/html")
    if block is None:
        return kept
    if _SCRIPT.search(block):
        kept.pop("text/html")
        return kept
    if "<table" in block:
        block = _EMPTY_HEADER.sub("<td></td>", block)
        block = (
            f'<div class="wb-table" role="region" aria-label="Table {number + 1}" tabindex="0">'
            f"{block}</div>"
        )
    elif block.startswith("<figure>"):
        block = f'<div class="wb-still">{block}</div>'
    kept["text/html"] = block
    return kept


_NEEDS_SCRIPTS = {"application/javascript", EXPLORER_MIME}


def _without_scripts(block: str) -> str:
    return _SCRIPT.sub("", block)


def _runs(attributes: str) -> bool:
    return "json" not in attributes and "src=" not in attributes


# Pictures for the outputs of a notebook that ran: figures, and controls as they stand.

VIEW_MIME = "application/vnd.jupyter.widget-view+json"
STATE_MIME = "application/vnd.jupyter.widget-state+json"
_META = "workbench"
LONE_CONTROL = "[interactive control: run the notebook]"

Draw = Callable[[dict[str, Any]], str | None]
Models = dict[str, dict[str, Any]]


def add_pictures(notebook: Any, draw: Draw) -> None:
    """Give every figure its picture and replace controls by a picture of their state.

    Parameters
    ----------
    notebook
        A notebook as it was executed, widget state included; changed in place.
        The state is gone afterwards.
    draw
        Function from the JSON of a figure to SVG, or to None where that cannot
        be done.
    """
    models = _models(notebook)
    for output in outputs(notebook):
        data = output.data
        if PLOTLY_MIME in data:
            _complete(data, draw)
        elif VIEW_MIME in data:
            _freeze(output, models, draw)
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
        if PLOTLY_MIME in output.data:
            yield output.data[PLOTLY_MIME]


def provenance(notebook: Any) -> Iterator[dict[str, Any]]:
    """Go through what the figures of a notebook say of themselves, those under controls too.

    Yields
    ------
    dict
        ``claim``, ``source``, ``origin`` (whose data it is) and ``synthetic``, as far as the
        figure says so.
    """
    return (meta for output in outputs(notebook) if (meta := meta_of(output)) is not None)


def meta_of(output: Any) -> dict[str, Any] | None:
    """Give what the figure of an output says of itself; None if the output has no figure."""
    if PLOTLY_MIME not in output["data"]:
        kept: dict[str, Any] | None = output.get("metadata", {}).get(_META)
        return kept
    meta = (output["data"][PLOTLY_MIME].get("layout") or {}).get("meta")
    return meta if isinstance(meta, dict) else {}


def _complete(data: dict[str, Any], draw: Draw) -> None:
    figure = data[PLOTLY_MIME]
    data["text/plain"] = f"Figure: {title_of(figure)}"
    # Plotly's own HTML needs its server, and hides the picture where that is out of reach.
    data.pop("text/html", None)
    data.pop(SVG_MIME, None)
    if (svg := draw(figure)) is not None:
        data[SVG_MIME] = svg


def _freeze(output: Any, models: Models, draw: Draw) -> None:
    """Replace a live control by what it shows; the model id in it is random."""
    data = output.data
    view = data.pop(VIEW_MIME)
    tree = list(_walk(str(view.get("model_id")), models))
    shown = [output for model in tree for output in _shown(model)]
    if not shown:
        data.pop("text/html", None)
        data["text/plain"] = LONE_CONTROL
        return
    note = _note(tree)
    pictures = [_still(each, draw) for each in shown]
    metas = (meta_of(each) for each in shown if "data" in each)
    if meta := next(filter(None, metas), None):
        output["metadata"] = {**output.get("metadata", {}), _META: meta}
    caption = f"<figcaption>{html.escape(note)}</figcaption>"
    data["text/html"] = f"<figure>{''.join(still for still, _ in pictures)}{caption}</figure>"
    data["text/plain"] = note
    if svg := next((svg for _, svg in pictures if svg), None):
        data[SVG_MIME] = svg


def _still(output: dict[str, Any], draw: Draw) -> tuple[str, str | None]:
    """Give the HTML of one shown output, and its SVG if it is a figure."""
    data = output.get("data", {})
    if PLOTLY_MIME not in data:
        text = data.get("text/plain") or output.get("text") or output.get("evalue") or ""
        return f'<pre tabindex="0">{html.escape(str(text))}</pre>', None
    title = title_of(data[PLOTLY_MIME])
    svg = draw(data[PLOTLY_MIME])
    return (picture(svg, title) if svg else f"<p>{html.escape(title)}</p>"), svg


def _note(tree: list[dict[str, Any]]) -> str:
    """Say in which state the controls were, e.g. ``Snapshot at rank = 7.``."""
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
    """Go through a widget and all within it, in the order they are shown."""
    if (model := models.get(name)) is None:
        return
    yield model
    for child in model.get("children") or []:
        yield from _walk(str(child).removeprefix("IPY_MODEL_"), models)


def _shown(model: dict[str, Any]) -> list[dict[str, Any]]:
    return list(model.get("outputs") or []) if model["_kind"] == "OutputModel" else []


def drop_explorers(notebook: Any) -> None:
    """Remove states and provenance of explorers, which are for reports only."""
    for output in outputs(notebook):
        output.data.pop(EXPLORER_MIME, None)
        output.get("metadata", {}).pop(_META, None)
