"""Rows of ``nvidia-smi`` tables: blocks of lines to cells, cells to numbers, many at once."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text import repaired
from workbench.load._files.time import in_written_order
from workbench.load._power.part import PowerOptions, unit_factor
from workbench.load._power.rows import SECOND

# Stamps of ``nvidia-smi``, which name no zone: read, and placed by the order of the lines.

EXAMPLE = "2025/01/31 08:00:00.000"
NOT_A_TIME = np.iinfo(np.int64).min
_FREE = re.compile(
    r"(\d{4})[/-]?(\d\d)[/-]?(\d\d)[ T]+(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times of the host
_FIRST_YEAR, _LAST_YEAR = 1971, 2200
_FIRST_NS, _LAST_NS = (
    np.datetime64(str(year), "ns").astype(np.int64) for year in (_FIRST_YEAR, _LAST_YEAR)
)
# As the driver writes them, which Arrow reads by the million per second.
_USUAL = r"^\d{4}[/-]\d\d[/-]\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}$"


def local_ns(cells: pa.Array) -> np.ndarray:
    """Read local stamps as ns since 1970 of the host's own calendar; ``NOT_A_TIME`` if none."""
    cells = pc.utf8_trim(cells, ' \t"')
    result = np.full(len(cells), NOT_A_TIME, dtype=np.int64)
    usual = pc.match_substring_regex(cells, _USUAL).to_numpy(zero_copy_only=False)
    stamps = cells if usual.all() else cells.filter(pa.array(usual))
    try:
        moments = pc.cast(pc.replace_substring(stamps, "/", "-"), pa.timestamp("ns"))
        result[usual] = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
        result[(result < _FIRST_NS) | (result >= _LAST_NS)] = NOT_A_TIME
    except pa.ArrowInvalid:
        pass  # one impossible day, such as 2025/02/30, fails the whole cast
    for row in np.flatnonzero(result == NOT_A_TIME):
        result[row] = free_ns(cells[int(row)].as_py())
    return result


def free_ns(text: str) -> int:
    """Read one local stamp in any of the forms that people and tools make of it."""
    match = _FREE.fullmatch(text.strip()) if len(text) < 64 else None
    if match is None:
        return NOT_A_TIME
    *fields, fraction = match.groups()
    try:
        moment = datetime(*map(int, fields))  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        return NOT_A_TIME
    if not _FIRST_YEAR <= moment.year < _LAST_YEAR:
        return NOT_A_TIME
    since = moment - _EPOCH
    total = since.days * 86_400 + since.seconds
    return total * SECOND + int((fraction or "").ljust(9, "0"))


def utc_ns(local: np.ndarray, lines: np.ndarray, zone: tzinfo, label: str) -> np.ndarray:
    """Turn local times, in the order they were written, into ns since the Unix epoch.

    In the hour that a clock change repeats, the order tells which of the two is meant.
    """
    if zone is UTC or not len(local):
        return local
    placed = in_written_order(local, zone)
    if (bad := placed.ns.isna().to_numpy()).any():
        # An hour that is skipped is told first: it is surely wrong.
        is_skipped = placed.is_skipped.any()
        row = int((placed.is_skipped if is_skipped else bad).argmax())
        reason = "does not exist" if is_skipped else "is there twice"
        raise _impossible(local[row], lines[row], zone, label, reason)
    return placed.ns.to_numpy(dtype=np.int64)


