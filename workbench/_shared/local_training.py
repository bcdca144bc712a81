"""The clock of training across regions: who computes and transfers for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from workbench._shared.numbers import in_range, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import REGION_LINKS, REGION_WORKERS, Regions

Scheme: TypeAlias = Literal["synchronous", "DiLoCo", "DiLoCo dynamic", "Async-Local-SGD", "HALoS"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
# Schemes in which workers wait for each other, and exchange by all-reduce.
IN_ROUNDS = SCHEMES[:3]
_BITS_PER_PARAMETER = 32
_MOST_REGIONS = 12

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class LocalTrainingJob:
    """A training job with local steps: size of the model, length of a step, how it exchanges.

    The defaults are those of the examples of HALoS: Pythia-70M, batches of 64 x 2,048 tokens.

    Parameters
    ----------
    parameter_count
        Parameters of the model; 4 bytes each are transferred.
    step_s
        Local step of the fastest worker, in seconds.
    step_count
        Local steps of the whole job, all workers together.
    local_steps
        Local steps between exchanges, for DiLoCo and Async-Local-SGD.
    halos_steps
        Local steps between exchanges with the server of the region, for HALoS.
    updates_per_push
        Updates that a region gathers before it pushes to the global server, for HALoS.
    merge_weight_share
        Weight of the *global* model where a region merges it, for HALoS.
    server_region
        Region of the global server; the first one by default.

    Raises
    ------
    WorkbenchError
        If a number is out of its range.
    """

    parameter_count: int = 70_426_624
    step_s: float = 0.238391
    step_count: int = 98_304
    local_steps: int = 32
    halos_steps: int = 8
    updates_per_push: int = 32
    merge_weight_share: float = 0.25
    server_region: str | None = None

    def __post_init__(self) -> None:
        positive("step_s", self.step_s)
        in_range("merge_weight_share", self.merge_weight_share, least=0, most=1)
        counts = ("parameter_count", "step_count", "local_steps", "halos_steps", "updates_per_push")
        for name in counts:
            whole_number(name, getattr(self, name), least=1)


@dataclass(frozen=True)
class Clock:
    """Durations of a round under one scheme; one value per worker, in order.

    ``transfer_s`` is the all-reduce, or reading the model from the server and sending the steps
    back. By region: ``push_s`` to the global server and ``return_s`` from it.
    """

    region: NDArray[np.int64]
    steps: NDArray[np.int64]
    compute_s: Floats
    transfer_s: Floats
    push_s: Floats
    return_s: Floats

    @property
    def round_s(self) -> Floats:
        """Time of a round without waiting for others."""
        return self.compute_s + self.transfer_s


@dataclass(frozen=True)
class Network:
    """Regions as arrays: bandwidth in Gbit/s from row to column, region and speed by worker."""

    names: list[str]
    matrix: Floats
    region: NDArray[np.int64]
    speed: Floats

    @classmethod
    def of(cls, regions: Regions) -> Network:
        """Take the tables apart; refuse what has no clock."""
        REGION_LINKS.check(regions.links)
        REGION_WORKERS.check(regions.workers)
        names = regions.names
        matrix = regions.matrix.to_numpy(dtype=np.float64)
        speed = regions.workers["speed_ratio"].to_numpy(dtype=np.float64)
        unknown = sorted(set(regions.workers["region"]) - set(names))
        misfits = [f"{len(names)} regions; at most {_MOST_REGIONS}"] * (len(names) > _MOST_REGIONS)
        misfits += [f"workers in regions without links: {unknown}"] * bool(unknown)
        misfits += ["no workers"] * (not len(speed))
        misfits += ["a bandwidth that is missing or 0"] * (not (matrix > 0).all())
        misfits += ["a worker of speed 0"] * (not (speed > 0).all())
        if misfits:
            msg = f"regions have {'; '.join(misfits)}; load.regions says where"
            raise WorkbenchError(msg)
        region = np.array([names.index(name) for name in regions.workers["region"]], dtype=np.int64)
        return cls(names, matrix, region, speed / speed.max())

    def faster(self, factor: float) -> Network:
        """Multiply the bandwidth between regions; links inside a region stay."""
        inside = np.eye(len(self.names), dtype=bool)
        return replace(self, matrix=np.where(inside, self.matrix, factor * self.matrix))

    def clock(self, job: LocalTrainingJob, scheme: str) -> Clock:
        """Work out what a round of every worker takes under a scheme."""
        if scheme not in SCHEMES:
            msg = f"scheme must be one of {SCHEMES}, not {scheme!r}"
            raise WorkbenchError(msg)
        server = self._server(job)
        bits = _BITS_PER_PARAMETER * job.parameter_count
        # Gbit/s: no latency, no sharing of links, no congestion.
        link_s = bits / (self.matrix * 1e9)
        count = len(self.speed)
        if scheme == "synchronous":
            steps = np.ones(count, dtype=np.int64)
        elif scheme == "DiLoCo":
            steps = np.full(count, job.local_steps, dtype=np.int64)
        else:
            local = job.halos_steps if scheme == "HALoS" else job.local_steps
            steps = np.maximum(np.ceil(local * self.speed), 1).astype(np.int64)
        if scheme in IN_ROUNDS:
            ring = _ring_gbps(self.matrix, self.region) * 1e9
            transfer = np.full(count, 2 * (count - 1) / count * bits / ring)
        else:
            home = self.region if scheme == "HALoS" else np.full(count, server)
            transfer = link_s[home, self.region] + link_s[self.region, home]
        compute = steps * job.step_s / self.speed
        return Clock(self.region, steps, compute, transfer, link_s[:, server], link_s[server, :])

    def _server(self, job: LocalTrainingJob) -> int:
        if job.server_region is None:
            return 0
        if job.server_region not in self.names:
            msg = f"server_region must be one of {self.names}, not {job.server_region!r}"
            raise WorkbenchError(msg)
        return self.names.index(job.server_region)


def _ring_gbps(matrix: Floats, region: NDArray[np.int64]) -> float:
    """Return the slowest link of the best ring of all workers, region after region."""
    used, count = np.unique(region, return_counts=True)
    inside = np.diag(matrix)[used][count > 1]
    between = _best_ring(matrix[np.ix_(used, used)].tobytes(), len(used))
    return float(min(between, inside.min(initial=math.inf)))


@lru_cache(maxsize=256)
def _best_ring(raw: bytes, count: int) -> float:
    """Maximise the slowest link over all rings through all regions (Held and Karp's recursion)."""
    links = np.frombuffer(raw).reshape(count, count)
    if count == 1:
        return math.inf
    # Slowest link of the best path from region 0 through a set of regions to its last one.
    best = np.full((1 << count, count), -math.inf)
    best[1, 0] = math.inf
    for visited in range(1, 1 << count, 2):
        reached = np.minimum(best[visited][:, None], links).max(axis=0)
        for last in range(1, count):
            if not visited >> last & 1:
                best[visited | 1 << last, last] = reached[last]
    return float(np.minimum(best[-1], links[:, 0])[1:].max())
