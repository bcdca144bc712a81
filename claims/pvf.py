"""Claims about fault injection: order of parts and types, intervals, engines, checksums."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from claims._interval_coverage import interval_coverage
from claims.registry import Reading, beside_named, claim
from workbench import analyze, datasets, inject, load
from workbench.inject import models
from workbench.tables import ExhaustiveInjections

_SITES, _REPEATS = 1000, 300
_FLIPS, _DRAWS = 128, 300
# Experiments per component, and per model the inputs that both engines judge them on.
_COMPARED = 300
_JUDGED_ON = {"dlrm": 100, "lenet": 20, "tickets": 8}
_COUNTS = ["sdc_count", "due_count", "beneficial_count"]


_reading = partial(beside_named, "pvf_numbers")


@cache
def _truth() -> ExhaustiveInjections:
    return load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")


@claim(noun="pvf", name="every single-bit fault of the shipped DLRM", source="arXiv:2405.01741")
def order() -> Iterator[Reading]:
    """Compare the parts of the model by the exhaustive table: exact numbers, no samples."""
    by_part = analyze.pvf(_truth(), average="bits").set_index("component")["pvf"]
    top, bottom, tables = (by_part[name] for name in ("top", "bottom", "embeddings"))
    yield _reading("PVF of the top MLP over that of the bottom MLP", top / bottom)
    yield _reading("PVF of the bottom MLP over that of the embeddings", bottom / tables)
    bits = analyze.pvf(_truth(), average="bits", by=("component", "bit"))
    by_bit = bits[bits["component"] == "top"].set_index("bit")["pvf"]
    name = "share of the top MLP's wrong outputs by bit 30, the exponent's top bit"
    yield _reading(name, by_bit[30] / by_bit.sum())


@claim(noun="pvf", name="stored types at equal numbers of flips", source="arXiv:2405.01741")
def types() -> Iterator[Reading]:
    """Inject 128 flips at once into weights stored as float32 and as int8."""
    plain = inject.shipped_model("dlrm")
    inputs, _ = inject.shipped_inputs("dlrm")
    kind = inject.FaultModel("mbf", flip_count=_FLIPS)
    for component in ("top", "bottom"):
        factors = []
        for model in (plain, inject.stored_as(plain, "int8")):
            faults = inject.uniform_faults(
                model, _DRAWS, fault_model=kind, where=component, seed=_FLIPS
            )
            injected = inject.campaign(model, inputs, faults, judge=inject.shipped_judge("dlrm"))
            factors.append(float(analyze.pvf(injected, average="bits")["pvf"].iloc[0]))
        name = f"fp32 over int8 at {_FLIPS} flips, {component} MLP"
        yield _reading(name, factors[0] / factors[1])


@claim(noun="pvf", name="intervals against the truth", source="300 samples of the shipped truth")
def coverage() -> Iterator[Reading]:
    """Draw 300 samples of 1,000 sites, and count the intervals that cover the true value."""
    table = interval_coverage(_truth(), site_count=_SITES, repeat_count=_REPEATS, seed=1).set_index(
        ["group", "design", "input_count", "interval"]
    )["covered_share"]
    inputs = int(_truth().campaign["input_count"].iloc[0])
    for group in ("top", "bottom"):
        for interval, words in (("clustered", "clustered"), ("independent", "independent-trials")):
            share = table[group, "uniform", inputs, interval]
            yield _reading(f"{words} 95 % interval, 1,000 sites, {group}", share)


def _mismatches(
    name: str, model: Any, given: tuple[Any, Any], judge: inject.Judge
) -> Iterator[Reading]:
    """Count, per component, the experiments that two engines judge differently."""
    inputs, labels = given
    for component in inject.parameters(model)["component"].unique():
        faults = inject.uniform_faults(
            model, _COMPARED, fault_model=inject.FaultModel(), where=component, seed=3
        )
        fast, plain = (
            inject.campaign(
                model,
                inputs,
                faults,
                judge=judge,
                settings=inject.CampaignSettings(labels=labels, engine=engine),
            ).outcomes
            for engine in ("fast", "flip_and_run")
        )
        count = int((fast[_COUNTS] != plain[_COUNTS]).any(axis=1).sum())
        what = f"{name}, {component}: experiments that differ"
        yield Reading(what, 0, count, f"of {_COMPARED}")


@claim(
    noun="pvf", name="the fast engine against flip and run", source="the same faults, run in full"
)
def engines() -> Iterator[Reading]:
    """Inject 300 random faults into every component of every shipped model, both ways.

    And into a model with a bypass, shared weights and a branch that nobody runs.
    """
    for name in inject.SHIPPED:
        given = inject.shipped_inputs(name, _JUDGED_ON[name])
        yield from _mismatches(name, inject.shipped_model(name), given, inject.shipped_judge(name))
    given = (models.entangled_inputs(), None)
    yield from _mismatches("bypass model", models.Entangled(), given, inject.Judge())


@claim(
    noun="pvf",
    name="flipping a bit twice changes nothing",
    source="all patterns up to 16 bits, 131,072 of wider types",
)
def twice() -> Iterator[Reading]:
    """Flip every bit of many patterns twice, NaN and infinities among them."""
    for dtype in ("fp64", "fp32", "fp16", "bf16", "int8"):
        yield Reading(f"{dtype}, values that changed", 0, inject.flips_not_undone(dtype), "count")


@claim(
    noun="pvf",
    name="an output of NaN is never right",
    source="the rule that an output that is not finite is a detected error",
)
def not_a_number() -> Iterator[Reading]:
    """Judge outputs that are all NaN, where an argmax of them would be the golden class."""
    judges = [inject.Judge(), inject.Judge("threshold"), inject.Judge("difference")]
    for judge in judges:
        golden = np.zeros((4, 1 if judge.criterion == "threshold" else 3))
        golden[:, 0] = 1
        outcomes = inject.outcomes_of(np.full_like(golden, np.nan), golden, judge=judge)
        count = int((outcomes != "due").sum())
        yield Reading(f"{judge.criterion}: outputs of NaN not counted", 0, count, "count")


@claim(noun="pvf", name="checksums of products and of embedding sums", source="arXiv:2103.00130")
def checksums() -> Iterator[Reading]:
    """Flip 2,000 bits in each operand, and look for alarms without a fault."""
    gemm = analyze.detector_tolerance(inject.gemm_checksum_trials(seed=1), tolerances=[0.0])
    detected = gemm.set_index("place")["detected_share"]
    yield _reading("GEMM checksum, flips in B detected", detected["operand B"])
    yield _reading("GEMM checksum, flips in C detected", detected["output C"])
    yield _reading("GEMM checksum, false alarms", gemm["false_alarm_share"].max())
    bags = analyze.detector_tolerance(
        inject.embedding_bag_checksum_trials(seed=1), tolerances=[1e-6]
    ).set_index("place")
    share = bags["detected_share"]["table row, high nibble"]
    yield _reading("EmbeddingBag checksum at 1e-6, significant flips detected", share)
    alarms = bags["false_alarm_share"].max()
    yield _reading("EmbeddingBag checksum at 1e-6, false alarms", alarms)


@claim(noun="pvf", name="rounding to bfloat16", source="arXiv:1905.12322")
def bfloat16() -> Iterator[Reading]:
    """Round four million bit patterns, and compare with the library's own cast."""
    table = inject.rounding_errors().set_index("rounding")
    differ, most = table["differ_count"], table["max_error_ratio"]
    yield Reading("values not rounded as by torch", 0, int(differ["nearest even"]), "count")
    nearest = "bfloat16, largest relative error of rounding to nearest even"
    yield _reading(nearest, most["nearest even"])
    yield _reading("bfloat16, largest relative error of truncation", most["truncated"])
