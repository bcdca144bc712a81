"""Tables of fault injection and of vulnerability factors."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import Table, columns, table
from workbench.tables.traces import flagged_text

# Results of fault injection: what was flipped, what came of it, and under which rules.

CAMPAIGN = table("""
    campaign: One row per campaign: what was injected into what, and what counts as wrong.

    campaign_id: str - name of the campaign; the key of every other table
    tool: str - what injected: workbench, pytorchALFI, NVBitFI, ...
    tool_version: str? - its version
    model_name: str? - model
    model_sha: str? - sha256 of the names, shapes and weights
    dataset: str? - inputs the model was judged on
    is_synthetic: boolean? - whether these inputs were generated
    input_count: Int64? >=0 - inputs per experiment
    inputs_sha: str? - sha256 of the inputs
    dtype: str? - type the faults hit: fp32, fp16, bf16, int8, ...
    task: str? - classification, ctr, regression, ...
    criterion: category? - when a decision counts as changed: argmax, threshold, difference,
        metric_drop; missing where the tool does not say
    tolerance: float64? - of that criterion, in the output's unit
    masked_rule: category? - bit_equal: the output is the golden one; proven: only faults that
        provably change nothing count as masked, the rest of the harmless ones as benign
    nan_policy: category? - how the tool itself counted outputs that are not finite: apart (as
        DUE), wrong, as_is (an argmax of NaN can look right) or missing where unknown
    fault_model: category? - sbf, mbf, mbbf, stuck0, stuck1, value, other
    flip_count: Int64? >=1 - bits hit per experiment
    bit_error_ratio: float64? - share of bits hit, where drawn so
    mitigation: str? - protection in place, e.g. weight_clamp
    design: category? - exhaustive, uniform, stratified, fault_list, other
    seed: Int64? - of the design
    golden_metric: float64? - quality without faults
    metric_name: str? - which quality: accuracy, auc, ...
    created: datetime64[ns, UTC]? - when
""")

PARAMETERS = table("""
    parameters: One row per tensor that faults can hit: the population the faults were drawn from.

    campaign_id: str - campaign
    component: str - part of the model, e.g. top, bottom, embeddings
    layer: str - module that owns it, dotted
    param: str - full dotted name
    kind: category - weight, bias, embedding, norm, activation, input
    dtype: str - fp32, fp16, bf16, int8, ...
    element_count: int64 >=0 - elements
    bit_count: int64 >=0 - bits
""")

FAULTS = table("""
    faults: One row per bit that was hit; an experiment hits one or several.

    campaign_id: str - campaign
    exp_id: int64 - experiment in its campaign
    flip: int16 >=0 - number of the bit in its experiment
    component: category? - part of the model
    layer: category? - module
    param: category? - full dotted name of the tensor
    kind: category? - weight, bias, embedding, norm, activation, input
    elem: Int64? >=0 - element, flat in C order
    index: str? - the same as the tool writes it, e.g. (3, 0, 2, 1)
    bit: Int16? >=0 - bit; 0 is the least significant
    bit_role: category? - sign, exp, mant or int
    dtype: category? - fp32, fp16, bf16, int8, ...
    value_before: float64? - golden value
    value_after: float64? - value with the fault
    direction: category? - 0to1 or 1to0
    stratum: category? - stratum of the design
    inclusion_weight: float64? >=0 - bits of the population that this experiment stands for;
        missing where the design is not known
    step: Int32? - step of the training at which it was injected
""")

OUTCOMES = table("""
    outcomes: One row per experiment: how many inputs ended how. A detector adds a column
    `detected_<detector>_count`.

    campaign_id: str - campaign
    exp_id: int64 - experiment
    input_count: Int64? >=0 - inputs judged
    masked_count: Int64? >=0 - output as without the fault
    benign_count: Int64? >=0 - output differs, decision the same
    sdc_count: Int64? >=0 - decision differs, no error is raised
    due_count: Int64? >=0 - output not finite, crash or timeout; missing where the tool cannot tell
    beneficial_count: Int64? >=0 - of the SDC: golden was wrong, the fault made it right
    max_abs_delta: float64? - largest change of a finite output
    metric_name: str? - quality measured
    metric_value: float64? - its value with the fault
    time_s: float64? >=0 - spent on the experiment
    error: str? - what the tool says went wrong with itself
""")

TRIALS = table("""
    trials: One row per experiment and input.

    campaign_id: str - campaign
    exp_id: int64 - experiment
    input_id: int64 - input
    outcome: category? - masked, benign, sdc, due; missing where unknown
    is_beneficial: boolean? - golden wrong, now right
    golden_margin: float64? - how far the golden decision was from another
    delta: float64? - largest change of the output
