"""Claims about communication at scale: simulated and measured times, start-up, padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench import analyze
from workbench.fidelity.registry import Reading, claim, published
from workbench.tables import COLLECTIVE_TIMES, EXPERT_LOADS, NETWORK_LEVELS


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
    limit = _printed("median error of send and receive on GB300")
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
    name="start-up of the library",
    source="NCCLX, arXiv:2510.20171v4, figure 21",
)
def startup() -> Iterator[Reading]:
    """Compare the curve with every published point, and the speed-up at the largest size."""
    for row in published("startup_times"):
        times = analyze.startup_time([int(row["rank_count"])], libraries=[row["library"]])
        name = f"{row['library']}, {int(row['rank_count']):,} ranks"
        here = float(times["startup_s"].iloc[0])
        yield Reading(name, float(row["startup_s"]), here, "s", source=row["source"])
    both = analyze.startup_time([98_304], libraries=["NCCL", "NCCLX"])["startup_s"].tolist()
    yield _reading("start-up, NCCL / NCCLX at 98,304 ranks", both[0] / both[1])


@claim(
    noun="collectives_at_scale",
    name="what exact sizes and faster communication save",
    source="NCCLX, arXiv:2510.20171v4",
)
def savings() -> Iterator[Reading]:
    """Compare printed gains with those at the load imbalance and the speed-up that they need.

    This is a reading of the numbers: printed are latencies of decoding from end to end, computed
    are shares of the traffic, at an imbalance of 1.18 and 5, and of a step at a speed-up of 5 / 3
    where 30 % of it is exposed.
    """
    for what, ratio in (
        ("padded all-to-all, least gain", 1.18), ("padded all-to-all, largest gain", 5.0),
    ):  # fmt: skip
        loads = np.full(64, (64 - ratio) / 63)
        loads[0] = ratio
        frame = pd.DataFrame({"layer": 0, "expert": range(64), "load_count": loads})
        padding = analyze.all_to_all_padding(EXPERT_LOADS.cast(frame))
        yield _reading(what, 100 * float(padding["saved_share"].iloc[0]))
    needed = analyze.communication_speedup([0.3])["speedup_ratio"].iloc[0]
    yield _reading("step latency saved", 100 * 0.3 * (1 - 1 / needed))


def _printed(what: str) -> dict[str, str]:
    return next(row for row in published("collectives_at_scale") if row["what"] == what)


def _reading(what: str, here: float) -> Reading:
    row = _printed(what)
    return Reading(
        what, float(row["value"]), here, row["unit"], float(row["tolerance"]), row["source"]
    )
