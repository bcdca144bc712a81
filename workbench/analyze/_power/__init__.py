"""Analyze: power and energy."""

from workbench.analyze._power.band_shares import band_shares
from workbench.analyze._power.capping import capped_share, capping_events
from workbench.analyze._power.capping_blame import capping_blame
from workbench.analyze._power.capping_cost import capping_cost
from workbench.analyze._power.curve import power_curve
from workbench.analyze._power.edges import power_edges
from workbench.analyze._power.energy import energy, energy_total
from workbench.analyze._power.energy_from_counter import energy_from_counter
from workbench.analyze._power.extended_curve import Extrapolation, extended_curve
from workbench.analyze._power.grid import power_grid, power_totals
from workbench.analyze._power.grid_check import grid_check
from workbench.analyze._power.grid_spec import GridSpec, grid_spec, grid_spec_names
from workbench.analyze._power.heatmap import power_heatmap
from workbench.analyze._power.hierarchy import power_hierarchy
from workbench.analyze._power.knees import power_knees
from workbench.analyze._power.merged_rollups import merged_rollups
from workbench.analyze._power.of_scope import power_of_scope
from workbench.analyze._power.provisioning import overhead_w_implied, provisioning
from workbench.analyze._power.published_curve import (
    provisioning_facts,
    published_curve,
    published_gains,
)
from workbench.analyze._power.pue import pue
from workbench.analyze._power.ramps import power_ramps
from workbench.analyze._power.sampled import power_sampled
from workbench.analyze._power.smoothing import power_smoothing
from workbench.analyze._power.smoothing_plan import SmoothingPlan
from workbench.analyze._power.smoothing_plans import smoothing_plans
from workbench.analyze._power.smoothing_summary import smoothing_summary
from workbench.analyze._power.spectrum import power_peaks, power_spectrum
from workbench.analyze._power.swings import power_swings
from workbench.analyze._power.total import power_sum
from workbench.analyze._power.tree import power_residual, power_tree

__all__ = [
    "Extrapolation",
    "GridSpec",
    "SmoothingPlan",
    "band_shares",
    "capped_share",
    "capping_blame",
    "capping_cost",
    "capping_events",
    "energy",
    "energy_from_counter",
    "energy_total",
    "extended_curve",
    "grid_check",
    "grid_spec",
    "grid_spec_names",
    "merged_rollups",
    "overhead_w_implied",
    "power_curve",
    "power_edges",
    "power_grid",
    "power_heatmap",
    "power_hierarchy",
    "power_knees",
    "power_of_scope",
    "power_peaks",
    "power_ramps",
    "power_residual",
    "power_sampled",
    "power_smoothing",
    "power_spectrum",
    "power_sum",
    "power_swings",
    "power_totals",
    "power_tree",
    "provisioning",
    "provisioning_facts",
    "published_curve",
    "published_gains",
    "pue",
    "smoothing_plans",
    "smoothing_summary",
]
