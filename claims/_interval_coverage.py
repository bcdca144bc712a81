"""How often an interval covers the true value, where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from claims._tables import INTERVAL_COVERAGE
from workbench import tables
from workbench._shared.numbers import share_between, whole_number, wilson
from workbench.analyze._pvf import cluster_intervals as intervals
from workbench.analyze._pvf.cluster_intervals import Estimates
from workbench.analyze._pvf.groups import bit_role, groups, rules_told
from workbench.analyze._pvf.interval_funnel import Part, neyman, parts_of
from workbench.analyze._pvf.truth_cells import BITS, cell_codes, cells, inputs_of
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections

_PILOT = 20
# Shares drawn at once: 32 MB of doubles, however many repeats there are.
_AT_ONCE = 4_000_000


def interval_coverage(
    truth: ExhaustiveInjections,
    *,
    site_count: int,
    repeat_count: int = 300,
    seed: int = 0,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Draw campaigns from a truth many times, and count how often their interval holds it.

    Parameters
    ----------
    truth
        Every fault of a model.
    site_count
        Sites per campaign.
    repeat_count
        Campaigns per component and design.
    seed
        Of the draws.
    confidence_level
        Confidence that the intervals claim.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.INTERVAL_COVERAGE`: by component, for sites drawn alike
        (``uniform``, all inputs and one input per site) and, if there are sites enough, for
        ``two-phase`` (20 pilot sites per bit, the rest where the pilot found most spread), the
        interval with the site as its unit and that of independent trials.

    Raises
    ------
    InjectionError
        If the truth has no sites.
    WorkbenchError
        If a number is out of range.

    Notes
    -----
    Sites are drawn with repetition. Intervals as in :func:`pvf`. With 300 repeats a covered share
    of .95 is known to +-.025.
    """
    sites = whole_number("site_count", site_count, least=2)
    repeats = whole_number("repeat_count", repeat_count, least=1)
    share_between("confidence_level", confidence_level)
    rng = np.random.default_rng(seed)
    shared = {"confidence_level": confidence_level, **rules_told(truth.campaign.iloc[0])}
    rows = []
    for component in parts_of(truth):
        exact, inputs = component.exact, component.input_count
        designs = {("uniform", inputs): _uniform, ("uniform", 1): _uniform}
        if sites >= (_PILOT + 2) * int((component.weight > 0).sum()):
            designs["two-phase", inputs] = _two_phase
        for (design, used), draw in designs.items():
            estimate = draw(component, sites, repeats, (inputs, used), rng)
            rows += [
                {"group": component.label, "design": design, "site_count": sites,
                 "input_count": used, "repeat_count": repeats, "truth": exact} | shared | row
                for row in _covered(estimate, exact, sites * used, confidence_level)
            ]  # fmt: skip
    return INTERVAL_COVERAGE.of(rows)


def _uniform(
    component: Part, sites: int, repeats: int, inputs: tuple[int, int], rng: np.random.Generator
) -> Estimates:
    every, used = inputs
    sums = np.zeros((3, repeats))
    # Campaigns are drawn in batches, so that memory does not grow with their number.
    step = max(_AT_ONCE // sites, 1)
    for start in range(0, repeats, step):
        size = (min(step, repeats - start), sites)
        share = component.wrong[rng.integers(0, len(component.wrong), size)] / every
        # One input per site is a coin with the share of its wrong inputs.
        if used == 1:
            share = (rng.random(size) < share).astype(float)
        now = slice(start, start + size[0])
        sums[:, now] = share.sum(1), (share**2).sum(1), (share > 0).sum(1)
    mean = sums[0] / sites
    spread = np.maximum(sums[1] - sites * mean**2, 0) / (sites - 1)
    return _estimates(mean, spread / sites, np.full(repeats, sites - 1.0), (sites, sums[2]))


def _two_phase(
    component: Part, sites: int, repeats: int, inputs: tuple[int, int], rng: np.random.Generator
) -> Estimates:
    """Draw a pilot of every bit, then more where it found most spread."""
    every, _ = inputs
    bits = np.flatnonzero(component.weight > 0)
    weight = component.weight[bits]
    count = np.full((repeats, len(bits)), float(_PILOT))
    sums = np.zeros((3, repeats, len(bits)))
    for number, bit in enumerate(bits.tolist()):
        sums[:, :, number] = _drawn(component, bit, count[:, number], every, rng)
    plan = neyman(weight, _spread(count, sums), sites - _PILOT * len(bits))
    for number, bit in enumerate(bits.tolist()):
        sums[:, :, number] += _drawn(component, bit, plan[:, number], every, rng)
    count = count + plan
    spread = _spread(count, sums) ** 2
    # Satterthwaite: strata of unequal spread share out the degrees of freedom.
    term = weight**2 * spread / count
    variance = term.sum(1)
    below = (term**2 / (count - 1)).sum(1)
    free = np.divide(variance**2, below, out=np.full(repeats, sites - 1.0), where=below > 0)
    mean = (weight * sums[0] / count).sum(1)
    effective = 1 / (weight**2 / count).sum(1)
    return _estimates(mean, variance, free, (effective, sums[2].sum(1)))


def _drawn(component: Part, bit: int, count: Any, every: int, rng: np.random.Generator) -> Any:
    # All repeats draw the largest number; what is beyond their own counts for nothing.
    most = int(count.max(initial=0))
    site = rng.integers(component.start[bit], component.start[bit + 1], (len(count), most))
    share = component.wrong[site] / every * (np.arange(most) < count[:, None])
    return share.sum(1), (share**2).sum(1), (share > 0).sum(1)


def _spread(count: Any, sums: Any) -> Any:
    square = sums[1] - sums[0] ** 2 / count
    return np.sqrt(np.maximum(square, 0) / np.maximum(count - 1, 1))


def _estimates(mean: Any, variance: Any, freedom: Any, counts: tuple[Any, Any]) -> Estimates:
    clusters, events = counts
    clusters = np.broadcast_to(np.asarray(clusters, dtype=float), mean.shape)
    freedom, lonely = np.maximum(freedom, 1.0), np.zeros(len(mean))
    return Estimates(mean, variance, freedom, clusters, events, events, clusters, lonely)


def _covered(
    estimate: Estimates, exact: float, trial_count: float, confidence_level: float
) -> list[dict[str, Any]]:
    low, high, _ = intervals.cluster_interval(
        estimate, np.full(estimate.share.shape, trial_count), confidence_level
    )
    ends = {
        "clustered": (low, high),
        "independent": wilson(estimate.share, trial_count, confidence_level),
    }
    error = float(np.sqrt(np.mean((estimate.share - exact) ** 2)))
    divisor = exact if exact > 0 else np.nan
    return [
        {
            "interval": name,
            "covered_share": float(np.mean((below <= exact) & (exact <= above))),
            "relative_width_ratio": float(np.mean(above - below)) / 2 / divisor,
            "relative_rmse_ratio": error / divisor,
        }
        for name, (below, above) in ends.items()
    ]


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
        Inputs to judge every site on; all if dropped.

    Returns
    -------
    Injections
        A campaign of its own name, with the weights of its design.

    Raises
    ------
    InjectionError
        If there are fewer sites than requested, or a stratum or component does not exist.
    WorkbenchError
        If site_count or input_count is not a whole number from 1.

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
    grouped = groups(table, _known(columns), truth.parameters)
    labels = grouped.labels if columns else [""]
    codes, _ = cell_codes(truth)
    stratum_of = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int32)
    stratum_of[table["code"]] = grouped.code
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
        names_told = ", ".join(map(str, table["component"].unique()))
        msg = f"component={component!r} has no sites; there are {names_told}"
        raise InjectionError(msg)
    return kept


