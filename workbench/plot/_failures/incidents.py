"""Incidents: what failed when and where, and how their number depends on the window."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import name_rows, whiskers
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import interval, label, percent, plural, reservations, short, span
from workbench.tables import CAUSE_SHARES, FAILURES, INCIDENT_COUNTS

_SYMBOLS = {
    "gpu": "circle",
    "gpu memory": "square",
    "nvlink": "diamond",
    "network": "triangle-up",
    "host": "star",
    "storage": "triangle-down",
    "software": "cross",
    "scheduler": "hexagon",
    "planned": "triangle-right",
    "follow-on": "x-thin-open",
    "unknown": "circle-open",
}
_MOST_MARKS, _MOST_WINDOWS = 4_000, 24
_SECOND = 1_000_000_000
_SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def incidents(
    failures: pd.DataFrame, *, top: int = 16, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show when each host had which kind of incident.

    One row per host (per device where there is one host only), one mark per incident,
    one trace per category; larger marks fold more lines. Marks that would cover each
    other are drawn as one. The title counts incidents and names the most frequent cause.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, folded.
    top
        Hosts to show, those with most incidents; the others share one row.

    Raises
    ------
    ValueError
        If ``top`` is below 1.
    """
    frame = Frame(source, synthetic)
    FAILURES.check(failures)
    if top < 1:
        msg = f"top must be 1 or more; got {top!r}"
        raise ValueError(msg)
    shown, notes = _on_one_clock(failures)
    if shown.empty:
        why = "; ".join(notes) or "The logs that were read report no failure."
        return frame.nothing(why, claim="No incidents to show", is_answer=True)
    names, rows = _rows(shown, top)
    figure = Draft()
    for category in shown["category"].value_counts().index:
        _add(figure, shown, rows, len(names), str(category))
    figure.update_xaxes(**_time_axis(shown))
    figure.update_yaxes(
        title="host" if shown["node"].nunique() > 1 else "device",
        **row_axis([label(name, 36) for name in names], 0.4, 0.6),
    )
    figure.update_layout(
        hovermode="closest",
        height=max(120, 26 * len(names) + 30),
        margin={"l": 24 + left_margin([name[:36] for name in names])},
    )
    notes = ["larger marks fold more lines", *notes]
    return frame.finish(figure, claim=_claim(shown), note=" · ".join(notes))


