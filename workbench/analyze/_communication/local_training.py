"""Training across regions: rates in closed form, losses on a clock, time to a loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from workbench._shared.local_training import (
    IN_ROUNDS,
    SCHEMES,
    LocalTrainingJob,
    Network,
    Scheme,
)
from workbench._shared.numbers import not_negative, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import (
    LOCAL_TRAINING,
    LOCAL_TRAINING_EVENTS,
    LOCAL_TRAINING_LOSSES,
    LOCAL_TRAINING_RATE,
    LOCAL_TRAINING_SWEEP,
    TIME_TO_LOSS,
    Regions,
)

__all__ = ["SCHEMES", "LocalTrainingJob", "Scheme"]

_REFERENCE: Scheme = "HALoS"
# Losses belong to the staleness that they were trained with; a third more or less is another run.
_SAME_STALENESS = 1 / 3


def scaled_regions(
    regions: Regions, *, link_factor: float = 1.0, has_equal_speeds: bool = False
) -> Regions:
    """Change what connects and what slows down regions, for a what-if question.

    Parameters
    ----------
    regions
        From :func:`workbench.load.regions`.
    link_factor
        Bandwidth between regions, times; links inside a region stay.
    has_equal_speeds
        Whether all workers become as fast as the fastest.

    Returns
    -------
    workbench.tables.Regions
        The changed regions.

    Raises
    ------
    WorkbenchError
        If the factor is not above 0.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> own = load.regions(datasets.path("local-training") / "regions.csv")
    >>> scaled_regions(own, link_factor=2)
    Regions: 4 regions, 16 workers, 0.234 to 1.87 Gbit/s between regions
    """
    factor = positive("link_factor", link_factor)
    between = regions.links["from_region"] != regions.links["to_region"]
    bandwidth = regions.links["bandwidth_gbps"].mask(
        between, regions.links["bandwidth_gbps"] * factor
    )
    speed = regions.workers["speed_ratio"]
    return Regions(
        regions.links.assign(bandwidth_gbps=bandwidth),
        regions.workers.assign(speed_ratio=1.0 if has_equal_speeds else speed),
    )


def local_training_rate(regions: Regions, job: LocalTrainingJob | None = None) -> pd.DataFrame:
    """Compare five schemes of training across regions by their clock, in closed form.

    The clock says how many local steps all workers do per second. It says nothing about how much
    the loss falls per step: see :func:`time_to_loss`.

    Parameters
    ----------
    regions
        From :func:`workbench.load.regions`.
    job
        Size of the model, length of a step and settings of the schemes; by default those of the
        examples of HALoS.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOCAL_TRAINING_RATE`, one row per scheme. A model: transfers
        have no latency, and transfers at the same time do not slow each other down.

    Raises
    ------
    WorkbenchError
        If there is no worker, a bandwidth or speed is not above 0, or there are more than 12
        regions.

    Notes
    -----
    With S bytes of parameters, W workers of speed s (fastest 1) and a step of T seconds: a worker
    computes ``n T / s``, where ``n`` is 1 (synchronous), H (DiLoCo) or ``max(1, ceil(H s))``. A
    round of the first three schemes is the longest computation plus an all-reduce
    ``2 (W - 1) / W  8 S / b``, with b the slowest link of the best ring through all regions. A
    round of the last two is a worker's own: computation plus reading from and sending to its
    server, ``8 S / bandwidth`` each; the server is global (Async-Local-SGD) or in its own region
    (HALoS). The capacity is ``sum(s) / T`` steps per second.

    References
    ----------
    HALoS, arXiv:2506.04531; the schemes with which it is compared: DiLoCo, arXiv:2311.08105;
    Async-Local-SGD, arXiv:2401.09135.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> own = load.regions(datasets.path("local-training") / "regions.csv")
    >>> local_training_rate(own)["halos_ratio"].round(2).tolist()
    [89.66, 7.77, 5.21, 1.69, 1.0]
    """
    rows = _rates(Network.of(regions), job or LocalTrainingJob())
    table = pd.DataFrame(rows, columns=list(LOCAL_TRAINING_RATE.columns))
    return LOCAL_TRAINING_RATE.check(LOCAL_TRAINING_RATE.cast(table))


def _rates(network: Network, job: LocalTrainingJob) -> list[tuple[Any, ...]]:
    """Return a row of the table of rates per scheme."""
    rows = []
    for scheme in SCHEMES:
        ticks = network.clock(job, scheme)
        own = ticks.round_s
        whole = np.full(len(own), own.max()) if scheme in IN_ROUNDS else own
        # Of every worker's time, weighted by the steps that it could have done meanwhile.
        used, moved = (
            float(np.average(part / whole, weights=network.speed))
            for part in (ticks.compute_s, ticks.transfer_s)
        )
        rate = float((ticks.steps / whole).sum())
        waited = max(1 - used - moved, 0.0)
        rows.append(
            (scheme, rate, job.step_count / rate, whole.min(), whole.max(), used, moved, waited)
        )
    total_s = rows[SCHEMES.index(_REFERENCE)][2]
    return [(*row, row[2] / total_s) for row in rows]


def local_training_sweep(
    regions: Regions,
    parameter: Literal["link factor", "local steps"],
    values: Sequence[float],
    *,
    job: LocalTrainingJob | None = None,
) -> pd.DataFrame:
    """Vary the links between regions, or the local steps of the schemes other than HALoS.

    Parameters
    ----------
    regions, job
        As for :func:`local_training_rate`.
    parameter
        ``"link factor"`` or ``"local steps"``.
    values
        Its values.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOCAL_TRAINING_SWEEP`: ``parameter``, ``value_ratio``,
        ``scheme``, ``steps_per_s``, ``halos_ratio``.

    Raises
    ------
    WorkbenchError
        If the parameter is none of the two, or a value out of its range.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> own = load.regions(datasets.path("local-training") / "regions.csv")
    >>> table = local_training_sweep(own, "link factor", [4])
    >>> table["halos_ratio"].round(2).tolist()[1:]
    [5.79, 2.09, 1.23, 1.0]
    """
    job = job or LocalTrainingJob()
    if parameter not in (allowed := ("link factor", "local steps")):
        msg = f"parameter must be one of {allowed}, not {parameter!r}"
        raise WorkbenchError(msg)
    network, rows = Network.of(regions), []
    for value in values:
        if parameter == "link factor":
            rates = _rates(network.faster(positive(parameter, value)), job)
        else:
            steps = whole_number(parameter, value, least=1)
            rates = _rates(network, replace(job, local_steps=steps))
        rows += [(parameter, value, row[0], row[1], row[-1]) for row in rates]
    table = pd.DataFrame(rows, columns=list(LOCAL_TRAINING_SWEEP.columns))
    return LOCAL_TRAINING_SWEEP.check(LOCAL_TRAINING_SWEEP.cast(table))


def local_training(losses: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Put losses by local step on the clock of some regions.

    Parameters
    ----------
    losses
        Table :data:`workbench.tables.LOCAL_TRAINING_LOSSES`, e.g. the bundled ones of a small
        model.
    events
        Table :data:`workbench.tables.LOCAL_TRAINING_EVENTS` of every scheme in ``losses``, for
        one's own regions.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOCAL_TRAINING`: ``scheme``, ``seed``, ``step_count``,
        ``time_s``, ``loss``, ``model``, ``doubt``. In doubt is a scheme whose mean staleness here
        differs by more than a third from that of the training runs: its loss per step is then a
        guess.

    Raises
    ------
    WorkbenchError
        If a scheme has no events, or fewer local steps than losses.

    Examples
    --------
    >>> local_training(LOCAL_TRAINING_LOSSES.empty(), LOCAL_TRAINING_EVENTS.empty()).empty
    True
    """
    LOCAL_TRAINING_LOSSES.check(losses)
    LOCAL_TRAINING_EVENTS.check(events)
    tables = []
    for scheme, runs in losses.groupby("scheme", observed=True, sort=False):
        rows = events[events["scheme"] == scheme]
        # Servers of regions hold steps that the global model lacks until they are pushed.
        counted = rows[rows["event"] == ("push" if scheme == "HALoS" else "update")]
        total = counted["step_count"].cumsum().to_numpy()
        last = int(runs["step_count"].max())
        # The last exchange of a run may carry more steps than were left.
        if not len(total) or total[-1] < 0.99 * last:
            msg = (
                f"{scheme}: the events hold {total[-1] if len(total) else 0:,} local steps, the "
                f"losses {last:,}; simulate.local_training of this scheme with as many is needed"
            )
            raise WorkbenchError(msg)
        time = np.interp(runs["step_count"], np.r_[0, total], np.r_[0.0, counted["time_s"]])
        # float64: pandas 2 keeps the mean of Int64 a number that may be NA.
        here = rows.loc[rows["event"] == "update", "staleness_count"].astype("float64").mean()
        tables.append(runs.assign(time_s=time, doubt=_doubt(runs["staleness_count"].mean(), here)))
    return LOCAL_TRAINING.joined(tables)