def _wanted(site_count: int | pd.DataFrame, labels: list[str]) -> list[int]:
    if not isinstance(site_count, pd.DataFrame):
        total = whole_number("site_count", site_count, least=1)
        per_stratum, more = divmod(total, len(labels))
        return [per_stratum + (number < more) for number in range(len(labels))]
    tables.INJECTION_ALLOCATION.check(site_count)
    plan = dict(zip(site_count["stratum"], site_count["site_count"], strict=True))
    if strange := sorted(set(plan) - set(labels)):
        msg = f"stratum {strange[0]!r} is none of by=...: e.g. {labels[0]!r}"
        raise InjectionError(msg)
    return [int(plan.get(label, 0)) for label in labels]


def _judged(drawn: pd.DataFrame, every: int, used: int, rng: np.random.Generator) -> Any:
    sdc, due = (drawn[f"{name}_count"].to_numpy(dtype="int64") for name in ("sdc", "due"))
    if used == every:
        return sdc, due, used
    sdc_drawn = rng.hypergeometric(sdc, every - sdc, used)
    # DUE come from the inputs that SDC left over, so that both never exceed those used.
    others_right = np.where(every > sdc, used - sdc_drawn, 0)
    return sdc_drawn, rng.hypergeometric(due, every - sdc - due, others_right), used


def _bundle(truth: ExhaustiveInjections, drawn: pd.DataFrame, counts: Any, seed: int) -> Injections:
    sdc, due, used = counts
    every = inputs_of(truth)
    name = f"{truth.campaign['campaign_id'].iloc[0]}, {len(drawn)} sites, seed {seed}"
    design = "uniform" if drawn["stratum"].isna().all() else "stratified"
    head = {"campaign_id": name, "design": design, "seed": seed, "input_count": used}
    campaign = truth.campaign.astype({"design": object}).assign(**head)
    by_tensor = truth.parameters.drop_duplicates("param").set_index("param")
    dtypes = drawn["param"].astype(object).map(by_tensor["dtype"])
    pairs = zip(dtypes, drawn["bit"], strict=True)
    faults = _filled(tables.FAULTS, len(drawn)) | {
        "bit_role": [bit_role(dtype, int(bit)) for dtype, bit in pairs],
        "campaign_id": name, "exp_id": np.arange(len(drawn)), "flip": 0,
        **{n: drawn["param"].astype(object).map(by_tensor[n].astype(object)) for n in by_tensor
           if n in _PLACES},
        **{n: drawn[n] for n in ("param", "elem", "bit", "stratum", "inclusion_weight")},
    }  # fmt: skip
    outcomes = _filled(tables.OUTCOMES, len(drawn)) | {
        "campaign_id": name, "exp_id": np.arange(len(drawn)), "input_count": used,
        "sdc_count": sdc, "due_count": due,
    }  # fmt: skip
    return Injections(
        tables.CAMPAIGN.of(campaign),
        tables.FAULTS.of(faults),
        tables.OUTCOMES.of(outcomes),
        tables.TRIALS.empty(),
        truth.parameters.assign(campaign_id=name),
        _quality(name, every, used, len(drawn)),
    )


def _filled(table: tables.Table, size: int) -> dict[str, Any]:
    return {name: pd.Series([None] * size, dtype=object) for name in table.columns}


def _quality(name: str, every: int, used: int, size: int) -> pd.DataFrame:
    if used == every:
        return tables.QUALITY.empty()
    row = {
        "source": name,
        "finding": "assumed",
        "what": f"which {used:,} of {every:,} inputs is not known: wrong ones were drawn by chance",
        "count": size,
        "where": None,
    }
    return tables.QUALITY.of(pd.DataFrame([row]).astype({"finding": "category", "where": object}))
