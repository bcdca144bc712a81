"""How GPU work gets started: launch calls and memory copies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import dots
from workbench.plot._style.style import Frame
from workbench.plot._style.text import digits, duration, label, percent, plural, size
from workbench.tables import COPY_BANDWIDTH, LAUNCHES


def launches(
    launches: pd.DataFrame, *, top: int = 10, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how long calls that start GPU work take, and how long the work then waits.

    One dot per rank, call name and measure on a logarithmic axis in µs; the title states the
    median latency of the most frequent call.

    Parameters
    ----------
    launches
        Table :data:`workbench.tables.LAUNCHES`.
    top
        Call names to show, those that start most GPU work first.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    LAUNCHES.check(launches)
    with_name = launches[launches["name"].notna() & (launches["call_count"] > 0)]
    started = with_name.groupby("name", observed=True)[["kernel_count", "call_count"]].sum()
    order = started.sort_values(["kernel_count", "call_count"], ascending=False).index[:top]
    if not len(order):
        return frame.nothing(
            "The trace has no calls that start GPU work.", claim="No launches to show"
        )
    drawn = with_name[with_name["name"].isin(order)].reset_index(drop=True)
    figure = dots(
        [str(name) for name in order],
        {
            words: drawn[column].to_numpy(dtype=np.float64, na_value=np.nan) / 1_000
            for words, column in {
                "the call on the host (mean)": "host_mean_ns",
                "until the work begins, stream idle (median)": "latency_median_ns",
                "until it begins, stream busy (median)": "queue_median_ns",
            }.items()
        },
        rows=order.get_indexer(pd.Index(drawn["name"])),
        hover=[
            f"rank {rank}: {plural(calls, 'call')}, {plural(kernels, 'kernel')}"
            for rank, calls, kernels in drawn[["rank", "call_count", "kernel_count"]].itertuples(
                index=False
            )
        ],
        title="duration [µs], logarithmic; one dot per rank",
    )
    # Rows without a name are GPU work whose launch the trace does not have.
    lost = int(launches.loc[launches["name"].isna(), "kernel_count"].sum())
    share = percent(lost / max(int(launches["kernel_count"].sum()), 1))
    return frame.finish(
        figure,
        claim=_launch_claim(drawn[drawn["name"] == order[0]], started.loc[order[0]], started),
        note=f"{share} of the GPU work has no launch in the trace" if lost else "",
    )


def copy_bandwidth(
    bandwidth: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how fast memory was copied, by direction.

    Mean and peak as dots, one per rank and GPU, on a logarithmic axis in GB/s; the title states
    the mean of the direction that moved most.

    Parameters
    ----------
    bandwidth
        Table :data:`workbench.tables.COPY_BANDWIDTH`.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    COPY_BANDWIDTH.check(bandwidth)
    # Nothing and unknown have no place on a logarithmic axis.
    drawn = bandwidth[bandwidth["mean_gb_per_s"].fillna(0) > 0].reset_index(drop=True)
    if drawn.empty:
        return frame.nothing(
            f"{plural(int(bandwidth['copy_count'].sum()), 'copy').replace('copys', 'copies')} "
            "in the trace, none with a size and a duration.",
            claim="No copy bandwidth to show",
        )
    sums = drawn.groupby("direction", observed=True)[["size_bytes", "busy_ns", "copy_count"]].sum()
    sums = sums.sort_values("size_bytes", ascending=False)
    figure = dots(
        [str(name) for name in sums.index],
        {
            "mean while copying": drawn["mean_gb_per_s"].to_numpy(dtype=np.float64),
            "peak": drawn["peak_gb_per_s"].to_numpy(dtype=np.float64, na_value=np.nan),
        },
        rows=sums.index.get_indexer(pd.Index(drawn["direction"])),
        hover=[
            f"rank {rank}, GPU {device}: {count:,} copies, {size(float(moved))}"
            for rank, device, count, moved in drawn[
                ["rank", "device", "copy_count", "size_bytes"]
            ].itertuples(index=False)
        ],
        title="bandwidth [GB/s], logarithmic; one dot per rank and GPU",
    )
    top = sums.iloc[0]
    # Bytes per nanosecond are GB/s.
    moved, gb_per_s = float(top["size_bytes"]), float(top["size_bytes"]) / float(top["busy_ns"])
    claim = (
        f"{label(sums.index[0], 40)} moves most, {size(moved)} in "
        f"{int(top['copy_count']):,} pieces, at {digits(gb_per_s)} GB/s"
    )
    unsized = int(bandwidth["unsized_count"].sum())
    note = f"{unsized:,} copies without a size are dropped" if unsized else ""
    return frame.finish(figure, claim=claim, note=note)


def _launch_claim(rows: pd.DataFrame, first: pd.Series, started: pd.DataFrame) -> str:
    share = percent(first["kernel_count"] / max(started["kernel_count"].sum(), 1))
    claim = f"{label(first.name, 40)} starts {share} of the GPU work"
    medians = rows["latency_median_ns"].dropna()
    if medians.empty:
        return claim
    low, high = duration(medians.min()), duration(medians.max())
    span = low if low == high else f"{low} to {high}"
    return f"{claim}; on an idle stream it begins after {span}"
