"""Decimal commas and separators of thousands: one rule for all numbers of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workbench.load._files.findings import Findings

# Spaces and apostrophes only ever separate thousands: French, Swiss and ISO forms.
_GROUP = " \u00a0\u2009\u202f'\u2019"
_END = rf"(?:[eE][-+]?\d+)?[\s{_GROUP}]*(?:[mkM]?W|%)?\s*$"
_NUMBER = rf"^\s*[-+]?(?:\d[\d.,{_GROUP}]*|[.,]\d+){_END}"
_LIKE_A_NUMBER = re.compile(_NUMBER)
_COMMAS = "numbers with a decimal comma"
_GROUPED = "numbers with separated thousands"
_DOUBT = (
    "numbers such as {} that may have three decimals or separated thousands; read as {}, which "
    "the other cells do not prove: write them without separators of thousands"
)
_SPLIT = "numbers such as {} in a file with decimal points and decimal commas; they are missing"
_MOST_VALUES = 10_000


def _sure(point: str, comma: str) -> str:
    """Return the form of numbers that can only have ``point`` as their decimal separator."""
    forms = (
        rf"\d*{point}(?:\d{{1,2}}|\d{{4,}})", rf"(?:0|\d{{4,}}){point}\d+",
        rf"\d+{point}\d+[eE][-+]?\d+",
        rf"\d{{1,3}}(?:[{comma}{_GROUP}]\d{{3}})+{point}\d+", rf"\d{{1,3}}(?:{comma}\d{{3}}){{2,}}",
        rf"\d{{1,2}}(?:{comma}\d{{2}})+{comma}\d{{3}}(?:{point}\d+)?",  # Indian
    )  # fmt: skip
    return rf"^\s*[-+]?(?:{'|'.join(forms)}){_END}"


def _open(point: str) -> str:
    return rf"^\s*[-+]?[1-9]\d{{0,2}}{point}\d{{3}}{_END}"


_FORMS = {
    "point": _sure(r"\.", ","), "comma": _sure(",", r"\."), "open point": _open(r"\."),
    "open comma": _open(","), "grouped": rf"\d[{_GROUP}]\d{{3}}",
    "small": rf"^\s*[-+]?[1-9]\d{{0,2}}{_END}", "large": rf"^\s*[-+]?\d{{4,}}{_END}",
}  # fmt: skip


def like_numbers(cells: Iterable[str]) -> bool:
    """Return whether cells are numbers in any form, or empty."""
    return all(_LIKE_A_NUMBER.match(cell) or not cell.strip() for cell in cells)


@dataclass
class NumberForm:
    """What the cells of a file say of its decimal separator, gathered piece by piece."""

    separator: str
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FORMS, 0))
    values: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _FORMS})
    decimal: str = "."

    def look(self, cells: pa.Array) -> None:
        """Count the forms of the cells of one column."""
        for name, form in _FORMS.items():
            matches = pc.match_substring_regex(cells, form)
            self.seen[name] += pc.sum(matches).as_py() or 0
            kept = self.values[name]
            if name.startswith(("open", "small")) and len(kept) < _MOST_VALUES:
                kept += cells.filter(matches).slice(0, _MOST_VALUES).to_pylist()

    @property
    def is_plain(self) -> bool:
        """Whether all that was seen are numbers as programs write them."""
        return self.seen["point"] > 0 and not (
            self.seen["comma"] or self.seen["open comma"] or self.seen["grouped"]
        )

    def settle(self, findings: Findings) -> None:
        """Choose the decimal separator, and tell where the cells do not prove it."""
        seen, is_point, is_comma = self.seen, self.seen["point"], self.seen["comma"]
        opens = seen["open point"] + seen["open comma"]
        if bool(is_point) != bool(is_comma):
            self.decimal = "." if is_point else ","
        elif is_point or (seen["open point"] and seen["open comma"]):
            self.decimal = ""
        elif opens:
            self._weigh(findings)
        example = next(iter([*self.values["open point"], *self.values["open comma"]]), "")
        if not self.decimal:
            findings.add("suspicious", _SPLIT.format(example.strip()), opens)
        findings.add("noted", _COMMAS, seen["comma"] if self.decimal == "," else 0)
        findings.add("noted", _GROUPED, seen["grouped"])

    def _weigh(self, findings: Findings) -> None:
        """Judge numbers such as 1.020, of which no other cell tells, by whole numbers beside."""
        mark = "." if self.seen["open point"] else ","
        other = "," if mark == "." else "."
        example = self.values["open point" if mark == "." else "open comma"]
        # Where commas separate columns, points do not separate thousands.
        is_c = mark == "." and self.separator == ","
        is_decimal, is_proven = mark == "." or self.separator == ";", is_c
        if self.seen["large"]:
            is_decimal, is_proven = True, True
        elif self.seen["small"]:
            with_decimals = np.median([float(_bare(cell).replace(",", ".")) for cell in example])
            whole = np.median([float(_bare(cell)) for cell in self.values["small"]])
            # Whichever reading is nearer to the whole numbers, as a ratio.
            is_decimal = with_decimals / whole > 1e3**-0.5
            # Whoever writes 950 without decimals does not write 1.020 with a last zero.
            is_proven = is_c if is_decimal else any(_bare(cell).endswith("0") for cell in example)
        self.decimal = mark if is_decimal else other
        if not is_proven:
            shown = _bare(example[0])
            read = shown.replace(mark, "." if is_decimal else "")
            findings.add("suspicious", _DOUBT.format(shown, read), len(example))

    def plain(self, cells: pa.Array) -> pa.Array:
        """Write the numbers of a column as programs do; other cells stay."""
        if self.decimal:
            return _rewritten(cells, self.decimal)
        for form in ("open point", "open comma"):
            cells = pc.if_else(pc.match_substring_regex(cells, _FORMS[form]), "", cells)
        is_comma = pc.match_substring_regex(cells, _FORMS["comma"])
        return pc.if_else(is_comma, _rewritten(cells, ","), _rewritten(cells, "."))


def _bare(cell: str) -> str:
    return re.sub(r"[^\d.,]", "", cell)


def _rewritten(cells: pa.Array, decimal: str) -> pa.Array:
    marks = _GROUP + ("." if decimal == "," else ",")
    bare = pc.replace_substring_regex(cells, rf"[{marks}]", "")
    bare = pc.replace_substring(bare, ",", ".") if decimal == "," else bare
    return pc.if_else(pc.match_substring_regex(cells, _NUMBER), bare, cells)
