"""Analyze: failures and goodput."""

from workbench.analyze._failures.causes import cause_shares
from workbench.analyze._failures.failure_rates import failure_rate, failure_rates, standby_nodes
from workbench.analyze._failures.failure_times import failure_times, observed_span
from workbench.analyze._failures.first_days import first_days
from workbench.analyze._failures.goodput_model.at_scale import failure_interval_of, goodput_at_scale
from workbench.analyze._failures.goodput_model.changes import (
    goodput_ladder,
    goodput_sensitivity,
    goodput_sweep,
)
from workbench.analyze._failures.goodput_model.checkpoints import (
    checkpoint_curve,
    checkpoint_optimum,
    expected_ettr,
)
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.goodput import Convention, goodput, productive_share
from workbench.analyze._failures.goodput_model.spares import spares, with_spares
from workbench.analyze._failures.goodput_model.windows import (
    goodput_mean,
    goodput_replay,
    goodput_windows,
)
from workbench.analyze._failures.hang.positions import flight_positions
from workbench.analyze._failures.hang.suspects import flight_suspects
from workbench.analyze._failures.hang.waits import flight_waits
from workbench.analyze._failures.incidents import incident_counts, incidents
from workbench.analyze._failures.job_failures import crash_loops, job_failures, job_sizes
from workbench.analyze._failures.lemon_nodes import lemon_nodes
from workbench.analyze._failures.lemon_recall import Lemons, lemon_recall
from workbench.analyze._failures.lifetimes import failure_gaps, lifetimes
from workbench.analyze._failures.mttf_by_size import mttf_by_size
from workbench.analyze._failures.recurrence import failure_trend, recurrence
from workbench.analyze._failures.reported_by import reported_by
from workbench.analyze._failures.survival import survival, weibull
from workbench.analyze._failures.watched_throughout import watched_throughout

__all__ = [
    "Convention",
    "FaultTolerance",
    "Lemons",
    "cause_shares",
    "checkpoint_curve",
    "checkpoint_optimum",
    "crash_loops",
    "expected_ettr",
    "failure_gaps",
    "failure_interval_of",
    "failure_rate",
    "failure_rates",
    "failure_times",
    "failure_trend",
    "first_days",
    "flight_positions",
    "flight_suspects",
    "flight_waits",
    "goodput",
    "goodput_at_scale",
    "goodput_ladder",
    "goodput_mean",
    "goodput_replay",
    "goodput_sensitivity",
    "goodput_sweep",
    "goodput_windows",
    "incident_counts",
    "incidents",
    "job_failures",
    "job_sizes",
    "lemon_nodes",
    "lemon_recall",
    "lifetimes",
    "mttf_by_size",
    "observed_span",
    "productive_share",
    "recurrence",
    "reported_by",
    "spares",
    "standby_nodes",
    "survival",
    "watched_throughout",
    "weibull",
    "with_spares",
]
