"""A job and its findings, as every command judges it: many ranks one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.tables import Bundle, Findings


def judged(
    path: Path | Sequence[Path],
    options: dict[str, Any],
    *,
    least_time_share: float = 0.0,
    progress: bool = True,
) -> tuple[Bundle, Findings]:
    """Load what is under a path, and ask every rule.

    Of a job of many ranks the bundle has ``rank_files``, and a trace without events.
    """
    from workbench import analyze, load
    from workbench._shared.rank_sets import BY_ITSELF, MOST_RANKS
    from workbench.cli._app import records, refuse_idle_window
    from workbench.tables import QUALITY, Trace

    bundle = load.bundle(path, **options, most_ranks=MOST_RANKS, progress=progress)
    refuse_idle_window(options, records(bundle.quality))
    found = analyze.findings(bundle, least_time_share=least_time_share)
    if bundle.rank_files is None:
        return bundle, found
    ranks, quality = found.tables["traces.ranks"], found.tables["traces.quality"]
    if quality["what"].str.endswith(BY_ITSELF).any():
        # Of several jobs the largest is judged; a load of all tells them apart.
        bundle = load.bundle(path, **options, progress=progress)
        return bundle, analyze.findings(bundle, least_time_share=least_time_share)
    rows = [quality] if bundle.quality is None else [bundle.quality, quality]
    together = QUALITY.joined(rows).drop_duplicates(ignore_index=True)
    trace = Trace.of(ranks=ranks, quality=quality)
    return replace(bundle, trace=trace, quality=together), found
