"""Fault injection into PyTorch models; the only folder that knows torch."""

from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections._shipped import (
    SHIPPED,
    shipped_facts,
    shipped_inputs,
    shipped_judge,
    shipped_model,
)
from workbench.simulate.injections.checksum_detector import ChecksumDetector, checksum_detector
from workbench.simulate.injections.embedding_bag_checksum import (
    ChecksumBags,
    embedding_bag_checksum_trials,
)
from workbench.simulate.injections.gemm_checksum import ChecksumGemm, gemm_checksum_trials
from workbench.simulate.injections.gradient_underflow import gradient_underflow
from workbench.simulate.injections.rounding_errors import rounding_errors

__all__ = [
    "SHIPPED",
    "ChecksumBags",
    "ChecksumDetector",
    "ChecksumGemm",
    "Judge",
    "checksum_detector",
    "embedding_bag_checksum_trials",
    "gemm_checksum_trials",
    "gradient_underflow",
    "rounding_errors",
    "shipped_facts",
    "shipped_inputs",
    "shipped_judge",
    "shipped_model",
]
