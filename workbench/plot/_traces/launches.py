"""How GPU work gets started: launch calls and memory copies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import dots
from workbench.plot._style.style import Frame
from workbench.plot._style.text import digits, label, plural, size
from workbench.tables import COPY_BANDWIDTH


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
