"""The results of the claims, for people: a text table and a fragment of a page."""

from __future__ import annotations

import html as escaping
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench.fidelity._registry import failed
from workbench.tables import FIDELITY

_VERDICTS = ("pass", "short", "FAIL", "absent")
_HEADS = ("what", "printed", "here", "tolerance", "verdict")
_CELL = "text-align: left; white-space: normal; vertical-align: top"
_NUMBER = "text-align: right; white-space: nowrap; vertical-align: top"


def text(frame: pd.DataFrame) -> str:
    """Lay out the results as plain text, one line per number compared.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    str
        Per claim and source: what, printed, here, tolerance, verdict, and what is to be done
        about an absent data set or a failure; at last one line that counts the verdicts.
    """
    return "\n\n".join([*map(_block, _claims(frame)), summary(frame)])


def html(frame: pd.DataFrame) -> str:
    """Lay out the results as a fragment of a page: an overview, then every claim.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    str
        Tables of class ``wb-fidelity``, without scripts. The numbers of a claim can be
        unfolded; those of a claim that fails are. Every text is escaped.
    """
    parts = list(_claims(frame))
    overview: list[tuple[str, ...]] = [
        (part["noun"].iloc[0], part["claim"].iloc[0], part["source"].iloc[0], _verdicts(part))
        for part in parts
    ]
    heads = ("about", "claim", "source of the printed numbers", "verdicts")
    return "\n".join(
        [f"<p><strong>{summary(frame)}</strong></p>", _table(heads, overview, (_CELL,) * 4)]
        + [_details(part) for part in parts]
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
        For example ``"65 pass, 2 short, 0 FAIL, 1 absent"``; short is named if it occurs.
    """
    counts = FIDELITY.check(frame)["verdict"].astype(str).value_counts()
    shown = [name for name in _VERDICTS if name != "short" or counts.get(name, 0)]
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in shown)


def _verdicts(part: pd.DataFrame) -> str:
    """Count the verdicts of one claim, without those that did not occur."""
    return re.sub(r"(^|, )0 \w+", "", summary(part)).removeprefix(", ")


def _claims(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Give the rows of each claim and source, in the order they were computed."""
    FIDELITY.check(frame)
    keys = [frame[name].astype(object) for name in ("noun", "claim", "source")]
    yield from (part for _, part in frame.groupby(keys, sort=False))


def _block(part: pd.DataFrame) -> str:
    rows = [_HEADS, *_cells(part)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if 0 < column < len(_HEADS) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    first = part.iloc[0]
    head = f"{first['noun']}: {first['claim']} - {_verdicts(part)}\nsource: {first['source']}"
    return "\n  ".join([head, *(lines if len(lines) > 1 else []), *_notes(part)])


def _details(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    head = escaping.escape(f"{first['claim']} - {_verdicts(part)}")
    notes = "".join(f"<p>{escaping.escape(note)}</p>" for note in _notes(part))
    table = _table(_HEADS, _cells(part), (_CELL, _NUMBER, _NUMBER, _NUMBER, _CELL))
    state = " open" if failed(part) else ""
    return f"<details{state}><summary>{head}</summary>{notes}{table}</details>"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], styles: tuple[str, ...]) -> str:
    head = "".join(
        f'<th scope="col" style="{style}">{name}</th>'
        for name, style in zip(heads, styles, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td style="{style}">{escaping.escape(cell)}</td>'
            for cell, style in zip(cells, styles, strict=True)
        )
        + "</tr>"
        for cells in rows
    )
    return (
        f'<table class="wb-fidelity">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _cells(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (
            row["what"],
            *(_number(row[name], row["unit"]) for name in ("printed", "here", "tolerance")),
            row["verdict"],
        )
        for row in frame[frame["note"] == ""].to_dict("records")
    ]


def _notes(frame: pd.DataFrame) -> list[str]:
    noted = frame[frame["note"] != ""].to_dict("records")
    return [f"{row['verdict']}: {row['note']}" for row in noted]


def _number(value: Any, unit: str) -> str:
    """Write a number without losing a digit of it; nothing for a missing one."""
    if pd.isna(value):
        return ""
    digits = f"{int(value):,}" if float(value).is_integer() else f"{value:,.10g}"
    return f"{digits} {unit}".rstrip()
