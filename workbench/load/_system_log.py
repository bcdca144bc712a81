"""How logs of one line per message are read: find the lines that matter, and when they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workbench.errors import LoadError
from workbench.load._findings import Findings
from workbench.load._log_clock import Watched
from workbench.load._log_file import Given, LogPart, failure_rows, shortened, timeline_rows
from workbench.load._log_lines import Line, Lines, report_reading
from workbench.load._log_stamps import Said, Stamps
from workbench.load.archive import Source

# Returns columns of table FAILURES for a message and its line number, or {} if it is none.
Recognise = Callable[[str, int, Findings], dict[str, Any]]


def read_system_log(
    source: Source, given: Given, needles: Sequence[bytes], recognise: Recognise
) -> LogPart:
    """Read one log of the kernel or a daemon.

    Parameters
    ----------
    source
        The file.
    given
        What the caller said.
    needles
        Byte strings of which every line that matters holds one.
    recognise
        Says what such a line reports.

    Raises
    ------
    LoadError
        If the stamp of a line that reports a failure needs what the caller did not give.
    """
    log = _Log(source.label, given, recognise)
    with source.open() as stream:
        lines = Lines(stream, needles)
        failures = failure_rows(log.rows(lines), source.label)
        report_reading(log.findings, lines, stream, len(failures))
    log.report()
    return LogPart(
        failures=failures,
        timeline=timeline_rows([], source.label),
        findings=log.findings,
        nodes={given.node: None} if given.node else {},
        watched=log.watched.spans,
    )


class _Log:
    """Reads the lines of one file that matter."""

    def __init__(self, label: str, given: Given, recognise: Recognise) -> None:
        self.findings = Findings(label)
        self.watched = Watched()
        self._given = given
        self._recognise = recognise
        self._stamps = Stamps(given, label)

    def rows(self, lines: Lines) -> Iterator[dict[str, Any]]:
        """Give the failures among some lines, in their order."""
        for line in lines:
            text = line.text.decode(errors="replace").strip("\r\0 ")
            said, refusal = self._said(text, line.number)
            host = said.host or self._given.node
            found = self._failure(said, line)
            if found and refusal:
                raise refusal
            self.watched.see(host, said.time_ns, line.number)
            if found:
                self._note(text, said, line.number)
                yield found | {
                    "start_ns": said.time_ns,
                    "end_ns": said.time_ns,
                    "clock": "none" if said.time_ns is None else "epoch",
                    "node": host,
                    "text": shortened(said.message),
                    "line": line.number,
                    "assumed": said.assumed,
                }

    def report(self) -> None:
        """Note what was odd about the clock."""
        findings, stamps = self.findings, self._stamps
        self.watched.report(findings)
        findings.add("noted", "New Year is passed; the year is counted up", stamps.new_year_count)
        what = "local times in an hour that a clock change repeats or skips; pass a fixed offset"
        findings.add("suspicious", what, stamps.clock_change_count)
        what = "lines of a second boot, whose time is not known; their time is missing"
        findings.add("suspicious", what, stamps.second_boot_count)

    def _said(self, text: str, number: int) -> tuple[Said, LoadError | None]:
        """Take a line apart, or say what is missing for it."""
        try:
            return self._stamps.read(text, number), None
        except LoadError as refusal:
            return Said(None, None, text), refusal

    def _failure(self, said: Said, line: Line) -> dict[str, Any]:
        found = self._recognise(said.message, line.number, self.findings) if line.is_hit else {}
        if found and said.is_echo:
            what = "lines in which another program repeats the kernel"
            self.findings.add("set aside", what, 1, f"line {line.number:,}")
            return {}
        return found

    def _note(self, text: str, said: Said, number: int) -> None:
        where = f"line {number:,}"
        if said.time_ns is None and not self._stamps.second_boot_count:
            self.findings.add("suspicious", "no time stamp; the time is missing", 1, where)
        if "\ufffd" in text:
            what = "bytes that are no UTF-8"
            self.findings.add("repaired", what, text.count("\ufffd"), where)
