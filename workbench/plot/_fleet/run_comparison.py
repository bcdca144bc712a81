"""Figures of two runs side by side, and of many runs one after the other."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench._shared.run_verdict import comparison_verdict, trend_verdict
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import Frame, colour, left_margin
from workbench.plot._style.text import label, safe
from workbench.tables import RUN_CHANGES, RUN_COMPARISON, RUN_TREND

_TIME = "ms per step"
# The symbol shows the direction too, so that it is seen without colour.
_MARKS = {"more": "triangle-up", "less": "triangle-down", "not resolvable": "circle-open"}


def run_comparison(
    table: pd.DataFrame, *, count: int = 20, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show by how much two runs differ, quantity by quantity, with intervals around zero.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.RUN_COMPARISON`.
    count
        Quantities to draw, the most expensive changes first.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per quantity in ms per step, or of failures and energy where no times are
        compared. An interval that does not contain 0 is a change: the symbols point up for more,
        down for less.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> bundle = load.bundle(datasets.path("fleet-demo") / "traces", progress=False)
    >>> table = analyze.run_comparison(*analyze.run_halves(bundle))
    >>> figure = run_comparison(table, source="fleet-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])  # doctest: +ELLIPSIS
    Cannot be resolved: of steps that vary so much a change below 132 % is not seen...
    """
    frame = Frame(source, synthetic)
    RUN_COMPARISON.check(table)
    if table.empty:
        return frame.nothing("The runs share no quantity.", claim="No comparison to show")
    unit = _TIME if (table["unit"] == _TIME).any() else str(table["unit"].iloc[0])
    rows = table[table["unit"] == unit].head(count)
    # Two names may be cut to the same text: rows stand at numbers, which carry them as ticks.
    names = [label(row.name) + " (collective)" * (row.quantity == "collective")
             for row in rows.itertuples()]  # fmt: skip
    rows = rows.assign(label=pd.Series(names, rows.index), place=range(len(rows)))
    state = pd.Series("not resolvable", index=rows.index)
    is_changed = rows["verdict"] == "changed"
    state[is_changed & (rows["difference"] > 0)] = "more"
    state[is_changed & (rows["difference"] < 0)] = "less"
    figure = Draft()
    for name, mark in _MARKS.items():
        side = rows[state == name]
        if len(side):
            figure.add_scatter(
                x=side["difference"], y=side["place"], text=side["label"], mode="markers",
                name=name,
                marker={"symbol": mark, "size": 10,
                        "color": colour("neutral" if name == "not resolvable" else name)},
                error_x={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4,
                         "array": (side["high"] - side["difference"]).astype("float64"),
                         "arrayminus": (side["difference"] - side["low"]).astype("float64")},
                hovertemplate=f"%{{text}}: %{{x:.3g}} {unit}<extra>{name}</extra>",
            )  # fmt: skip
    figure.add_vline(x=0, line_width=1, line_color=colour("neutral"))
    figure.update_layout(
        xaxis_title=f"B minus A [{unit}]", height=60 + 24 * len(rows),
        margin_l=left_margin(rows["label"]),
        yaxis={"autorange": "reversed", "tickvals": rows["place"], "ticktext": names},
    )  # fmt: skip
    left = int((table["verdict"] == "changed").sum() - is_changed.sum())
    note = f"all {len(table)} intervals hold together"
    note += f"; {left} more changed" if left else ""
    return frame.finish(figure, claim=comparison_claim(table), note=note)


def comparison_claim(table: pd.DataFrame) -> str:
    """Return the verdict of the comparison, as every output states it."""
    return _as_title(comparison_verdict(table).sentence)


def _as_title(sentence: str) -> str:
    return safe(sentence[:1].upper() + sentence[1:])


def run_trend(
    table: pd.DataFrame, changes: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the step time of many runs, and the run at which it changed.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.RUN_TREND`.
    changes
        Table :data:`workbench.tables.RUN_CHANGES` of the same runs.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        One point per run with the interval over its steps, and a line at the first run of a
        resolved change.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> job = load.bundle(datasets.path("fleet-demo") / "steps.jsonl", progress=False)
    >>> table = analyze.run_trend({f"night {number}": job for number in range(6)})
    >>> changes = analyze.run_changes(table)
    >>> figure = run_trend(table, changes, source="fleet-demo, six times", synthetic=True)
    >>> print(figure.layout.meta["claim"])  # doctest: +ELLIPSIS
    Cannot...
    """
    frame = Frame(source, synthetic or bool(table["is_synthetic"].any()))
    RUN_TREND.check(table)
    runs = table[table["step_ms"].notna()]
    if runs.empty:
        return frame.nothing("No run has steps.", claim="No step times to show")
    names = [label(name, 24) for name in runs["run"]]
    mean = runs["step_ms"].astype("float64")
    figure = Draft()
    figure.add_scatter(
        x=names, y=mean, mode="markers", showlegend=False,
        marker={"size": 9, "color": colour("neutral")},
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4,
                 "array": (runs["high_step_ms"].astype("float64") - mean).fillna(0),
                 "arrayminus": (mean - runs["low_step_ms"].astype("float64")).fillna(0)},
        hovertemplate="%{x}: %{y:.4g} ms<extra></extra>",
    )  # fmt: skip
    figure.update_layout(
        xaxis={"title": "run", "type": "category"}, yaxis_title="mean step time [ms]"
    )
    row = _change_of(changes, "step time")
    if row is not None and row["verdict"] == "changed":
        at = runs["run"].tolist().index(row["first_run"])
        figure.add_vline(x=at - 0.5, line_dash="dash", line_color=colour("neutral"))
    return frame.finish(
        figure, claim=trend_claim(table, changes), note="bars: interval over the steps"
    )


def trend_claim(table: pd.DataFrame, changes: pd.DataFrame) -> str:
    """Return the verdict of the trend, as every output states it."""
    RUN_CHANGES.check(changes)
    return _as_title(trend_verdict(table, changes).sentence)


def _change_of(changes: pd.DataFrame, quantity: str) -> pd.Series | None:
    rows = changes[changes["quantity"] == quantity]
    return rows.iloc[0] if len(rows) else None