def _doubt(trained: float, here: float) -> str:
    if abs(here - trained) <= _SAME_STALENESS * max(trained, 1.0):
        return ""
    return f"loss per step was trained at a mean staleness of {trained:.1f}, here it is {here:.1f}"


def time_to_loss(
    curves: pd.DataFrame, levels: Iterable[float] | None = None, *, reference: Scheme = "HALoS"
) -> pd.DataFrame:
    """Find when each scheme first reaches loss levels, and split the ratio of two schemes.

    A ratio of times is a ratio of clocks (seconds per local step) times a ratio of steps (local
    steps to the same loss). Neither is one number: both depend on the level.

    Parameters
    ----------
    curves
        Table :data:`workbench.tables.LOCAL_TRAINING`.
    levels
        Loss levels; by default eight, 0.1 apart, down to the lowest one that all runs reach.
    reference
        Scheme with which the others are compared, seed by seed.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TIME_TO_LOSS`. Intervals are lowest and highest of the
        seeds; a level that some run of a scheme does not reach has neither.

    Raises
    ------
    WorkbenchError
        If there is no run of the reference, or a level is not a number from 0.

    Notes
    -----
    The level is reached between two evaluations, by linear interpolation of the lowest loss so
    far; so time and steps of one run are those of the same instant.

    Examples
    --------
    >>> curves = pd.DataFrame({
    ...     "scheme": pd.Categorical(["HALoS"] * 2 + ["DiLoCo"] * 2), "seed": np.int32(0),
    ...     "step_count": [0, 100] * 2, "time_s": [0.0, 10, 0, 80], "loss": [4.0, 2, 4, 2],
    ...     "model": pd.Categorical(["made up"] * 4), "doubt": "",
    ... })
    >>> time_to_loss(curves, [3.0])[["scheme", "time_ratio", "step_ratio", "clock_ratio"]].values
    array([['HALoS', 1.0, 1.0, 1.0],
           ['DiLoCo', 8.0, 1.0, 8.0]], dtype=object)
    """
    LOCAL_TRAINING.check(curves)
    if not (curves["scheme"] == reference).any():
        msg = f"the curves hold no run of {reference!r}; choose another reference="
        raise WorkbenchError(msg)
    if levels is None:
        least = float(curves.groupby(["scheme", "seed"], observed=True)["loss"].min().max())
        levels = np.ceil(20 * least) / 20 + np.arange(8) / 10
    levels = [not_negative("a level", level) for level in levels]
    groups = curves.groupby(["scheme", "seed"], observed=True, sort=False)
    reached = [_reached(rows, levels) for _, rows in groups]
    runs = pd.concat(reached, ignore_index=True)
    base = runs[runs["scheme"] == reference]
    runs = runs.merge(base, on=["loss", "seed"], how="left", suffixes=("", "_base"))
    for name, column in (("time", "time_s"), ("step", "step_count")):
        runs[name] = runs[column] / runs[f"{column}_base"]
    rows = [
        _summary(group) for _, group in runs.groupby(["loss", "scheme"], observed=True, sort=False)
    ]
    table = pd.DataFrame(rows).assign(reference=reference)
    return TIME_TO_LOSS.check(TIME_TO_LOSS.cast(table))


