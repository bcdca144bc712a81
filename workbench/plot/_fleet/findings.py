"""Findings as a list of cards: HTML for notebooks and pages, text for terminals."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import pandas as pd

from workbench.plot._style.text import safe
from workbench.tables import FINDINGS, Findings

_NOTHING = "No rule found anything in this data."


@dataclass(frozen=True)
class FindingCards:
    """Findings, ready to be shown: a notebook shows ``html``, a terminal the text."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        """Return the text."""
        return self.text


def findings(
    found: Findings, *, source: str = "", synthetic: bool = False, count: int = 5
) -> FindingCards:
    """Show findings as a ranked list: sentence, place, cost, confidence, doubt, next step.

    Parameters
    ----------
    found
        From :func:`workbench.analyze.findings`.
    source
        Name of the data.
    synthetic
        Whether the data were made; the list says so.
    count
        Findings to show in full; one line counts the others.

    Returns
    -------
    FindingCards
        Shown by a notebook as HTML without scripts; ``html`` and ``text`` hold both forms.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> bundle = load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False)
    >>> cards = findings(analyze.findings(bundle), source="fleet-demo", synthetic=True)
    >>> "synthetic" in cards.html
    True
    """
    table = FINDINGS.check(found.findings).head(count)
    foot = [f"Source: {source}{' (synthetic)' * synthetic}"] if source or synthetic else []
    if len(found.findings) > count:
        foot.append(f"{len(found.findings) - count} more: analyze.findings(...).findings")
    items = "".join(_item(row) for _, row in table.iterrows())
    body = f"<ol>{items}</ol>" if items else f"<p>{_NOTHING}</p>"
    note = escape(", ".join(foot))
    html = f'<div class="wb findings">{body}<p>{note}</p></div>'
    lines = [f"{rank}. {safe(row['finding'])}" for rank, (_, row) in enumerate(table.iterrows(), 1)]
    return FindingCards(html, "\n".join([*(lines or [_NOTHING]), *foot]))


def _item(row: pd.Series) -> str:
    parts = [f"<b>{escape(row['finding'])}</b>", escape(row["where"])]
    if pd.notna(row["cost"]):
        parts.append(escape(f"{row['cost']:,.3g} {row['cost_unit']}, {row['cost_basis']}"))
    parts.append(escape(f"{row['confidence']} confidence. {row['doubt']}"))
    parts.append(escape(f"Next: {row['next_step']}"))
    return f"<li>{'<br>'.join(part for part in parts if part)}</li>"
