"""Who waits for whom in a hang, by the reason."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.flight_words import named
from workbench.plot._style.said import is_doubtful
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import plural
from workbench.tables import FLIGHT_WAITS

_MOST, _FEW = 20, 12
_WHYS = (
    "not called", "nothing pending", "not posted", "earlier in the group", "not started",
    "busy elsewhere", "no dump",
)  # fmt: skip
_OTHER = "another reason"


def flight_waits(waits: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show whom the ranks of a hang wait for, and what that rank has not done.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.FLIGHT_WAITS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per rank that is waited for, stacked by reason. Ranks that wait for nobody
        themselves come first and are marked. The title names them.
    """
    FLIGHT_WAITS.check(waits)
    if waits.empty:
        return nothing(
            "No rank with a dump holds an operation in which somebody has not arrived.",
            claim="No rank is seen to wait for another one",
            source=source,
            synthetic=synthetic,
        )
    whys = waits["why"].where(waits["why"].isin(_WHYS), _OTHER)
    # A pair counts once, by the surest thing that is known of it.
    order = {why: place for place, why in enumerate((*_WHYS, _OTHER))}
    pairs = waits.assign(why=whys, place=whys.map(order)).sort_values("place", kind="stable")
    pairs = pairs.drop_duplicates(["rank", "waits_for"])
    counts = pairs.pivot_table(
        index="waits_for", columns="why", values="rank", aggfunc="count", fill_value=0
    )
    ends = set(counts.index) - set(waits["rank"])
    totals = counts.sum(axis=1)
    ranked = sorted(counts.index, key=lambda rank: (rank not in ends, -totals[rank], rank))
    shown = ranked[:_MOST]
    figure = go.Figure()
    for why in (*_WHYS, _OTHER):
        if why in counts:
            figure.add_bar(
                x=counts.loc[shown, why].to_numpy(),
                y=list(range(len(shown))),
                orientation="h",
                name=why,
                marker=fill(why),
                hovertemplate=f"%{{x:,}} ranks wait: {why}<extra></extra>",
            )
    labels = [f"▶ rank {rank}, waits for nobody" if rank in ends else f"rank {rank}"
              for rank in shown]  # fmt: skip
    figure.update_layout(
        barmode="stack", height=max(26 * len(shown), 150), margin_l=left_margin(labels)
    )
    few = totals.max() <= _FEW
    figure.update_xaxes(title="ranks that wait for it directly [count]", dtick=1 if few else None)
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=labels, range=[len(shown) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    left_out = len(ranked) - len(shown)
    return finish(
        figure,
        claim=_waits_claim(sorted(ends), waits),
        source=source,
        synthetic=synthetic,
        note=f"{plural(left_out, 'further rank')} that is waited for left out" if left_out else "",
        is_doubtful=is_doubtful(waits),
    )


def _waits_claim(ends: list[int], waits: pd.DataFrame) -> str:
    waiting = plural(waits["rank"].nunique(), "rank")
    if not ends:
        return f"{waiting} wait for each other: nobody is waited for and free"
    verb = "waits" if len(ends) == 1 else "wait"
    return f"{named(ends)} {verb} for nobody; {waiting} wait, for them or for others"
