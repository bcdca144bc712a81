"""How vulnerable each part of a model is: the probability that a fault gives a wrong output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from workbench._shared.numbers import NUMBER_TYPES
from workbench.errors import TableError
from workbench.plot._style import chances as scales
from workbench.plot._style.chances import Chances, axis_of, chance, chances, numbers
from workbench.plot._style.draft import Draft
from workbench.plot._style.palette import SHADES
from workbench.plot._style.style import COLOURS, Frame, left_margin, row_axis
from workbench.plot._style.text import is_doubtful, label, percent, plural, safe, short, wrapped
from workbench.tables import PVF

_MOST, _MOST_DETAILED = 40, 16
_EXACT = "exact"  # nothing was estimated, so there is no interval
_APART = 0.22  # rows; the naive interval lies below the clustered one


def pvf(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how often a fault in each group gives a wrong output, with its interval.

    Below the interval that takes sites as the sample lies a thin one that takes all inputs
    of a site as independent. They are not: it is too narrow, and there to be compared only.

    One dot per group with both intervals, the most vulnerable on top; open, with the reason,
    where the estimate is unreliable. The title names the most vulnerable group.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF`; results of several campaigns or tools may be put
        together with ``pandas.concat``: where their rules differ, the labels say how.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    PVF.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no groups; pass what analyze.pvf returns.",
            claim="No vulnerability to show",
        )
    ordered = table.sort_values("pvf", ascending=False, kind="stable", na_position="last")
    drawn = ordered.head(_MOST).reset_index(drop=True)
    axis = axis_of(drawn["pvf"], drawn["low"], drawn["high"])
    figure = Draft()
    _add_intervals(figure, drawn, axis)
    _add_estimates(figure, drawn, axis)
    names = _names(drawn, differing(table))
    lines = 1 + max(name.count("<br>") for name in names)
    name_rows(figure, names, max(len(drawn), 3) * (15 * lines + 13), below=0.4, above=0.6)
    figure.update_xaxes(**axis.axis())
    hidden = len(table) - len(drawn)
    notes = [*estimand(table), *coverage(table[table["interval"] != _EXACT])]
    notes += [f"{hidden:,} less vulnerable groups dropped"] if hidden else []
    return frame.finish(figure, claim=_claim(ordered), note=" · ".join(notes))


def name_rows(
    figure: go.Figure, names: list[str], height: float, *, below: float = 0.5,
    above: float = 0.5, **axis: Any,
) -> None:  # fmt: skip
    """Write a name beside every row, the first on top, with so many rows' room around them."""
    figure.update_layout(height=height, margin_l=left_margin(names), hovermode="closest")
    figure.update_yaxes(**row_axis(names, below, above), **axis)


def _add_intervals(figure: go.Figure, drawn: pd.DataFrame, axis: Chances) -> None:
    """Draw the interval that holds, and thin below it the one that does not."""
    # An exact factor has no interval, and a line of length 0 would look like a very sure one.
    drawn = drawn[drawn["interval"] != _EXACT]
    positions = drawn.index.to_numpy(dtype="float64")
    for low, high, shift, name, line in (
        ("low", "high", 0.0, "interval, sites as the sample",
         {"color": COLOURS["dark"], "width": 3, "dash": "solid"}),
        ("independent_low", "independent_high", _APART,
         "too narrow: inputs taken as independent",
         {"color": COLOURS["limit"], "width": 1.5, "dash": "2px,2px"}),
    ):  # fmt: skip
        x, y = scales.segments(axis.place(drawn[low]), axis.place(drawn[high]), positions + shift)
        if x:
            figure.add_scatter(
                mode="lines+markers", x=x, y=y, name=name, line=line, hoverinfo="skip",
                marker={"symbol": "line-ns-open", "size": 7, "color": line["color"]},
            )  # fmt: skip


