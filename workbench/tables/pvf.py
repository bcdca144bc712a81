"""Tables of fault injection and of vulnerability factors."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import Column, Table
from workbench.tables.traces import flagged_text

# Results of fault injection: what was flipped, what came of it, and under which rules.

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


# What is worked out from results of fault injection: factors, intervals, designs, protection.

_RULES = {
    "average": Column("str", "what weighs the same: bits, parameters, tensors or layers"),
    "nan_policy": Column(
        "str",
        "outputs that are not finite: wrong (count as wrong), due (left to a detector: not wrong), "
        "ignore (dropped above and below)",
    ),
    "criterion": Column("str", "when a decision counts as changed", nullable=True),
    "fault_model": Column("str", "what was injected", nullable=True),
}

PVF = Table(
    "pvf",
    "One row per group: the probability that a fault gives a wrong output. The columns grouped "
    "by stand before these.",
    {
        "group": Column(
            "str",
            "the group in words, e.g. top, bit 30; where faults were drawn from a part of it, "
            "that part, e.g. bit 30 of top",
        ),
        "drawn_from": Column(
            "str",
            "that part, e.g. bit 30; part where it cannot be told; empty: all of the group was "
            "drawn from, or nothing tells",
        ),
        "pvf": Column("float64", "probability of a wrong output", 0, 1, nullable=True),
        "low": Column("float64", "its interval, sites as the sample", 0, 1, nullable=True),
        "high": Column("float64", "upper end", 0, 1, nullable=True),
        "independent_low": Column(
            "float64",
            "the interval if all inputs of a site were independent; they are not, so it is too "
            "narrow: for comparison only",
            0,
            1,
            nullable=True,
        ),
        "independent_high": Column("float64", "upper end of that", 0, 1, nullable=True),
        "confidence_level": Column("float64", "confidence of both", 0, 1),
        "interval": Column("str", "how low and high were found; exact if all sites were injected"),
        "site_count": Column("int64", "different injection sites", lower=0),
        "trial_count": Column("int64", "inputs judged, over all sites", lower=0),
        "event_site_count": Column("int64", "sites with any wrong output", lower=0),
        "sdc_count": Column("int64", "trials whose decision differs", lower=0),
        "due_count": Column(
            "Int64", "trials not finite; missing where unknown", lower=0, nullable=True
        ),
        "design_effect_ratio": Column(
            "float64", "variance over that of independent trials", lower=0, nullable=True
        ),
        "bit_count": Column("float64", "bits that faults were drawn from", lower=0, nullable=True),
        "is_sure": Column("bool", "enough sites with events for the interval to hold"),
        "doubt": Column("str", "why not; empty if sure"),
        **_RULES,
    },
)

PROPORTION = Table(
    "proportion",
    "One row per method: an interval for a share of independent trials.",
    {
        "method": Column("str", "wilson, clopper_pearson, wald or rule_of_three"),
        "event_count": Column("int64", "events", lower=0),
        "trial_count": Column("int64", "independent trials", lower=1),
        "event_share": Column("float64", "share", 0, 1),
        "low": Column("float64", "lower end", 0, 1),
        "high": Column("float64", "upper end", 0, 1),
        "confidence_level": Column("float64", "confidence", 0, 1),
    },
)

INJECTION_SAMPLE_SIZES = Table(
    "injection_sample_sizes",
    "One row per group and design: how many sites to inject for an error of that size.",
    {
        "group": Column("str", "component, or as grouped"),
        "design": Column(
            "str", "leveugle (absolute error), uniform, proportional or neyman (strata: bits)"
        ),
        "inputs": Column("str", "one (one input per site) or all"),
        "pvf": Column("float64", "planned for", 0, 1),
        "error": Column("float64", "half the width of the interval; see error_kind", lower=0),
        "error_kind": Column("str", "relative (to the PVF) or absolute"),
        "confidence_level": Column("float64", "confidence", 0, 1),
        "site_count": Column(
            "float64", "sites needed; missing where no events", lower=0, nullable=True
        ),
        "expected_event_count": Column(
            "float64", "sites with a wrong output then", lower=0, nullable=True
        ),
    },
)

INJECTION_ALLOCATION = Table(
    "injection_allocation",
    "One row per stratum: how many sites of it to inject next.",
    {
        "stratum": Column("str", "stratum, as in the faults"),
        "bit_count": Column("float64", "bits of the population in it", lower=0),
        "pilot_count": Column("int64", "sites injected already", lower=0),
        "pilot_pvf": Column("float64", "its factor so far", 0, 1),
        "spread": Column("float64", "standard deviation over its sites so far", lower=0),
        "site_count": Column("int64", "sites to inject now", lower=0),
    },
)

PVF_RUNNING = Table(
    "pvf_running",
    "One row per look: the estimate as sites come in, and whether it was good enough to stop.",
    {
        "group": Column("str", "component, or all; or the part of it that was drawn from"),
        "site_count": Column("int64", "sites so far", lower=1),
        "pvf": Column("float64", "estimate", 0, 1),
        "low": Column("float64", "its interval, sites as the sample", 0, 1, nullable=True),
        "high": Column("float64", "upper end", 0, 1, nullable=True),
        "independent_low": Column("float64", "if all inputs of a site were independent", 0, 1),
        "independent_high": Column("float64", "upper end of that", 0, 1),
        "event_site_count": Column("int64", "sites with any wrong output", lower=0),
        "is_enough": Column("bool", "half the width is below the wanted share of the estimate"),
        **_RULES,
    },
)

INTERVAL_COVERAGE = Table(
    "interval_coverage",
    "One row per group, design and kind of interval: how often it covers the true value.",
    {
        "group": Column("str", "component"),
        "design": Column("str", "uniform, stratified or two-phase"),
        "interval": Column("str", "clustered or independent"),
        "site_count": Column("int64", "sites per repeat", lower=1),
        "input_count": Column("int64", "inputs per site", lower=1),
        "repeat_count": Column("int64", "repeats", lower=1),
        "truth": Column("float64", "the exhaustive factor", 0, 1),
        "covered_share": Column("float64", "repeats whose interval holds it", 0, 1),
        "relative_width_ratio": Column(
            "float64",
            "mean half width over the truth; missing if that is 0",
            lower=0,
            nullable=True,
        ),
        "relative_rmse_ratio": Column(
            "float64", "error of the estimate over the truth", lower=0, nullable=True
        ),
        "confidence_level": Column("float64", "confidence that the intervals claim", 0, 1),
        **_RULES,
    },
)

INTERVAL_FUNNEL = Table(
    "interval_funnel",
    "One row per group and look at a growing sample: the estimate, its intervals and the truth.",
    {
        "group": Column("str", "component"),
        "site_count": Column("int64", "sites so far", lower=1),
        "pvf": Column("float64", "estimate", 0, 1),
        "low": Column("float64", "its interval, sites as the sample", 0, 1),
        "high": Column("float64", "upper end", 0, 1),
        "independent_low": Column("float64", "if all inputs of a site were independent", 0, 1),
        "independent_high": Column("float64", "upper end of that", 0, 1),
        "event_site_count": Column("int64", "sites with any wrong output", lower=0),
        "truth": Column("float64", "the exhaustive factor", 0, 1),
        **_RULES,
    },
)

PVF_PROTECTION = Table(
    "pvf_protection",
    "One row per step: the expected wrong outputs removed by protecting the most harmful first.",
    {
        "group": Column("str", "component, or all"),
        "unit": Column("str", "what is protected: elements, bits of one place, tensors"),
        "ranked_by": Column("str", "truth, or half of the sites (the other half judges)"),
        "protected_count": Column("int64", "of them protected", lower=0),
        "protected_share": Column("float64", "share of all", 0, 1),
        "removed_share": Column("float64", "share of expected wrong outputs removed", 0, 1),
        "last": Column("str", "the last one protected, e.g. bit 30", nullable=True),
    },
)

PVF_EXPOSURE = Table(
    "pvf_exposure",
    "One row per group: its share of the bits, and of the wrong outputs expected of upsets.",
    {
        "group": Column("str", "component, or as grouped"),
        "bit_count": Column("float64", "bits", lower=0),
        "bit_share": Column("float64", "share of all bits", 0, 1),
        "pvf": Column("float64", "averaged over its bits", 0, 1),
        "wrong_share": Column(
            "float64", "share of the expected wrong outputs", 0, 1, nullable=True
        ),
        "wrong_per_upset": Column(
            "float64", "wrong outputs per input and upset of the model", 0, 1
        ),
        "wrong_per_million_hours": Column(
            "float64",
            "share of inputs answered wrongly because of the upsets of 1e6 h, summed over them",
            lower=0,
            nullable=True,
        ),
    },
)

PVF_MITIGATION = Table(
    "pvf_mitigation",
    "One row per group and mitigation: the same faults with and without it.",
    {
        "group": Column("str", "component"),
        "mitigation": Column("str", "none, weight_clamp, activation_clip, ..."),
        "site_count": Column("int64", "sites that both campaigns injected", lower=0),
        "pvf": Column("float64", "with it", 0, 1),
        "low": Column("float64", "its interval, sites as the sample", 0, 1, nullable=True),
        "high": Column("float64", "upper end", 0, 1, nullable=True),
        "removed_ratio": Column(
            "float64", "removed, over the wrong outputs without it", upper=1, nullable=True
        ),
        "removed_low": Column(
            "float64", "its interval; negative: it does harm", upper=1, nullable=True
        ),
        "removed_high": Column("float64", "upper end", upper=1, nullable=True),
        "golden_metric": Column(
            "float64", "quality without faults, with it in place", nullable=True
        ),
    },
)

OUTCOME_SHARES = Table(
    "outcome_shares",
    "One row per group and outcome: its share of the trials.",
    {
        "group": Column("str", "component, or as grouped"),
        "outcome": Column("str", "masked, benign, masked or benign, sdc, beneficial, due"),
        "trial_count": Column("float64", "trials, weighted as the design asks", lower=0),
        "outcome_share": Column("float64", "share of the group's", 0, 1),
    },
)

PVF_BY_MARGIN = Table(
    "pvf_by_margin",
    "One row per class of golden margin: how often a fault changes such a decision.",
    {
        "group": Column("str", "component, or all"),
        "margin_low": Column("float64", "golden margins from"),
        "margin_high": Column("float64", "to"),
        "trial_count": Column("int64", "trials", lower=0),
        "wrong_count": Column("int64", "of them wrong", lower=0),
        "pvf": Column("float64", "share", 0, 1, nullable=True),
        "low": Column("float64", "its interval, sites as the sample", 0, 1, nullable=True),
        "high": Column("float64", "upper end", 0, 1, nullable=True),
    },
)

DETECTED_SHARES = Table(
    "detected_shares",
    "One row per group and detector of a campaign: how often it raised an alarm.",
    {
        "group": Column("str", "component, or as grouped"),
        "detector": Column("str", "as in the outcomes' columns detected_<detector>_count"),
        "site_count": Column("int64", "sites that it watched", lower=0),
        "trial_count": Column("int64", "inputs judged under them", lower=0),
        "alarm_share": Column("float64", "of the trials with an alarm, as weighted", 0, 1),
        "alarm_low": Column("float64", "interval, sites as the sample", 0, 1, nullable=True),
        "alarm_high": Column("float64", "upper end", 0, 1, nullable=True),
        "event_site_count": Column("int64", "sites with any wrong output", lower=0),
        "caught_site_share": Column(
            "float64", "of them with any alarm, each alike", 0, 1, nullable=True
        ),
        "caught_low": Column("float64", "Wilson interval", 0, 1, nullable=True),
        "caught_high": Column("float64", "upper end", 0, 1, nullable=True),
    },
)

DETECTOR_TRIALS = Table(
    "detector_trials",
    "One row per check of one output: how far the check sum was off, with a fault and without.",
    {
        "detector": Column("str", "gemm_checksum or embedding_bag_checksum"),
        "place": Column("str", "what was hit: operand B, output C, table row, nothing"),
        "bit": Column("Int16", "bit; missing without a fault", nullable=True),
        "is_faulty": Column("bool", "whether a fault was injected"),
        "is_effective": Column("bool", "whether the output changed"),
        "output_change": Column("float64", "largest change relative to the output", lower=0),
        "residual": Column(
            "float64",
            "how far the check is off, relative where real-valued; missing where it is no number, "
            "which is an alarm",
            lower=0,
            nullable=True,
        ),
    },
)

DETECTOR_TOLERANCE = Table(
    "detector_tolerance",
    "One row per detector, place and tolerance: what it catches, and its false-alarm rate.",
    {
        "detector": Column("str", "detector"),
        "place": Column("str", "what was hit"),
        "tolerance": Column("float64", "alarm above this residual", lower=0),
        "fault_count": Column("int64", "faults that changed the output", lower=0),
        "detected_share": Column("float64", "of them detected", 0, 1, nullable=True),
        "detected_low": Column("float64", "Wilson interval", 0, 1, nullable=True),
        "detected_high": Column("float64", "upper end", 0, 1, nullable=True),
        "clean_count": Column("int64", "checks without a fault", lower=0),
        "false_alarm_share": Column("float64", "of them alarmed", 0, 1, nullable=True),
        "false_alarm_high": Column("float64", "95 % upper bound", 0, 1, nullable=True),
    },
)

ROUNDING_ERRORS = Table(
    "rounding_errors",
    "One row per way of rounding float32 to bfloat16: where it differs from the library's.",
    {
        "rounding": Column("str", "nearest even, the same without a branch for NaN, truncated"),
        "value_count": Column("int64", "values that are not NaN", lower=0),
        "differ_count": Column("int64", "of them rounded otherwise than by the library", lower=0),
        "nan_count": Column("int64", "values that are NaN", lower=0),
        "nan_lost_count": Column("int64", "of them no longer NaN", lower=0),
        "max_error_ratio": Column(
            "float64", "largest error over the value, normal numbers", lower=0, nullable=True
        ),
        "mean_error_ratio": Column("float64", "mean of that", lower=0, nullable=True),
    },
)

GRADIENT_UNDERFLOW = Table(
    "gradient_underflow",
    "One row per scale and type: the share of gradients that the type cannot hold.",
    {
        "dtype": Column("str", "fp32, bf16, fp16, fp8-e5m2, fp8-e4m3"),
        "scale_ratio": Column("float64", "factor on the gradients", lower=0),
        "gradient_count": Column("int64", "gradients that are not 0 in float32", lower=1),
        "lost_share": Column("float64", "of them 0 in the type", 0, 1),
        "subnormal_share": Column(
            "float64", "of them not 0, but below the least normal number", 0, 1
        ),
    },
)
