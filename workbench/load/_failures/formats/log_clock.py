"""How long a log watched each host, and whether its clock ran backwards."""

from __future__ import annotations

from workbench.load._files.findings import Findings
from workbench.load._files.log_file import SECOND

# Lines of several processors overtake each other by less than this.
_TOLERANCE_NS = SECOND


class Watched:
    """Follows the times of one file, host by host, in the order they are written."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, int]] = {}
        self._last: dict[str | None, int] = {}
        self._back_count, self._back_ns, self._back_line = 0, 0, 0

    def see(self, host: str | None, time_ns: int | None, line: int) -> None:
        """Take note of one line."""
        if time_ns is None:
            return
        if host is not None:
            first, last = self.spans.get(host, (time_ns, time_ns))
            self.spans[host] = (min(first, time_ns), max(last, time_ns))
        back = self._last.get(host, time_ns) - time_ns
        if back > _TOLERANCE_NS:
            self._back_line = self._back_line or line
            self._back_count += 1
            self._back_ns = max(self._back_ns, back)
        self._last[host] = time_ns

    def report(self, findings: Findings) -> None:
        """Note a clock that ran backwards."""
        what = (
            f"clock runs backwards, by up to {self._back_ns / SECOND:,.0f} s; times are as written"
        )
        where = f"line {self._back_line:,}"
        findings.add("suspicious", what, self._back_count, where)
