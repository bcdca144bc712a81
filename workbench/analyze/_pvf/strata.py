"""What is known of each stratum: its bits, its factor, and how much its sites differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._pvf.drawn import drawn_cells
from workbench.analyze._pvf.groups import groups, with_columns
from workbench.analyze._pvf.injection_rows import campaigns, experiments, together
from workbench.analyze._pvf.parts import component_names, parts, with_parts
from workbench.analyze._pvf.rules import Rules, refuse_mixed, wrong_and_judged
from workbench.analyze._pvf.truth_cells import cells, inputs_of
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections


def strata(
    given: Injections | Sequence[Injections] | ExhaustiveInjections, by: tuple[str, ...]
) -> pd.DataFrame:
    """Return one row per component and stratum.

    Columns: ``component`` and those of ``by``, ``label`` (of ``by`` alone), ``part`` (the
    component, or what was drawn from of it), ``site_count``,
    ``bit_count``, ``pvf``, ``spread`` (standard deviation of the sites' shares),
    ``event_share`` (of sites with any wrong output).
    """
    columns = ("component", *(name for name in by if name != "component"))
    if isinstance(given, ExhaustiveInjections):
        return _of_truth(given, columns, by)
    table = site_shares(given, columns)
    parameters, campaign = together(given, "parameters"), campaigns(given)
    rules = Rules("bits", columns)
    found = groups(table, columns, parameters)
    refuse_mixed(found.code, found.labels, table["campaign_id"], campaign, rules)
    share = table["share"].to_numpy()
    size = np.bincount(found.code, minlength=len(found.labels))
    mean = np.bincount(found.code, share, len(size)) / size
    square = np.bincount(found.code, (share - mean[found.code]) ** 2, len(size))
    bits: Any
    if "stratum" in by:
        bits = np.bincount(found.code, table["weight"].to_numpy(), len(size))
    else:
        people = parts(drawn_cells(given, table), found, table["campaign_id"], campaign, rules)
        bits = people.bit_count
    if np.isnan(bits).any():
        label = found.labels[int(np.isnan(bits).argmax())]
        msg = (
            f"the bits of {label!r} are not known: the injections need a table of parameters, or "
            "weights and by='stratum'"
        )
        raise InjectionError(msg)
    rules = Rules("bits", ("component",))
    whole = with_parts(given, table, groups(table, rules.by, parameters), campaign, rules)
    return found.keys.assign(
        part=found.keys["component"].map(
            dict(zip(whole.keys["component"], whole.labels, strict=True))
        ),
        label=groups(found.keys, by, parameters).labels_of_rows() if by else "all",
        site_count=size,
        bit_count=bits,
        pvf=mean,
        spread=np.sqrt(square / np.maximum(size - 1, 1)),
        event_share=np.bincount(found.code, share > 0, len(size)) / size,
    )


def _of_truth(
    truth: ExhaustiveInjections, columns: tuple[str, ...], by: tuple[str, ...]
) -> pd.DataFrame:
    inputs = inputs_of(truth)
    table = cells(truth)
    if strange := [name for name in columns if name not in table]:
        msg = f"by={strange[0]!r}: the table of all sites does not hold it"
        raise InjectionError(msg)
    found = groups(table, columns, truth.parameters)

    def total(name: str) -> Any:
        return np.bincount(found.code, table[name].to_numpy(dtype=float), len(found.labels))

    size = total("site_count")
    mean = total("wrong_count") / size / inputs
    variance = np.maximum(total("square") / size / inputs**2 - mean**2, 0)
    return found.keys.assign(
        part=found.keys["component"].map(component_names(truth)),
        label=groups(found.keys, by, truth.parameters).labels_of_rows() if by else "all",
        site_count=size.astype("int64"),
        bit_count=size,
        pvf=mean,
        spread=np.sqrt(variance),
        event_share=total("event_site_count") / size,
    )


def site_shares(
    given: Injections | Sequence[Injections], columns: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return one row per site, in the order of the experiments: its share of wrong outputs."""
    table = with_columns(experiments(given), campaigns(given), columns)
    rules = Rules("bits", columns)
    wrong, judged = wrong_and_judged(table, rules)
    table = table.assign(wrong=wrong, judged=judged)
    table = table.sort_values(["campaign_id", "exp_id"], kind="stable", ignore_index=True)
    code = pd.factorize(table["site"])[0]
    first = ~pd.Series(code).duplicated().to_numpy()
    sums = {name: np.bincount(code, table[name]) for name in ("wrong", "judged")}
    sites = table[first].reset_index(drop=True).assign(**sums)
    # A site that came twice stands for as many bits as both its experiments.
    weight = np.bincount(code, table["weight"].to_numpy(dtype=float))
    return sites.assign(
        share=sites["wrong"] / sites["judged"], weight=weight, weight_each=sites["weight"]
    )
