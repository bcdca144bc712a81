"""Read all sensors at even times until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from workbench.record._files import Writer
from workbench.record._sampler import Sampler

_STEP_NS = 100_000_000  # the wall clock was set, rather than disciplined


class Loop(threading.Thread):
    """A thread that samples; a failure ends the sampling, never the command beside it.

    Attributes
    ----------
    late_count
        Times that were left out because reading took longer than the period.
    clock_steps
        Times at which the wall clock was set, as ns since 1970 and ns forward.
    error
        Why sampling ended early; empty if it did not.
    """

    def __init__(self, samplers: Sequence[Sampler], writer: Writer, *, period_s: float) -> None:
        super().__init__(name="power sampling", daemon=True)
        self._samplers = samplers
        self._writer = writer
        self._period_s = period_s
        self._asked_to_stop = threading.Event()
        self.late_count = 0
        self.clock_steps: list[tuple[int, int]] = []
        self.error = ""

    def run(self) -> None:
        """Sample, until stopped or until reading or writing fails; write what is kept."""
        for work in (self._run, self._writer.flush):
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on
                self.error = self.error or f"{type(error).__name__}: {error}"

    def finish(self) -> None:
        """Take one reading more, write what is kept, and end."""
        self._asked_to_stop.set()
        self.join()

    def _run(self) -> None:
        if not self._samplers:
            return
        offset = time.time_ns() - time.monotonic_ns()
        due = time.monotonic()
        while True:
            is_last = self._asked_to_stop.is_set()
            for sampler in self._samplers:
                before = time.time_ns()
                rows = sampler.read()
                self._writer.add((before + time.time_ns()) // 2, rows)
            offset = self._watched(offset)
            if is_last:
                return
            due += self._period_s
            behind = time.monotonic() - due
            if behind > 0:
                skipped = int(behind / self._period_s) + 1
                self.late_count += skipped
                due += skipped * self._period_s
            self._asked_to_stop.wait(max(0.0, due - time.monotonic()))

    def _watched(self, offset: int) -> int:
        """Note if the wall clock moved against the one that never steps."""
        now = time.time_ns() - time.monotonic_ns()
        if abs(now - offset) >= _STEP_NS:
            self.clock_steps.append((time.time_ns(), now - offset))
        return now
