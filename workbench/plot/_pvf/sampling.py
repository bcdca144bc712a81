"""Figures of sampling: running estimates, outcomes and sample sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import tables
from workbench.plot._pvf.estimates import estimand, name_rows
from workbench.plot._style.bars import log_ticks, panels
from workbench.plot._style.chances import PVF_TITLE, chance, chances, numbers, row_with
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import (
    COLOURS,
    Frame,
    distinct,
    distinct_fill,
    fill,
    left_margin,
    row_axis,
)
from workbench.plot._style.text import digits, label, percent, plural, safe, short

_WORDS = {
    "masked": "masked: same output",
    "benign": "benign: same decision",
    "masked or benign": "masked or benign",
    "sdc": "SDC: other decision",
    "beneficial": "beneficial SDC: made right",
    "due": "DUE: not finite, crash",
}
_VISIBLE = ("sdc", "beneficial", "due")
_MOST, _OUTCOME_SHARES_ROW_PX = 24, 34


def outcome_shares(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the outcomes of the trials of each group, and those that can be seen once more, larger.

    Stacked bars of all outcomes on the left, of SDC and DUE alone on the right; beneficial
    ones are hatched. The title names the group with the largest share of both.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.OUTCOME_SHARES`.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    tables.OUTCOME_SHARES.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no outcomes; pass what analyze.outcome_shares returns.",
            claim="No outcomes to show",
        )
    shares = table.pivot_table(
        index="group", columns="outcome", values="outcome_share", aggfunc="sum", sort=False
    ).fillna(0.0)
    seen = shares.reindex(columns=list(_VISIBLE), fill_value=0.0)
    groups = list(seen.sum(axis=1).sort_values(ascending=False, kind="stable").index)
    drawn = groups[:_MOST]
    figure = panels(
        ["all trials", "SDC and DUE alone, enlarged"],
        height_px=max(len(drawn), 2) * _OUTCOME_SHARES_ROW_PX,
    )
    ordered = [word for word in _WORDS if word in shares]
    for outcome in [*ordered, *(word for word in shares if word not in _WORDS)][:12]:
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
    figure.update_yaxes(**row_axis(names), showgrid=False)
    hidden = len(groups) - len(drawn)
    notes = [f"{plural(len(groups), 'group')}, trials weighted as the design asks"]
    notes += [f"{plural(hidden, 'group')} with less dropped"] if hidden else []
    claim = _claim(seen.loc[groups], knows_due="due" in shares)
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def _add_bars(figure: go.Figure, share: pd.Series, *, outcome: str, panel: int) -> None:
    words = _WORDS.get(outcome, label(outcome, 24))
    figure.add_bar(
        orientation="h", row=1, col=panel, x=100 * share.to_numpy(), y=np.arange(len(share)),
        name=words, legendgroup=words, showlegend=panel == 1,
        marker=fill(outcome if outcome in _WORDS else "unknown", bars=len(share)),
        hovertext=[f"{label(group, 80)}: {chance(value)}" for group, value in share.items()],
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
    in_no_number = "in no number: not recorded"
    if knows_due:
        in_no_number = f"{chance(seen['due'].iloc[worst])} in no number"
    return (
        f"{label(seen.index[worst], 30)}: {chance(wrong.iloc[worst])} of trials end in another "
        f"decision{better}, {in_no_number}"
    )


_MOST_POINTS = 1_000


def pvf_running(
    table: pd.DataFrame, *, truth: float | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the estimate with its interval at every look, and when it was good enough to stop.

    A line with its band; dotted lines are the interval that takes inputs as independent,
    which is too narrow. The title states the last look and the first that was enough.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_RUNNING`.
    truth
        The exhaustive factor, where it is known; drawn as a line.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    tables.PVF_RUNNING.check(table)
    if table.empty:
        return frame.nothing("No site has been injected yet.", claim="No estimate yet")
    ordered = table.sort_values("site_count", kind="stable", ignore_index=True)
    rows = ordered.iloc[extremes(ordered["pvf"].to_numpy(), _MOST_POINTS)]
    figure = Draft()
    _add_band(figure, rows)
    for column in ("independent_low", "independent_high"):
        figure.add_scatter(
            mode="lines", x=rows["site_count"], y=100 * rows[column], hoverinfo="skip",
            name="too narrow: inputs as independent" if column.endswith("low") else "upper end",
            showlegend=column.endswith("low"),
            line={"color": COLOURS["limit"], "width": 1.2,
                  "dash": "dot" if column.endswith("low") else "2px,2px"},
        )  # fmt: skip
    figure.add_scatter(
        mode="lines+markers" if len(rows) <= 60 else "lines", x=rows["site_count"],
        y=100 * rows["pvf"], name="estimate",
        line={"color": COLOURS["series"], "width": 2.5, "dash": "solid"},
        marker={"symbol": "circle", "size": 6, "color": COLOURS["series"]},
        hovertext=[
            f"{row['site_count']:,} sites: {chance(row['pvf'])} "
            f"({chances(row['low'], row['high'])}), {row['event_site_count']:,} with a wrong output"
            for _, row in rows.iterrows()
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip
    _add_lines(figure, ordered, truth)
    figure.update_xaxes(title="sites injected [count]", rangemode="tozero")
    figure.update_yaxes(title=f"{PVF_TITLE} [%]", range=_range(rows, truth))
    notes = ["band: interval, sites as the sample", *estimand(table)]
    return frame.finish(figure, claim=_running_claim(ordered), note=" · ".join(notes))


def _add_band(figure: go.Figure, rows: pd.DataFrame) -> None:
    band = rows[rows["low"].notna() & rows["high"].notna()]
    if band.empty:
        return
    figure.add_scatter(
        mode="lines", x=np.concatenate([band["site_count"], band["site_count"][::-1]]),
        y=100 * np.concatenate([numbers(band["low"]), numbers(band["high"])[::-1]]), fill="toself",
        fillcolor=COLOURS["interval"], opacity=0.35, name="interval, sites as the sample",
        line={"width": 0, "color": COLOURS["interval"], "dash": "longdash"}, hoverinfo="skip",
    )  # fmt: skip


def _add_lines(figure: go.Figure, rows: pd.DataFrame, truth: float | None) -> None:
    if truth is not None:
        figure.add_hline(
            y=100 * truth, line={"color": COLOURS["dark"], "width": 1.5, "dash": "dash"},
            annotation_text=f"truth: {chance(truth)}", annotation_position="bottom right",
        )  # fmt: skip
    enough = rows[rows["is_enough"]]
    if len(enough):
        first = int(enough["site_count"].iloc[0])
        figure.add_vline(
            x=first, line={"color": COLOURS["reference"], "width": 1.5, "dash": "dashdot"},
            annotation_text=f"enough at {first:,}", annotation_position="top left",
        )  # fmt: skip


# The intervals of the first looks would flatten all that follows.
def _range(rows: pd.DataFrame, truth: float | None) -> list[float]:
    settled = rows[rows["event_site_count"] > 0].iloc[-(-len(rows) // 5) :]
    settled = settled if len(settled) else rows
    tops = [settled["high"].max(), rows["pvf"].iloc[-1], settled["pvf"].max(), truth or 0.0]
    return [0.0, 110 * float(np.nanmax(tops)) or 1.0]


def _running_claim(rows: pd.DataFrame) -> str:
    last = rows.iloc[-1]
    sites = plural(int(last["site_count"]), "site")
    sites += "" if last["group"] == "all" else f" of {label(last['group'], 30)}"
    # Without an event the upper end of the interval is all that is known.
    if last["pvf"] == 0:
        most = "" if pd.isna(last["high"]) else f": at most {chance(last['high'])}"
        return f"No wrong output in {sites} yet{most}"
    enough = rows[rows["is_enough"]]
    stop = (
        f"good enough after {int(enough['site_count'].iloc[0]):,}"
        if len(enough)
        else "not yet good enough to stop"
    )
    return f"{sites}: {chance(last['pvf'])} go wrong ({chances(last['low'], last['high'])}), {stop}"


_MOST_GROUPS, _MOST_DESIGNS, _SAMPLE_SIZES_ROW_PX = 8, 10, 21


def injection_sample_sizes(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the sites that each design needs, on a logarithmic axis.

    A bar per group and design, with the number of sites. The title compares the cheapest
    design with the dearest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INJECTION_SAMPLE_SIZES`.
    source, synthetic
        Where the planned factors come from; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    tables.INJECTION_SAMPLE_SIZES.check(table)
    answered = table[table["site_count"].notna()]
    if answered.empty:
        return frame.nothing(
            "No design has an answer: without wrong outputs an error relative to them cannot be "
            "planned for.",
            claim="No sample sizes to show",
        )
    groups = list(dict.fromkeys(table["group"]))[:_MOST_GROUPS]
    designs = table[
        ["design", "inputs", "error", "error_kind", "confidence_level"]
    ].drop_duplicates()
    drawn = designs.head(_MOST_DESIGNS).reset_index(drop=True)
    figure = Draft()
    width = 0.86 / len(drawn)
    with_level = designs["confidence_level"].nunique() > 1
    for at, design in drawn.iterrows():
        rows = answered[
            (answered[list(drawn)] == design).all(axis=1) & answered["group"].isin(groups)
        ]
        positions = np.array([groups.index(group) for group in rows["group"]])
        shift = (int(str(at)) - (len(drawn) - 1) / 2) * width
        bars = {"y": positions + shift, "width": 0.9 * width, "name": _design(design, with_level)}
        _sample_sizes_add_bars(figure, rows, bars, at=int(str(at)))
    names = [_group(table, group) for group in groups]
    height_px = max(len(groups) * len(drawn), 6) * _SAMPLE_SIZES_ROW_PX
    name_rows(figure, names, height_px, showgrid=False)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(
        title="sites to inject [count, logarithmic]", type="log", **_axis(answered["site_count"])
    )
    notes = ["± % of the PVF, or in points of per cent", "all inputs: per site"]
    level = percent(float(designs["confidence_level"].iloc[0]))
    notes += [] if with_level else [f"at {level} confidence"]
    missing = len(table) - len(answered)
    notes += [f"{plural(missing, 'design')} without an answer: no wrong outputs"] if missing else []
    hidden = len(set(table["group"])) - len(groups) + len(designs) - len(drawn)
    notes += [f"{plural(hidden, 'group or design')} dropped"] if hidden else []
    return frame.finish(
        figure, claim=_sample_sizes_claim(answered, groups[0]),
        note=" · ".join(notes))  # fmt: skip


def _axis(site_counts: pd.Series) -> dict[str, Any]:
    needed = site_counts.clip(lower=1).to_numpy(dtype="float64")
    # The words beside the longest bar need nearly half of the width.
    low, high = 0.5 * min(needed.min(), 100), needed.max()
    axis = log_ticks(np.array([low, high * max((high / low) ** 0.75, 100)]))
    kept = [at for at, tick in enumerate(axis["tickvals"]) if tick <= 10 * high]
    return axis | {name: [axis[name][at] for at in kept] for name in ("tickvals", "ticktext")}


def _group(table: pd.DataFrame, group: str) -> str:
    factor = float(table.loc[table["group"] == group, "pvf"].iloc[0])
    return f"{safe(short(group, 30))}<br><i>PVF {chance(factor)}</i>"


def _sample_sizes_add_bars(
    figure: go.Figure, rows: pd.DataFrame, bars: dict[str, Any], *, at: int
) -> None:
    if rows.empty:
        return
    name = bars["name"]
    figure.add_bar(
        orientation="h", x=rows["site_count"].clip(lower=1).to_numpy(dtype="float64"), **bars,
        marker=distinct_fill(at) | {"color": distinct(at)["color"]},
        text=[f" <b>{digits(round(count))}</b> {name}" for count in rows["site_count"]],
        textposition="outside", cliponaxis=False,
        hovertext=[
            f"{label(row['group'], 60)}: {digits(round(row['site_count']))} sites"
            + ("" if pd.isna(row["expected_event_count"]) else
               f", {digits(row['expected_event_count'])} of them with a wrong output")
            for _, row in rows.iterrows()
        ],
        hovertemplate="%{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip


def _design(row: pd.Series, with_level: bool) -> str:
    inputs = {"one": "one input", "all": "all inputs"}.get(row["inputs"], label(row["inputs"], 12))
    level = f" at {percent(row['confidence_level'])}" if with_level else ""
    return f"{_words(row['design'])}, {inputs}, {_error(row)}{level}"


def _error(row: pd.Series) -> str:
    return f"±{100 * row['error']:.3g} {'%' if row['error_kind'] == 'relative' else 'points'}"


def _words(design: str) -> str:
    return {"neyman": "Neyman", "leveugle": "Leveugle"}.get(design, label(design, 16))


def _sample_sizes_claim(answered: pd.DataFrame, group: str) -> str:
    of_group = answered[answered["group"] == group]
    of_group = of_group if len(of_group) else answered
    relative = of_group[of_group["error_kind"] == "relative"]
    of_group = relative if len(relative) else of_group
    # Designs are compared for the same request.
    targets = ["error", "error_kind", "confidence_level"]
    several = len(of_group[targets].drop_duplicates()) > 1
    of_group = of_group[(of_group[targets] == of_group[targets].iloc[0]).all(axis=1)]
    best = row_with(of_group, "site_count", largest=False)
    worst = row_with(of_group, "site_count")
    least = (
        f"{label(best['group'], 24)} needs {digits(round(best['site_count']))} sites by design "
        f"{_words(best['design'])}"
    )
    if best["site_count"] != worst["site_count"]:
        least = f"{least}, {digits(round(worst['site_count']))} by {_words(worst['design'])}"
    if several:
        return f"{least}, for {_error(best)} at {percent(best['confidence_level'])} confidence"
    return least
