"""Claims about communication at scale: simulated and measured times, and start-up."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from claims._collective_times import collective_times
from claims._tables import COLLECTIVE_TIMES
from claims.registry import Reading, beside, claim, published
from data import make
from workbench import analyze, load, simulate
from workbench.tables import NETWORK_LEVELS, EmbeddingOutputs, Regions

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
        times = collective_times(send_receive(measured))
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


# Claims about nodes and their links: which one is slow, and what crosses a node.

_NEAR_COST = 0.2  # of the true cost: the goal of docs/diagnose.md


def _placed(troubles: dict[str, float], seed: int) -> make.TroubledJob:
    """Simulate a job of four nodes whose traces name them."""
    job = make.troubled_job(troubles, seed=seed, ranks=16)
    trace = job.bundle.trace
    if trace is not None:
        trace.ranks["host"] = [f"node-{rank // 4}" for rank in trace.ranks["rank"].tolist()]
    return job


@claim(
    noun="slow_links",
    name="the slow node of simulated jobs, and no node of healthy ones",
    source="truth of data.make.troubled_job",
)
def slow_nodes() -> Iterator[Reading]:
    """Compare the node named and its cost with the truth of jobs whose one node is slow."""
    for seed in (1, 3, 5):
        job = _placed({"slow link": 0.1}, seed)
        table = analyze.findings(job.bundle, rules=["slow_node"]).findings
        (truth,) = job.truth.to_dict("records")
        hit = table[table["where"].str.endswith(truth["where"])]
        yield Reading(f"seed {seed}: nodes named", 1, len(table), "")
        yield Reading(f"seed {seed}: the slow node among them", 1, len(hit), "")
        cost, near = float(truth["cost"]), _NEAR_COST * float(truth["cost"])
        yield Reading(f"seed {seed}: cost", cost, float(hit["cost"].sum()), "ms", near)
        healthy = _placed({}, seed)
        table = analyze.findings(healthy.bundle, rules=["slow_node"]).findings
        yield Reading(f"seed {seed}: nodes named in a healthy job", 0, len(table), "")


_BY_SCOPE = """
    select scope, operation, count(*), sum(kernel_ns), sum(transfer_ns) from (
        select operation, case count(distinct node) when 1 then 'one node' else 'between nodes' end
               as scope, sum(dur_ns) as kernel_ns, count(*) * min(transfer_min_ns) as transfer_ns
        from kernels join places using (rank) group by collective, operation)
    group by scope, operation
