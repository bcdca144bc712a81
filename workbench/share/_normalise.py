"""Make a notebook that ran the same on every run and every machine."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.share._snapshot import outputs
from workbench.share.bundle import SVG_MIME

_KERNEL_LINE = re.compile(r".*Kernel is running over TCP without encryption.*\n?")
_BAR = re.compile(r"^.*\d+%\|.*\|.*$", re.MULTILINE)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_KEPT_IN_CELLS = {"jupyter", "slideshow", "tags"}
_KEPT_IN_NOTEBOOK = {"authors", "title"}
_KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def normalise(notebook: Any) -> None:
    """Write everything around the outputs in one way.

    Metadata that programs leave behind go; cell ids, execution counts, kernel
    name and language get fixed values.

    Parameters
    ----------
    notebook
        The notebook, changed in place.
    """
    kept = {key: notebook.metadata[key] for key in _KEPT_IN_NOTEBOOK if key in notebook.metadata}
    notebook.metadata.clear()
    notebook.metadata.update(
        {**kept, "kernelspec": dict(_KERNELSPEC), "language_info": {"name": "python"}}
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    count = 0
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        for key in set(cell.metadata) - _KEPT_IN_CELLS:
            del cell.metadata[key]
        if cell.cell_type != "code":
            continue
        count += bool(cell.source.strip())
        cell.execution_count = count if cell.source.strip() else None
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count


def without_progress(notebook: Any) -> None:
    """Remove progress bars that ended up in outputs, and the known line of the kernel."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_leftover(output)]


def hide_paths(notebook: Any, folder: Path) -> None:
    """Replace paths of this machine, and memory addresses, in outputs and widget state."""
    places = _places(folder)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = _hidden(output["text"], places)
    for output in outputs(notebook):
        output["metadata"] = {k: v for k, v in output.get("metadata", {}).items() if k in _SHOWN}
        for mime, content in output.data.items():
            if mime != SVG_MIME:
                output.data[mime] = _hidden(content, places)
    if "widgets" in notebook.metadata:
        notebook.metadata["widgets"] = _hidden(notebook.metadata["widgets"], places)


_SHOWN = {"image/png", "image/jpeg", "image/svg+xml"}


def _is_leftover(output: Any) -> bool:
    """Say whether nothing is left of an output; texts lose their progress bars on the way."""
    if output.output_type == "stream":
        text = _KERNEL_LINE.sub("", output.text.replace("\r\n", "\n"))
        text = "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))
        output.text = _BAR.sub("", text)
        return not output.text.strip()
    return "data" in output and bool(_BAR.fullmatch(str(output.data.get("text/plain", "")).strip()))


def _places(folder: Path) -> list[tuple[re.Pattern[str], str]]:
    """List the folders of this machine and what stands for them, the longest first."""
    from sysconfig import get_paths

    named: list[tuple[Iterable[str | None], str]] = [
        ([str(folder.resolve()), str(folder)], "."),
        ([os.environ.get("WORKBENCH_DATA_MIRROR")], "<data>"),
        ([sys.prefix, sys.base_prefix, get_paths()["purelib"]], "<python>"),
        ([str(folder.resolve().parent)], ".."),
        ([tempfile.gettempdir()], "<temporary>"),
        ([str(Path.home())], "~"),
    ]
    found = {
        str(Path(place)): sign
        for places, sign in reversed(named)
        for place in places
        if place and Path(place).is_absolute() and len(Path(place).parts) > 1
    }
    ordered = sorted(found.items(), key=lambda item: -len(item[0]))
    return [(re.compile(rf"(?<![\w./-]){re.escape(p)}(?![\w.-])"), sign) for p, sign in ordered]


def _hidden(content: Any, places: list[tuple[re.Pattern[str], str]]) -> Any:
    """Replace the places in every text of some JSON; binary arrays of plotly stay as they are."""
    if isinstance(content, str):
        for place, sign in places:
            content = place.sub(sign, content)
        return _ADDRESS.sub("at 0x…", content)
    if isinstance(content, list):
        return [_hidden(item, places) for item in content]
    if isinstance(content, dict):
        return {
            key: value if key == "bdata" else _hidden(value, places)
            for key, value in content.items()
        }
    return content
