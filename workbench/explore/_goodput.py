"""Explore goodput under failures: inputs, and the size of the job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.explore.panel import Explorer, numbers, slider
from workbench.tables import GOODPUT_INPUTS, Source, as_source

_CONVENTIONS = (("one failure per interval", "interval"), ("failures at random", "poisson"))
_MINUTES = (2, 4, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 90, 120)
_SIZES = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 49_152, 65_536, 98_304, 131_072, 200_000)


# Around a measured value: from a quarter of it to four times as much.
_AROUND = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
# Without a measurement nothing is gained: the smallest number of replicas, and no stall.
_UNMEASURED = {"recovery_min": 10.0, "replicas": 2.0, "stall_min": 0.0}


@dataclass(frozen=True)
class Measured:
    """Inputs as a log tells them, where controls start; what it does not state is assumed."""

    inputs: dict[str, float]
    source: Source
    synthetic: bool

    @classmethod
    def of(cls, start: pd.DataFrame | None, source: str, *, synthetic: bool) -> Measured | None:
        """Read :data:`workbench.tables.GOODPUT_INPUTS`; None for the published case."""
        if start is None:
            return None
        rows = GOODPUT_INPUTS.check(start)
        values = dict(zip(rows["quantity"], rows["value"].astype(float), strict=True))
        return cls(values, as_source(source), synthetic)

    def value(self, name: str, default: float | None = None) -> float:
        """Return a measured value to three digits, as it is read, or what is assumed for it."""
        if name in self.inputs:
            return float(f"{self.inputs[name]:.3g}")
        return _UNMEASURED.get(name, 0.0) if default is None else default

    def control(
        self, label: str, name: str, *, otherwise: Iterable[float] = (), start: float | None = None
    ) -> widgets.Widget:
        """Offer values around a measured one, or assumed ones, which the label says."""
        at = self.value(name, start)
        is_measured = name in self.inputs and at > 0
        offered = [float(f"{at * factor:.3g}") for factor in _AROUND] if is_measured else otherwise
        return numbers(f"{label}, {'measured' if name in self.inputs else 'assumed'}", offered, at)

    def job(self) -> FaultTolerance:
        """Return the job with the measured inputs."""
        return FaultTolerance(
            recovery_min=self.value("recovery_min"),
            stall_min=self.value("stall_min"),
            replicas=int(self.value("replicas")),
        )

    def label(self, words: str) -> dict[str, Any]:
        """Name the model and the log that its inputs are from, for the foot of a figure."""
        return {"source": self.source.joined(words), "synthetic": self.synthetic}


_MODEL = {"source": Source("closed form", "model"), "synthetic": False}
_REPLICAS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96)


def goodput(
    job: FaultTolerance | None = None,
    *,
    failure_interval_min: float = 18,
    start: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move failure interval, recovery, stall and replicas; see where the GPU time goes.

    Starts at the inputs of a log, else at the published case: a failure every 18 min, 12 replicas.

    Controls above :func:`workbench.plot.goodput`, of the synchronous job and of the one
    with replicas.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.
    failure_interval_min
        Where the control of the failure interval starts, in minutes.
    start
        Table :data:`workbench.tables.GOODPUT_INPUTS` of :func:`workbench.analyze.goodput_inputs`,
        used instead of ``job``. Labels say which inputs were measured and which are assumed.
    source, synthetic
        Where ``start`` comes from, and whether it was generated; the figure says both.
    """
    stalls = np.arange(0, 10.5, 0.5)
    counted = widgets.Dropdown(options=_CONVENTIONS, description="failures counted as")
    if measured := Measured.of(start, source, synthetic=synthetic):
        base = measured.job()
        return Explorer(
            partial(_draw_goodput, base=base, label=measured.label("closed form")),
            interval=measured.control("time between failures [min]", "failure_interval_min"),
            recovery=measured.control("recovery [min]", "recovery_min", otherwise=range(0, 31, 2)),
            stall=measured.control("global stall [min]", "stall_min", otherwise=stalls),
            replicas=measured.control("replicas", "replicas", otherwise=_REPLICAS),
            convention=counted,
        )
    base = job or FaultTolerance()
    return Explorer(
        partial(_draw_goodput, base=base, label=_MODEL),
        interval=numbers("time between failures [min]", _MINUTES, failure_interval_min),
        recovery=numbers("recovery [min]", range(31), base.recovery_total_min),
        stall=numbers("global stall [min]", stalls, base.stall_total_min),
        replicas=numbers("replicas", _REPLICAS, base.replicas),
        convention=counted,
    )


