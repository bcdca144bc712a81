"""The columns of a table of power telemetry, and how those of things are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ENTITIES = ("entity", "sensor", "meter", "circuit", "series")
NODES: tuple[str, ...] = (
    "node",
    "host",
    "hostname",
    "host_name",
    "nodename",
    "node_name",
    "server",
    "machine",
)
NODES += ("node_id", "instance", "chassis")
INDICES: tuple[str, ...] = (
    "gpu",
    "gpu_index",
    "gpu_id",
    "index",
    "device",
    "device_index",
    "device_id",
)
INDICES += ("gpu_idx", "accelerator", "minor_number", "local_rank", "card")
UUIDS = ("uuid", "gpu_uuid", "device_uuid", "serial", "gpu_serial")
GROUPS = ("rack", "pdu", "panel", "switchboard", "msb")
IDENTITIES = {*ENTITIES, *NODES, *INDICES, *UUIDS}
# Columns that say whose a row is.
NAMING = IDENTITIES | set(GROUPS)
NEVER = re.compile(r"|unnamed: ?\d+|__index_level_\d+__|index|row|id", re.IGNORECASE)
_WIDE_PART = re.compile(
    r"(?P<node>.+?)[\s/._:-]*gpu[ _-]?(?P<index>\d+)|gpu[ _-]?(?P<only>\d+)", re.IGNORECASE
)
FEED = re.compile(
    r"(rack|row|pdu|panel|switchboard|msb|utility|facility|cooling)[\s_./:-]*\w?\d*", re.IGNORECASE
)


@dataclass(frozen=True)
class PowerColumn:
    """One column of powers: whose, where and how metered, and watts in one of its unit.

    ``part`` is what it meters of what the row names, e.g. ``gpu3``; "" if that itself. Cells
    without a unit are no powers if ``needs_unit``, but 0.
    """

    name: str
    part: str = ""
    scope: str = "unknown"
    method: str = "unknown"
    factor: float | None = None
    is_mw: bool = False
    is_entity: bool = False
    needs_unit: bool = False


@dataclass(frozen=True)
class PowerLayout:
    """Which columns of a table are what; ``left_out`` are other powers, and why.

    ``counters`` count energy; their factors are joules in one of their unit.
    """

    time: str
    powers: tuple[PowerColumn, ...]
    counters: tuple[PowerColumn, ...] = ()
    entity: str | None = None
    node: str | None = None
    device: str | None = None
    is_uuid: bool = False
    scope: str = "unknown"
    is_cluster: bool = False
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> list[str]:
        """The columns that say whose readings a row holds."""
        return [name for name in (self.entity, self.node, self.device) if name is not None]

    @property
    def is_wide(self) -> bool:
        """Whether every column of powers is a thing of its own."""
        return all(column.is_entity for column in self.powers)


def wide_name(name: str) -> str:
    """Write the name of a column as that of an entity: ``node1_gpu3`` as ``node1/gpu3``."""
    if match := _WIDE_PART.fullmatch(name):
        if match["only"] is not None:
            return f"gpu{int(match['only'])}"
        return f"{match['node']}/gpu{int(match['index'])}"
    return name


def shown(names: Sequence[str]) -> str:
    """List the first names."""
    listed = [str(name)[:40] for name in names[:8]]
    return f"{listed}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
