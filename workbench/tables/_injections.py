"""Results of fault injection: what was flipped, what came of it, and under which rules."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._table import Column, Table
from workbench.tables._traces import flagged_text

CAMPAIGN = Table(
    "campaign",
    "One row per campaign: what was injected into what, and what counts as wrong.",
    {
        "campaign_id": Column("str", "name of the campaign; the key of every other table"),
        "tool": Column("str", "what injected: workbench, SFIadvancedmodels, pytorchALFI, ..."),
        "tool_version": Column("str", "its version", nullable=True),
        "model_name": Column("str", "model", nullable=True),
        "model_sha": Column("str", "sha256 of the names, shapes and weights", nullable=True),
        "dataset": Column("str", "inputs the model was judged on", nullable=True),
        "is_synthetic": Column("boolean", "whether these inputs were generated", nullable=True),
        "input_count": Column("Int64", "inputs per experiment", lower=0, nullable=True),
        "inputs_sha": Column("str", "sha256 of the inputs", nullable=True),
        "dtype": Column("str", "type the faults hit: fp32, fp16, bf16, int8, ...", nullable=True),
        "task": Column("str", "classification, ctr, regression, ...", nullable=True),
        "criterion": Column(
            "category",
            "when a decision counts as changed: argmax, threshold, difference, metric_drop; "
            "missing where the tool does not say",
            nullable=True,
        ),
        "tolerance": Column("float64", "of that criterion, in the output's unit", nullable=True),
        "masked_rule": Column(
            "category",
            "bit_equal: the output is the golden one; proven: only faults that provably change "
            "nothing count as masked, the rest of the harmless ones as benign",
            nullable=True,
        ),
        "nan_policy": Column(
            "category",
            "how the tool itself counted outputs that are not finite: apart (as DUE), wrong, "
            "as_is (an argmax of NaN can look right) or missing where unknown",
            nullable=True,
        ),
        "fault_model": Column(
            "category", "sbf, mbf, mbbf, stuck0, stuck1, value, other", nullable=True
        ),
        "flip_count": Column("Int64", "bits hit per experiment", lower=1, nullable=True),
        "bit_error_ratio": Column("float64", "share of bits hit, where drawn so", nullable=True),
        "mitigation": Column("str", "protection in place, e.g. weight_clamp", nullable=True),
        "design": Column(
            "category", "exhaustive, uniform, stratified, fault_list, other", nullable=True
        ),
        "seed": Column("Int64", "of the design", nullable=True),
        "golden_metric": Column("float64", "quality without faults", nullable=True),
        "metric_name": Column("str", "which quality: accuracy, auc, ...", nullable=True),
        "created": Column("datetime64[ns, UTC]", "when", nullable=True),
    },
)

PARAMETERS = Table(
    "parameters",
    "One row per tensor that faults can hit: the population the faults were drawn from.",
    {
        "campaign_id": Column("str", "campaign"),
        "component": Column("str", "part of the model, e.g. top, bottom, embeddings"),
        "layer": Column("str", "module that owns it, dotted"),
        "param": Column("str", "full dotted name"),
        "kind": Column("category", "weight, bias, embedding, norm, activation, input"),
        "dtype": Column("str", "fp32, fp16, bf16, int8, ..."),
        "element_count": Column("int64", "elements", lower=0),
        "bit_count": Column("int64", "bits", lower=0),
    },
)

FAULTS = Table(
    "faults",
    "One row per bit that was hit; an experiment hits one or several.",
    {
        "campaign_id": Column("str", "campaign"),
        "exp_id": Column("int64", "experiment in its campaign"),
        "flip": Column("int16", "number of the bit in its experiment", lower=0),
        "component": Column("category", "part of the model", nullable=True),
        "layer": Column("category", "module", nullable=True),
        "param": Column("category", "full dotted name of the tensor", nullable=True),
        "kind": Column(
            "category", "weight, bias, embedding, norm, activation, input", nullable=True
        ),
        "elem": Column("Int64", "element, flat in C order", lower=0, nullable=True),
        "index": Column("str", "the same as the tool writes it, e.g. (3, 0, 2, 1)", nullable=True),
        "bit": Column("Int16", "bit; 0 is the least significant", lower=0, nullable=True),
        "bit_role": Column("category", "sign, exp, mant or int", nullable=True),
        "dtype": Column("category", "fp32, fp16, bf16, int8, ...", nullable=True),
        "value_before": Column("float64", "golden value", nullable=True),
        "value_after": Column("float64", "value with the fault", nullable=True),
        "direction": Column("category", "0to1 or 1to0", nullable=True),
        "stratum": Column("category", "stratum of the design", nullable=True),
        "inclusion_weight": Column(
            "float64",
            "bits of the population that this experiment stands for; missing where the design "
            "is not known",
            lower=0,
            nullable=True,
        ),
        "step": Column("Int32", "step of the training at which it was injected", nullable=True),
    },
)

OUTCOMES = Table(
    "outcomes",
    "One row per experiment: how many inputs ended how. A detector adds a column "
    "`detected_<detector>_count`.",
    {
        "campaign_id": Column("str", "campaign"),
        "exp_id": Column("int64", "experiment"),
        "input_count": Column("Int64", "inputs judged", lower=0, nullable=True),
        "masked_count": Column("Int64", "output as without the fault", lower=0, nullable=True),
        "benign_count": Column(
            "Int64", "output differs, decision the same", lower=0, nullable=True
        ),
        "sdc_count": Column("Int64", "decision differs, nothing tells", lower=0, nullable=True),
        "due_count": Column(
            "Int64",
            "output not finite, crash or timeout; missing where the tool cannot tell",
            lower=0,
            nullable=True,
        ),
        "beneficial_count": Column(
            "Int64", "of the SDC: golden was wrong, the fault made it right", lower=0, nullable=True
        ),
        "max_abs_delta": Column("float64", "largest change of a finite output", nullable=True),
        "metric_name": Column("str", "quality measured", nullable=True),
        "metric_value": Column("float64", "its value with the fault", nullable=True),
        "time_s": Column("float64", "spent on the experiment", lower=0, nullable=True),
        "error": Column("str", "what the tool says went wrong with itself", nullable=True),
    },
)

TRIALS = Table(
    "trials",
    "One row per experiment and input.",
    {
        "campaign_id": Column("str", "campaign"),
        "exp_id": Column("int64", "experiment"),
        "input_id": Column("int64", "input"),
        "outcome": Column(
            "category", "masked, benign, sdc, due; missing where unknown", nullable=True
        ),
        "is_beneficial": Column("boolean", "golden wrong, now right", nullable=True),
        "golden_margin": Column(
            "float64", "how far the golden decision was from another", nullable=True
        ),
        "delta": Column("float64", "largest change of the output", nullable=True),
    },
)

EXHAUSTIVE = Table(
    "sites",
    "One row per single-bit fault of a campaign that injected them all.",
    {
        "param": Column("category", "full dotted name of the tensor"),
        "elem": Column("int32", "element, flat in C order", lower=0),
        "bit": Column("int8", "bit; 0 is the least significant", lower=0),
        "sdc_count": Column("int16", "inputs whose decision differs", lower=0),
        "due_count": Column("int16", "inputs whose output is not finite", lower=0),
    },
)

OUTCOME_NAMES = ("masked", "benign", "sdc", "due")


@dataclass(frozen=True, eq=False)
class Injections:
    """The tables of one or several campaigns; a plain bundle, all work is done by functions.

    ``trials`` and ``parameters`` have no rows where the source does not tell them.
    """

    campaign: pd.DataFrame
    faults: pd.DataFrame
    outcomes: pd.DataFrame
    trials: pd.DataFrame
    parameters: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any campaign was judged on generated inputs; figures should say so too."""
        return bool(self.campaign["is_synthetic"].fillna(value=False).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        tools = ", ".join(sorted(set(self.campaign["tool"])))
        count = len(self.campaign)
        return (
            f"Injections by {tools or 'nobody'}: {count:,} campaign{'s' * (count != 1)}, "
            f"{len(self.outcomes):,} experiments, {len(self.faults):,} faults"
            f"; {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class ExhaustiveInjections:
    """Every single-bit fault of a model: the truth that samples estimate."""

    campaign: pd.DataFrame
    parameters: pd.DataFrame
    sites: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether the model was judged on generated inputs; figures should say so too."""
        return bool(self.campaign["is_synthetic"].fillna(value=False).any())

    def __repr__(self) -> str:
        """Say what was injected into what."""
        head = self.campaign.iloc[0]
        return (
            f"ExhaustiveInjections of {head['model_name']}: {len(self.sites):,} sites "
            f"x {head['input_count']:,} inputs ({head['dataset']})"
        )
