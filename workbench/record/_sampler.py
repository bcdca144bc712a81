"""What is sampled, and what a way of sampling has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# A reading: the entity, and the columns of the file that could be read.
Values = dict[str, Any]


class NotFoundError(Exception):
    """A machine has nothing of the kind; the text says what was looked for."""


@dataclass(frozen=True)
class Sensor:
    """One metered thing and what its readings mean.

    Attributes
    ----------
    entity
        Its name in the files, e.g. ``node001/gpu3``.
    scope, method
        As in ``workbench.tables.POWER_ENTITIES``.
    device, model, uuid
        Index in its host, product, and the driver's own name for it.
    facts
        What else is worth keeping: limits, PCI address, driver.
    """

    entity: str
    scope: str
    method: str
    device: str
    model: str | None = None
    uuid: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Sampler(Protocol):
    """A way to read sensors of this machine."""

    name: str
    # No sense in asking more often.
    least_period_s: float
    sensors: Sequence[Sensor]
    # What could not be had, in words; grows when a sensor stops answering.
    missing: dict[str, int]

    def read(self) -> list[tuple[str, Values]]:
        """Read every sensor once; one that does not answer gives a row without values."""

    def close(self) -> None:
        """Give back what the driver holds."""
