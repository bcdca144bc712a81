"""Job logs and power telemetry in memory, with troubles of chosen size and their true cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from data.make._fleet.program import SECOND
from workbench._shared.numbers import Flags, Floats, Ints
from workbench.tables import (
    FAILURES,
    LOGGED_SPANS,
    LOGGED_STEPS,
    NODE_SPANS,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
    POWER_STATES,
    QUALITY,
    TIMELINE,
    FailureLog,
    JobLog,
    PowerLog,
)

LOG_TROUBLES = (
    "checkpoints", "evaluations", "start-up", "unexplained time", "slower steps", "outlier steps",
    "interruption",
)  # fmt: skip

_IDLE_W = 90.0
POWER_TROUBLES = (
    "power cap", "throttling", "low power", "power swing", "idle GPU", "silent meter", "unused GPU",
)  # fmt: skip
_START_NS = 1_768_204_800 * SECOND
_STEPS, _FIRST_CAPPED, _CAPPED = 240, 90, 80
_LIMIT_W, _CLOCK_MHZ, _POWER_CAP, _THERMAL = 700.0, 1_830.0, 0x4, 0x20
# Of what a healthy run spends on start, checkpoints, evaluations and between steps.
_START_SHARE, _SAVE_SHARE, _TEST_SHARE, _GAP_SHARE = 0.004, 0.003, 0.004, 0.003


@dataclass(frozen=True)
class LoggedJob:
    """A job log, what failed during it, and the true costs of its troubles [s]."""

    job: JobLog
    failures: FailureLog | None
    costs_s: Mapping[str, float]
    run_s: float
    node: str


def logged_job(troubles: Mapping[str, float], *, seed: int) -> LoggedJob:
    """Make the log of a job of a few hundred steps."""
    random = np.random.default_rng([seed, 11])
    length = random.uniform(1.0, 20.0) * (1 + random.uniform(0.002, 0.02)
                                          * random.standard_normal(_STEPS))  # fmt: skip
    run = float(length.sum())
    node = f"node{random.integers(1, 33):03}"
    slower, costs = _slower(troubles, run, random)
    pauses = _pauses(troubles, run)
    costs |= {name: float(times.sum()) for name, (_, times) in pauses.items() if name in troubles}
    spans = [("run", 1, 0.0, np.nan)]
    # Before each step: the spans that the log names, and what it does not name.
    before = sum(times for _, times in pauses.values()) + np.zeros(_STEPS)
    end = np.cumsum(before + length + slower)
    start = end - length - slower
    for kind, times in pauses.values():
        at = np.flatnonzero(times)
        spans += [(kind, 1, start[n] - times[n], start[n]) for n in at if kind]
    steps = [(n, 1, start[n], end[n]) for n in range(_STEPS)]
    failures = None
    if "interruption" in troubles:
        steps, spans, failed, cost = _interrupted(steps, spans, troubles["interruption"] * run)
        costs["interruption"] = cost
        failures = _failure(failed, node)
    last = steps[-1][3]
    return LoggedJob(_job_log(steps, spans, last), failures, costs, last, node)


def _slower(
    troubles: Mapping[str, float], run: float, random: np.random.Generator
) -> tuple[Floats, dict[str, float]]:
    """Return the time that troubles add to each step, and the cost of each [s]."""
    costs: dict[str, float] = {}
    slower = np.zeros(_STEPS)
    if "slower steps" in troubles:
        first = int(random.integers(_STEPS // 5, _STEPS // 2))
        slower[first:] = troubles["slower steps"] * run / (_STEPS - first)
        costs["slower steps"] = float(slower.sum())
    if "outlier steps" in troubles:
        hit = random.choice(_STEPS, int(random.integers(2, 9)), replace=False)
        slower[hit] += troubles["outlier steps"] * run / len(hit)
        costs["outlier steps"] = troubles["outlier steps"] * run
    if "power cap" in troubles:
        slower[_FIRST_CAPPED : _FIRST_CAPPED + _CAPPED] += troubles["power cap"] * run / _CAPPED
        costs["power cap"] = troubles["power cap"] * run
    return slower, costs


def _pauses(troubles: Mapping[str, float], run: float) -> dict[str, tuple[str, Floats]]:
    """Return what stops the job before every step: the name in the log, and the time [s]."""
    usual = {
        "start-up": ("initialisation", _START_SHARE, [0]),
        "checkpoints": ("checkpoint", _SAVE_SHARE, range(40, _STEPS, 40)),
        "evaluations": ("evaluation", _TEST_SHARE, range(100, _STEPS, 100)),
        "unexplained time": ("", _GAP_SHARE, range(1, _STEPS)),
    }
    pauses = {}
    for name, (kind, share, at) in usual.items():
        times = np.zeros(_STEPS)
        times[list(at)] = (share + troubles.get(name, 0.0)) * run / len(at)
        pauses[name] = kind, times
    return pauses


_Row = tuple[int, int, float, float]
_Span = tuple[str, int, float, float]


def _interrupted(
    steps: list[_Row], spans: list[_Span], cost: float
) -> tuple[list[_Row], list[_Span], float, float]:
    """Stop the job after some step; half of the cost is work since a checkpoint."""
    stop = _STEPS * 2 // 3
    length = steps[stop][3] - steps[stop][2]
    # Whole steps are repeated; what is left of the cost is the restart.
    again = min(round(cost / 2 / length), 30)
    back = stop - again
    failed = steps[stop - 1][3]
    restart = max(cost - again * length, 0.2 * length)
    shift = failed + restart - steps[back][2]
    later = [(n, 2, s + shift, e + shift) for n, _, s, e in steps[back:]]
    kept = [span for span in spans if not span[2] >= failed]
    moved = [(kind, 2, s + shift, e + shift) for kind, _, s, e in spans[1:] if s >= steps[back][2]]
    repeated = sum(e - s for _, _, s, e in steps[back:stop])
    # The pauses between the repeated steps are lost as well.
    kept.append(("restart", 2, failed, failed + restart))
    return steps[:stop] + later, kept + moved, failed, restart + repeated


def _job_log(steps: list[_Row], spans: list[_Span], last_s: float) -> JobLog:
    table = pd.DataFrame(steps, columns=["step", "attempt", "start_s", "end_s"])
    named = pd.DataFrame(spans, columns=["kind", "attempt", "start_s", "end_s"])
    named["end_s"] = named["end_s"].fillna(last_s)
    named = named.sort_values(["start_s", "kind"], ignore_index=True)
    frames = []
    for frame, kind in ((table, LOGGED_STEPS), (named, LOGGED_SPANS)):
        frames.append(
            frame.assign(
                start_ns=_ns(frame["start_s"]), end_ns=_ns(frame["end_s"]), line=frame.index + 1,
                source="synthetic.log",
            ).reindex(columns=list(kind.columns))
        )  # fmt: skip
    return JobLog(LOGGED_STEPS.cast(frames[0]), LOGGED_SPANS.cast(frames[1]), QUALITY.empty())


def _ns(seconds: pd.Series | Floats) -> Ints:
    return np.asarray(np.rint(np.asarray(seconds) * SECOND), dtype=np.int64) + _START_NS


def _failure(at_s: float, node: str) -> FailureLog:
    at = int(_ns(np.array([at_s]))[0])
    row = {
        "start_ns": at, "end_ns": at, "clock": "epoch", "node": node, "kind": "xid", "code": "79",
        "cause": "GPU has fallen off the bus", "category": "gpu", "severity": "fatal",
        "rank_count": 0, "line_count": 1, "source": "synthetic.log", "line": 1,
    }  # fmt: skip
    texts = {name: [""] for name in ("other_codes", "devices", "ranks", "text", "assumed")}
    table = pd.DataFrame([row]).assign(**texts).reindex(columns=list(FAILURES.columns))
    return FailureLog(
        FAILURES.cast(table.astype(object).where(table.notna(), None)), TIMELINE.empty(),
        NODE_SPANS.empty(), QUALITY.empty(),
    )  # fmt: skip


@dataclass(frozen=True)
class MeteredJob:
    """Power telemetry of the GPUs of a job, and the true costs of its troubles."""

    power: PowerLog
    gpu: str
    costs: Mapping[str, float]


def metered_job(
    troubles: Mapping[str, float], *, seed: int, ranks: int, job: JobLog | None = None
) -> MeteredJob:
    """Make the telemetry of every GPU, one reading a second, while a job runs."""
    random = np.random.default_rng([seed, 12])
    count = 600
    if job is not None:
        count = int((job.steps["end_ns"].max() - _START_NS) // SECOND)
    period = max(count / 900, 1.0)
    time = np.arange(0, count, period)
    shape = (ranks, len(time))
    own = 1 + 0.02 * random.standard_normal((ranks, 1)).clip(-2, 2)
    watts = random.uniform(450, 620) * own + random.uniform(3, 12) * random.standard_normal(shape)
    busy = np.full(shape, 0.97)
    clock, reasons = np.full(shape, _CLOCK_MHZ), np.zeros(shape, dtype=np.int64)
    heat = random.uniform(55, 68) + 2 * random.standard_normal((ranks, 1)) + np.zeros(shape)
    hit = int(random.integers(ranks))
    readings = {"power_w": watts, "busy_share": busy, "clock_mhz": clock, "reasons": reasons,
                "temperature_c": heat, "limit_w": np.full(shape, _LIMIT_W)}  # fmt: skip
    if "power cap" in troubles and job is not None:
        capped = _within(time, job, _FIRST_CAPPED, _FIRST_CAPPED + _CAPPED)
        clock[hit, capped] *= 1 - 2 * min(troubles["power cap"], 0.3)
        reasons[hit, capped] |= _POWER_CAP
    costs = _hit(troubles, readings, hit, time, random)
    # Collectors lose single readings; a silent meter loses all for a while.
    known = random.random(shape) > random.uniform(0.0, 0.02)
    if "silent meter" in troubles:
        known[hit, 60 : 60 + round(troubles["silent meter"] * len(time))] = False
    return MeteredJob(_power_log(time, period, readings, known), _gpu(hit), costs)


def _hit(
    troubles: Mapping[str, float], readings: Mapping[str, NDArray[Any]], hit: int, time: Floats,
    random: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
    """Change the readings in place as troubles do; give what these cost."""
    watts, clock, busy = (readings[name] for name in ("power_w", "clock_mhz", "busy_share"))
    costs = {}
    if "throttling" in troubles:
        is_hot = random.random(len(time)) < troubles["throttling"]
        readings["reasons"][hit, is_hot] |= _THERMAL
        readings["temperature_c"][hit] += 15
        costs["throttling"] = float(is_hot.mean())
    if "low power" in troubles:
        watts[hit] *= 1 - troubles["low power"]
        clock[hit] *= 1 - troubles["low power"] / 2
        means = watts.mean(axis=1)
        costs["low power"] = max(float(1 - means[hit] / np.median(np.delete(means, hit))), 0.0)
    if "power swing" in troubles:
        wave = troubles["power swing"] / 2 * np.sign(np.sin(time / random.uniform(4, 20)))
        costs["power swing"] = troubles["power swing"] * float(watts.sum(axis=0).mean()) / 1e3
        watts *= 1 + wave
    if "idle GPU" in troubles:
        # A GPU that idles shows no lack of power, so the next one does.
        first = hit + ("low power" in troubles)
        costs["idle GPU"] = (
            _idle(watts, busy, troubles["idle GPU"], first) * (time[1] - time[0]) / 3.6e6
        )
    if "unused GPU" in troubles:
        first = int(random.integers(len(time)))
        idle = np.roll(np.arange(len(time)), -first)[: round(troubles["unused GPU"] * len(time))]
        watts[hit, idle], busy[hit, idle] = _IDLE_W, 0.0
        costs["unused GPU"] = len(idle) * float(time[1] - time[0]) / 3600
    return costs


def _within(time: Floats, job: JobLog, first: int, end: int) -> Flags:
    steps = job.steps[(job.steps["step"] >= first) & (job.steps["step"] < end)]
    at = _ns(time)
    return (at >= int(steps["start_ns"].min())) & (at < int(steps["end_ns"].max()))


def _idle(watts: Floats, busy: Floats, share: float, hit: int) -> float:
    """Take the work from whole GPUs and a part of one until idle energy is that share [W]."""
    # GPUs that idle at 90 W give share = 90 n / (90 n + w (all - n)) of the energy.
    mean, cells = float(watts.mean()), watts.size
    count = round(share * mean * cells / (_IDLE_W + share * (mean - _IDLE_W)))
    flat = np.roll(np.arange(cells), -hit * watts.shape[1])[:count]
    watts.ravel()[flat], busy.ravel()[flat] = _IDLE_W, 0.0
    return _IDLE_W * count


def _gpu(number: int) -> str:
    return f"node{number // 8 + 1:03}/gpu{number % 8}"


def _power_log(
    time: Floats, period: float, readings: Mapping[str, NDArray[Any]], known: Flags
) -> PowerLog:
    names = [_gpu(n) for n in range(len(known))]
    row, column = np.nonzero(known)
    stamps = _ns(time)
    frame = pd.DataFrame(
        {
            "time_ns": stamps[column],
            "entity": pd.Categorical.from_codes(row.astype(np.int64), pd.Index(names)),
        }
        | {name: values[row, column] for name, values in readings.items()}
    )
    counts = known.sum(axis=1)
    entities = pd.DataFrame(
        {
            "entity": names, "scope": "gpu", "method": "instant",
            "node": [name.partition("/")[0] for name in names],
            "device": [name.rpartition("gpu")[2] for name in names], "period_s": period,
            "reading_count": counts, "missing_count": known.shape[1] - counts,
            "first_ns": stamps[known.argmax(axis=1)],
            "last_ns": stamps[known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)],
            "clock": "epoch", "assumed": "", "source": "synthetic.csv",
        }
    ).reindex(columns=list(POWER_ENTITIES.columns))  # fmt: skip
    states = frame.reindex(columns=list(POWER_STATES.columns))
    return PowerLog(
        POWER.cast(frame), POWER_ENTITIES.cast(entities), POWER_STATES.cast(states),
        POWER_COUNTERS.empty(), QUALITY.empty(),
    )  # fmt: skip