def _reached(run: pd.DataFrame, levels: list[float]) -> pd.DataFrame:
    """Return time and steps at which a run first reaches each level; missing if it never does."""
    ordered = run.sort_values("step_count", kind="stable")
    fall = -np.minimum.accumulate(ordered["loss"].to_numpy())
    targets = np.negative(levels)
    after = np.searchsorted(fall, targets)
    is_never = after == len(fall)
    after = np.where(is_never, 0, after)
    before = np.maximum(after - 1, 0)
    # A level above the first loss is reached at once.
    rise = np.where(after > 0, fall[after] - fall[before], np.inf)
    part = (targets - fall[before]) / rise
    columns = {}
    for name in ("time_s", "step_count"):
        values = ordered[name].to_numpy(dtype=np.float64)
        at = values[before] + part * (values[after] - values[before])
        columns[name] = np.where(is_never, np.nan, at)
    same = {name: run[name].iloc[0] for name in ("scheme", "seed", "model", "doubt")}
    return pd.DataFrame({"loss": levels, **columns}).assign(**same)


def _summary(runs: pd.DataFrame) -> dict[str, Any]:
    known = runs.dropna(subset=["time_s"])
    names = ("loss", "scheme", "model", "doubt")
    row: dict[str, Any] = {name: runs[name].iloc[0] for name in names}
    row |= {"run_count": len(runs), "seed_count": len(known)}
    # An interval over the runs that happen to arrive would hide those that do not.
    whole = known if len(known) == len(runs) else known.iloc[:0]
    row |= {"time_s": whole["time_s"].median(), "low_s": whole["time_s"].min()}
    row |= {"high_s": whole["time_s"].max(), "step_count": whole["step_count"].median()}
    for name in ("time", "step"):
        row[f"{name}_ratio"] = whole[name].median()
        row[f"low_{name}_ratio"], row[f"high_{name}_ratio"] = whole[name].min(), whole[name].max()
    return row | {"clock_ratio": (whole["time"] / whole["step"]).median()}
