"""The columns of a table of power telemetry, and how those of things are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._power.part import unit_factor

ENTITIES = ("entity", "sensor", "meter", "circuit", "series")
NODES: tuple[str, ...] = (
    "node", "host", "hostname", "host_name", "nodename", "node_name", "server", "machine",
)  # fmt: skip
NODES += ("node_id", "instance", "chassis")
INDICES: tuple[str, ...] = (
    "gpu", "gpu_index", "gpu_id", "index", "device", "device_index", "device_id",
)  # fmt: skip
INDICES += ("gpu_idx", "accelerator", "minor_number", "local_rank", "card")
UUIDS = ("uuid", "gpu_uuid", "device_uuid", "serial", "gpu_serial")
GROUPS = ("rack", "pdu", "panel", "switchboard", "msb")
IDENTITIES = {*ENTITIES, *NODES, *INDICES, *UUIDS}
# Columns that say whose a row is.
NAMING = IDENTITIES | set(GROUPS)
NEVER = re.compile(r"|unnamed: ?\d+|__index_level_\d+__|index|row|id", re.IGNORECASE)
_WIDE_PART = re.compile(
    r"(?P<node>.+?)[\s/._:-]*gpu[ _-]?(?P<index>\d+)|gpu[ _-]?(?P<only>\d+)", re.IGNORECASE
)
FEED = re.compile(
    r"(rack|row|pdu|panel|switchboard|msb|utility|facility|cooling)[\s_./:-]*\w?\d*", re.IGNORECASE
)


@dataclass(frozen=True)
class PowerColumn:
    """One column of powers: whose, where and how metered, and watts in one of its unit.

    ``part`` is what it meters of what the row names, e.g. ``gpu3``; "" if that itself. Cells
    without a unit are not powers if ``needs_unit``, but 0.
    """

    name: str
    part: str = ""
    scope: str = "unknown"
    method: str = "unknown"
    factor: float | None = None
    is_mw: bool = False
    is_entity: bool = False
    needs_unit: bool = False


@dataclass(frozen=True)
class PowerLayout:
    """Roles of the columns of a table; ``left_out`` are other powers, and why.

    ``counters`` count energy; their factors are joules in one of their unit.
    """

    time: str
    powers: tuple[PowerColumn, ...]
    counters: tuple[PowerColumn, ...] = ()
    entity: str | None = None
    node: str | None = None
    device: str | None = None
    is_uuid: bool = False
    scope: str = "unknown"
    is_cluster: bool = False
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> list[str]:
        return [name for name in (self.entity, self.node, self.device) if name is not None]

    def renamed(self, own: Mapping[str, str]) -> PowerLayout:
        """Return the layout with the names that the file has for its columns."""

        def back(columns: Sequence[PowerColumn]) -> tuple[PowerColumn, ...]:
            return tuple(replace(c, name=own.get(c.name, c.name)) for c in columns)

        return replace(
            self,
            time=own.get(self.time, self.time),
            entity=own.get(self.entity or "", self.entity),
            node=own.get(self.node or "", self.node),
            device=own.get(self.device or "", self.device),
            powers=back(self.powers),
            counters=back(self.counters),
            left_out=tuple((own.get(name, name), why) for name, why in self.left_out),
        )


def wide_name(name: str) -> str:
    """Write the name of a column as that of an entity: ``node1_gpu3`` as ``node1/gpu3``."""
    if match := _WIDE_PART.fullmatch(name):
        if match["only"] is not None:
            return f"gpu{int(match['only'])}"
        return f"{match['node']}/gpu{int(match['index'])}"
    return name


def shown(names: Sequence[str]) -> str:
    listed = [str(name)[:40] for name in names[:8]]
    return f"{listed}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Cells of a table of power telemetry as numbers: what is none is missing, and counted.

_ABSENT = pa.array(
    [
        *("", "-", "--", "?", "n/a", "[n/a]", "na", "nan", "<na>", "null", "none", "missing"),
        *("err", "err!", "error", "[not supported]", "not supported", "unknown"),
        "[unknown error]",
        *("unknown error", "[function not found]", "[gpu requires reset]"),
        "[insufficient permissions]",
        "[requested functionality has been deprecated]",
    ]
)  # fmt: skip
_ABSENT_TEXTS = frozenset(_ABSENT.to_pylist())
_WITH_UNIT = re.compile(
    r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(mW|W|kW|MW)\s*$", re.ASCII
)
# Between the milliwatts of one sensor and the megawatts of a site.
_MILLI_FROM = 5e3


@dataclass
class Watts:
    """Turns the cells of one column of powers into watts, the same way throughout a file."""

    column: PowerColumn
    factor: float | None = None
    assumed: str = ""

    def of(self, cells: pa.Array, lines: np.ndarray, findings: Findings) -> np.ndarray:
        values, own = numbers(cells, self.column.name, lines, findings)
        if self.column.needs_unit:
            return self._with_own(values, own, lines, findings)
        factor = self._factor(values, findings)
        if own is None:
            return values if factor == 1 else values * factor
        return values * np.where(np.isnan(own), factor, own)

    def _with_own(
        self, values: np.ndarray, own: np.ndarray | None, lines: np.ndarray, findings: Findings
    ) -> np.ndarray:
        # A bare 0 is 0 W in any unit.
        factors = np.full(len(values), np.nan) if own is None else own
        bare = np.isnan(factors) & ~np.isnan(values) & (values != 0)
        if bare.any():
            text = f"cells of {self.column.name!r} without a unit, which others have; pass unit="
            findings.add("dropped", text, int(bare.sum()), f"line {int(lines[bare.argmax()]):,}")
        watts: np.ndarray = np.where(values == 0, 0.0, values * factors)
        return watts

    def _factor(self, values: np.ndarray, findings: Findings) -> float:
        if self.factor is not None:
            return self.factor
        column = self.column
        if column.factor is not None or not column.is_mw:
            self.factor = 1.0 if column.factor is None else column.factor
            if column.factor is None:
                # The entry point takes the powers of GPUs for mW where they are that large.
                text = "GPU powers without a unit, assumed to be W unless far too large; pass unit="
                findings.add("assumed", text, 1, column.name)
            return self.factor
        texts = values[np.isfinite(values)]
        if not len(texts):
            return 1.0
        is_milli = float(np.median(texts)) >= _MILLI_FROM
        self.factor, unit = (1e-3, "mW") if is_milli else (1e6, "MW")
        self.assumed = f"unit={unit}"
        text = f"columns in mw, taken for {unit} by the size of the numbers; pass unit="
        findings.add("assumed", text, 1, column.name)
        return self.factor


def numbers(
    cells: pa.Array, name: str, lines: np.ndarray, findings: Findings
) -> tuple[np.ndarray, np.ndarray | None]:
    if is_text(cells.type):
        return _from_text(cells, name, lines, findings)
    values: np.ndarray = _floats(cells)
    return values, None


def has_unit(cell: str) -> bool:
    """Return whether a cell is a number with a unit of power: ``627.40 W``."""
    return _WITH_UNIT.fullmatch(cell) is not None


def is_absent(cell: str) -> bool:
    return cell.strip().lower() in _ABSENT_TEXTS


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def refuse_other_types(schema: pa.Schema, names: list[str], label: str) -> None:
    for name in names:
        kind = schema.field(name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (is_number(plain) or is_text(plain) or pa.types.is_null(plain)):
            msg = f"{label}: column {name!r} holds {kind}, no numbers; save one number per row"
            raise LoadError(msg)


def plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _floats(cells: pa.Array) -> np.ndarray:
    if pa.types.is_null(cells.type):
        return np.full(len(cells), np.nan)
    if pa.types.is_float16(cells.type):
        return np.array(cells.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_integer(cells.type) and not cells.null_count:
        return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)
    floats = cells.cast(pa.float64(), safe=False)
    values: np.ndarray = floats.to_numpy(zero_copy_only=False)
    return values


def _from_text(
    cells: pa.Array, name: str, lines: np.ndarray, findings: Findings
) -> tuple[np.ndarray, np.ndarray | None]:
    trimmed = pc.utf8_trim_whitespace(cells)
    absent = pc.is_in(pc.utf8_lower(trimmed), value_set=_ABSENT.cast(trimmed.type))
    texts = pc.if_else(pc.fill_null(absent, True), None, trimmed)
    try:
        return _floats(texts.cast(pa.float64())), None
    except pa.ArrowInvalid:
        return _odd(texts, name, lines, findings)


def _odd(
    is_known: pa.Array, name: str, lines: np.ndarray, findings: Findings
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read cells of which some are not plain numbers: ``627.40 W``, or nothing of use."""
    texts = pd.Series(is_known.to_pandas(), dtype=pd.Series([""]).dtype)
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    values = values.copy()
    remainder = np.flatnonzero(np.isnan(values) & texts.notna().to_numpy())
    split = texts.iloc[remainder].str.extract(_WITH_UNIT)
    has_unit = split[1].notna().to_numpy()
    own = np.full(len(texts), np.nan)
    values[remainder[has_unit]] = split[0][has_unit].astype("float64").to_numpy()
    own[remainder[has_unit]] = split[1][has_unit].map(unit_factor).to_numpy(dtype=np.float64)
    bad = remainder[~has_unit]
    if len(bad):
        shown = str(texts.iloc[int(bad[0])])[:40]
        text = f"cells of {name!r} that are not numbers; they are missing"
        findings.add("dropped", text, len(bad), f"line {int(lines[bad[0]]):,}: {shown}")
    return values, own if has_unit.any() else None


