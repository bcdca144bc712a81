"""Suspects of a hang, as bars with the evidence beside them."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.flight_words import CONFIDENCES, named, phrase
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, safe, wrapped
from workbench.tables import FLIGHT_SUSPECTS

_MOST, _FEW, _LONGEST = 12, 12, 218
_NOTHING = {
    "nothing hangs": "Nothing hangs in these dumps",
    "all entered": "Everybody has arrived and nobody is through: the dumps cannot tell why",
    "deadlock": "All ranks wait for each other: the dumps cannot tell who began",
}


def flight_suspects(
    suspects: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the suspects of a hang: how many ranks wait for each, and why it is suspected.

    Parameters
    ----------
    suspects
        Table :data:`workbench.tables.FLIGHT_SUSPECTS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per suspect, filled by confidence; the evidence stands in it. The title states
        the verdict. Without a suspect a sentence says why there is none.
    """
    FLIGHT_SUSPECTS.check(suspects)
    known = suspects[suspects["rank"].notna()].reset_index(drop=True)
    if known.empty:
        return _no_suspects(suspects, source=source, synthetic=synthetic)
    shown = known.head(_MOST)
    figure = go.Figure()
    for confidence in CONFIDENCES:
        mine = shown[shown["confidence"] == confidence]
        if len(mine):
            figure.add_bar(
                x=mine["waiting_count"].to_numpy(),
                y=mine.index.to_numpy(),
                orientation="h",
                name=f"{confidence} confidence",
                marker=fill(f"{confidence} confidence"),
                hovertext=[wrapped(safe(text[:600]), 80) for text in mine["evidence"]],
                hovertemplate="%{hovertext}<br>%{x:,} ranks wait for it<extra></extra>",
            )
    for place, row in shown.iterrows():
        figure.add_annotation(
            x=0, y=place, xanchor="left", yshift=-12, yanchor="top", showarrow=False, align="left",
            text=_words(row), font={"size": 11},
        )  # fmt: skip
    labels = [
        f"rank {int(rank)} ({label(confidence, 10)})"
        for rank, confidence in zip(shown["rank"], shown["confidence"], strict=True)
    ]
    longest = max(1, int(shown["waiting_count"].max()))
    figure.update_xaxes(
        title="ranks that wait for it [count]",
        range=[0, 1.05 * longest],
        dtick=1 if longest <= _FEW else None,
    )
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=labels, range=[len(shown) - 0.3, -0.5],
        showgrid=False,
    )  # fmt: skip
    figure.update_layout(
        height=74 * len(shown) + 30, bargap=0.7, margin_l=max(90, left_margin(labels))
    )
    note = f"{plural(len(known) - len(shown), 'further suspect')} left out"
    return finish(
        figure,
        claim=_verdict(known),
        source=source,
        synthetic=synthetic,
        note=note if len(known) > len(shown) else "",
    )


def _no_suspects(suspects: pd.DataFrame, *, source: str, synthetic: bool) -> go.Figure:
    reason = str(suspects["reason"].iloc[0]) if len(suspects) else ""
    why = str(suspects["evidence"].iloc[0]) if len(suspects) else "The table has no rows."
    return nothing(
        safe(why[:300]) if len(why.split()) > 1 else "The dumps tell of nobody.",
        claim=_NOTHING.get(reason, "The dumps name no suspect"),
        source=source,
        synthetic=synthetic,
    )


def _words(row: pd.Series) -> str:
    """Write reason and evidence in at most two lines."""
    text = f"{row['reason']}: {row['evidence']}"
    return wrapped(safe(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"), 112)


def _verdict(known: pd.DataFrame) -> str:
    """Say who is suspected, and how sure that is."""
    first = known.iloc[0]
    same = known[
        (known["reason"] == first["reason"]) & (known["confidence"] == first["confidence"])
    ]
    ranks = [int(rank) for rank in same["rank"]]
    claim = f"{named(ranks)} {phrase(str(first['reason']), len(ranks))}"
    if first["confidence"] == "low":
        return f"The dumps cannot tell what hangs: {claim[0].lower()}{claim[1:]}"
    others = len(known) - len(same)
    claim += f", and {plural(others, 'other')} may be" if others else ""
    waiting = int(same["waiting_count"].max())
    each = "each of them" if len(ranks) > 1 else "it"
    if waiting:
        claim += f": {'up to ' * (len(ranks) > 1)}{plural(waiting, 'rank')} wait for {each}"
    return claim if first["confidence"] == "high" else f"Probably {claim[0].lower()}{claim[1:]}"
