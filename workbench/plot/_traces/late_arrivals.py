"""Late arrivals: what kind of time made ranks late, by how long the others waited for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import stacked
from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import digits, duration, label, percent, plural
from workbench.plot._traces.left_out import unknown_kernels
from workbench.tables import LATE_ARRIVALS

_MOST_RANKS = 16
_NEGLIGIBLE = 0.01  # share of all waiting
_SAID = {
    "compute": "it computes for longer than they do",
    "communication": "another group keeps it for longer than them",
    "memory": "it copies for longer than they do",
    "other": "it runs other work for longer than they do",
    "idle": "its GPU has no work for longer than theirs",
    "began late": "its step began later than theirs",
    "no excess": "of no kind of time that it spends more of than they do",
}
_OTHERS = "others"


def late_arrivals(
    late_arrivals: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show, per rank that came last, the waiting it caused by what had made it late.

    Parameters
    ----------
    late_arrivals
        Table :data:`workbench.tables.LATE_ARRIVALS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One column per rank, the one most waited for first, one trace per kind of excess.
        The title names that rank and what it did before it came; the line below tells
        what its host did meanwhile, and what was left out.
    """
    LATE_ARRIVALS.check(late_arrivals)
    sure = late_arrivals[late_arrivals["is_sure"]]
    left_out = len(late_arrivals) - len(sure)
    notes = [f"{plural(left_out, 'collective')} left out: not sure who was last"] * (left_out > 0)
    notes += unknown_kernels(late_arrivals, "kernels_left_out")
    waited = sure[sure["wait_ns"] > 0]
    if waited.empty:
        return nothing(
            "; ".join(notes) or "No collective was found in which a rank waited for another one.",
            claim="Who came late cannot be told" if left_out else "No late arrivals to show",
            source=source,
            synthetic=synthetic,
        )
    totals = waited.groupby("blamed_rank")["wait_ns"].sum().sort_values(ascending=False)
    figure = _columns(waited, totals)
    worst = waited[waited["blamed_rank"] == totals.index[0]]
    kinds = worst.groupby(_kinds(worst))["wait_ns"].sum()
    main = str(kinds.idxmax())
    claim = (
        f"Rank {totals.index[0]} makes the others wait {duration(totals.iloc[0])}, "
        f"{percent(kinds.max() / totals.iloc[0])} of it because {_SAID[main]}"
    )
    unsure_ns = int(late_arrivals["wait_ns"].sum() - sure["wait_ns"].sum())
    if unsure_ns > totals.iloc[0]:
        claim += f"; for whom they wait {duration(unsure_ns)} more is not sure"
    notes = [*_why(worst, main), *notes]
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes))


def _columns(waited: pd.DataFrame, totals: pd.Series) -> go.Figure:
    """Stack the waiting that ranks caused by kind, the worst first, the many small ones added."""
    kept = totals.index[totals >= _NEGLIGIBLE * totals.sum()][: _MOST_RANKS - 1]
    kept = totals.index if len(totals) <= len(kept) + 1 else kept
    names = [str(rank) for rank in kept] + [_OTHERS] * (len(totals) > len(kept))
    rank = waited["blamed_rank"].astype(str)
    table = waited.assign(column=rank.where(rank.isin(names), _OTHERS), kind=_kinds(waited))
    sums = table.pivot_table(
        index="column", columns="kind", values="wait_ns", aggfunc="sum", fill_value=0
    ).reindex(names)
    parts = {kind: sums[kind].to_numpy(np.float64) for kind in _SAID if kind in sums}
    figure, _ = stacked(names, parts, title="rank that came last")
    unit = figure.layout.yaxis.title.text.removeprefix("time ")
    figure.update_yaxes(title=f"waiting of the others {unit}")
    figure.update_layout(legend_title_text="more than the others: ")
    return figure


def _kinds(table: pd.DataFrame) -> pd.Series:
    return table["excess_kind"].astype(object).where(table["excess_kind"].notna(), "no excess")


def _why(worst: pd.DataFrame, main: str) -> list[str]:
    """Tell more of the main reason: how much slower the GPU computes, or what its host did."""
    said = ["what it did before is not in the trace"] if main == "began late" else []
    mine = worst[_kinds(worst) == main]
    ratio = mine["compute_ratio"].dropna().astype("float64")
    if main == "compute" and len(ratio):
        said.append(f"its compute takes {digits(ratio.median())} × as long as theirs (median)")
    if kernel := _longest(mine, "longest_kernel") if main in ("compute", "memory", "other") else "":
        said.append(f"it runs longest {label(kernel, 40)}")
    if host := _longest(worst[_kinds(worst) == "idle"], "host_operator"):
        said.append(f"where its GPU has no work, its host is longest in {label(host, 40)}")
    return said


def _longest(table: pd.DataFrame, column: str) -> str:
    """Name what took most time in a column that has its time beside it; empty if nothing did."""
    spent = table.dropna(subset=[column]).groupby(column)[f"{column}_ns"].sum()
    return str(spent.idxmax()) if spent.sum() else ""