# What the name of a column says of it: a power, its unit, and what is metered.

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")
_IN_BRACKETS = re.compile(
    r"[\[(]\s*(milliwatts?|watts?|kilowatts?|megawatts?|[umk]?w)\s*[\])]\s*$", re.IGNORECASE
)
_WATT_HOURS = re.compile(
    r"(kilo|mega|milli|k)?[\s_.-]*watts?[\s_.*\u00b7-]*h(?:(?:ou)?rs?)?(?![a-z])", re.IGNORECASE
)
_W_H = re.compile(r"(?<![A-Za-z])([kmM]?)[wW][\s_.*\u00b7-]+[hH](?![A-Za-z])")
_PREFIXES = {"kilo": "k", "mega": "M", "milli": "m", "k": "k", "": ""}
_POWER = {"power", "pwr", "watt", "watts", "wattage"}
# Words that make a power something else: a limit, a share, a state, an energy.
_NO_POWER = {
    *("limit", "limits", "cap", "capped", "capping", "budget", "nameplate", "tdp", "rated"),
    *("util", "utilization", "utilisation", "percent", "pct", "share", "ratio", "factor"),
    *("state", "states", "mode", "profile", "management", "violation", "throttle", "reason"),
    *("reasons", "requested", "default", "enforced", "target", "setpoint", "energy", "hours"),
    *("hour", "wh", "kwh", "mwh", "joule", "joules", "capacity", "headroom", "allocated"),
    *("supply", "cycle", "on", "off", "status", "constraint", "smoothing", "brake", "saving"),
}
_MEANS = {"mean", "average", "avg"}
# Other statistics of a window, told apart from its mean.
# Limits by their short names: PL1 and PL2 of Intel, PPT of AMD.
_SHORT_LIMIT = re.compile(r"pl\d|ppt\d?")
_STATISTICS = {
    "min", "max", "minimum", "maximum", "std", "stddev", "count", "size", "peak", "median",
}  # fmt: skip
_QUANTILE = re.compile(r"(?:q|p)\d{1,2}")
_INSTANT = {"instant", "instantaneous"}
_GPU, _CPU, _MEMORY = {"gpu", "accelerator"}, {"cpu", "socket"}, {"dram", "memory", "mem", "ddr"}

