"""Make the results of this folder anew: ``python data/pvf-demo/make.py [PART ...]``.

Parts: components, flips, mitigations, detectors, weights. Needs the extra ``inject``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pandas as pd

from workbench import analyze, inject, load, tables
from workbench.tables import Injections

HERE = Path(__file__).resolve().parent
# Sites per stratum of the pilot, how many more, and what makes a stratum.
SITES = {
    "dlrm": (40, 4000, ("component", "bit")),
    "lenet": (6, 1000, ("component", "bit")),
    "tickets": (16, 300, ("component", "bit_role")),
}
SAID = {
    "dlrm": ("1,000 generated clicks", True),
    "lenet": ("500 handwritten digits, held out", False),
    "tickets": ("500 generated incident tickets", True),
}
DTYPES = ("fp32", "bf16", "fp16", "int8")
FLIPS = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 300


def settings(name: str, campaign: str, **options) -> inject.CampaignSettings:
    """Say of a campaign what its model's inputs are."""
    dataset, is_synthetic = SAID[name]
    _, labels = inject.shipped_inputs(name)
    return inject.CampaignSettings(
        name=campaign, dataset=dataset, is_synthetic=is_synthetic, labels=labels, **options
    )


def run(name: str, model, faults: pd.DataFrame, campaign: str, **options) -> Injections:
    """Run one campaign on the inputs of a shipped model."""
    inputs, _ = inject.shipped_inputs(name)
    return inject.campaign(
        model,
        inputs,
        faults,
        judge=inject.shipped_judge(name),
        settings=settings(name, campaign, **options),
    )


def joined(parts: list[Injections]) -> Injections:
    """Put campaigns into one bundle."""
    frames = {}
    for field in fields(Injections):
        table = getattr(tables, field.name.upper())
        found = [getattr(part, field.name) for part in parts]
        texts = [c for c, column in table.columns.items() if column.dtype == "category"]
        plain = [each.astype(dict.fromkeys(texts, object)) for each in found if len(each)]
        frames[field.name] = table.cast(pd.concat(plain, ignore_index=True)) if plain else found[0]
    return Injections(**frames)


def components() -> None:
    """Faults in every component of the three shipped models, in two phases.

    A pilot takes the same number of sites of every stratum; the rest goes where it found most
    spread.
    """
    for name, (pilot_count, rest, by) in SITES.items():
        model = inject.shipped_model(name)
        pilot = run(name, model, inject.stratified_faults(model, pilot_count, by=by, seed=1), name)
        wanted = analyze.injection_allocation(pilot, rest, by="stratum")
        then = run(name, model, inject.stratified_faults(model, wanted, by=by, seed=2), name)
        load.write(analyze.pooled(pilot, then), HERE / "components" / name)


def _flips() -> Iterator[Injections]:
    for dtype in DTYPES:
        model = inject.shipped_model("dlrm")
        stored = model if dtype == "fp32" else inject.stored_as(model, dtype)
        for component in ("top", "bottom", "embeddings"):
            for count in FLIPS:
                kind = inject.FaultModel("mbf", flip_count=count)
                faults = inject.uniform_faults(
                    stored, DRAWS, fault_model=kind, where=component, seed=count
                )
                yield run("dlrm", stored, faults, f"{component} {dtype} x{count}")


def flips() -> None:
    """More and more flips in one component, stored in four types.

    Which bits were hit follows from the seeds; it is left out to keep the files small.
    """
    parts = []
    for found in _flips():
        bare = found.faults.copy()
        for name in ("layer", "param", "kind", "elem", "index", "bit", "bit_role", "direction"):
            bare[name] = None
        bare["value_before"] = bare["value_after"] = float("nan")
        parts.append(
            Injections(**{**vars(found), "faults": tables.FAULTS.cast(bare)}),
        )
    load.write(joined(parts), HERE / "flips")


def mitigations() -> None:
    """Run the same faults bare, with clamped weights, and with clipped activations."""
    model = inject.shipped_model("dlrm")
    profiled, _ = inject.shipped_inputs("dlrm", 1000, seed=99)
    ways = {
        "none": (),
        "weight_clamp": inject.weight_clamp(model),
        "activation_clip": inject.activation_clip(model, profiled),
    }
    by = ("component", "bit")
    faults = inject.stratified_faults(model, 20, by=by, where=("top", "bottom"), seed=7)
    for way, mitigation in ways.items():
        # Run in full, so that masked is told from benign.
        found = run("dlrm", model, faults, way, mitigation=mitigation, engine="flip_and_run")
        load.write(found, HERE / "mitigations" / way)


def detectors() -> None:
    """How far the checksums are off, with faults and without."""
    found = [inject.gemm_checksum_trials(seed=1), inject.embedding_bag_checksum_trials(seed=1)]
    trials = pd.concat(found, ignore_index=True)
    trials.to_parquet(HERE / "detectors.parquet", compression="zstd", index=False)


def weights() -> None:
    """Inject into the weights of LeNet."""
    model = inject.shipped_model("lenet")
    kind = inject.FaultModel()
    faults = inject.uniform_faults(model, 1500, fault_model=kind, where="*.weight", seed=3)
    load.write(run("lenet", model, faults, "lenet weights"), HERE / "lenet-weights")


PARTS = {each.__name__: each for each in (components, flips, mitigations, detectors, weights)}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
