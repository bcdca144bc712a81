"""What intervals alone cannot express: too few live replicas, and too few spare nodes."""

from __future__ import annotations

import heapq

import numpy as np

from workbench.analyze._failures.goodput_model.cover import Floats, Ints
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.replay import Strikes


def with_outages(strikes: Strikes, job: FaultTolerance) -> Strikes:
    """Let everybody restart together whenever fewer replicas than needed are alive.

    All replicas come back at the end of such an outage at the latest; later failures are
    judged by who is back then.
    """
    if job.min_replicas <= 1 or not len(strikes):
        return strikes
    ends = (strikes.time + strikes.down).tolist()
    times, replicas, runs = strikes.time.tolist(), strikes.replica.tolist(), strikes.run.tolist()
    most_out, outage = job.replicas - job.min_replicas, job.outage_min
    struck: list[int] = []
    out: list[int] = []
    run = -1
    for row, (now, replica) in enumerate(zip(times, replicas, strict=True)):
        if runs[row] != run:
            run, out = runs[row], []
        if replica < 0:
            continue
        # A replica may be out for several failures; all of them end with the outage.
        out = [*(index for index in out if ends[index] > now), row]
        if len({replicas[index] for index in out}) > most_out:
            struck.append(row)
            for index in out:
                ends[index] = min(ends[index], now + outage)
    added = strikes.take(np.asarray(struck, dtype=np.int64))
    total = np.maximum(added.phases.sum(axis=1, keepdims=True), 1e-300)
    scaled = added.phases / total * outage
    scaled[:, -1] += outage - scaled.sum(axis=1)
    together = Strikes(
        np.concatenate([strikes.run, added.run]),
        np.concatenate([strikes.time, added.time]),
        np.concatenate([strikes.replica, np.full(len(added), -1)]),
        np.concatenate([strikes.phases, scaled]),
        np.concatenate([np.asarray(ends) - strikes.time, np.full(len(added), outage)]),
    )
    return together.take(np.lexsort((together.time, together.run)))


def spare_waits(run: Ints, time: Floats, repair: Floats, spares: int) -> Floats:
    """Give how long every failure waits for a spare node.

    A failed node goes into repair and is a spare after it. A failure takes a spare that is
    there, else the one that is repaired first, which nobody else may take then.
    """
    waits = np.zeros(len(time))
    ready: list[float] = []
    before = -1
    for row, (each, now, needed) in enumerate(
        zip(run.tolist(), time.tolist(), repair.tolist(), strict=True)
    ):
        if each != before:
            ready, before = [-np.inf] * spares, each
        heapq.heappush(ready, now + needed)
        waits[row] = max(heapq.heappop(ready) - now, 0.0)
    return waits
