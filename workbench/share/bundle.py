"""Representations of a figure, so that every viewer of notebooks can show it.

A saved output is a bundle of MIME types and every reader takes the best it can
show: JupyterLab draws the plotly JSON live, nbviewer and GitHub show the SVG,
a terminal prints the text. Plotly's own bundle holds the JSON alone and is
blank wherever scripts do not run.
"""

from __future__ import annotations

import base64
import hashlib
import html as html_text
import json
import re
from typing import Any

PLOTLY_MIME = "application/vnd.plotly.v1+json"
"""MIME type of a plotly figure: JupyterLab draws it live."""

EXPLORER_MIME = "application/vnd.workbench.explorer+html"
"""MIME type of an explorer with every state computed beforehand; only reports read it."""

SVG_MIME = "image/svg+xml"

_TAG = re.compile(r"<[^<>]*>")
_PLOTLYJS = "https://cdn.plot.ly/plotly-{version}.min"


def bundle(fig: Any, svg: str | None = None, html: bool = False) -> dict[str, Any]:
    """Make the MIME bundle of a figure.

    Parameters
    ----------
    fig
        A plotly figure, or its JSON as a dictionary.
    svg
        Its picture (see :func:`workbench.share.svg_of`), for readers without
        scripts. Publishing adds it to every figure, so notebooks leave it out.
    html
        Whether to add a block that loads plotly.js from its public server and
        draws the figure live on nbviewer. It adds about 25 kB a figure, and it
        is the one thing here that asks the network.

    Returns
    -------
    dict
        MIME type to content: plotly JSON, ``text/plain`` with the title, and
        ``image/svg+xml`` and ``text/html`` if requested.

    Examples
    --------
    >>> bundle({"data": [], "layout": {"title": {"text": "Rank 7 is late"}}})["text/plain"]
    'Figure: Rank 7 is late'
    """
    figure = figure_json(fig)
    content: dict[str, Any] = {PLOTLY_MIME: figure, "text/plain": f"Figure: {title_of(figure)}"}
    if svg:
        content[SVG_MIME] = svg
    if html:
        content["text/html"] = _live_block(figure, svg)
    return content


def show(fig: Any, svg: str | None = None, html: bool = False) -> None:
    """Display a figure in a notebook with the bundle of :func:`bundle`.

    Parameters
    ----------
    fig, svg, html
        As for :func:`bundle`.
    """
    from IPython.display import display

    display(bundle(fig, svg, html), raw=True)  # type: ignore[no-untyped-call]


def figure_json(fig: Any) -> dict[str, Any]:
    """Return the JSON of a figure as plain dictionaries, lists, numbers and texts."""
    if isinstance(fig, dict):
        return fig
    plain: dict[str, Any] = json.loads(fig.to_json())
    return plain


def title_of(figure: dict[str, Any]) -> str:
    """Describe what a figure shows: its title without mark-up, or ``untitled figure``.

    The result is plain text; escape it before it goes into HTML.
    """
    title = (figure.get("layout") or {}).get("title") or ""
    text = title.get("text") if isinstance(title, dict) else title
    return plain_text(text) or "untitled figure"


def plain_text(text: object) -> str:
    """Turn the subset of HTML that plotly's texts use into plain text on one line."""
    without_tags = _TAG.sub(" ", str(text or ""))
    return " ".join(html_text.unescape(without_tags).split())


def key_of(figure: dict[str, Any]) -> str:
    """Return the fingerprint of a figure: equal figures have equal keys, on every machine."""
    written = json.dumps(figure, sort_keys=True, separators=(",", ":"))
    return hashlib.sha1(written.encode(), usedforsecurity=False).hexdigest()


def picture(svg: str, alt: str) -> str:
    """Make the ``<img>`` of an SVG; scripts inside an image never run."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html_text.escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def json_block(content: Any, **attributes: str) -> str:
    """Put data into a page as a ``<script>`` that no browser executes.

    Every character that could end the element is written as an escape, so names
    from traces such as ``</script>`` stay text.
    """
    text = json.dumps(content, separators=(",", ":"))
    # JSON may hold these characters as escapes, and an HTML parser then never sees a tag.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    attribute_text = "".join(
        f' {name}="{html_text.escape(value)}"' for name, value in attributes.items()
    )
    return f'<script type="application/json"{attribute_text}>{text}</script>'


def _live_block(figure: dict[str, Any], svg: str | None) -> str:
    """Return a picture that turns live once plotly.js arrives, from whatever side."""
    from workbench.share._plotlyjs import version

    name = f"wb-{key_of(figure)[:12]}"
    title = title_of(figure)
    still = picture(svg, title) if svg else html_text.escape(title)
    source = json.dumps(_PLOTLYJS.format(version=version()))
    script = (
        "(function(){"
        f'var box=document.getElementById("{name}"),source={source};'
        "var figure=JSON.parse(box.nextElementSibling.textContent);"
        'function draw(){box.textContent="";'
        "Plotly.newPlot(box,figure.data,figure.layout,{responsive:true});}"
        "if(window.Plotly){draw();return;}"
        'if(typeof window.require==="function"&&window.require.config){'
        "window.require([source],function(p){window.Plotly=window.Plotly||p;draw();});return;}"
        'var tag=document.getElementById("wb-plotlyjs");'
        'if(!tag){tag=document.createElement("script");tag.id="wb-plotlyjs";'
        'tag.src=source+".js";document.head.appendChild(tag);}'
        'tag.addEventListener("load",draw);'
        "})();"
    )
    return f'<div id="{name}">{still}</div>{json_block(figure)}<script>{script}</script>'
