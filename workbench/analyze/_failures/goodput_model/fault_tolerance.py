"""What a job does when something fails: the one description all goodput models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from workbench._numbers import not_negative, positive, whole_number
from workbench.errors import WorkbenchError

Minutes: TypeAlias = float | Mapping[str, float]


@dataclass(frozen=True)
class FaultTolerance:
    """How a job answers a failure. All times in minutes.

    With one replica the job is synchronous: every failure stops all GPUs for
    ``recovery_min``. With more, only the failed replica is out that long, counted from the
    failure; all replicas stand still for ``stall_min``, and again for ``rejoin_min`` when the
    hit one comes back.

    Parameters
    ----------
    recovery_min
        From the failure until whoever was hit works again, detection included; a number, or
        minutes by phase in the order they happen, e.g. ``{"detection": 1, "allocation": 5}``.
    stall_min
        How long every failure stops all replicas; a number or minutes by phase.
    replicas
        Data-parallel replicas that fail alone; 1 for synchronous training.
    rejoin_min
        How long the return of a replica stops all of them.
    min_replicas
        With fewer than these alive, everybody restarts together; only replays know this. With
        1 each replica comes back on its own, even if all of them are out.
    global_recovery_min
        How long such a restart takes; by default ``recovery_min``.
    checkpoint_interval_min
        Useful time between checkpoints; None for none.
    checkpoint_write_min
        How long writing one stops all GPUs.

    Raises
    ------
    WorkbenchError
        If a number is negative or not finite, there is less than one replica, or more are
        needed than there are.
    """

    recovery_min: Minutes = 10.0
    stall_min: Minutes = 3.0
    replicas: int = 12
    rejoin_min: float = 0.0
    min_replicas: int = 1
    global_recovery_min: float | None = None
    checkpoint_interval_min: float | None = None
    checkpoint_write_min: float = 0.0
    phases: dict[str, float] = field(init=False, repr=False, compare=False)
    stall_phases: dict[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "phases", _phases(self.recovery_min, "recovery", "recovery_min"))
        set_field(self, "stall_phases", _phases(self.stall_min, "global stall", "stall_min"))
        for name in ("rejoin_min", "checkpoint_write_min"):
            not_negative(name, getattr(self, name))
        if self.global_recovery_min is not None:
            not_negative("global_recovery_min", self.global_recovery_min)
        if self.checkpoint_interval_min is not None:
            positive("checkpoint_interval_min", self.checkpoint_interval_min)
        elif self.checkpoint_write_min > 0:
            msg = "checkpoint_write_min needs checkpoint_interval_min: how often is one written?"
            raise WorkbenchError(msg)
        for name in ("replicas", "min_replicas"):
            set_field(self, name, whole_number(name, getattr(self, name), least=1))
        if self.min_replicas > self.replicas:
            msg = (
                f"min_replicas is {self.min_replicas}, but there are only {self.replicas} replicas"
            )
            raise WorkbenchError(msg)

    @property
    def recovery_total_min(self) -> float:
        """Recovery of whoever was hit, all phases together."""
        return sum(self.phases.values())

    @property
    def stall_total_min(self) -> float:
        """Standstill of all replicas, all phases together."""
        return sum(self.stall_phases.values())

    @property
    def outage_min(self) -> float:
        """Recovery when everybody restarts together."""
        given = self.global_recovery_min
        return self.recovery_total_min if given is None else given

    @property
    def stopped_min(self) -> float:
        """Time after a failure in which all replicas stand still, at its beginning and end."""
        stall, down, rejoin = self.stall_total_min, self.recovery_total_min, self.rejoin_min
        if self.replicas == 1:
            return down
        return stall + rejoin if down >= stall else max(stall, down + rejoin)

    @property
    def loss_min(self) -> float:
        """Minutes of the whole job that a failure costs, checkpoints aside."""
        if self.replicas == 1:
            return self.recovery_total_min
        out = max(self.stall_total_min, self.recovery_total_min + self.rejoin_min)
        return out / self.replicas + self.stopped_min * (1 - 1 / self.replicas)

    def synchronous(self) -> FaultTolerance:
        """Return the same job without fault tolerance."""
        return replace(self, replicas=1, min_replicas=1, rejoin_min=0.0)


def _phases(given: Minutes, alone: str, name: str) -> dict[str, float]:
    """Return minutes by phase."""
    phases = dict(given) if isinstance(given, Mapping) else {alone: given}
    if not phases:
        msg = f"{name} names no phase; give a number of minutes, or minutes by phase"
        raise WorkbenchError(msg)
    for phase, minutes in phases.items():
        if phase == "productive":
            msg = f"{name} has a phase {phase!r}, which is what the rest is called; rename it"
            raise WorkbenchError(msg)
        not_negative(f"{name}[{phase!r}]" if isinstance(given, Mapping) else name, minutes)
    return {str(phase): float(minutes) for phase, minutes in phases.items()}
