"""Sections of a page: those without data, those about other data, and which of them are folded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workbench.share.bundle import EXPLORER_MIME, PLOTLY_MIME

PUBLISHED_CASE = "published-case"
"""Tag of the text that opens a section which never runs on one's own data."""

NOTEBOOK_ONLY = "notebook-only"
"""Tag of text for whoever runs the notebook; pages leave it out."""

ABSENT_MIME = "application/vnd.workbench.absent+text"
"""MIME type of the line that stands where a section has no data; only reports read it."""

FOLD, FOLD_END = "wb_fold", "wb_fold_end"
"""Names in the metadata of cells: what the first of a folded section is called, and the last."""

_NOT_YOURS = "**Published case, not your data.**"
_ANSWER = re.compile(r"^\*\*Answer\.?\*\*.*?(?:\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_DATA = re.compile(r"^\*\*Data\.?\*\*.*?(?:\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_STATES = re.compile(r'<script type="application/json">(.*?)</script>', re.DOTALL)
_HEADING = re.compile(r"\A(#{1,6} [^\n]*)\n*")

Cells = list[Any]


def drop_answer(notebook: Any) -> None:
    """Remove the answer of the opening, which is that of the data it is published with."""
    cells = notebook["cells"]
    opening = next((cell for cell in cells if cell.get("cell_type") == "markdown"), None)
    if opening is not None:
        opening["source"] = _ANSWER.sub("", "".join(opening["source"]))


def drop_instructions(notebook: Any) -> None:
    """Remove what tells how to run the notebook and on which data: a page has been run."""
    cells = notebook["cells"]
    cells[:] = [cell for cell in cells if NOTEBOOK_ONLY not in _tags(cell)]
    if cells and cells[0].get("cell_type") == "markdown":
        cells[0]["source"] = _DATA.sub("", "".join(cells[0]["source"])).rstrip()


def mark_published_cases(notebook: Any) -> None:
    """Note above every section tagged :data:`PUBLISHED_CASE` that it is not about one's data."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if PUBLISHED_CASE in _tags(cell) and _NOT_YOURS not in text:
            heading, body = _parted(text)
            cell["source"] = "\n\n".join(filter(None, [heading, _NOT_YOURS, body]))


def for_own_data(notebook: Any) -> None:
    """Make a copy of a notebook fit for data that it was not published with.

    Besides the answer about other data its outputs go, which show other data as well.

    Parameters
    ----------
    notebook
        As for :func:`drop_answer`; changed in place.
    """
    drop_answer(notebook)
    mark_published_cases(notebook)
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None


def drop_silent_sections(notebook: Any) -> None:
    """Remove sections whose code ran and showed nothing: the available data hold nothing for them.

    Parameters
    ----------
    notebook
        A notebook that ran; changed in place. The opening, published cases and
        sections without code stay.
    """
    opening, *others = _sections(notebook["cells"], "## ")
    kept = [opening, *(section for section in others if not _is_silent(section))]
    notebook["cells"][:] = [cell for section in kept for cell in section]


def drop_dependent_sections(notebook: Any) -> None:
    """Remove sections that failed only because nothing was loaded, and name them at that step.

    Parameters
    ----------
    notebook
        A notebook that ran on although its data could not be loaded; changed in place. The
        output of the step that failed gets the headings of what was removed, as ``wb_left_out``.
    """
    errors = [output for cell in notebook["cells"] for output in _errors(cell)]
    if not errors or errors[0]["ename"] != "LoadError":
        return
    opening, *others = _sections(notebook["cells"], "## ")
    kept, left_out = [opening], []
    for section in others:
        outputs = [output for cell in section for output in cell.get("outputs", [])]
        is_dependent = all(output.get("ename") == "NameError" for output in outputs)
        if outputs and is_dependent and errors[0] not in outputs:
            left_out.append(_parted("".join(section[0]["source"]))[0].lstrip("# "))
        else:
            kept.append(section)
    errors[0]["wb_left_out"] = left_out
    notebook["cells"][:] = [cell for section in kept for cell in section]


def fold_sections(notebook: Any) -> None:
    """Fold published cases; name sections without data in one line at the foot.

    Parameters
    ----------
    notebook
        A notebook that ran; changed in place. The first cell of a folded section gets what the
        fold is called in its metadata, the last one a mark.
    """
    cells = notebook["cells"]
    opening, *sections = _sections(cells, "## ")
    kept, absent = [opening], list[tuple[str, str]]()
    for section in sections:
        if PUBLISHED_CASE in _tags(section[0]):
            _fold(section)
            kept.append(section)
        elif not _is_absent(section, absent):
            first, *parts = _sections(section, "### ")
            kept += [first, *(part for part in parts if not _is_absent(part, absent))]
    cells[:] = [cell for section in kept for cell in section]
    if absent:
        headings_by_reason: dict[str, list[str]] = {}
        for heading, reason in absent:
            headings_by_reason.setdefault(reason, []).append(heading)
        lines = [f"{'; '.join(names)} ({why})" for why, names in headings_by_reason.items()]
        source = f"No data for: {'; '.join(lines)}"
        foot = {"cell_type": "markdown", "id": "no-data", "metadata": {}, "source": source}
        cells.append(type(cells[0])(foot))


def _is_absent(section: Cells, absent: list[tuple[str, str]]) -> bool:
    """Return whether a section lacks its data, and note its heading and what it needs."""
    outputs = [output for cell in section for output in cell.get("outputs", [])]
    reasons = [_reason(output.get("data", {})) for output in outputs]
    heading, _ = _parted("".join(section[0]["source"]))
    if not heading.startswith("##") or not reasons or "" in reasons:
        return False
    absent.append((heading.lstrip("# "), " ".join(dict.fromkeys(reasons))))
    return True


def _reason(data: Mapping[str, Any]) -> str:
    """Return why an output has no data to show; empty if it shows some."""
    figures = [data[PLOTLY_MIME]] if PLOTLY_MIME in data else []
    # The states of an explorer are read only where the figure that it shows is empty.
    if all(map(is_empty, figures)) and (states := _STATES.search(data.get(EXPLORER_MIME, ""))):
        # A state that is not possible has a message instead of a figure.
        figures += [state for state in json.loads(states[1])["figures"] if "message" not in state]
    if not figures or not all(map(is_empty, figures)):
        return str(data.get(ABSENT_MIME, ""))
    notes = figures[0]["layout"]["annotations"][:1]
    return " ".join(str(note["text"]) for note in notes).replace("<br>", " ")


def is_empty(figure: Mapping[str, Any]) -> bool:
    """Return whether a figure says that there are no data for it."""
    meta = (figure.get("layout") or {}).get("meta")
    return isinstance(meta, dict) and bool(meta.get("is_empty"))


def _fold(section: Cells) -> None:
    heading, body = _parted("".join(section[0]["source"]))
    line = "" if "not your data" in heading else "Published case, not your data"
    section[0]["source"] = body
    section[0]["metadata"][FOLD] = {"heading": heading, "line": line}
    section[-1]["metadata"][FOLD_END] = True


def without_published_cases(notebook: Any) -> Any:
    """Return a notebook of the same cells without the published cases."""
    sections = _sections(notebook["cells"], "## ")
    own = [part for part in sections if part and PUBLISHED_CASE not in _tags(part[0])]
    return type(notebook)({**notebook, "cells": [cell for section in own for cell in section]})


def headings_of(cell: Any) -> str:
    """Return the text of a cell with the heading that its fold took over."""
    heading: str = cell.get("metadata", {}).get(FOLD, {}).get("heading", "")
    return f"{heading}\n\n{''.join(cell['source'])}" if heading else "".join(cell["source"])


def _sections(cells: Cells, mark: str) -> list[Cells]:
    """Part cells before each heading of a level; the first part is what precedes them all."""
    sections: list[Cells] = [[]]
    for cell in cells:
        is_text = cell.get("cell_type") == "markdown"
        starts = "".join(cell["source"]).startswith(mark) or PUBLISHED_CASE in _tags(cell)
        if is_text and starts:
            sections.append([])
        sections[-1].append(cell)
    return sections


def _is_silent(section: Cells) -> bool:
    code = [cell for cell in section if cell.get("cell_type") == "code"]
    is_own = PUBLISHED_CASE not in _tags(section[0])
    return is_own and bool(code) and not any(cell.get("outputs") for cell in code)


def _errors(cell: Any) -> Iterator[Any]:
    return (each for each in cell.get("outputs", []) if each.get("output_type") == "error")


def word_errors(notebook: Any, wording: Callable[[str], str]) -> None:
    """Rewrite the messages of failed steps, e.g. in the words of a command line."""
    for cell in notebook["cells"]:
        for output in _errors(cell):
            output["evalue"] = wording(output["evalue"])


def _parted(text: str) -> tuple[str, str]:
    """Part a text into the heading that it begins with, which may be empty, and the rest."""
    match = _HEADING.match(text)
    return (match[1], text[match.end() :]) if match else ("", text)


def _tags(cell: Mapping[str, Any]) -> list[str]:
    tags: list[str] = cell.get("metadata", {}).get("tags", [])
    return tags
