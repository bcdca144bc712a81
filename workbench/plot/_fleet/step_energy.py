"""Figures of what steps draw: energy step by step, and power by how far a step has got."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import stacked_panels
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.palette import PRODUCTIVE_BAND
from workbench.plot._style.style import (
    COLOURS,
    Frame,
    colour,
    distinct,
    fill,
    left_margin,
    row_axis,
)
from workbench.plot._style.text import (
    amount,
    clock_time,
    digits,
    label,
    plural,
    power_unit,
    seconds,
    share_text,
    utc,
)
from workbench.tables import (
    ENERGY_WASTE,
    INCIDENT_ENERGY,
    KERNEL_ENERGY,
    PHASE_POWER,
    STEP_ENERGY,
)

_PER = (("energy_per_token_j", "per token"), ("energy_per_sample_j", "per sample"))


def step_energy(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the energy of every step, and what a token of it cost.

    One point per step over time, its median as a line; below, energy per token, or per sample
    where no tokens are told. The title states the medians. Points may be dropped, never the
    highest or lowest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.STEP_ENERGY`.
    """
    frame = Frame(source, synthetic)
    STEP_ENERGY.check(table)
    steps = table[table["energy_j"].notna()].sort_values("start_ns")
    if steps.empty:
        why = "No step has an energy: there are none, or power covers too little of them."
        return frame.nothing(why, claim="No energy of steps to show")
    drawn = [("energy_j", "per step", 200)]
    drawn += [(name, words, 150) for name, words in _PER if steps[name].notna().any()][:1]
    units = [power_unit(float(steps[name].median()), "J") for name, _, _ in drawn]
    figure = stacked_panels(
        [f"energy {words} [{unit[1]}]" for (_, words, _), unit in zip(drawn, units, strict=True)],
        [height for _, _, height in drawn],
    )
    for row, ((name, words, _), unit) in enumerate(zip(drawn, units, strict=True), start=1):
        _add(figure, steps, row, name, words, unit)
    figure.update_layout(showlegend=False, hovermode="closest")
    figure.update_xaxes(title="time [UTC]", row=len(drawn), col=1)
    claim = _claim(steps, drawn[-1][0] if len(drawn) > 1 else "")
    return frame.finish(figure, claim=claim, note=" · ".join(_notes(table, steps)))


def _add(
    figure: go.Figure, steps: pd.DataFrame, row: int, name: str, words: str, unit: tuple[float, str]
) -> None:
    values = steps[name].to_numpy(dtype=np.float64) / unit[0]
    keep = extremes(values)
    keep = keep[~np.isnan(values[keep])]
    drawn = steps.iloc[keep]
    figure.add_scatter(
        x=utc(drawn["start_ns"]),
        y=values[keep],
        mode="markers",
        name=f"energy {words}",
        marker={"size": 5, "color": colour("productive"), "symbol": "circle"},
        hovertext=[
            f"step {step['step']}, attempt {step['attempt']}, "
            f"{share_text(step['covered_share'])} covered"
            for step in drawn.to_dict("records")
        ],
        hovertemplate=f"%{{hovertext}}<br>%{{y:,.4~g}} {unit[1]} {words}<extra></extra>",
        row=row,
        col=1,
    )
    middle = float(np.nanmedian(values))
    figure.add_scatter(
        x=utc(steps["start_ns"].iloc[[0, -1]]),
        y=[middle, middle],
        mode="lines",
        name=f"median {words}",
        line={"color": COLOURS["ink"], "width": 1.5, "dash": distinct(1)["dash"]},
        hovertemplate=f"median {middle:,.4g} {unit[1]} {words}<extra></extra>",
        row=row,
        col=1,
    )


def _claim(steps: pd.DataFrame, per: str) -> str:
    middle = f"A step draws {amount(float(steps['energy_j'].median()), 'J')} (median)"
    middle += f", {amount(float(steps['mean_w'].median()))} on average"
    if not per:
        return middle
    return f"{middle}; {amount(float(steps[per].median()), 'J')} {dict(_PER)[per]}"