""")

EXHAUSTIVE = table("""
    sites: One row per single-bit fault of a campaign that injected them all.

    param: category - full dotted name of the tensor
    elem: int32 >=0 - element, flat in C order
    bit: int8 >=0 - bit; 0 is the least significant
    sdc_count: int16 >=0 - inputs whose decision differs
    due_count: int16 >=0 - inputs whose output is not finite
""")

OUTCOME_NAMES = ("masked", "benign", "sdc", "due")


@dataclass(frozen=True, eq=False)
class Injections:
    """The tables of one or several campaigns; a plain bundle, all work is done by functions.

    ``trials`` and ``parameters`` have no rows where the source does not state them.
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
        """Describe what was loaded, and list the first findings that need a look."""
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
        """Describe what was injected into what."""
        head = self.campaign.iloc[0]
        return (
            f"ExhaustiveInjections of {head['model_name']}: {len(self.sites):,} sites "
            f"x {head['input_count']:,} inputs ({head['dataset']})"
        )


# What is computed from results of fault injection: factors, intervals, designs, protection.

_RULES = columns("""
    average: str - what weighs the same: bits, parameters, tensors or layers
    nan_policy: str - outputs that are not finite: wrong (count as wrong), due (left to a detector:
        not wrong), ignore (dropped above and below)
    criterion: str? - when a decision counts as changed
    fault_model: str? - what was injected
""")

PVF = Table(
    "pvf",
    "One row per group: the probability that a fault gives a wrong output. The columns grouped "
    "by stand before these.",
    {
        **columns("""
            group: str - the group in words, e.g. top, bit 30; where faults were drawn from a part
                of it, that part, e.g. bit 30 of top
            drawn_from: str - that part, e.g. bit 30; part where it cannot be told; empty: all of
                the group was drawn from, or unknown
            pvf: float64? 0..1 - probability of a wrong output
            low: float64? 0..1 - its interval, sites as the sample
            high: float64? 0..1 - upper end
            independent_low: float64? 0..1 - the interval if all inputs of a site were independent;
                they are not, so it is too narrow: for comparison only
            independent_high: float64? 0..1 - upper end of that
            confidence_level: float64 0..1 - confidence of both
            interval: str - how low and high were found; exact if all sites were injected
            site_count: int64 >=0 - different injection sites
            trial_count: int64 >=0 - inputs judged, over all sites
            event_site_count: int64 >=0 - sites with any wrong output
            sdc_count: int64 >=0 - trials whose decision differs
            due_count: Int64? >=0 - trials not finite; missing where unknown
            design_effect_ratio: float64? >=0 - variance over that of independent trials
            bit_count: float64? >=0 - bits that faults were drawn from
            is_sure: bool - enough sites with events for the interval to hold
            doubt: str - why not; empty if sure
        """),
        **_RULES,
    },
)


INJECTION_SAMPLE_SIZES = table("""
    injection_sample_sizes: One row per group and design: how many sites to inject for an error of
    that size.

    group: str - component, or as grouped
    design: str - leveugle (absolute error), uniform, proportional or neyman (strata: bits)
    inputs: str - one (one input per site) or all
    pvf: float64 0..1 - planned for
    error: float64 >=0 - half the width of the interval; see error_kind
    error_kind: str - relative (to the PVF) or absolute
    confidence_level: float64 0..1 - confidence
    site_count: float64? >=0 - sites needed; missing where no events
    expected_event_count: float64? >=0 - sites with a wrong output then
""")

INJECTION_ALLOCATION = table("""
    injection_allocation: One row per stratum: how many sites of it to inject next.

    stratum: str - stratum, as in the faults
    bit_count: float64 >=0 - bits of the population in it
    pilot_count: int64 >=0 - sites injected already
    pilot_pvf: float64 0..1 - its factor so far
    spread: float64 >=0 - standard deviation over its sites so far
    site_count: int64 >=0 - sites to inject now
""")

PVF_RUNNING = Table(
    "pvf_running",
    "One row per look: the estimate as sites come in, and whether it was good enough to stop.",
    {
        **columns("""
            group: str - component, or all; or the part of it that was drawn from
            site_count: int64 >=1 - sites so far
            pvf: float64 0..1 - estimate
            low: float64? 0..1 - its interval, sites as the sample
            high: float64? 0..1 - upper end
            independent_low: float64 0..1 - if all inputs of a site were independent
            independent_high: float64 0..1 - upper end of that
            event_site_count: int64 >=0 - sites with any wrong output
            is_enough: bool - half the width is below the wanted share of the estimate
        """),
        **_RULES,
    },
)

