"""Explore fault injection: vulnerability factors, protection and sample sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench._shared.fixed_injections import FixedInjections, is_enough
from workbench.errors import WorkbenchError
from workbench.explore.live import Chunks, LiveExplorer
from workbench.explore.panel import ALL, Explorer, choice, chosen_rows, numbers, slider
from workbench.tables import ExhaustiveInjections, Injections, as_source

Found: TypeAlias = tuple[pd.DataFrame, ...]

# Explore how many sites to inject for a wanted error: planned, and while they come in.

_ERRORS = (0.02, 0.05, 0.1, 0.2, 0.5)
_LEVELS = (0.8, 0.9, 0.95, 0.99)
_DESIGNS, _GROWING = "designs", "growing"
_VIEWS = (("sites that each design needs", _DESIGNS), ("estimate while sites come in", _GROWING))
_SITES = range(500, 6_001, 500)
_LOOKS = 60


def injection_sample_sizes(
    injections: Injections | ExhaustiveInjections,
    chunks: Chunks | None = None,
    *,
    start: Injections | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose the wanted error and confidence; see how many sites that takes.

    One view plans: the sites that each design needs. The other follows the estimate and its
    intervals while sites come in, up to where they are good enough. Starts at ±10 % of the factor
    with 95 % confidence.

    Controls above :func:`workbench.plot.injection_sample_sizes` and
    :func:`workbench.plot.pvf_running`. With ``chunks`` a LiveExplorer with the buttons
    *Inject* and *Stop*, whose ``found`` holds the outcomes of what was injected.

    Parameters
    ----------
    injections
        Results to plan from and to follow; or every fault of a model, from which samples are
        drawn, so that intervals are seen beside the true value.
    chunks
        Makes an iterator that injects and gives the outcomes of one chunk after another, e.g.
        ``lambda: inject.running(model, inputs, faults, settings=settings)``. Called when
        *Inject* is pressed.
    start
        Campaign whose faults ``chunks`` injects, where ``injections`` is every fault.
    source, synthetic
        Where they come from, e.g. model and inputs; whether the inputs were generated.

    Raises
    ------
    WorkbenchError
        If there is something to inject and no campaign whose faults these are.
    """
    truth = injections if isinstance(injections, ExhaustiveInjections) else None
    samples = _Samples(truth, injections if isinstance(injections, Injections) else start)
    planned = analyze.injection_sample_sizes(
        injections, relative_error=_ERRORS, confidence_level=_LEVELS
    )

    def draw(*, view: str, error: float, level: float, found: Found = (), **of: Any) -> go.Figure:
        if view == _DESIGNS:
            wanted = (planned["error_kind"] == "absolute") | (planned["error"] == error)
            rows = planned[wanted & (planned["confidence_level"] == level)]
            return plot.injection_sample_sizes(rows, source=source, synthetic=synthetic)
        looks, exact = samples.looks(level, found, **of)
        return plot.pvf_running(
            looks.assign(is_enough=is_enough(looks, error)),
            truth=exact,
            source=as_source(source).joined("injected just now") if found else source,
            synthetic=synthetic,
        )

    controls: dict[str, widgets.ValueWidget] = {
        "view": widgets.Dropdown(
            options=_VIEWS, value=_GROWING if chunks else _DESIGNS, description="show"
        ),
        "error": slider("good enough at", [(f"±{100 * e:g} %", e) for e in _ERRORS], 0.1),
        "level": slider("confidence", [(f"{100 * value:g} %", value) for value in _LEVELS], 0.95),
    }
    if truth is not None:
        names = list(dict.fromkeys(truth.parameters["component"]))
        controls["component"] = widgets.Dropdown(
            options=names, value=samples.component or names[-1], description="component"
        )
        controls["seed"] = numbers("seed", (1, 2), 1)
    explorer: Explorer
    if chunks is None:
        explorer = Explorer(draw, **controls)
    else:
        count = samples.own.faults["exp_id"].nunique()
        explorer = LiveExplorer(draw, chunks, total_count=count, **controls)
    of_samples = [name for name in controls if name in ("component", "seed")]
    return explorer.inert(**dict.fromkeys(of_samples, lambda values: values["view"] == _DESIGNS))


def _drawn(truth: ExhaustiveInjections, component: str, seed: int, level: float) -> pd.DataFrame:
    return analyze.interval_funnel(
        truth, component=component, site_counts=_SITES, seed=seed, confidence_level=level
    )


class _Samples:
    """What sites told so far: those injected now, drawn from a truth, or of a campaign."""

    def __init__(self, truth: ExhaustiveInjections | None, campaign: Injections | None) -> None:
        self.truth, self.campaign = truth, campaign
        hit = [] if campaign is None else list(campaign.faults["component"].unique())
        self.component = str(hit[0]) if len(hit) == 1 else None
        self.drawn, self.whole = cache(_drawn), cache(partial(self.followed, found=()))

    @property
    def own(self) -> Injections:
        """The campaign, which must be there if it is injected."""
        if self.campaign is None:
            msg = "pass start=, the campaign whose faults chunks injects"
            raise WorkbenchError(msg)
        return self.campaign

    def looks(
        self, level: float, found: Found, component: str | None = None, seed: float = 1
    ) -> tuple[pd.DataFrame, float | None]:
        """Return the looks at a sample, and the true value where it is known."""
        if found:
            component = self.component
        drawn = None
        if self.truth is not None and component is not None:
            drawn = self.drawn(self.truth, component, int(seed), level)
        exact = None if drawn is None else float(drawn["truth"].iloc[0])
        if found:
            return self.followed(level, found), exact
        return self.whole(level) if drawn is None else drawn, exact

    def followed(self, level: float, found: Found) -> pd.DataFrame:
        shown = self.own
        if found:
            name = str(shown.campaign["campaign_id"].iloc[0])
            outcomes = pd.concat(found, ignore_index=True).assign(campaign_id=name)
            shown = replace(shown, outcomes=outcomes)
        every = max(len(shown.outcomes) // _LOOKS, 1)
        return analyze.pvf_running(shown, every=every, confidence_level=level)


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

    Controls above :func:`workbench.plot.pvf`.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
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

    Controls above :func:`workbench.plot.pvf_by_bit`.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
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

    Controls above :func:`workbench.plot.pvf_protection`.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
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
