"""Plot: fault injection and vulnerability factors."""

from workbench.plot._pvf.by_bit import pvf_by_bit
from workbench.plot._pvf.by_flips import pvf_by_flips
from workbench.plot._pvf.by_margin import pvf_by_margin
from workbench.plot._pvf.detector_tolerance import detector_tolerance
from workbench.plot._pvf.estimates import pvf
from workbench.plot._pvf.exposure import pvf_exposure
from workbench.plot._pvf.interval_funnel import interval_coverage, interval_funnel
from workbench.plot._pvf.mitigation import pvf_mitigation
from workbench.plot._pvf.outcome_shares import outcome_shares
from workbench.plot._pvf.protection import pvf_protection
from workbench.plot._pvf.running import pvf_running
from workbench.plot._pvf.sample_sizes import injection_sample_sizes

__all__ = [
    "detector_tolerance",
    "injection_sample_sizes",
    "interval_coverage",
    "interval_funnel",
    "outcome_shares",
    "pvf",
    "pvf_by_bit",
    "pvf_by_flips",
    "pvf_by_margin",
    "pvf_exposure",
    "pvf_mitigation",
    "pvf_protection",
    "pvf_running",
]
