"""The results of the claims, for people: a text table and a fragment of a page."""

from __future__ import annotations

import html as escaping
from typing import Any

import pandas as pd

from workbench.tables import FIDELITY

_HEADS = ("claim", "source", "printed", "here", "tolerance", "verdict")


def text(frame: pd.DataFrame) -> str:
    """Lay out the results as plain text, one line per number compared.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    str
        Columns claim, source, printed, here, tolerance, verdict; then what is to be done
        about absent data sets and failed claims; then one line that counts the verdicts.
    """
    rows = [_HEADS, *_cells(frame)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if 2 <= column <= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    notes = [f"{verdict} - {claim}: {note}" for claim, verdict, note in _notes(frame)]
    return "\n".join([*lines, "", *notes, summary(frame)])


def html(frame: pd.DataFrame) -> str:
    """Lay out the results as one HTML table, to be put into a page.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    str
        A ``<table class="wb-fidelity">`` with a caption; every text is escaped.
    """
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADS)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escaping.escape(cell)}</td>" for cell in cells) + "</tr>"
        for cells in _cells(frame)
    )
    notes = "\n".join(
        f"<li>{escaping.escape(f'{verdict} - {claim}: {note}')}</li>"
        for claim, verdict, note in _notes(frame)
    )
    return (
        f'<table class="wb-fidelity">\n<caption>{escaping.escape(summary(frame))}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
        + (f'<ul class="wb-fidelity-notes">\n{notes}\n</ul>\n' if notes else "")
    )


def notebook() -> dict[str, Any]:
    """Write a notebook that runs every claim, so that a report can have it as a page.

    Returns
    -------
    dict
        A Jupyter notebook (nbformat 4) as plain data, without outputs.
    """
    opening = (
        "# Does the workbench compute what others printed?\n\n"
        "**Question.** Which numbers of papers, peers and exact references does the workbench "
        "reproduce?\n\n"
        "**Answer.** Every claim below was computed while this page was made. A claim whose data "
        "set is not at hand says how to get it.\n\n"
        "**Data.** Public data sets, named in the notes."
    )
    code = (
        "from IPython.display import HTML\n\n"
        "from workbench import fidelity\n\n"
        "HTML(fidelity.html(fidelity.run()))"
    )
    return {
        "cells": [
            {"cell_type": "markdown", "id": "cell-00", "metadata": {}, "source": opening},
            {
                "cell_type": "code",
                "id": "cell-01",
                "metadata": {},
                "source": code,
                "execution_count": None,
                "outputs": [],
            },
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def summary(frame: pd.DataFrame) -> str:
    """Count the verdicts in one sentence.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    str
        For example ``"65 pass, 0 FAIL, 1 absent"``.
    """
    counts = FIDELITY.check(frame)["verdict"].astype(str).value_counts()
    return ", ".join(
        f"{counts.get(verdict, 0)} {verdict}" for verdict in ("pass", "FAIL", "absent")
    )


def _cells(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (
            row["claim"],
            row["source"],
            *(_number(row[name], row["unit"]) for name in ("printed", "here", "tolerance")),
            row["verdict"],
        )
        for row in FIDELITY.check(frame).to_dict("records")
    ]


def _notes(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    noted = frame[frame["note"] != ""].to_dict("records")
    return [(row["claim"], row["verdict"], row["note"]) for row in noted]


def _number(value: Any, unit: str) -> str:
    """Write a number without losing a digit of it; nothing for a missing one."""
    if pd.isna(value):
        return ""
    digits = f"{int(value):,}" if float(value).is_integer() else f"{value:,.10g}"
    return f"{digits} {unit}".rstrip()
