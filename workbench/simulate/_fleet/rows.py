"""The rows of a Kineto trace as text, in the format of ``libkineto/src/output_json.cpp``.

Times are microseconds with three digits after the point, relative to
``baseTimeNanoseconds``, which the profiler floors to a multiple of 7,889,238 s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.simulate._fleet.plan import SECOND

_BASE_SECONDS = 7_889_238

Span = tuple[int, int]
Place = tuple[int, int]  # process and thread, or device and stream


class Rows:
    """Collects rows and hands out the ids that join them."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.base_ns = start_ns // SECOND // _BASE_SECONDS * _BASE_SECONDS * SECOND
        self.external = 0
        self.correlation = 0
        self._rows: list[str] = []

    def add(self, category: str, name: str, place: Place, span: Span, args: object) -> None:
        """Add something that took time."""
        start, end = span
        self._rows.append(
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, '
            f'"pid": {place[0]}, "tid": {place[1]}, "ts": {self._ts(start)}, '
            f'"dur": {_us(end - start)}, "args": {json.dumps(args)}}}'
        )

    def add_op(
        self,
        category: str,
        name: str,
        place: Place,
        span: Span,
        about: Mapping[str, Any] | None = None,
    ) -> int:
        """Add an operator or annotation on the CPU; give its external id."""
        self.external += 1
        ids = {"External id": self.external, "Record function id": self.external}
        args = {**ids, "Ev Idx": self.external - 1, **(about or {})}
        self.add(category, name, place, span, args)
        return self.external

    def add_flow(self, phase: str, place: Place, start_ns: int) -> None:
        """Add one end of the arrow from a launch to its GPU work."""
        binding = ', "bp": "e"' if phase == "f" else ""
        self._rows.append(
            f'{{"ph": "{phase}", "id": {self.correlation}, "pid": {place[0]}, '
            f'"tid": {place[1]}, "ts": {self._ts(start_ns)}, '
            f'"cat": "ac2g", "name": "ac2g"{binding}}}'
        )

    def add_name(self, place: Place, name: str, key: str, value: str | int) -> None:
        """Add a row that names or sorts a process, thread or stream."""
        self._rows.append(
            f'{{"name": "{name}", "ph": "M", "ts": {self._ts(self.start_ns)}, "pid": {place[0]}, '
            f'"tid": {place[1]}, "args": {json.dumps({key: value})}}}'
        )

    def close(self, end_ns: int) -> None:
        """Mark the span that was recorded, and its end."""
        start, dur, name = self._ts(self.start_ns), _us(end_ns - self.start_ns), "PyTorch Profiler"
        self._rows += [
            f'{{"ph": "X", "cat": "Trace", "ts": {start}, "dur": {dur}, "pid": "Spans", '
            f'"tid": "{name}", "name": "{name} (0)", "args": {{"Op count": 0}}}}',
            f'{{"name": "Iteration Start: {name}", "ph": "i", "s": "g", "pid": "Traces", '
            f'"tid": "Trace {name}", "ts": {start}}}',
            '{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", '
            f'"ts": {self._ts(end_ns)}}}',
        ]

    def text(self, head: Mapping[str, Any], tail: Mapping[str, Any]) -> str:
        """Give the whole trace: metadata, rows, closing metadata."""
        before = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        after = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tail.items()]
        rows = '"traceEvents": [\n' + ",\n".join(self._rows) + "\n]"
        return "{\n" + ",\n".join([*before, rows, *after]) + "\n}\n"

    def _ts(self, time_ns: int) -> str:
        return _us(time_ns - self.base_ns)


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"
