"""Sections of a page: those without data, those about other data, and which of them are folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
    """Fold published cases, and sections without data into the line that names what they need.

    Parameters
    ----------
    notebook
        A notebook that ran; changed in place. The first cell of a folded section gets what the
        fold is called in its metadata, the last one a mark.
    """
    for section in _sections(notebook["cells"], "## ")[1:]:
        if PUBLISHED_CASE in _tags(section[0]):
            heading, _ = _parted("".join(section[0]["source"]))
            is_said = "not your data" in heading
            _fold(section, "published", "" if is_said else "Published case, not your data")
        elif _fold_if_absent(section):
            continue
        else:
            for part in _sections(section, "### ")[1:]:
                _fold_if_absent(part)


def _fold_if_absent(section: Cells) -> bool:
    outputs = [output for cell in section for output in cell.get("outputs", [])]
    lines = [output.get("data", {}).get(ABSENT_MIME) for output in outputs]
    heading, _ = _parted("".join(section[0]["source"]))
    if not heading.startswith("##") or not lines or None in lines:
        return False
    for cell in section:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    _fold(section, "absent", " ".join(dict.fromkeys(lines)))
    return True


def _fold(section: Cells, kind: str, line: str) -> None:
    heading, body = _parted("".join(section[0]["source"]))
    section[0]["source"] = body
    section[0]["metadata"][FOLD] = {"kind": kind, "heading": heading, "line": line}
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
