"""When devices were held back by power."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import digits, is_doubtful, label, percent, plural
from workbench.tables import CAPPING_BLAME, CAPPING_COST, CAPPING_EVENTS

_MOST_BARS = 4_000
# Later than 1973 in ns since the epoch; what is earlier counts from a zero of its own.
_EPOCH_NS = 10**17
_LOOKS = {
    "power cap": "capped", "power brake": "power brake",
    "power cap and power brake": "cap and brake", "not told": "capping likely",
}  # fmt: skip


def capping_events(
    events: pd.DataFrame, *, top: int = 24, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show when each device was held back by power, with its clock and limit.

    A row per device, a bar per event, by its evidence. The title names the device that
    was held back longest.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.CAPPING_EVENTS`.
    top
        Devices to show, those that were held back longest.

    Raises
    ------
    ValueError
        If ``top`` is below 1.
    """
    frame = Frame(source, synthetic)
    CAPPING_EVENTS.check(events)
    if top < 1:
        msg = f"top must be 1 or more; got {top!r}"
        raise ValueError(msg)
    if events.empty:
        return frame.nothing(
            "No reading shows capping; analyze.capped_share shows how much is known at all.",
            claim="No capping to show",
        )
    totals = events.groupby("entity")["duration_s"].sum().sort_values(ascending=False)
    kept = list(totals.index[:top])
    shown = events[events["entity"].isin(kept)]
    # The longest events; sorted by time again, so that bars are drawn in their order.
    drawn = shown.nlargest(_MOST_BARS, "duration_s", keep="first").sort_values("start_ns")
    figure = Draft()
    is_epoch = bool(events["start_ns"].min() > _EPOCH_NS)
    for reason in dict.fromkeys(drawn["reason"]):
        _add(figure, drawn[drawn["reason"] == reason], kept, str(reason), is_epoch)
    ticks = [label(name, 36) for name in kept]
    figure.update_xaxes(
        **({"title": "time [UTC]", "type": "date"} if is_epoch else {"title": "time [s]"})
    )
    figure.update_yaxes(title="device", **row_axis(ticks, 0.4, 0.6))
    figure.update_layout(
        barmode="overlay", hovermode="closest", height=max(130, 28 * len(kept) + 30),
        uniformtext={"minsize": 9, "mode": "hide"},
        margin={"l": 24 + left_margin([name[:36] for name in kept])},
    )  # fmt: skip
    return frame.finish(
        figure,
        claim=_events_claim(events, totals),
        note=" · ".join(_events_notes(events, len(totals) - len(kept), len(shown) - len(drawn))),
    )


def _add(
    figure: go.Figure, own: pd.DataFrame, kept: list[str], reason: str, is_epoch: bool
) -> None:
    position = {name: at for at, name in enumerate(kept)}
    start = own["start_ns"].to_numpy(dtype=np.int64)
    length = (own["end_ns"] - own["start_ns"]).to_numpy(dtype=np.float64)
    # A date axis takes lengths in ms.
    base: Any = pd.to_datetime(start).to_numpy() if is_epoch else start / 1e9
    look = _LOOKS.get(reason, "capping likely")
    labels = [
        _told(clock, limit) for clock, limit in zip(own["clock_mhz"], own["limit_w"], strict=True)
    ]
    figure.add_bar(
        orientation="h",
        base=base,
        x=length / (1e6 if is_epoch else 1e9),
        y=own["entity"].map(position),
        width=0.7,
        name=look if reason == "not told" else label(reason, 30),
        marker=fill(look),
        text=[words if len(own) <= 12 else "" for words in labels],
        textposition="inside",
        insidetextanchor="start",
        hovertext=[
            f"{words}<br>{digits(seconds)} s, {plural(int(count), 'reading')}"
            for words, seconds, count in zip(
                labels, own["duration_s"], own["reading_count"], strict=True
            )
        ],
        hovertemplate="%{hovertext}<br>%{base}<extra>%{fullData.name}</extra>",
    )


