"""Claims about nodes that serve recommendation models."""

from __future__ import annotations

from collections.abc import Iterator

from workbench import analyze
from workbench.fidelity.registry import Reading, claim, published

_CLOSE_GB = 0.01


@claim(
    noun="inference",
    name="bounds of a node that serves DLRM",
    source="MLPerf Inference v0.7; mlcommons/training",
)
def bounds() -> Iterator[Reading]:
    """Hold what was served against the bound of data sheets, and sizes against the formula.

    The bound is that of peaks without launches or exchange, which no placement of the tables can
    exceed. A sample of the benchmark is 100 to 700 pairs, so the largest number is compared.
    Tables of 128 columns in float32, to 0.01 GB. Of the platform of arXiv:2107.04140 nothing is
    compared: its models and measurements could not be seen.
    """
    rows = {(row["what"], row["card_count"]): row for row in published("inference_numbers")}
    pairs = float(rows["pairs of a sample", ""]["value"])
    for (quantity, count), row in rows.items():
        label, printed, source = f"{row['model']} {row['card']}", float(row["value"]), row["source"]
        if quantity == "served":
            card = analyze.inference_card(row["card"])
            ideal = analyze.InferenceNode(
                card, int(count), 1 << 20, "replicated", 1, 1, 1, weights_on_chip=True, launch_us=0
            )
            table = analyze.inference_node(analyze.recommendation_model(row["model"]), ideal)
            bound = float(table["throughput_per_s"].min())
            name = f"{label} x {count}, pairs per second"
            yield Reading(name, pairs * printed, bound, "1/s", 0, source, "at least")
        elif quantity == "size of tables":
            model = analyze.recommendation_model(row["model"], element_bytes=4)
            card = analyze.inference_card("T4")
            node = analyze.InferenceNode(card, 1, row_extra_bytes=0)
            needed = analyze.inference_node(model, node)["needed_bytes"].iloc[0]
            size = (needed - model.weight_count) / 1e9
            yield Reading(f"{row['model']}, tables", printed, size, "GB", _CLOSE_GB, source)