def goodput_at_scale(
    job: FaultTolerance | None = None,
    *,
    reference_gpus: int = 98_304,
    failure_interval_min: float = 18,
    start: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move the size of the job, from a thousand to 200,000 GPUs; read off both ways to train.

    Controls above :func:`workbench.plot.goodput_at_scale`.

    Parameters
    ----------
    job
        How the job answers a failure at ``reference_gpus``; the published case by default.
    reference_gpus
        Size at which ``job`` and ``failure_interval_min`` hold.
    failure_interval_min
        Mean time between failures at that size, in minutes.
    start
        Table :data:`workbench.tables.GOODPUT_INPUTS` with ``gpu_count``, used instead; the sizes
        are then from an eighth to 64 times the measured one.
    source, synthetic
        Where ``start`` comes from, and whether it was generated; the figure says both.

    Raises
    ------
    WorkbenchError
        If ``start`` does not state the number of GPUs.
    """
    label: dict[str, Any] = {"synthetic": False}
    sizes, grows = list(_SIZES), 0.84
    if measured := Measured.of(start, source, synthetic=synthetic):
        if "gpu_count" not in measured.inputs:
            msg = "the log does not state the number of GPUs; give job= and reference_gpus= instead"
            raise WorkbenchError(msg)
        job, reference_gpus = measured.job(), int(measured.inputs["gpu_count"])
        failure_interval_min, grows = measured.value("time_to_failure_min"), 0.0
        sizes = [max(round(reference_gpus * 2.0**power), 1) for power in range(-3, 7)]
        label = measured.label("closed form")
    sizes = sorted({*sizes, int(reference_gpus)})
    counts = sorted({*sizes, *np.geomspace(min(sizes), max(sizes), 30).astype(int).tolist()})
    words = f"closed form; {failure_interval_min:g} min between failures at {reference_gpus:,} GPUs"
    label = {"source": Source(words, "model")} | label
    base = job or FaultTolerance()

    def draw(
        *, gpus: int, rate: float, recovery: float, convention: analyze.Convention
    ) -> go.Figure:
        table = analyze.goodput_at_scale(
            counts, base, reference_gpus=reference_gpus,
            failure_interval_min=failure_interval_min, convention=convention,
            rate_exponent=rate, recovery_exponent=recovery,
        )  # fmt: skip
        return plot.goodput_at_scale(table, at_gpus=gpus, **label)

    growths = [("with the nodes", 1.0), ("faster, as published (1.95)", 1.95)]
    recoveries = [("as published (0.84)", 0.84), ("not at all", 0.0)]
    return Explorer(
        draw,
        gpus=slider("GPUs", [(f"{size:,}", size) for size in sizes], int(reference_gpus)),
        rate=widgets.Dropdown(options=growths, description="failures grow"),
        recovery=widgets.Dropdown(options=recoveries, value=grows, description="recovery grows"),
        convention=widgets.Dropdown(
            options=_CONVENTIONS, value="poisson", description="failures counted as"
        ),
    )


def _draw_goodput(
    *,
    interval: float,
    recovery: float,
    stall: float,
    replicas: float,
    convention: analyze.Convention,
    base: FaultTolerance,
    label: dict[str, Any],
) -> go.Figure:
    job = replace(
        base,
        recovery_min=_scaled(base.phases, recovery),
        stall_min=_scaled(base.stall_phases, stall),
        replicas=int(replicas),
    )
    cases = {"full restart": job.synchronous(), f"{int(replicas)} replicas fail alone": job}
    tables: dict[str, pd.DataFrame] = {}
    refusal = ""
    for name, case in cases.items():
        try:
            tables[name] = analyze.goodput(
                case, failure_interval_min=interval, convention=convention
            )
        except WorkbenchError as error:
            refusal = str(error)
    if not tables:
        raise WorkbenchError(refusal)
    return plot.goodput(tables, **label)


def _scaled(phases: dict[str, float], total: float) -> float | dict[str, float]:
    before = sum(phases.values())
    if len(phases) < 2 or not before:
        return total
    return {name: minutes * total / before for name, minutes in phases.items()}


def goodput_windows(
    failure_times: pd.DataFrame,
    *,
    horizon_min: float,
    replicas: int = 1,
    start: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Replay a log beside failures that come at random equally often.

    Controls above :func:`workbench.plot.goodput_windows` and :func:`workbench.plot.goodput`.
    The twin has as many failures on average, at random times and on random nodes.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES` of a log, for as many ``replicas``.
    horizon_min
        Length of the log, in minutes.
    replicas
        Replicas that the failures were mapped to.
    start
        Table :data:`workbench.tables.GOODPUT_INPUTS`: the recovery starts as measured.
    source, synthetic
        Where the log comes from, and whether it was generated; the figure says both.
    """
    within = failure_times["time_min"].between(0, horizon_min, inclusive="left")
    count = int((within & ~failure_times["is_follow_on"]).sum())
    process = simulate.FailureProcess(
        failure_interval_min=horizon_min / max(count, 1), node_count=max(replicas, 1)
    )
    columns = [name for name in failure_times.columns if name.endswith("_min")]
    untouched = failure_times.assign(**dict.fromkeys({*columns} - {"time_min"}, 0.0))

    @cache
    def twin(recovery: float) -> pd.DataFrame:
        return simulate.failure_times(
            process, horizon_min=horizon_min, seed=1, runs=20, replicas=replicas,
            recovery_min=recovery,
        )  # fmt: skip

    def draw(*, view: Any, recovery: float, stall: float) -> go.Figure:
        job = FaultTolerance(recovery_min=recovery, stall_min=stall, replicas=replicas)
        cases = {"the log": untouched.assign(other_min=recovery)}
        cases["its Poisson twin (20 runs)"] = twin(recovery)
        if view == "states":
            tables = {
                name: analyze.goodput_mean(
                    analyze.goodput_replay(case, job, horizon_min=horizon_min)
                )
                for name, case in cases.items()
            }
            return plot.goodput(tables, source=source, synthetic=synthetic)
        windows = {
            name: analyze.goodput_windows(case, job, horizon_min=horizon_min, window_min=view)
            for name, case in cases.items()
        }
        return plot.goodput_windows(windows, source=source, synthetic=synthetic)

    hours = [hour for hour in (1, 6, 24, 168) if 120 * hour < horizon_min]
    views = [("where the time goes", "states"), *((f"windows of {h} h", 60.0 * h) for h in hours)]
    view = max((60.0 * hour for hour in hours if hour <= 24), default="states")
    minutes = (2, 5, 10, 20)
    if measured := Measured.of(start, source, synthetic=synthetic):
        controls = [
            measured.control("recovery [min]", "recovery_min", otherwise=minutes),
            measured.control("global stall [min]", "stall_min", otherwise=(0, 1, 3)),
        ]
    else:
        controls = [
            numbers("recovery [min]", minutes, 10),
            numbers("global stall [min]", (0, 1, 3), 3),
        ]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, value=view, description="view"),
        recovery=controls[0],
        stall=controls[1],
    )
