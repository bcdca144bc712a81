"""The register of claims, the published numbers they use, and the table of results."""

from __future__ import annotations

import html as escaping
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from claims._tables import RESULTS
from workbench import datasets
from workbench.errors import MissingExtraError, WorkbenchError

_PUBLISHED = Path(__file__).resolve().parents[1] / "data" / "published"


def published(name: str) -> list[dict[str, str]]:
    """Read one table of printed numbers, every cell as the text it was printed as."""
    # Text, and no cell read as missing: what was printed stays as it was printed.
    table = pd.read_csv(_PUBLISHED / f"{name}.csv", dtype=str, keep_default_na=False)
    return [dict(zip(table.columns, row, strict=True)) for row in table.to_numpy()]


def printed_ns(row: dict[str, str], *names: str) -> Iterator[tuple[str, int]]:
    """Yield the microseconds of a row as exact nanoseconds; what was not printed is dropped."""
    for name in names:
        if text := row[f"{name}_us"]:
            nanoseconds = Decimal(text) * 1000
            if nanoseconds != int(nanoseconds):
                msg = f"{name}_us is {text}, which is not a whole number of nanoseconds"
                raise ValueError(msg)
            yield name, int(nanoseconds)


@dataclass(frozen=True)
class Reading:
    """One printed number beside the number computed here.

    ``printed`` and ``here`` are compared as they are, before anything becomes a float,
    so integer nanoseconds are compared exactly. ``source`` stands in place of the source
    of the claim where the numbers of one claim come from several places. ``bound`` says
    that the printed number is not a value but a limit: ``"at least"`` or ``"at most"``. A limit
    that is known to be missed has what was ``reached`` instead: up to there the verdict is
    ``short``, never ``pass``, beyond it the claim fails.
    """

    what: str
    printed: float
    here: float
    unit: str = "ns"
    tolerance: float = 0
    source: str = ""
    bound: Literal["", "at least", "at most"] = ""
    reached: float | None = None

    def holds(self) -> bool:
        """Return whether both numbers agree; a missing number agrees with nothing."""
        if self.bound:
            above = self.here - self.printed
            return bool((above if self.bound == "at least" else -above) >= -self.tolerance)
        return bool(abs(self.here - self.printed) <= self.tolerance)

    def verdict(self) -> str:
        """Return the verdict: pass, short (of a limit, as known) or FAIL."""
        if self.holds():
            return "pass"
        if self.reached is None or not self.bound:
            return "FAIL"
        return "short" if replace(self, printed=self.reached).holds() else "FAIL"


def beside(
    row: dict[str, str],
    here: float,
    what: str = "",
    *,
    column: str = "value",
    unit: str | None = None,
    near: float | None = None,
) -> Reading:
    """Put a number beside the one that a row of a published file prints.

    Name, unit, tolerance and bound are those of the row unless they are given; a row may lack
    the last two.
    """
    tolerance = float(row.get("tolerance") or 0) if near is None else near
    bound: Any = row.get("bound", "")
    unit = row["unit"] if unit is None else unit
    what = what or row["what"]
    return Reading(what, float(row[column]), float(here), unit, tolerance, row["source"], bound)


def beside_named(file: str, name: str, here: float, what: str = "") -> Reading:
    """Put a number beside the one that a published file prints under a name."""
    (row,) = (row for row in published(file) if row["what"] == name)
    return beside(row, here, what)


Compute = Callable[..., Iterable[Reading]]


@dataclass(frozen=True)
class Claim:
    """A claim: a published result, and how to recompute it."""

    noun: str
    name: str
    source: str
    needs: tuple[str, ...]
    compute: Compute


_CLAIMS: list[Claim] = []


def claim(
    *, noun: str, name: str, source: str, needs: tuple[str, ...] = ()
) -> Callable[[Compute], Compute]:
    """Register a function as a claim; use it as a decorator.

    Parameters
    ----------
    noun
        What the claim is about; ``python -m claims NOUN`` runs the claims of one noun.
    name
        What is claimed, in a few words.
    source
        Paper, table, page or project the printed numbers come from.
    needs
        Data sets the function is given as paths, in this order. When one of them is
        absent the claim is reported as absent and the function is not called.

    Returns
    -------
    Callable
        The function itself, so that a test can call it.

    Raises
    ------
    ValueError
        If the noun has a claim of that name already.
    """

    def register(compute: Compute) -> Compute:
        if any((entry.noun, entry.name) == (noun, name) for entry in _CLAIMS):
            msg = f"{noun!r} has a claim named {name!r} already; give this one another name"
            raise ValueError(msg)
        _CLAIMS.append(Claim(noun, name, source, needs, compute))
        return compute

    return register


