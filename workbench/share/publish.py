"""Publish a notebook: run it, give its figures pictures, and make the file byte-stable."""

from __future__ import annotations

import base64
import difflib
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from workbench._shared.writing import write_whole
from workbench.errors import PublishError
from workbench.share import _execute, _normalise, _snapshot
from workbench.share.bundle import PLOTLY_MIME, SVG_MIME, key_of
from workbench.share.svg import svg_of

_LINE_WIDTH = 160
_EMBEDDED = re.compile(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+")
_DRAWN = "<svg>picture</svg>"
# Far above the last digits of a double, far below what a figure can show.
_ROUNDING_RATIO, _ROUNDING_NEAR_ZERO = 1e-9, 1e-15


def publish(
    path: str | Path,
    *,
    check: bool = False,
    parameters: Mapping[str, Any] | None = None,
    timeout_s: float = 600.0,
    limit_mb: float = 1.0,
    progress: bool = True,
) -> str:
    """Run a notebook in a fresh kernel and write it as it should be read.

    A published notebook shows its figures in JupyterLab (live), on nbviewer and
    on GitHub (pictures). Controls become a picture of their state with a line
    that says so. Widget state, progress bars, run times, random ids and paths of
    this machine go, so that publishing twice gives the same bytes.

    Parameters
    ----------
    path
        The notebook. The kernel works in its folder.
    check
        Compare instead of write: run, and say how the file would change. The
        pictures are then compared by the figure they were drawn from, not by
        their bytes, so that no browser is needed and fonts do not matter; numbers of
        figures may differ by rounding, as they do between processors.
    parameters
        New values for variables of the cell tagged ``parameters``; they stay in
        the notebook as a cell of their own.
    timeout_s
        Longest time a single cell may take, in seconds.
    limit_mb
        Largest size of the published file, in 10^6 bytes.
    progress
        Whether to show a bar while the notebook runs.

    Returns
    -------
    str
        The difference between the file as it was and as published, in unified
        form with long lines cut; empty if there is none.

    Raises
    ------
    PublishError
        If the notebook cannot be read, a cell raises or takes too long, a cell
        writes to the error stream, or the result is over the limit. The file is
        then left as it was.
    """
    path = Path(path)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    notebook = _execute.read(path)
    _execute.inject(notebook, parameters or {}, path)
    _execute.execute(notebook, path, timeout_s=timeout_s, show_progress=progress)
    if check:
        return difference(notebook, path)
    after = _published(notebook, path, svg_of)
    _refuse_size(notebook, after, limit_mb, path)
    if after != before:
        _replace(path, after)
    return _difference(before, after, path)


def difference(notebook: Any, path: Path) -> str:
    """Say how a file would change if a notebook that was just run, and is used up, were published.

    Only the presence of a picture matters.
    """
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    after = _published(notebook, path, lambda _figure: _DRAWN)
    old, new = _masked(before), _masked(after)
    _forgive_rounding(old, new)
    return _difference(_written(old), _written(new), path)


def _published(notebook: Any, path: Path, draw: Callable[[Any], str | None]) -> str:
    _normalise.without_progress(notebook)
    _refuse_messages(notebook, path)
    _normalise.hide_paths(notebook, path.parent)
    _snapshot.add_pictures(notebook, draw)
    _snapshot.drop_explorers(notebook)
    _normalise.normalise(notebook)
    return _written(notebook)


# A published page shows no warnings.
def _refuse_messages(notebook: Any, path: Path) -> None:
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                first = output.text.strip().splitlines()[0]
                msg = f"{path}, cell {number} writes to the error stream: {first[:200]}"
                raise PublishError(msg)


def _refuse_size(notebook: Any, text: str, limit_mb: float, path: Path) -> None:
    size_mb = len(text.encode()) / 1e6
    if size_mb <= limit_mb:
        return
    sizes = {
        number: sum(len(str(output)) for output in cell.get("outputs", []))
        for number, cell in enumerate(notebook.cells, start=1)
    }
    largest = max(sizes, key=lambda number: sizes[number])
    msg = (
        f"{path} would have {size_mb:.2f} MB, more than {limit_mb:g} MB; most of it is the "
        f"output of cell {largest} ({sizes[largest] / 1e6:.2f} MB): draw fewer points there"
    )
    raise PublishError(msg)


def _written(notebook: Any) -> str:
    import nbformat

    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one, never half of it."""
    mode = stat.S_IMODE(path.stat().st_mode)

    def write_to(file: IO[bytes]) -> None:
        file.write(text.encode())
        os.fchmod(file.fileno(), mode)

    write_whole(path, write_to)


def _masked(text: str) -> Any:
    import nbformat

    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    for output in _snapshot.outputs(notebook):
        data = output.data
        if SVG_MIME in data:
            data[SVG_MIME] = _verdict(data[SVG_MIME], data.get(PLOTLY_MIME))
        if isinstance(html := data.get("text/html"), str):
            data["text/html"] = _EMBEDDED.sub("data:picture", html)
    return notebook


def _forgive_rounding(old: Any, new: Any) -> None:
    """Copy to the figures of a notebook the numbers of another where only rounding differs.

    Processors differ in the last digits of a logarithm, and libraries in the order of sums.
    """
    for before, after in zip(_snapshot.outputs(old), _snapshot.outputs(new), strict=False):
        if PLOTLY_MIME in before.data and PLOTLY_MIME in after.data:
            after.data[PLOTLY_MIME] = _settled(before.data[PLOTLY_MIME], after.data[PLOTLY_MIME])


def _settled(old: Any, new: Any) -> Any:
    """Return ``new`` with the numbers of ``old`` where both are the same but for rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        if "bdata" in old and "bdata" in new:
            return old if _same_array(old, new) else new
        for name in new.keys() & old.keys():
            new[name] = _settled(old[name], new[name])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [_settled(*pair) for pair in zip(old, new, strict=True)]
    elif isinstance(old, float) and isinstance(new, float):
        same = math.isclose(old, new, rel_tol=_ROUNDING_RATIO, abs_tol=_ROUNDING_NEAR_ZERO)
        return old if same else new
    return new


def _same_array(old: dict[str, Any], new: dict[str, Any]) -> bool:
    import numpy as np

    headers = [{name: packed[name] for name in packed if name != "bdata"} for packed in (old, new)]
    # Rounding differs in floats only; integers have to be equal.
    if headers[0] != headers[1] or headers[0].get("dtype") not in ("f4", "f8"):
        return False
    old_values, new_values = (
        np.frombuffer(base64.b64decode(packed["bdata"]), dtype=f"<{packed['dtype']}")
        for packed in (old, new)
    )
    return len(old_values) == len(new_values) and np.allclose(
        old_values, new_values, rtol=_ROUNDING_RATIO, atol=_ROUNDING_NEAR_ZERO, equal_nan=True
    )


def _verdict(svg: str, figure: dict[str, Any] | None) -> str:
    # svg_of names parts of a picture by the figure: an old picture gives itself away.
    if svg == _DRAWN or figure is None or f"defs-{key_of(figure)[:6]}" in svg:
        return "picture"
    return "picture of another figure"


def _difference(before: str, after: str, path: Path) -> str:
    names = (f"{path} (in the file)", f"{path} (published)")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, n=1, lineterm="")
    return "\n".join(
        line if len(line) <= _LINE_WIDTH else f"{line[:_LINE_WIDTH]}…" for line in lines
    )