Statistic = Literal["", "mean", "other"]


@dataclass(frozen=True)
class PowerName:
    """Parsed name of a column of powers."""

    # The name without unit and statistic, in lower case.
    stem: tuple[str, ...]
    # Watts in one unit; None if the name states none, or mw: milliwatts or megawatts.
    factor: float | None = None
    is_mw: bool = False
    method: str = "unknown"
    scope: str = "unknown"
    # The mean of a window, or another statistic of it.
    statistic: Statistic = ""


def power_name(name: str) -> PowerName | None:
    """Read the name of a column; None if it does not say that it holds powers.

    Examples
    --------
    >>> power_name("power_draw_W").factor, power_name("input_power.mean").statistic
    (1.0, 'mean')
    >>> power_name("power_limit_w"), power_name("temperature_gpu")
    (None, None)
    """
    words, factor, is_mw = _without_unit(name)
    has_unit = factor is not None or is_mw
    lowered = [word.lower() for word in words]
    if set(lowered) & _NO_POWER or names_a_limit(lowered):
        return None
    if not (has_unit or set(lowered) & _POWER):
        return None
    statistic, method = _statistic(lowered), "unknown"
    if set(lowered) & _INSTANT:
        method = "instant"
    elif statistic == "mean":
        method = "average"
    kept = [word for word in lowered if word not in _MEANS | _STATISTICS | _INSTANT]
    return PowerName(tuple(kept), factor, is_mw, method, scope_of(lowered), statistic)


