"""Fault injection into PyTorch models; the only folder that knows torch."""

from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections.campaigns.campaign import (
    campaign,
    flips_not_undone,
    outcomes_of,
    running,
)
from workbench.simulate.injections.campaigns.exhaustive import exhaustive
from workbench.simulate.injections.campaigns.on_dask import campaign_on_dask
from workbench.simulate.injections.campaigns.work import CampaignSettings
from workbench.simulate.injections.designs.activations import activation_faults, activations
from workbench.simulate.injections.designs.bits import Changes, Counts, stored_as
from workbench.simulate.injections.designs.combine import changes
from workbench.simulate.injections.designs.faults import (
    FaultModel,
    exhaustive_faults,
    fault_list,
    stratified_faults,
    uniform_faults,
)
from workbench.simulate.injections.designs.parameters import parameters
from workbench.simulate.injections.engines.flip_and_run import FlipAndRun
from workbench.simulate.injections.models.shipped import (
    SHIPPED,
    shipped_facts,
    shipped_inputs,
    shipped_judge,
    shipped_model,
    shipped_running,
)
from workbench.simulate.injections.protections.detectors import (
    Detector,
    Mitigation,
    RangeDetector,
    activation_clip,
    protected,
    range_detector,
    weight_clamp,
)
from workbench.simulate.injections.protections.gemm_checksum import (
    ChecksumBags,
    ChecksumDetector,
    ChecksumGemm,
    checksum_detector,
    embedding_bag_checksum_trials,
    gemm_checksum_trials,
)
from workbench.simulate.injections.rounding_errors import gradient_underflow, rounding_errors

__all__ = [
    "SHIPPED",
    "CampaignSettings",
    "Changes",
    "ChecksumBags",
    "ChecksumDetector",
    "ChecksumGemm",
    "Counts",
    "Detector",
    "FaultModel",
    "FlipAndRun",
    "Judge",
    "Mitigation",
    "RangeDetector",
    "activation_clip",
    "activation_faults",
    "activations",
    "campaign",
    "campaign_on_dask",
    "changes",
    "checksum_detector",
    "embedding_bag_checksum_trials",
    "exhaustive",
    "exhaustive_faults",
    "fault_list",
    "flips_not_undone",
    "gemm_checksum_trials",
    "gradient_underflow",
    "outcomes_of",
    "parameters",
    "protected",
    "range_detector",
    "rounding_errors",
    "running",
    "shipped_facts",
    "shipped_inputs",
    "shipped_judge",
    "shipped_model",
    "shipped_running",
    "stored_as",
    "stratified_faults",
    "uniform_faults",
    "weight_clamp",
]
