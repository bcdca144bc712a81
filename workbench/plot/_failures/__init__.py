"""Plot: failures and goodput."""

from workbench.plot._failures.causes import cause_shares
from workbench.plot._failures.checkpoints import checkpoint_curve, expected_ettr
from workbench.plot._failures.failure_rates import failure_rates
from workbench.plot._failures.flight_positions import flight_positions
from workbench.plot._failures.flight_suspects import flight_suspects
from workbench.plot._failures.flight_waits import flight_waits
from workbench.plot._failures.goodput import goodput
from workbench.plot._failures.goodput_at_scale import goodput_at_scale
from workbench.plot._failures.goodput_changes import (
    goodput_ladder,
    goodput_sensitivity,
    goodput_sweep,
)
from workbench.plot._failures.goodput_windows import goodput_windows
from workbench.plot._failures.incidents import incident_counts, incidents
from workbench.plot._failures.lemon_nodes import lemon_nodes, lemon_recall
from workbench.plot._failures.mttf_by_size import mttf_by_size
from workbench.plot._failures.recurrence import recurrence
from workbench.plot._failures.spares import spares
from workbench.plot._failures.survival import survival

__all__ = [
    "cause_shares",
    "checkpoint_curve",
    "expected_ettr",
    "failure_rates",
    "flight_positions",
    "flight_suspects",
    "flight_waits",
    "goodput",
    "goodput_at_scale",
    "goodput_ladder",
    "goodput_sensitivity",
    "goodput_sweep",
    "goodput_windows",
    "incident_counts",
    "incidents",
    "lemon_nodes",
    "lemon_recall",
    "mttf_by_size",
    "recurrence",
    "spares",
    "survival",
]
