"""Stamps of tools that print power: as ``date``, a BMC or a script writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import text_documents
from workbench.load._files.text import tell_of_damage
from workbench.load._files.time import epoch_ns, iso_ns, local_ns, no_zone, zone_of
from workbench.load._power.part import (
    STATE_COLUMNS,
    PowerOptions,
    PowerPart,
    Rows,
    number_of,
    part_of,
    said,
    settled,
    states_frame,
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<part>\d{1,9})\d*)?"
    r"(?: ?(?P<half>[AP]M))?"
)
_DAY, _YEAR = r"(?P<day>\d{1,2})", r"(?P<year>\d{4})"
_MONTH = r"(?P<month>[a-z]{3})"
_ZONE = r"(?: ?(?P<zone>[A-Z]{1,5}|[+-]\d\d:?\d\d))?"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        # Tue Apr 23 12:00:00 2024, and with half, zone or both before the year.
        rf"(?:\w{{3}} +)?{_MONTH} +{_DAY} +{_CLOCK}{_ZONE} +{_YEAR}",
        # Tue 23 Apr 2024 12:00:00 PM UTC
        rf"(?:\w{{3}} +)?{_DAY} +{_MONTH} +{_YEAR} +{_CLOCK}{_ZONE}",
        # 04/23/2024 12:00:00 PM EDT, and 04/23/2024 - 12:00:00
        rf"(?P<one>\d\d)/(?P<two>\d\d)/(?P<year>\d{{4}}|\d\d)(?P<dash> -)? +{_CLOCK}{_ZONE}",
        # 2024/04/23 12:00:00.123
        rf"(?P<year>\d{{4}})/(?P<month>\d\d)/(?P<day>\d\d) +{_CLOCK}{_ZONE}",
    )
)
_EPOCH = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,18})? ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?)?"
)
_BEGINS = re.compile(r"\d{2}|[A-Z][a-z]{2} ")
_OFFSET_NAME = re.compile(r"(?:UTC)?[+-]\d")
_LONGEST = 60
# Numbers from here on count ms, us and ns, not s.
_FINER = ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3))
_LATEST = 9.2e18
# A BMC whose clock was never set counts from 1970.
_UNSET_YEARS = 2000
_UNSET = "stamps of a clock that was never set; the readings have no time"
_NO_TIME = "stamps that are not times; the readings have none"
_MONTH_FIRST = "stamps such as 10/08/2026: read as month, day, year"


class Stamps:
    """Stamps of one file as ns since 1970, and what had to be taken from the caller."""

    def __init__(self, label: str, options: PowerOptions, findings: Findings) -> None:
        self.label, self.options, self.findings = label, options, findings
        self.assumed = ""
        # Many readings share a stamp.
        self._last: tuple[object, int | None] = (object(), None)
        # In an hour that comes twice, the stamp before tells which of the two is meant.
        self._after_ns: int | None = None

    def ns(self, text: object, line: int) -> int | None:
        """Return the instant of a stamp; None if it is none, which is counted."""
        if text == self._last[0] and type(text) is type(self._last[0]):
            return self._last[1]
        result = self.read(text, line)
        if result is not None:
            self._last = text, result
            self._after_ns = result
        else:
            shown = str(text)[:_LONGEST]
            self.findings.add("dropped", _NO_TIME, 1, f"line {line:,}: {shown!r}")
        return result

    def read(self, text: object, line: int) -> int | None:
        """Return the instant of a stamp, or None if it is none; see :meth:`ns`."""
        if isinstance(text, int | float) and not isinstance(text, bool):
            number = number_of(text)
            return None if number is None else _epoch(number, text)
        if not isinstance(text, str) or not 0 < len(text := text.strip()) <= _LONGEST:
            return None
        if _EPOCH.fullmatch(text):
            return _epoch(float(text), text)
        if _ISO.fullmatch(text):
            result = iso_ns(text.replace("_", "T"))
            return result if result is not None else self._iso_local(text, line)
        for form in _FORMS:
            if match := form.fullmatch(text):
                return self._calendar(match.groupdict(), text, line)
        return None

    def _iso_local(self, text: str, line: int) -> int | None:
        naive = text.replace("_", "T")
        if iso_ns(naive, UTC) is None:
            return None
        return iso_ns(naive, self._zone(text, line), self._after_ns)

    def _zone(self, text: str, line: int) -> tzinfo:
        if self.options.tz is None:
            raise no_zone(label=self.label, line=line, text=text)
        self.assumed = f"tz={self.options.tz}"
        return zone_of(self.options.tz)

    def _calendar(self, fields: dict[str, str | None], text: str, line: int) -> int | None:
        moment = self._moment(fields)
        if moment is None:
            return None
        if moment.year < _UNSET_YEARS:
            self.findings.add("dropped", _UNSET, 1, f"line {line:,}: {text}")
            return None
        name = fields.get("zone") or ""
        zone = _named_zone(name)
        if zone is None:
            zone = self._zone(text, line)
            self._check_zone(name, zone.tzname(moment), text, line)
        part_ns = int((fields.get("part") or "0").ljust(9, "0"))
        return local_ns(moment, zone, part_ns, self._after_ns)

    def _check_zone(self, name: str, expected: str | None, text: str, line: int) -> None:
        """Refuse a zone of the caller that has another name than the stamp says."""
        # A fixed offset has no unique name.
        if name and expected and name.upper() != expected and not _OFFSET_NAME.match(expected):
            msg = (
                f"{self.label}, line {line:,}: {text!r} is in {name}, and tz={self.options.tz!r} "
                f"is {expected} then; pass the zone of the host that wrote it, such as "
                "'America/New_York' or '-04:00'"
            )
            raise LoadError(msg)

    def _moment(self, fields: dict[str, str | None]) -> datetime | None:
        year, month, day = self._date(fields)
        hour = int(fields["hour"] or 0)
        if half := (fields.get("half") or "").upper():
            # 12 AM is midnight, 12 PM noon.
            hour = hour % 12 + 12 * (half == "PM")
        try:
            return datetime(  # noqa: DTZ001 - the zone is taken later
                year, month, day, hour, int(fields["minute"] or 0), int(fields["second"] or 0)
            )
        except ValueError:
            return None

    def _date(self, fields: dict[str, str | None]) -> tuple[int, int, int]:
        year = int(fields["year"] or 0)
        # Two digits below 70 are of this century; others are of a clock that was never set.
        year += 2000 * (year < 70)
        if fields.get("one") is None:
            month = (fields["month"] or "").lower()
            number = _MONTHS.index(month) + 1 if month in _MONTHS else 0
            number = int(month) if month.isdecimal() else number
            return year, number, int(fields["day"] or 0)
        row, two = int(fields["one"] or 0), int(fields["two"] or 0)
        # A first number above 12 can only be a day.
        if row > 12:
            return year, two, row
        # FreeIPMI puts a dash there, and always writes the month first.
        self.findings.add("assumed", _MONTH_FIRST, int(two <= 12 and not fields.get("dash")))
        return year, row, two


class Gathered:
    """The tables of one file under construction, and what is known of its entities."""

    def __init__(self, source: Source, options: PowerOptions) -> None:
        self.options, self.findings = options, Findings(source.label)
        self.stamps = Stamps(source.label, options, self.findings)
        self.readings, self.counters = Rows("power_w"), Rows("energy_j")
        self.states = Rows(*STATE_COLUMNS)
        self.entities: dict[str, dict[str, Any]] = {}

    def part(self, how: str) -> PowerPart:
        """Make a part of what was gathered; ``how`` tells the way to log a time."""
        frames = [self.readings.frame(), self.counters.frame(), states_frame(self.states)]
        settled_frames, clock = settled(frames, self.findings, how, self.options)
        for facts in self.entities.values():
            assumed = said(clock["assumed"], self.stamps.assumed, facts.get("assumed", ""))
            facts.update(clock, assumed=assumed)
        return part_of(settled_frames, self.entities, self.findings)


def _epoch(number: float, text: object) -> int | None:
    if not number < _LATEST:
        return None
    for least, count in _FINER:
        if number >= least:
            return int(number / count * 1e9) if count != 10**9 else int(number)
    return epoch_ns(text)


def _named_zone(name: str) -> tzinfo | None:
    # Letters such as CST name several zones; only UTC and offsets are clear.
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    if not name[:1] or name[0] not in "+-":
        return None
    digits = name[1:].replace(":", "")
    east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(east if name[0] == "+" else -east) if east < timedelta(days=1) else None


def stamp_line(text: str) -> str | None:
    """Return the stamp of a line that holds nothing else, as ``date`` in a loop writes it."""
    # This is asked of every line of large files, and nearly none is one.
    if len(text) > _LONGEST or "|" in text or text.count(",") > 1:
        return None
    stamp = text.strip().removeprefix("#").strip()
    if not _BEGINS.match(stamp):
        return None
    result = _EPOCH.fullmatch(stamp) or _ISO.fullmatch(stamp)
    return stamp if result or any(form.fullmatch(stamp) for form in _FORMS) else None


class Page:
    """The stamp before a snapshot: it holds for one reading of each thing, and no longer."""

    def __init__(self) -> None:
        self._time_ns: int | None = None
        self._seen: set[object] = set()

    def begin(self, time_ns: int | None) -> None:
        self._time_ns = time_ns
        self._seen.clear()

    def time_ns(self, entity: object) -> int | None:
        """Return the instant of a reading of this thing, None if nobody knows it."""
        if entity in self._seen:
            return None
        self._seen.add(entity)
        return self._time_ns


def paged_documents(
    source: Source, stamps: Stamps, findings: Findings
) -> Iterator[tuple[int, Any, Page]]:
    """Yield line and value of every JSON document of a file, and the stamp that stands before it.

    Output of ``date`` between documents is common where a tool writes no time itself.
    """
    with source.open() as stream:
        text = stream.read().decode("utf-8", "replace").removeprefix("\ufeff")
        tell_of_damage(stream, findings)
    # Inside of documents lines are indented or end in a comma.
    candidates = ((number, stamp_line(line)) for number, line in enumerate(text.split("\n"), 1)
                  if line[:1].isalnum() or line[:1] == "#")  # fmt: skip
    ahead = [(number, stamp) for number, stamp in candidates if stamp is not None]
    page = Page()
    for line, document in text_documents(text, findings):
        while ahead and ahead[0][0] < line:
            number, stamp = ahead.pop(0)
            page.begin(stamps.ns(stamp, number))
        yield line, document, page
