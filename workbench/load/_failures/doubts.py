"""What looks wrong only once all files of a load lie side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from workbench._follow_ons import is_told_as_alone
from workbench._incidents import at_once
from workbench.load._files.findings import Finding
from workbench.load._files.log_file import SECOND, LogPart

_EARLIEST_NS = 946_684_800_000_000_000  # 2000-01-01
_HALF_YEAR_NS = 182 * 86_400 * SECOND
# Reporters of which every host or process writes its own log of one and the same failure.
_SHARED, _SHARED_NS = ("nvrx", "torchft"), 600 * SECOND

_MOST_AT_ONCE, _AT_ONCE_S = 3, 10.0


def doubts(
    parts: Sequence[LogPart], incidents: pd.DataFrame, timeline: pd.DataFrame
) -> list[Finding]:
    """Return the findings about what was loaded as a whole.

    Parameters
    ----------
    parts
        The files, as read.
    incidents, timeline
        What was made of them: tables FAILURES and TIMELINE.
    """
    return [
        *_copies(parts, incidents, timeline),
        *_without_host(incidents),
        *_before_any_clock(incidents),
        *_shared_boot(incidents),
        *_years_apart(incidents),
        *_one_failure_in_many_files(incidents),
        *_many_at_once(incidents),
        *_without_trigger(incidents),
        *_attempts_counted_anew(parts, timeline),
    ]


def _copies(
    parts: Sequence[LogPart], incidents: pd.DataFrame, timeline: pd.DataFrame
) -> Iterator[Finding]:
    """Flag files that hold what another one does and whose rows were counted all the same."""
    counted = {*incidents["source"], *timeline["source"]}
    first: dict[bytes, str] = {}
    for part in parts:
        count = len(part.failures) + len(part.timeline)
        if count and part.findings.source in counted:
            known = first.setdefault(_digest(part), part.findings.source)
            if known != part.findings.source:
                what = "rows equal to those of another file, counted again; is one a copy?"
                yield part.findings.source, "suspicious", what, count, known


def _digest(part: LogPart) -> bytes:
    rows = (part.failures, part.timeline)
    numbers = (
        pd.util.hash_pandas_object(each.drop(columns="source"), index=False) for each in rows
    )
    return b"|".join(each.to_numpy().tobytes() for each in numbers)


def _by_file(rows: pd.DataFrame, what: str, finding: str = "suspicious") -> list[Finding]:
    return [
        (str(source), finding, what, len(some), f"line {some['line'].iloc[0]:,}")
        for source, some in rows.groupby("source", sort=False)
    ]


def _without_host(incidents: pd.DataFrame) -> list[Finding]:
    """Ask for the hosts of what happened on a device."""
    lost = incidents[incidents["node"].isna() & incidents["device"].notna()]
    return _by_file(lost, "incidents on a device of an unknown host; pass node=")


def _before_any_clock(incidents: pd.DataFrame) -> list[Finding]:
    """Flag times of hosts whose clock was not set yet."""
    is_early = (incidents["clock"] == "epoch") & (incidents["start_ns"] < _EARLIEST_NS)
    early = incidents[is_early.fillna(value=False)]
    return _by_file(early, "incidents before the year 2000: the clock was not set")


def _shared_boot(incidents: pd.DataFrame) -> list[Finding]:
    """Flag one time of boot that was used for several hosts."""
    booted = incidents[incidents["assumed"].str.contains("boot=", regex=False)]
    if booted["node"].fillna(booted["source"]).nunique() < 2:
        return []
    what = "one boot_time used for several hosts or files; load each with its own"
    return _by_file(booted, what)


def _years_apart(incidents: pd.DataFrame) -> list[Finding]:
    """Flag one year that was used for files that may be of two: December, and January."""
    dated = incidents[incidents["assumed"].str.contains("year=", regex=False)]
    first = dated.groupby("source", sort=False)["start_ns"].min().dropna()
    if len(first) < 2 or int(first.max()) - int(first.min()) < _HALF_YEAR_NS:
        return []
    what = "one year= used for files half a year apart; load those of another year with theirs"
    return _by_file(dated, what)


def _one_failure_in_many_files(incidents: pd.DataFrame) -> list[Finding]:
    """Flag reports that only side by side could be told for one failure."""
    found = incidents[incidents["kind"].isin(_SHARED) & incidents["category"].ne("follow-on")]
    found = found[found["start_ns"].notna()].sort_values("start_ns", kind="stable")
    both = ["kind", "cause"]
    is_close = (found.groupby(both)["start_ns"].diff() <= _SHARED_NS).fillna(value=False)
    is_other = found["source"].ne(found.groupby(both)["source"].shift())
    what = "failures that another file reports as well, minutes before; join the files of one job"
    return _by_file(found[is_close & is_other], what)


def _many_at_once(incidents: pd.DataFrame) -> list[Finding]:
    """Flag incidents of several hosts or jobs that begin within seconds."""
    crowded = incidents[at_once(incidents, most=_MOST_AT_ONCE, within_s=_AT_ONCE_S)]
    what = (
        f"incidents within {_AT_ONCE_S:g} s of {_MOST_AT_ONCE} or more others; one failure, of a "
        "switch or a power feed say, may be counted more than once"
    )
    return _by_file(crowded, what)


def _without_trigger(incidents: pd.DataFrame) -> list[Finding]:
    """Flag what a device or job does after a failure, where no failure goes before it."""
    what = "follow-on messages with no failure before them; counted as failures of unknown trigger"
    return _by_file(incidents[is_told_as_alone(incidents)], what)


def _attempts_counted_anew(parts: Sequence[LogPart], timeline: pd.DataFrame) -> list[Finding]:
    """Flag jobs of which several files of a kind count the attempts; note those of two kinds."""
    runs = timeline[timeline["state"].eq("running") & timeline["attempt"].notna()]
    runs = runs[runs["job"].notna()]
    format_of = {part.findings.source: part.format_name for part in parts}
    kind = runs["source"].astype(str).map(format_of).fillna("")
    first = runs.groupby(["job", "attempt", kind])["source"].transform("first")
    anew = runs["source"].ne(first)
    what = "runs of a job whose attempts another file counts as well; load its runs from one file"
    told = runs.groupby(["job", "attempt"])["source"].transform("first")
    twice = runs["source"].ne(told) & ~anew
    also = "runs of a job that a log of another kind tells of as well; sum the rows of one source"
    return [*_by_file(runs[anew], what), *_by_file(runs[twice], also, "noted")]
