"""Cells of a table of power telemetry as numbers: what is none is missing, and counted."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._power.formats.table.columns import PowerColumn
from workbench.load._power.formats.table.names import unit_factor

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
        """Return powers in W, missing where the file has none."""
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
        """Return powers whose cells say their unit; a bare 0 is one in any."""
        factors = np.full(len(values), np.nan) if own is None else own
        bare = np.isnan(factors) & ~np.isnan(values) & (values != 0)
        if bare.any():
            what = f"cells of {self.column.name!r} without a unit, which others have; pass unit="
            findings.add("left out", what, int(bare.sum()), f"line {int(lines[bare.argmax()]):,}")
        watts: np.ndarray = np.where(values == 0, 0.0, values * factors)
        return watts

    def _factor(self, values: np.ndarray, findings: Findings) -> float:
        if self.factor is not None:
            return self.factor
        column = self.column
        if column.factor is not None or not column.is_mw:
            self.factor = 1.0 if column.factor is None else column.factor
            if column.factor is None:
                # The front door takes the powers of GPUs for mW where they are that large.
                what = "GPU powers without a unit, taken for W unless far too large; pass unit="
                findings.add("assumed", what, 1, column.name)
            return self.factor
        known = values[np.isfinite(values)]
        if not len(known):
            return 1.0
        is_milli = float(np.median(known)) >= _MILLI_FROM
        self.factor, unit = (1e-3, "mW") if is_milli else (1e6, "MW")
        self.assumed = f"unit={unit}"
        what = f"columns in mw, taken for {unit} by the size of the numbers; pass unit="
        findings.add("assumed", what, 1, column.name)
        return self.factor


def numbers(
    cells: pa.Array, name: str, lines: np.ndarray, findings: Findings
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return cells as floats, and per cell the watts of its own unit if some have one."""
    if is_text(cells.type):
        return _from_text(cells, name, lines, findings)
    values: np.ndarray = _floats(cells)
    return values, None


def has_unit(cell: str) -> bool:
    """Say whether a cell is a number with a unit of power: ``627.40 W``."""
    return _WITH_UNIT.fullmatch(cell) is not None


def is_absent(cell: str) -> bool:
    """Say whether a cell says that there is no value."""
    return cell.strip().lower() in _ABSENT_TEXTS


def is_text(kind: pa.DataType) -> bool:
    """Say whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Say whether a type can hold powers."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def refuse_other_types(schema: pa.Schema, names: list[str], label: str) -> None:
    """Raise if a column that should hold numbers holds something else."""
    for name in names:
        kind = schema.field(name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (is_number(plain) or is_text(plain) or pa.types.is_null(plain)):
            msg = f"{label}: column {name!r} holds {kind}, no numbers; save one number per row"
            raise LoadError(msg)


def plain(cells: pa.Array) -> pa.Array:
    """Return cells without the dictionary they are packed in."""
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
    known = pc.if_else(pc.fill_null(absent, True), None, trimmed)
    try:
        return _floats(known.cast(pa.float64())), None
    except pa.ArrowInvalid:
        return _odd(known, name, lines, findings)


def _odd(
    known: pa.Array, name: str, lines: np.ndarray, findings: Findings
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read cells of which some are no plain number: ``627.40 W``, or nothing of use."""
    texts = pd.Series(known.to_pandas(), dtype=pd.Series([""]).dtype)
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    values = values.copy()
    rest = np.flatnonzero(np.isnan(values) & texts.notna().to_numpy())
    split = texts.iloc[rest].str.extract(_WITH_UNIT)
    has_unit = split[1].notna().to_numpy()
    own = np.full(len(texts), np.nan)
    values[rest[has_unit]] = split[0][has_unit].astype("float64").to_numpy()
    own[rest[has_unit]] = split[1][has_unit].map(unit_factor).to_numpy(dtype=np.float64)
    bad = rest[~has_unit]
    if len(bad):
        shown = str(texts.iloc[int(bad[0])])[:40]
        what = f"cells of {name!r} that are no number; they are missing"
        findings.add("left out", what, len(bad), f"line {int(lines[bad[0]]):,}: {shown}")
    return values, own if has_unit.any() else None
