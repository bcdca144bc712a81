"""Jobs with troubles of chosen size, as the tables that loaders would give, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from data.make._fleet.engine import History
from data.make._fleet.troubled_failures import END_TROUBLES, failure_log
from data.make._fleet.troubled_logs import (
    LOG_TROUBLES,
    POWER_TROUBLES,
    LoggedJob,
    MeteredJob,
    logged_job,
    metered_job,
)
from data.make._fleet.troubled_trace import (
    TRACE_TROUBLES,
    TracedJob,
    cost_ns,
    length_ns,
    run_traced,
    trace_of,
    traced_job,
)
from data.make._imbalance.pipeline_job import CAUSES, pipeline_job, refuse_strengths
from data.make._truth import TROUBLE_TRUTH
from workbench.tables import Bundle

_PIPELINE_SHAPE = (4, 4, 8, 4)
# Of two stages and many micro-batches, so that a healthy job has no bubble to speak of.
_HEALTHY_SHAPE = (4, 2, 16, 4)
# The size of a cause that makes a pipelined job about that much slower.
_PIPELINE_SIZES = {
    "slow worker": lambda share: 1 + 1.1 * share,
    "last stage": lambda share: 1 + 1.1 * share,
    "sequence lengths": lambda share: 1.2 * share,
    "pauses": lambda share: 1 + 40 * share,
    "slow network": lambda share: 1 + 400 * share,
}
_PIPELINE = {f"pipeline: {cause}": cause for cause in CAUSES}

TROUBLES: Mapping[str, tuple[str, ...]] = {
    "traces": TRACE_TROUBLES,
    "job logs": LOG_TROUBLES,
    "power logs": POWER_TROUBLES,
    "failure logs": END_TROUBLES,
    "job operations": tuple(_PIPELINE),
}
"""What :func:`data.make.troubled_job` can put into a job, by the data it shows in.

