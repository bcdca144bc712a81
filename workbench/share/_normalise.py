"""Make a notebook that ran the same on every run and every machine."""

from __future__ import annotations

import html
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from workbench.share._snapshot import outputs
from workbench.share.bundle import SVG_MIME

_KERNEL_LINE = "Kernel is running over TCP without encryption"
_BAR = re.compile(r"\d%\|[^|]*\|")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_KEPT_IN_CELLS = {"jupyter", "slideshow", "tags"}
_KEPT_IN_NOTEBOOK = {"authors", "title"}
_KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def normalise(notebook: Any) -> None:
    """Write everything around the outputs in one way.

    Metadata that programs leave behind go; cell ids, execution counts, kernel
    name and language get fixed values.
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
    """Join the pieces of streams and remove progress bars and the known line of the kernel."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            joined = _joined(cell.outputs)
            for output in joined:
                if output.output_type == "stream":
                    output.text = _last_state(output.text)
            cell.outputs = [output for output in joined if not _is_empty(output)]


def hide_paths(notebook: Any, folder: Path, data: str = "") -> None:
    """Replace paths of this machine, and memory addresses, in outputs and widget state.

    Own ``data`` are called by their name: the folders around them are nobody else's affair.
    """
    folders = [*_around(data), *_places(folder)]
    for cell in notebook.cells:
        cell["source"] = without_folders(cell["source"], data)
        for output in cell.get("outputs", []):
            told = output.keys() & {"text", "evalue", "traceback"}
            output.update({name: _hidden(output[name], folders) for name in told})
    for output in outputs(notebook):
        output["metadata"] = {k: v for k, v in output.get("metadata", {}).items() if k in _SHOWN}
        for mime, content in output.data.items():
            if mime != SVG_MIME:
                output.data[mime] = _hidden(content, folders)
    if "widgets" in notebook.metadata:
        notebook.metadata["widgets"] = _hidden(notebook.metadata["widgets"], folders)


def without_folders(text: str, data: str) -> str:
    """Remove the folders that hold the data from the paths in a text."""
    return str(_hidden(text, _around(data)))


def _around(data: str) -> list[tuple[re.Pattern[str], str]]:
    """Return the folders around the data, as given and without links, in text, HTML, code, JSON."""
    if not data:
        return []
    ways = (Path(data).absolute(), Path(data).resolve())
    parents = {str(way.parent) for way in ways if way.parent != way.parent.parent}
    written: list[Callable[[str], str]]
    written = [str, html.escape, repr, json.dumps, partial(json.dumps, ensure_ascii=False)]
    forms = {form(path).strip("'\"") for form in written for path in parents}
    # Where an absolute path begins: /data within /mnt/data/x is another folder.
    return [(re.compile(rf"(?<![\w.~-]){re.escape(form)}[/\\]+"), "") for form in sorted(forms)]


_SHOWN = {"image/png", "image/jpeg", "image/svg+xml"}


# Where a kernel cuts a stream into pieces is chance.
def _joined(outputs_of_cell: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for output in outputs_of_cell:
        before = joined[-1] if joined else None
        if before is not None and _stream_of(before) == _stream_of(output) != "":
            before.text += output.text
        else:
            joined.append(output)
    return joined


def _stream_of(output: Any) -> str:
    return str(output.name) if output.output_type == "stream" else ""


def _last_state(text: str) -> str:
    """Write a stream as a terminal shows it in the end, without bars."""
    lines = text.replace("\r\n", "\n").split("\n")
    lines = [line.rsplit("\r", 1)[-1] for line in lines]
    return "\n".join(line for line in lines if _KERNEL_LINE not in line and not _BAR.search(line))


def _is_empty(output: Any) -> bool:
    """Return whether an output shows nothing, or is a bar that was a widget."""
    if output.output_type == "stream":
        return not output.text.strip()
    return "data" in output and bool(_BAR.search(str(output.data.get("text/plain", ""))[:400]))


def _places(folder: Path) -> list[tuple[re.Pattern[str], str]]:
    from sysconfig import get_paths

    folders_by_sign: list[tuple[Iterable[str | None], str]] = [
        ([str(folder.resolve()), str(folder)], "."),
        ([os.environ.get("WORKBENCH_DATA_MIRROR")], "<data>"),
        ([sys.prefix, sys.base_prefix, get_paths()["purelib"]], "<python>"),
        ([str(folder.resolve().parent)], ".."),
        ([tempfile.gettempdir()], "<temporary>"),
        ([str(Path.home())], "~"),
    ]
    signs = {
        str(Path(folder_path)): sign
        for folders, sign in reversed(folders_by_sign)
        for folder_path in folders
        if folder_path and Path(folder_path).is_absolute() and len(Path(folder_path).parts) > 1
    }
    ordered = sorted(signs.items(), key=lambda item: -len(item[0]))
    return [(re.compile(rf"(?<![\w./-]){re.escape(p)}(?![\w.-])"), sign) for p, sign in ordered]


# Binary arrays of plotly stay as they are.
def _hidden(content: Any, folders: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(content, str):
        for pattern, sign in folders:
            content = pattern.sub(sign, content)
        return _ADDRESS.sub("at 0x…", content)
    if isinstance(content, list):
        return [_hidden(item, folders) for item in content]
    if isinstance(content, dict):
        return {
            key: value if key == "bdata" else _hidden(value, folders)
            for key, value in content.items()
        }
    return content
