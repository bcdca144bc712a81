"""Exact vulnerability factors, from campaigns that injected every fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._pvf.drawn import drawn_cells
from workbench.analyze._pvf.groups import Groups, groups, members, weights
from workbench.analyze._pvf.parts import parts
from workbench.analyze._pvf.result import finished
from workbench.analyze._pvf.rules import OF_CAMPAIGN, Rules
from workbench.analyze._pvf.truth_cells import cells, inputs_of
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections


def exact_pvf(truth: ExhaustiveInjections, rules: Rules) -> pd.DataFrame:
    """Give the factors of a truth; there is nothing to estimate."""
    if strange := [name for name in rules.by if name in ("direction", "stratum")]:
        msg = f"by={strange[0]!r}: the table of all sites does not hold it; group by its place"
        raise InjectionError(msg)
    if rules.beneficial == "right":
        msg = "beneficial='right': the table of all sites does not count them; ask for 'wrong'"
        raise InjectionError(msg)
    inputs = inputs_of(truth)
    table = _with_campaign(cells(truth, rules.nan_policy), truth.campaign, rules)
    found = groups(table, rules.by, truth.parameters)
    member = members(table, found.code, rules)
    weight, _ = weights(table.assign(weight=1.0), found.code, rules)
    judged = table["site_count"].to_numpy(dtype=float) * inputs
    if rules.nan_policy == "ignore":
        judged = judged - table["due_count"].to_numpy(dtype=float)
    share = _share(found, member, weight * table["wrong_count"].to_numpy(), weight * judged)
    result = _numbers(table, found, share, inputs)
    if rules.average not in ("bits", "parameters") or rules.nan_policy == "ignore":
        result["design_effect_ratio"] = np.nan
    people = parts(drawn_cells(truth, table), found, table["campaign_id"], truth.campaign, rules)
    result = result.assign(drawn_from=people.drawn_from)
    doubts: list[list[str]] = [[] for _ in found.labels]
    for position in np.flatnonzero(np.isnan(share)):
        doubts[position].append("no output is left to judge")
    of_group = truth.campaign.iloc[np.zeros(len(found.labels), dtype=int)]
    return finished(result, found._replace(labels=people.labels), doubts, of_group, rules)


def _with_campaign(table: pd.DataFrame, campaign: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    row = campaign.iloc[0]
    more = {name: row[name] for name in rules.by if name in OF_CAMPAIGN and name not in table}
    flips = {"flip_count": 1, "campaign_id": row["campaign_id"], "exp_id": -1}
    table = table.assign(**{**more, **flips})
    return table.assign(dtype=table["dtype"].fillna(row["dtype"]))


def _share(found: Groups, member: Any, wrong: Any, judged: Any) -> Any:
    """Average the ratios of the members of each group."""
    home = np.zeros(int(member.max(initial=-1)) + 1, dtype=np.int64)
    home[member] = found.code
    judged = np.bincount(member, judged)
    ratio = np.bincount(member, wrong)[judged > 0] / judged[judged > 0]
    home = home[judged > 0]
    size = len(found.labels)
    with np.errstate(invalid="ignore"):
        return np.bincount(home, ratio, size) / np.bincount(home, minlength=size)


def _numbers(table: pd.DataFrame, found: Groups, share: Any, inputs: int) -> pd.DataFrame:
    size = len(found.labels)

    def total(name: str) -> Any:
        return np.bincount(found.code, table[name].to_numpy(dtype=float), size)

    sites = total("site_count")
    mean = total("wrong_count") / sites / inputs
    variance = total("square") / sites / inputs**2 - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.where(mean * (1 - mean) > 0, inputs * variance / (mean * (1 - mean)), np.nan)
    return pd.DataFrame(
        {
            "pvf": share,
            "low": share,
            "high": share,
            "independent_low": np.nan,
            "independent_high": np.nan,
            "interval": "exact",
            "site_count": sites.astype("int64"),
            "trial_count": sites.astype("int64") * inputs,
            "event_site_count": total("event_site_count").astype("int64"),
            "sdc_count": total("sdc_count").astype("int64"),
            "due_count": pd.array(total("due_count").astype("int64"), dtype="Int64"),
            "design_effect_ratio": np.maximum(effect, 0),
            "bit_count": sites,
        }
    )
