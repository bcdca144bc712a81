"""Findings as a list of cards: HTML for notebooks and pages, text for terminals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

import pandas as pd

from workbench._shared.numbers import quantity
from workbench.plot._fleet.thumbnails import thumbnail
from workbench.plot._style import html as parts
from workbench.plot._style.html import plain, safe_html
from workbench.plot._style.text import percent
from workbench.tables import FINDINGS, Findings

_NOTHING = "No rule found anything in this data."
_NOTEBOOK = re.compile(r"\(notebooks? ([\d and,]+)\)")


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


class Page(NamedTuple):
    """A page that shows evidence, for :func:`workbench.plot.dashboard`.

    ``sections`` names, by function of ``plot``, the section in which its figure stands.
    """

    number: str
    href: str
    label: str
    answer: str = ""
    problems: str = ""
    sections: Mapping[str, str] = MappingProxyType({})


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
    """
    table = FINDINGS.check(found.findings)
    foot = [f"Source: {source}{' (synthetic)' * synthetic}"] if source or synthetic else []
    if len(table) > count:
        foot.append(f"{len(table) - count} more: analyze.findings(...).findings")
    body = finding_list(found, count=count) or f"<p>{_NOTHING}</p>"
    made = [parts.note("<b>Synthetic data.</b> Nothing here was measured.")] if synthetic else []
    html = parts.page(*made, body, f'<p class="soft">{safe_html(", ".join(foot))}</p>')
    lines = [_text(rank, row) for rank, (_, row) in enumerate(table.head(count).iterrows(), 1)]
    return FindingCards(html, "\n".join([*(lines or [_NOTHING]), *map(plain, foot)]))


def finding_list(
    found: Findings,
    *,
    count: int,
    first: int = 0,
    pages: Mapping[str, Page] | None = None,
) -> str:
    """Write findings as a numbered list of HTML; empty without findings.

    Parameters
    ----------
    found
        From :func:`workbench.analyze.findings`; pictures are drawn from its tables.
    count
        Findings to show, up to this rank.
    first
        Findings to leave out before them.
    pages
        By number of a notebook, e.g. ``"01"``, its page.
    """
    largest = float(found.findings["time_share"].fillna(0).max()) if len(found.findings) else 0.0
    rows = found.findings.iloc[first:count]
    items = [
        _item(rank, row, found, largest, pages or {})
        for rank, (_, row) in enumerate(rows.iterrows(), first + 1)
    ]
    start = f' start="{first + 1}" style="counter-reset:f {first}"' if first else ""
    return f'<ol class="findings"{start}>{"".join(items)}</ol>' if items else ""


def cost_words(row: pd.Series) -> str:
    """Write the cost of a finding in its own unit; empty if it has none."""
    if pd.isna(row["cost"]):
        return ""
    words = quantity(float(row["cost"]), str(row["cost_unit"]))
    # The hyphen of GPU-hours stays one.
    return f"\N{MINUS SIGN}{words[1:]}" if words.startswith("-") else words


def _text(rank: int, row: pd.Series) -> str:
    share = "" if pd.isna(row["time_share"]) else f"{percent(row['time_share'])} of the GPU time"
    costs = ", ".join(filter(None, [share, plain(cost_words(row))]))
    head = f"{rank}. {plain(row['finding'])}"
    facts = [plain(row["where"]), costs, f"{row['confidence']} confidence"]
    return f"{head}\n   {'; '.join(filter(None, facts))}\n   Next: {plain(row['next_step'])}"


def _item(
    rank: int,
    row: pd.Series,
    found: Findings,
    largest: float,
    pages: Mapping[str, Page],
) -> str:
    where = f'<p class="where">{safe_html(row["where"])}</p>' if row["where"] else ""
    facts = parts.terms(
        [
            ("Next", safe_html(row["next_step"])),
            ("Confidence", parts.confidence(str(row["confidence"]))),
            ("Doubt", safe_html(row["doubt"])),
            ("Evidence", _evidence(str(row["evidence"]), pages)),
        ]
    )
    picture = thumbnail(row, found.tables)
    return (
        f'<li class="finding" id="finding-{rank}"><div class="body">'
        f'<p class="claim">{safe_html(row["finding"])}</p>{where}{facts}</div>'
        f'<div class="cost">{_cost(row, largest)}</div><div class="thumb">{picture}</div></li>'
    )


def _cost(row: pd.Series, largest: float) -> str:
    """Write the share of the GPU time with a bar, or else the cost in its own unit."""
    words, basis = cost_words(row), safe_html(row["cost_basis"])
    if pd.notna(row["time_share"]):
        share = float(row["time_share"])
        drawn = parts.bar([("neutral", share / largest if largest else 0.0)])
        value = percent(share).removesuffix(" %").replace("<", "&lt;").replace(">", "&gt;")
        more = ": ".join(filter(None, [safe_html(words), basis]))
        return f"<b>{value}</b><small>% of the GPU time</small>{drawn}<p>{more}</p>"
    if not words:
        return "<p>no cost known</p>"
    value, _, unit = words.partition(" ")
    return f"<b>{value}</b><small>{safe_html(unit)}</small><p>{basis}</p>"


def _evidence(evidence: str, pages: Mapping[str, Page]) -> str:
    """Link the pages that show a finding, and name its functions."""
    named = _NOTEBOOK.search(evidence)
    numbers = re.findall(r"\d+", named[1]) if named else []
    drawn = re.findall(r"plot\.(\w+)", evidence)
    links = [_link(pages[number], drawn) for number in numbers if number in pages]
    if not links:
        return safe_html(evidence)
    calls = safe_html(_NOTEBOOK.sub("", evidence).strip())
    return f"{', '.join(links)} <small>{calls}</small>"


def _link(page: Page, drawn: Sequence[str]) -> str:
    """Link the section of a page that shows one of some figures, or else the page."""
    section = next((page.sections[name] for name in drawn if name in page.sections), "")
    address = page.href + (f"#{quote(section)}" if section else "")
    return f'<a href="{safe_html(address)}">{page.number} {safe_html(page.label)}</a>'
