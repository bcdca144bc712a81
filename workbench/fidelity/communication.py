"""Claims about communication at scale: simulated and measured times, and start-up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench import analyze
from workbench.fidelity.registry import Reading, claim, published
from workbench.tables import COLLECTIVE_TIMES, NETWORK_LEVELS

_STARTUP = "start-up, NCCL / NCCLX"


@claim(
    noun="collectives_at_scale",
    name="rings beside a network simulator",
    source="ASTRA-sim, analytical and congestion-aware, its validated H100 files",
)
def simulated_rings() -> Iterator[Reading]:
    """Compare the closed form of rings with twelve simulated times, to 5 %.

    A message crosses a link up to the switch and one down, store and forward. Of the splits of a
    collective two are in flight, so that one level has ``splits / active`` times the latency of
    both links and the end point, and ``active / 2`` of the bandwidth.
    """
    for row in published("astra_sim_collectives"):
        splits, active = int(row["split_count"]), int(row["active_count"])
        wait_ns = splits / active * (2 * float(row["latency_ns"]) + float(row["endpoint_ns"]))
        level = {
            "level": "switch", "group_count": None, "latency_us": wait_ns / 1e3,
            "gb_per_s": float(row["gib_per_s"]) * 1.073741824 * active / 2,
            "oversubscription_ratio": 1.0,
        }  # fmt: skip
        ranks, size = int(row["rank_count"]), int(row["comm_size_bytes"])
        # The simulator's size of an all-gather is what one rank puts in.
        size *= ranks if row["collective"] == "all-gather" else 1
        table = analyze.collective_scaling(
            [ranks], [size], collective=row["collective"], algorithms=["ring"],
            levels=NETWORK_LEVELS.cast(pd.DataFrame([level])),
        )  # fmt: skip
        printed = int(row["dur_ns"])
        here, name = float(table["modelled_ns"].iloc[0]), f"{row['collective']}, {ranks} ranks"
        yield Reading(name, printed, here, "ns", 0.05 * printed, row["source"])


@claim(
    noun="collectives_at_scale",
    name="send and receive by three lines",
    source="meta-pytorch/torchcomms, benchmark results on GB300",
)
def send_and_receive() -> Iterator[Reading]:
    """Compare the fit with sizes that were held out, two libraries on GB300.

    The H100 table is not claimed: its authors say that its NCCL column has outliers.
    """
    rows = pd.DataFrame(published("send_receive_times"))
    (limit,) = (row for row in published("collectives_at_scale") if row["what"] != _STARTUP)
    for library, measured in rows[rows["gpu"] == "GB300"].groupby("library", sort=False):
        times = analyze.collective_times(send_receive(measured))
        error = np.abs(times["held_out_ns"] / times["dur_ns"] - 1).median()
        yield Reading(str(library), float(limit["value"]), 100 * float(error), "%", bound="at most")


def send_receive(rows: pd.DataFrame) -> pd.DataFrame:
    """Make a table of measured collectives of printed sends and receives."""
    times = rows.assign(
        collective="send-receive", dtype="uint8", rank_count=2, node_count=1,
        gpu=rows["gpu"] + " " + rows["library"], size_bytes=rows["size_bytes"].astype("int64"),
        dur_ns=(rows["time_us"].astype("float64") * 1e3).round(),
    )  # fmt: skip
    return COLLECTIVE_TIMES.check(COLLECTIVE_TIMES.cast(times))


@claim(
    noun="collectives_at_scale",
    name="start-up of NCCL over that of NCCLX",
    source="NCCLX, arXiv:2510.20171v4, figure 21",
)
def startup() -> Iterator[Reading]:
    """Compare printed speed-ups with those of the times printed beside them.

    The curve goes through the printed times, so a comparison with these would say nothing.
    """
    for row in published("collectives_at_scale"):
        if row["what"] == _STARTUP:
            ranks = int(row["rank_count"])
            times = analyze.startup_time([ranks], libraries=["NCCL", "NCCLX"])["startup_s"]
            here = float(times.iloc[0] / times.iloc[1])
            name, tolerance = f"{ranks:,} ranks", float(row["tolerance"])
            yield Reading(name, float(row["value"]), here, row["unit"], tolerance, row["source"])
