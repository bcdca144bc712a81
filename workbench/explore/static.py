"""An explorer without a kernel: states computed beforehand, for pages in a browser."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from workbench.errors import WorkbenchError
from workbench.explore.view import as_json

if TYPE_CHECKING:
    from workbench.explore.panel import Explorer

_CHOICES = (
    widgets.Dropdown,
    widgets.RadioButtons,
    widgets.Select,
    widgets.SelectionSlider,
    widgets.ToggleButtons,
)
_SLIDERS = (widgets.IntSlider, widgets.SelectionSlider)
# Three values tell which way a slider works; a page of more states opens slowly.
_FEWEST, _ENOUGH = 3, 16
# A reference is worth its letters only where the array is longer; the name is known to the script.
_SHORT_ARRAY, _POOLED = 60, "wbArray"
_SWITCHES = (widgets.Checkbox, widgets.ToggleButton)
_SCRIPT = files("workbench.explore").joinpath("_static.js").read_text(encoding="utf-8")


def static_html(explorer: Explorer, *, svg: str | None = None, limit: int = 400) -> str:
    """Write an explorer as HTML that works offline, given plotly.js on the page.

    Parameters
    ----------
    explorer
        The explorer; its controls stay as they are.
    svg
        Picture of the present state, shown until plotly.js draws and wherever it is missing.
    limit
        States to compute at most; every state is a whole figure.

    Returns
    -------
    str
        A ``div`` with labelled controls, the figure, its states as JSON and a script that is the
        same for every explorer. The same explorer gives the same text.

    Raises
    ------
    TypeError
        If a control is neither an integer slider, a choice nor a checkbox.
    ValueError
        If there are more states than ``limit``, even with three values per slider.

    Notes
    -----
    The states are those around the present one: each control moves while the others stand where
    they are, because all combinations would be hundreds of figures. A slider offers fewer values
    where the states are many: the present one, both ends, and those that fit between them. A page
    says both beside the controls.
    """
    full = {name: _options(name, control) for name, control in explorer.controls.items()}
    options = _thinned(explorer, full)
    if (count := _count(options)) > limit:
        sizes = " + ".join(f"{len(pairs)} {name}" for name, pairs in options.items())
        msg = f"{count:,} states ({sizes}), more than {limit:,}; offer fewer or coarser choices"
        raise ValueError(msg)
    states = _states(explorer, options)
    # A control that changes nothing here would look broken.
    shown = [control.layout.display != "none" for control in explorer.controls.values()]
    moves = [
        is_shown and any(number != states["start"] for number in numbers)
        for is_shown, numbers in zip(shown, states["order"], strict=True)
    ]
    labels = {name: control.description or name for name, control in explorer.controls.items()}
    controls = [
        _control(explorer.controls[name], labels[name], options[name], is_inert=not is_moving)
        for name, is_moving in zip(options, moves, strict=True)
    ]
    inert = [
        label
        for label, is_shown, is_moving in zip(labels.values(), shown, moves, strict=True)
        if is_shown and not is_moving
    ]
    remarks = [
        *(["Each control moves alone here; a kernel combines them."] if sum(moves) > 1 else []),
        *(["Sliders have more values where a kernel runs."] if options != full else []),
        *([f"Without effect on this view: {html.escape(', '.join(inert))}."] if inert else []),
    ]
    controls += [f"<small>{' '.join(remarks)}</small>"] if remarks else []
    line = html.escape(f"Snapshot at {explorer.state()}.")
    still = f"<figure>{_picture(svg, explorer)}<figcaption>{line}</figcaption></figure>"
    return (
        '<div class="wb-explorer">'
        f"<form hidden>{''.join(controls)}</form>"
        '<p class="wb-explorer-message" role="status"></p>'
        f'<div class="wb-explorer-figure">{still}</div>'
        f'<script type="application/json">{_harmless(states)}</script>'
        f"<script>{_SCRIPT}</script></div>"
    )


# Equal figures, their common template and equal arrays are kept once: every state is a whole
# figure, and most states draw the same measurement along the same axis of time.
def _states(explorer: Explorer, options: dict[str, list[tuple[str, Any]]]) -> dict[str, Any]:
    numbers: dict[str, int] = {}
    arrays: dict[str, int] = {}
    template: Any = {}

    def number(values: dict[str, Any]) -> int:
        nonlocal template
        try:
            figure = json.loads(as_json(explorer.draw(**values)))
        except (ValueError, WorkbenchError) as error:
            figure = {"message": f"Not possible: {error}"}
        else:
            template = figure["layout"].pop("template", template)
            figure["data"] = _pooled(figure["data"], arrays)
        return numbers.setdefault(json.dumps(figure, sort_keys=True), len(numbers))

    present = explorer.values()
    start = number(present)
    order = [
        [start if value == present[name] else number(present | {name: value}) for _, value in pairs]
        for name, pairs in options.items()
    ]
    return {
        "template": template,
        "arrays": [json.loads(text) for text in arrays],
        "figures": [json.loads(text) for text in numbers],
        "start": start,
        "order": order,
        "labels": [[label for label, _ in pairs] for pairs in options.values()],
    }


def _pooled(content: Any, arrays: dict[str, int]) -> Any:
    """Replace each long array of some traces by its place among all arrays."""
    is_array = isinstance(content, list) and not any(isinstance(item, dict) for item in content)
    if is_array or (isinstance(content, dict) and "bdata" in content):
        text = json.dumps(content, sort_keys=True)
        if len(text) < _SHORT_ARRAY:
            return content
        return {_POOLED: arrays.setdefault(text, len(arrays))}
    if isinstance(content, list):
        return [_pooled(item, arrays) for item in content]
    if isinstance(content, dict):
        return {name: _pooled(value, arrays) for name, value in content.items()}
    return content


# Sliders thin out, choices and switches do not: a choice that is gone cannot be guessed.
def _thinned(
    explorer: Explorer, options: dict[str, list[tuple[str, Any]]]
) -> dict[str, list[tuple[str, Any]]]:
    thinned = dict(options)
    sliders = [name for name in options if isinstance(explorer.controls[name], _SLIDERS)]
    while _count(thinned) > _ENOUGH:
        longest = max(sliders, key=lambda name: len(thinned[name]), default="")
        if not longest or (wanted := len(thinned[longest]) - 1) < _FEWEST:
            break
        pairs, value = options[longest], explorer.controls[longest].value
        now = next(position for position, (_, option) in enumerate(pairs) if option == value)
        thinned[longest] = [pairs[position] for position in _spread(len(pairs), wanted, now)]
    return thinned


def _count(options: dict[str, list[tuple[str, Any]]]) -> int:
    return 1 + sum(len(pairs) - 1 for pairs in options.values())


def _spread(count: int, wanted: int, now: int) -> list[int]:
    """Choose places evenly; both ends, and the place where the slider is, are among them."""
    positions = [round(position * (count - 1) / (wanted - 1)) for position in range(wanted)]
    if now not in positions:
        inner = range(1, len(positions) - 1)
        nearest = min(inner, key=lambda at: abs(positions[at] - now))
        positions[nearest] = now
    return sorted(set(positions))


def _options(name: str, control: widgets.ValueWidget) -> list[tuple[str, Any]]:
    if isinstance(control, widgets.IntSlider):
        return [(str(n), n) for n in range(control.min, control.max + 1, control.step)]
    if isinstance(control, _SWITCHES):
        return [("off", False), ("on", True)]
    if isinstance(control, _CHOICES):
        items = list(control.options)
        if all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
            return [(str(label), value) for label, value in items]
        return [(str(item), item) for item in items]
    msg = (
        f"control {name!r} is a {type(control).__name__}, whose values cannot be listed; "
        "use an IntSlider, SelectionSlider, Dropdown, ToggleButtons or Checkbox"
    )
    raise TypeError(msg)


def _control(
    control: widgets.ValueWidget, label: str, options: Sequence[tuple[str, Any]], *, is_inert: bool
) -> str:
    hidden = " hidden" if is_inert else ""
    now = next(at for at, (_, value) in enumerate(options) if value == control.value)
    words = html.escape(label)
    if isinstance(control, _SWITCHES):
        ticked = " checked" if now else ""
        return f'<label{hidden}><input type="checkbox" data-wb{ticked}> {words}</label>'
    if isinstance(control, _SLIDERS):
        shown = html.escape(options[now][0])
        return (
            f'<span{hidden}><label>{words} <input type="range" data-wb min="0" '
            f'max="{len(options) - 1}" value="{now}" aria-valuetext="{shown}"></label> '
            f"<output>{shown}</output></span>"
        )
    choices = "".join(
        f'<option value="{at}"{" selected" if at == now else ""}>{html.escape(text)}</option>'
        for at, (text, _) in enumerate(options)
    )
    return f"<label{hidden}>{words} <select data-wb>{choices}</select></label>"


def _picture(svg: str | None, explorer: Explorer) -> str:
    title = html.escape(explorer.title())
    if not svg:
        return f"<p>{title}</p>"
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{title}" src="data:image/svg+xml;base64,{data}">'


# Names come from traces: none may end the script element that holds them.
def _harmless(content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
