"""Rows of experiments or trials, summed up by injection site: the units of every interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._pvf.cluster_intervals import Clusters
from workbench.analyze._pvf.injection_rows import joint


def clusters(
    table: pd.DataFrame, group: Any, member: Any, weight: Any, wrong: Any, judged: Any
) -> Clusters:
    """Sum the rows of every site in a group; sites in the order in which they first come.

    ``table`` has ``campaign_id``, ``stratum`` and ``site``. Strata of the same name in two
    campaigns are two strata.
    """
    stratum = pd.factorize(table["stratum"])[0]
    # Strata of the design run through all members; without them every member is one.
    span = np.where(stratum < 0, member, int(member.max(initial=0)) + 1 + group)
    stratum = joint(joint(pd.factorize(table["campaign_id"])[0], stratum), span)
    home = joint(table["site"].to_numpy(), group)
    first = np.flatnonzero(~pd.Series(home).duplicated().to_numpy())
    return Clusters(
        group[first],
        member[first],
        stratum[first],
        np.bincount(home, weight * wrong),
        np.bincount(home, weight * judged),
    )
