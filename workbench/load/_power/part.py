"""Contract of the readers of power telemetry, and rows under construction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, listed

Reading = Literal["average", "instant"]
Unit = Literal["W", "kW", "MW", "mW"]
# Names of formats whose loads are of one benchmark.
MLPERF, PTDAEMON = "MLPerf power log", "PTDaemon log"
# What stands behind the name of a run whose tasks are given, before the device.
TASKS = " tasks/"


@dataclass(frozen=True)
class PowerOptions:
    """Arguments of :func:`workbench.load.power` that files do not carry; readers never guess."""

    tz: str | None = None
    node: str | None = None
    scope: str | None = None
    unit: Unit | None = None
    reading: Reading | None = None
    period_s: float | None = None
    columns: Mapping[str, str] | None = None

    def assumed_time(self, clock: str) -> str:
        """Name what the caller had to say of the times of a file."""
        if clock == "own":
            return f"period_s={self.period_s:g}" if self.period_s else ""
        return f"tz={self.tz}" if self.tz else ""


class NoPowerError(LoadError):
    """A file is in a known format and holds no reading of power; others are loaded without it."""


class BesidePowerError(NoPowerError):
    """A file belongs beside power logs and holds none by its nature; nobody needs to look."""


@dataclass
class PowerPart:
    """Contents of one file, before the checks that are the same for all formats.

    ``readings`` has columns ``time_ns`` (int64), ``entity`` (text or category), ``power_w``
    (float64, as written in watts, negative and absurd values included, missing where the
    source reported none) and ``line`` (int64, from 1; of the file as a person counts, or the
    record). Rows are in the order of the file. ``counters`` has ``energy_j`` and ``states`` the
    columns of ``POWER_STATES`` that the format knows, in place of ``power_w``. ``entities`` maps
    each entity to what the format knows of it: ``scope`` and ``method`` always; ``node``,
    ``device``, ``model``, ``clock`` (epoch if absent), ``assumed``, ``limit_w``, and ``unit``
    if the file itself states it (nobody guesses it then), and ``is_unnamed`` if its name is
    that of any thing of its kind.
    """

    readings: pd.DataFrame
    entities: dict[str, dict[str, Any]]
    findings: Findings
    counters: pd.DataFrame | None = None
    states: pd.DataFrame | None = None
    # Name of the format, set by the entry point.
    format_name: str = field(default="")


class PowerFormat(Protocol):
    """A module that reads one format of power telemetry."""

    NAME: str

    def looks_like(self, head: bytes, label: str) -> bool:
        """Recognise the format by the first 64 KiB of a file, unpacked; never by its name."""

    def read_power(self, source: Source, options: PowerOptions) -> PowerPart:
        """Read a whole file.

        Raises LoadError if a stamp needs a zone, or rows without time a period, that the caller
        did not give; NoPowerError if the file holds no reading of power.
        """


NO_TIME = int(np.iinfo(np.int64).min)
STATE_COLUMNS = (
    "limit_w", "clock_mhz", "busy_share", "temperature_c", "reasons", "power_violation_ns",
)  # fmt: skip
WHOLE_STATES = frozenset({"reasons", "power_violation_ns"})
_SNAPSHOT = "readings without a time; there is one of each, at 0 of an own clock"
_TIMELESS = "readings without a time beside others that have one"
_SHIFTED = "things with fewer readings than others; without times theirs may stand too early"
_OWN = {"clock": "own", "assumed": ""}
_NAME_CHARS = 200

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Rows:
    """Rows of one table in the order they were read: single ones, or many of one entity."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._names: dict[str, int] = {}
        self._pieces: list[tuple[npt.NDArray[Any], ...]] = []
        self._single: list[tuple[Any, ...]] = []

    def add(self, entity: str, time_ns: int | None, line: int, *values: float | None) -> None:
        """Add a row; a time that nobody knows is None, and so is a value that is missing."""
        filled = (np.nan if value is None else value for value in values)
        time_ns = NO_TIME if time_ns is None else time_ns
        self._single.append((self._code(entity), time_ns, line, *filled))

    def add_many(self, entity: str, time_ns: Integers, line: Integers, *values: Floats) -> None:
        self._flush()
        code = np.full(len(time_ns), self._code(entity), np.int32)
        self._pieces.append((code, time_ns, line, *values))

    def add_table(
        self, names: Sequence[str], codes: Integers, time_ns: Integers, line: Integers,
        values: Sequence[Floats],
    ) -> None:  # fmt: skip
        """Add rows of several entities; ``codes`` say where in ``names`` each one is."""
        self._flush()
        code_of = np.array([self._code(name) for name in names] or [0], np.int32)
        self._pieces.append((code_of[codes], time_ns, line, *values))

    def frame(self) -> pd.DataFrame:
        """Return all rows: time_ns, entity, the columns and line."""
        self._flush()
        empty = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
        pieces = self._pieces or [(*empty, *(np.zeros(0),) * len(self.columns))]
        columns = (np.concatenate(piece) for piece in zip(*pieces, strict=True))
        code, time_ns, line, *values = columns
        entity = pd.Categorical.from_codes(code, categories=pd.Index(list(self._names), dtype=str))
        data: dict[str, Any] = {"time_ns": time_ns, "entity": entity}
        data |= dict(zip(self.columns, values, strict=True))
        return pd.DataFrame(data | {"line": line})

    def _code(self, entity: str) -> int:
        return self._names.setdefault(entity, len(self._names))

    def _flush(self) -> None:
        if not self._single:
            return
        code, time_ns, line, *values = zip(*self._single, strict=True)
        self._single = []
        total = (np.array(value, np.int64) for value in (time_ns, line))
        numbers = (np.array(value, np.float64) for value in values)
        self._pieces.append((np.array(code, np.int32), *total, *numbers))


