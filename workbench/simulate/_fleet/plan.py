"""The job to simulate: its machines, its calendar and its faults, drawn from the seed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SECOND = 1_000_000_000
MILLISECOND = 1_000_000

FAULTS = ("slow rank", "late host", "power cap", "failing node")
"""The faults that :func:`workbench.simulate.fleet` can inject."""


@dataclass(frozen=True)
class Cluster:
    """What the simulated machines can do; roughly eight H100 on two half-filled nodes."""

    idle_w: float = 95.0
    compute_w: float = 640.0
    communication_w: float = 240.0
    power_limit_w: float = 700.0
    clock_mhz: int = 1830
    clock_step_mhz: int = 15
    power_exponent: float = 2.4
    node_other_w: float = 950.0
    supply_efficiency_share: float = 0.95
    job_bus_bytes_per_s: float = 130e9
    node_bus_bytes_per_s: float = 200e9
    host_copy_bytes_per_s: float = 52e9

    def capped_clock_mhz(self, cap_w: float) -> int:
        """Give the clock at which compute draws no more than the cap."""
        share = (cap_w - self.idle_w) / (self.compute_w - self.idle_w)
        clock = self.clock_mhz * min(share, 1.0) ** (1 / self.power_exponent)
        return int(clock // self.clock_step_mhz) * self.clock_step_mhz

    def compute_power_w(self, clock_mhz: float) -> float:
        """Give the power of a GPU that computes at this clock."""
        share: float = (clock_mhz / self.clock_mhz) ** self.power_exponent
        return self.idle_w + (self.compute_w - self.idle_w) * share


@dataclass(frozen=True)
class Faults:
    """Which faults hit whom, when and how hard; None where a fault was not asked for."""

    slow_rank: int | None
    slow_first_step: int
    late_rank: int | None
    late_steps: tuple[int, ...]
    capped_rank: int | None
    cap_first_step: int
    cap_last_step: int
    failing_rank: int | None
    slow_factor: float = 1.25
    late_ns: int = 40 * MILLISECOND
    cap_w: float = 500.0
    xid: int = 79


@dataclass(frozen=True)
class Job:
    """One training job: who takes part, what is traced, when it fails."""

    seed: int
    ranks: int
    gpus_per_node: int
    first_traced_step: int
    traced_steps: int
    faults: Faults
    cluster: Cluster = Cluster()
    start_ns: int = 1_768_204_800 * SECOND  # 2026-01-12 08:00:00 UTC
    startup_ns: int = 20 * SECOND
    detect_ns: int = 12 * SECOND
    reschedule_ns: int = 25 * SECOND
    checkpoint_every: int = 25
    checkpoint_ns: int = 1_500 * MILLISECOND
    job_id: int = 481_516

    @property
    def last_traced_step(self) -> int:
        """The last step in the traces."""
        return self.first_traced_step + self.traced_steps - 1

    @property
    def failing_step(self) -> int:
        """The step in which the node fails."""
        return self.last_traced_step + 54

    @property
    def total_steps(self) -> int:
        """How many steps the job needs."""
        return self.failing_step + 40

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names: those of the first attempt, then one spare."""
        return tuple(f"node{n + 1:03d}" for n in range(self.ranks // self.gpus_per_node + 1))

    def node_of(self, rank: int, attempt: int = 1) -> str:
        """Give the host of a rank; the spare replaces the failing node at the restart."""
        node = self.nodes[rank // self.gpus_per_node]
        failing = self.faults.failing_rank
        if attempt > 1 and failing is not None and node == self.node_of(failing):
            return self.nodes[-1]
        return node

    def ranks_of(self, node: str, attempt: int) -> list[int]:
        """Give the ranks that run on a host in an attempt."""
        return [rank for rank in range(self.ranks) if self.node_of(rank, attempt) == node]

    def capped_clock_mhz(self) -> int:
        """Give the clock of the capped GPU."""
        return self.cluster.capped_clock_mhz(self.faults.cap_w)

    def compute_factor(self, step: int, attempt: int) -> Floats:
        """Say how many times as long compute takes on every rank in a step."""
        factor = np.ones(self.ranks)
        if attempt == 1 and self.is_slow(step):
            factor[self.faults.slow_rank] = self.faults.slow_factor
        if attempt == 1 and self.is_capped(step):
            factor[self.faults.capped_rank] = self.cluster.clock_mhz / self.capped_clock_mhz()
        return factor

    def host_delay_ns(self, step: int, attempt: int) -> Ints:
        """Say how much longer every rank's host takes to load the data of a step."""
        delay = np.zeros(self.ranks, dtype=np.int64)
        if attempt == 1 and self.faults.late_rank is not None and step in self.faults.late_steps:
            delay[self.faults.late_rank] = self.faults.late_ns
        return delay

    def is_slow(self, step: int) -> bool:
        """Say whether a rank is slow in this step of the first attempt."""
        return self.faults.slow_rank is not None and step >= self.faults.slow_first_step

    def is_capped(self, step: int) -> bool:
        """Say whether a GPU is capped in this step of the first attempt."""
        faults = self.faults
        if faults.capped_rank is None:
            return False
        return faults.cap_first_step <= step <= faults.cap_last_step


def plan(*, seed: int, ranks: int, gpus_per_node: int, steps: int, faults: Collection[str]) -> Job:
    """Draw a job from the seed.

    The draw does not depend on which faults are asked for, so that the same
    seed with and without a fault gives the same job but for that fault.
    """
    _check(ranks=ranks, gpus_per_node=gpus_per_node, steps=steps, faults=faults)
    rng = np.random.default_rng(seed)
    hit = dict(zip(FAULTS, _different(rng, ranks, len(FAULTS)), strict=True))
    first = 10
    drawn = Faults(
        slow_rank=hit["slow rank"] if "slow rank" in faults else None,
        slow_first_step=first + steps // 3,
        late_rank=hit["late host"] if "late host" in faults else None,
        late_steps=tuple(sorted({first + min(1, steps - 1), first + max(0, steps - 2)})),
        capped_rank=hit["power cap"] if "power cap" in faults else None,
        cap_first_step=first + steps // 2,
        cap_last_step=first + steps // 2 + 44,
        failing_rank=hit["failing node"] if "failing node" in faults else None,
    )
    return Job(
        seed=seed,
        ranks=ranks,
        gpus_per_node=gpus_per_node,
        first_traced_step=first,
        traced_steps=steps,
        faults=drawn,
    )


def _different(rng: np.random.Generator, ranks: int, count: int) -> list[int]:
    """Draw ranks, different ones as long as there are enough."""
    order = np.argsort(rng.random(ranks), kind="stable")
    return [int(order[n % ranks]) for n in range(count)]


def _check(**given: Any) -> None:
    """Refuse a job that cannot be, naming the argument."""
    if given["ranks"] < 2:
        msg = f"ranks={given['ranks']}: a job needs at least 2 ranks for one to wait for another"
        raise ValueError(msg)
    if given["gpus_per_node"] < 2 or given["ranks"] % given["gpus_per_node"]:
        msg = (
            f"gpus_per_node={given['gpus_per_node']} must be at least 2 "
            f"and divide ranks={given['ranks']}"
        )
        raise ValueError(msg)
    if given["steps"] < 1:
        msg = f"steps={given['steps']}: at least one step must be traced"
        raise ValueError(msg)
    if unknown := sorted(set(given["faults"]) - set(FAULTS)):
        msg = f"unknown faults {unknown}; choose from {list(FAULTS)}"
        raise ValueError(msg)
