"""Explore one axis of time: jump to an incident, choose a host, widen the window."""

from __future__ import annotations

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import plot
from workbench.explore.panel import ALL, Explorer, choice, slider
from workbench.tables import FLEET_TIMELINE

_SECOND = 1_000_000_000
_WINDOWS_S = (10, 30, 120, 600, 3_600, 21_600)
_MOST_PLACES, _MOST_HOSTS = 6, 8
_POINTS = 800
_WHOLE = "the whole time"
# No None: to a selection of ipywidgets that is not a value, and its label is then empty or not,
# depending on which of its observers runs first.
_ALWAYS = -1
_NEVER_HOST = {"host not told"}


def fleet_timeline(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Jump to what happened, and see power, steps, job, failures and traces around it.

    Starts at the whole time with every meter.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.FLEET_TIMELINE`.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.fleet_timeline`: the moment (first fatal failures and
        restarts, in order of time), the window around it, and the host whose meters and failures
        are shown. Of very many, the first are offered, hosts with failures before others.

    Raises
    ------
    TableError
        If ``table`` is not that table.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.power(datasets.path("fleet-demo") / "power", tz="UTC")
    >>> power = analyze.power_of_scope(log.power, log.entities)
    >>> job = load.job_log(datasets.path("fleet-demo") / "steps.jsonl")
    >>> table = analyze.fleet_timeline(power, steps=job.steps, spans=job.spans)
    >>> explorer = fleet_timeline(table, source="fleet-demo", synthetic=True)
    >>> print(explorer.title())
    122 s from 08:00:00 UTC, 4.16 kW to 8.69 kW, 128 steps
    """
    FLEET_TIMELINE.check(table)

    def draw(*, moment: int, window_s: int, host: str) -> go.Figure:
        shown = table if host == ALL else table[_is_of(table, host)]
        ends = (None, None) if moment == _ALWAYS else _ends(table, moment, window_s)
        return plot.fleet_timeline(
            shown,
            first_ns=ends[0],
            last_ns=ends[1],
            max_points=_POINTS,
            source=source,
            synthetic=synthetic,
        )

    return Explorer(
        draw,
        moment=widgets.Dropdown(options=[(_WHOLE, _ALWAYS), *_moments(table)], description="show"),
        window_s=slider("window", [(_words(length_s), length_s) for length_s in _WINDOWS_S], 30),
        host=choice("host", _hosts(table)),
    )


def _moments(table: pd.DataFrame) -> list[tuple[str, int]]:
    """Offer fatal failures and restarts, each moment once."""
    fatal = (table["panel"] == "failures") & table["text"].str.contains("(fatal)", regex=False)
    again = (table["panel"] == "job") & (table["lane"] == "restart")
    incidents = table.assign(second=table["start_ns"] // _SECOND, is_job=again)[fatal | again]
    incidents = incidents.sort_values(["second", "is_job", "start_ns"], kind="stable")
    # Several logs report one incident within a second.
    incidents = incidents[~incidents["second"].duplicated()].head(_MOST_PLACES)
    return [
        (
            f"{pd.Timestamp(int(row['start_ns'])):%H:%M:%S} {_short(str(row['text']))}",
            row["start_ns"],
        )
        for row in incidents.to_dict("records")
    ]


def _hosts(table: pd.DataFrame) -> list[str]:
    """Offer hosts with failures first, then those with power."""
    rows = table[table["node"].notna() & ~table["node"].isin(_NEVER_HOST)]
    failed = rows.loc[rows["panel"] == "failures", "node"].unique().tolist()
    metered = rows.loc[rows["panel"] == "power", "node"].unique().tolist()
    return list(dict.fromkeys([*sorted(failed), *metered]))[:_MOST_HOSTS]


def _is_of(table: pd.DataFrame, host: str) -> pd.Series:
    """Return which rows are of a host, or of the job as a whole."""
    of_all = ~table["panel"].isin(["power", "failures"]) | (table["lane"] == "all entities")
    return of_all | (table["node"] == host).fillna(value=False)


def _ends(table: pd.DataFrame, moment: int, window_s: int) -> tuple[int, int]:
    """Return the ends of the window: a third of it lies before the moment."""
    before = window_s * _SECOND // 3
    first = max(moment - before, int(table["start_ns"].min()))
    last = min(moment - before + window_s * _SECOND, int(table["end_ns"].max()))
    return first, last


def _short(text: str) -> str:
    bare = text.removesuffix(" (fatal)")
    return bare if len(bare) <= 44 else f"{bare[:43]}…"


def _words(window_s: int) -> str:
    for unit, name in ((3_600, "h"), (60, "min")):
        if window_s >= unit and window_s % unit == 0:
            return f"{window_s // unit} {name}"
    return f"{window_s} s"
