"""How logs of one line per message are read: find the lines that matter, and when they were."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workbench.errors import LoadError
from workbench.load._failures.formats._log_stamps import BEGINNING, Said, Stamps
from workbench.load._failures.formats.log_clock import Watched
from workbench.load._failures.formats.log_lines import Line, Lines, report_reading
from workbench.load._failures.kernel_messages import ERROR_NEEDLES, is_unknown_error
from workbench.load._failures.line_prefix import OF_CONTAINER, Prefix, without_prefix
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.log_file import Given, LogPart, failure_rows, shortened, timeline_rows
from workbench.load._files.text_lines import COLOURS

_BOOT = re.compile(r"^-- (?:Re)?[Bb]oot\b|\] Linux version \d")
_LINES_OF_ONE_MESSAGE = 3
_SHOWN_CHARS = 160
UNKNOWN = "lines that speak of an error and that no rule knows; not counted as failures"

# Returns columns of table FAILURES for a message and its line number, or {} if it is none.
Recognise = Callable[[str, int, Findings], dict[str, Any]]
_Event = tuple[str | None, str, str | None]  # host, code and device


def read_system_log(
    source: Source,
    given: Given,
    needles: Sequence[bytes],
    recogniser: Callable[[], Recognise],
    in_any_case: Sequence[bytes] = ERROR_NEEDLES,
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
    recogniser
        Makes, for each host, what says of such a line what it reports.
    in_any_case
        Further ones, in lower case; by default those of lines that speak of an error.

    Raises
    ------
    LoadError
        If the stamp of a line that reports a failure needs what the caller did not give.
    """
    log = _Log(source.label, given, recogniser)
    with source.open() as stream:
        lines = Lines(stream, needles, in_any_case)
        failures = failure_rows(log.rows(lines), source.label)
        report_reading(
            log.findings, lines, stream, rows=len(failures), unknown=log.findings.count(UNKNOWN)
        )
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

    def __init__(self, label: str, given: Given, recogniser: Callable[[], Recognise]) -> None:
        self.findings = Findings(label)
        self.watched = Watched()
        self._given = given
        self._label = label
        # A boot or a link of one host says nothing of the others.
        self._recognise: defaultdict[str | None, Recognise] = defaultdict(recogniser)
        # Of every host its own: each has its own year, boot and clock changes.
        self._stamps: dict[str, Stamps] = {}
        self._before: tuple[int, Said] = (0, Said(None, None, ""))
        self._reported: set[_Event] = set()
        self._repeated: dict[_Event, tuple[int, int]] = {}
        self._echo_line = 0

    def rows(self, lines: Lines) -> Iterator[dict[str, Any]]:
        """Give the failures among some lines, in their order."""
        for line in lines:
            text = line.text.decode(errors="replace").strip("\r\0")
            text = COLOURS.sub("", text) if "\x1b" in text else text
            prefix = without_prefix(text.strip(), BEGINNING)
            stamps = self._stamps.setdefault(prefix.key, Stamps(self._given, self._label))
            if line.is_hit and _BOOT.search(text):
                stamps.boot()
            said, refusal = _said(stamps, prefix, line.number)
            said = self._continued(said, text, line)
            host = said.host or self._given.node
            found = self._failure(said, line)
            if found and refusal:
                raise refusal
            self.watched.see(host, said.time_ns, line.number)
            if found:
                self._reported.add((said.host, found["code"], found["device"]))
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
            elif line.is_hit:
                self._doubt(said.message if text.startswith("{") else text, line.number)

    def report(self) -> None:
        """Note what was odd about the clock."""
        findings, stamps = self.findings, list(self._stamps.values())
        self.watched.report(findings)
        what = "New Year is passed; the year is counted up"
        findings.add("noted", what, sum(each.new_year_count for each in stamps))
        what = "stamps without a year leap ahead by half a year; is the log in order?"
        findings.add("suspicious", what, sum(each.leap_count for each in stamps))
        for key, (count, number) in self._repeated.items():
            is_told = key in self._reported
            what = "lines in which another program repeats the kernel"
            what += "" if is_told else ", whose own line is not in the file; not counted"
            finding = "set aside" if is_told else "suspicious"
            findings.add(finding, what, count, f"line {number:,}")
        what = "local times in an hour that a clock change repeats or skips; pass a fixed offset"
        findings.add("suspicious", what, sum(each.clock_change_count for each in stamps))
        what = "lines of a second boot, whose time is not known; their time is missing"
        findings.add("suspicious", what, sum(each.second_boot_count for each in stamps))

    def _continued(self, said: Said, text: str, line: Line) -> Said:
        """Give an indented line without a stamp those of the line that it goes on from."""
        number, before = self._before
        is_next = line.number - number < _LINES_OF_ONE_MESSAGE
        if said.time_ns is None and text.startswith(" ") and is_next:
            return before._replace(message=said.message)
        self._before = (line.number, said) if line.is_hit else self._before
        return said

    def _failure(self, said: Said, line: Line) -> dict[str, Any]:
        if not line.is_hit:
            return {}
        found = self._recognise[said.host](said.message, line.number, self.findings)
        if found and said.is_echo:
            key = (said.host, found["code"], found["device"])
            count, first = self._repeated.get(key, (0, line.number))
            self._repeated[key] = (count + 1, first)
            self._echo_line = line.number
            return {}
        return found

    def _doubt(self, text: str, number: int) -> None:
        """Count a line that no rule knows if it speaks of an error."""
        if number != self._echo_line and is_unknown_error(text):
            where = f"line {number:,}: {shortened(text)[:_SHOWN_CHARS]}"
            self.findings.add("suspicious", UNKNOWN, 1, where)

    def _note(self, text: str, said: Said, number: int) -> None:
        where = f"line {number:,}"
        if said.time_ns is None and not any(s.second_boot_count for s in self._stamps.values()):
            self.findings.add("suspicious", "no time stamp; the time is missing", 1, where)
        if "\ufffd" in text:
            what = "bytes that are no UTF-8"
            self.findings.add("repaired", what, text.count("\ufffd"), where)


def _said(stamps: Stamps, prefix: Prefix, number: int) -> tuple[Said, LoadError | None]:
    """Take a line apart, or say what is missing for it."""
    refusal = None
    try:
        said = stamps.read(prefix.rest, number)
    except LoadError as error:
        said, refusal = Said(None, None, prefix.rest), error
    host = said.host or prefix.host
    if said.time_ns is None and prefix.time_ns is not None:
        # When the container wrote the line, where that says nothing, or not enough, of itself.
        taken = said._replace(time_ns=prefix.time_ns, host=host, assumed=OF_CONTAINER)
        return taken, None
    return said._replace(host=host), refusal