def _told(clock_mhz: float, limit_w: float) -> str:
    words = [f"{clock_mhz:,.0f} MHz"] if clock_mhz > 0 else []
    words += [f"limit {limit_w:,.0f} W"] if limit_w > 0 else []
    return ", ".join(words) or "no clock or limit known"


def _events_claim(events: pd.DataFrame, totals: pd.Series) -> str:
    first = str(totals.index[0])
    own = events[events["entity"] == first]
    likely = " (likely)" if (own["evidence"] == "power at limit").all() else ""
    claim = (
        f"{label(first, 40)} was held back{likely} for {digits(float(totals.iloc[0]))} s in "
        f"{'one period' if len(own) == 1 else f'{len(own):,} periods'}"
    )
    labels = own.dropna(subset=["clock_mhz", "uncapped_clock_mhz"])
    if len(labels):
        clock, free = (labels[name].median() for name in ("clock_mhz", "uncapped_clock_mhz"))
        claim += f", at {clock:,.0f} instead of {free:,.0f} MHz"
    remaining = len(totals) - 1
    return claim + (f"; {plural(remaining, 'other')} less long" if remaining else "")


def _events_notes(events: pd.DataFrame, left_out: int, bars_left_out: int) -> list[str]:
    """List the evidence of capping, and what is not drawn."""
    evidence = ", ".join(label(kind, 30) for kind in dict.fromkeys(events["evidence"]))
    notes = [f"known by: {evidence}"]
    blur = float(events["uncertain_s"].max())
    if blur > 0:
        notes.append(f"ends are uncertain by {digits(blur)} s")
    if left_out:
        notes.append(f"{plural(left_out, 'device')} dropped")
    if bars_left_out:
        notes.append(f"the {bars_left_out:,} shortest events dropped")
    return notes


# What power capping cost a job, and which device it waited for.

_MOST_ROWS = 16


