"""Explore fault injection: vulnerability factors, protection and sample sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench._shared.fixed_injections import FixedInjections, is_enough
from workbench.errors import WorkbenchError
from workbench.explore.live import Chunks, LiveExplorer
from workbench.explore.panel import ALL, Explorer, choice, chosen_rows, numbers, slider
from workbench.tables import ExhaustiveInjections, Injections, as_source

# Explore how many sites to inject for a wanted error.

_ERRORS = (0.02, 0.05, 0.1, 0.2, 0.5)
_LEVELS = (0.8, 0.9, 0.95, 0.99)


def injection_sample_sizes(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the wanted error and confidence; see how many sites each design needs.

    Starts at ±10 % of the factor with 95 % confidence.

    Parameters
    ----------
    injections
        Results to plan from: of a pilot campaign, or the truth of one that injected every fault.
    source, synthetic
        Where they come from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.injection_sample_sizes`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> truth = load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")
    >>> explorer = injection_sample_sizes(truth, source="pvf-truth", synthetic=True)
    >>> print(explorer.title())
    embeddings needs 59,180 sites by design Neyman, 21,675,763 by uniform
    """
    table = analyze.injection_sample_sizes(
        injections, relative_error=_ERRORS, confidence_level=_LEVELS
    )

    def draw(*, error: float, level: float) -> go.Figure:
        wanted = (table["error_kind"] == "absolute") | (table["error"] == error)
        rows = table[wanted & (table["confidence_level"] == level)]
        return plot.injection_sample_sizes(rows, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        error=slider("error of the factor", [(f"±{100 * e:g} %", e) for e in _ERRORS], 0.1),
        level=slider("confidence", [(f"{100 * value:g} %", value) for value in _LEVELS], 0.95),
    )


# Explore how far a sample of injections can be trusted, drawn from a truth that is known.

_STEP, _STEPS = 500, 12


