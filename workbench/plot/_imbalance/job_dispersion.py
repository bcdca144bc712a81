"""What usual measures of imbalance call lost, beside what stragglers really cost."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, percent, plural, wrapped
from workbench.tables import JOB_DISPERSION

_MOST_ROWS = 40


def job_dispersion(
    dispersion: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much GPU time each measure of imbalance would call lost.

    Parameters
    ----------
    dispersion
        Table :data:`workbench.tables.JOB_DISPERSION`; its first row is the truth that the
        others are compared with.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per measure with its value beside it; what each cannot see on hover. The
        title names the measure that hides most.
    """
    JOB_DISPERSION.check(dispersion)
    table = dispersion.iloc[:_MOST_ROWS].reset_index(drop=True)
    if table.empty:
        return nothing(
            "The table has no measures; pass what analyze.job_dispersion returns.",
            claim="No measures to compare",
            source=source,
            synthetic=synthetic,
        )
    names = [label(name, 48) for name in table["measure"]]
    lost = table["lost_share"].astype("Float64")
    figure = go.Figure()
    for name, meaning, rows in (
        ("what-if: every operation as its equals", "wait", table.index[:1]),
        ("usual measures", "neutral", table.index[1:]),
    ):
        if len(rows):
            figure.add_bar(
                orientation="h",
                x=(100 * lost[rows]).fillna(0).to_numpy(dtype="float64"),
                y=list(rows),
                name=name,
                marker=fill(meaning),
                text=[f" {_beside(table.loc[row])} " for row in rows],
                textposition="outside",
                cliponaxis=False,
                hovertext=[_hover(table.loc[row]) for row in rows],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    figure.update_layout(
        height=max(len(names), 3) * 26,
        bargap=0.3,
        margin_l=left_margin(names),
        hovermode="closest",
        barmode="overlay",
    )
    most = float(lost.max()) if lost.notna().any() else 0.0
    figure.update_xaxes(
        title="GPU time that the measure calls lost [%]", range=[0, 130 * most or 1]
    )
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=names,
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    hidden = len(dispersion) - len(table)
    note = "beside the bars: the value of the measure; point at a bar for what it cannot see"
    note += f" · {hidden:,} measures left out" if hidden else ""
    return finish(figure, claim=_claim(names, lost), source=source, synthetic=synthetic, note=note)


def _claim(names: list[str], lost: pd.Series) -> str:
    """Set the first measure beside the one that calls least lost."""
    others = lost.iloc[1:].dropna()
    if pd.isna(lost.iloc[0]) or others.empty:
        return f"{plural(len(names), 'measure')} of imbalance"
    least = int(others.index.to_numpy()[others.to_numpy(dtype="float64").argmin()])
    return (
        f"The what-if calls {percent(float(lost.iloc[0]))} of the GPU time lost, "
        f"“{names[least]}” only {percent(float(lost[least]))}"
    )


def _beside(row: pd.Series) -> str:
    if pd.isna(row["value_ratio"]):
        return "not recorded"
    value = digits(float(row["value_ratio"]))
    return f"{value} (no share)" if pd.isna(row["lost_share"]) else value


def _hover(row: pd.Series) -> str:
    lines = [f"<b>{label(row['measure'], 80)}</b>", label(row["formula"], 200)]
    lines += [f"cannot see: {label(row['hides'], 200)}"]
    return "<br>".join(wrapped(line, 80) for line in lines)
