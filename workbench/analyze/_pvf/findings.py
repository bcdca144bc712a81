"""Rules on fault-injection results: what is vulnerable, what protection buys, what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property

import pandas as pd

from workbench._shared.numbers import significant
from workbench.analyze._lib.finding_rules import (
    Finding,
    LacksDataError,
    first_of,
    needs,
    rows_of,
    rule,
)
from workbench.analyze._pvf.estimates import pvf
from workbench.analyze._pvf.protection import pvf_protection
from workbench.errors import InjectionError
from workbench.tables import Bundle, Injections

_PVF = "arXiv:2405.01741, PVF: parameter vulnerability factor"
_LEVEUGLE = "doi:10.1109/DATE.2009.5090716, Leveugle et al. 2009"


class Injected:
    """The estimates that several rules on fault injections read."""

    domain = "pvf"
    needs = ("injections",)

    def __init__(self, injections: Injections, campaign: str, of_campaigns: int) -> None:
        self.injections = injections
        self.campaign = campaign
        self.doubt = (
            f"of the largest of {of_campaigns} campaigns: {campaign}" if of_campaigns > 1 else ""
        )

    @classmethod
    def of(cls, bundle: Bundle) -> Injected | None:
        """Take the largest campaign of single flips; estimates of unlike campaigns do not mix."""
        whole = bundle.injections
        if whole is None or whole.campaign.empty:
            return None
        plain = (whole.campaign["flip_count"].fillna(1) == 1) & whole.campaign["mitigation"].isna()
        faults = whole.faults[whole.faults["campaign_id"].isin(
            whole.campaign.loc[plain, "campaign_id"])]  # fmt: skip
        if faults.empty:
            return None
        name = str(faults["campaign_id"].value_counts().index[0])
        tables = {
            field.name: table[table["campaign_id"] == name].reset_index(drop=True)
            for field in fields(whole)
            if "campaign_id" in (table := getattr(whole, field.name)).columns
        }
        return cls(replace(whole, **tables), name, len(whole.campaign))

    @cached_property
    def by_component(self) -> pd.DataFrame:
        """Vulnerability factor of each component."""
        return pvf(self.injections, average="bits")

    @cached_property
    def protection(self) -> pd.DataFrame:
        """Wrong outputs that protecting the most harmful bits removes."""
        return pvf_protection(self.injections, unit="bits")


def _share(value: float) -> str:
    """Write a probability, however small, with digits that tell it from 0."""
    return f"{significant(100 * float(value))} %"


def _whole(group: str) -> str:
    return "all components" if group == "all" else f"the component {group}"


@rule(Injected, reference=_PVF)
def vulnerable_component(
    injected: Injected, *, least_ratio: float = 2.0, least_pvf: float = 1e-4
) -> Iterator[Finding]:
    """One component gives far more wrong outputs per fault than the others."""
    table = injected.by_component
    needs(len(table), 2, "components")
    top = first_of(table.sort_values("pvf", ascending=False))
    others = table.drop(index=top.name)
    mean = float((others["pvf"] * others["bit_count"]).sum() / others["bit_count"].sum())
    if top["pvf"] < max(least_ratio * mean, least_pvf):
        return
    is_apart = float(top["low"]) > float(others["high"].max())
    yield Finding(
        f"A fault in the component {top['group']} gives a wrong output with probability "
        f"{_share(top['pvf'])} ({_share(top['low'])} to {_share(top['high'])}); elsewhere "
        f"{_share(mean)}",
        where=f"{top['group']}, {int(top['site_count']):,} faults",
        cost=100 * float(top["pvf"]),
        cost_unit="% of the faults",
        cost_basis="vulnerability factor, every bit alike",
        confidence="high" if is_apart and top["is_sure"] else "medium",
        doubt="; ".join(filter(None, [top["doubt"] or "", injected.doubt])),
        evidence="analyze.pvf, explore.pvf (notebook 04)",
        next_step="protect this component first: range checks, ECC or duplicated high bits",
    )


@rule(Injected, reference=_PVF)
def cheap_protection(
    injected: Injected, *, least_removed_share: float = 0.8, most_protected_share: float = 0.1
) -> Iterator[Finding]:
    """Protecting few bits removes most wrong outputs."""
    try:
        table = injected.protection
    except InjectionError as error:
        # Which bits were drawn, or what can be hit, is not in every campaign.
        raise LacksDataError(str(error)) from error
    enough = table[table["removed_share"] >= least_removed_share].sort_values("protected_share")
    if enough.empty or enough.iloc[0]["protected_share"] > most_protected_share:
        return
    row = first_of(enough)
    count = int(row["protected_count"])
    yield Finding(
        f"Protecting {row['protected_share']:.1%} of the bit places removes "
        f"{row['removed_share']:.0%} of the wrong outputs",
        where=f"{count} bit place{'s' * (count > 1)} of {_whole(row['group'])}, the "
        f"{'last ' * (count > 1)}{row['last']}",
        cost=100 * float(row["removed_share"]),
        cost_unit="% of the wrong outputs",
        cost_basis="expected wrong outputs removed",
        confidence="medium",
        doubt="; ".join(filter(None, [f"ranked by {row['ranked_by']}", injected.doubt])),
        evidence="analyze.pvf_protection, explore.pvf_protection (notebook 04)",
        next_step="compare the cost of ECC or range checks on these bits with the gain",
    )


@rule(Injected, reference=_LEVEUGLE)
def too_few_faults(injected: Injected, *, most_relative_width: float = 1.0) -> Iterator[Finding]:
    """Too few faults to tell the vulnerability of a component."""
    table = injected.by_component
    width = (table["high"] - table["low"]) / table["pvf"].where(table["pvf"] > 0)
    wide = table[(width > most_relative_width).fillna(value=True) | ~table["is_sure"]]
    if wide.empty:
        return
    yield Finding(
        f"The vulnerability of {len(wide)} of {len(table)} components is uncertain by more than a "
        "factor of two: too few faults gave a wrong output",
        where=", ".join(
            f"{row.group} ({int(row.event_site_count)} of {int(row.site_count):,})"
            for row in rows_of(wide.head(4))
        ),
        confidence="high",
        doubt=injected.doubt,
        evidence="analyze.injection_sample_sizes, explore.injection_sample_sizes (notebook 04)",
        next_step="inject more faults there: analyze.injection_allocation says how many",
    )


@rule(Injected, reference=_PVF)
def not_finite(injected: Injected, *, least_share: float = 0.2) -> Iterator[Finding]:
    """Many harmful faults give outputs that are not finite, which a cheap check finds."""
    table = injected.by_component
    bad = float(table["sdc_count"].sum() + table["due_count"].fillna(0).sum())
    share = float(table["due_count"].fillna(0).sum()) / bad if bad else 0.0
    if share < least_share:
        return
    yield Finding(
        f"{share:.0%} of the harmful faults give outputs that are not finite",
        where="all components",
        cost=100 * share,
        cost_unit="% of the wrong outputs",
        cost_basis="trials whose output is not finite, of those that are wrong",
        confidence="high",
        doubt=injected.doubt,
        evidence="analyze.outcome_shares, plot.outcome_shares (notebook 04)",
        next_step="test outputs for NaN and infinity; repeat the batch where there are any",
    )
