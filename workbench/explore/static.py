"""An explorer without a kernel: every state computed beforehand, for pages in a browser."""

from __future__ import annotations

import base64
import html
import itertools
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import plotly.io as pio

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.explore.panel import Explorer

_CHOICES = (
    widgets.Dropdown,
    widgets.RadioButtons,
    widgets.Select,
    widgets.SelectionSlider,
    widgets.ToggleButtons,
)
# Two values tell that a slider does something; a page of more figures than this opens slowly.
_FEWEST, _ENOUGH, _HEAVY = 2, 60, 160
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
        If there are more states than ``limit``, even with two values per slider.

    Notes
    -----
    Where the states are too many, sliders offer fewer values: the present one, both ends, and what
    fits between them. Where choices alone make many states, the last sliders stay at their value.
    A page says so beside them.
    """
    options = {name: _options(name, control) for name, control in explorer.controls.items()}
    options = _thinned(explorer, options, limit)
    count = math.prod(len(pairs) for pairs in options.values())
    if count > limit:
        sizes = " × ".join(f"{len(pairs)} {name}" for name, pairs in options.items())
        msg = f"{count:,} states ({sizes}), more than {limit:,}; offer fewer or coarser choices"
        raise ValueError(msg)
    states = _states(explorer, options)
    # A slider that is kept at its value is a text, and no control of the page.
    states["labels"] = [
        [label for label, _ in pairs]
        for name, pairs in options.items()
        if not _is_fixed(explorer.controls[name], pairs)
    ]
    controls = [
        _control(control, control.description or name, options[name])
        for name, control in explorer.controls.items()
    ]
    full = {name: len(_options(name, control)) for name, control in explorer.controls.items()}
    fewer = any(len(pairs) < full[name] for name, pairs in options.items())
    if fewer:
        controls.append("<small>Sliders have more values where a kernel runs.</small>")
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
    order = []
    for values in itertools.product(*([value for _, value in pairs] for pairs in options.values())):
        try:
            figure = json.loads(
                pio.to_json(explorer.draw(**dict(zip(options, values, strict=True))))
            )
        except (ValueError, WorkbenchError) as error:
            figure = {"message": f"Not possible: {error}"}
        else:
            template = figure["layout"].pop("template", template)
            figure["data"] = _pooled(figure["data"], arrays)
        order.append(numbers.setdefault(json.dumps(figure, sort_keys=True), len(numbers)))
    return {
        "template": template,
        "arrays": [json.loads(text) for text in arrays],
        "figures": [json.loads(text) for text in numbers],
        "order": order,
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
    explorer: Explorer, options: dict[str, list[tuple[str, Any]]], limit: int
) -> dict[str, list[tuple[str, Any]]]:
    sizes = {name: len(pairs) for name, pairs in options.items()}
    sliders = [
        name
        for name, control in explorer.controls.items()
        if isinstance(control, widgets.SelectionSlider)
    ]
    # Three values tell which way a slider works; more are worth less than a quick page.
    heavy = min(limit, _HEAVY)
    for most, fewest in ((min(limit, _ENOUGH), _FEWEST + 1), (heavy, _FEWEST), (heavy, 1)):
        # The first sliders are those that matter most: they keep two values longest.
        order = sliders if fewest > 1 else sliders[::-1]
        while math.prod(sizes.values()) > most:
            longest = max(order, key=lambda name: sizes[name], default="")
            if not longest or sizes[longest] <= fewest:
                break
            sizes[longest] -= 1
    if math.prod(sizes.values()) > limit:
        return options
    thinned = dict(options)
    for name in sliders:
        pairs = options[name]
        if sizes[name] < len(pairs):
            value = explorer.controls[name].value
            now = next(position for position, (_, option) in enumerate(pairs) if option == value)
            thinned[name] = [pairs[position] for position in _spread(len(pairs), sizes[name], now)]
    return thinned


def _spread(count: int, wanted: int, now: int) -> list[int]:
    """Choose places evenly; both ends, and the place where the slider is, are among them.

    If only two are wanted they are that place and the end farther from it; one is that place.
    """
    if wanted == 1:
        return [now]
    positions = [round(position * (count - 1) / (wanted - 1)) for position in range(wanted)]
    if wanted == _FEWEST:
        return sorted({now, 0 if now > count - 1 - now else count - 1})
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


def _is_fixed(control: widgets.ValueWidget, options: Sequence[tuple[str, Any]]) -> bool:
    return isinstance(control, widgets.SelectionSlider) and len(options) == 1


def _control(control: widgets.ValueWidget, label: str, options: Sequence[tuple[str, Any]]) -> str:
    now = next(at for at, (_, value) in enumerate(options) if value == control.value)
    words = html.escape(label)
    if isinstance(control, _SWITCHES):
        ticked = " checked" if now else ""
        return f'<label><input type="checkbox" data-wb{ticked}> {words}</label>'
    if isinstance(control, (widgets.IntSlider, widgets.SelectionSlider)):
        shown = html.escape(options[now][0])
        if _is_fixed(control, options):
            return f"<span>{words}: {shown}</span>"
        return (
            f'<span><label>{words} <input type="range" data-wb min="0" max="{len(options) - 1}" '
            f'value="{now}" aria-valuetext="{shown}"></label> <output>{shown}</output></span>'
        )
    choices = "".join(
        f'<option value="{at}"{" selected" if at == now else ""}>{html.escape(text)}</option>'
        for at, (text, _) in enumerate(options)
    )
    return f"<label>{words} <select data-wb>{choices}</select></label>"


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
