"""Claims about failures: published counts, rates, sizes, standby nodes and lemons."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from workbench import analyze, datasets, load
from workbench.fidelity.registry import Reading, claim, published

_RUN = {"nodes": 12_288, "failure_min": 18}


def _causes(name: str) -> pd.DataFrame:
    return load.cause_counts(datasets.path("published") / f"causes_{name}.csv")


def _reading(what: str, here: float) -> Reading:
    """Set a number beside the printed one of that name."""
    (row,) = (row for row in published("reliability_numbers") if row["what"] == what)
    unit, near = row["unit"], float(row["tolerance"])
    return Reading(what, float(row["value"]), here, unit, near, row["source"])


@claim(
    noun="reliability",
    name="published causes, recomputed from their counts",
    source="arXiv:2407.21783, arXiv:2602.00277, arXiv:2509.16293",
)
def causes() -> Iterator[Reading]:
    """Compare sums and shares with those worked out by hand; half a unit of the last digit."""
    llama = analyze.cause_shares(_causes("llama3")).set_index("cause")
    groups = analyze.cause_shares(_causes("llama3"), by="category").set_index("cause")
    yield _reading("Llama 3, sum of the counts", int(llama["failure_count"].sum()))
    yield _reading("Llama 3, Faulty GPU", float(llama["failure_share"]["Faulty GPU"]))
    yield _reading("Llama 3, GPU rows", float(groups["failure_share"]["gpu"]))
    # Printed shares are added up as decimals, so that the sum is the printed one.
    printed = round(float(groups["printed_share"]["gpu"]), 6)
    yield _reading("Llama 3, GPU rows as printed", printed)
    fthsdp = analyze.cause_shares(_causes("fthsdp_32k"))
    yield _reading("FT-HSDP 32K, sum of the counts", int(fthsdp["failure_count"].sum()))
    robust = analyze.cause_shares(_causes("byterobust")).set_index("cause")
    yield _reading("ByteRobust, CUDA error", float(robust["failure_share"]["CUDA error"]))


@claim(
    noun="reliability",
    name="rates and times between failures",
    source="arXiv:2407.21783, arXiv:2602.00277, arXiv:2410.21680",
)
def rates() -> Iterator[Reading]:
    """Compare rates with those worked out by hand; half a unit of the last digit printed.

    The two measured sizes of RSC agree with each other, and not with the 6.5 failures per
    1,000 node-days that the same paper gives: those are other failures.
    """
    count = int(_causes("llama3")["failure_count"].sum())
    llama = analyze.failure_rate(count, node_count=2048, days=54).iloc[0]
    yield _reading("Llama 3, MTBF", float(llama["mtbf_h"]))
    yield _reading("Llama 3, failures per 1000 node-days", float(llama["per_1000_node_days"]))
    # 23 failures in the days that 2.3 per 1,000 node-days need for them.
    fthsdp = analyze.failure_rate(23, node_count=4096, days=10_000 / 4096).iloc[0]
    yield _reading("FT-HSDP 2.3 per 1000 node-days on 4096 nodes, MTBF", float(fthsdp["mtbf_h"]))
    sizes = pd.DataFrame(published("mttf_rsc"))
    by_size = analyze.mttf_by_size(sizes).set_index("gpu_count")["per_1000_node_days"]
    yield _reading("RSC, 1024 GPUs", float(by_size[1024]))
    yield _reading("RSC, 8 GPUs", float(by_size[8]))
    rsc = analyze.failure_rate(65, node_count=128, days=10_000 / 128).iloc[0]
    yield _reading("RSC, MTTF of 1024 GPUs at 6.5 per 1000 node-days", float(rsc["mtbf_h"]))


@claim(noun="reliability", name="standby nodes", source="arXiv:2509.16293")
def standby() -> Iterator[Reading]:
    """Compare the standby nodes for 1,024 with ByteRobust's."""
    here = analyze.standby_nodes(1024, 0.001, quantile_share=0.99)
    yield _reading("standby nodes for 1024 at 0.001, 99 %", here)


@claim(
    noun="reliability",
    name="how many lemons a log finds, by its length",
    source="separate simulation of 12,288 nodes, 1.2 % of which carry 15 % of the failures",
)
def lemons() -> Iterator[Reading]:
    """Compare the expected recall with a simulated one.

    The simulation is one run of each length; over 200 own runs the recall had a standard
    deviation of 0.02 to 0.04, and 0.06 is allowed.
    """
    per_1000 = 1000 * 1440 / _RUN["failure_min"] / _RUN["nodes"]
    rows = published("lemon_recall")
    days = [float(row["observed_days"]) for row in rows]
    table = analyze.lemon_recall(_RUN["nodes"], per_1000, days=days)
    for row, here in zip(rows, table["recall_share"], strict=True):
        what = f"lemons found in {row['observed_days']} days"
        printed, near = float(row["recall_share"]), float(row["tolerance"])
        yield Reading(what, printed, float(here), "share", near, row["source"])