def states_frame(rows: Rows) -> pd.DataFrame:
    """Return rows of all :data:`STATE_COLUMNS`, whole numbers as such."""
    frame = rows.frame()
    for name in WHOLE_STATES:
        values = frame[name].to_numpy()
        # A float holds no whole number beyond 2**53 exactly; no mask and no duration is as large.
        good = (values >= 0) & (values < 1 << 53) & (values == np.floor(values))
        total = np.where(good, values, 0).astype(np.int64)
        frame[name] = pd.Series(total, dtype="Int64").mask(~good)
    return frame


def settled(
    frames: Sequence[pd.DataFrame], findings: Findings, how: str, options: PowerOptions
) -> tuple[list[pd.DataFrame], dict[str, str]]:
    """Place readings that have no time, or refuse them; return frames, clock and assumption.

    A file without times is one snapshot: its readings stand at 0 of an own clock, and no energy
    can be had of them. Several snapshots without times have an order and no distance, so any
    clock would be invented, unless the caller says how far apart they are.
    """
    timeless = [frame["time_ns"].to_numpy() == NO_TIME for frame in frames]
    if not any(is_lost.any() for is_lost in timeless):
        return list(frames), {"clock": "epoch", "assumed": ""}
    if not all(is_lost.all() for is_lost in timeless):
        for frame, lost in zip(frames, timeless, strict=True):
            where = f"line {frame['line'][lost].iloc[0]:,}" if lost.any() else None
            findings.add("dropped", _TIMELESS, int(lost.sum()), where)
        kept = [f[~lost].reset_index(drop=True) for f, lost in zip(frames, timeless, strict=True)]
        return kept, {"clock": "epoch", "assumed": ""}
    # Without times only the order is known: the n-th reading of each entity is of snapshot n.
    turns = [frame.groupby("entity", observed=True).cumcount() for frame in frames]
    if not any(is_lost.any() for is_lost in turns):
        findings.add("noted", _SNAPSHOT, max(len(frame) for frame in frames))
        return [frame.assign(time_ns=np.int64(0)) for frame in frames], _OWN
    if options.period_s is None:
        again = next(f[turn > 0] for f, turn in zip(frames, turns, strict=True) if turn.any())
        raise _second(again.iloc[0], findings.source, how)
    for frame in frames:
        counts = frame["entity"].value_counts().loc[lambda is_lost: is_lost > 0]
        fewer = counts[counts < counts.max()]
        findings.add("suspicious", _SHIFTED, len(fewer), str(fewer.index[0]) if len(fewer) else "")
    period_ns = round(options.period_s * 1e9)
    placed = [f.assign(time_ns=turn * period_ns) for f, turn in zip(frames, turns, strict=True)]
    return placed, _OWN | {"assumed": f"period_s={options.period_s:g}"}


def _second(row: pd.Series, source: str, how: str) -> LoadError:
    return LoadError(
        f"{source}, line {row['line']:,}: a second reading of {row['entity']!r}, and none has a "
        f"time, so nothing says how far apart they are. {how}; or pass period_s= if they came at "
        "a steady pace"
    )


@lru_cache(1 << 16)
def plain_name(text: str) -> str:
    """Return a name as it can be kept and shown: one line of printable characters."""
    name = " ".join(text[: 2 * _NAME_CHARS].split())
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"


def said(*texts: str) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def part_of(
    frames: Sequence[pd.DataFrame], entities: dict[str, dict[str, Any]], findings: Findings
) -> PowerPart:
    """Make a part of readings and, if there are any, counters and states."""
    if not any(len(frame) for frame in frames):
        noted = [row for row in findings.rows() if row[1] != "read"]
        msg = f"{findings.source}: holds no reading of power{listed(noted)}"
        raise NoPowerError(msg)
    # What was not read has no method; another file may tell it.
    with_power = set(frames[0]["entity"].unique())
    for name, facts in entities.items():
        facts["method"] = facts["method"] if name in with_power else None
    content = PowerPart(frames[0], entities, findings)
    for name, frame in zip(("counters", "states"), frames[1:], strict=False):
        setattr(content, name, frame if len(frame) else None)
    return content


