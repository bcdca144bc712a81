"""Where upsets hit, and where they hurt."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._pvf.estimates import name_rows
from workbench.plot._style.chances import chance
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import Frame, fill
from workbench.plot._style.text import digits, label, plural, safe, short
from workbench.tables import PVF_EXPOSURE

_MOST, _ROW_PX = 24, 46
_APART = 0.19


def pvf_exposure(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show each group's share of the bits beside its share of the wrong outputs.

    Two bars per group. The title compares them for the group with most wrong outputs.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_EXPOSURE`.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    PVF_EXPOSURE.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no groups; pass what analyze.pvf_exposure returns.",
            claim="No exposure to show",
        )
    ordered = table.sort_values("wrong_share", ascending=False, kind="stable", na_position="last")
    drawn = ordered.head(_MOST).reset_index(drop=True)
    figure = Draft()
    for name, column, meaning, shift in (
        ("share of the bits that upsets can hit", "bit_share", "all others", -_APART),
        ("share of the wrong outputs to expect", "wrong_share", "wrong", _APART),
    ):
        bars = drawn[drawn[column].notna()]
        figure.add_bar(
            orientation="h", x=100 * bars[column].to_numpy(dtype="float64"),
            y=bars.index.to_numpy() + shift, width=0.34, name=name, marker=fill(meaning),
            text=[f" {chance(share)}" for share in bars[column]], textposition="outside",
            cliponaxis=False, hovertext=[_hover(row) for _, row in bars.iterrows()],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    names = [safe(short(name, 40)) for name in drawn["group"]]
    name_rows(figure, names, max(len(drawn), 2) * _ROW_PX, showgrid=False)
    # Room for the number behind the longest bar; .01 keeps an axis where all shares are 0.
    most = 100 * float(np.nanmax([drawn["bit_share"].max(), drawn["wrong_share"].max(), 0.01]))
    figure.update_xaxes(title="share of the model's total [%]", range=[0, 1.14 * most])
    per_upset = float(table["wrong_per_upset"].sum())
    notes = ["every bit is hit equally often"]
    notes += [f"{chance(per_upset)} of the inferences go wrong per upset of the model"]
    hidden = len(table) - len(drawn)
    notes += [f"{plural(hidden, 'group')} with less dropped"] if hidden else []
    return frame.finish(figure, claim=_claim(drawn), note=" · ".join(notes))


def _hover(row: pd.Series) -> str:
    lines = [label(row["group"], 80), f"{row['bit_count']:,.0f} bits, PVF {chance(row['pvf'])}"]
    if not pd.isna(rate := row["wrong_per_million_hours"]):
        lines.append(f"{digits(rate)} wrong per input and million hours")
    return "<br>".join(lines)


def _claim(drawn: pd.DataFrame) -> str:
    worst = drawn.iloc[0]
    if pd.isna(worst["wrong_share"]):
        return "No fault gave a wrong output, so there are none to attribute"
    return (
        f"{label(worst['group'], 30)} holds {chance(worst['bit_share'])} of the bits and gives "
        f"{chance(worst['wrong_share'])} of the wrong outputs"
    )
