"""What a reader of power telemetry gets and gives: a file, what the caller said, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings

Reading = Literal["average", "instant"]
Unit = Literal["W", "kW", "MW", "mW"]


@dataclass(frozen=True)
class PowerGiven:
    """What the caller says that files do not carry; a reader asks for it, and never guesses.

    Attributes
    ----------
    tz
        Time zone of local stamps, e.g. ``"UTC"`` or ``"+01:00"``.
    node
        Host of files that do not state one.
    scope
        Where the readings of a plain table are metered, if the file does not say.
    unit
        Unit of a plain table whose columns name none.
    reading
        Which of several power readings of one device is taken: the averaged one or the
        instantaneous one; None takes ``power.draw`` and its like.
    period_s
        Time between readings of files that hold no time at all.
    columns
        Names of the columns of a plain table, by what they are.
    """

    tz: str | None = None
    node: str | None = None
    scope: str | None = None
    unit: Unit | None = None
    reading: Reading | None = None
    period_s: float | None = None
    columns: Mapping[str, str] | None = None


class NoPowerError(LoadError):
    """A file is in a known format and holds no reading of power; others are loaded without it."""


class BesidePowerError(NoPowerError):
    """A file belongs beside power logs and holds none by its nature; nobody needs to look."""


@dataclass
class PowerPart:
    """What one file holds, before the checks that are the same for all formats.

    ``readings`` has columns ``time_ns`` (int64), ``entity`` (text or category), ``power_w``
    (float64, as written in watts, negative and absurd values included, missing where the
    source reported none) and ``line`` (int64, from 1; of the file as a person counts, or the
    record). Rows are in the order of the file. ``counters`` has ``energy_j`` and ``states`` the
    columns of ``POWER_STATES`` that the format knows, in place of ``power_w``. ``entities`` maps
    each entity to what the format knows of it: ``scope`` and ``method`` always; ``node``,
    ``device``, ``model``, ``clock`` (epoch if absent), ``assumed``, ``limit_w``, and ``unit``
    if the file itself states it (nobody guesses it then), and ``is_unnamed`` if its name is
    that of any thing of its kind.
    """

    readings: pd.DataFrame
    entities: dict[str, dict[str, Any]]
    findings: Findings
    counters: pd.DataFrame | None = None
    states: pd.DataFrame | None = None
    # Name of the format, set by the front door.
    format_name: str = field(default="")


class PowerFormat(Protocol):
    """A module that reads one format of power telemetry."""

    NAME: str

    def looks_like(self, head: bytes, label: str) -> bool:
        """Recognise the format by the first 64 KiB of a file, unpacked; never by its name."""

    def read_power(self, source: Source, given: PowerGiven) -> PowerPart:
        """Read a whole file."""