INTERVAL_FUNNEL = Table(
    "interval_funnel",
    "One row per group and look at a growing sample: the estimate, its intervals and the truth.",
    {
        **columns("""
            group: str - component
            site_count: int64 >=1 - sites so far
            pvf: float64 0..1 - estimate
            low: float64 0..1 - its interval, sites as the sample
            high: float64 0..1 - upper end
            independent_low: float64 0..1 - if all inputs of a site were independent
            independent_high: float64 0..1 - upper end of that
            event_site_count: int64 >=0 - sites with any wrong output
            truth: float64 0..1 - the exhaustive factor
        """),
        **_RULES,
    },
)

PVF_PROTECTION = table("""
    pvf_protection: One row per step: the expected wrong outputs removed by protecting the most
    harmful first.

    group: str - component, or all
    unit: str - what is protected: elements, bits of one place, tensors
    ranked_by: str - truth, or half of the sites (the other half judges)
    protected_count: int64 >=0 - of them protected
    protected_share: float64 0..1 - share of all
    removed_share: float64 0..1 - share of expected wrong outputs removed
    last: str? - the last one protected, e.g. bit 30
""")

PVF_EXPOSURE = table("""
    pvf_exposure: One row per group: its share of the bits, and of the wrong outputs expected of
    upsets.

    group: str - component, or as grouped
    bit_count: float64 >=0 - bits
    bit_share: float64 0..1 - share of all bits
    pvf: float64 0..1 - averaged over its bits
    wrong_share: float64? 0..1 - share of the expected wrong outputs
    wrong_per_upset: float64 0..1 - wrong outputs per input and upset of the model
    wrong_per_million_hours: float64? >=0 - share of inputs answered wrongly because of the upsets
        of 1e6 h, summed over them
""")

PVF_MITIGATION = table("""
    pvf_mitigation: One row per group and mitigation: the same faults with and without it.

    group: str - component
    mitigation: str - none, weight_clamp, activation_clip, ...
    site_count: int64 >=0 - sites that both campaigns injected
    pvf: float64 0..1 - with it
    low: float64? 0..1 - its interval, sites as the sample
    high: float64? 0..1 - upper end
    removed_ratio: float64? <=1 - removed, over the wrong outputs without it
    removed_low: float64? <=1 - its interval; negative: it does harm
    removed_high: float64? <=1 - upper end
    golden_metric: float64? - quality without faults, with it in place
""")

OUTCOME_SHARES = table("""
    outcome_shares: One row per group and outcome: its share of the trials.

    group: str - component, or as grouped
    outcome: str - masked, benign, masked or benign, sdc, beneficial, due
    trial_count: float64 >=0 - trials, weighted as the design asks
    outcome_share: float64 0..1 - share of the group's
""")


DETECTOR_TRIALS = table("""
    detector_trials: One row per check of one output: how far the check sum was off, with a fault
    and without.

    detector: str - gemm_checksum or embedding_bag_checksum
    place: str - what was hit: operand B, output C, table row, nothing
    bit: Int16? - bit; missing without a fault
    is_faulty: bool - whether a fault was injected
    is_effective: bool - whether the output changed
    output_change: float64 >=0 - largest change relative to the output
    residual: float64? >=0 - how far the check is off, relative where real-valued; missing where it
        is not a number, which is an alarm
""")

DETECTOR_TOLERANCE = table("""
    detector_tolerance: One row per detector, place and tolerance: what it catches, and its
    false-alarm rate.

    detector: str - detector
    place: str - what was hit
    tolerance: float64 >=0 - alarm above this residual
    fault_count: int64 >=0 - faults that changed the output
    detected_share: float64? 0..1 - of them detected
    detected_low: float64? 0..1 - Wilson interval
    detected_high: float64? 0..1 - upper end
    clean_count: int64 >=0 - checks without a fault
    false_alarm_share: float64? 0..1 - of them alarmed
    false_alarm_high: float64? 0..1 - 95 % upper bound
""")

ROUNDING_ERRORS = table("""
    rounding_errors: One row per way of rounding float32 to bfloat16: where it differs from the
    library's.

    rounding: str - nearest even, the same without a branch for NaN, truncated
    value_count: int64 >=0 - values that are not NaN
    differ_count: int64 >=0 - of them rounded otherwise than by the library
    nan_count: int64 >=0 - values that are NaN
    nan_lost_count: int64 >=0 - of them no longer NaN
    max_error_ratio: float64? >=0 - largest error over the value, normal numbers
    mean_error_ratio: float64? >=0 - mean of that
""")

GRADIENT_UNDERFLOW = table("""
    gradient_underflow: One row per scale and type: the share of gradients that the type cannot
    hold.

    dtype: str - fp32, bf16, fp16, fp8-e5m2, fp8-e4m3
    scale_ratio: float64 >=0 - factor on the gradients
    gradient_count: int64 >=1 - gradients that are not 0 in float32
    lost_share: float64 0..1 - of them 0 in the type
    subnormal_share: float64 0..1 - of them not 0, but below the least normal number
""")
