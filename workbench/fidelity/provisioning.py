"""Claims about power limits: knees of public sweeps, and the arithmetic of a 150 MW site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench import analyze, load
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_META = "arXiv:2605.24461 as reported by supercomputing.news, 30 May 2026"
# Any site will do: with GPUs by the hundred thousand, whole GPUs do not matter to a ratio.
_SITE = {"budget_w": 150e6, "pue_ratio": 1.0, "fixed_w": 0.0}


@claim(
    noun="provisioning",
    name="limits of least energy on public sweeps",
    source="ml-energy/zeus, NSDI'23 trace: independent medians over its files",
    needs=("power-zeus-sweeps",),
)
def knees(folder: Path) -> Iterator[Reading]:
    """Compare limits exactly, and shares to their last digit."""
    # The folder also holds other sweeps, of the tool itself.
    curve = analyze.power_curve(load.power_sweeps(sorted(folder.glob("summary_power_*.csv"))))
    counts = curve.drop_duplicates(["gpu", "job", "configuration"]).groupby("gpu").size()
    for row in published("power_sweep_counts"):
        what = f"{row['gpu']}: configurations"
        here = int(counts[row["gpu"]])
        yield Reading(what, float(row["configuration_count"]), here, "1", source=row["source"])
    found = analyze.power_knees(curve).set_index(["gpu", "job"])
    for row in published("power_knees"):
        here = found.loc[(row["gpu"], row["job"])]
        name = f"{row['gpu']} {row['job']}"
        for words, printed, column, unit in (
            ("largest limit", "largest_limit_w", "largest_limit_w", "W"),
            ("limit of least energy", "least_energy_limit_w", "least_energy_limit_w", "W"),
            ("energy saved there", "saving", "saving_ratio", "1"),
            ("speed lost there", "speed_loss", "speed_loss_ratio", "1"),
            ("smallest limit that keeps 95 %", "kept_95_limit_w", "kept_speed_limit_w", "W"),
        ):
            tolerance = float(row["tolerance"]) if unit == "1" else 0
            what = f"{name}: {words}"
            yield Reading(what, float(row[printed]), float(here[column]), unit, tolerance)


@claim(noun="provisioning", name="1,200 W to 1,000 W at a fixed site power", source=_META)
def fixed_power() -> Iterator[Reading]:
    """Invert the published gain, and find it again from what it implies."""
    curve = analyze.published_curve("gb200-meta")
    facts = {row["quantity"]: row for row in published("power_provisioning")}
    gains = analyze.published_gains("GB200").set_index("limit_w")
    (slow,) = curve.loc[curve["limit_w"] == 1_000, "speed_ratio"]
    implied = analyze.overhead_w_implied(
        1 + float(gains.loc[1_000, "gain_ratio"]), speed_share=float(slow), limit_w=1_000,
        reference_limit_w=1_200,
    )  # fmt: skip
    printed = facts["non-GPU power per GPU that +9 % implies"]
    yield Reading(
        "power beside each GPU that +9 % implies", float(printed["value"]), implied, "W", 0.01,
        source=printed["source"],
    )  # fmt: skip
    table = analyze.provisioning(curve, overhead_w=implied, **_SITE).set_index("limit_w")
    gain = float(table.loc[1_000, "gain_ratio"])
    yield Reading("throughput gained at 1,000 W", 0.09, gain, "1", 1e-4)
    power = facts["all-in power per GPU"]
    site, count = (float(facts[name]["value"]) for name in ("site budget", "GPUs of the site"))
    yield Reading(
        "all-in power per GPU",
        float(power["value"]),
        site / count,
        "W",
        0.5,
        source=power["source"],
    )


@claim(
    noun="provisioning",
    name="960 W: extrapolated speed within what the published gain allows",
    source=_META,
)
def extrapolated() -> Iterator[Reading]:
    """Ask every way to extrapolate; the published 1.9 / 1.7 is known to its rounding only."""
    curve = analyze.published_curve("gb200-meta")
    gain = analyze.published_gains("GB200").set_index("limit_w").loc[960]
    yield Reading("1.9 / 1.7 - 1", 0.118, float(gain["gain_ratio"]), "1", 5e-4)
    methods: tuple[analyze.Extrapolation, ...] = ("linear", "power", "quadratic", "cubic")
    for method in methods:
        more = analyze.extended_curve(curve, 960, method=method)
        table = analyze.provisioning(more, overhead_w=357.14, **_SITE).set_index("limit_w")
        here = float(table.loc[960, "gain_ratio"])
        for end, bound in (("low", "at least"), ("high", "at most")):
            yield Reading(
                f"{method}: gain at 960 W, {bound} what rounds to 1.9 / 1.7",
                float(gain[f"{end}_gain_ratio"]), here, "1", bound=bound,  # type: ignore[arg-type]
            )  # fmt: skip
