"""A campaign that grows, beside the true value; and how sites are shared out over strata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import tables
from workbench._shared.numbers import share_between, whole_number
from workbench.analyze._pvf import cluster_intervals as intervals
from workbench.analyze._pvf.groups import rules_told
from workbench.analyze._pvf.parts import component_names
from workbench.analyze._pvf.truth_cells import inputs_of, wrong_counts
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections

_FUNNEL = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)


class Part(NamedTuple):
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


# A truth has millions of sites: sorted once, they serve every seed as long as the truth is there.
# The sums tell whether somebody has changed its counts since.
_SORTED: WeakKeyDictionary[ExhaustiveInjections, tuple[list[int], dict[str, Part]]]
_SORTED = WeakKeyDictionary()


def parts_of(truth: ExhaustiveInjections, component: str | None = None) -> list[Part]:
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


def _sorted_parts(truth: ExhaustiveInjections) -> dict[str, Part]:
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
        components[name] = Part(labels[name], count[order], start, exact, inputs)
    return components


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
    truth
        Every fault of a model.
    seed
        Of the draws.
    confidence_level
        Confidence that the intervals claim.
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
    for number, faults in enumerate(parts_of(truth, component)):
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
