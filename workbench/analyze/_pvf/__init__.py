"""Analyze: fault injection and vulnerability factors."""

from workbench.analyze._pvf.allocation import injection_allocation, pooled
from workbench.analyze._pvf.by_margin import pvf_by_margin
from workbench.analyze._pvf.detector_tolerance import detected_shares, detector_tolerance
from workbench.analyze._pvf.estimates import pvf
from workbench.analyze._pvf.exposure import pvf_exposure
from workbench.analyze._pvf.interval_coverage import interval_coverage, interval_funnel
from workbench.analyze._pvf.mitigation import pvf_mitigation
from workbench.analyze._pvf.outcome_shares import outcome_shares
from workbench.analyze._pvf.proportion import proportion
from workbench.analyze._pvf.protection import pvf_protection
from workbench.analyze._pvf.running import pvf_running
from workbench.analyze._pvf.sample_sizes import injection_sample_sizes, leveugle_count
from workbench.analyze._pvf.truth_sample import truth_sample
from workbench.analyze._pvf.views import pvf_by_bit, pvf_by_flips

__all__ = [
    "detected_shares",
    "detector_tolerance",
    "injection_allocation",
    "injection_sample_sizes",
    "interval_coverage",
    "interval_funnel",
    "leveugle_count",
    "outcome_shares",
    "pooled",
    "proportion",
    "pvf",
    "pvf_by_bit",
    "pvf_by_flips",
    "pvf_by_margin",
    "pvf_exposure",
    "pvf_mitigation",
    "pvf_protection",
    "pvf_running",
    "truth_sample",
]