def _add_estimates(figure: go.Figure, drawn: pd.DataFrame, axis: Chances) -> None:
    """Place one mark per group; its shape says whether it is exact, reliable, zero or unknown."""
    estimate = drawn["pvf"]
    is_known, zero = estimate.notna(), estimate == 0
    exact = drawn["interval"] == _EXACT
    kinds = (
        ("exact: every site was injected", is_known & exact & ~zero, "square"),
        ("PVF", is_known & ~exact & ~zero & drawn["is_sure"], "circle"),
        ("PVF, unreliable estimate", is_known & ~exact & ~zero & ~drawn["is_sure"], "diamond-open"),
        ("no wrong output found", is_known & zero, "triangle-left-open"),
        ("no answer", ~is_known, "x-thin-open"),
    )
    for name, chosen, symbol in kinds:
        rows = drawn[chosen]
        if rows.empty:
            continue
        figure.add_scatter(
            mode="markers", x=axis.place(rows["pvf"].fillna(0.0)), y=rows.index.to_numpy(),
            name=name,
            marker={
                "symbol": symbol, "size": 11, "color": COLOURS["series"],
                "line": {"width": 2, "color": COLOURS["series"]},
            },
            hovertext=[_hover(row) for _, row in rows.iterrows()],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip


def _names(drawn: pd.DataFrame, rules: list[str]) -> list[str]:
    names = []
    for _, row in drawn.iterrows():
        lines = [safe(short(row["group"], 40))]
        if len(drawn) <= _MOST_DETAILED:
            size = plural(int(row["site_count"]), "site")
            lines.append(f"<i>{'all ' if row['interval'] == _EXACT else ''}{size}</i>")
            lines += [f"<i>{rule_of(row, rules)}</i>"] if rules else []
            lines += [] if row["is_sure"] else _doubt(row["doubt"])
        names.append("<br>".join(lines))
    return names


def _doubt(text: object) -> list[str]:
    lines = wrapped(f"unreliable: {label(text, 110)}", 46).split("<br>")
    return [f"<i>{line}</i>" for line in lines]


def _claim(ordered: pd.DataFrame) -> str:
    harmful = ordered[ordered["pvf"] > 0]
    if harmful.empty:
        sites = int(ordered["site_count"].sum())
        return f"No fault gave a wrong output at {plural(sites, 'injection site')}"
    first = harmful.iloc[0]
    name, most = label(first["group"], 24), chance(first["pvf"])
    caveat = "" if first["is_sure"] else ", an unreliable estimate"
    if len(harmful) == 1 and len(ordered) > 1:
        return f"Wrong outputs only in {name}: {most} of faulty inferences go wrong{caveat}"
    if len(harmful) == 1:
        return f"{name}: {most} of faulty inferences go wrong{caveat}"
    second = harmful.iloc[1]
    rival, next_most = label(second["group"], 24), chance(second["pvf"])
    if most == next_most:
        return (
            f"{name} and {rival} are highest: {most} of faulty inferences go wrong in each{caveat}"
        )
    highest = f"Highest: {name}, {most} of faulty inferences go wrong; next {rival}, {next_most}"
    if pd.isna(first["low"]) or pd.isna(second["high"]):
        return f"{highest}, not known whether by chance"
    # Overlapping intervals do not show which of the two is higher.
    if first["low"] <= second["high"]:
        return f"{highest}; their intervals overlap{caveat and ', unreliable'}"
    return f"{highest}{caveat}"


def _hover(row: pd.Series) -> str:
    due = "unknown" if pd.isna(row["due_count"]) else f"{int(row['due_count']):,}"
    effect = row["design_effect_ratio"]
    lines = [
        label(row["group"], 80),
        f"PVF {chance(row['pvf'])} ({chances(row['low'], row['high'])}, "
        f"{label(row['interval'], 30)})",
        f"{plural(int(row['site_count']), 'site')}, {int(row['event_site_count']):,} of them with "
        "a wrong output",
        f"{int(row['trial_count']):,} trials: {int(row['sdc_count']):,} wrong, {due} not finite",
    ]
    if not pd.isna(effect):
        lines.append(f"{effect:,.3g} times the variance of independent trials")
    if not row["is_sure"]:
        lines.append(f"unreliable: {label(row['doubt'], 120)}")
    return "<br>".join(lines)


_MOST_ROWS, _MOST_BITS = 60, 64
_ROLES = ("sign", "exponent", "mantissa")
_SHADES = [list(stop) for stop in SHADES]
_DECADES = 6  # below the largest; what is smaller has the lightest shade


def pvf_by_bit(
    table: pd.DataFrame, *, dtype: str | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how often a fault of each bit gives a wrong output, as a map over parts of a model.

    A row per part, a column per bit, the highest on the left, as floats are written; the
    shade is logarithmic. Rings are bits without any wrong output, crosses bits without
    any fault. The title names the worst bit.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF` with a column ``bit`` before it, and one for each
        other thing grouped by, e.g. ``component`` or ``param``.
    dtype
        Type of the values, e.g. ``"fp32"``: then it is written which bits are sign, exponent and
        mantissa. Without it a column ``dtype`` is looked at.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Raises
    ------
    TableError
        If the column ``bit`` is missing.
    """
    frame = Frame(source, synthetic)
    PVF.check(table)
    if "bit" not in table:
        msg = "'bit' is missing; group by it, as analyze.pvf_by_bit does"
        raise TableError(msg)
    rows = table[table["bit"].notna()]
    if rows.empty:
        return frame.nothing(
            "The table has no bits; pass what analyze.pvf_by_bit returns.", claim="No bits to show"
        )
    part_names = _parts(rows)
    kept = part_names.drop_duplicates().head(_MOST_ROWS)
    bits = np.sort(rows["bit"].astype("int64").unique())[::-1][:_MOST_BITS]
    # Without gaps: a bit that was never injected has to show as a column of crosses.
    bits = np.arange(bits.max(), bits.min() - 1, -1)[:_MOST_BITS]
    values = _matrix(rows, part_names, kept, bits)
    names = [safe(short(name, 40)) for name in kept]
    figure = _map(values, names, bits)
    _add_marks(figure, values)
    _add_roles(figure, dtype or _only_dtype(rows), bits)
    figure.update_layout(height=max(22 * len(names), 150) + 26, margin_l=left_margin(names))
    hidden = part_names.nunique() - len(kept)
    notes = [*estimand(table), *([f"{plural(hidden, 'part')} dropped"] if hidden else [])]
    claim = _by_bit_claim(rows, part_names)
    return frame.finish(
        figure, claim=claim,   note=" · ".join(notes),
        is_doubtful=is_doubtful(rows[rows["pvf"] > 0].nlargest(1, "pvf")))  # fmt: skip


def _parts(rows: pd.DataFrame) -> pd.Series:
    """Name the part of the model that each row is about, from what stands before the table."""
    by = [name for name in rows if name not in (*PVF.columns, "bit", "bit_role", "dtype")]
    if not by:
        return pd.Series("all", index=rows.index)
    words = rows[by].astype(object).where(rows[by].notna(), "not told").astype(str)
    names = words[by[0]].str.cat(words[by[1:]], sep=", ")
    drawn = rows["drawn_from"].astype(object).groupby(names)
    origin = drawn.transform("first").where(drawn.transform("nunique") == 1, "part")
    return names.where(origin == "", origin + " of " + names)


def _matrix(
    rows: pd.DataFrame, part_names: pd.Series, kept: pd.Series, bits: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    row_of = {name: at for at, name in enumerate(kept)}
    drawn = rows[part_names.isin(list(row_of)) & rows["bit"].isin(bits)]
    values = np.full((len(kept), len(bits)), np.nan)
    down = part_names[drawn.index].map(row_of).to_numpy()
    values[down, bits[0] - drawn["bit"].astype("int64").to_numpy()] = numbers(drawn["pvf"])
    return values


def _map(
    values: npt.NDArray[np.float64], names: list[str], bits: npt.NDArray[np.int64]
) -> go.Figure:
    # A logarithm has no place for 0; cells without a wrong output get a mark instead.
    shown = np.where(values > 0, 100 * values, np.nan)
    decades = np.log10(shown)
    high = np.ceil(np.nanmax(decades)) if np.isfinite(decades).any() else 0.0
    least = np.nanmin(decades) if np.isfinite(decades).any() else high
    low = max(min(np.floor(least), high - 1), high - _DECADES)
    ticks = np.arange(low, high + 1)
    hover = [
        [
            f"{name}, bit {bit}: {'no fault' if np.isnan(p) else chance(p)}"
            for bit, p in zip(bits, line, strict=True)
        ]
        for name, line in zip(names, values, strict=True)
    ]
    figure = Draft(
        go.Heatmap(
            z=decades,
            x=list(range(len(bits))),
            y=list(range(len(names))),
            zmin=low,
            zmax=high,
            colorscale=_SHADES,
            xgap=1,
            ygap=1,
            colorbar={
                "title": "PVF [%]", "thickness": 12, "outlinewidth": 0, "ticks": "",
                "tickvals": ticks, "ticktext": [f"{10.0**tick:.10g}" for tick in ticks],
            },
            text=hover,
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=True,
        )
    )  # fmt: skip
    # At most 32 numbers have room below the map.
    every = -(-len(bits) // 32)
    figure.update_xaxes(
        title="bit [0 is the least significant]", tickvals=list(range(0, len(bits), every)),
        ticktext=[str(bit) for bit in bits[::every]], range=[-0.5, len(bits) - 0.5], showgrid=False,
    )  # fmt: skip
    # A lane above the first row is for the roles of the bits.
    lane = 26 * len(names) / max(22 * len(names), 150)
    figure.update_yaxes(**row_axis(names, above=0.5 + lane), showgrid=False)
    return figure


def _add_marks(figure: go.Figure, values: npt.NDArray[np.float64]) -> None:
    for name, chosen, symbol in (
        ("no wrong output found", values == 0, "circle-open"),
        ("no fault injected", np.isnan(values), "x-thin-open"),
    ):
        down, across = np.nonzero(chosen)
        if len(down):
            figure.add_scatter(
                mode="markers", x=across, y=down, name=name, hoverinfo="skip",
                marker={"symbol": symbol, "size": 6, "color": COLOURS["unknown"],
                        "line": {"width": 1.2, "color": COLOURS["unknown"]}},
            )  # fmt: skip


def _only_dtype(rows: pd.DataFrame) -> str:
    dtypes = list(rows["dtype"].dropna().unique()) if "dtype" in rows else []
    return str(dtypes[0]) if len(dtypes) == 1 else ""


def _add_roles(figure: go.Figure, dtype: str, bits: npt.NDArray[np.int64]) -> None:
    number_type = NUMBER_TYPES.get(dtype)
    if number_type is None or not number_type.exponent_count:
        return
    sign, exponent = number_type.bit_count - 1, number_type.mantissa_count
    spans = ((sign, sign), (sign - 1, exponent), (exponent - 1, 0))
    for role, (high, low) in zip(_ROLES, spans, strict=True):
        first, last = max(bits[0] - high, 0), min(bits[0] - low, len(bits) - 1)
        if first > last:
            continue
        figure.add_annotation(
            text=f"<b>{role}</b>", x=(first + last) / 2, y=1, yref="paper", yanchor="top",
            showarrow=False, font={"size": 11},
        )  # fmt: skip
        if last < len(bits) - 1:
            figure.add_vline(x=last + 0.5, line={"color": COLOURS["dark"], "width": 1.5})


def _by_bit_claim(rows: pd.DataFrame, part_names: pd.Series) -> str:
    harmful = rows[rows["pvf"] > 0]
    if harmful.empty:
        return f"No bit gave a wrong output in {plural(part_names.nunique(), 'part')} of the model"
    worst = scales.row_with(harmful, "pvf")
    is_named = part_names.nunique() > 1 or worst["drawn_from"] != ""
    where = f" of {label(part_names.to_dict()[worst.name], 30)}" if is_named else ""
    silent = rows.groupby("bit")["pvf"].max()
    none = int((silent == 0).sum())
    harmless = f"; {plural(none, 'bit')} never {'does' if none == 1 else 'do'} harm" if none else ""
    return f"Bit {int(worst['bit'])}{where} is worst: {chance(worst['pvf'])} go wrong{harmless}"


# Without these words a PVF cannot be compared with another.
_WORDS = {
    "average": {
        "bits": "every bit weighs the same",
        "parameters": "every parameter weighs the same",
        "tensors": "every tensor weighs the same",
        "layers": "every layer weighs the same",
    },
    "nan_policy": {
        "wrong": "outputs that are not finite count as wrong",
        "due": "outputs that are not finite are left to a detector",
        "ignore": "outputs that are not finite are dropped",
    },
    "criterion": {
        "argmax": "wrong: another class is the largest",
        "threshold": "wrong: other side of the threshold",
        "difference": "wrong: the output moved by more than allowed",
        "metric_drop": "wrong: the quality dropped by more than allowed",
    },
    "fault_model": {
        "sbf": "one bit flips",
        "mbf": "several bits flip",
        "mbbf": "a burst of bits flips",
        "stuck0": "a bit is stuck at 0",
        "stuck1": "a bit is stuck at 1",
        "value": "a value is replaced",
    },
}
_ESTIMAND_MOST = 3


def estimand(table: pd.DataFrame) -> list[str]:
    """List what was averaged, counted and injected, and how many inputs judged."""
    sentences = [_drawn(table), *(_rule(table, name) for name in _WORDS)]
    if {"site_count", "trial_count"} <= set(table.columns):
        sentences.append(_inputs(table))
    return [words for words in sentences if words]


def coverage(table: pd.DataFrame) -> list[str]:
    """Return how sure the intervals are meant to be."""
    levels = table["confidence_level"].drop_duplicates()
    if not len(levels):
        return []
    return [f"{percent(float(levels.iloc[0]))} intervals" if len(levels) == 1 else "intervals"]


def differing(table: pd.DataFrame) -> list[str]:
    """Name the rules in which rows differ; their labels then have to say which they follow."""
    return [name for name in _WORDS if len(_values(table, name)) > 1]


def rule_of(row: pd.Series, names: Sequence[str]) -> str:
    """Write the rules of one row in short."""
    words = ["not told" if pd.isna(row[name]) else label(row[name], 20) for name in names]
    return ", ".join(
        f"{name.replace('_', ' ')}: {word}" for name, word in zip(names, words, strict=True)
    )


def _values(table: pd.DataFrame, name: str) -> list[str | None]:
    column = table[name].astype(object)
    return list(column.where(column.notna(), None).drop_duplicates())


def _rule(table: pd.DataFrame, name: str) -> str:
    values = _values(table, name)
    if len(values) > 1:
        shown = [
            label(value, 20) if value is not None else "not told"
            for value in values[:_ESTIMAND_MOST]
        ]
        more = ", ..." if len(values) > _ESTIMAND_MOST else ""
        return f"<b>{name.replace('_', ' ')} differs: {', '.join(shown)}{more}</b>"
    if not values or values[0] is None:
        return f"{name.replace('_', ' ')} not told"
    return _WORDS[name].get(values[0], f"{name.replace('_', ' ')}: {label(values[0], 40)}")


def _drawn(table: pd.DataFrame) -> str:
    if "drawn_from" not in table or not (origins := [x for x in table["drawn_from"].unique() if x]):
        return ""
    more = ", ..." if len(origins) > _ESTIMAND_MOST else ""
    shown = ", ".join(label(x, 40) for x in origins[:_ESTIMAND_MOST])
    return f"<b>faults drawn from {shown}{more} only</b>"


def _inputs(table: pd.DataFrame) -> str:
    counted = table[table["site_count"] > 0]
    per_site = counted["trial_count"] / counted["site_count"]
    if per_site.empty:
        return ""
    low, high = per_site.min(), per_site.max()
    if low == high and low == int(low):
        return f"{int(low):,} inputs per site" if low != 1 else "one input per site"
    return f"{low:,.4g} to {high:,.4g} inputs per site"
