"""Tables of power that people keep themselves: long or wide, CSV, JSON lines or Parquet."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.stream import plain_name
from workbench.load._files.tables import random_access
from workbench.load._files.time import Clock, clock_of, to_ns
from workbench.load._power.formats.table.columns import PowerLayout, Watts, has_unit, numbers, plain
from workbench.load._power.formats.table.entities import Things
from workbench.load._power.formats.table.layout import (
    NO_UNIT,
    falls_too_often,
    has_value,
    tells_power,
    time_column,
)
from workbench.load._power.formats.table.pieces import (
    PARQUET_MAGIC,
    Piece,
    Pieces,
    decoded,
    flat_names,
    header_of,
    open_parquet,
    pieces_of,
    sample_of,
)
from workbench.load._power.formats.table.recorded import recorded, sensors_of
from workbench.load._power.number_form import like_numbers
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart, number_of

# Names in lower case: column of table POWER_STATES, and what one of it is.
STATE_COLUMNS = {
    "power_limit_w": ("limit_w", 1.0), "limit_w": ("limit_w", 1.0),
    "enforced_limit_w": ("limit_w", 1.0), "enforced_limit_milli_watts": ("limit_w", 1e-3),
    "clock_mhz": ("clock_mhz", 1.0), "clock_sm_mhz": ("clock_mhz", 1.0),
    "sm_mhz": ("clock_mhz", 1.0), "busy_share": ("busy_share", 1.0),
    "utilization_gpu_pct": ("busy_share", 0.01), "util_sm_pct": ("busy_share", 0.01),
    "gpu_util": ("busy_share", 0.01), "sm_util": ("busy_share", 0.01),
    "temperature_c": ("temperature_c", 1.0), "temperature_gpu": ("temperature_c", 1.0),
    "temp_gpu_c": ("temperature_c", 1.0), "temp_c": ("temperature_c", 1.0),
    "throttle_mask": ("reasons", 1.0), "throttle_reasons": ("reasons", 1.0),
}  # fmt: skip


def states_of(
    columns: dict[str, pa.Array], lines: np.ndarray, findings: Findings
) -> pd.DataFrame | None:
    """Return the states of some rows; None if the table has none.

    A share outside 0 to 1, a negative limit or clock is missing.
    """
    times_read: dict[str, pd.Series] = {}
    for name, cells in columns.items():
        state = STATE_COLUMNS.get(name.strip().lower())
        # Of several columns for one state the first one is taken.
        if state is None or state[0] in times_read:
            continue
        values = numbers(plain(cells), name, lines, findings)[0] * state[1]
        times_read[state[0]] = pd.Series(_possible(state[0], values))
    return pd.DataFrame(times_read) if times_read else None


def _possible(name: str, values: np.ndarray) -> pd.Series:
    with np.errstate(invalid="ignore"):
        good = np.isfinite(values)
        if name != "temperature_c":
            good &= values >= 0
        if name == "busy_share":
            good &= values <= 1
    kept = pd.Series(np.where(good, values, np.nan))
    if name == "reasons":
        # A mask beyond 2**53 has lost bits on its way through a double.
        return kept.where(kept < 2**53).round().astype("Int64")
    return kept


NAME = "table of power"
_TORN = "names that go over lines: a quote is not closed, and the rows inside are lost"
_NO_COUNTER = "energies that fall often or never move, as no counter does"
_PARTIAL = "sums over fewer nodes than there are (count_inp below size_inp); the power is too low"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise a table by its columns: a time, and powers or numbers only; any Parquet."""
    if head.startswith(PARQUET_MAGIC):
        return True
    text = decoded(head)
    if text.lstrip().startswith("{"):
        return tells_power(flat_names(text))
    skipped, separator, names = header_of(text)
    time = time_column(names)
    if time is None or len(names) < 2 or len(set(names)) < len(names):
        return False
    if tells_power(names) or has_value(names):
        return True
    rows = sample_of(text, skipped, separator, len(names))
    if any(has_unit(cell) for row in rows for cell in row):
        return True
    remaining = [position for position, name in enumerate(names) if name != time]
    cells = [row[position] for row in rows for position in remaining]
    return bool(rows) and (
        like_numbers(cells) or all(number_of(cell.strip() or "0") is not None for cell in cells)
    )


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read a whole table.

    A long table has a row per reading: a time, names of what was metered, a power. A wide one
    has a column per thing. Units stand in the names of the columns; times have a zone, or count
    since 1970, or need ``options.tz``. Columns such as ``energy_j`` are counters of energy, if they
    count.
    """
    if (content := _recorded(source, options)) is not None:
        return content
    table, reader = _opened(source, options)
    for piece in table.pieces:
        reader.add(piece)
    return reader.part()


def _opened(source: Source, options: PowerOptions) -> tuple[Pieces, _Reader]:
    findings = Findings(source.label)
    table = pieces_of(source, options, findings, wanted=[*STATE_COLUMNS, "count_inp", "size_inp"])
    for name, why in table.layout.left_out:
        finding = "dropped" if why == NO_UNIT else "skipped by design"
        findings.add(finding, f"column {name!r}: {why}")
    for column in table.layout.counters:
        if column.is_mw:
            text = "counters in mj, assumed to be millijoules, in which drivers of GPUs count"
            findings.add("assumed", text, 1, column.name)
    return table, _Reader(table, options, findings, source.label)


def _recorded(source: Source, options: PowerOptions) -> PowerPart | None:
    if not source.head().startswith(PARQUET_MAGIC):
        return None
    with open_parquet(random_access(source), source.label) as file:
        sensors = sensors_of(file.schema_arrow.metadata, source.label)
        return None if sensors is None else recorded(file, sensors, source, options)


class _Reader:
    """Gathers the readings of one file piece by piece."""

    def __init__(
        self, table: Pieces, options: PowerOptions, findings: Findings, label: str
    ) -> None:
        self._layout: PowerLayout = table.layout
        self._options, self._findings, self._label = options, findings, label
        self._stem = _stem(label)
        self._things = Things(table.layout, options.node)
        self._watts = [Watts(column) for column in table.layout.powers]
        self._joules = [Watts(column) for column in table.layout.counters]
        self._columns = (*self._watts, *self._joules)
        self._clock: Clock | None = None
        self._is_local = False
        self._readings: list[Row] = []
        self._counted: list[Row] = []
        self._states: list[pd.DataFrame] = []

    def add(self, piece: Piece) -> None:
        layout, findings = self._layout, self._findings
        times = plain(piece.columns[layout.time])
        if self._clock is None:
            # The type of the clock shows in the first piece that has a time.
            if times.null_count == len(times):
                findings.add("dropped", "rows without a time", len(times))
                return
            self._clock = clock_of(times, layout.time, self._options.tz, self._label)
            if self._clock.said:
                findings.add("assumed", self._clock.said)
        times_read = to_ns(times, self._clock, piece.lines, findings)
        self._is_local |= bool(times_read.is_local.any())
        is_timed = times_read.ns.notna().to_numpy()
        ns = times_read.ns.fillna(0).to_numpy(dtype=np.int64)
        identity = [piece.columns[name] for name in layout.identity]
        self._note_partial(piece)
        for column in self._columns:
            runs = self._things.codes(identity, column.column, self._stem, len(ns))
            codes = runs.per_row
            keep = is_timed & self._named(codes, column, piece.lines)
            values = column.of(plain(piece.columns[column.column.name]), piece.lines, findings)
            row = {"time_ns": ns[keep], "code": codes[keep], "line": piece.lines[keep]}
            if column in self._joules:
                self._counted.append(row | {"energy_j": values[keep]})
            else:
                self._readings.append(row | {"power_w": values[keep]})
        # Limits and clocks in a row are those of its one device; of several nobody knows whose.
        is_whole = not self._columns[0].column.part and len(self._watts) <= 1
        if is_whole and self._things.names:
            states = states_of(piece.columns, piece.lines, findings)
            if states is not None:
                states = states.assign(time_ns=ns, code=codes, line=piece.lines)
                self._states.append(states[keep])

    def _named(self, codes: np.ndarray, column: Watts, lines: np.ndarray) -> np.ndarray:
        # All columns of a row lack the same name; the first one reports it.
        is_named: np.ndarray = codes >= 0
        if not is_named.all() and column is self._columns[0]:
            first = int(lines[int((~is_named).argmax())])
            text = "rows that do not name what was metered"
            self._findings.add("dropped", text, int((~is_named).sum()), f"line {first:,}")
        return is_named

    def _note_partial(self, piece: Piece) -> None:
        if not self._layout.is_cluster:
            return
        state = {name.strip().lower(): plain(cells) for name, cells in piece.columns.items()}
        count, size = (
            pd.to_numeric(state[name].to_pandas(), errors="coerce")
            for name in ("count_inp", "size_inp")
        )
        is_partial = (count < size).to_numpy()
        if is_partial.any():
            least = float((count / size).min())
            where = f"{least:.1%} of the nodes at worst"
            self._findings.add("suspicious", _PARTIAL, int(is_partial.sum()), where)

    def part(self) -> PowerPart:
        gathered = (*self._readings, *self._counted)
        if not any(len(subset["code"]) for subset in gathered):
            msg = f"{self._label}: holds no row with a time and a name; is it the right file?"
            raise LoadError(msg)
        names = pd.Index(self._things.names, dtype=pd.Series([""]).dtype)
        torn = [name for name in self._things.names if r"\n" in name]
        self._findings.add("suspicious", _TORN, len(torn), torn[0][:60] if torn else None)
        return PowerPart(
            _frame(self._readings, "power_w", names), self._entities(), self._findings,
            counters=self._counters(names), states=self._all_states(names),
        )  # fmt: skip

    def _counters(self, names: pd.Index) -> pd.DataFrame | None:
        if not self._counted:
            return None
        counters = _frame(self._counted, "energy_j", names)
        codes = counters["entity"].cat.codes.to_numpy()
        if not falls_too_often(
            codes, counters["time_ns"].to_numpy(), counters["energy_j"].to_numpy()
        ):
            return counters
        shown = ", ".join(repr(joules.column.name) for joules in self._joules[:3])
        if self._readings:
            self._findings.add("skipped by design", f"column {shown}: {_NO_COUNTER}")
            return None
        msg = (
            f"{self._label}: column {shown}: {_NO_COUNTER}; if it holds the energy of each "
            "interval, divide by the interval and save as power_w"
        )
        raise NoPowerError(msg)

    def _all_states(self, names: pd.Index) -> pd.DataFrame | None:
        if not self._states:
            return None
        states = pd.concat(self._states, ignore_index=True)
        entity = pd.Categorical.from_codes(states["code"].to_numpy(), categories=names)
        return states.drop(columns="code").assign(entity=entity)

    def _entities(self) -> dict[str, Row]:
        clock = self._clock or Clock()
        words = {"clock": clock.kind}
        by_caller = [f"tz={self._options.tz}"] * self._is_local
        by_caller += sorted({watts.assumed for watts in self._watts})
        by_caller += [f"node={self._options.node}"] * bool(self._uses_node())
        by_caller += [f"scope={self._options.scope}"] * bool(self._uses_scope())
        by_caller += [f"unit={self._options.unit}"] * bool(self._options.unit)
        assumed = ", ".join(dict.fromkeys(item for item in by_caller if item))
        together = {}
        for name, facts in zip(self._things.names, self._things.facts, strict=True):
            own = ", ".join(item for item in (facts.get("assumed", ""), assumed) if item)
            together[name] = facts | words | {"assumed": own}
        return together

    def _uses_scope(self) -> bool:
        by_name = {column.scope for column in self._layout.powers}
        return self._options.scope in by_name and self._layout.scope == "unknown"

    def _uses_node(self) -> bool:
        layout = self._layout
        return self._options.node is not None and layout.node is None and layout.entity is None


def _frame(gathered: list[Row], value: str, names: pd.Index) -> pd.DataFrame:
    kinds = {"time_ns": np.int64, "code": np.int32, value: np.float64, "line": np.int64}
    columns = {n: np.concatenate([np.empty(0, kind), *(subset[n] for subset in gathered)])
               for n, kind in kinds.items()}  # fmt: skip
    entity = pd.Categorical.from_codes(columns["code"], categories=names)
    data = {"time_ns": columns["time_ns"], "entity": entity, value: columns[value]}
    return pd.DataFrame(data | {"line": columns["line"]}, copy=False)


def _stem(label: str) -> str:
    name = plain_name(PurePosixPath(label.replace("\\", "/").replace("!", "/")).name)
    for ending in (".csv", ".tsv", ".txt", ".parquet", ".jsonl", ".ndjson", ".json"):
        name = name.removesuffix(ending)
    return name or "all"
