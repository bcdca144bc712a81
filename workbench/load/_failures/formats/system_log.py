"""How logs of one line per message are read: find the lines that matter, and when they were."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._failures.kernel_messages import ERROR_NEEDLES, is_unknown_error
from workbench.load._failures.line_prefix import OF_CONTAINER, Prefix, without_prefix
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import BLOCK_BYTES, Stream
from workbench.load._files.text import COLOURS, tell_of_no_end, unfolded
from workbench.load._files.time import (
    REMEDY,
    SECOND,
    Given,
    LogPart,
    failure_rows,
    needs,
    no_zone,
    shortened,
    zone_of,
)
from workbench.tables import TIMELINE

_BOOT = re.compile(r"^-- (?:Re)?[Bb]oot\b|\] Linux version \d")
_LINES_OF_ONE_MESSAGE = 3
_SHOWN_CHARS = 160
# journalctl shows no message that is long or not printable unless it is asked to.
_WITHHELD = "messages that journalctl withheld; write the log with journalctl --all"
_MARKS = (b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [', b'"MESSAGE":null', b'"MESSAGE": null',
          b'"MESSAGE" : null', b" blob data]")  # fmt: skip
_BLOB = re.compile(r"\[[\d.]{1,12}[BKMGT] blob data\]$")
UNKNOWN = "lines that report an error but match no rule; not counted as failures"

# Returns columns of table FAILURES for a message and its line number, or {} if it is none.
Recognise = Callable[[str, int, Findings], dict[str, Any]]
_Event = tuple[str | None, str, str | None]  # host, code and device


def read_system_log(
    source: Source,
    settings: Given,
    needles: Sequence[bytes],
    recogniser: Callable[[], Recognise],
    in_any_case: Sequence[bytes] = ERROR_NEEDLES,
) -> LogPart:
    for is_every in (False, True):
        log = _Log(source.label, settings, recogniser)
        with unfolded(source, log.findings) as stream:
            lines = Lines(stream, (*needles, *_MARKS), in_any_case, is_every=is_every)
            failures = failure_rows(log.rows(lines), source.label)
            unknown = log.findings.count(UNKNOWN) + log.findings.count(_WITHHELD)
            report_reading(log.findings, lines, stream, rows=len(failures), unknown=unknown)
        # Which of two equal hours is meant, the stamps of the lines between tell.
        if not any(stamps.clock_change_count for stamps in log.stamps.values()):
            break
    log.report()
    nodes = {settings.node: None} if settings.node else {}
    return LogPart(failures, TIMELINE.empty(), log.findings, nodes, log.watched.spans)


class _Log:
    def __init__(self, label: str, settings: Given, recogniser: Callable[[], Recognise]) -> None:
        self.findings = Findings(label)
        self.watched = Watched()
        self._given = settings
        self._label = label
        # A boot or a link of one host says nothing of the others.
        self._recognise: defaultdict[str | None, Recognise] = defaultdict(recogniser)
        # Of every host its own: each has its own year, boot and clock changes.
        self.stamps: dict[str, Stamps] = {}
        self._before: tuple[int, Said] = (0, Said(None, None, ""))
        self._reported: set[_Event] = set()
        self._repeated: dict[_Event, tuple[int, int]] = {}
        self._echo_line = 0

    def rows(self, lines: Lines) -> Iterator[dict[str, Any]]:
        for line in lines:
            text = line.text.decode(errors="replace").strip("\r\0")
            text = COLOURS.sub("", text) if "\x1b" in text else text
            prefix = without_prefix(text.strip(), BEGINNING)
            stamps = self.stamps.setdefault(prefix.key, Stamps(self._given, self._label))
            if line.is_hit and _BOOT.search(text):
                stamps.boot()
            fields, refusal = _said(stamps, prefix, line.number)
            fields = self._continued(fields, text, line)
            host = fields.host or self._given.node
            failure = self._failure(fields, line)
            if failure and refusal:
                raise refusal
            self.watched.see(host, fields.time_ns, line.number)
            if failure:
                self._reported.add((fields.host, failure["code"], failure["device"]))
                self._note(fields, line.number)
                yield failure | {
                    "start_ns": fields.time_ns, "end_ns": fields.time_ns, "node": host,
                    "clock": "none" if fields.time_ns is None else "epoch", "line": line.number,
                    "text": shortened(fields.message), "assumed": fields.assumed,
                }  # fmt: skip
            elif line.is_hit:
                self._doubt(fields.message if text.startswith("{") else text, line.number)

    def report(self) -> None:
        findings, stamps = self.findings, list(self.stamps.values())
        self.watched.report(findings)
        remark = "New Year is passed; the year is counted up"
        findings.add("noted", remark, sum(stamp.new_year_count for stamp in stamps))
        remark = "stamps without a year leap ahead by half a year; is the log in order?"
        findings.add("suspicious", remark, sum(stamp.leap_count for stamp in stamps))
        for key, (count, number) in self._repeated.items():
            is_told = key in self._reported
            remark = "lines in which another program repeats the kernel"
            remark += "" if is_told else ", whose own line is not in the file; not counted"
            finding = "skipped by design" if is_told else "suspicious"
            findings.add(finding, remark, count, f"line {number:,}")
        remark = "local times in an hour that a clock change repeats or skips; pass a fixed offset"
        findings.add("suspicious", remark, sum(stamp.clock_change_count for stamp in stamps))
        remark = "lines of a second boot, whose time is not known; their time is missing"
        findings.add("suspicious", remark, sum(stamp.second_boot_count for stamp in stamps))

    def _continued(self, fields: Said, text: str, line: Line) -> Said:
        """Copy to an indented line without a time stamp those of the line it continues."""
        number, before = self._before
        is_next = line.number - number < _LINES_OF_ONE_MESSAGE
        if fields.time_ns is None and text.startswith(" ") and is_next:
            return before._replace(message=fields.message)
        self._before = (line.number, fields) if line.is_hit else self._before
        return fields

    def _failure(self, fields: Said, line: Line) -> dict[str, Any]:
        if not line.is_hit:
            return {}
        if fields.is_withheld or _BLOB.search(fields.message):
            self.findings.add("dropped", _WITHHELD, 1, f"line {line.number:,}")
            return {}
        failure = self._recognise[fields.host](fields.message, line.number, self.findings)
        if failure and fields.is_echo:
            key = (fields.host, failure["code"], failure["device"])
            count, first = self._repeated.get(key, (0, line.number))
            self._repeated[key] = (count + 1, first)
            self._echo_line = line.number
            return {}
        return failure

    def _doubt(self, text: str, number: int) -> None:
        """Count a line that matches no rule if it reports an error."""
        if number != self._echo_line and is_unknown_error(text):
            where = f"line {number:,}: {shortened(text)[:_SHOWN_CHARS]}"
            self.findings.add("suspicious", UNKNOWN, 1, where)

    def _note(self, fields: Said, number: int) -> None:
        where = f"line {number:,}"
        if fields.time_ns is None and not any(s.second_boot_count for s in self.stamps.values()):
            self.findings.add("suspicious", "no time stamp; the time is missing", 1, where)
        remark = "bytes that are not UTF-8"
        self.findings.add("repaired", remark, fields.message.count("\ufffd"), where)


def _said(stamps: Stamps, prefix: Prefix, number: int) -> tuple[Said, LoadError | None]:
    refusal = None
    try:
        stamp = stamps.read(prefix.rest, number)
    except LoadError as error:
        stamp, refusal = Said(None, None, prefix.rest), error
    host = stamp.host or prefix.host
    if stamp.time_ns is None and prefix.time_ns is not None:
        # When the container wrote the line, where that says nothing, or not enough, of itself.
        stamped = stamp._replace(time_ns=prefix.time_ns, host=host, assumed=OF_CONTAINER)
        return stamped, None
    return stamp._replace(host=host), refusal


# When a line of a system log was written, by which host, and what it says.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Lines of several processors may overtake each other; a boot starts at zero.
_REBOOT_NS = 60 * SECOND
# What int64 nanoseconds can hold, and more than any log.
_YEARS = (1900, 2200)
_HALF_YEAR = timedelta(days=182)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"

_DECODED = r"(?:<\d+>|\w{3,8}\s*:\w+\s*:\s)?"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
# A message may begin like a host and its program; the kernel's own lines name a number or it.
_NAME = r"(?P<host>[^\s:\[]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)"
_DRIVER = r"kernel|NVRM|nvidia-nvswitch\d+"
_HOST = rf"(?:\s+{_NAME}\s+(?P<program>{_DRIVER}|[^\s:\[]+(?=\[\d+\]:))(?:\[\d+\])?:)?"
_ANY_HOST = rf"(?:\s+{_NAME}\s+(?P<program>[^\s:\[]+)(?:\[\d+\])?:)?"
# What passed since the line before, as dmesg -d and journalctl -o short-delta add it.
_SINCE = r"(?:\s*<[^>\]]{0,40}>)?"
_FORMS: dict[str, re.Pattern[str]] = {
    "uptime": re.compile(
        rf"{_DECODED}\[\s*(?P<uptime>\d{{1,10}}\.\d{{1,9}}){_SINCE}\](?:\[\s*[TC]\d+\])?{_HOST}"
    ),
    "ctime": re.compile(
        rf"{_DECODED}\[{_DAY} (?P<month>\w{{3}})\s+(?P<day>\d+) (?P<clock>{_CLOCK}) "
        rf"(?P<year>\d{{4}}){_SINCE}\]"
    ),
    "fabric": re.compile(
        rf"\[(?P<month>\w{{3}}) (?P<day>\d\d) (?P<year>\d{{4}}) (?P<clock>{_CLOCK})\] "
        r"\[[A-Z]+\] \[tid \d+\] "
    ),
    "full": re.compile(
        rf"{_DAY} (?P<date>\d{{4}}-\d\d-\d\d) (?P<clock>{_CLOCK}) "
        rf"(?P<zone>UTC|[+-]\d\d(?::?\d\d)?)?(?:[A-Z]{{3,5}}(?= ))?{_ANY_HOST}"
    ),
    "rfc5424": re.compile(
        rf"<\d{{1,3}}>1 (?P<date>\d{{4}}-\d\d-\d\d)T(?P<clock>{_CLOCK})(?P<zone>Z|[+-]\d\d:\d\d) "
        r"(?P<host>\S+) (?P<program>\S+) \S+ \S+ (?:-|(?:\[[^\]]*\])+)(?= |$)"
    ),
    "iso": re.compile(
        rf"{_DECODED}(?P<date>\d{{4}}-\d\d-\d\d)[T ](?P<clock>{_CLOCK})"
        rf"(?P<zone>Z| ?[+-]\d\d:?\d\d| UTC)?{_HOST}"
    ),
    "syslog": re.compile(
        rf"{_DECODED}(?P<month>[A-Z][a-z]{{2}})\s+(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}){_ANY_HOST}"
    ),
    "talos": re.compile(
        r"\w{2,10}:\s+\w{3,8}: \[(?P<date>\d{4}-\d\d-\d\d)T"
        rf"(?P<clock>{_CLOCK})(?P<zone>Z|[+-]\d\d:\d\d)\]: "
    ),
    "kmsg": re.compile(r"\d+,\d+,(?P<uptime_us>\d{1,15}),[-c+][^;]*;"),
    "unix": re.compile(rf"(?P<unix>[12]?\d{{9}}\.\d{{1,9}}){_HOST}"),
}
# What a line begins with, for telling what collectors put before it.
BEGINNING = re.compile(
    "|".join(re.sub(r"\?P<\w+>", "?:", form.pattern) for form in _FORMS.values())
)
_OF_DRIVER = re.compile(r"NVRM|nvidia-nvswitch\d+")
_MONTH = re.compile(r"\b[A-Z][a-z]{2}(?=\s+\d{1,2} \d\d:)")
_JOURNAL_STAMP = re.compile(r"[0-9]{1,15}|[1-8][0-9]{15}")
_JSON = re.compile(r'\{.*"(?:__REALTIME_TIMESTAMP|MESSAGE)"')


class Said(NamedTuple):
    time_ns: int | None
    host: str | None
    message: str
    assumed: str = ""
    program: str | None = None
    is_withheld: bool = False

    @property
    def is_echo(self) -> bool:
        """Whether a program other than the kernel wrote the line."""
        return self.program not in (None, "kernel")


def has_stamp(line: str) -> bool:
    """Tell whether a line begins like one of a system log that the kernel may write to."""
    line = without_prefix(line, BEGINNING).rest
    for name, form in _FORMS.items():
        match = form.match(line)
        if match is None or name == "fabric":
            continue
        if name in ("uptime", "ctime", "full", "kmsg", "talos") or match["host"]:
            return True
        # Without a host, only dmesg's own spelling is unmistakable.
        if name == "iso" and ("," in match["clock"] or line.startswith("kern")) and match["zone"]:
            return True
    return bool(_JSON.match(line))


class Stamps:
    """Reads the stamps of one file in order; knows the year that its lines leave out."""

    def __init__(self, settings: Given, label: str) -> None:
        self._given, self._label = settings, label
        self._zone = zone_of(settings.tz) if settings.tz else None
        self._usual = ""
        self._year = settings.year
        self._last: datetime | None = None
        self._last_ns = 0
        self._uptime_ns = 0
        self._has_uptime = self._is_rebooted = False
        self.new_year_count = self.clock_change_count = self.second_boot_count = 0
        self.leap_count = 0
        self._readers: dict[str, Callable[[re.Match[str], int], tuple[int | None, str]]] = {
            **dict.fromkeys(("uptime", "kmsg"), self._uptime),
            **dict.fromkeys(("ctime", "fabric"), self._ctime),
            **dict.fromkeys(("full", "iso", "talos", "rfc5424"), self._iso),
            "syslog": self._syslog,
            "unix": lambda found, _line: (_decimal_ns(found["unix"]), ""),
        }

    def read(self, line: str, number: int) -> Said:
        if line.startswith("{") and _JSON.match(line):
            return _journal_entry(line)
        # Most lines have the form of the line before.
        names = (self._usual, *_FORMS) if self._usual else _FORMS
        for name in names:
            if match := _FORMS[name].match(line):
                self._usual = name
                time_ns, assumed = self._readers[name](match, number)
                names_host = "host" in match.re.groupindex
                host, program = match.group("host", "program") if names_host else (None, None)
                program_name, end = program, match.end()
                if program and _OF_DRIVER.fullmatch(program):
                    # The kernel's own line, without its name.
                    program_name, end = None, match.start("program")
                host = None if host == "-" else host
                return Said(time_ns, host, line[end:].strip(), assumed, program_name)
        return Said(None, None, line.strip())

    def boot(self) -> None:
        """Take note of a line that begins a boot: uptimes before it were those of another."""
        self._is_rebooted = self._is_rebooted or self._has_uptime

    def _uptime(self, match: re.Match[str], number: int) -> tuple[int | None, str]:
        boot = self._given.boot_time
        if boot is None:
            remedy = "boot_time=, when the host was booted (see `uptime --since`), or log with "
            remedy += "`dmesg --time-format iso`"
            raise self._needs(number, match[0], "date, only the time since boot", remedy)
        groups = match.groupdict()
        is_kmsg = "uptime" not in groups
        since_boot = int(groups["uptime_us"]) * 1000 if is_kmsg else _decimal_ns(groups["uptime"])
        self._has_uptime = True
        self._is_rebooted = self._is_rebooted or since_boot < self._uptime_ns - _REBOOT_NS
        if self._is_rebooted:
            self.second_boot_count += 1
            return None, ""
        self._uptime_ns = max(since_boot, self._uptime_ns)
        return boot.as_unit("ns").value + since_boot, f"boot={boot.isoformat()}"

    def _ctime(self, match: re.Match[str], number: int) -> tuple[int, str]:
        year = int(match["year"])
        if (moment := self._date(year, match)) is None:
            is_dated = _YEARS[0] <= year <= _YEARS[1]
            raise self._no_date(number, match[0], year if is_dated else None)
        return self._in_zone(moment, number, match[0], "")

    def _iso(self, match: re.Match[str], number: int) -> tuple[int, str]:
        text = f"{match['date']}T{match['clock']}"
        stated = (match["zone"] or "").strip().replace("UTC", "+00:00")
        try:
            moment = datetime.fromisoformat(text + stated)
        except ValueError:
            raise self._no_date(number, match[0]) from None
        if not _YEARS[0] <= moment.year <= _YEARS[1]:
            raise self._no_date(number, match[0])
        if moment.tzinfo is not None:
            return nanoseconds(moment), ""
        return self._in_zone(moment, number, match[0], "")

    def _syslog(self, match: re.Match[str], number: int) -> tuple[int, str]:
        if self._year is None or self._given.year is None:
            remedy = "year=, the year of the first line" + ("" if self._zone else f", and {REMEDY}")
            raise self._needs(number, match[0], "year", remedy)
        moment = self._date(self._year, match)
        if self._last is not None and (moment is None or self._last - moment > _HALF_YEAR):
            later = self._date(self._year + 1, match)
            # 29 February does not exist in the next year; such a stamp stays in this one.
            self._year += later is not None
            self.new_year_count += later is not None
            moment = later or moment
        elif self._last is not None and moment is not None and moment - self._last > _HALF_YEAR:
            if self.new_year_count:
                # A straggler of the old year after the first lines of the new one.
                moment = moment.replace(year=self._year - 1)
            else:
                self.leap_count += 1
        if moment is None:
            raise self._no_date(number, match[0], self._year)
        self._last = moment
        return self._in_zone(moment, number, match[0], f"year={self._given.year}")

    def _date(self, year: int, match: re.Match[str]) -> datetime | None:
        month = _MONTHS.find(match["month"]) // 3 + 1
        text = f"{year:04d}-{month:02d}-{int(match['day']):02d}T{match['clock']}"
        try:
            return datetime.fromisoformat(text) if _YEARS[0] <= year <= _YEARS[1] else None
        except ValueError:
            return None

    def _in_zone(self, local: datetime, number: int, stamp: str, assumed: str) -> tuple[int, str]:
        if self._zone is None:
            raise no_zone(label=self._label, line=number, text=stamp)
        moment = local.replace(tzinfo=self._zone)
        time_ns = nanoseconds(moment)
        if moment.utcoffset() != (later := moment.replace(fold=1)).utcoffset():
            self.clock_change_count += 1
            # Of an hour that comes twice, the second is meant where the first lies in the past.
            if time_ns < self._last_ns - SECOND and nanoseconds(later) > time_ns:
                time_ns = nanoseconds(later)
        self._last_ns = time_ns
        zone = f"tz={self._given.tz}"
        return time_ns, f"{zone}, {assumed}" if assumed else zone

    def _needs(self, number: int, stamp: str, missing: str, remedy: str) -> Exception:
        return needs(missing, label=self._label, line=number, text=stamp, remedy=remedy)

    def _no_date(self, number: int, stamp: str, year: int | None = None) -> Exception:
        expected = "date that exists" + (f" in {year}" if year else "")
        if (month := _MONTH.search(stamp)) and month[0] not in _MONTHS:
            expected, remedy = "English month", "a file written with LC_ALL=C"
            return self._needs(number, stamp, expected, remedy)
        remedy = "the right year, or correct the line" if year else "a file with complete lines"
        return self._needs(number, stamp, expected, remedy)


def nanoseconds(moment: datetime) -> int:
    # In integers, as timestamp() would round to a double.
    return (moment - _EPOCH) // _MICROSECOND * 1000


def _decimal_ns(seconds: str) -> int:
    integer, _, decimals = seconds.partition(".")
    return int(integer) * SECOND + int(decimals[:9].ljust(9, "0"))


def _journal_entry(line: str) -> Said:
    try:
        entry = json.loads(line)
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # bytes if it is not plain text, or several messages
            texts = [text for text in message if isinstance(text, str)]
            message = " ".join(texts) or bytes(message).decode(errors="replace")
    except (ValueError, TypeError, RecursionError):
        return Said(None, None, line)
    stamp = str(entry.get("__REALTIME_TIMESTAMP", ""))
    time_ns = int(stamp) * 1000 if _JOURNAL_STAMP.fullmatch(stamp) else None
    host, program = entry.get("_HOSTNAME"), entry.get("SYSLOG_IDENTIFIER")
    if entry.get("_TRANSPORT") == "kernel":
        program = "kernel"
    host = host if isinstance(host, str) else None
    program = program if isinstance(program, str) else None
    text = COLOURS.sub("", str(message or "")).strip()
    is_withheld = message is None and "MESSAGE" in entry
    return Said(time_ns, host, text, program=program, is_withheld=is_withheld)


# How long a log watched each host, and whether its clock ran backwards.

# Lines of several processors overtake each other by less than this.
_TOLERANCE_NS = SECOND


class Watched:
    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, int]] = {}
        self._last: dict[str | None, int] = {}
        self._back_count, self._back_ns, self._back_line = 0, 0, 0

    def see(self, host: str | None, time_ns: int | None, line: int) -> None:
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
        back_s = self._back_ns / SECOND
        remark = f"clock runs backwards, by up to {back_s:,.0f} s; times are as written"
        where = f"line {self._back_line:,}"
        findings.add("suspicious", remark, self._back_count, where)


# Find the few lines of a large log that matter, in blocks, without looking at the others.

# No log writes longer lines; the rest of them is skipped.
LONGEST_LINE_BYTES = 1 << 20
_LINE_END = ord("\n")


class Line(NamedTuple):
    """One line: its number from 1, its bytes, and whether it holds what was looked for."""

    number: int
    text: bytes
    is_hit: bool


class Lines:
    """Lines of a stream that hold one of some byte strings, and the counts of all.

    Besides the hits it gives the first line of every block, and the last line, as samples of
    the clock, or every line; they have ``is_hit`` unset.
    """

    def __init__(
        self,
        stream: Stream,
        needles: Sequence[bytes],
        in_any_case: Sequence[bytes] = (),
        *,
        is_every: bool = False,
    ) -> None:
        self._stream = stream
        self._is_every = is_every
        self._pattern = _any_of(tuple(needles), tuple(in_any_case))
        # Used again for every block: fresh memory costs more than the search in it.
        self._bytes = bytearray(LONGEST_LINE_BYTES + BLOCK_BYTES)
        self._ends_line = np.empty(len(self._bytes), dtype=np.bool_)
        self._last = b""
        self.count = 0
        self.long_count = 0
        # The last line, if it has no end.
        self.rest = b""

    def __iter__(self) -> Iterator[Line]:
        for block in self._blocks():
            yield from self._found(block)
        if self._last:
            yield Line(self.count, self._last, is_hit=False)

    def _found(self, block: memoryview) -> Iterator[Line]:
        ends_line = self._ends_line[: len(block)]
        np.equal(np.frombuffer(block, dtype=np.uint8), _LINE_END, out=ends_line)
        ends = np.flatnonzero(ends_line) + 1
        if not ends_line[-1]:
            ends = np.append(ends, len(block))
        bounds = np.concatenate(([0], ends)).astype(np.int32)
        # Nothing is copied: the lines are views of the block, matched in one call.
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(block)]
        lines = pa.Array.from_buffers(pa.binary(), len(ends), buffers)
        is_hit = np.asarray(pc.match_substring_regex(lines, self._pattern))
        chosen = range(len(ends)) if self._is_every else {0, *np.flatnonzero(is_hit).tolist()}
        for index in sorted(chosen):
            text = bytes(block[bounds[index] : bounds[index + 1]]).removesuffix(b"\n")
            yield Line(self.count + 1 + index, text, bool(is_hit[index]))
        self._last = bytes(block[bounds[-2] :])
        self.count += len(ends)

    def _blocks(self) -> Iterator[memoryview]:
        """Yield blocks of whole lines, each until the next; of too long a line, its beginning."""
        held, is_inside_long, mark = 0, False, BOM_UTF8
        block = memoryview(self._bytes)
        while count := self._stream.readinto(block[held : held + BLOCK_BYTES]):
            begin, end = 0, held + count
            if mark and self._bytes.startswith(mark):
                begin = len(mark)
            mark = b""
            if is_inside_long:
                begin = self._bytes.find(b"\n", 0, end) + 1
                is_inside_long = not begin
                if is_inside_long:
                    continue
            after = max(self._bytes.rfind(b"\n", begin, end) + 1, begin)
            held = end - after
            if held > LONGEST_LINE_BYTES:
                after += LONGEST_LINE_BYTES + 1
                self._bytes[after - 1] = _LINE_END
                held, is_inside_long = 0, True
                self.long_count += 1
            if after > begin:
                yield block[begin:after]
            self._bytes[:held] = self._bytes[end - held : end]
        if held:
            self.rest = bytes(block[:held])
            yield block[:held]


@cache
def _any_of(needles: tuple[bytes, ...], in_any_case: tuple[bytes, ...]) -> str:
    """Return a regular expression of RE2, which takes time linear in the text."""
    exact, folded = (
        "|".join(re.sub(r"(\W)", r"\\\1", text.decode("ascii")) for text in texts)
        for texts in (needles, in_any_case)
    )
    return f"{exact}|(?i:{folded})" if exact and folded else exact or f"(?i:{folded})"


def report_reading(
    findings: Findings, lines: Lines, stream: Stream, *, rows: int, unknown: int
) -> None:
    findings.add("read", "lines", lines.count)
    findings.add("read", "lines that report a failure", rows)
    findings.add("skipped by design", "lines that report none", lines.count - rows - unknown)
    remark = f"lines longer than {LONGEST_LINE_BYTES:,} bytes; their rest"
    findings.add("dropped", remark, lines.long_count)
    tell_of_no_end(lines.rest, stream, findings, f"line {lines.count:,}")
    is_cut = stream.truncated_at is not None
    for number, note in enumerate(stream.notes):
        finding = "truncated" if is_cut and number == len(stream.notes) - 1 else "repaired"
        where = f"byte {stream.tell():,}, line {lines.count:,}" if finding == "truncated" else None
        findings.add(finding, note, 1, where)