def capping_cost(cost: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what capped steps took beyond others, with its interval and its doubt.

    A row per attempt: cost against all uncapped steps with its interval, and against the
    nearest ones. The title states the cost, or that it is in doubt.

    Parameters
    ----------
    cost
        Table :data:`workbench.tables.CAPPING_COST`.
    """
    frame = Frame(source, synthetic)
    CAPPING_COST.check(cost)
    if cost.empty:
        return frame.nothing(
            "The job has no steps; analyze.capping_cost compares capped with other steps.",
            claim="No steps to compare",
        )
    valid = cost.dropna(subset=["cost_s"])
    if valid.empty:
        return frame.nothing(
            "Every step was capped, so there is none to compare with.",
            claim="The cost of capping is not known",
        )
    shown = valid.nlargest(_MOST_ROWS, "capped_step_count").sort_values("attempt")
    position = np.arange(len(shown))
    figure = Draft()
    figure.add_vline(x=0, line={"color": COLOURS["faint"], "width": 1, "dash": "dot"})
    figure.add_scatter(
        x=shown["cost_s"], y=position, mode="markers", name="against all uncapped steps",
        error_x={
            "array": shown["high_cost_s"] - shown["cost_s"],
            "arrayminus": shown["cost_s"] - shown["low_cost_s"],
            "thickness": 2, "width": 7,
        },
        marker={"color": colour("capped"), "symbol": "circle", "size": 12},
        hovertemplate="%{x:.3g} s<extra>%{fullData.name}</extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=shown["local_cost_s"],
        y=position,
        mode="markers",
        name="against the nearest uncapped steps",
        marker={
            "color": COLOURS["reference"],
            "symbol": "diamond-open",
            "size": 12,
            "line": {"width": 2},
        },
        hovertemplate="%{x:.3g} s<extra>%{fullData.name}</extra>",
    )
    ticks = [
        f"attempt {attempt}: {capped:,} of {capped + free:,} steps"
        for attempt, capped, free in zip(
            shown["attempt"], shown["capped_step_count"], shown["uncapped_step_count"], strict=True
        )
    ]
    figure.update_xaxes(title="cost of the capped steps [s]")
    figure.update_yaxes(**row_axis(ticks, 0.4, 0.6), title="")
    figure.update_layout(
        height=max(120, 34 * len(shown) + 40), margin_l=left_margin(ticks), hovermode="closest"
    )
    return frame.finish(
        figure, claim=_cost_claim(shown),
        note=" · ".join(_cost_notes(shown, len(cost))))  # fmt: skip


def _cost_claim(shown: pd.DataFrame) -> str:
    # A doubt comes before the number.
    worst = shown.iloc[int(shown["capped_step_count"].to_numpy().argmax())]
    if not worst["capped_step_count"]:
        return "No step was capped"
    text = f"{plural(int(worst['capped_step_count']), 'capped step')} of attempt {worst['attempt']}"
    if worst["doubt"]:
        return (
            f"What capping cost is in doubt: {text} took {_seconds(worst['cost_s'])} than all "
            f"others, {_seconds(worst['local_cost_s'])} than the nearest"
        )
    span = ""
    if pd.notna(worst["low_cost_s"]):
        span = f" ({digits(worst['low_cost_s'])} to {digits(worst['high_cost_s'])} s)"
    return f"{text} took {_seconds(worst['cost_s'])} than others{span}"


def _seconds(cost_s: float) -> str:
    return f"{digits(abs(cost_s))} s {'more' if cost_s >= 0 else 'less'}"


def _cost_notes(shown: pd.DataFrame, row_count: int) -> list[str]:
    """Return the doubts, and what is not drawn."""
    doubtful = shown[(shown["doubt"] != "") & (shown["capped_step_count"] > 0)]
    doubts = [
        f"<b>attempt {attempt}: {label(doubt, 200)}</b>"
        for attempt, doubt in zip(doubtful["attempt"], doubtful["doubt"], strict=True)
    ]
    notes = ["whiskers: bootstrap interval", *doubts[:2]]
    if row_count > len(shown):
        notes.append(f"{plural(row_count - len(shown), 'attempt')} dropped")
    return notes


def capping_blame(blame: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which capped device was held back most, in how many steps.

    A bar per device: steps in which it was held back most, and others in which it was
    capped. The title names the first.

    Parameters
    ----------
    blame
        Table :data:`workbench.tables.CAPPING_BLAME`.
    """
    frame = Frame(source, synthetic)
    CAPPING_BLAME.check(blame)
    if blame.empty:
        return frame.nothing(
            "No device was capped; analyze.capped_share shows how much is known at all.",
            claim="No capped device to blame",
        )
    ranked = blame.sort_values("blamed_step_count", ascending=False, kind="stable")
    shown = ranked.iloc[:_MOST_ROWS]
    ticks = [label(name, 36) for name in shown["entity"]]
    figure = Draft()
    remaining = shown["capped_step_count"] - shown["blamed_step_count"]
    for name, count, look in (
        ("held back most", shown["blamed_step_count"], "capped"),
        ("capped, another more", remaining, "not allowed"),
    ):
        figure.add_bar(
            orientation="h", x=count, y=list(range(len(shown))), name=name, marker=fill(look),
            hovertemplate="%{x:,} steps<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    figure.update_layout(
        barmode="stack", height=max(120, 30 * len(shown) + 30), margin_l=left_margin(ticks),
        hovermode="closest",
    )  # fmt: skip
    figure.update_xaxes(title="capped steps [count]", rangemode="tozero")
    figure.update_yaxes(**row_axis(ticks, 0.4, 0.6), title="")
    first = shown.iloc[0]
    claim = (
        f"{label(first['entity'], 40)} was held back most in "
        f"{plural(int(first['blamed_step_count']), 'step')}, {percent(first['blamed_share'])} of "
        "all capped ones"
    )
    notes = [f"<b>in doubt: {label(first['doubt'], 200)}</b>"] if first["doubt"] else []
    if len(blame) > len(shown):
        notes.append(f"{plural(len(blame) - len(shown), 'device')} dropped")
    return frame.finish(
        figure, claim=claim,   note=" · ".join(notes),
        is_doubtful=is_doubtful(shown.head(1)))  # fmt: skip