def _impossible(local: int, line: int, zone: tzinfo, label: str, message: str) -> LoadError:
    moment = _EPOCH + timedelta(microseconds=int(local) // 1_000)
    text = moment.isoformat(" ", "milliseconds")
    return LoadError(
        f"{label}, line {int(line):,}: {text} {message} in {zone} (clock change); pass the offset "
        'that the host had, such as tz="+02:00", or the zone it really keeps'
    )


# Blocks of lines to cells.

_BLOCK_BYTES = 16 << 20
_LONGEST_LINE_BYTES = 1 << 20
_LONG = f"lines longer than {_LONGEST_LINE_BYTES >> 20} MiB"


def blocks_of(stream: Stream, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines with the number of the first, damage repaired and counted.

    Only the last block may end without a line end.
    """
    number, remainder, mark, is_inside_long = 1, b"", BOM_UTF8, False
    while block := stream.read(_BLOCK_BYTES):
        block, mark = block.removeprefix(mark), b""
        if is_inside_long:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, is_inside_long, number = block[end + 1 :], False, number + 1
        block = remainder + block
        end = block.rfind(b"\n") + 1
        total, remainder = block[:end], block[end:]
        if total:
            yield number, _tidy(total, number, findings)
            number += total.count(b"\n")
        if len(remainder) > _LONGEST_LINE_BYTES:
            findings.add("dropped", _LONG, 1, f"line {number:,}")
            remainder, is_inside_long = b"", True
    if remainder:
        yield number, _tidy(remainder, number, findings)


def _tidy(block: bytes, number: int, findings: Findings) -> bytes:
    if b"\r" in block:
        # A lone carriage return would count as a line end in Arrow, and shift all line numbers.
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError as error:
        bad = number + block.count(b"\n", 0, error.start)
        return repaired(block, findings, f"line {bad:,}").encode()
    return block


_IDENTITY = ("node", "index", "uuid", "bus", "serial", "model", "mig")
_NUMBERS = ("power", "limit", "clock", "busy", "temperature", "violation", "energy")
_ODD_ROWS = "lines with more or fewer cells than the header"
_NO_STAMP = f"lines whose first cells are not stamps like {EXAMPLE}"
_CUT = "the last line breaks off; it is dropped"

Key = tuple[str, ...]
Clock = Literal["local", "day", "none"]


@dataclass
class Batch:
    """Rows read from one block: what they hold by role, and the key of their device."""

    lines: np.ndarray
    local_ns: np.ndarray
    keys: np.ndarray
    numbers: dict[str, np.ndarray]
    reasons: np.ndarray | None


@dataclass
class Table:
    """All rows of a file, and the headers under which they stand."""

    headers: list[Columns] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    # Different identities of rows, by the code in ``Batch.keys``.
    keys: list[Key] = field(default_factory=list)
    is_stated: bool = False
    first_bad_stamp: str = ""
    # Local times of the host, times of an unknown day, or none at all.
    clock: Clock = "local"

    def column(self, role: str) -> np.ndarray:
        """Look up the numbers of a role; missing where a header has no such column."""
        return np.concatenate([
            batch.numbers.pop(role, np.broadcast_to(np.nan, len(batch.lines)))
            for batch in self.batches
        ])  # fmt: skip


class RowReader:
    """Reads the rows of the tables of one file."""

    def __init__(self, options: PowerOptions, findings: Findings) -> None:
        self.table = Table()
        self._options, self._findings = options, findings
        self._code_of: dict[Key, int] = {}
        self._columns: Columns | None = None
        self._numbers: dict[str, Numbers] = {}

    def use(self, columns: Columns) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        watts = unit_factor(self._options.unit) if self._options.unit else None
        roles = [role for role in _NUMBERS if role in columns.at]
        factors = {"power": watts}
        self._numbers = {
            role: Numbers(role, columns.unit(role), factors.get(role)) for role in roles
        }

    def skip(self) -> None:
        self._columns = None

    def read(self, number: int, block: bytes) -> None:
        """Read whole lines; ``number`` is that of the first."""
        columns = self._columns
        if columns is None:
            count = sum(map(bool, map(bytes.strip, block.split(b"\n"))))
            text = "lines outside of tables with power"
            self._findings.add("skipped by design", text, count, f"line {number:,}")
            return
        if (cut := _cut(block, columns)) is not None:
            line = number + block.count(b"\n")
            self._findings.add("truncated", _CUT, 1, f"line {line:,}")
            block = cut
        if not block.strip():
            return
        if columns not in self.table.headers:
            self.table.headers.append(columns)
        arrow, lines = _parsed(block, columns, number, self._findings)
        if arrow is not None and len(lines):
            self._keep(arrow, lines, columns)

    def _keep(self, arrow: pa.Table, lines: np.ndarray, columns: Columns) -> None:
        findings = self._findings
        times, is_bad = self._times(arrow, lines, columns)
        if is_bad.any():
            arrow, lines, times = arrow.filter(pa.array(~is_bad)), lines[~is_bad], times[~is_bad]
        if not len(lines):
            return
        reasons = _reasons(arrow, columns)
        batch = Batch(lines, times, self._keys(arrow, columns), {}, reasons)
        for role, numbers in self._numbers.items():
            cells = arrow.column(str(columns.at[role])).combine_chunks()
            batch.numbers[role], junk = numbers.read(cells)
            if junk.any():
                row = int(junk.argmax())
                text = f"cells of {columns.name(role)} that are not numbers; they are missing"
                where = f"line {int(lines[row]):,}: {cells[row].as_py()[:40]!r}"
                findings.add("dropped", text, int(junk.sum()), where)
        self.table.is_stated |= self._numbers["power"].is_stated
        self.table.batches.append(batch)

    def _times(
        self, arrow: pa.Table, lines: np.ndarray, columns: Columns
    ) -> tuple[np.ndarray, np.ndarray]:
        if "time" not in columns.at:
            return np.zeros(len(lines), dtype=np.int64), _is_blank(arrow)
        stamps = arrow.column(str(columns.at["time"])).combine_chunks()
        times = local_ns(stamps)
        is_bad = times == NOT_A_TIME
        is_wrong = is_bad & ~_is_blank(arrow) if is_bad.any() else is_bad
        if is_wrong.any():
            row = int(is_wrong.argmax())
            text = stamps[row].as_py()[:40]
            self.table.first_bad_stamp = self.table.first_bad_stamp or text
            where = f"line {int(lines[row]):,}: {text!r}"
            self._findings.add("dropped", _NO_STAMP, int(is_wrong.sum()), where)
        return times, is_bad

    def _keys(self, arrow: pa.Table, columns: Columns) -> np.ndarray:
        combined = np.zeros(arrow.num_rows, dtype=np.int64)
        texts: list[list[str]] = []
        for role in _IDENTITY:
            if role not in columns.at:
                texts.append([""])
                continue
            cells = arrow.column(str(columns.at[role])).combine_chunks()
            facts, codes = texts_of(cells)
            # A number per combination of texts (mixed radix): numpy finds unique numbers faster.
            combined = combined * max(len(facts), 1) + codes
            texts.append(facts or [""])
        unique, inverse = np.unique(combined, return_inverse=True)
        sizes = [len(facts) for facts in texts]
        positions = np.unravel_index(unique, sizes) if len(unique) else ()
        new = np.empty(len(unique), dtype=np.int64)
        for row in range(len(unique)):
            key = tuple(facts[int(at[row])] for facts, at in zip(texts, positions, strict=True))
            if key not in self._code_of:
                self._code_of[key] = len(self.table.keys)
                self.table.keys.append(key)
            new[row] = self._code_of[key]
        return new[inverse].astype(np.int32)


def _cut(block: bytes, columns: Columns) -> bytes | None:
    # A log that is still written, or whose writer was killed, ends inside of a line.
    if block.endswith(b"\n"):
        return None
    last = block[block.rfind(b"\n") + 1 :].decode(errors="replace")
    cells = last.split(columns.separator)
    unit = columns.units[-1]
    # A cell that ends in its unit is whole; without one, 62 may have been meant as 627.
    is_whole = len(cells) == len(columns.names) and unit and last.rstrip(' "').endswith(unit)
    return None if is_whole else block[: block.rfind(b"\n") + 1]


def _reasons(arrow: pa.Table, columns: Columns) -> np.ndarray | None:
    at = columns.at
    if "reasons" in at:
        return whole_numbers(arrow.column(str(at["reasons"])).combine_chunks(), mask_value)
    bits = {role: position for role, position in at.items() if role.startswith("reason ")}
    if not bits:
        return None
    total = np.full(arrow.num_rows, -1, dtype=np.int64)
    for role, position in bits.items():
        active = whole_numbers(arrow.column(str(position)).combine_chunks(), active_value)
        is_known = active >= 0
        # -1 until a bit is known; a mask of 0 says that nothing limits the clock.
        total = np.where(is_known & (total < 0), 0, total)
        total = np.where(is_known, total + active * int(role.split()[1]), total)
    return total


def _is_blank(arrow: pa.Table) -> np.ndarray:
    blank = np.ones(arrow.num_rows, dtype=bool)
    for column in arrow.columns:
        texts = pc.utf8_trim_whitespace(column)
        blank &= pc.equal(pc.binary_length(texts), 0).to_numpy()
    return blank


def _parsed(
    block: bytes, columns: Columns, number: int, findings: Findings
) -> tuple[pa.Table | None, np.ndarray]:
    bad: list[int] = []

    def passed_over(row: pa_csv.InvalidRow) -> str:
        bad.append(row.number)
        return "skip"

    wanted = [str(position) for position in sorted({*columns.at.values()})]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            read_options=pa_csv.ReadOptions(
                column_names=[str(position) for position in range(len(columns.names))],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=columns.separator,
                quote_char='"' if columns.is_quoted else False,
                invalid_row_handler=passed_over,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=wanted,
                strings_can_be_null=False,
                # The block was repaired before.
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        text = f"lines that are not tables ({str(error)[:80]})"
        findings.add("dropped", text, block.count(b"\n"), f"line {number:,}")
        return None, np.empty(0, np.int64)
    if bad:
        findings.add("dropped", _ODD_ROWS, len(bad), f"line {number + bad[0] - 1:,}")
    lines = np.arange(number, number + table.num_rows + len(bad), dtype=np.int64)
    return table, np.delete(lines, np.array(bad, dtype=np.int64) - 1)


# Cells of ``nvidia-smi``: numbers with or without unit, masks, and marks of what is missing.

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%]*)", re.ASCII)
# Drivers word it differently, with and without brackets around it.
_MISSING = frozenset(
    ("", "-", "n/a", "nan", "none", "null", "not supported", "not available", "unknown error",
     "unknown", "err!", "no data", "gpu is lost", "insufficient permissions", "disabled")
)  # fmt: skip
_MASK = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")
FACTORS = {
    "power": {"w": 1.0, "mw": 1e-3, "kw": 1e3},
    "energy": {"j": 1.0, "mj": 1e-3, "kj": 1e3, "wh": 3.6e3, "mwh": 3.6, "kwh": 3.6e6},
    "clock": {"mhz": 1.0, "ghz": 1e3}, "busy": {"%": 0.01}, "temperature": {"c": 1.0},
    "violation": {"us": 1e3, "ms": 1e6, "ns": 1.0, "s": 1e9},
}  # fmt: skip
FACTORS["limit"] = FACTORS["power"]
_USUAL_UNIT = {"energy": "mj", "clock": "mhz", "busy": "%", "temperature": "c", "violation": "us"}
# What a value is: a number, a number whose cell names its unit, a mark that there is none, junk.
_PLAIN, _STATED, _NONE, _JUNK = 0, 1, 2, 3


def is_missing(text: str) -> bool:
    """Return whether a cell tells that there is no value, in any of the words of the drivers."""
    return text.lower() in _MISSING or (text.startswith("[") and text.endswith("]"))


class Numbers:
    """Reads the cells of one column; what was met once is not read again."""

    def __init__(self, role: str, header_unit: str, default_factor: float | None) -> None:
        factors = FACTORS[role]
        unit = header_unit.lower() or _USUAL_UNIT.get(role, "")
        self._factors = factors
        self._plain_factor = factors.get(unit, 1.0 if default_factor is None else default_factor)
        self._known: dict[str, tuple[float, int]] = {}
        self._unit = header_unit if unit in factors else ""
        self.is_stated = bool(header_unit)

    def read(self, cells: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if not len(codes):
            return np.empty(0), np.empty(0, dtype=bool)
        quick = self._all_alike(encoded.dictionary)
        if quick is not None:
            return quick[codes], np.zeros(len(codes), dtype=bool)
        result = [self._value(text) for text in encoded.dictionary.to_pylist()]
        values = np.array([value for value, _ in result])
        kinds = np.array([kind for _, kind in result])
        self.is_stated |= bool((kinds == _STATED).any())
        return values[codes], kinds[codes] == _JUNK

    def _all_alike(self, texts: pa.Array) -> np.ndarray | None:
        """Read texts that are all numbers with the unit of the header; None if some are not."""
        plain = pc.utf8_trim_whitespace(texts)
        if not self._unit or not pc.all(pc.ends_with(plain, self._unit)).as_py():
            return None
        try:
            bare = pc.utf8_rtrim_whitespace(pc.utf8_slice_codeunits(plain, 0, -len(self._unit)))
            numbers: pa.Array = pc.cast(bare, pa.float64())
        except pa.ArrowInvalid:
            return None
        self.is_stated = True
        result: np.ndarray = numbers.to_numpy(zero_copy_only=False)
        return result * self._factors[self._unit.lower()]

    def _value(self, text: str) -> tuple[float, int]:
        value = self._known.get(text)
        if value is None:
            value = self._read(text.strip())
            # A column of ever new texts must not fill the memory.
            if len(self._known) < 1 << 20:
                self._known[text] = value
        return value

    def _read(self, text: str) -> tuple[float, int]:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return np.nan, _NONE if is_missing(text) else _JUNK
        unit = match[2].lower()
        if not unit:
            return float(match[1]) * self._plain_factor, _PLAIN
        factor = self._factors.get(unit)
        return (np.nan, _JUNK) if factor is None else (float(match[1]) * factor, _STATED)


def mask_value(text: str) -> int:
    """Read a mask of clock event reasons; -1 if it is none."""
    match = _MASK.fullmatch(text.strip())
    if match is None:
        return -1
    value = int(match[1], 16)
    return value if value < 1 << 63 else -1


def active_value(text: str) -> int:
    """Read ``Active`` as 1 and ``Not Active`` as 0; -1 if it is neither."""
    return {"active": 1, "not active": 0}.get(text.strip().lower(), -1)


def whole_numbers(cells: pa.Array, read: Callable[[str], int]) -> np.ndarray:
    """Read cells of few different texts; -1 is missing."""
    encoded = cells.dictionary_encode()
    values = np.array([read(text) for text in encoded.dictionary.to_pylist()] or [-1], np.int64)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return values[codes] if len(codes) else np.empty(0, np.int64)


def texts_of(cells: pa.Array) -> tuple[list[str], np.ndarray]:
    encoded = pc.utf8_trim_whitespace(cells).dictionary_encode()
    texts = [text.strip('" ') for text in encoded.dictionary.to_pylist()]
    return texts, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


# Which column of an ``nvidia-smi --query-gpu`` table is what.

MOST_COLUMNS = 5_000
_CELL = re.compile(r"\s*(.*?)\s*(?:\[([^\[\]]*)\])?\s*")
SEPARATORS = (",", ";", "\t")
# Names by role, in order of preference. Old drivers and new ones name some differently.
_NAMES: dict[str, tuple[str, ...]] = {
    "time": ("timestamp",),
    "node": ("hostname",),
    "index": ("index", "gpu_index"),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id", "gpu_bus_id"),
    "serial": ("serial", "gpu_serial"),
    "model": ("name", "gpu_name"),
    "mig": ("mig.mode.current",),
    "limit": ("enforced.power.limit", "gpu.power.current_limit", "power.limit",
              "gpu.power.requested_limit"),
    "clock": ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"),
    "busy": ("utilization.gpu",),
    "temperature": ("temperature.gpu",),
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "violation": ("clocks_event_reasons_counters.sw_power_cap",
                  "clocks_throttle_reasons_counters.sw_power_cap"),
    "energy": ("total_energy_consumption", "energy.consumption", "total.energy.consumption"),
}  # fmt: skip
_GPU_POWER = {
    None: ("power.draw", "power.draw.average", "gpu.power.draw.average", "power.draw.instant",
           "gpu.power.draw.instant"),
    "average": ("power.draw.average", "gpu.power.draw.average"),
    "instant": ("power.draw.instant", "gpu.power.draw.instant"),
}  # fmt: skip
_MODULE_POWER = {
    None: ("module.power.draw.average", "module.power.draw.instant"),
    "average": ("module.power.draw.average",),
    "instant": ("module.power.draw.instant",),
}
_MODULE_LIMIT = ("module.enforced.power.limit", "module.power.limit")
# Bits of NVML, by the columns that tell one of them each.
REASON_BITS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
    "sync_boost": 0x10, "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}  # fmt: skip
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w+)")


@dataclass(frozen=True)
class Columns:
    """The columns of a table: names and units as the header has them, and which is what."""

    separator: str
    is_quoted: bool
    names: tuple[str, ...]
    units: tuple[str, ...]
    # Column by role; "reason 4" is the column that tells bit 0x4.
    at: dict[str, int]
    other_powers: tuple[str, ...] = ()

    def unit(self, role: str) -> str:
        return self.units[self.at[role]]

    def name(self, role: str) -> str:
        """Return the name of the column of a role; '' if there is none."""
        return self.names[self.at[role]] if role in self.at else ""


def columns_of(line: str, options: PowerOptions) -> Columns | None:
    """Read a header; None if the line is none with a reading of power."""
    separator = max(SEPARATORS, key=line.count)
    names, units = [], []
    for cell in line.strip().split(separator):
        match = _CELL.fullmatch(cell.replace('"', " "))
        names.append(match[1].lower() if match else cell)
        units.append((match[2] or "").strip() if match else "")
    if not any("power.draw" in name for name in names) or len(names) > MOST_COLUMNS:
        return None
    is_module = options.scope == "module"
    powers = (_MODULE_POWER if is_module else _GPU_POWER)[options.reading]
    wanted = dict(_NAMES, power=powers)
    if is_module:
        wanted["limit"] = _MODULE_LIMIT
    at = {role: names.index(next(filter(names.__contains__, subset)))
          for role, subset in wanted.items() if not {*names}.isdisjoint(subset)}  # fmt: skip
    if "reasons" not in at:
        for position, name in enumerate(names):
            match = _REASON.fullmatch(name)
            if match and match[1] in REASON_BITS:
                at[f"reason {REASON_BITS[match[1]]}"] = position
    chosen = names[at["power"]] if "power" in at else ""
    remaining = [name for name in names if "power.draw" in name and name != chosen]
    return Columns(separator, '"' in line, tuple(names), tuple(units), at, tuple(remaining))