def timed(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["time_ns"].notna()].astype({"time_ns": "int64"}).reset_index(drop=True)


def tell(rows: pd.DataFrame, findings: Findings, finding: str, text: str) -> None:
    """Count rows of a table whose index holds their lines."""
    if len(rows):
        findings.add(finding, text, len(rows), f"line {int(rows.index.min()):,}")


def numbers_of(raw: pd.DataFrame, name: str, findings: Findings) -> pd.Series:
    """Read a column of text as floats; what is not a number is missing and counted."""
    values = pd.to_numeric(raw[name], errors="coerce").astype("float64")
    bad = values.isna() & raw[name].notna()
    if bad.any():
        where = f"line {int(raw.index[bad][0]):,}: {raw[name][bad].iloc[0][:40]}"
        findings.add("dropped", f"cells of {name} that are not numbers", int(bad.sum()), where)
    return values


def number_of(value: object) -> float | None:
    """Return a number that is one, or text of one; NaN and infinities are numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


_S_NS = 1_000_000_000
_NOTED = "windows; each has its mean at its start and end, and its energy in the counters"
_MOST_PIECES = 1000


def readings_of_windows(
    windows: pd.DataFrame, findings: Findings
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Turn windows into readings and counters, and give the windows that were taken.

    The mean of a window is given at its start and at its end, so that the area between is its
    energy, and in between where windows of one entity are of unequal length; what was drawn
    between two windows is not known. As a counter, each window starts at zero. Of windows that
    overlap for one entity the earlier, and then the longer, is taken.

    Parameters
    ----------
    windows
        Columns ``entity``, ``start_ns``, ``end_ns``, ``energy_j`` and ``line``.
    findings
        Where windows that are not taken are counted.
    """
    is_long = windows["end_ns"] > windows["start_ns"]
    _tell(windows[~is_long], findings, "dropped", "windows without a duration")
    chosen = _without_overlap(windows[is_long], findings)
    findings.add("noted", _NOTED, len(chosen))
    spent_ns = chosen["end_ns"] - chosen["start_ns"]
    watts = chosen["energy_j"] / (spent_ns / _S_NS)
    # A window many times as long as the others would look like a pause between two readings.
    shortest = spent_ns.groupby(chosen["entity"]).transform("min")
    longest = spent_ns.groupby(chosen["entity"]).transform("max")
    pieces = (spent_ns / shortest.clip(lower=longest / _MOST_PIECES)).round().clip(lower=1)
    pieces = pieces.where(longest > 2 * shortest, 1).astype("int64")
    rows = chosen.index.repeat(pieces + 1)
    part = pd.Series(np.arange(len(rows))).groupby(np.repeat(np.arange(len(chosen)), pieces + 1))
    share = part.cumcount().to_numpy() / np.repeat(pieces.to_numpy(), pieces + 1)
    into_ns = np.rint(share * spent_ns.loc[rows].to_numpy()).astype(np.int64)
    joined = chosen.loc[rows, ["entity", "line"]].reset_index(drop=True)
    joined.insert(0, "time_ns", chosen["start_ns"].loc[rows].to_numpy() + into_ns)
    energy = share * chosen["energy_j"].loc[rows].to_numpy()
    readings = joined.assign(power_w=watts.loc[rows].to_numpy())
    return readings, joined.assign(energy_j=energy), chosen


def _without_overlap(windows: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Keep windows of one entity that do not overlap; one that begins where another ends may."""
    longest = windows.assign(minus_end_ns=-windows["end_ns"])
    ordered = longest.sort_values(["entity", "start_ns", "minus_end_ns", "line"], kind="stable")
    kept, inside = [], []
    last_entity, last_end = None, 0
    for index, entity, start, end in zip(
        ordered.index, ordered["entity"], ordered["start_ns"], ordered["end_ns"], strict=True
    ):
        if entity == last_entity and start < last_end:
            inside.append(index)
            continue
        last_entity, last_end = entity, end
        kept.append(index)
    text = "windows inside or across another one, whose energy is in that one"
    _tell(windows.loc[inside], findings, "skipped by design", text)
    chosen = windows.loc[kept]
    before = chosen[["end_ns", "entity"]].shift()
    touches = (chosen["start_ns"] == before["end_ns"]) & (chosen["entity"] == before["entity"])
    # Two readings cannot share a stamp.
    return chosen.assign(start_ns=chosen["start_ns"] + touches.astype("int64"))


def _tell(rows: pd.DataFrame, findings: Findings, finding: str, text: str) -> None:
    if len(rows):
        findings.add(finding, text, len(rows), f"line {int(rows['line'].min()):,}")


def unit_factor(unit: str) -> float:
    return {"W": 1.0, "kW": 1e3, "MW": 1e6, "mW": 1e-3}[unit]


def possible(values: Floats, most: float = math.inf) -> Floats:
    """Return what can be a limit, clock or load; the rest is missing."""
    return np.where((values >= 0) & (values <= most), values, np.nan)
