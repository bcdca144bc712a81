"""Time stamps of Perfetto packets: their clocks, units and increments."""

from __future__ import annotations

from typing import Any

REALTIME, BOOTTIME = 1, 6
# Clocks from here on belong to one sequence of packets.
_FIRST_OF_SEQUENCE, _LAST_OF_SEQUENCE = 64, 127
_BELONGS_TO_ALL = -1


class Clocks:
    """Turns time stamps into ns of one clock: wall time if a snapshot tells it."""

    def __init__(self) -> None:
        self._units: dict[tuple[int, int], int] = {}
        # The time of incremental clocks so far, and what to add for the clock of the trace.
        self._running: dict[tuple[int, int], int] = {}
        self._offsets: dict[tuple[int, int], int] = {}

    def snapshot(self, sequence: int, clocks: Any) -> None:
        """Take readings of several clocks at one moment."""
        readings = {}
        for clock in clocks:
            key, unit = _key(sequence, clock.id), clock.unit_ns or 1
            readings[key] = clock.timestamp * unit
            self._units[key] = unit
            if clock.is_incremental:
                self._running[key] = readings[key]
        for reference in (_key(sequence, REALTIME), _key(sequence, BOOTTIME)):
            if reference not in readings:
                continue
            more = self._offsets.setdefault(reference, 0)
            for key, reading in readings.items():
                # The first reading counts: later ones would bend a clock that is set meanwhile.
                self._offsets.setdefault(key, readings[reference] - reading + more)
            return

    def time_ns(self, sequence: int, clock: int, timestamp: int) -> int:
        """Return the time of a packet; each packet of a sequence must be asked once, in order."""
        key = _key(sequence, clock or BOOTTIME)
        time = timestamp * self._units.get(key, 1)
        if key in self._running:
            time += self._running[key]
            self._running[key] = time
        return time + self._offsets.get(key, 0)


def _key(sequence: int, clock: int) -> tuple[int, int]:
    is_own = _FIRST_OF_SEQUENCE <= clock <= _LAST_OF_SEQUENCE
    return (sequence if is_own else _BELONGS_TO_ALL, clock)
