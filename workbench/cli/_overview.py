"""The first page of a report: findings about the data, and files that hold their evidence."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli._app import say
from workbench.errors import LoadError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.plot import Page
    from workbench.share import Overview, PageFacts
    from workbench.tables import Bundle, Findings

# Around the worst wait, so that Perfetto shows how it came about and how it ended.
_MARGIN_SHARE = 0.5
_MOST_ROWS = 1_000_000


def first_page(
    data: Path, options: dict[str, Any], pages: Sequence[PageFacts], folder: Path
) -> Overview:
    """Compute the findings about some data and lay them out as the first page of a report.

    Tables behind the findings, and a cut of the traces, are written into the folder.
    """
    from workbench import plot, share
    from workbench.cli._job import judged
    from workbench.cli._share import names_in
    from workbench.share import Overview

    name = data.resolve().name
    try:
        bundle, found = judged(data, options, progress=False)
    except LoadError as error:
        if not pages:
            raise
        return Overview(name, _without_findings(name, say(str(error)), pages), name)
    found = _in_words_of_commands(found)
    cuts = _cuts(found, bundle, folder, bundle.is_synthetic)
    share.write_names(folder, names_in(bundle, data))
    bundle = _without_folders(bundle, data)
    downloads = {**_tables(found, bundle, folder), **cuts}

    def laid_out(pages: Sequence[PageFacts]) -> Overview:
        shown = plot.dashboard(
            found,
            bundle,
            source=name,
            synthetic=bundle.is_synthetic,
            pages=[_page(page) for page in pages],
            downloads=downloads,
        )
        return Overview(f"Findings: {name}", shown.html, name, bundle.is_synthetic, laid_out)

    return laid_out(pages)


def _without_folders(bundle: Bundle, data: Path) -> Bundle:
    """Call files by their paths from the data on: a page shows the last parts of a path."""
    from workbench.cli._share import from_data_on

    shown = {}
    for name in ("files", "quality"):
        if (table := getattr(bundle, name)) is not None:
            shown[name] = table.assign(
                source=[from_data_on(str(path), data) for path in table["source"]]
            )
    return replace(bundle, **shown)


def _in_words_of_commands(found: Findings) -> Findings:
    """Name options instead of arguments: ``--node`` where a doubt says ``node=``."""
    table = found.findings
    worded = {name: [say(str(text)) for text in table[name]] for name in ("doubt", "next_step")}
    return replace(found, findings=table.assign(**worded).astype(table.dtypes.to_dict()))


def _page(page: PageFacts) -> Page:
    from workbench.plot import Page

    number = page.stem[:2] if page.stem[:2].isdecimal() else ""
    answer = (page.answers or ("",))[0]
    return Page(number, page.href, page.label, answer, page.problems, page.sections)


def _without_findings(name: str, reason: str, pages: Sequence[PageFacts]) -> str:
    """List the pages of data that no rule asks anything of, and say why there are no findings."""
    items = "".join(
        f'<li><a href="{html.escape(page.href)}">{html.escape(page.title)}</a></li>'
        for page in pages
    )
    note = f'<p class="wb-notice" role="note">No findings: {html.escape(reason)}</p>'
    return f"<h1>{html.escape(name)}</h1>{note}<ul>{items}</ul>"


def _tables(found: Findings, bundle: Bundle, folder: Path) -> dict[str, str]:
    """Write the tables behind the findings as CSV; return their addresses by what to call them."""
    named = {"findings": found.findings, "rules": found.rules}
    named |= {} if bundle.quality is None else {"readings of files": bundle.quality}
    behind = folder / "csv" / "findings"
    behind.mkdir(parents=True, exist_ok=True)
    for name, table in found.tables.items():
        table.head(_MOST_ROWS).to_csv(behind / f"{name}.csv")
    for name, table in named.items():
        table.to_csv(folder / "csv" / _file(name), index=False)
    return {f"All {name} as CSV": f"csv/{_file(name)}" for name in named}


def _file(name: str) -> str:
    return f"{name.replace(' ', '_')}.csv"


def _cuts(found: Findings, bundle: Bundle, folder: Path, is_synthetic: bool) -> dict[str, str]:
    """Cut the traces around the longest wait, for the rank that caused it and one that waited."""
    from workbench import load

    window = _window(found)
    if window is None or bundle.trace is None:
        return {}
    first_ns, last_ns, ranks = window
    addresses = {}
    for rank, role in ranks:
        events = _events_of(bundle, rank)
        is_within = events["start_ns"] < last_ns
        is_within &= events["start_ns"] + events["dur_ns"] > first_ns
        rows = events[is_within].reset_index(drop=True)
        if len(rows):
            file = folder / "perfetto" / f"rank_{rank}.json.gz"
            file.parent.mkdir(exist_ok=True)
            load.write_chrome_trace(rows, file, synthetic=is_synthetic)
            words = f"Longest wait, rank {rank} ({role}): drag this file into ui.perfetto.dev"
            addresses[words] = f"perfetto/{file.name}"
    return addresses


def _events_of(bundle: Bundle, rank: int) -> pd.DataFrame:
    """Return the events of a rank, from its file where the ranks were loaded one by one."""
    assert bundle.trace is not None
    if bundle.rank_files is None:
        return bundle.trace.events[bundle.trace.events["rank"] == rank]
    return next(file for file in bundle.rank_files if file.rank == rank).load().events


def _window(found: Findings) -> tuple[int, int, list[tuple[int, str]]] | None:
    """Return begin and end of the longest wait with a margin, who was late and who waited."""
    waits = found.tables.get("traces.waits")
    late: pd.DataFrame | None = found.tables.get("traces.late")
    if waits is None or late is None or not len(late) or not len(waits):
        return None
    collective = late.nlargest(1, "wait_ns").iloc[0]
    rows = waits[waits["collective"] == collective["collective"]]
    if not len(rows):
        return None
    longest = rows.nlargest(1, "wait_ns").iloc[0]
    first, last = int(rows["start_ns"].min()), int((rows["start_ns"] + rows["dur_ns"]).max())
    margin = int(_MARGIN_SHARE * (last - first))
    ranks = [(int(collective["blamed_rank"]), "late"), (int(longest["rank"]), "waiting")]
    return first - margin, last + margin, ranks
