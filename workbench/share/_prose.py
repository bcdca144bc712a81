"""Text that holds for one data set only, and sections that run on data of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ABOUT_PUBLISHED_DATA = "about-published-data"
"""Tag of text about the data that a notebook is published with; other data makes it wrong."""

PUBLISHED_CASE = "published-case"
"""Tag of the text that opens a section which never runs on one's own data."""

_NOT_YOURS = "**Published case, not your data.**"
_ANSWER = re.compile(r"^\*\*Answer\.?\*\*.*?(?:\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"\A(#{1,6} [^\n]*\n*)")


def drop_published_text(notebook: Any) -> None:
    """Remove the text that is about the data a notebook is published with."""
    cells = notebook["cells"]
    cells[:] = [cell for cell in cells if ABOUT_PUBLISHED_DATA not in _tags(cell)]
    opening = next((cell for cell in cells if cell.get("cell_type") == "markdown"), None)
    if opening is not None:
        opening["source"] = _ANSWER.sub("", "".join(opening["source"]))


def mark_published_cases(notebook: Any) -> None:
    """Say above every section tagged :data:`PUBLISHED_CASE` that it is not about one's data."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if PUBLISHED_CASE in _tags(cell) and _NOT_YOURS not in text:
            heading = match[0] if (match := _HEADING.match(text)) else ""
            body = text.removeprefix(heading)
            cell["source"] = "\n\n".join(filter(None, [heading.rstrip(), _NOT_YOURS, body]))


def drop_silent_sections(notebook: Any) -> None:
    """Remove sections whose code ran and showed nothing: the data at hand hold nothing for them.

    Parameters
    ----------
    notebook
        A notebook that ran; changed in place. The opening, published cases and
        sections without code stay.
    """
    sections: list[list[Any]] = [[]]
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "markdown" and "".join(cell["source"]).startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    opening, *others = sections
    kept = [opening, *(section for section in others if not _is_silent(section))]
    notebook["cells"][:] = [cell for section in kept for cell in section]


def _is_silent(section: list[Any]) -> bool:
    code = [cell for cell in section if cell.get("cell_type") == "code"]
    is_own = PUBLISHED_CASE not in _tags(section[0])
    return is_own and bool(code) and not any(cell.get("outputs") for cell in code)


def for_own_data(notebook: Any) -> None:
    """Make a copy of a notebook fit for data that it was not published with.

    Besides the text about other data its outputs go, which show other data as well.

    Parameters
    ----------
    notebook
        As for :func:`drop_published_text`; changed in place.
    """
    drop_published_text(notebook)
    mark_published_cases(notebook)
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None


def _tags(cell: Mapping[str, Any]) -> list[str]:
    tags: list[str] = cell.get("metadata", {}).get("tags", [])
    return tags