def names_a_limit(words: Iterable[str]) -> bool:
    return any(map(_SHORT_LIMIT.fullmatch, words))


def words_of(name: str) -> list[str]:
    """Split a name such as ``p0_gpu1_power`` or ``PowerWatts`` into its words."""
    return [word for word in _SEPARATORS.split(_CAMEL.sub("_", name)) if word]


def ascii_unit(name: str) -> str:
    """Write the micro of a unit as ``u`` and watt-hours as ``Wh``: ``power_µW`` as ``power_uW``.

    Examples
    --------
    >>> ascii_unit("Watt-Hour"), ascii_unit("kilowatt hours used"), ascii_unit("kW-h")
    ('Wh', 'kWh used', 'kWh')
    """
    name = _WATT_HOURS.sub(lambda match: f" {_PREFIXES[(match[1] or '').lower()]}Wh", name)
    name = _W_H.sub(r"\1Wh", name).strip()
    return name.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")


def is_damaged(name: str) -> bool:
    """Return whether a name holds what was not UTF-8, which may have been the micro of a unit."""
    return "\N{REPLACEMENT CHARACTER}" in name


def _without_unit(name: str) -> tuple[list[str], float | None, bool]:
    if is_damaged(name):
        kept = [word for word in words_of(name) if _factor(word) == (None, False)]
        return [*kept, "power"], None, False
    name = ascii_unit(name)
    if bracketed := _IN_BRACKETS.search(name):
        factor, is_mw = _factor(bracketed[1])
        return words_of(name[: bracketed.start()]), factor, is_mw
    words = words_of(name)
    behind_unit = _MEANS | _STATISTICS | _INSTANT | {"total"}
    for position in range(len(words) - 1, -1, -1):
        word = words[position].lower()
        if word in behind_unit and len(words) > 1:
            continue
        prefix = {"milli": 1e-3, "kilo": 1e3, "mega": 1e6}.get(words[position - 1].lower())
        if position and prefix and word in ("watt", "watts"):
            return words[: position - 1] + words[position + 1 :], prefix, False
        factor, is_mw = _factor(words[position])
        if factor is not None or is_mw:
            return words[:position] + words[position + 1 :], factor, is_mw
        break
    return words, None, False


def _factor(word: str) -> tuple[float | None, bool]:
    if word in ("mW", "MW"):
        return unit_factor(word), False
    low = word.lower()
    if low == "mw":
        return None, True
    texts = {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "kilowatt": 1e3, "kilowatts": 1e3}
    texts |= {"uw": 1e-6, "microwatt": 1e-6, "microwatts": 1e-6}
    texts |= {"megawatt": 1e6, "megawatts": 1e6, "milliwatt": 1e-3, "milliwatts": 1e-3}
    return texts.get(low), False


def _statistic(words: list[str]) -> Statistic:
    if set(words) & _MEANS:
        return "mean"
    if set(words) & _STATISTICS or any(_QUANTILE.fullmatch(word) for word in words[-1:]):
        return "other"
    return ""


def scope_of(words: Iterable[str]) -> str:
    """Tell what is metered by words such as ``gpu`` and ``gpu3``."""
    bare = {re.sub(r"\d+$", "", word) for word in words}
    for scope, names in (("gpu", _GPU), ("cpu", _CPU), ("memory", _MEMORY)):
        if bare & names:
            return scope
    return "unknown"