"""


@claim(
    noun="slow_links",
    name="collectives by scope, beside SQL",
    source="exact: SQLite over the collectives of a simulated job",
)
def scopes() -> Iterator[Reading]:
    """Compare transfer and kernel time inside and between nodes with those of a query."""
    trace = _placed({"slow link": 0.1}, 1).bundle.trace
    if trace is None:
        return
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    places = analyze.rank_places(trace.ranks)
    table = analyze.collective_scopes(collectives, places=places).set_index(["scope", "operation"])
    names = ["rank", "collective", "operation", "dur_ns", "transfer_min_ns"]
    kernels = collectives.loc[collectives["transfer_min_ns"].notna(), names]
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        kernels.astype({"operation": object}).to_sql("kernels", database)
        places[["rank", "node"]].to_sql("places", database)
        counted = database.execute(_BY_SCOPE).fetchall()
    yield Reading("scopes and operations", len(counted), len(table), "")
    for scope, operation, *numbers in counted:
        row, columns = (
            table.loc[(scope, operation)],
            ("collective_count", "kernel_ns", "transfer_ns"),
        )
        for column, number in zip(columns, numbers, strict=True):
            unit = "ns" if column.endswith("_ns") else ""
            yield Reading(f"{operation}, {scope}: {column}", number, int(row[column]), unit)


# Claims about training across regions: speed-ups taken apart, and the quality at the end.

_REGIONS_SOURCE = "HALoS, arXiv:2506.04531"
_NEAR = 0.1  # of the printed ratio: a maximum over levels and seeds of another model
_CLOCK = 0.05  # of the printed ratio, which holds the loss per step as well
# What the small model reaches at the same number of local steps; printed is at most 1.
_QUALITY_REACHED = 1.15


@claim(
    noun="regions",
    name="up to 7.5 times and 2.1 times as fast to the same loss",
    source=_REGIONS_SOURCE,
    needs=("local-training",),
)
def speed_ups(folder: Path) -> Iterator[Reading]:
    """Compare the largest ratio over loss levels and seeds, on the clock of the examples.

    The losses are those of a character model a thousand times smaller than the published one,
    hence 10 % of tolerance. Against DiLoCo the clock alone gives the printed ratio to 5 %;
    against Async-Local-SGD it gives less, and the rest is local steps to the same loss.
    """
    regions, curves = _curves(folder)
    clock = analyze.local_training_rate(regions).set_index("scheme")["halos_ratio"]
    largest = analyze.time_to_loss(curves).groupby("scheme", observed=True)["high_time_ratio"].max()
    for row in published("local_training"):
        if "speed-up" not in row["what"]:
            continue
        name, printed = row["scheme"], float(row["ratio"])
        label = f"HALoS over {name}: largest over loss levels and seeds"
        yield Reading(label, printed, float(largest[name]), "x", _NEAR * printed, row["source"])
        if name == "DiLoCo":
            label = f"HALoS over {name}: by the clock alone"
            yield Reading(label, printed, float(clock[name]), "x", _CLOCK * printed, row["source"])


@claim(
    noun="regions",
    name="quality of fully synchronous training",
    source=_REGIONS_SOURCE,
    needs=("local-training",),
)
def quality(folder: Path) -> Iterator[Reading]:
    """Compare the loss at the end with that of plain synchronous training at equal local steps.

    Here it falls short: a small model, nothing tuned for it. It says nothing of 70 million
    parameters, which this workbench cannot train.
    """
    curves = _curves(folder)[1]
    last = (
        curves.sort_values("step_count").groupby(["scheme", "seed"], observed=True)["loss"].last()
    )
    mean = last.groupby("scheme", observed=True).mean()
    for row in published("local_training"):
        if row["scheme"] == "synchronous":
            here = float(mean["HALoS"] / mean["synchronous"])
            yield Reading(
                "loss of the small model, over synchronous", float(row["ratio"]), here, "ratio",
                source=row["source"], bound="at most", reached=_QUALITY_REACHED,
            )  # fmt: skip


def _curves(folder: Path) -> tuple[Regions, pd.DataFrame]:
    regions = load.regions(folder / "regions.csv")
    losses = load.local_training_losses(folder / "losses.parquet")
    return regions, analyze.local_training(losses, simulate.local_training(regions))


# Claims about a compressed exchange: the speed-up taken apart, accuracy, what the codec keeps.

_COMPRESSED_EXCHANGE_SOURCE = "Feng et al., arXiv:2407.04272"
_DESTINATIONS, _BOUND_RATIO = 32, 0.1
# Of the forward exchange alone, and with a codec of one core on a link of 100 Gbit/s: what is
# reached of 1.38, from below.
_FORWARD_REACHED, _CORE_REACHED = 1.36, 0.09
# What is lost at most where the bound is too wide.
_LOST_REACHED = {
    "absolute 0.02": 0.0009, "absolute 0.1": 0.0025, "absolute 0.3": 0.03, "relative 1": 0.0045,
}  # fmt: skip
_CONFIDENCE_LEVEL = 0.95


@claim(
    noun="compressed_exchange",
    name="steps 1.38 times as fast",
    source=_COMPRESSED_EXCHANGE_SOURCE,
    needs=("compressed-exchange",),
)
def speed_up(folder: Path) -> Iterator[Reading]:
    """Ask whether the ratio of a small model would be enough for the printed speed-up.

    Bounds are a tenth of each table's scale, which costs no accuracy that 16 seeds could show. The
    printed number was measured with a codec on GPUs; this only says which cases could give it.
    """
    rows = {row["what"]: row for row in published("compressed_exchange")}
    printed, share = rows["step with a compressed exchange"], rows["share of the exchange"]
    outputs = load.embedding_outputs(folder / "outputs.npz")
    table = analyze.compression(
        outputs, bounds=analyze.table_bounds(outputs, bound_ratio=_BOUND_RATIO),
        destinations=[_DESTINATIONS], by_table=False,
    )  # fmt: skip
    ratio = float(table.loc[table["stage"] == "zstd", "ratio"].iloc[0])
    whole = float(share["value"])
    for what, part, codec, reached in (
        ("forward and backward, a codec that costs nothing", whole, np.inf, None),
        ("forward only, a codec that costs nothing", whole / 2, np.inf, _FORWARD_REACHED),
        ("forward and backward, one core and 12.5 GB/s", whole, 1.0, _CORE_REACHED),
    ):
        case = analyze.compression_speedup(
            [ratio], communication_shares=[part], link_gb_per_s=[12.5], compress_gb_per_s=[codec]
        ).iloc[0]
        reading = beside(printed, case["speedup_ratio"], f"{100 * part:.0f} % of the step, {what}")
        yield replace(reading, bound="at least", reached=reached)


@claim(
    noun="compressed_exchange",
    name="accuracy within bounds",
    source=_COMPRESSED_EXCHANGE_SOURCE,
    needs=("compressed-exchange",),
)
def accuracy(folder: Path) -> Iterator[Reading]:
    """Compare the AUC lost by training within a bound with none, paired by seed.

    The tolerance is half of the 95 % interval of the mean difference: a smaller loss cannot be
    told from none. It says nothing of other models and data.
    """
    (printed,) = (row for row in published("compressed_exchange") if row["what"] == "AUC lost")
    scores = pd.read_csv(folder / "accuracy.csv")
    runs = dict(list(scores.set_index("seed").groupby(["kind", "bound"], sort=False)["auc"]))
    plain = runs.pop(("absolute", 0.0))
    for (kind, bound), auc in runs.items():
        lost = plain - auc
        half = float(stats.t.ppf((1 + _CONFIDENCE_LEVEL) / 2, len(lost) - 1) * lost.sem())
        name = f"{kind} bound {bound:g}, {len(lost)} seeds"
        reading = beside(printed, lost.mean(), name, near=half)
        yield replace(reading, bound="at most", reached=_LOST_REACHED.get(f"{kind} {bound:g}"))


@claim(
    noun="compressed_exchange",
    name="ratio of equally likely bins",
    source="exact: 32 bits over the bits of a bin",
)
def bins() -> Iterator[Reading]:
    """Compare the ratio of an ideal coder with 32 / b, to 1 % for headers."""
    for bits in (2, 4, 6):
        centres = np.arange(2**bits, dtype=np.float32) * 0.04
        rows = EmbeddingOutputs({"bins": np.repeat(centres, 2**14).reshape(-1, 32)})
        table = analyze.compression(rows, bounds=[0.015], destinations=[1])
        here = float(table.loc[table["stage"] == "entropy", "ratio"].iloc[0])
        yield Reading(f"{2**bits} bins", 32 / bits, here, "x", 0.01 * 32 / bits)
