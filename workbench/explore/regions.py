"""Explore training across regions: which scheme, how many local steps, over which links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import LocalTrainingJob
from workbench.explore.panel import Explorer, numbers
from workbench.tables import Regions, Source

_FACTORS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16)
_LOCAL_STEPS, _HALOS_STEPS = (4, 8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 16, 32)
_AROUND = (0.25, 0.5, 1, 2, 4, 16)
_VIEWS = (("time of the workers", "rate"), ("links", "link factor"), ("local steps", "local steps"))


def local_training_rate(
    regions: Regions,
    job: LocalTrainingJob | None = None,
    *,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move links, local steps, size of the model and speeds; see the fastest scheme and why.

    Starts at the regions and the job as they are.

    Parameters
    ----------
    regions
        From :func:`workbench.load.regions`.
    job
        Size of the model, length of a step and settings of the schemes; by default those of the
        examples of HALoS.
    source, synthetic
        Where the regions come from, printed under the figure; whether they were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.local_training_rate` and
        :func:`workbench.plot.local_training_sweep`.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> regions = load.regions(datasets.path("local-training") / "regions.csv")
    >>> explorer = local_training_rate(regions, source="links of the paper")
    >>> print(explorer.title())
    Fastest clock: HALoS, 40.3 min; 1.69 times as long with Async-Local-SGD and 5.21 times as long
    with DiLoCo dynamic
    """
    base = job or LocalTrainingJob()
    origin = source or Source("closed form", "model")
    label: dict[str, Any] = {"source": origin, "synthetic": synthetic}

    def draw(
        *,
        view: Literal["rate", "link factor", "local steps"],
        link: float,
        speeds: bool,
        local_steps: float,
        halos_steps: float,
        size: float,
    ) -> go.Figure:
        changed = analyze.scaled_regions(regions, link_factor=link, has_equal_speeds=speeds)
        asked = replace(
            base,
            local_steps=int(local_steps),
            halos_steps=int(halos_steps),
            # Twice the parameters take twice the time to compute and to transfer.
            parameter_count=max(round(base.parameter_count * size), 1),
            step_s=base.step_s * size,
        )
        if view == "rate":
            return plot.local_training_rate(analyze.local_training_rate(changed, asked), **label)
        values = _FACTORS if view == "link factor" else _LOCAL_STEPS
        table = analyze.local_training_sweep(changed, view, values, job=asked)
        return plot.local_training_sweep(table, **label)

    return Explorer(
        draw,
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        link=numbers("links between regions, times", _FACTORS, 1),
        speeds=widgets.Dropdown(
            options=[("as given", False), ("all as the fastest", True)], description="speeds"
        ),
        local_steps=numbers("local steps, others", _LOCAL_STEPS, base.local_steps),
        halos_steps=numbers("local steps, HALoS", _HALOS_STEPS, base.halos_steps),
        size=numbers("model and step, times", _AROUND, 1),
    )
