"""Fault injection into PyTorch models; the only folder that knows torch."""

from workbench.simulate.injections._activations import activation_faults, activations
from workbench.simulate.injections._changes import Changes, Counts
from workbench.simulate.injections._combine import changes
from workbench.simulate.injections._detectors import Detector, RangeDetector, range_detector
from workbench.simulate.injections._fault_model import FaultModel
from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections._mitigations import (
    Mitigation,
    activation_clip,
    protected,
    weight_clamp,
)
from workbench.simulate.injections._on_dask import campaign_on_dask
from workbench.simulate.injections._settings import CampaignSettings
from workbench.simulate.injections._shipped import (
    SHIPPED,
    shipped_facts,
    shipped_inputs,
    shipped_judge,
    shipped_model,
)
from workbench.simulate.injections._shipped_running import shipped_running
from workbench.simulate.injections._stored import stored_as
from workbench.simulate.injections.campaign import campaign, running
from workbench.simulate.injections.checks import flips_not_undone, outcomes_of
from workbench.simulate.injections.checksum_detector import ChecksumDetector, checksum_detector
from workbench.simulate.injections.embedding_bag_checksum import (
    ChecksumBags,
    embedding_bag_checksum_trials,
)
from workbench.simulate.injections.exhaustive import exhaustive
from workbench.simulate.injections.faults import (
    exhaustive_faults,
    fault_list,
    stratified_faults,
    uniform_faults,
)
from workbench.simulate.injections.flip_and_run import FlipAndRun
from workbench.simulate.injections.gemm_checksum import ChecksumGemm, gemm_checksum_trials
from workbench.simulate.injections.gradient_underflow import gradient_underflow
from workbench.simulate.injections.parameters import parameters
from workbench.simulate.injections.rounding_errors import rounding_errors

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
