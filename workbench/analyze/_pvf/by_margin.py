"""Whether close decisions are the ones that faults change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import whole_number
from workbench.analyze._pvf.cluster_intervals import cluster_interval, estimates
from workbench.analyze._pvf.clusters import clusters
from workbench.analyze._pvf.groups import groups, refuse_half_weighted, weights
from workbench.analyze._pvf.injection_rows import KEY, campaigns, experiments, together
from workbench.analyze._pvf.parts import with_parts
from workbench.analyze._pvf.rules import Rules, refuse_mixed
from workbench.errors import InjectionError
from workbench.tables import PVF_BY_MARGIN, Injections


def pvf_by_margin(
    injections: Injections | Sequence[Injections],
    *,
    class_count: int = 10,
    by_component: bool = False,
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Say how often a fault changes decisions of small and of large margin.

    Parameters
    ----------
    injections
        Campaigns that recorded trials: the outcome and the golden margin of every input.
    class_count
        Classes of margins, each of about as many trials.
    by_component
        Whether to tell components apart; the classes are the same for all.
    level_share
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF_BY_MARGIN`, by group and from small margins to large.

    Raises
    ------
    InjectionError
        If there are no trials, or none with outcome and margin, or a group mixes campaigns that
        follow different rules.
    WorkbenchError
        If class_count is no whole number from 1, or level_share not between 0 and 1.

    Notes
    -----
    Weights and intervals as for :func:`pvf`: trials under one fault are one cluster.
    Trials without an outcome or a finite margin, or of experiments without counts, are left out;
    ``attrs["left_out"]`` counts them.
    """
    classes = whole_number("class_count", class_count, least=1)
    columns = ("component",) if by_component else ()
    rules = Rules("bits", columns, level_share=level_share)
    trials = together(injections, "trials")
    rows = experiments(injections)
    judged = pd.MultiIndex.from_frame(rows[KEY])
    told = trials["outcome"].notna() & np.isfinite(trials["golden_margin"])
    told &= pd.MultiIndex.from_frame(trials[KEY]).isin(judged)
    if not told.any():
        msg = (
            f"none of {len(trials):,} trials has an outcome, a golden margin and an experiment "
            "with counts; run the campaign so that it records its trials"
        )
        raise InjectionError(msg)
    kept = trials[told].merge(
        rows[[*KEY, "component", "site", "weight", "stratum"]], on=KEY, how="left"
    )
    found = groups(kept, columns, pd.DataFrame())
    refuse_mixed(found.code, found.labels, kept["campaign_id"], campaigns(injections), rules)
    refuse_half_weighted(kept, found.code, found.labels)
    found = with_parts(injections, kept, found, campaigns(injections), rules)
    margin = kept["golden_margin"].to_numpy(dtype=float)
    edges = np.unique(np.quantile(margin, np.linspace(0, 1, classes + 1)))
    edges = edges if len(edges) > 1 else np.repeat(edges, 2)
    place = np.clip(np.searchsorted(edges, margin, side="right") - 1, 0, len(edges) - 2)
    weight, _ = weights(kept, found.code, rules)
    table = _table(kept, found.code * (len(edges) - 1) + place, weight, level_share)
    table["group"] = np.repeat(found.labels, len(edges) - 1)[table["cell"]]
    for name, shift in (("margin_low", 0), ("margin_high", 1)):
        table[name] = edges[table["cell"] % (len(edges) - 1) + shift]
    result = PVF_BY_MARGIN.check(PVF_BY_MARGIN.cast(table))
    result.attrs["left_out"] = int((~told).sum())
    return result


def _table(kept: pd.DataFrame, cell: Any, weight: Any, level_share: float) -> pd.DataFrame:
    """Estimate every class; a site is a cluster in each."""
    present, group = np.unique(cell, return_inverse=True)
    wrong = kept["outcome"].astype(object).isin(["sdc", "due"]).to_numpy(dtype=float)
    site = clusters(kept, group, group, weight, wrong, np.ones(len(kept)))
    found = estimates(site, len(present))
    trials = np.bincount(group, minlength=len(present))
    low, high, _ = cluster_interval(found, trials.astype(float), level_share)
    return pd.DataFrame(
        {"cell": present, "trial_count": trials, "pvf": found.share, "low": low, "high": high,
         "wrong_count": np.bincount(group, wrong, len(present)).astype("int64")}
    )  # fmt: skip