def _notes(table: pd.DataFrame, steps: pd.DataFrame) -> list[str]:
    """List the number of steps and meters, what is missing, and what cannot be resolved."""
    entities = int(steps["entity_count"].max())
    notes = [f"{plural(len(steps), 'step')}, {plural(entities, 'meter')}"]
    if without := len(table) - len(steps):
        notes.append(f"{plural(without, 'step')} without energy: too little is covered")
    if (least := float(steps["covered_share"].min())) < 0.9995:
        notes.append(f"readings cover {share_text(least)} of a step at least")
    per_meter = float(steps["reading_count"].mean()) / max(entities, 1)
    if per_meter < 2:
        doubt = f"{digits(per_meter)} readings per meter and step: steps are not resolved"
        notes.append(f"<b>{doubt}</b>")
    return notes


_ROW_PX = 34
_USEFUL = "useful steps"
_MOST_STATES = 24
# Less than this share of the energy is summed up in words instead of drawn as a bar.
_LEAST_SHARE = 0.0005
# Room for words right of the longest bar, as a part of the axis.
_WORDS = 1.3


def energy_waste(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show where the energy of a run went, each state beginning where the one above ends.

    A waterfall from left to right, one row per state; its end is the energy of the run. The
    title states the share of useful steps and the largest of the others.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.ENERGY_WASTE`.
    """
    frame = Frame(source, synthetic)
    ENERGY_WASTE.check(table)
    run_j = float(table["energy_j"].sum())
    if run_j <= 0:
        why = "No energy is known of any state: power covers nothing of the run."
        return frame.nothing(why, claim="No energy to take apart")
    begins = table["energy_j"].cumsum() - table["energy_j"]
    largest = table["energy_j"].nlargest(_MOST_STATES).index
    least = min(_LEAST_SHARE * run_j, float(table["energy_j"].max()))
    is_drawn = table.index.isin(largest) & (table["energy_j"] >= least)
    drawn = table.assign(begin_j=begins)[is_drawn].reset_index(drop=True)
    factor, unit = power_unit(run_j, "J")
    figure = Draft()
    is_useful = (drawn["state"] == _USEFUL).to_numpy()
    for name, meaning, states in (
        (_USEFUL, "productive", drawn[is_useful]),
        ("all else", "lost work", drawn[~is_useful]),
    ):
        if len(states):
            figure.add_bar(
                orientation="h",
                x=states["energy_j"].to_numpy() / factor,
                base=states["begin_j"].to_numpy() / factor,
                y=np.asarray(states.index),
                name=name,
                marker=fill(meaning),
                hovertext=[
                    f"<b>{label(state['state'], 40)}</b><br>{seconds(state['time_s'])}, "
                    f"{share_text(state['covered_share'])} covered"
                    for state in states.to_dict("records")
                ],
                hovertemplate=f"%{{hovertext}}<br>%{{x:,.4~g}} {unit}<extra></extra>",
            )
    for row, state in enumerate(drawn.to_dict("records")):
        figure.add_annotation(
            x=(state["begin_j"] + state["energy_j"]) / factor, y=row, xanchor="left", xshift=6,
            text=f"{amount(state['energy_j'], 'J')} · {share_text(state['energy_j'] / run_j)}",
            showarrow=False,
        )  # fmt: skip
    names = [label(name, 30) for name in drawn["state"]]
    _name_rows(figure, names, 3, _ROW_PX, bargap=0.3, barmode="overlay")
    figure.update_xaxes(
        title=f"energy, summed from the top down [{unit}]", range=[0, _WORDS * run_j / factor]
    )
    note = _note(table, len(table) - len(drawn))
    return frame.finish(figure, claim=_energy_waste_claim(table, run_j), note=note)


def kernel_energy(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the energy by kernel, operator or module, with its interval and the power it adds.

    One bar per kind, idle last. The title states the kind that took most, and its share.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.KERNEL_ENERGY`.
    """
    frame = Frame(source, synthetic)
    KERNEL_ENERGY.check(table)
    rows = table[table["power_w"].notna()].sort_values("energy_j", ascending=False)
    whole_j = float(table["energy_j"].sum())
    if rows.empty or whole_j <= 0:
        why = "The table has no energy; pass what analyze.kernel_energy returns."
        return frame.nothing(why, claim="No energy of kernels to show")
    rows = rows.iloc[np.argsort(rows["kind"] == "idle", kind="stable")].head(_MOST_STATES)
    factor, unit = power_unit(float(rows["high_j"].max()), "J")
    figure = Draft()
    energy, low, high = (rows[name].to_numpy() / factor for name in ("energy_j", "low_j", "high_j"))
    is_idle = (rows["kind"] == "idle").to_numpy()
    busy = np.array([f"{seconds(busy)} busy" for busy in rows["busy_s"]])
    for name, meaning, at in (("work", "neutral", ~is_idle), ("idle", "idle", is_idle)):
        figure.add_bar(
            orientation="h", x=energy[at], y=np.flatnonzero(at), marker=fill(meaning), name=name,
            error_x={"array": (high - energy)[at], "arrayminus": (energy - low)[at]},
            hovertext=busy[at],
            hovertemplate=f"%{{x:,.4~g}} {unit}, %{{hovertext}}<extra></extra>",
        )  # fmt: skip
    for row, kind in enumerate(rows.to_dict("records")):
        words = f"{share_text(kind['energy_j'] / whole_j)} · {amount(kind['power_w'])}"
        words += "" if kind["is_sure"] else " <b>not sure</b>"
        figure.add_annotation(
            x=high[row], y=row, xanchor="left", xshift=6, text=words, showarrow=False
        )
    _name_rows(figure, [label(name, 30) for name in rows["kind"]], 3, _ROW_PX, bargap=0.3)
    most = _WORDS * float(rows["high_j"].max()) / factor
    figure.update_xaxes(title=f"energy [{unit}]", range=[0, most])
    first = rows.iloc[0]
    claim = f"{label(first['kind'], 40)} takes {share_text(first['energy_j'] / whole_j)} of "
    claim += f"{amount(whole_j, 'J')}: {amount(first['power_w'])} more than idle while it runs"
    if first["kind"] == "idle":
        claim = f"no kind of work takes energy beyond the idle {amount(first['power_w'])}"
    rest = float(table.loc[table["power_w"].isna(), "energy_j"].abs().sum())
    note = "whiskers: 95 % interval; power is what a kind adds to idle"
    note += f" · not explained: {share_text(rest / whole_j)}"
    is_doubtful = not bool(first["is_sure"])
    return frame.finish(figure, claim=claim, note=note, is_doubtful=is_doubtful)


def _name_rows(figure: go.Figure, names: list[str], least: int, px: int, **layout: Any) -> None:
    height, margin = max(len(names), least) * px, left_margin(names)
    figure.update_layout(height=height, margin_l=margin, hovermode="closest", **layout)
    figure.update_yaxes(**row_axis(names, 0.4, 0.6))


def _energy_waste_claim(table: pd.DataFrame, run_j: float) -> str:
    useful = float(table.loc[table["state"] == _USEFUL, "energy_j"].sum())
    wasted = table[table["state"] != _USEFUL].sort_values("energy_j", ascending=False)
    claim = f"{share_text(useful / run_j)} of {amount(run_j, 'J')} went into useful steps"
    if wasted.empty or wasted["energy_j"].iloc[0] <= 0:
        return claim
    share = share_text(float(wasted["energy_j"].iloc[0]) / run_j)
    return f"{claim}; the most of the rest, {share}: {label(wasted['state'].iloc[0], 30)}"


def _note(table: pd.DataFrame, left_out: int) -> str:
    time = table["time_s"].sum()
    notes = [f"{seconds(float(time))} in all"]
    if time > 0:
        covered = float((table["covered_share"] * table["time_s"]).sum() / time)
        if covered < 0.9995:
            doubt = f"readings cover {share_text(covered)}; what they do not is missing"
            notes.append(f"<b>{doubt}</b>")
    if left_out:
        notes.append(f"{plural(left_out, 'state')} of next to no energy not drawn")
    return " · ".join(notes)


_INCIDENT_ENERGY_ROW_PX = 38
_PARTS = (("lost_work_j", "lost steps"), ("restart_j", "restart"))
_INCIDENT_ENERGY_WORDS = 1.55


def incident_energy(
    table: pd.DataFrame, *, top: int = 12, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what every interruption cost: the work it undid, and the time until the next step.

    One row per interruption in order of time, named by time, host and cause. The title states
    what all of them cost and the dearest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INCIDENT_ENERGY`.
    top
        Interruptions to show, the dearest; the others are counted in words.

    Raises
    ------
    ValueError
        If ``top`` is below 1.
    """
    frame = Frame(source, synthetic)
    INCIDENT_ENERGY.check(table)
    if top < 1:
        msg = f"top must be 1 or more; got {top!r}"
        raise ValueError(msg)
    costed = table[table["energy_j"].notna()]
    if costed.empty:
        why = "No interruption has a known cost: none happened, or power covers too little of them."
        return frame.nothing(why, claim="No cost of incidents")
    kept = costed["energy_j"].nlargest(top).index
    drawn = costed[costed.index.isin(kept)].sort_values("start_ns").reset_index(drop=True)
    incidents = drawn.to_dict("records")
    factor, unit = power_unit(float(drawn["energy_j"].max()), "J")
    figure = Draft()
    for column, name in _PARTS:
        figure.add_bar(
            x=drawn[column].to_numpy(dtype=np.float64) / factor,
            y=np.arange(len(drawn)),
            orientation="h",
            name=name,
            marker=fill(name),
            hovertext=[_hover(incident) for incident in incidents],
            hovertemplate=f"%{{hovertext}}<br>{name}: %{{x:,.4~g}} {unit}<extra></extra>",
        )
    beside = {"xanchor": "left", "xshift": 6, "showarrow": False, "align": "left"}
    for row, incident in enumerate(incidents):
        at = {"x": incident["energy_j"] / factor, "y": row}
        figure.add_annotation(**at, text=_words(incident), **beside)
    names = [_name(incident) for incident in incidents]
    _name_rows(figure, names, 2, _INCIDENT_ENERGY_ROW_PX, bargap=0.35, barmode="stack")
    reach = max(_INCIDENT_ENERGY_WORDS * float(drawn["energy_j"].max()) / factor, 1e-9)
    figure.update_xaxes(title=f"energy [{unit}]", range=[0, reach])
    note = _incident_energy_note(table, costed, len(costed) - len(drawn))
    return frame.finish(figure, claim=_incident_energy_claim(costed), note=note)


def _name(row: Mapping[Hashable, Any]) -> str:
    time = "" if pd.isna(row["start_ns"]) else f"{clock_time(row['start_ns'])} "
    node = "" if pd.isna(row["node"]) else label(row["node"], 18)
    return f"{time}{node}<br>{label(row['cause'], 30)}"


def _words(row: Mapping[Hashable, Any]) -> str:
    share = "" if pd.isna(row["energy_share"]) else f" · {share_text(row['energy_share'])}"
    steps = "" if pd.isna(row["lost_step_count"]) else plural(int(row["lost_step_count"]), "step")
    restart = "" if pd.isna(row["restart_s"]) else f"{seconds(row['restart_s'])} until the next"
    losses = ", ".join(filter(None, (f"{steps} lost" if steps else "", restart)))
    return f"{amount(row['energy_j'], 'J')}{share}" + (f"<br>{losses}" if losses else "")


def _hover(row: Mapping[Hashable, Any]) -> str:
    also = f"<br>also: {label(row['also'], 80)}" if row["also"] else ""
    covered = "" if pd.isna(row["covered_share"]) else f"{share_text(row['covered_share'])} covered"
    return f"<b>{label(row['cause'], 60)}</b>{also}<br>{covered}"


def _incident_energy_claim(costed: pd.DataFrame) -> str:
    total_j = float(costed["energy_j"].sum())
    share = costed["energy_share"].sum()
    of_run = f", {share_text(min(float(share), 1.0))} of the run's energy" if share > 0 else ""
    claim = f"{plural(len(costed), 'interruption')} cost {amount(total_j, 'J')}{of_run}"
    dearest = costed.iloc[int(costed["energy_j"].argmax())]
    if len(costed) == 1:
        return f"{claim}: {label(dearest['cause'], 50)}"
    return f"{claim}; the dearest {amount(float(dearest['energy_j']), 'J')}: " + label(
        dearest["cause"], 40
    )


def _incident_energy_note(table: pd.DataFrame, costed: pd.DataFrame, left_out: int) -> str:
    notes = [f"{plural(left_out, 'cheaper interruption')} not drawn"] if left_out else []
    if unknown := int((table["energy_j"].isna() & table["restart_s"].notna()).sum()):
        notes.append(f"<b>{plural(unknown, 'interruption')} without a known energy</b>")
    if harmless := int(table["restart_s"].isna().sum()):
        notes.append(f"{plural(harmless, 'fatal failure')} interrupted nothing in the job log")
    if (costed["covered_share"] < 0.9995).any():
        notes.append(f"readings cover {share_text(float(costed['covered_share'].min()))} at least")
    return " · ".join(notes)


_INSIDE = "in steps"


def phase_power(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the power of a usual step, and what is drawn outside of steps.

    Mean power of each part of a step, with the band that holds 80 % of the samples, and a
    line for what lies outside of steps. The title states the lowest and the highest part.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PHASE_POWER`.
    """
    frame = Frame(source, synthetic)
    PHASE_POWER.check(table)
    inside = table[(table["place"] == _INSIDE) & table["power_w"].notna()]
    if inside.empty:
        why = "No sample of power lies within a step."
        return frame.nothing(why, claim="No power within steps")
    inside = inside.sort_values("first_share")
    factor, unit = power_unit(float(inside["power_w"].max()))
    figure = Draft()
    middle = (inside["first_share"] + inside["last_share"]).to_numpy() / 2
    keep = extremes(inside["power_w"].to_numpy(), 1_000)
    for name, column, look in (
        ("10 % are below", "low_w", {"dash": "dot", "width": 1}),
        ("10 % are above", "high_w", {"dash": "dash", "width": 1}),
        ("mean", "power_w", {"dash": "solid", "width": 3}),
    ):
        figure.add_scatter(
            x=middle[keep],
            y=inside[column].to_numpy(dtype=np.float64)[keep] / factor,
            mode="lines+markers" if column == "power_w" else "lines",
            name=name,
            line={"color": colour("productive"), **look},
            fill="tonexty" if column == "high_w" else None,
            fillcolor=PRODUCTIVE_BAND if column == "high_w" else None,
            hovertemplate=f"%{{y:,.4~g}} {unit} at %{{x:.0%}} of a step<extra>{name}</extra>",
        )
    outside = table[(table["place"] != _INSIDE) & table["power_w"].notna()]
    if len(outside):
        level = float(outside["power_w"].iloc[0]) / factor
        figure.add_scatter(
            x=[0, 1],
            y=[level, level],
            mode="lines",
            name=f"outside of steps, mean {digits(level)} {unit}",
            line={"color": COLOURS["ink"], "width": 2, "dash": "longdashdot"},
            hovertemplate=f"{digits(level)} {unit} outside of steps<extra></extra>",
        )
    figure.update_xaxes(title="how far the step has got [%]", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(title=f"power [{unit}]")
    figure.update_layout(hovermode="closest")
    samples, missing = int(inside["sample_count"].sum()), int(table["missing_count"].sum())
    note = f"{plural(samples, 'sample')} of all steps laid over each other"
    note += f" · {plural(missing, 'sample')} without power" if missing else ""
    return frame.finish(figure, claim=_phase_power_claim(inside), note=note)


def _phase_power_claim(inside: pd.DataFrame) -> str:
    low = inside.iloc[int(inside["power_w"].argmin())]
    high = inside.iloc[int(inside["power_w"].argmax())]
    ends = [(low, "lowest"), (high, "highest")]
    phrases = [
        f"{word} ({amount(float(row['power_w']))}) from {100 * row['first_share']:.3g} to "
        f"{100 * row['last_share']:.3g} %"
        for row, word in ends
    ]
    swing = 1 - float(low["power_w"]) / float(high["power_w"]) if high["power_w"] > 0 else 0.0
    return f"Power within a step is {phrases[0]}, {phrases[1]}: {share_text(swing)} between them"
