"""Figures of fast matrix multiplication: what it would gain, and from which size on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import dots, log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import digits, label, percent, plural, safe
from workbench.tables import FAST_MATMUL, FAST_MATMUL_CROSSOVER

_VERDICTS = {"does not pay": "circle", "only fused": "diamond", "pays": "star"}
_SIDE = "side of a square product [elements], logarithmic"
_MODEL = "model from data-sheet peaks, not measured"
_MOST_PRODUCTS, _MOST_PEAKS = 300, 24


def fast_matmul(products: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what each of your matrix products would gain, against its size.

    One dot per product at the speed-up with sums in memory; its whisker ends where the kernel
    hides all of them. The title states how many pay, and what they gain together.

    Parameters
    ----------
    products
        Table :data:`workbench.tables.FAST_MATMUL`.
    source, synthetic
        Where the sizes come from, printed under the figure; whether they were generated.
    """
    frame = Frame(source, synthetic)
    FAST_MATMUL.check(products)
    if products.empty:
        why = "The table has no matrix products; analyze.matrix_products gives those of a model."
        return frame.nothing(why, claim="No matrix products to show")
    kept = products.iloc[extremes(products["unfused_ratio"].to_numpy(), _MOST_PRODUCTS)]
    figure = Draft()
    for verdict, symbol in _VERDICTS.items():
        rows = kept[kept["verdict"] == verdict]
        reach = (rows["hidden_ratio"] - rows["unfused_ratio"]).to_numpy()
        figure.add_scatter(
            mode="markers", name=verdict, visible=len(rows) > 0,
            x=rows["effective_count"].to_numpy(), y=rows["unfused_ratio"].to_numpy(),
            error_y={"array": reach, "arrayminus": 0 * reach, "width": 3, "thickness": 1},
            marker={"symbol": symbol, "size": 10, "color": COLOURS["series"]},
            hovertext=[_hover(row) for row in rows.to_dict("records")],
            hovertemplate="%{hovertext}",
        )  # fmt: skip
    edge = float(products["crossover_count"].median())
    figure.add_hline(y=1, line={"color": COLOURS["reference"], "width": 1})
    figure.add_vline(x=edge, line={"color": COLOURS["limit"], "dash": "dash", "width": 1.5})
    sides = np.append(kept["effective_count"].to_numpy(dtype=np.float64), edge)
    figure.update_xaxes(title=_SIDE, type="log", **log_ticks(np.maximum(sides, 1)))
    figure.update_yaxes(title="speed-up over the plain product [×]")
    figure.update_layout(hovermode="closest")
    note = f"{_MODEL} · dots: sums in memory, which pay from {edge:,.0f} (dashed) · whiskers: up "
    note += "to a kernel that hides all sums"
    doubts = products["doubt"].str.split("; ").explode()
    counts = doubts[doubts != ""].value_counts()
    note += "".join(f" · {label(why, 70)}: {count:,}" for why, count in counts.head(3).items())
    # That none gains rests on no sum; that some do may rest on sums that the type cannot hold.
    gaining = products.loc[products["verdict"] == "pays", "doubt"]
    return frame.finish(
        figure, claim=_claim(products), note=note, is_doubtful=bool((gaining != "").any())
    )


def _hover(row: Mapping[Any, Any]) -> str:
    sides = " × ".join(f"{row[f'{side}_count']:,}" for side in "mnk")
    low, high = (digits(float(row[f"{name}_ratio"])) for name in ("unfused", "hidden"))
    words = f"{label(row['product'], 60)}: {sides}, {row['call_count']:,} times"
    return f"{words}<br>{low} to {high} with {label(row['algorithm'], 40)}"


def _claim(products: pd.DataFrame) -> str:
    pays = int((products["verdict"] == "pays").sum())
    time = products["plain_ns"] * products["call_count"]
    gains = [
        float(time.sum() / (time / np.maximum(products[f"{name}_ratio"], 1)).sum() - 1)
        for name in ("unfused", "hidden")
    ]
    peak = f"{label(products['gpu'].iloc[0], 16)} in {label(products['dtype'].iloc[0], 12)}"
    whole = f"{pays:,} of {plural(len(products), 'product')} gain" if pays else "No product gains"
    return (
        f"{whole} by fast multiplication on {peak}: {safe(percent(gains[0]))} in all, at "
        f"most {safe(percent(gains[1]))} with hidden sums"
    )


def fast_matmul_crossover(
    crossover: pd.DataFrame,
    *,
    products: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show from which size on fast multiplication pays, by GPU and type.

    Two dots per GPU and type: a kernel that hides all sums, and sums in memory; a real kernel
    lies between. The title states the smallest and the largest.

    Parameters
    ----------
    crossover
        Table :data:`workbench.tables.FAST_MATMUL_CROSSOVER`.
    products
        Table :data:`workbench.tables.FAST_MATMUL` of your products, marked in the lowest row.
    source, synthetic
        Where the sizes come from, printed under the figure; whether they were generated.
    """
    frame = Frame(source, synthetic)
    FAST_MATMUL_CROSSOVER.check(crossover)
    if crossover.empty:
        why = "The table has no GPUs; analyze.matrix_peaks gives some."
        return frame.nothing(why, claim="No crossover to show")
    rows = crossover.sort_values("unfused_count", kind="stable")[:_MOST_PEAKS]
    names = [f"{gpu} {dtype}" for gpu, dtype in zip(rows["gpu"], rows["dtype"], strict=True)]
    marked = FAST_MATMUL.empty() if products is None else FAST_MATMUL.check(products)
    marked = marked[:_MOST_PRODUCTS]
    positions = np.append(np.arange(len(rows)), np.full(len(marked), len(rows)))
    measures = {
        measure: np.append(rows[column].to_numpy(), np.zeros(len(marked)))
        for measure, column in (
            ("sums hidden", "hidden_count"),
            ("sums in memory", "unfused_count"),
        )
    }
    if len(marked):
        measures["your products"] = np.append(np.zeros(len(rows)), marked["effective_count"])
    hover = [f"{label(row, 40)}" for row in [*rows["algorithm"], *marked["product"]]]
    shown = [*names, "your products"] if len(marked) else names
    figure = dots(shown, measures, rows=positions, hover=hover, title=_SIDE)
    sides = rows["unfused_count"].to_numpy()
    claim = f"With sums in memory fast multiplication pays from {sides[0]:,.0f} on "
    claim += label(names[0], 24)
    if len(rows) > 1:
        claim += f", from {sides[-1]:,.0f} on {label(names[-1], 24)}"
    levels = plural(int(rows["level_count"].iloc[0]), "level")
    note = f"{_MODEL} · {levels} of {label(rows['algorithm'].iloc[0], 40)}"
    if (hidden := len(crossover) - len(rows)) > 0:
        note += f" · {plural(hidden, 'row')} dropped"
    return frame.finish(figure, claim=claim, note=note)
