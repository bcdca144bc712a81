"""What becomes of faulty inferences: nothing, another output, another decision, no number."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.chances import chance
from workbench.plot._style.panels import panels
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, safe, short
from workbench.tables import OUTCOME_SHARES

_WORDS = {
    "masked": "masked: same output",
    "benign": "benign: same decision",
    "masked or benign": "masked or benign",
    "sdc": "SDC: other decision",
    "beneficial": "beneficial SDC: made right",
    "due": "DUE: not finite, crash",
}
_VISIBLE = ("sdc", "beneficial", "due")
_MOST, _ROW_PX = 24, 34


def outcome_shares(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the outcomes of the trials of each group, and those that can be seen once more, larger.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.OUTCOME_SHARES`.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Stacked bars of all outcomes on the left, of SDC and DUE alone on the right; beneficial
        ones are hatched. The title names the group with the largest share of both.
    """
    OUTCOME_SHARES.check(table)
    if table.empty:
        return nothing(
            "The table has no outcomes; pass what analyze.outcome_shares returns.",
            claim="No outcomes to show",
            source=source,
            synthetic=synthetic,
        )
    shares = table.pivot_table(
        index="group", columns="outcome", values="outcome_share", aggfunc="sum", sort=False
    ).fillna(0.0)
    seen = shares.reindex(columns=list(_VISIBLE), fill_value=0.0)
    groups = list(seen.sum(axis=1).sort_values(ascending=False, kind="stable").index)
    drawn = groups[:_MOST]
    figure = panels(
        ["all trials", "SDC and DUE alone, enlarged"],
        height_px=max(len(drawn), 2) * _ROW_PX,
    )
    known = [each for each in _WORDS if each in shares]
    for outcome in [*known, *(each for each in shares if each not in _WORDS)][:12]:
        for panel in (1, 2) if outcome in _VISIBLE else (1,):
            _add_bars(figure, shares[outcome].loc[drawn], outcome=str(outcome), panel=panel)
    total = seen.loc[drawn].sum(axis=1)
    figure.add_scatter(
        mode="text", x=100 * total.to_numpy(), y=np.arange(len(drawn)), row=1, col=2,
        text=[f" {chance(share)}" for share in total], textposition="middle right",
        showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    names = [safe(short(name, 36)) for name in drawn]
    figure.update_layout(barmode="stack", bargap=0.3, margin_l=left_margin(names))
    figure.update_xaxes(title="share of trials [%]", ticksuffix="", rangemode="tozero")
    figure.update_xaxes(range=[0, 100], col=1)
    figure.update_xaxes(range=[0, 130 * float(total.max()) or 1.0], col=2)
    figure.update_yaxes(
        tickvals=list(range(len(drawn))), ticktext=names, range=[len(drawn) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    hidden = len(groups) - len(drawn)
    notes = [f"{plural(len(groups), 'group')}, trials weighted as the design asks"]
    notes += [f"{plural(hidden, 'group')} with less left out"] if hidden else []
    claim = _claim(seen.loc[groups], knows_due="due" in shares)
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes))


def _add_bars(figure: go.Figure, share: pd.Series, *, outcome: str, panel: int) -> None:
    words = _WORDS.get(outcome, label(outcome, 24))
    figure.add_bar(
        orientation="h", row=1, col=panel,
        x=100 * share.to_numpy(),
        y=np.arange(len(share)),
        name=words, legendgroup=words, showlegend=panel == 1,
        marker=fill(outcome if outcome in _WORDS else "unknown", bars=len(share)),
        hovertext=[f"{label(group, 80)}: {chance(part)}" for group, part in share.items()],
        hovertemplate="%{hovertext}<extra>" + words + "</extra>",
    )  # fmt: skip


def _claim(seen: pd.DataFrame, *, knows_due: bool) -> str:
    wrong = seen["sdc"] + seen["beneficial"]
    total = wrong + seen["due"]
    if not total.max() > 0:
        more = " or gave an output that is not finite" if knows_due else ""
        return f"No fault changed a decision{more}"
    worst = int(total.to_numpy().argmax())
    good = float(seen["beneficial"].iloc[worst])
    better = f" ({chance(good)} to the better)" if good > 0 else ""
    in_no_number = "in no number: not told"
    if knows_due:
        in_no_number = f"{chance(seen['due'].iloc[worst])} in no number"
    return (
        f"{label(seen.index[worst], 30)}: {chance(wrong.iloc[worst])} of trials end in another "
        f"decision{better}, {in_no_number}"
    )