def claims(noun: str | None = None) -> list[Claim]:
    """Return the registered claims of one noun, or all of them.

    Parameters
    ----------
    noun
        What the claims are about; None for all.

    Returns
    -------
    list of Claim
        In the order of registration.

    Raises
    ------
    WorkbenchError
        If no claim is about ``noun``.
    """
    chosen = [entry for entry in _CLAIMS if noun in {None, entry.noun}]
    if noun is not None and not chosen:
        nouns = sorted({entry.noun for entry in _CLAIMS})
        msg = f"no claims about {noun!r}; there are claims about {nouns}"
        raise WorkbenchError(msg)
    return chosen


def run(noun: str | None = None, *, progress: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Compute every claim now and compare it with the number printed elsewhere.

    Parameters
    ----------
    noun
        Run the claims about this noun only, e.g. ``"traces"``; all by default.
    progress
        Called with the name of each claim before it is computed.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims.RESULTS`, one row per number compared, in the order
        of registration. A claim whose data set or optional package is absent has one row that
        says how to get it; one that cannot be computed has one row that fails and says why.

    Raises
    ------
    WorkbenchError
        If no claim is about ``noun``.
    """
    rows: list[dict[str, object]] = []
    for entry in claims(noun):
        if progress is not None:
            progress(f"{entry.noun}: {entry.name}")
        rows.extend(_rows(entry))
    if not rows:
        return RESULTS.empty()
    dtypes = {name: column.dtype for name, column in RESULTS.columns.items()}
    return RESULTS.check(pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes))


def failed(frame: pd.DataFrame) -> bool:
    """Return whether any claim fails; one that is absent does not.

    Parameters
    ----------
    frame
        Table :data:`claims.RESULTS`.

    Returns
    -------
    bool
        True if a verdict is ``FAIL``.
    """
    return bool((frame["verdict"] == "FAIL").any())


def _rows(entry: Claim) -> Iterator[dict[str, object]]:
    # Whatever goes wrong in one claim is that claim's failure and must not hide the others.
    try:
        if absent := [name for name in entry.needs if not _is_available(name)]:
            note = f"get it with: workbench datasets fetch {' '.join(absent)}"
            yield _row(entry, verdict="absent", note=note)
            return
        compared = False
        for reading in entry.compute(*(datasets.best(name)[0] for name in entry.needs)):
            yield _compared(entry, reading)
            compared = True
        if not compared:
            yield _row(entry, verdict="FAIL", note="the claim compared nothing")
    except MissingExtraError as error:
        yield _row(entry, verdict="absent", note=str(error))
    except Exception as error:  # noqa: BLE001
        yield _row(entry, verdict="FAIL", note=f"{type(error).__name__}: {error}")


def _compared(entry: Claim, reading: Reading) -> dict[str, object]:
    numbers = {name: float(getattr(reading, name)) for name in ("printed", "here", "tolerance")}
    what = f"{reading.what}, {reading.bound}" if reading.bound else reading.what
    fields = {"what": what, "source": reading.source or entry.source, "unit": reading.unit}
    return _row(entry, verdict=reading.verdict(), **numbers, **fields)


def _row(entry: Claim, *, verdict: str, **fields: object) -> dict[str, object]:
    key = {"noun": entry.noun, "claim": entry.name, "source": entry.source}
    return {**key, "what": "", "unit": "", "note": "", "verdict": verdict, **fields}


def _is_available(name: str) -> bool:
    availability = datasets.describe().set_index("dataset")["place"]
    return str(availability.get(name)) != "not available"


_VERDICTS = ("pass", "short", "FAIL", "absent")
_HEADS = ("what", "printed", "here", "tolerance", "verdict")
_CELL = "text-align: left; white-space: normal; vertical-align: top"
_NUMBER = "text-align: right; white-space: nowrap; vertical-align: top"


def text(frame: pd.DataFrame) -> str:
    """Lay out the results as plain text, one line per number compared.

    Parameters
    ----------
    frame
        Table :data:`claims.RESULTS`.

    Returns
    -------
    str
        Per claim and source: what, printed, here, tolerance, verdict, and what is to be done
        about an absent data set or a failure; at last one line that counts the verdicts.
    """
    return "\n\n".join([*map(_block, _claims(frame)), summary(frame)])


def html(frame: pd.DataFrame) -> str:
    """Lay out the results as a fragment of a page: an overview, then every claim.

    Parameters
    ----------
    frame
        Table :data:`claims.RESULTS`.

    Returns
    -------
    str
        Tables of class ``wb-results``, without scripts. The numbers of a claim can be
        unfolded; those of a claim that fails are. Every text is escaped.
    """
    groups = list(_claims(frame))
    overview: list[tuple[str, ...]] = [
        (rows["noun"].iloc[0], rows["claim"].iloc[0], rows["source"].iloc[0], _verdicts(rows))
        for rows in groups
    ]
    heads = ("about", "claim", "source of the printed numbers", "verdicts")
    return "\n".join(
        [f"<p><strong>{summary(frame)}</strong></p>", _table(heads, overview, (_CELL,) * 4)]
        + [_details(rows) for rows in groups]
    )


def summary(frame: pd.DataFrame) -> str:
    """Count the verdicts in one sentence.

    Parameters
    ----------
    frame
        Table :data:`claims.RESULTS`.

    Returns
    -------
    str
        For example ``"65 pass, 2 short, 0 FAIL, 1 absent"``; short is named if it occurs.
    """
    counts = RESULTS.check(frame)["verdict"].astype(str).value_counts()
    shown = [name for name in _VERDICTS if name != "short" or counts.get(name, 0)]
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in shown)


def _verdicts(rows: pd.DataFrame) -> str:
    """Count the verdicts of one claim, without those that did not occur."""
    return re.sub(r"(^|, )0 \w+", "", summary(rows)).removeprefix(", ")


def _claims(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of each claim and source, in the order they were computed."""
    RESULTS.check(frame)
    keys = [frame[name].astype(object) for name in ("noun", "claim", "source")]
    yield from (rows for _, rows in frame.groupby(keys, sort=False))


def _block(group: pd.DataFrame) -> str:
    rows = [_HEADS, *_cells(group)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = []
    for what, *numbers, verdict in rows:
        aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([what.ljust(widths[0]), *aligned, verdict]).rstrip())
    first = group.iloc[0]
    head = f"{first['noun']}: {first['claim']} - {_verdicts(group)}\nsource: {first['source']}"
    return "\n  ".join([head, *(lines if len(lines) > 1 else []), *_notes(group)])


def _details(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    head = escaping.escape(f"{first['claim']} - {_verdicts(rows)}")
    notes = "".join(f"<p>{escaping.escape(note)}</p>" for note in _notes(rows))
    table = _table(_HEADS, _cells(rows), (_CELL, _NUMBER, _NUMBER, _NUMBER, _CELL))
    state = " open" if failed(rows) else ""
    return f"<details{state}><summary>{head}</summary>{notes}{table}</details>"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], styles: tuple[str, ...]) -> str:
    head = "".join(
        f'<th scope="col" style="{style}">{name}</th>'
        for name, style in zip(heads, styles, strict=True)
    )
    lines = []
    for row in rows:
        cells = zip(row, styles, strict=True)
        body = [f'<td style="{style}">{escaping.escape(cell)}</td>' for cell, style in cells]
        lines.append(f"<tr>{''.join(body)}</tr>")
    top = f'<table class="wb-results">\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
    return top + "\n".join(lines) + "\n</tbody>\n</table>"


def _cells(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    cells = []
    for row in frame[frame["note"] == ""].to_dict("records"):
        numbers = (_number(row[name], row["unit"]) for name in ("printed", "here", "tolerance"))
        cells.append((row["what"], *numbers, row["verdict"]))
    return cells


def _notes(frame: pd.DataFrame) -> list[str]:
    noted = frame[frame["note"] != ""].to_dict("records")
    return [f"{row['verdict']}: {row['note']}" for row in noted]


def _number(value: Any, unit: str) -> str:
    """Write a number without losing a digit of it; nothing for a missing one."""
    if pd.isna(value):
        return ""
    # Whole nanoseconds beyond 10 digits must not be rounded.
    digits = f"{int(value):,}" if float(value).is_integer() else f"{value:,.10g}"
    return f"{digits} {unit}".rstrip()
