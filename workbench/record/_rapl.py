"""CPU packages and memory through the kernel's energy counters (RAPL)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.record._sampler import NotFoundError, Sensor, Values

ZONES = Path("/sys/class/powercap")
_SCOPE = {"package": "cpu", "dram": "memory"}


def rapl_sampler(host: str) -> Rapl:
    """Find the counters that may be read; ``NotFoundError`` says why there are none."""
    found = sorted(ZONES.glob("intel-rapl:*"))
    if not found:
        msg = f"CPU energy: this kernel shows no counters under {ZONES}"
        raise NotFoundError(msg)
    sampler = Rapl(found, host)
    if not sampler.sensors:
        msg = "CPU energy: the counters may be read by root only (chmod a+r energy_uj)"
        raise NotFoundError(msg)
    return sampler


class Rapl:
    """Energy counters of packages and memory; cores and the whole are parts of others."""

    name = "RAPL"
    least_period_s = 0.01

    def __init__(self, zones: list[Path], host: str) -> None:
        self.missing: dict[str, int] = {}
        self._ranges: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._added: dict[str, float] = {}
        self._counters: dict[str, Path] = {}
        taken = [self._taken(zone, host) for zone in zones]
        self.sensors: Sequence[Sensor] = [sensor for sensor in taken if sensor]

    def read(self) -> list[tuple[str, Values]]:
        """Read every counter once; one that wrapped goes on."""
        rows: list[tuple[str, Values]] = []
        for entity, counter in self._counters.items():
            now = self._joules(counter)
            if now is None:
                rows.append((entity, {}))
                continue
            if now < self._last.get(entity, 0.0):
                self._added[entity] = self._added.get(entity, 0.0) + self._ranges[entity]
            self._last[entity] = now
            rows.append((entity, {"energy_j": now + self._added.get(entity, 0.0)}))
        return rows

    def close(self) -> None:
        """Nothing is held."""

    def _taken(self, zone: Path, host: str) -> Sensor | None:
        name = _word(zone / "name")
        scope = _SCOPE.get((name or "").split("-")[0])
        counter = zone / "energy_uj"
        span = _word(zone / "max_energy_range_uj")
        if scope is None or self._joules(counter) is None or not (span or "").isdigit():
            return None
        entity = f"{host}/{zone.name.removeprefix('intel-rapl:')}-{name}"
        self._counters[entity] = counter
        self._ranges[entity] = int(span or 0) / 1e6
        return Sensor(entity, scope, "counter", zone.name, name)

    def _joules(self, counter: Path) -> float | None:
        text = _word(counter)
        if text is None or not text.isdigit():
            what = f"{counter}: cannot be read"
            self.missing[what] = self.missing.get(what, 0) + 1
            return None
        return int(text) / 1e6


def _word(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
