"""When a line of a system log was written, by which host, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from workbench.load._failures.line_prefix import without_prefix
from workbench.load._files.log_file import SECOND, Given, needs
from workbench.load._files.zones import REMEDY, no_zone, zone_of

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
    """What one line says: its time if it has one, its host if it names one, its message."""

    time_ns: int | None
    host: str | None
    message: str
    assumed: str = ""
    program: str | None = None

    @property
    def is_echo(self) -> bool:
        """Whether a program other than the kernel wrote the line."""
        return self.program not in (None, "kernel")


def has_stamp(line: str) -> bool:
    """Tell whether a line begins like one of a system log that the kernel may write to."""
    line = without_prefix(line, BEGINNING).rest
    for name, form in _FORMS.items():
        found = form.match(line)
        if found is None or name == "fabric":
            continue
        if name in ("uptime", "ctime", "full", "kmsg", "talos") or found["host"]:
            return True
        # Without a host, only dmesg's own spelling is unmistakable.
        if name == "iso" and ("," in found["clock"] or line.startswith("kern")) and found["zone"]:
            return True
    return bool(_JSON.match(line))


class Stamps:
    """Reads the stamps of one file in order; knows the year that its lines leave out."""

    def __init__(self, given: Given, label: str) -> None:
        self._given, self._label = given, label
        self._zone = zone_of(given.tz) if given.tz else None
        self._usual = ""
        self._year = given.year
        self._last: datetime | None = None
        self._last_ns = 0
        self._uptime_ns = 0
        self._has_uptime = self._is_rebooted = False
        self.new_year_count = self.clock_change_count = self.second_boot_count = 0
        self.leap_count = 0
        self._readers: dict[str, Callable[[re.Match[str], int], tuple[int | None, str]]] = {
            "uptime": self._uptime,
            "kmsg": self._uptime,
            "ctime": self._ctime,
            "fabric": self._ctime,
            "full": self._iso,
            "iso": self._iso,
            "talos": self._iso,
            "rfc5424": self._iso,
            "syslog": self._syslog,
            "unix": lambda found, _line: (_decimal_ns(found["unix"]), ""),
        }

    def read(self, line: str, number: int) -> Said:
        """Take a line apart.

        Raises
        ------
        LoadError
            If its stamp needs a zone, year or boot time that the caller did not give.
        """
        if line.startswith("{") and _JSON.match(line):
            return _journal_entry(line)
        names = (self._usual, *_FORMS) if self._usual else _FORMS
        for name in names:
            if found := _FORMS[name].match(line):
                self._usual = name
                time_ns, assumed = self._readers[name](found, number)
                names_host = "host" in found.re.groupindex
                host, program = found.group("host", "program") if names_host else (None, None)
                said, end = program, found.end()
                if program and _OF_DRIVER.fullmatch(program):
                    # The kernel's own line, without its name.
                    said, end = None, found.start("program")
                host = None if host == "-" else host
                return Said(time_ns, host, line[end:].strip(), assumed, said)
        return Said(None, None, line.strip())

    def boot(self) -> None:
        """Take note of a line that begins a boot: uptimes before it were those of another."""
        self._is_rebooted = self._is_rebooted or self._has_uptime

    def _uptime(self, found: re.Match[str], number: int) -> tuple[int | None, str]:
        boot = self._given.boot_time
        if boot is None:
            raise self._needs(
                number,
                found[0],
                "date, only the time since boot",
                "boot_time=, when the host was booted (see `uptime --since`), or log with "
                "`dmesg --time-format iso`",
            )
        groups = found.groupdict()
        if "uptime" in groups:
            since_boot = _decimal_ns(groups["uptime"])
        else:
            since_boot = int(groups["uptime_us"]) * 1000
        self._has_uptime = True
        self._is_rebooted = self._is_rebooted or since_boot < self._uptime_ns - _REBOOT_NS
        if self._is_rebooted:
            self.second_boot_count += 1
            return None, ""
        self._uptime_ns = max(since_boot, self._uptime_ns)
        return boot.as_unit("ns").value + since_boot, f"boot={boot.isoformat()}"

    def _ctime(self, found: re.Match[str], number: int) -> tuple[int, str]:
        local = self._moment(int(found["year"]), found, number)
        return self._in_zone(local, number, found[0], "")

    def _iso(self, found: re.Match[str], number: int) -> tuple[int, str]:
        text = f"{found['date']}T{found['clock']}"
        stated = (found["zone"] or "").strip().replace("UTC", "+00:00")
        try:
            moment = datetime.fromisoformat(text + stated)
        except ValueError:
            raise self._no_date(number, found[0]) from None
        if not _YEARS[0] <= moment.year <= _YEARS[1]:
            raise self._no_date(number, found[0])
        if moment.tzinfo is not None:
            return nanoseconds(moment), ""
        return self._in_zone(moment, number, found[0], "")

    def _syslog(self, found: re.Match[str], number: int) -> tuple[int, str]:
        if self._year is None or self._given.year is None:
            remedy = "year=, the year of the first line" + ("" if self._zone else f", and {REMEDY}")
            raise self._needs(number, found[0], "year", remedy)
        moment = self._date(self._year, found)
        if self._last is not None and (moment is None or self._last - moment > _HALF_YEAR):
            later = self._date(self._year + 1, found)
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
            raise self._no_date(number, found[0], self._year)
        self._last = moment
        return self._in_zone(moment, number, found[0], f"year={self._given.year}")

    def _moment(self, year: int, found: re.Match[str], number: int) -> datetime:
        moment = self._date(year, found)
        if moment is None:
            is_dated = _YEARS[0] <= year <= _YEARS[1]
            raise self._no_date(number, found[0], year if is_dated else None)
        return moment

    def _date(self, year: int, found: re.Match[str]) -> datetime | None:
        month = _MONTHS.find(found["month"]) // 3 + 1
        text = f"{year:04d}-{month:02d}-{int(found['day']):02d}T{found['clock']}"
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
        said = f"tz={self._given.tz}"
        return time_ns, f"{said}, {assumed}" if assumed else said

    def _needs(self, number: int, stamp: str, what: str, remedy: str) -> Exception:
        return needs(what, label=self._label, line=number, text=stamp, remedy=remedy)

    def _no_date(self, number: int, stamp: str, year: int | None = None) -> Exception:
        what = "date that exists" + (f" in {year}" if year else "")
        if (month := _MONTH.search(stamp)) and month[0] not in _MONTHS:
            what, remedy = "English month", "a file written with LC_ALL=C"
            return self._needs(number, stamp, what, remedy)
        remedy = "the right year, or mend the line" if year else "a file whose lines are whole"
        return self._needs(number, stamp, what, remedy)


def nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND * 1000


def _decimal_ns(seconds: str) -> int:
    whole, _, part = seconds.partition(".")
    return int(whole) * SECOND + int(part[:9].ljust(9, "0"))


def _journal_entry(line: str) -> Said:
    """Read a line of ``journalctl -o json``."""
    try:
        entry = json.loads(line)
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # bytes, if it is not plain text
            message = bytes(message).decode(errors="replace")
    except (ValueError, TypeError, RecursionError):
        return Said(None, None, line)
    stamp = str(entry.get("__REALTIME_TIMESTAMP", ""))
    time_ns = int(stamp) * 1000 if _JOURNAL_STAMP.fullmatch(stamp) else None
    host, program = entry.get("_HOSTNAME"), entry.get("SYSLOG_IDENTIFIER")
    if entry.get("_TRANSPORT") == "kernel":
        program = "kernel"
    return Said(
        time_ns,
        host if isinstance(host, str) else None,
        str(message or ""),
        program=program if isinstance(program, str) else None,
    )
