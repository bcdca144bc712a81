"""How often an interval covers the true value, where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import tables
from workbench._shared.numbers import share_between, whole_number, wilson
from workbench.analyze._pvf import cluster_intervals as intervals
from workbench.analyze._pvf.cluster_intervals import Estimates
from workbench.analyze._pvf.groups import bit_role, groups, rules_told
from workbench.analyze._pvf.parts import component_names
from workbench.analyze._pvf.truth_cells import BITS, cell_codes, cells, inputs_of, wrong_counts
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections

_PILOT = 20
_FUNNEL = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
# Shares drawn at once: 32 MB of doubles, however many repeats there are.
_AT_ONCE = 4_000_000


class _Part(NamedTuple):
    label: str
    wrong: NDArray[Any]
    """Wrong inputs per site, the sites of a bit side by side."""
    start: NDArray[np.int64]
    """Where each bit starts, and the end."""
    exact: float
    input_count: int

    @property
    def weight(self) -> NDArray[np.float64]:
        """Share of the sites that each bit has."""
        return np.asarray(np.diff(self.start) / self.start[-1])


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
        Table :data:`workbench.tables.INTERVAL_COVERAGE`: by component, for sites drawn alike
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
    for component in _parts(truth):
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
    return tables.INTERVAL_COVERAGE.of(rows)


# A truth has millions of sites: sorted once, they serve every seed as long as the truth is there.
# The sums tell whether somebody has changed its counts since.
_SORTED: WeakKeyDictionary[ExhaustiveInjections, tuple[list[int], dict[str, _Part]]]
_SORTED = WeakKeyDictionary()


def _parts(truth: ExhaustiveInjections, component: str | None = None) -> list[_Part]:
    sums = [int(truth.sites[name].to_numpy().sum()) for name in ("sdc_count", "due_count")]
    kept, by_name = _SORTED.get(truth, (None, {}))
    if kept != sums:
        by_name = _sorted_parts(truth)
        _SORTED[truth] = sums, by_name
    if component is None:
        return [*by_name.values()]
    if component not in by_name:
        msg = f"component={component!r} has no sites; there are {', '.join(by_name)}"
        raise InjectionError(msg)
    return [by_name[component]]


def _sorted_parts(truth: ExhaustiveInjections) -> dict[str, _Part]:
    inputs = inputs_of(truth)
    param = truth.sites["param"].cat
    home = truth.parameters.drop_duplicates("param").set_index("param")["component"]
    of_code = home.reindex(param.categories).to_numpy(dtype=object)
    codes, bits = param.codes.to_numpy(), truth.sites["bit"].to_numpy()
    hit = set(of_code[np.bincount(codes, minlength=len(of_code)) > 0])
    names = [name for name in home.dropna().unique() if name in hit]
    if not names:
        msg = "the truth has no sites to draw from"
        raise InjectionError(msg)
    wrong, labels = wrong_counts(truth), component_names(truth)
    components = {}
    for name in names:
        inside = (of_code == name)[codes]
        bits_inside, count = bits[inside], wrong[inside]
        order = np.argsort(bits_inside, kind="stable")
        start = np.append(0, np.cumsum(np.bincount(bits_inside)))
        exact = float(count.mean()) / inputs
        components[name] = _Part(labels[name], count[order], start, exact, inputs)
    return components


def _uniform(
    component: _Part, sites: int, repeats: int, inputs: tuple[int, int], rng: np.random.Generator
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
    component: _Part, sites: int, repeats: int, inputs: tuple[int, int], rng: np.random.Generator
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


def _drawn(component: _Part, bit: int, count: Any, every: int, rng: np.random.Generator) -> Any:
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


def interval_funnel(
    truth: ExhaustiveInjections,
    *,
    component: str | None = None,
    site_counts: Sequence[int] = _FUNNEL,
    seed: int = 0,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Follow the estimate and both its intervals while one campaign grows.

    Parameters
    ----------
    truth, seed, confidence_level
        As for :func:`interval_coverage`.
    component
        Part of the model; each of them if dropped.
    site_counts
        Sites after which to look; the sites of one look are among those of the next.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INTERVAL_FUNNEL`, one row per component and look.

    Raises
    ------
    InjectionError
        If the component does not exist.
    WorkbenchError
        If a number is out of range.

    Notes
    -----
    Sites are drawn alike and with repetition, judged on all inputs; intervals as in :func:`pvf`.
    """
    looks = sorted({whole_number("site_counts", count, least=2) for count in site_counts})
    share_between("confidence_level", confidence_level)
    samples = []
    for number, faults in enumerate(_parts(truth, component)):
        inputs = faults.input_count
        rng = np.random.default_rng([seed, number])
        share = faults.wrong[rng.integers(0, len(faults.wrong), looks[-1])] / inputs
        at, ones = np.array(looks), np.ones(len(share))
        trials = at * float(inputs)
        table = intervals.running_intervals(share, ones, at, trials, confidence_level)
        samples.append(table.assign(group=faults.label, truth=faults.exact))
    result = pd.concat(samples, ignore_index=True).assign(**rules_told(truth.campaign.iloc[0]))
    return tables.INTERVAL_FUNNEL.of(result)


# A stratum without events in the pilot may have some.
LEAST_SPREAD = 1e-4
LEAST_SITES = 2


def neyman(weight: Any, spread: Any, site_count: int) -> NDArray[np.int64]:
    """Share out sites by stratum weight times spread; strata along the last axis.

    Every stratum gets two; what rounding leaves goes to the largest remainders, so that the
    numbers add up.
    """
    worth = np.asarray(weight, dtype=float) * (np.asarray(spread, dtype=float) + LEAST_SPREAD)
    left = site_count - LEAST_SITES * worth.shape[-1]
    exact = max(left, 0) * worth / worth.sum(axis=-1, keepdims=True)
    floor = np.floor(exact)
    missing = max(left, 0) - floor.sum(axis=-1, keepdims=True)
    # argsort of argsort gives ranks: the largest remainders are 0, 1, 2, ...
    turn = np.argsort(np.argsort(floor - exact, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.asarray(floor + (turn < missing) + LEAST_SITES, dtype=np.int64)


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