The strength of a trouble is its cost as a share of the healthy job, but for these: a wrong clock,
its offset as a share of the step; throttling and a silent meter, the share of readings; low power,
the share that a GPU lacks; a power swing, its share of the mean; an idle GPU, the share of energy;
an unused GPU, the share of its time; an end, the share of the log that the run which it ended took.
"""


@dataclass(frozen=True)
class TroubledJob:
    """The tables of a job, and table TROUBLE_TRUTH: its troubles with their true costs."""

    bundle: Bundle
    truth: pd.DataFrame


def troubled_job(
    troubles: Mapping[str, float] | None = None, *, seed: int, ranks: int = 8, steps: int = 8
) -> TroubledJob:
    """Make the tables of a synthetic job with troubles of chosen strength, and their true cost.

    Nothing is written, so hundreds of jobs take a minute; that is what measuring the rules behind
    :func:`workbench.analyze.findings` needs. A job without troubles has what healthy jobs have:
    kernel times that vary, ranks that are late by chance, clocks that disagree by microseconds,
    GPUs that draw unequal power, and lost readings.

    Parameters
    ----------
    troubles
        Strength of each trouble, by name: any of :data:`data.make.TROUBLES`, which says
        what the strengths are. The kinds of data that the troubles show in are made; without
        troubles all of them.
    seed
        Seed of all that is random: sizes, noise, and which rank, GPU or host is hit.
    ranks
        GPUs of the traced and of the metered job; even, from 2.
    steps
        Steps in the trace.

    Returns
    -------
    TroubledJob
        ``bundle`` (:class:`workbench.tables.Bundle`) and ``truth``
        (:data:`data.make.TROUBLE_TRUTH`, one row per trouble).

    Raises
    ------
    ValueError
        If a trouble is unknown, a strength is not a finite number above 0, or a size is not
        possible.

    Notes
    -----
    The cost of a trouble of a trace is the length of the job minus that of the same job, with the
    same noise, without it. Exposed communication is the time that the job would save if all
    transfers took none; slow launches are the idle time of the median GPU, without the waiting of
    ranks for one another that comes on top.

    Examples
    --------
    >>> job = troubled_job({"slow rank": 0.1}, seed=1, ranks=4)
    >>> job.truth[["trouble", "where", "cost_unit"]].to_dict("records")
    [{'trouble': 'slow rank', 'where': 'rank 2', 'cost_unit': 'ms per step'}]
    """
    given = dict(troubles or {})
    _check(given, ranks, steps)
    rows: list[dict[str, object]] = []
    parts: dict[str, object] = {}
    if not given or set(given) & set(TRACE_TROUBLES):
        chosen = {name: size for name, size in given.items() if name in TRACE_TROUBLES}
        job = traced_job(chosen, seed=seed, ranks=ranks, steps=steps)
        history = run_traced(job)
        parts["trace"] = trace_of(history)
        rows += [_traced_row(history, job, *pair) for pair in chosen.items()]
    if not given or set(given) & {*LOG_TROUBLES, *POWER_TROUBLES}:
        logged = logged_job(given, seed=seed)
        metered = metered_job(given, seed=seed, ranks=ranks, job=logged.job)
        parts |= {"job": logged.job, "failures": logged.failures, "power": metered.power}
        rows += [
            _logged_row(logged, metered, *pair)
            for pair in given.items()
            if pair[0] in {*LOG_TROUBLES, *POWER_TROUBLES}
        ]
    ends = [name for name in given if name in END_TROUBLES]
    if ends or not given:
        log, where = failure_log(given, seed=seed)
        # The failure of an interrupted job stands in a log of its own.
        parts["failures"] = parts.get("failures") or log
        rows += [_row(name, given[name], given[name], where=where) for name in ends]
    causes = {_PIPELINE[name]: size for name, size in given.items() if name in _PIPELINE}
    if causes or not given:
        sizes = {name: _PIPELINE_SIZES[name](size) for name, size in causes.items()}
        shape = _PIPELINE_SHAPE if causes else _HEALTHY_SHAPE
        pipelined = pipeline_job(sizes, seed=seed, shape=shape)
        parts["operations"] = pipelined.operations
        rows += _pipeline_rows(pipelined.operations, pipelined.truth, causes)
    return TroubledJob(Bundle(**parts), TROUBLE_TRUTH.of(rows))  # type: ignore[arg-type]


def _check(troubles: Mapping[str, float], ranks: int, steps: int) -> None:
    known = [name for names in TROUBLES.values() for name in names]
    refuse_strengths("troubles", troubles, known)
    if ranks < 2 or ranks % max(2, ranks // 4) or steps < 1:
        msg = f"ranks={ranks}, steps={steps}: give 2 ranks, or a multiple of 4, and a step at least"
        raise ValueError(msg)


def _row(name: str, size: float, share: float, **known: object) -> dict[str, object]:
    usual: dict[str, object] = {"where": "", "cost": None, "cost_unit": ""}
    return usual | {"trouble": name, "strength_ratio": size, "loss_share": min(share, 1.0)} | known


def _traced_row(history: History, job: TracedJob, name: str, size: float) -> dict[str, object]:
    cost = cost_ns(history, name)
    first = job.hit // job.gpus_per_node * job.gpus_per_node
    where = {
        "slow rank": f"rank {job.hit}",
        "late host": f"rank {job.hit}",
        "wrong clock": f"rank {job.hit}",
        "slow link": f"ranks {first} to {first + job.gpus_per_node - 1}",
    }.get(name, "")
    if name == "wrong clock":
        return _row(name, size, size, where=where)
    once = name == "slow first step"
    return _row(
        name, size, max(cost, 0.0) / length_ns(history), where=where,
        cost=max(cost, 0.0) / 1e6 / (1 if once else job.traced_steps),
        cost_unit="ms once" if once else "ms per step",
    )  # fmt: skip


def _logged_row(
    logged: LoggedJob, metered: MeteredJob, name: str, size: float
) -> dict[str, object]:
    if name in logged.costs_s:
        cost = logged.costs_s[name]
        where = {"interruption": logged.node, "power cap": metered.gpu}.get(name, "")
        unit = "s of the job"
        return _row(name, size, cost / logged.run_s, where=where, cost=cost, cost_unit=unit)
    cost_unit = {"power swing": "kW", "idle GPU": "kWh", "unused GPU": "GPU h"}.get(name, "")
    # Several GPUs may be idle, and all swing.
    where = "" if cost_unit in ("kW", "kWh") else metered.gpu
    if not cost_unit:
        return _row(name, size, metered.costs.get(name, size), where=where)
    return _row(name, size, size, where=where, cost=metered.costs[name], cost_unit=cost_unit)


def _pipeline_rows(
    operations: pd.DataFrame, truth: pd.DataFrame, sizes: Mapping[str, float]
) -> list[dict[str, object]]:
    end = (operations["start_ns"] + operations["dur_ns"]).groupby(operations["step"]).max()
    step_ns = float((end - operations.groupby("step")["start_ns"].min()).mean())
    rows = []
    for row in truth.itertuples():
        lost = 1 - 1 / float(str(row.slowdown_ratio))
        where = {
            "slow worker": f"DP rank {row.dp_rank} stage {row.stage}",
            "last stage": f"stage {row.stage}",
        }.get(str(row.cause), "")
        rows.append(
            _row(f"pipeline: {row.cause}", sizes[str(row.cause)], max(lost, 0.0), where=where,
                 cost=max(lost, 0.0) * step_ns / 1e6, cost_unit="ms per step")
        )  # fmt: skip
    return rows
