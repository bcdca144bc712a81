"""Samples drawn from a campaign that injected every fault, to test what samples can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import whole_number
from workbench.analyze._pvf.groups import groups
from workbench.analyze._pvf.rules import bit_role
from workbench.analyze._pvf.truth_cells import BITS, cell_codes, cells, inputs_of
from workbench.errors import InjectionError
from workbench.tables import (
    CAMPAIGN,
    FAULTS,
    INJECTION_ALLOCATION,
    OUTCOMES,
    QUALITY,
    TRIALS,
    ExhaustiveInjections,
    Injections,
)
from workbench.tables import Table as _Table

_PLACES = ("component", "layer", "kind", "dtype")
_STRATA = ("component", "layer", "param", "kind", "dtype", "bit", "bit_role")


def truth_sample(
    truth: ExhaustiveInjections,
    site_count: int | pd.DataFrame,
    *,
    seed: int,
    component: str | None = None,
    by: str | Sequence[str] = (),
    input_count: int | None = None,
) -> Injections:
    """Draw a campaign from the truth, as if only some faults had been injected.

    Parameters
    ----------
    truth
        Every fault of a model.
    site_count
        Sites to draw, without repetition; or table
        :data:`workbench.tables.INJECTION_ALLOCATION`, how many of each stratum.
    seed
        Of the draw.
    component
        Only faults of this part of the model.
    by
        Columns that make the strata, e.g. ``"bit"``; ``site_count`` sites are spread over them
        evenly. Without, any bit is drawn alike.
    input_count
        Inputs to judge every site on; all if left out.

    Returns
    -------
    Injections
        A campaign of its own name, with the weights of its design.

    Raises
    ------
    InjectionError
        If there are fewer sites than asked for, or a stratum or component does not exist.
    WorkbenchError
        If site_count or input_count is no whole number from 1.

    Notes
    -----
    The truth knows how many inputs of a site were wrong, not which. With fewer inputs than all,
    how many of them are wrong is drawn (hypergeometric; for one input: a coin with the share of
    wrong ones), for every site by itself; the campaign's quality says so.
    """
    every = inputs_of(truth)
    used = every if input_count is None else whole_number("input_count", input_count, least=1)
    if used > every:
        msg = f"input_count={used:,}, but the truth was judged on {every:,}"
        raise InjectionError(msg)
    columns = (by,) if isinstance(by, str) else tuple(by)
    rng = np.random.default_rng(seed)
    table = _cells_of(truth, component)
    found = groups(table, _known(columns), truth.parameters)
    labels = found.labels if columns else [""]
    codes, _ = cell_codes(truth)
    stratum_of = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int32)
    stratum_of[table["code"]] = found.code
    wanted = _wanted(site_count, labels)
    stratum = stratum_of[codes]
    picked, weights, names = [], [], []
    for number, count in enumerate(wanted):
        inside = np.flatnonzero(stratum == number)
        if count > len(inside):
            msg = f"{count:,} sites of {labels[number] or 'the truth'!r}: it has {len(inside):,}"
            raise InjectionError(msg)
        picked.append(rng.choice(inside, count, replace=False))
        weights.append(np.full(count, len(inside) / max(count, 1)))
        names.append(np.full(count, number))
    site = np.concatenate(picked)
    # Experiments come in random order, so that a part of them is a sample, too.
    order = rng.permutation(len(site))
    strata = np.asarray(labels, dtype=object)[np.concatenate(names)[order]] if columns else None
    drawn = truth.sites.iloc[site[order]].reset_index(drop=True)
    drawn = drawn.assign(stratum=strata, inclusion_weight=np.concatenate(weights)[order])
    return _bundle(truth, drawn, _judged(drawn, every, used, rng), seed)


def _known(columns: tuple[str, ...]) -> tuple[str, ...]:
    if strange := [name for name in columns if name not in _STRATA]:
        msg = f"by={strange[0]!r} makes no strata; there are {', '.join(_STRATA)}"
        raise InjectionError(msg)
    return columns


def _cells_of(truth: ExhaustiveInjections, component: str | None) -> pd.DataFrame:
    table = cells(truth)
    names = {str(name): i for i, name in enumerate(truth.sites["param"].cat.categories)}
    table["code"] = table["param"].map(names) * BITS + table["bit"]
    if component is None:
        return table
    kept = table[table["component"] == component].reset_index(drop=True)
    if kept.empty:
        known = ", ".join(map(str, table["component"].unique()))
        msg = f"component={component!r} has no sites; there are {known}"
        raise InjectionError(msg)
    return kept


def _wanted(site_count: int | pd.DataFrame, labels: list[str]) -> list[int]:
    """Say how many sites of each stratum to draw."""
    if not isinstance(site_count, pd.DataFrame):
        total = whole_number("site_count", site_count, least=1)
        each, more = divmod(total, len(labels))
        return [each + (number < more) for number in range(len(labels))]
    INJECTION_ALLOCATION.check(site_count)
    plan = dict(zip(site_count["stratum"], site_count["site_count"], strict=True))
    if strange := sorted(set(plan) - set(labels)):
        msg = f"stratum {strange[0]!r} is none of by=...: e.g. {labels[0]!r}"
        raise InjectionError(msg)
    return [int(plan.get(label, 0)) for label in labels]


def _judged(drawn: pd.DataFrame, every: int, used: int, rng: np.random.Generator) -> Any:
    """Count wrong and non-finite outputs on as many inputs as are used."""
    sdc, due = (drawn[f"{name}_count"].to_numpy(dtype="int64") for name in ("sdc", "due"))
    if used == every:
        return sdc, due, used
    some = rng.hypergeometric(sdc, every - sdc, used)
    rest = np.where(every > sdc, used - some, 0)
    return some, rng.hypergeometric(due, every - sdc - due, rest), used


def _bundle(truth: ExhaustiveInjections, drawn: pd.DataFrame, counts: Any, seed: int) -> Injections:
    sdc, due, used = counts
    every = inputs_of(truth)
    name = f"{truth.campaign['campaign_id'].iloc[0]}, {len(drawn)} sites, seed {seed}"
    design = "uniform" if drawn["stratum"].isna().all() else "stratified"
    head = {"campaign_id": name, "design": design, "seed": seed, "input_count": used}
    campaign = truth.campaign.astype({"design": object}).assign(**head)
    known = truth.parameters.drop_duplicates("param").set_index("param")
    dtypes = drawn["param"].astype(object).map(known["dtype"])
    pairs = zip(dtypes, drawn["bit"], strict=True)
    faults = _filled(FAULTS, len(drawn)) | {
        "bit_role": [bit_role(dtype, int(bit)) for dtype, bit in pairs],
        "campaign_id": name, "exp_id": np.arange(len(drawn)), "flip": 0,
        **{n: drawn["param"].astype(object).map(known[n].astype(object)) for n in known
           if n in _PLACES},
        **{n: drawn[n] for n in ("param", "elem", "bit", "stratum", "inclusion_weight")},
    }  # fmt: skip
    outcomes = _filled(OUTCOMES, len(drawn)) | {
        "campaign_id": name, "exp_id": np.arange(len(drawn)), "input_count": used,
        "sdc_count": sdc, "due_count": due,
    }  # fmt: skip
    return Injections(
        CAMPAIGN.check(CAMPAIGN.cast(campaign)),
        FAULTS.check(FAULTS.cast(pd.DataFrame(faults))),
        OUTCOMES.check(OUTCOMES.cast(pd.DataFrame(outcomes))),
        TRIALS.empty(),
        truth.parameters.assign(campaign_id=name),
        _quality(name, every, used, len(drawn)),
    )


def _filled(table: _Table, size: int) -> dict[str, Any]:
    """Give missing values for every column."""
    return {name: pd.Series([None] * size, dtype=object) for name in table.columns}


def _quality(name: str, every: int, used: int, size: int) -> pd.DataFrame:
    if used == every:
        return QUALITY.empty()
    row = {
        "source": name,
        "finding": "assumed",
        "what": f"which {used:,} of {every:,} inputs is not known: wrong ones were drawn by chance",
        "count": size,
        "where": None,
    }
    table = pd.DataFrame([row]).astype({"finding": "category", "where": object})
    return QUALITY.check(QUALITY.cast(table))
