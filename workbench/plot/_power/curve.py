"""Speed and energy of a job against its power limit, and the limits that stand out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft, grid
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, distinct, left_margin, row_axis
from workbench.plot._style.text import is_doubtful, label, percent, plural
from workbench.tables import POWER_CURVE, POWER_KNEES, PROVISIONING, PUBLISHED_GAINS

SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "star", "cross", "hexagon",
    "triangle-left", "triangle-right", "pentagon", "x",
)  # fmt: skip
_CURVE = ["gpu", "job", "configuration"]
_MOST_ROWS = 24
_KNEES = (
    ("least_energy_limit_w", "least energy"),
    ("edp_limit_w", "least energy x time"),
    ("knee_limit_w", "the curve bends most"),
)


def power_curve(curve: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what a power limit does to the speed and to the energy of the same work.

    Two panels over one axis of limits, a line per curve; what was not measured or
    published has open marks. The title states what least energy saves and costs.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE`, best of few curves (``per="job"``).
    """
    frame = Frame(source, synthetic)
    POWER_CURVE.check(curve)
    if curve.empty:
        return frame.nothing(
            "The table has no curves; analyze.power_curve makes them from sweeps over limits.",
            claim="No power limits to compare",
        )
    names = list(dict.fromkeys(zip(*(curve[name] for name in _CURVE), strict=True)))
    has_energy = bool(curve["energy_ratio"].notna().any())
    columns = ["speed_ratio", "energy_ratio"] if has_energy else ["speed_ratio"]
    figure = grid(rows=len(columns), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for at, name in enumerate(names[:MAX_LINES]):
        own = curve[(curve[_CURVE] == list(name)).all(axis=1)].sort_values("limit_w")
        words = label(_words(own.iloc[0], len(names) > 1), 40)
        for row, column in enumerate(columns, start=1):
            if own[column].notna().any():
                figure.add_trace(_line(own, column, at, words), row=row, col=1)
    figure.add_hline(
        y=1, line={"color": COLOURS["faint"], "width": 1, "dash": "dot"}, row="all", col=1
    )
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    for row, title in enumerate(("speed [%]", "energy of the work [%]")[: len(columns)], start=1):
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_xaxes(title="power limit of a GPU [W]", tickformat=",", row=len(columns), col=1)
    figure.update_layout(height=220 * len(columns))
    return frame.finish(
        figure,
        claim=_curve_claim(curve),
        note=" · ".join(_curve_notes(curve, len(names))),
        is_doubtful=is_doubtful(curve),
    )


def _curve_notes(curve: pd.DataFrame, curve_count: int) -> list[str]:
    notes = ["against the largest limit of each"]
    if not curve["energy_ratio"].notna().any():
        notes.append("no power is known, so no energy")
    if curve_count > MAX_LINES:
        notes.append(f"{plural(curve_count - MAX_LINES, 'curve')} dropped")
    if curve["is_extrapolated"].any():
        notes.append("open markers: not measured")
    if in_doubt := int(((curve["doubt"] != "") & ~curve["is_extrapolated"]).sum()):
        notes.append(f"{plural(in_doubt, 'point')} in doubt (see the table)")
    return notes


def _words(row: pd.Series, is_one_of_many: bool) -> str:
    # The configuration is named only where it tells curves apart.
    setting = f", {row['configuration']}" if is_one_of_many and row["configuration"] else ""
    return f"{row['gpu']} {row['job']}{setting}"


def _line(own: pd.DataFrame, column: str, at: int, words: str) -> go.Scatter:
    own = own.iloc[extremes(own[column].to_numpy(dtype=np.float64))]
    symbol = SYMBOLS[at % len(SYMBOLS)]
    is_known = own["basis"].isin(["measured", "published"])
    return go.Scatter(
        x=own["limit_w"],
        y=own[column],
        mode="lines+markers",
        name=words,
        legendgroup=str(at),
        # A curve is in both panels, and in the legend once.
        showlegend=column == "speed_ratio",
        line={**distinct(at), "width": 2},
        marker={
            "color": distinct(at)["color"],
            "symbol": [symbol if item else f"{symbol}-open" for item in is_known],
            "size": 8,
        },
        customdata=own["basis"].map(label),
        hovertemplate="%{x:,.4g} W: %{y:.1%}, %{customdata}<extra></extra>",
    )


def _curve_claim(curve: pd.DataFrame) -> str:
    """Describe what least energy saves, or what the smallest known limit keeps."""
    known_rows = curve[~curve["is_extrapolated"]]
    energies = known_rows.dropna(subset=["energy_ratio"])
    if energies.empty:
        least = (known_rows if len(known_rows) else curve).sort_values("limit_w").iloc[0]
        return (
            f"At {least['limit_w']:,.4g} W, {label(_words(least, False), 50)} keeps "
            f"{percent(least['speed_ratio'])} of its speed"
        )
    best = energies.loc[energies.groupby(_CURVE, sort=False)["energy_ratio"].idxmin()]
    if len(best) > 1:
        low, high = best["saving_ratio"].min(), best["saving_ratio"].max()
        return (
            f"The right limit saves {percent(low)} to {percent(high)} of the energy of "
            f"{plural(len(best), 'curve')}"
        )
    row = best.iloc[0]
    return (
        f"{label(_words(row, False), 50)}: {row['limit_w']:,.4g} W saves "
        f"{percent(row['saving_ratio'])} of the energy and {_speed(1 - row['speed_ratio'])}"
    )


def _speed(loss: float) -> str:
    return f"costs {percent(loss)} of the speed" if loss >= 0 else f"gains {percent(-loss)} speed"


def power_knees(knees: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the limits that stand out for each GPU and job, as shares of the largest limit.

    A row per GPU and job, a mark per rule; what least energy saves and costs stands at the
    right. Rows in doubt are starred. The title states the range.

    Parameters
    ----------
    knees
        Table :data:`workbench.tables.POWER_KNEES`.
    """
    frame = Frame(source, synthetic)
    POWER_KNEES.check(knees)
    if knees.empty:
        return frame.nothing(
            "The table has no curves; analyze.power_knees finds their limits.",
            claim="No power curves to look at",
        )
    shown = knees.iloc[:_MOST_ROWS].reset_index(drop=True)
    figure = Draft()
    kept = f"keeps {percent(shown['kept_speed_share'].iloc[0])} of the speed"
    for at, (column, words) in enumerate([*_KNEES, ("kept_speed_limit_w", kept)]):
        valid = shown[shown[column].notna()]
        if valid.empty:
            continue
        figure.add_scatter(
            x=valid[column] / valid["largest_limit_w"],
            # Marks of one row stand above each other, so that none hides another.
            y=valid.index + (at - len(_KNEES) / 2) * 0.22,
            mode="markers",
            name=words,
            marker={
                "color": distinct(at)["color"],
                "symbol": SYMBOLS[at],
                "size": 8,
                "line": {"width": 1, "color": COLOURS["paper"]},
            },
            customdata=valid[column],
            hovertemplate="%{customdata:,.4g} W, %{x:.0%} of the largest limit<extra></extra>",
        )
    for at, row in enumerate(shown.to_dict("records")):
        if pd.notna(row["saving_ratio"]):
            figure.add_annotation(
                text=f"-{percent(row['saving_ratio'])} energy, {_signed(-row['speed_loss_ratio'])}",
                x=1.03,
                y=at,
                xanchor="left",
                showarrow=False,
                font={"size": 11},
            )
    ticks = [
        label(f"{row.gpu} {row.job}{' *' * bool(row.doubt)}", 34) for row in shown.itertuples()
    ]
    figure.update_xaxes(
        title="limit, as a share of the largest [%]", tickformat=".0%", range=[0, 1.32],
        tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1],
    )  # fmt: skip
    figure.update_yaxes(**row_axis(ticks, 0.4, 0.6), title="", showgrid=False)
    figure.update_layout(
        height=max(130, 30 * len(shown) + 30), margin_l=left_margin(ticks), hovermode="closest"
    )
    notes = ["at the right: least energy against the largest limit"]
    if len(knees) > len(shown):
        notes.append(f"{plural(len(knees) - len(shown), 'row')} dropped")
    if (shown["doubt"] != "").any():
        notes.append("* in doubt (see the table)")
    return frame.finish(
        figure, claim=_knees_claim(knees), note=" · ".join(notes), is_doubtful=is_doubtful(knees)
    )


def _names(knees: pd.DataFrame) -> list[str]:
    return [f"{gpu} {job}" for gpu, job in zip(knees["gpu"], knees["job"], strict=True)]


def _signed(change: float) -> str:
    return f"{'+' if change > 0 else '-'}{percent(abs(change))} speed"


def _knees_claim(knees: pd.DataFrame) -> str:
    valid = knees.dropna(subset=["least_energy_limit_w"])
    if valid.empty:
        least = knees.iloc[0]
        return (
            f"{label(_names(knees)[0], 50)} keeps {percent(least['kept_speed_share'])} of its "
            f"speed down to {least['kept_speed_limit_w']:,.4g} W"
        )
    if len(valid) == 1:
        row = valid.iloc[0]
        return (
            f"{label(_names(valid)[0], 50)}: {row['least_energy_limit_w']:,.4g} W saves "
            f"{percent(row['saving_ratio'])} of the energy and {_speed(row['speed_loss_ratio'])}"
        )
    share = valid["least_energy_limit_w"] / valid["largest_limit_w"]
    return (
        f"Least energy at {percent(share.min())} to {percent(share.max())} of the largest limit: "
        f"it saves {percent(valid['saving_ratio'].min())} to {percent(valid['saving_ratio'].max())}"
    )


# How many GPUs a site feeds at each power limit, and what they do together.

_MOST_CURVES, _MOST_POINTS = 6, 1_000
_HOVER = {
    "gpu_count": "%{x:,.4g} W: %{y:,} GPUs<extra></extra>",
    "gain_ratio": "%{x:,.4g} W: %{y:+.1%} throughput<extra></extra>",
}


def provisioning(
    table: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show how many GPUs a site feeds at each limit, and what throughput that buys.

    Two panels over one axis of limits: GPUs, and throughput against the reference limit.
    What was extrapolated is dashed. The title states the best limit and its gain.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PROVISIONING`.
    published
        Table :data:`workbench.tables.PUBLISHED_GAINS`, to lay over; drawn where the limit that
        was compared with is the same.
    """
    frame = Frame(source, synthetic)
    PROVISIONING.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no limits; analyze.provisioning works them out from a power curve.",
            claim="No power limits to compare",
        )
    names = list(dict.fromkeys(zip(*(table[name] for name in _CURVE), strict=True)))
    figure = grid(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for at, name in enumerate(names[:_MOST_CURVES]):
        own = table[(table[_CURVE] == list(name)).all(axis=1)].sort_values("limit_w")
        for row, column in ((1, "gpu_count"), (2, "gain_ratio")):
            for trace in _lines(own, column, at, len(names) > 1):
                figure.add_trace(trace, row=row, col=1)
    laid_over = _published(figure, table, published)
    figure.add_hline(y=0, line={"color": COLOURS["faint"], "width": 1, "dash": "dot"}, row=2, col=1)
    figure.update_yaxes(title="GPUs fed [count]", tickformat=",", row=1, col=1)
    figure.update_yaxes(title="throughput gained [%]", tickformat=".0%", row=2, col=1)
    figure.update_xaxes(title="power limit of a GPU [W]", tickformat=",", row=2, col=1)
    figure.update_layout(height=440)
    notes = [f"against {_watts(table['reference_limit_w'].unique())}, at the same site power"]
    if len(names) > _MOST_CURVES:
        notes.append(f"{plural(len(names) - _MOST_CURVES, 'curve')} dropped")
    if laid_over:
        notes.append("whiskers: what rounds to the published numbers")
    return frame.finish(
        figure,
        claim=_claim(table),
        note=" · ".join(notes),
        is_doubtful=is_doubtful(_best(_known(table))),
    )


def _lines(own: pd.DataFrame, column: str, at: int, is_one_of_many: bool) -> list[go.Scatter]:
    own = own.iloc[extremes(own[column].to_numpy(dtype=np.float64), _MOST_POINTS)]
    first = own.iloc[0]
    words = f"{first['gpu']} {first['job']}"
    words = label(f"{words}, {first['configuration']}" if is_one_of_many else words, 40)
    guessed = own["is_extrapolated"].to_numpy()
    pieces = [(own[~guessed], words, "")] if not guessed.all() else []
    if guessed.any():
        pieces.append((_beyond(own), f"{words}, extrapolated", "-open"))
    return [
        go.Scatter(
            x=piece["limit_w"],
            y=piece[column],
            mode="lines+markers",
            name=name,
            showlegend=column == "gpu_count",
            legendgroup=f"{at}{mark}",
            line={"color": distinct(at)["color"], "width": 2, "dash": "dash" if mark else "solid"},
            marker={
                "color": distinct(at)["color"],
                "symbol": SYMBOLS[at] + mark,
                "size": 9,
                "line": {"width": 2 if mark else 0},
            },
            hovertemplate=_HOVER[column],
        )
        for piece, name, mark in pieces
    ]


def _beyond(own: pd.DataFrame) -> pd.DataFrame:
    """Return each run of extrapolated rows with the known ones beside it, gaps between runs."""
    rows = own[["limit_w", "gpu_count", "gain_ratio"]].astype("float64").reset_index(drop=True)
    # Starts and ends of the runs of extrapolated rows, in turn.
    edges = np.flatnonzero(np.diff(np.r_[False, own["is_extrapolated"], False].astype(np.int8)))
    runs = [rows.iloc[max(a - 1, 0) : b + 1] for a, b in edges.reshape(-1, 2)]
    gap = pd.DataFrame(np.nan, index=[0], columns=rows.columns)
    return pd.concat([piece for run in runs for piece in (run, gap)][:-1], ignore_index=True)


def _published(figure: go.Figure, table: pd.DataFrame, published: pd.DataFrame | None) -> bool:
    if published is None:
        return False
    PUBLISHED_GAINS.check(published, "published")
    same = published["reference_limit_w"].isin(table["reference_limit_w"].unique())
    rows = published[same & published["gpu"].isin(table["gpu"].unique())]
    if rows.empty:
        return False
    figure.add_scatter(
        x=rows["limit_w"],
        y=rows["gain_ratio"],
        error_y={
            "array": rows["high_gain_ratio"] - rows["gain_ratio"],
            "arrayminus": rows["gain_ratio"] - rows["low_gain_ratio"],
            "thickness": 1.5,
            "width": 6,
        },
        mode="markers",
        name="published",
        marker={
            "symbol": "diamond-open",
            "size": 13,
            "color": COLOURS["reference"],
            "line": {"width": 2},
        },
        customdata=[label(row, 60) for row in rows["trust"]],
        hovertemplate="published: %{y:+.1%} at %{x:,.4g} W, %{customdata}<extra></extra>",
        row=2,
        col=1,
    )
    return True


def _watts(limits: Any) -> str:
    return f"{limits[0]:,.4g} W" if len(limits) == 1 else "the reference limit of each"


def _claim(table: pd.DataFrame) -> str:
    # What is extrapolated comes second, and is named as such.
    best = _best(_known(table))
    if len(best) > 1:
        low, high = best["gain_ratio"].min(), best["gain_ratio"].max()
        return (
            f"The best limits gain {percent(low)} to {percent(high)} throughput over "
            f"{plural(len(best), 'curve')}"
        )
    row = best.iloc[0]
    fed = f"{row['limit_w']:,.4g} W feeds {int(row['gpu_count']):,} GPUs"
    if row["limit_w"] == row["reference_limit_w"]:
        claim = f"{fed}; no other known limit does more together"
    else:
        claim = f"{fed} that do {_more(row)} than at {row['reference_limit_w']:,.4g} W"
    guess = _best(table).iloc[0]
    if guess["is_extrapolated"]:
        claim += f"; extrapolated, {guess['limit_w']:,.4g} W would do {_more(guess)}"
    return claim


def _known(table: pd.DataFrame) -> pd.DataFrame:
    """Return the measured or published rows, or all rows if there are none."""
    known_rows = table[~table["is_extrapolated"]]
    return known_rows if len(known_rows) else table


def _best(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table.groupby(_CURVE, sort=False)["throughput_ratio"].idxmax()]


def _more(row: pd.Series) -> str:
    change = float(row["gain_ratio"])
    return f"{percent(abs(change))} {'more' if change >= 0 else 'less'} together"