def _on_one_clock(failures: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep the incidents of one kind of clock; say what is dropped."""
    timed = failures[failures["start_ns"].notna()]
    clock = "epoch" if (timed["clock"] == "epoch").any() else "own"
    shown = timed[timed["clock"] == clock].reset_index(drop=True)
    notes = []
    if without := len(failures) - len(timed):
        notes.append(f"{plural(without, 'incident')} without a time dropped")
    if unsynchronized := len(timed) - len(shown):
        notes.append(f"{plural(unsynchronized, 'incident')} with unsynchronized clocks dropped")
    return shown, notes


def _rows(shown: pd.DataFrame, top: int) -> tuple[list[str], np.ndarray]:
    owner = shown["node"] if shown["node"].nunique() > 1 else shown["device"]
    owner = owner.fillna("not told").astype(object)
    counts = owner.value_counts()
    # A single host beyond the limit is named, since "1 others" would take its row anyway.
    kept = counts.index[:top] if len(counts) > top + 1 else counts.index
    names = [str(name) for name in kept]
    rows = owner.map({name: row for row, name in enumerate(kept)})
    if len(counts) > len(kept):
        names.append(f"{len(counts) - len(kept):,} others")
    return names, rows.fillna(len(kept)).to_numpy(dtype=np.int64)


def _add(
    figure: go.Figure, shown: pd.DataFrame, rows: np.ndarray, row_count: int, category: str
) -> None:
    is_drawn = (shown["category"] == category).to_numpy()
    marks = shown[is_drawn].assign(row=rows[is_drawn])
    # The limit holds for all rows of a trace together.
    bins = max(_MOST_MARKS // row_count, 1)
    start = marks["start_ns"].to_numpy(dtype=np.int64)
    first, last = int(shown["start_ns"].min()), int(shown["start_ns"].max())
    # Floats are exact enough to tell which marks would cover each other.
    bin_of = np.floor((start - first) / max(last - first, 1) * (bins - 1))
    marks["bin"] = bin_of if len(marks) > _MOST_MARKS else np.arange(len(marks))
    marks = marks.sort_values(["row", "bin"], kind="stable")
    leads = marks.drop_duplicates(["row", "bin"])
    grouped = marks.groupby(["row", "bin"])["line_count"]
    lines, counts = grouped.sum().to_numpy(), grouped.size().to_numpy()
    figure.add_scatter(
        x=_times(leads["start_ns"], shown),
        y=leads["row"].to_numpy(),
        mode="markers",
        name=label(category, 24),
        marker={
            "color": colour(_known(category)),
            "symbol": _SYMBOLS.get(category, "asterisk-open"),
            "opacity": 0.9,
            # A burst of thousands of lines must not cover its neighbours.
            "size": np.clip(9 + 4 * np.log10(lines), 9, 26),
            "line": {"width": 1.5 if "open" in _SYMBOLS.get(category, "open") else 0.5},
        },
        hovertext=list(map(_hover, leads.to_dict("records"), counts.tolist(), lines.tolist())),
        hovertemplate="%{hovertext}<br>%{x}<extra></extra>",
    )


def _known(category: str) -> str:
    return category if category in _SYMBOLS else "unknown"


def _times(start: pd.Series, shown: pd.DataFrame) -> Any:
    if shown["clock"].iloc[0] == "epoch":
        return pd.to_datetime(start.to_numpy(dtype=np.int64)).to_numpy()
    return start.to_numpy(dtype=np.int64) / (3_600 * _SECOND)


def _time_axis(shown: pd.DataFrame) -> dict[str, Any]:
    if shown["clock"].iloc[0] == "epoch":
        return {"title": "time [UTC]", "type": "date"}
    return {"title": "time since the log began [h]"}


def _hover(row: Mapping[Hashable, Any], incident_count: int, line_count: int) -> str:
    code = "" if pd.isna(row["code"]) else f"{row['code']} "
    where = " ".join(str(row[name]) for name in ("node", "device") if not pd.isna(row[name]))
    also = f", also {label(row['other_codes'])}" if row["other_codes"] else ""
    words = [f"{plural(incident_count, 'incident')}, the first:"] if incident_count > 1 else []
    words += [f"<b>{label(code + row['cause'], 60)}</b>", label(where or "host not told", 60)]
    words += [f"{plural(line_count, 'line')}{also}", label(row["text"], 90)]
    return "<br>".join(filter(None, words))


def _claim(shown: pd.DataFrame) -> str:
    causes = shown["cause"].value_counts()
    cause, most = label(causes.index[0], 60), int(causes.iloc[0])
    if len(shown) == 1:
        where = shown["node"].iloc[0]
        return f"1 incident: {cause}" + ("" if pd.isna(where) else f", on {label(where, 30)}")
    reach = int(shown["start_ns"].max()) - int(shown["start_ns"].min())
    counted = f"{plural(len(shown), 'incident')} within {_span(reach)}"
    if most == len(shown):
        return f"{counted}, all of them: {cause}"
    return f"{counted}; most frequent, with {most:,}: {cause}"


def _span(nanoseconds: int) -> str:
    seconds = max(nanoseconds / _SECOND, 1)
    # Two of a unit at least: 90 minutes tell more than 2 hours, rounded up.
    unit, noun = next((u, n) for u, n in _SPANS if seconds > 2 * u or u == 1)
    return plural(int(np.ceil(seconds / unit)), noun)


def incident_counts(
    incident_counts: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how the number of incidents depends on the longest pause inside one.

    One column per window, stacked by category. The title compares the shortest window
    with the longest.

    Parameters
    ----------
    incident_counts
        Table :data:`workbench.tables.INCIDENT_COUNTS`.
    """
    frame = Frame(source, synthetic)
    INCIDENT_COUNTS.check(incident_counts)
    if incident_counts.empty:
        why = "The logs that were read report no failure."
        return frame.nothing(why, claim="No incidents to count", is_answer=True)
    totals = incident_counts.groupby("window_s")["incident_count"].sum().sort_index()
    kept = totals.index
    if len(kept) > _MOST_WINDOWS:
        kept = kept[np.linspace(0, len(kept) - 1, _MOST_WINDOWS).round().astype(int)]
    drawn = incident_counts[incident_counts["window_s"].isin(kept)]
    names = [_window(window) for window in kept]
    figure = Draft()
    by_category = drawn.groupby("category")["incident_count"].sum().sort_values(ascending=False)
    for category in by_category.index[: len(_SYMBOLS)]:
        counts = drawn[drawn["category"] == category].groupby("window_s")["incident_count"].sum()
        figure.add_bar(
            x=names,
            y=counts.reindex(kept, fill_value=0).to_numpy(),
            name=label(category, 24),
            marker=fill(_known(str(category)), bars=len(kept) * len(by_category)),
            hovertemplate="%{y:,} incidents at %{x}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(barmode="stack", hovermode="closest")
    figure.update_xaxes(title="longest pause inside an incident", type="category")
    figure.update_yaxes(title="incidents [count]", rangemode="tozero")
    dropped = len(totals) - len(kept)
    note = f"{plural(dropped, 'window')} dropped" if dropped else ""
    return frame.finish(figure, claim=_counted(totals), note=note)


def _counted(totals: pd.Series) -> str:
    first, last = plural(int(totals.iloc[0]), "incident"), f"{int(totals.iloc[-1]):,}"
    shortest, longest = _window(totals.index[0]), _window(totals.index[-1])
    if len(totals) == 1:
        return f"{first} at a window of {shortest}"
    if totals.iloc[0] == totals.iloc[-1]:
        return f"{first}, whatever the window from {shortest} to {longest}"
    folded = "if no line is folded" if shortest == "0" else f"with pauses of up to {shortest}"
    return f"{first} {folded}, {last} with pauses of up to {longest} inside"


def _window(window_s: float) -> str:
    if window_s == 0:
        return "0"
    return f"{window_s / 60:g} min" if window_s >= 600 and window_s % 60 == 0 else f"{window_s:g} s"


_MOST = 20
_ROW_PX = 24
_ROUNDED = 0.0011  # printed shares have one decimal of a per cent


def cause_shares(shares: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show each cause's share of the failures, with its interval and the printed share.

    One bar per cause with whiskers; a hollow diamond is the share that was printed. The
    title names the leading cause and how few make up 80 %.

    Parameters
    ----------
    shares
        Table :data:`workbench.tables.CAUSE_SHARES`.
    """
    frame = Frame(source, synthetic)
    CAUSE_SHARES.check(shares)
    drawn = shares.sort_values("failure_count", ascending=False, kind="stable")
    drawn = drawn[drawn["failure_share"].notna()].iloc[:_MOST].reset_index(drop=True)
    if drawn.empty:
        why = "No failures were counted, so no cause has a share of them. "
        return frame.nothing(why + " · ".join(reservations(shares)), claim="No causes to show")
    figure = Draft([_bars(drawn)])
    if drawn["printed_share"].notna().any():
        figure.add_trace(_printed(drawn))
    names = [short(cause, 40) for cause in drawn["cause"]]
    most = float(drawn[["high_share", "printed_share"]].max().max())
    name_rows(figure, names, max(len(names), 3) * _ROW_PX, showgrid=False)
    figure.update_layout(bargap=0.3, hovermode="closest")
    figure.update_xaxes(title="share of all failures [%]", range=[0, 118 * most])
    notes = [*interval(shares), *_differences(shares)]
    if hidden := len(shares) - len(drawn):
        count = int(shares["failure_count"].sum() - drawn["failure_count"].sum())
        notes.append(f"{plural(hidden, 'cause')} with {count:,} failures dropped")
    notes += reservations(shares)
    return frame.finish(figure, claim=_causes_claim(shares), note=" · ".join(notes))


def _bars(drawn: pd.DataFrame) -> go.Bar:
    share = drawn["failure_share"].to_numpy(dtype="float64")
    return go.Bar(
        orientation="h",
        x=100 * share,
        y=list(range(len(drawn))),
        name="from the counts",
        marker=fill("all others"),
        error_x=whiskers(share, drawn["low_share"].to_numpy(), drawn["high_share"].to_numpy(), 100),
        hovertext=[_causes_hover(row) for row in drawn.to_dict("records")],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _causes_hover(row: Mapping[Hashable, Any]) -> str:
    return (
        f"{label(row['cause'], 80)}<br>{plural(row['failure_count'], 'failure')}, "
        f"{percent(row['failure_share'])} ({span(row['low_share'], row['high_share'])})<br>"
        f"with those above: {percent(row['cumulative_share'])}"
    )


def _printed(drawn: pd.DataFrame) -> go.Scatter:
    printed = drawn[drawn["printed_share"].notna()]
    return go.Scatter(
        mode="markers",
        x=100 * printed["printed_share"].to_numpy(dtype="float64"),
        y=printed.index.to_numpy(),
        name="as printed",
        marker={"symbol": "diamond-open", "size": 10, "color": COLOURS["limit"]},
        marker_line_width=2,
        hovertemplate="printed: %{x:.1f} %<extra></extra>",
    )


def _differences(shares: pd.DataFrame) -> list[str]:
    printed = shares.dropna(subset=["printed_share", "failure_share"])
    if printed.empty:
        return []
    apart = int(_is_apart(printed).sum())
    if apart == 0:
        return ["all printed shares follow from the counts"]
    verb = "does" if apart == 1 else "do"
    return [f"{apart} of {len(printed)} printed shares {verb} not follow from the counts"]


def _is_apart(rows: pd.DataFrame) -> pd.Series:
    """Return which printed shares rounding does not explain."""
    gap = (rows["printed_share"] - rows["failure_share"]).abs() > _ROUNDED
    return gap.fillna(value=False).astype(bool)


def _causes_claim(shares: pd.DataFrame) -> str:
    ordered = shares.dropna(subset=["failure_share"])
    ordered = ordered.sort_values("failure_count", ascending=False, kind="stable")
    first = ordered.iloc[0]
    total = int(ordered["failure_count"].sum())
    lead = f"{label(first['cause'], 40)} is behind {percent(float(first['failure_share']))} of the "
    lead += plural(total, "failure")
    if _is_apart(ordered).iloc[0]:
        lead += f", printed as {percent(float(first['printed_share']))}"
    enough = (ordered["cumulative_share"] >= 0.8).to_numpy(dtype=bool, na_value=False)
    if len(ordered) > 1 and enough.any() and (count := int(enough.argmax()) + 1) > 1:
        share = percent(float(ordered["cumulative_share"].iloc[count - 1]))
        lead += f"; the first {count} of {len(ordered)} causes are behind {share}"
    return lead
