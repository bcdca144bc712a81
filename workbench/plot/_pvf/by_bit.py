"""Which bits of which tensors hurt: the probability of a wrong output as a map."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from workbench._number_types import NUMBER_TYPES
from workbench.errors import TableError
from workbench.plot._pvf.estimand import estimand
from workbench.plot._style.chances import chance, numbers, row_with
from workbench.plot._style.said import is_doubtful
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, safe, short
from workbench.tables import PVF

_MOST_ROWS, _MOST_BITS = 60, 64
_ROLES = ("sign", "exponent", "mantissa")
_SHADES = [[0, "#FBE6D4"], [0.5, "#D55E00"], [1, "#3A1500"]]
_DECADES = 6  # below the largest; what is smaller has the lightest shade


def pvf_by_bit(
    table: pd.DataFrame, *, dtype: str | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how often a fault of each bit gives a wrong output, as a map over parts of a model.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF` with a column ``bit`` before it, and one for each
        other thing grouped by, e.g. ``component`` or ``param``.
    dtype
        Type of the values, e.g. ``"fp32"``: then it is written which bits are sign, exponent and
        mantissa. Without it a column ``dtype`` is looked at.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A row per part, a column per bit, the highest on the left, as floats are written; the
        shade is logarithmic. Rings are bits without any wrong output, crosses bits without
        any fault. The title names the worst bit.

    Raises
    ------
    TableError
        If the column ``bit`` is missing.
    """
    PVF.check(table)
    if "bit" not in table:
        msg = "'bit' is missing; group by it, as analyze.pvf_by_bit does"
        raise TableError(msg)
    rows = table[table["bit"].notna()]
    if rows.empty:
        return nothing(
            "The table has no bits; pass what analyze.pvf_by_bit returns.",
            claim="No bits to show",
            source=source,
            synthetic=synthetic,
        )
    parts = _parts(rows)
    kept = parts.drop_duplicates().head(_MOST_ROWS)
    bits = np.sort(rows["bit"].astype("int64").unique())[::-1][:_MOST_BITS]
    bits = np.arange(bits.max(), bits.min() - 1, -1)[:_MOST_BITS]
    values = _matrix(rows, parts, kept, bits)
    names = [safe(short(name, 40)) for name in kept]
    figure = _map(values, names, bits)
    _add_marks(figure, values)
    _add_roles(figure, dtype or _only_dtype(rows), bits)
    figure.update_layout(height=max(22 * len(names), 150) + 26, margin_l=left_margin(names))
    hidden = parts.nunique() - len(kept)
    notes = [*estimand(table), *([f"{plural(hidden, 'part')} left out"] if hidden else [])]
    claim = _claim(rows, parts)
    return finish(
        figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes),
        is_doubtful=is_doubtful(rows[rows["pvf"] > 0].nlargest(1, "pvf")),
    )  # fmt: skip


def _parts(rows: pd.DataFrame) -> pd.Series:
    """Name the part of the model that each row is about, from what stands before the table."""
    by = [name for name in rows if name not in (*PVF.columns, "bit", "bit_role", "dtype")]
    if not by:
        return pd.Series("all", index=rows.index)
    words = rows[by].astype(object).where(rows[by].notna(), "not told").astype(str)
    names = words.agg(", ".join, axis=1)
    drawn = rows["drawn_from"].astype(object).groupby(names)
    part = drawn.transform("first").where(drawn.transform("nunique") == 1, "part")
    return names.where(part == "", part + " of " + names)


def _matrix(
    rows: pd.DataFrame, parts: pd.Series, kept: pd.Series, bits: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Give the probabilities, a row per part; missing where nothing was injected."""
    place = {name: at for at, name in enumerate(kept)}
    drawn = rows[parts.isin(list(place)) & rows["bit"].isin(bits)]
    values = np.full((len(kept), len(bits)), np.nan)
    down = parts[drawn.index].map(place).to_numpy()
    values[down, bits[0] - drawn["bit"].astype("int64").to_numpy()] = numbers(drawn["pvf"])
    return values


def _map(
    values: npt.NDArray[np.float64], names: list[str], bits: npt.NDArray[np.int64]
) -> go.Figure:
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
    figure = go.Figure(
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
    every = -(-len(bits) // 32)
    figure.update_xaxes(
        title="bit [0 is the least significant]",
        tickvals=list(range(0, len(bits), every)),
        ticktext=[str(bit) for bit in bits[::every]],
        range=[-0.5, len(bits) - 0.5],
        showgrid=False,
    )
    # A lane above the first row is for the roles of the bits.
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, showgrid=False,
        range=[len(names) - 0.5, -0.5 - 26 * len(names) / max(22 * len(names), 150)],
    )  # fmt: skip
    return figure


def _add_marks(figure: go.Figure, values: npt.NDArray[np.float64]) -> None:
    """Mark cells that have no shade: those without any wrong output, and those without faults."""
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
    """Give the type of all rows; nothing if they do not tell or have several."""
    dtypes = list(rows["dtype"].dropna().unique()) if "dtype" in rows else []
    return str(dtypes[0]) if len(dtypes) == 1 else ""


def _add_roles(figure: go.Figure, dtype: str, bits: npt.NDArray[np.int64]) -> None:
    """Write which bits are sign, exponent and mantissa, and draw a line between them."""
    known = NUMBER_TYPES.get(dtype)
    if known is None or not known.exponent_count:
        return
    sign, exponent = known.bit_count - 1, known.mantissa_count
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


def _claim(rows: pd.DataFrame, parts: pd.Series) -> str:
    known = rows[rows["pvf"] > 0]
    if known.empty:
        return f"No bit gave a wrong output in {plural(parts.nunique(), 'part')} of the model"
    worst = row_with(known, "pvf")
    is_named = parts.nunique() > 1 or worst["drawn_from"] != ""
    where = f" of {label(parts.to_dict()[worst.name], 30)}" if is_named else ""
    silent = rows.groupby("bit")["pvf"].max()
    none = int((silent == 0).sum())
    said = f"; {plural(none, 'bit')} never {'does' if none == 1 else 'do'} harm" if none else ""
    return f"Bit {int(worst['bit'])}{where} is worst: {chance(worst['pvf'])} go wrong{said}"
