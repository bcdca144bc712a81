"""Explore goodput under failures: inputs, size, checkpoints, spares, and a log replayed."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider
from workbench.explore._panel import Explorer

_CONVENTIONS = (("one failure per interval", "interval"), ("failures at random", "poisson"))
_MINUTES = (2, 4, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 90, 120)
_SIZES = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 49_152, 65_536, 98_304, 131_072, 200_000)
_SWEPT = {
    "replicas": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
    "stall_min": tuple(np.arange(0, 10.5, 0.5).tolist()),
    "recovery_min": tuple(np.arange(0, 31.0, 1.0).tolist()),
    "failure_interval_min": tuple(np.geomspace(4, 400, 30).round(2).tolist()),
}


def goodput(job: FaultTolerance | None = None, *, failure_interval_min: float = 18) -> Explorer:
    """Move failure interval, recovery, stall and replicas; see where the GPU time goes.

    Starts at the published case: a failure every 18 min, 12 replicas.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.
    failure_interval_min
        Where the control of the failure interval starts, in minutes.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.goodput`, of the synchronous job and of the one
        with replicas.
    """
    start = job or FaultTolerance()
    return Explorer(
        partial(_draw_goodput, base=start),
        interval=_of("time between failures [min]", _MINUTES, failure_interval_min),
        recovery=_of("recovery [min]", range(31), start.recovery_total_min),
        stall=_of("stall of all [min]", np.arange(0, 10.5, 0.5), start.stall_total_min),
        rejoin=_of("stall at re-join [min]", (0, 0.5, 1, 1.5, 2, 3, 5), start.rejoin_min),
        replicas=_of("replicas", (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96), start.replicas),
        convention=widgets.Dropdown(options=_CONVENTIONS, description="counted"),
    )


def goodput_sweep(job: FaultTolerance | None = None) -> Explorer:
    """Choose the input that is varied, stall and recovery; see the productive share.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.goodput_sweep`.
    """
    start = job or FaultTolerance()
    names = {"replicas": "replicas", "stall_min": "stall", "recovery_min": "recovery"}
    names["failure_interval_min"] = "time between failures"
    return Explorer(
        partial(_draw_sweep, base=start),
        parameter=widgets.Dropdown(
            options=[(words, name) for name, words in names.items()], description="varied"
        ),
        stall=_of("stall of all [min]", (0, 1, 1.5, 2, 3, 4, 6), start.stall_total_min),
        recovery=_of("recovery [min]", (2, 5, 10, 15, 20), start.recovery_total_min),
    )


def goodput_at_scale(
    job: FaultTolerance | None = None,
    *,
    reference_gpus: int = 98_304,
    failure_interval_min: float = 18,
) -> Explorer:
    """Move the size of the job from a thousand to 200,000 GPUs; read off both ways to train.

    Parameters
    ----------
    job
        How the job answers a failure at ``reference_gpus``; the published case by default.
    reference_gpus
        Size at which ``job`` and ``failure_interval_min`` hold.
    failure_interval_min
        Mean time between failures at that size, in minutes.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.goodput_at_scale`.
    """
    sizes = sorted({*_SIZES, int(reference_gpus)})
    draw = partial(
        _draw_scale,
        job=job or FaultTolerance(),
        reference=reference_gpus,
        interval=failure_interval_min,
        sizes=sizes,
    )
    return Explorer(
        draw,
        gpus=slider("GPUs", [(f"{each:,}", each) for each in sizes], int(reference_gpus)),
        rate=widgets.Dropdown(
            options=[("with the nodes", 1.0), ("faster, as published (1.95)", 1.95)],
            description="failures grow",
        ),
        recovery=widgets.Dropdown(
            options=[("as published (0.84)", 0.84), ("not at all", 0.0)],
            description="recovery grows",
        ),
        convention=widgets.Dropdown(options=_CONVENTIONS, value="poisson", description="counted"),
    )


def checkpoint_curve(
    *, failure_interval_min: float = 180, recovery_min: float = 5, write_min: float = 1
) -> Explorer:
    """Move failure interval, recovery and writing time; find the best checkpoint interval.

    Parameters
    ----------
    failure_interval_min
        Where its control starts, in minutes.
    recovery_min
        Where its control starts, in minutes.
    write_min
        Where its control starts, in minutes.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.checkpoint_curve`.
    """
    return Explorer(
        _draw_checkpoints,
        interval=_of(
            "time between failures [min]", (18, 30, 60, 120, 180, 360, 720), failure_interval_min
        ),
        write=_of("writing one [min]", (0.1, 0.25, 0.5, 1, 2, 5), write_min),
        recovery=_of("recovery [min]", (1, 5, 10, 20), recovery_min),
    )


def expected_ettr() -> Explorer:
    """Move failure rate, restart and checkpoint interval; see where the formula fails.

    Starts at the rate of Meta's RSC-1 cluster.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.expected_ettr`.
    """
    return Explorer(
        _draw_ettr,
        rate=_of("failures per 1,000 node-days", (1, 2.34, 3.79, 6.5, 10), 6.5),
        restart=_of("restart [min]", (2, 5, 10, 20), 10),
        interval=_of("checkpoint interval [min]", (2, 5, 15, 30, 60), 60),
    )


def spares(
    job: FaultTolerance | None = None, *, failure_interval_min: float = 18, seed: int = 1
) -> Explorer:
    """Move repair time, failure interval and replicas; see how many spare nodes are enough.

    Every redraw draws failures over 27 days and replays them.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.
    failure_interval_min
        Where its control starts, in minutes.
    seed
        Seed of the failures.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.spares`.
    """
    start = job or FaultTolerance()
    return Explorer(
        partial(_draw_spares, base=start, seed=seed),
        repair=_of("repair [days]", (0.5, 1, 2), 2),
        interval=_of("time between failures [min]", (18, 30, 60, 120), failure_interval_min),
        replicas=_of("replicas", (1, 6, 12, 24), start.replicas),
    )


def goodput_windows(
    failure_times: pd.DataFrame,
    *,
    horizon_min: float,
    replicas: int = 1,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Replay a log beside failures that come at random equally often.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES` of a log, for as many ``replicas``.
    horizon_min
        Length of the log, in minutes.
    replicas
        Replicas that the failures were mapped to.
    source
        Where the log comes from; printed under the figure.
    synthetic
        Whether the log was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.goodput_windows` and
        :func:`workbench.plot.goodput`. The twin has as many failures on average, at random
        times and on random nodes.
    """
    within = failure_times["time_min"].between(0, horizon_min, inclusive="left")
    count = int((within & ~failure_times["is_follow_on"]).sum())
    label = {"source": source, "synthetic": synthetic}
    twin = cache(partial(_twin, count=count, horizon_min=horizon_min, replicas=replicas))
    draw = partial(
        _draw_windows, log=failure_times, twin=twin, horizon=horizon_min, replicas=replicas,
        label=label,
    )  # fmt: skip
    lengths = [
        (f"{hours} h", 60.0 * hours) for hours in (1, 6, 24, 168) if 120 * hours < horizon_min
    ]
    views = [("where the time goes", "states"), *((f"windows of {w}", m) for w, m in lengths)]
    start = lengths[-1][1] if lengths else "states"
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, value=start, description="view"),
        recovery=_of("recovery [min]", (2, 5, 10, 20), 10),
        stall=_of("stall of all [min]", (0, 1, 3), 3),
    )


def _of(description: str, values: Any, start: float) -> widgets.Widget:
    """Offer numbers on a line; where it starts is among them."""
    numbers = sorted({*(float(each) for each in values), float(start)})
    return slider(description, [(f"{each:g}", each) for each in numbers], float(start))


def _draw_goodput(
    *,
    interval: float,
    recovery: float,
    stall: float,
    rejoin: float,
    replicas: float,
    convention: analyze.Convention,
    base: FaultTolerance,
) -> go.Figure:
    job = FaultTolerance(
        recovery_min=_scaled(base.phases, recovery),
        stall_min=_scaled(base.stall_phases, stall),
        replicas=int(replicas),
        rejoin_min=rejoin,
    )
    cases = {"all GPUs restart": job.synchronous(), f"{int(replicas)} replicas fail alone": job}
    tables = {}
    refused = ""
    for name, each in cases.items():
        try:
            tables[name] = analyze.goodput(
                each, failure_interval_min=interval, convention=convention
            )
        except WorkbenchError as error:
            refused = str(error)
    if not tables:
        raise WorkbenchError(refused)
    return plot.goodput(tables, source="closed form")


def _scaled(phases: dict[str, float], total: float) -> float | dict[str, float]:
    """Give phases the total that a control asks for."""
    known = sum(phases.values())
    if len(phases) < 2 or not known:
        return total
    return {name: minutes * total / known for name, minutes in phases.items()}


def _draw_sweep(
    *, parameter: str, stall: float, recovery: float, base: FaultTolerance
) -> go.Figure:
    job = FaultTolerance(recovery_min=recovery, stall_min=stall, replicas=base.replicas)
    table = analyze.goodput_sweep(
        job, parameter, _SWEPT[parameter], failure_interval_min=18,
        conventions=("interval", "poisson"),
    )  # fmt: skip
    return plot.goodput_sweep(table, source="closed form, a failure every 18 min")


def _draw_scale(
    *,
    gpus: int,
    rate: float,
    recovery: float,
    convention: analyze.Convention,
    job: FaultTolerance,
    reference: int,
    interval: float,
    sizes: list[int],
) -> go.Figure:
    counts = sorted({*sizes, *np.geomspace(min(sizes), max(sizes), 30).astype(int).tolist()})
    table = analyze.goodput_at_scale(
        counts, job, reference_gpus=reference, failure_interval_min=interval,
        convention=convention, rate_exponent=rate, recovery_exponent=recovery,
    )  # fmt: skip
    source = f"closed form; {interval:g} min between failures at {reference:,} GPUs"
    return plot.goodput_at_scale(table, at_gpus=gpus, source=source)


def _draw_checkpoints(*, interval: float, write: float, recovery: float) -> go.Figure:
    case = {"failure_interval_min": interval, "recovery_min": recovery, "write_min": write}
    curve = analyze.checkpoint_curve(np.geomspace(0.5, max(4 * interval, 60), 60), **case)
    best = analyze.checkpoint_optimum(**case)
    return plot.checkpoint_curve(curve, optimum=best, source="closed form (Daly)")


def _draw_ettr(*, rate: float, restart: float, interval: float) -> go.Figure:
    table = analyze.expected_ettr(
        sorted({*_SIZES, *np.geomspace(512, 200_000, 30).astype(int).tolist()}),
        failures_per_1000_node_days=rate,
        restart_min=restart,
        checkpoint_interval_min=interval,
        write_min=0.5,
    )
    return plot.expected_ettr(table, source="closed form; writing takes 0.5 min")


def _draw_spares(
    *, repair: float, interval: float, replicas: float, base: FaultTolerance, seed: int
) -> go.Figure:
    horizon = 27 * 1440.0
    job = FaultTolerance(
        recovery_min=base.recovery_total_min, stall_min=base.stall_phases, replicas=int(replicas)
    )
    process = simulate.FailureProcess(failure_interval_min=interval, repair_min=repair * 1440)
    drawn = simulate.failure_times(
        process, horizon_min=horizon, seed=seed, runs=2, replicas=int(replicas),
        recovery_min=base.recovery_total_min,
    )  # fmt: skip
    load = repair * 1440 / interval
    counts = sorted({round(load * share) for share in (0.6, 0.8, 0.9, 1, 1.1, 1.2, 1.35, 1.5)})
    table = analyze.spares(drawn, job, counts, horizon_min=horizon)
    source = f"simulated: 27 days, 2 runs, seed {seed}"
    return plot.spares(table, source=source, synthetic=True)


def _twin(recovery: float, *, count: int, horizon_min: float, replicas: int) -> pd.DataFrame:
    process = simulate.FailureProcess(
        failure_interval_min=horizon_min / max(count, 1), node_count=max(replicas, 1)
    )
    return simulate.failure_times(
        process, horizon_min=horizon_min, seed=1, runs=20, replicas=replicas,
        recovery_min=recovery,
    )  # fmt: skip


def _draw_windows(
    *,
    view: Any,
    recovery: float,
    stall: float,
    log: pd.DataFrame,
    twin: Any,
    horizon: float,
    replicas: int,
    label: dict[str, Any],
) -> go.Figure:
    job = FaultTolerance(recovery_min=recovery, stall_min=stall, replicas=replicas)
    columns = [name for name in log.columns if name.endswith("_min") and name != "time_min"]
    logged = log.assign(**dict.fromkeys(columns, 0.0)).assign(other_min=recovery)
    cases = {"the log": logged, "its Poisson twin (20 runs)": twin(recovery)}
    if view == "states":
        tables = {
            name: analyze.goodput_mean(analyze.goodput_replay(each, job, horizon_min=horizon))
            for name, each in cases.items()
        }
        return plot.goodput(tables, **label)
    windows = {
        name: analyze.goodput_windows(each, job, horizon_min=horizon, window_min=view)
        for name, each in cases.items()
    }
    return plot.goodput_windows(windows, **label)
