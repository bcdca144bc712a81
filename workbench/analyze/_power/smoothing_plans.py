"""Several ways of smoothing side by side."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analyze._power.grid_spec import GridSpec
from workbench.analyze._power.smoothing import power_smoothing
from workbench.analyze._power.smoothing_plan import SmoothingPlan
from workbench.analyze._power.smoothing_summary import smoothing_summary
from workbench.errors import WorkbenchError
from workbench.tables import SMOOTHING_PLANS


def smoothing_plans(
    totals: pd.DataFrame,
    plans: Mapping[str, SmoothingPlan],
    *,
    spec: GridSpec | None = None,
    site_w: float | None = None,
) -> pd.DataFrame:
    """Compare ways of smoothing: what each adds, what it leaves, what it needs.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    plans
        Plans by the name to show.
    spec
        What the grid allows; every version is then checked against it.
    site_w
        Power of the site, where limits of the specification scale with it.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SMOOTHING_PLANS`: a row for the power as measured, then
        one per plan in the order given. Its columns are those of ``smoothing_summary``.

    Raises
    ------
    WorkbenchError
        If there is no plan, or as :func:`power_smoothing` and :func:`smoothing_summary`.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[10.0, 5, 10, 5], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> table = smoothing_plans(cells, {"floor": SmoothingPlan(floor_share=0.8)})
    >>> table[["plan", "energy_ratio"]].values.tolist()
    [['as measured', 1.0], ['floor', 1.2]]
    """
    if not plans:
        msg = "there is no plan to compare; pass plans={'floor': SmoothingPlan(floor_share=0.9)}"
        raise WorkbenchError(msg)
    rows: list[pd.DataFrame] = []
    for name, plan in plans.items():
        summary = smoothing_summary(power_smoothing(totals, plan), spec=spec, site_w=site_w)
        if not rows:
            rows.append(summary[summary["version"] == "before"].assign(plan="as measured"))
        rows.append(summary[summary["version"] == "after"].assign(plan=name))
    table = pd.concat(rows, ignore_index=True)
    return SMOOTHING_PLANS.check(SMOOTHING_PLANS.cast(table))
