"""Figures of training across regions: rates, sweeps, losses, times to a loss."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import panels
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.style import (
    COLOURS,
    MAX_LINES,
    Frame,
    distinct,
    fill,
    left_margin,
    row_axis,
)
from workbench.plot._style.text import digits, is_doubtful, label, percent, seconds
from workbench.tables import (
    LOCAL_TRAINING,
    LOCAL_TRAINING_RATE,
    LOCAL_TRAINING_SWEEP,
    TIME_TO_LOSS,
)

_MOST_ROWS, _ROW_PX = 20, 40
_SYMBOLS = (
    "circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "star",
    "pentagon", "hexagon", "bowtie", "hourglass",
)  # fmt: skip
_CLOCK_ONLY = "no latency, no sharing of links, no failures"
_LONG_S = 3_600.0


def local_training_rate(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what the workers do with their time under each scheme, and how long training takes.

    A bar per scheme that adds up to 100 % of the capacity. The title states the fastest
    scheme and the next two.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.LOCAL_TRAINING_RATE`.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    LOCAL_TRAINING_RATE.check(table)
    if table.empty:
        why = "The table has no schemes; analyze.local_training_rate makes it."
        return frame.nothing(why, claim="No schemes to compare")
    rows = table.head(_MOST_ROWS)
    figure = Draft()
    for column, meaning, words in (
        ("compute_share", "compute", "compute"),
        ("transfer_share", "transfer", "transfer of the model"),
        ("wait_share", "wait", "wait for slower workers"),
    ):
        share = rows[column].to_numpy()
        figure.add_bar(
            orientation="h", x=share, y=np.arange(len(rows)), name=words, marker=fill(meaning),
            text=[percent(value) if value >= 0.04 else "" for value in share],
            hovertemplate=f"{words}: %{{x:.1%}}<extra></extra>",
        )  # fmt: skip
    names = [
        f"{label(scheme, 20)}, {seconds(total)}"
        for scheme, total in zip(rows["scheme"], rows["total_s"], strict=True)
    ]
    figure.update_layout(
        barmode="stack", height=max(len(rows), 2) * _ROW_PX, margin_l=left_margin(names)
    )
    figure.update_xaxes(
        title="share of the steps that the workers could do [%]", tickformat=".0%", range=[0, 1]
    )
    figure.update_yaxes(**row_axis(names), showgrid=False)
    ordered = rows.sort_values("total_s", kind="stable")
    first = ordered.iloc[0]
    claim = f"{label(first['scheme'], 20)} is fastest, {seconds(first['total_s'])}"
    later = ordered.iloc[1:3]
    if first["total_s"] and len(later):
        slower = [
            f"{digits(row.total_s / first['total_s'])} times as long with {label(row.scheme, 20)}"
            for row in later.itertuples()
        ]
        claim += f"; {' and '.join(slower)}"
    note = f"closed form: {_CLOCK_ONLY}; says nothing about the loss per step"
    note += f" · {len(table) - len(rows)} schemes not drawn" * (len(table) > len(rows))
    return frame.finish(figure, claim=claim, note=note)


def local_training_sweep(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how the time of each scheme over that of HALoS changes with one input.

    One line per scheme on two logarithmic axes. The title states both ends of the scheme
    that comes closest to HALoS.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.LOCAL_TRAINING_SWEEP`, of one input.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    LOCAL_TRAINING_SWEEP.check(table)
    rows = table[(table["value_ratio"] > 0) & (table["halos_ratio"] > 0)]
    others = rows[rows["scheme"] != "HALoS"]
    if others.empty:
        why = "The table has no scheme beside HALoS; analyze.local_training_sweep makes it."
        return frame.nothing(why, claim="Nothing to compare")
    figure = Draft()
    schemes = list(dict.fromkeys(rows["scheme"]))
    for at, scheme in enumerate(schemes[:MAX_LINES]):
        line = rows[rows["scheme"] == scheme].sort_values("value_ratio", kind="stable")
        line = line.iloc[extremes(line["halos_ratio"].to_numpy())]
        figure.add_scatter(
            x=line["value_ratio"], y=line["halos_ratio"], name=label(scheme, 20), mode="lines",
            line=distinct(at), hovertemplate="%{x:.4g}: %{y:.2f} x<extra></extra>",
        )  # fmt: skip
    parameter = str(rows["parameter"].iloc[0])
    known = {
        "link factor": "bandwidth between regions [times that of the regions]",
        "local steps": "local steps between exchanges, schemes other than HALoS [steps]",
    }
    title = known.get(parameter, f"{label(parameter)} [1]")
    figure.update_xaxes(title=title, type="log", dtick="D2")
    figure.update_yaxes(title="time over that of HALoS [times]", type="log", dtick="D2")
    # Whoever is closest where HALoS gains most is who it has to be compared with.
    nearest = others.groupby("scheme", observed=True)["halos_ratio"].max().idxmin()
    ends = others[others["scheme"] == nearest].sort_values("value_ratio").iloc[[0, -1]]
    (low, high), (first, last) = ends["value_ratio"], ends["halos_ratio"]
    claim = (
        f"{label(nearest, 20)} takes {digits(first)} times as long as HALoS at {label(parameter)} "
        f"{digits(low)}, {digits(last)} times at {digits(high)}"
    )
    note = f"closed form: {_CLOCK_ONLY}{_dropped(schemes)}"
    return frame.finish(figure, claim=claim, note=note)


def local_training(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the loss over time and over local steps, side by side.

    One line per scheme in both panels, all seeds. The title states who is first at the
    loss that all schemes reach, and who ends lowest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.LOCAL_TRAINING`.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    LOCAL_TRAINING.check(table)
    if table.empty:
        why = "The table has no runs; analyze.local_training makes it."
        return frame.nothing(why, claim="No training runs to show")
    figure = panels(["loss over time", "loss over local steps"], height_px=320)
    schemes = list(dict.fromkeys(table["scheme"]))
    for at, scheme in enumerate(schemes[:MAX_LINES]):
        rows = table[table["scheme"] == scheme].sort_values(["seed", "step_count"], kind="stable")
        # An empty cell between two seeds, so that no line joins the end of one to the next.
        gaps = np.flatnonzero(np.diff(rows["seed"])) + 1
        loss = np.insert(rows["loss"].to_numpy(), gaps, np.nan)
        keep = extremes(loss, MAX_POINTS)
        axes = (
            (rows["time_s"].to_numpy() / _LONG_S, "h"),
            (rows["step_count"].to_numpy(), "steps"),
        )
        for panel, (values, unit) in enumerate(axes, start=1):
            # The initial model, at time 0, has no position on a logarithmic axis.
            x = np.insert(np.where(values > 0, values, np.nan), gaps, np.nan)[keep]
            figure.add_scatter(
                x=x, y=loss[keep], name=label(scheme, 20), mode="lines", line=distinct(at),
                showlegend=panel == 1, row=1, col=panel, legendgroup=str(at),
                hovertemplate=f"%{{x:,.4g}} {unit}: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="time [h]", type="log", row=1, col=1)
    figure.update_xaxes(title="local steps of all workers [steps]", row=1, col=2)
    figure.update_yaxes(title="held-out loss [nats per character]", row=1, col=1)
    lowest = table.groupby("scheme", observed=True)["loss"].min()
    level, best = float(lowest.max()), str(lowest.idxmin())
    reached = table[table["loss"] <= level].sort_values("time_s", kind="stable").iloc[0]
    claim = (
        f"{label(reached['scheme'], 20)} is first at loss {digits(level)}, after "
        f"{seconds(reached['time_s'])}; {label(best, 20)} ends lowest, at {digits(lowest.min())}"
    )
    note = _note(table) + _dropped(schemes)
    return frame.finish(figure, claim=claim, note=note, is_doubtful=is_doubtful(table))


def time_to_loss(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show times to a loss over those of the reference scheme, and how much of it is the clock.

    One line per scheme with the range of the seeds; crosses are the ratio of the clocks
    alone. The title states the range of the scheme that is closest to the reference.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.TIME_TO_LOSS`.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    TIME_TO_LOSS.check(table)
    others = table[table["scheme"].astype(str) != table["reference"].astype(str)]
    others = others[others["time_ratio"] > 0]
    if others.empty:
        why = "No scheme beside the reference reaches a level; analyze.time_to_loss takes levels."
        return frame.nothing(why, claim="No times to compare")
    figure = Draft()
    schemes = list(dict.fromkeys(others["scheme"]))
    for at, scheme in enumerate(schemes[:MAX_LINES]):
        rows = others[others["scheme"] == scheme].sort_values("loss", kind="stable")
        rows = rows.iloc[extremes(rows["time_ratio"].to_numpy())]
        middle = rows["time_ratio"].to_numpy()
        figure.add_scatter(
            x=rows["loss"], y=middle, name=label(scheme, 20), mode="lines+markers",
            line=distinct(at), marker_symbol=_SYMBOLS[at % len(_SYMBOLS)],
            error_y={
                "array": (rows["high_time_ratio"] - middle).clip(lower=0),
                "arrayminus": (middle - rows["low_time_ratio"]).clip(lower=0), "width": 4,
            },
            hovertemplate="loss %{x:.2f}: %{y:.2f} x<extra></extra>",
        )  # fmt: skip
    clock = others[others["scheme"].isin(schemes[:MAX_LINES])].head(MAX_POINTS)
    figure.add_scatter(
        x=clock["loss"], y=clock["clock_ratio"], name="by the clock alone", mode="markers",
        marker={"symbol": "x-thin-open", "size": 9, "color": COLOURS["reference"]},
        hovertemplate="clock alone: %{y:.2f} x<extra></extra>",
    )  # fmt: skip
    reference = label(table["reference"].iloc[0], 20)
    figure.update_xaxes(title="held-out loss [nats per character]", autorange="reversed")
    figure.update_yaxes(title=f"time over that of {reference} [times]", type="log", dtick="D2")
    nearest = others.groupby("scheme", observed=True)["time_ratio"].median().idxmin()
    rows = others[others["scheme"] == nearest]
    low, high = digits(rows["low_time_ratio"].min()), digits(rows["high_time_ratio"].max())
    claim = (
        f"To the same loss {label(nearest, 20)} takes {low} to {high} times as long as "
        f"{reference}; the clock alone gives {digits(rows['clock_ratio'].median())}"
    )
    runs = int(table["run_count"].min())
    note = f"bars: lowest to highest of {runs} seeds · {_note(others)}{_dropped(schemes)}"
    return frame.finish(figure, claim=claim, note=note, is_doubtful=is_doubtful(rows))


def _dropped(schemes: list[str]) -> str:
    """Report a number of schemes that is too large for them to be told apart."""
    more = len(schemes) - MAX_LINES
    return f" · {more} schemes not drawn" if more > 0 else ""


def _note(rows: pd.DataFrame) -> str:
    """Describe the model whose loss is drawn, and any doubt."""
    doubts = [text for text in dict.fromkeys(rows["doubt"]) if text]
    words = f"loss of: {label(rows['model'].iloc[0], 60)}; the clock may be that of a larger model"
    return words + "".join(f" · <b>{label(doubt, 120)}</b>" for doubt in doubts[:1])
