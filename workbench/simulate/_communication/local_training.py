"""The clock of training across regions, exchange by exchange."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.local_training import (
    IN_ROUNDS,
    SCHEMES,
    Clock,
    LocalTrainingJob,
    Network,
    Scheme,
)
from workbench.errors import WorkbenchError
from workbench.tables import LOCAL_TRAINING_EVENTS, Regions

_MOST_EVENTS = 5_000_000
_Row = tuple[str, float, float, int, int | None, int, int | None]


def local_training(
    regions: Regions,
    schemes: Scheme | Sequence[Scheme] = SCHEMES,
    job: LocalTrainingJob | None = None,
) -> pd.DataFrame:
    """Run the clock of each scheme until the global server holds all local steps.

    Parameters
    ----------
    regions
        From :func:`workbench.load.regions`.
    schemes
        One or several of ``"synchronous"``, ``"DiLoCo"``, ``"DiLoCo dynamic"`` (local steps by
        speed), ``"Async-Local-SGD"`` and ``"HALoS"``; all by default.
    job
        Size of the model, length of a step and settings of the schemes; by default those of the
        examples of HALoS.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOCAL_TRAINING_EVENTS`, scheme by scheme, in the order of
        their effect. A model: transfers have no latency and do not slow each other down.

    Raises
    ------
    WorkbenchError
        If a scheme is unknown, the regions have no clock, or there would be more than 5 million
        events.

    Notes
    -----
    HALoS: a region pushes when exactly ``updates_per_push`` updates have passed since it last
    took the global model. What its workers do until that model is back is in no push; it lives on
    in the model of the region alone. A run ends when the steps have arrived, not when they are
    done; without any push it ends when twice the steps of the job are done.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> own = load.regions(datasets.path("local-training") / "regions.csv")
    >>> events = local_training(own, "HALoS")
    >>> round(events["time_s"].iloc[-1]), int((events["event"] == "push").sum())
    (2434, 396)
    """
    job = job or LocalTrainingJob()
    network = Network.of(regions)
    names: list[Any] = [schemes] if isinstance(schemes, str) else list(schemes)
    return LOCAL_TRAINING_EVENTS.joined([_of_scheme(network, name, job) for name in names])


def _of_scheme(network: Network, scheme: Scheme, job: LocalTrainingJob) -> pd.DataFrame:
    ticks = network.clock(job, scheme)
    count = job.step_count * len(ticks.steps) / int(ticks.steps.sum())
    if count > _MOST_EVENTS:
        msg = f"about {count:,.0f} events; at most {_MOST_EVENTS:,}: fewer or longer rounds"
        raise WorkbenchError(msg)
    if scheme in IN_ROUNDS:
        table = _in_rounds(ticks, job.step_count)
    else:
        rows = _Servers(ticks, job, is_halos=scheme == "HALoS").run()
        table = pd.DataFrame(rows, columns=list(LOCAL_TRAINING_EVENTS.columns)[1:])
    region = np.array(network.names, dtype=object)[table["region"].to_numpy()]
    return LOCAL_TRAINING_EVENTS.cast(table.assign(scheme=scheme, region=region))


def _in_rounds(ticks: Clock, step_count: int) -> pd.DataFrame:
    rounds = math.ceil(step_count / int(ticks.steps.sum()))
    longest = float(ticks.round_s.max())
    time = np.repeat(np.arange(1, rounds + 1) * longest, len(ticks.steps))
    return pd.DataFrame(
        {
            "event": "update",
            "time_s": time,
            "start_s": time - longest,
            "region": np.tile(ticks.region, rounds),
            "worker": np.tile(np.arange(len(ticks.steps)), rounds),
            "step_count": np.tile(ticks.steps, rounds),
            "staleness_count": 0,
        }
    )


class _Servers:
    """Servers that take updates as they arrive: one for all, or one per region below a global one.

    Lists have an entry per server of a region, or per worker.
    """

    def __init__(self, ticks: Clock, job: LocalTrainingJob, *, is_halos: bool) -> None:
        self.ticks, self.job, self.is_halos = ticks, job, is_halos
        region_count = len(ticks.push_s)
        self.server = ticks.region.tolist() if is_halos else [0] * len(ticks.steps)
        self.steps, self.round_s = ticks.steps.tolist(), ticks.round_s.tolist()
        self.version, self.merged_version = [0] * region_count, [0] * region_count
        self.read_version, self.read_s = [0] * len(self.steps), [0.0] * len(self.steps)
        self.gathered, self.pushed = [0] * region_count, [0] * region_count
        self.global_version, self.counted, self.taken = 0, 0, 0
        # Version and time of the global model that each region merged last, or that is on its way.
        self.base, self.sent = [(0, 0.0)] * region_count, [(0, 0.0)] * region_count
        self.rows: list[_Row] = []
        self.queue: list[tuple[float, int, str, int]] = []
        self.order = 0

    def run(self) -> list[_Row]:
        for worker, duration in enumerate(self.round_s):
            self._later(duration, "update", worker)
        total = self.job.step_count
        while self.counted < total and self.taken < 2 * total:
            time, _, event, at = heapq.heappop(self.queue)
            getattr(self, f"_{event}")(time, at)
        return self.rows

    def _later(self, time: float, event: str, at: int) -> None:
        # The order breaks ties: of simultaneous events the one that was foreseen first.
        self.order += 1
        heapq.heappush(self.queue, (time, self.order, event, at))

    def _update(self, time: float, worker: int) -> None:
        server, steps = self.server[worker], self.steps[worker]
        stale = self.version[server] - self.read_version[worker]
        region = int(self.ticks.region[worker])
        self.rows.append(("update", time, self.read_s[worker], region, worker, steps, stale))
        self.version[server] += 1
        self.taken += steps
        if self.is_halos:
            self.gathered[server] += steps
            # Exactly so many, so that no second push leaves before the first has come back.
            if self.version[server] == self.merged_version[server] + self.job.updates_per_push:
                self.pushed[server], self.gathered[server] = self.gathered[server], 0
                self._later(time + float(self.ticks.push_s[server]), "push", server)
        else:
            self.counted = self.taken
        self.read_version[worker], self.read_s[worker] = self.version[server], time
        self._later(time + self.round_s[worker], "update", worker)

    def _push(self, time: float, region: int) -> None:
        version, start = self.base[region]
        stale = self.global_version - version
        self.rows.append(("push", time, start, region, None, self.pushed[region], stale))
        self.global_version += 1
        self.counted += self.pushed[region]
        self.sent[region] = (self.global_version, time)
        self._later(time + float(self.ticks.return_s[region]), "merge", region)

    def _merge(self, time: float, region: int) -> None:
        self.base[region] = self.sent[region]
        self.merged_version[region] = self.version[region]
        self.rows.append(("merge", time, self.sent[region][1], region, None, 0, None))
