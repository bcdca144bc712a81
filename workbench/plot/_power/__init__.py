"""Plot: power and energy."""

from workbench.plot._power.band_shares import band_shares
from workbench.plot._power.capping import capping_events
from workbench.plot._power.capping_cost import capping_blame, capping_cost
from workbench.plot._power.curve import power_curve, power_knees
from workbench.plot._power.edges import power_edges
from workbench.plot._power.energy import energy
from workbench.plot._power.grid_check import grid_check
from workbench.plot._power.heatmap import power_heatmap
from workbench.plot._power.hierarchy import power_hierarchy
from workbench.plot._power.provisioning import provisioning
from workbench.plot._power.pue import pue
from workbench.plot._power.ramps import power_ramps
from workbench.plot._power.residual import power_residual
from workbench.plot._power.smoothing import power_smoothing
from workbench.plot._power.smoothing_summary import smoothing_summary
from workbench.plot._power.spectrum import power_spectrum
from workbench.plot._power.swings import power_swings
from workbench.plot._power.totals import power_totals

__all__ = [
    "band_shares",
    "capping_blame",
    "capping_cost",
    "capping_events",
    "energy",
    "grid_check",
    "power_curve",
    "power_edges",
    "power_heatmap",
    "power_hierarchy",
    "power_knees",
    "power_ramps",
    "power_residual",
    "power_smoothing",
    "power_spectrum",
    "power_swings",
    "power_totals",
    "provisioning",
    "pue",
    "smoothing_summary",
]