def interval_funnel(
    truth: ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Inject 500 sites more; see the intervals close in on the truth, or miss it.

    Nothing is injected: a sample that grows is drawn from the truth, another with every seed.

    Parameters
    ----------
    truth
        Every single-bit fault of a model.
    source, synthetic
        Where the truth comes from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.interval_funnel`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> truth = load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")
    >>> explorer = interval_funnel(truth, source="pvf-truth", synthetic=True)
    >>> print(explorer.title())
    6 of 6 looks cover the true value with sites as the sample, 1 with inputs as independent
    """
    counts = [_STEP * (1 + step) for step in range(_STEPS)]
    components = list(dict.fromkeys(truth.parameters["component"]))

    @cache
    def table(component: str, seed: int) -> pd.DataFrame:
        return analyze.interval_funnel(truth, component=component, site_counts=counts, seed=seed)

    def draw(*, component: Any, sites: float, seed: float) -> go.Figure:
        rows = table(str(component), int(seed))
        rows = rows[rows["site_count"] <= sites]
        return plot.interval_funnel(rows, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        component=widgets.Dropdown(
            options=components, value=components[-1], description="component"
        ),
        sites=slider("sites injected", [(f"{value:,}", value) for value in counts], 6 * _STEP),
        seed=numbers("seed", (1, 2), 1),
    )


# Explore how vulnerable the parts of a model are, under each rule of averaging and counting.

_AVERAGES = ("bits", "parameters", "tensors", "layers")
_POLICIES = (
    ("count as wrong", "wrong"),
    ("are left to a detector", "due"),
    ("are dropped", "ignore"),
)
_GROUPS = (("component", "component"), ("role of the bit", "bit_role"), ("tensor", "param"))


def not_finite() -> widgets.Dropdown:
    """Offer the ways to count outputs that are not finite."""
    return widgets.Dropdown(options=_POLICIES, description="outputs not finite")


def pvf(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose groups, what weighs the same and how outputs not finite count; see the factors.

    Starts with the components, every bit weighing the same: what a random upset does.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pvf`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> injections = load.injections(datasets.path("pvf-demo") / "components" / "dlrm")
    >>> explorer = pvf(injections, source="pvf-demo", synthetic=True)
    >>> print(explorer.title())
    Highest: top, 0.759 % of faulty inferences go wrong; next bottom, 0.631 %
    """
    fixed = FixedInjections.of(injections)

    @cache
    def table(by: str, average: Any, nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf(fixed, average=average, by=(by,), nan_policy=nan_policy)

    def draw(*, by: str, average: str, nan_policy: str) -> go.Figure:
        return plot.pvf(table(by, average, nan_policy), source=source, synthetic=synthetic)

    return Explorer(
        draw,
        by=widgets.Dropdown(options=_GROUPS, description="groups"),
        average=widgets.Dropdown(options=_AVERAGES, description="equal weight for"),
        nan_policy=not_finite(),
    )


def pvf_by_bit(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a component and how outputs not finite count; see which bits of what hurt.

    Starts with a row per component; of one component every tensor is shown.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pvf_by_bit`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> injections = load.injections(datasets.path("pvf-demo") / "components" / "dlrm")
    >>> explorer = pvf_by_bit(injections, source="pvf-demo", synthetic=True)
    >>> print(explorer.title())
    Bit 30 of top is worst: 23.9 % go wrong; 19 bits never do harm
    """
    parameters = injections.parameters.drop_duplicates("param")
    dtypes = parameters["dtype"].unique()
    dtype = str(dtypes[0]) if len(dtypes) == 1 else None

    fixed = FixedInjections.of(injections)

    @cache
    def table(rows: Any, nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf_by_bit(fixed, rows=rows, nan_policy=nan_policy)

    def draw(*, component: str, nan_policy: str) -> go.Figure:
        rows = table("component" if component == ALL else "param", nan_policy)
        if component != ALL:
            of_component = parameters.loc[parameters["component"] == component, "param"]
            rows = rows[rows["param"].isin(of_component)]
        return plot.pvf_by_bit(rows, dtype=dtype, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        component=choice("component", parameters["component"].unique()),
        nan_policy=not_finite(),
    )


# Explore what protecting the most harmful parts first removes.

_UNITS = (("elements", "elements"), ("bits of one place", "bits"), ("tensors", "tensors"))


def pvf_protection(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the part of the model and what is protected in it; see what that removes.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pvf_protection`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> injections = load.injections(datasets.path("pvf-demo") / "components" / "dlrm")
    >>> explorer = pvf_protection(injections, source="pvf-demo", synthetic=True)
    >>> print(explorer.title())
    Protecting 100 % of the elements removes 100 % of the wrong outputs
    """
    fixed = FixedInjections.of(injections)

    @cache
    def table(unit: Any) -> pd.DataFrame:
        return analyze.pvf_protection(fixed, unit=unit)

    def draw(*, unit: str, part: str) -> go.Figure:
        rows = chosen_rows(table(unit), group=part)
        return plot.pvf_protection(rows, source=source, synthetic=synthetic)

    groups = [name for name in table("bits")["group"].unique() if name != ALL]
    return Explorer(
        draw,
        unit=widgets.Dropdown(options=_UNITS, description="protect"),
        part=choice("part of the model", groups),
    )


# Inject while the estimate is watched, and stop when it is good enough.

_LOOKS = 60
_PVF_RUNNING_ERRORS = (0.05, 0.1, 0.2, 0.3, 0.5)


def pvf_running(
    start: Injections,
    chunks: Chunks | None = None,
    *,
    faults: pd.DataFrame | None = None,
    truth: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> LiveExplorer:
    """Press a button to inject; watch the estimate and its interval settle, and stop.

    Starts with results that are there already, so that there is a picture without PyTorch.
    Choose the error that is good enough.

    Parameters
    ----------
    start
        A campaign that is done, or one that ``analyze.truth_sample`` draws; shown until
        something is injected.
    chunks
        Makes an iterator that injects and gives the outcomes of one chunk after another, e.g.
        ``lambda: injections.running(model, inputs, faults, settings=settings)``. It is called
        when the button is pressed.
    faults
        Table :data:`workbench.tables.FAULTS` of what ``chunks`` injects; the faults of
        ``start`` if dropped. Both follow the same rules.
    truth
        The exhaustive factor, where it is known; drawn as a line.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Returns
    -------
    LiveExplorer
        A control and the buttons *Inject* and *Stop* above :func:`workbench.plot.pvf_running`.
        ``explorer.found`` holds the outcomes of what was injected.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> truth = load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")
    >>> start = analyze.truth_sample(truth, 2_000, seed=1)
    >>> explorer = pvf_running(start, source="pvf-truth", synthetic=True)
    >>> print(explorer.title())
    2,000 sites: 0.0634 % go wrong (0.0214 to 0.145 %), not yet good enough to stop
    """
    # The campaign that is injected now is described as the one that is done.
    name = str(start.campaign["campaign_id"].iloc[0])
    live = replace(
        start, faults=(start.faults if faults is None else faults).assign(campaign_id=name)
    )
    label = {"truth": truth, "source": source, "synthetic": synthetic}
    return LiveExplorer(
        partial(_draw, of_start=cache(partial(_looks, start)), live=live, name=name, label=label),
        chunks or _nothing,
        total_count=live.faults["exp_id"].nunique(),
        wanted=slider(
            "good enough at ±",
            [(f"{100 * value:g} %", value) for value in _PVF_RUNNING_ERRORS],
            0.2,
        ),
    )


def _nothing() -> Iterator[pd.DataFrame]:
    msg = (
        "there is nothing to inject into; pass chunks, e.g. "
        "lambda: injections.running(model, inputs, faults)"
    )
    raise WorkbenchError(msg)


def _draw(
    *,
    wanted: float,
    found: tuple[pd.DataFrame, ...],
    of_start: Callable[[], pd.DataFrame],
    live: Injections,
    name: str,
    label: dict[str, Any],
) -> go.Figure:
    if found:
        outcomes = pd.concat(found, ignore_index=True).assign(campaign_id=name)
        looks = _looks(replace(live, outcomes=outcomes))
        label = label | {"source": as_source(label["source"]).joined("injected just now")}
    else:
        looks = of_start()
    return plot.pvf_running(looks.assign(is_enough=is_enough(looks, wanted)), **label)


def _looks(shown: Injections) -> pd.DataFrame:
    return analyze.pvf_running(shown, every=max(len(shown.outcomes) // _LOOKS, 1))
