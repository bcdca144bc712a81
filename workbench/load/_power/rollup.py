"""Telemetry of any size: DuckDB reduces Parquet files to a row per entity and cell of time."""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench._shared.extras import need
from workbench._shared.numbers import in_range
from workbench.errors import LoadError, TableError
from workbench.load._files.archive import Paths, given_paths, shown, shown_all
from workbench.load._files.findings import (
    Dropped,
    Finding,
    guarded,
    listed,
    quality_frame,
    unreadable,
)
from workbench.load._files.stored import stored_kind, stored_table
from workbench.load._files.time import Hosts, check_hosts, host_of
from workbench.load._files.wanted import POWER_LOGS, STORED_SUFFIX, printable
from workbench.load._power.joins import counted
from workbench.load._power.rows import SECOND, most_w, natural
from workbench.tables import POWER_ROLLUP, PowerRollup

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TIMES = {"time_ns": 1, "time_us": 10**3, "time_ms": 10**6, "time_s": SECOND, "time": 0}
_POWERS = {"power_w": 1.0, "power_kw": 1e3, "power_mW": 1e-3, "power_MW": 1e6}
_WHO = ("entity", "node", "gpu")
# The years 1980 and 2200: what lies outside is no time since 1970, whatever its unit.
_EARLIEST_NS, _LATEST_NS = 315_532_800 * SECOND, 7_258_118_400 * SECOND
# Stamps are rounded to ms or s, so a gap of exactly the longest may look longer by that much.
_SLACK = 1 + 1e-9
_MOST_BETWEEN = 50_000_000
_LEAST_COVERED_SHARE = 0.5
_KIND = "power logs"
_NUMBER = re.compile(r"(?:gpu[ _-]?)?(\d+)(?:\.0)?", re.IGNORECASE)
# A column that DuckDB adds; files that have one of this name are refused.
_LINK, _ROW = "link of the file", "file_row_number"
_CONVERT = "run workbench convert --kind 'power logs' FOLDER NEW first, and roll up NEW"
_COUNTERS = (
    "entities without power, such as counters of energy, are not rolled up; load.power reads them, "
    "analyze.energy_from_counter adds them up"
)
_OWN = "entities without wall time, which has no cells; load.power reads them"
_TIMELESS = "readings without a time between the years 1980 and 2200"
_SAME = "readings that this or another file contains, too; counted once"
_OTHER = "readings of one stamp that differ from those before, or of a file before; the first kept"
_SPARSE = (
    "entities of which less than half of the time is covered: gaps, or readings further apart than "
    "longest_gap_s"
)
_GUESSED = (
    "entities of an unknown host that another file continues; joined, pass node= to tell the hosts"
)
# Why a reading is not rolled up, as SQL, and what is said of it.
_ODD = {
    "t IS NULL": ("dropped", _TIMELESS),
    "w IS NULL OR isnan(w)": ("noted", "readings without power in the file"),
    "isinf(w)": ("dropped", "readings that are not finite; they are missing"),
    "w < 0": ("dropped", "negative powers; they are missing"),
    "w > most": (
        "dropped", "powers above {:,.0f} W, more than any such thing draws; they are missing",
    ),
}  # fmt: skip


class _File(NamedTuple):
    """A file to roll up: how its columns are read, and what is known of its entities."""

    label: str
    path: Path
    host: str | None
    who: tuple[str, ...]
    sql: str
    types: str
    known: Mapping[str, tuple[str, str]]


def power_rollup(
    paths: Paths,
    *,
    period_s: float = 60.0,
    longest_gap_s: float = 3.0,
    tz: Literal["UTC"] | None = None,
    node: Hosts = None,
    columns: Mapping[str, str] | None = None,
) -> PowerRollup:
    """Shorten readings too many for memory to one row per entity and cell of time.

    DuckDB does the work on all cores; what does not fit into memory goes to the folder of temporary
    files (``TMPDIR``). Files may be sorted by anything, overlap and repeat each other: the table is
    that of all their readings in one file, each stamp of an entity counted once.

    Parameters
    ----------
    paths
        Parquet files, or folders that are searched for them to any depth: what ``workbench
        convert`` wrote of power logs of any format, or tables of your own. Those have a time
        (``time_ns``, ``time_us``, ``time_ms``, ``time_s`` since 1970, or ``time``, a timestamp), a
        power (``power_w``, ``power_kw``, ``power_mW``, ``power_MW``), and a name: ``entity``, or
        ``node`` and ``gpu``, of which one suffices.
    period_s
        Length of a cell, in s, from 0.001. Cells begin at multiples of it since 1970, UTC.
    longest_gap_s
        Longest time between two readings of an entity that counts as known: three times the time
        between readings is usual.
    tz
        ``"UTC"`` if timestamps without a zone are that; others are to be converted first.
    node
        Host of files that name none: as for :func:`workbench.load.power`.
    columns
        Other names of the columns, by what they are: ``{"time_s": "when", "entity": "who",
        "power_kw": "draw"}``. Only these are read.

    Returns
    -------
    PowerRollup
        ``rollup`` (:data:`workbench.tables.POWER_ROLLUP`) and ``quality``
        (:data:`workbench.tables.QUALITY`). A file that cannot be read is a row in ``quality`` that
        says why.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    LoadError
        If no Parquet file holds power, one needs ``tz`` and none is given, or files without a host
        name one entity at the same time.
    MissingExtraError
        If DuckDB is not installed.

    Notes
    -----
    Between readings ``p[i-1]`` at ``t[i-1]`` and ``p[i]`` at ``t[i]`` of an entity with ``t[i] -
    t[i-1] <= longest_gap_s`` power is a straight line, ``energy_j`` is its integral over the cell
    and ``covered_share`` the share of the cell in such intervals, as of
    :func:`workbench.analyze.energy` where its gap is as long. The mean over time is ``energy_j /
    (covered_share * period_s)``; ``mean_w`` counts every reading alike and is off where they come
    at uneven times. Sums are made by several threads: their last digits may differ between runs.

    References
    ----------
    That tiers of 10 s and 1 min keep count, mean, extremes and deviation is the practice of OLCF
    Summit.

    Examples
    --------
    >>> readings = pd.DataFrame({"time_ms": range(1_700_000_000_000, 1_700_000_120_000, 1_000)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     readings.assign(gpu=0, power_w=600.0).to_parquet(f"{folder}/hour.parquet")
    ...     rollup = power_rollup(folder).rollup
    >>> rollup[["entity", "reading_count", "energy_j"]].values.tolist()
    [['gpu0', 40, 24000.0], ['gpu0', 60, 36000.0], ['gpu0', 20, 11400.0]]
    """
    need("duckdb", extra="rollup", purpose="a roll-up of power")
    import duckdb

    period_ns = round(SECOND * in_range("period_s", period_s, least=1e-3, most=1e9))
    longest = in_range("longest_gap_s", longest_gap_s, least=0, most=1e9, strictly=True)
    check_hosts(node)
    if unknown := sorted({*(columns or ())} - {*_TIMES, *_POWERS, *_WHO}):
        msg = f"columns= names {unknown}; it knows {[*_TIMES, *_POWERS, *_WHO]}"
        raise ValueError(msg)
    findings: list[Finding] = []
    dropped, files = Dropped(), list[_File]()
    for path in _parquet_files(paths, findings):
        with dropped.trying(shown(path)):
            files.append(_file(path, host_of(shown(path), node), columns, tz, findings))
    while files:
        try:
            table, told = _rolled(files, period_ns, int(longest * SECOND * _SLACK))
        except (duckdb.Error, TableError) as error:
            files = _whole(files, error, dropped)
            continue
        findings = counted([*findings, *told, *dropped.rows])
        if table.empty:
            msg = f"{shown_all(paths)}: no reading has a time, a name and a power{listed(findings)}"
            raise LoadError(msg)
        return PowerRollup(table, quality_frame(findings))
    dropped.raise_if_all()
    msg = f"{shown_all(paths)}: no Parquet file found; {_CONVERT}"
    raise LoadError(msg)


def _parquet_files(paths: Paths, findings: list[Finding]) -> list[Path]:
    result: dict[Path, Path] = {}
    for entry in (Path(path).expanduser() for path in given_paths(paths)):
        if not entry.exists():
            msg = f"{shown(entry)}: there is no such file or directory"
            raise FileNotFoundError(msg)
        inside = [entry]
        if entry.is_dir():
            every = sorted(path for path in entry.rglob("[!._]*") if path.is_file())
            inside = [path for path in every if path.suffix == ".parquet"]
            logs = [shown(path.name) for path in every if path.suffix != ".parquet"
                    and not POWER_LOGS.refusal(path.name.lower(), b"")]  # fmt: skip
            if logs:
                text = f"files of other formats; {_CONVERT}"
                findings.append((shown(entry), "dropped", text, len(logs), logs[0]))
        for path in inside:
            # Of stored tables one holds the powers; the others tell about it.
            if not path.name.endswith(STORED_SUFFIX) or path.name == f"power{STORED_SUFFIX}":
                result.setdefault(path.resolve(), path)
    return list(result.values())


def _file(
    path: Path, host: str | None, columns: Mapping[str, str] | None, tz: str | None,
    findings: list[Finding],
) -> _File:  # fmt: skip
    """Find the columns of a file, and say in SQL how to read them."""
    label = shown(path)
    with path.open("rb") as raw:
        if raw.read(4) != b"PAR1":
            msg = f"{label}: is no Parquet file; {_CONVERT}"
            raise LoadError(msg)
        with guarded(label, "Parquet"), pq.ParquetFile(raw) as file:
            schema, row_count = file.schema_arrow, file.metadata.num_rows
    named = _named(schema, columns, label)
    time, power, *who = named
    if not who and host is None:
        msg = f"{label}: no column says whose the readings are; pass node= or columns="
        raise LoadError(msg)
    kinds = {role: schema.field(name).type for role, name in named.items()}
    zone = getattr(kinds[time], "tz", None) or tz
    if pa.types.is_timestamp(kinds[time]) and zone is None:
        msg = f"{label}: times in column {named[time]!r} have no time zone; pass tz='UTC' if so"
        raise LoadError(msg)
    sql = [_time_sql(time, named[time], kinds[time]), _power_sql(power, named[power], kinds[power])]
    sql += [_name_sql(named[role], kinds[role], f"id{at}") for at, role in enumerate(who)]
    if "" in sql:
        role = [*named][sql.index("")]
        msg = f"{label}: column {named[role]!r} holds {kinds[role]}, which is no {role}; {_CONVERT}"
        raise LoadError(msg)
    findings.append((label, "read", "readings to roll up", row_count, None))
    known = _known(path, findings)
    types = " ".join(map(str, kinds.values()))
    return _File(label, path, host, tuple(who), ", ".join(sql), types, known)


def _named(schema: pa.Schema, columns: Mapping[str, str] | None, label: str) -> dict[str, str]:
    """Return the columns to read by what they are: the time, the power, and who."""
    if absent := sorted({*(columns or {}).values()} - {*schema.names}):
        msg = f"{label}: no column {absent}; it has {schema.names[:20]}"
        raise LoadError(msg)
    names = columns or {role: role for role in (*_TIMES, *_POWERS, *_WHO) if role in schema.names}
    chosen = []
    for wanted, what in ((_TIMES, "times"), (_POWERS, "powers")):
        if not (roles := [role for role in wanted if role in names]):
            is_counter = what == "powers" and "energy_j" in schema.names
            advice = _COUNTERS if is_counter else f"name it {', '.join(wanted)}, or use columns="
            msg = f"{label}: no column of {what} among {schema.names[:20]}; {advice}"
            raise LoadError(msg)
        chosen.append(roles[0])
    who = ["entity"] if "entity" in names else [role for role in _WHO if role in names]
    result = {role: names[role] for role in (*chosen, *who)}
    # Names of DuckDB are the same in any case, end at a zero, and those of its columns are taken.
    lower = Counter([*(name.lower() for name in schema.names), _LINK, _ROW])
    if odd := [name for name in (*result.values(), _LINK, _ROW)
               if lower[name.lower()] > 1 or "\0" in name]:  # fmt: skip
        msg = f"{label}: {odd[0]!r} is the name of several columns, or of none that SQL can read"
        raise LoadError(msg)
    return result


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _time_sql(role: str, name: str, kind: pa.DataType) -> str:
    column, unit = _quoted(name), _TIMES[role]
    if pa.types.is_timestamp(kind):
        value, unit = f"try(epoch_ns({column}))", 1
        column = value
    elif unit and pa.types.is_integer(kind):
        value = f"CAST({column} AS BIGINT) * {unit}"
    elif unit and pa.types.is_floating(kind):
        # A float64 of seconds since 1970 resolves 0.24 us; what is below is noise.
        grain = 1000 if unit == SECOND else 1
        fraction = f"round(({column} - floor({column})) * {unit // grain})"
        value = f"CAST(floor({column}) AS BIGINT) * {unit} + CAST({fraction} AS BIGINT) * {grain}"
    else:
        return ""
    low, high = -(-_EARLIEST_NS // unit), _LATEST_NS // unit
    return f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {value} END AS t"


def _power_sql(role: str, name: str, kind: pa.DataType) -> str:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    factor = f" * {_POWERS[role]}" if _POWERS[role] != 1 else ""
    return f"CAST({_quoted(name)} AS DOUBLE){factor} AS w" if is_number else ""


def _name_sql(name: str, kind: pa.DataType, alias: str) -> str:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(kind):  # as pandas 2 writes a column of texts without any
        return f"CAST(NULL AS VARCHAR) AS {alias}"
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return f"{_quoted(name)} AS {alias}" if is_text or pa.types.is_integer(kind) else ""


def _known(path: Path, findings: list[Finding]) -> Mapping[str, tuple[str, str]]:
    """Return scope and clock of the entities of stored tables."""
    if not path.name.endswith(STORED_SUFFIX) or stored_kind(path.parent) != _KIND:
        return {}
    entities = stored_table(path.parent, _KIND, "entities")
    findings += stored_table(path.parent, _KIND, "quality").itertuples(index=False, name=None)
    silent = entities.loc[entities["reading_count"] == 0, "entity"]
    if len(silent):
        findings.append((shown(path), "dropped", _COUNTERS, len(silent), str(silent.iloc[0])))
    facts = zip(entities["entity"], entities["scope"], entities["clock"], strict=True)
    return {str(name): (str(scope), str(clock)) for name, scope, clock in facts}


def _whole(files: Sequence[_File], error: Exception, dropped: Dropped) -> list[_File]:
    """Return the files that DuckDB can read; raise if it is not their fault."""
    import duckdb

    whole = []
    for file in files:
        try:
            _rolled([file], SECOND, 1)
            whole.append(file)
        except (duckdb.Error, TableError) as own:
            dropped.add(file.label, unreadable(file.label, own, "Parquet"))
    if len(whole) == len(files):
        msg = f"DuckDB cannot roll up these files: {printable(str(error)[:300])}"
        raise LoadError(msg) from error
    return whole


def _rolled(
    files: Sequence[_File], period_ns: int, gap_ns: int
) -> tuple[pd.DataFrame, list[Finding]]:
    import duckdb

    with tempfile.TemporaryDirectory(prefix="workbench-rollup-") as scratch:
        # Nothing is fetched from the network, nor taken from variables of the caller.
        config: dict[str, Any] = {
            "temp_directory": f"{scratch}/spill", "python_enable_replacements": False,
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        }  # fmt: skip
        with duckdb.connect(config=config) as con:
            con.execute("SET enable_progress_bar = false; SET lock_configuration = true")
            run = _Run(con, files, Path(scratch))
            run.survey()
            run.reduce(period_ns, gap_ns)
            table = run.table(period_ns)
            run.tell_sparse(table)
            return table, run.findings


class _Run:
    """One attempt to roll up files, by one connection to DuckDB."""

    def __init__(self, con: DuckDBPyConnection, files: Sequence[_File], scratch: Path) -> None:
        self._con, self._files = con, files
        self.findings: list[Finding] = []
        # Files of one kind are read together, as numbers of one type.
        layouts = defaultdict[tuple[Any, ...], list[int]](list)
        for number, file in enumerate(files):
            # Names of files may hold what DuckDB takes for a pattern, or be no text.
            (scratch / f"{number}.parquet").symlink_to(file.path.resolve())
            layouts[file.who, file.sql, file.types].append(number)
        self._first = [files[numbers[0]] for numbers in layouts.values()]
        self._paths = {
            f"files{at}": [str(scratch / f"{number}.parquet") for number in numbers]
            for at, numbers in enumerate(layouts.values())
        }
        self._names: list[str] = []
        self._things = pd.DataFrame()

    def _keys(self, at: int) -> str:
        return ", ".join(["link", *(f"id{number}" for number in range(len(self._first[at].who)))])

    def _read(self, at: int) -> str:
        return (
            f"(SELECT {self._first[at].sql}, {_quoted(_LINK)} AS link, {_ROW} AS line FROM "
            f"read_parquet($files{at}, filename = '{_LINK}', {_ROW} = true, "
            "hive_partitioning = false))"
        )

    def survey(self) -> None:
        """See what entities there are, and when; count what cannot be rolled up."""
        things = []
        for at, first in enumerate(self._first):
            self._con.execute(
                f"""CREATE TEMP TABLE things{at} AS SELECT (row_number() OVER ()) AS row, * FROM (
                SELECT {self._keys(at)}, CAST(parse_filename(any_value(link), true) AS INTEGER) AS
                file, min(t), max(t), count(*) > count(t), count(*) > count(w), min(w), max(w)
                FROM {self._read(at)} GROUP BY {self._keys(at)})""",
                {f"files{at}": self._paths[f"files{at}"]},
            )
            rows = self._con.execute(f"SELECT * FROM things{at} ORDER BY file, row").fetchall()
            for number, *row in rows:
                thing = self._thing(first.who, row[: len(first.who) + 1], row[len(first.who) + 1 :])
                things += [(at, number, *thing)] if thing else []
        columns = ["table", "row", "file", "name", "is_hostless", "first_ns", "last_ns", "most",
                   "is_odd"]  # fmt: skip
        # Through floats, ns since 1970 would lose digits.
        self._things = pd.DataFrame(things, columns=columns, dtype=object).convert_dtypes()
        self._names = sorted(self._things["name"].unique(), key=natural)
        own = self._things.assign(code=pd.Categorical(self._things["name"], self._names).codes)
        for at in range(len(self._first)):
            types = {"row": "int64", "code": "int64", "most": "float64"}
            chosen = own.loc[own["table"] == at, [*types]].astype(types)
            self._con.register(f"codes{at}", chosen)
        self._tell_hostless()
        if self._things["is_odd"].any():
            self._tell_odd()

    def _thing(
        self, roles: Sequence[str], who: Sequence[Any], row: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        """Return what a row of the survey says of an entity; None if it has nothing to roll up."""
        number, first, last, *is_lacking, lowest, highest = row
        file = self._files[number]
        name, is_hostless = _name(dict(zip(roles, who[1:], strict=True)), file.host)
        scope, clock = file.known.get(name, ("", "epoch"))
        if not name or clock == "own":
            text = _OWN if name else "entities without a name"
            self.findings.append((file.label, "dropped", text, 1, name or None))
            return None
        is_gpu = name.rpartition("/")[2].startswith("gpu")
        most = most_w(scope or ("gpu" if is_gpu else "unknown"))
        # NaN is above all numbers to DuckDB, and below none to Python.
        is_odd = any(is_lacking) or not ((lowest or 0) >= 0 and (highest or 0) <= most)
        return number, name, is_hostless, first, last, most, is_odd

    def _tell_hostless(self) -> None:
        """Refuse GPUs of unknown hosts that two files hold at one time, and tell of other ones."""
        order = ["name", "first_ns", "last_ns", "file"]
        chosen = self._things[self._things["is_hostless"].astype(bool)].dropna()
        for before, own in pairwise(chosen[order].sort_values(order).to_numpy(object).tolist()):
            (name, first_ns, _, number), (name_before, _, last_ns, other) = own, before
            if name != name_before:
                continue
            if first_ns <= last_ns:
                msg = (
                    f"{self._files[number].label}: {name!r} has readings at the same time as in "
                    f"{self._files[other].label}, and neither file names a host; pass node= (a "
                    "name, a dict or a pattern)"
                )
                raise LoadError(msg)
            self._tell(number, "suspicious", _GUESSED, 1, name)

    def _tell_odd(self) -> None:
        """Count what is not rolled up: one reason for a reading, the first that holds."""
        cases = " ".join(f"WHEN {sql} THEN {at}" for at, sql in enumerate(_ODD))
        odd = f"SELECT *, CASE {cases} END AS odd FROM ({self._readings()})"
        told = f"SELECT file, odd, most, count(*), min(code) FROM ({odd}) WHERE odd IS NOT NULL"
        for number, at, most, count, code in self._found(f"{told} GROUP BY file, odd, most"):
            finding, text = [*_ODD.values()][at]
            self._tell(number, finding, text.format(most), count, self._names[code])

    def tell_sparse(self, table: pd.DataFrame) -> None:
        covered = table["covered_share"].groupby(table["entity"], observed=True).sum()
        timed = self._things.dropna().astype({"first_ns": "int64", "last_ns": "int64"})
        own = timed.groupby("name").agg({"file": "min", "first_ns": "min", "last_ns": "max"})
        span_s = (own["last_ns"] - own["first_ns"]) / SECOND
        covered_s = covered.rename(str).reindex(own.index) * table["period_s"].max()
        for name, number in own.loc[covered_s < _LEAST_COVERED_SHARE * span_s, "file"].items():
            self._tell(number, "suspicious", _SPARSE, 1, str(name))

    def _tell(self, number: int, finding: str, text: str, count: int, where: str) -> None:
        self.findings.append((self._files[number].label, finding, text, count, where))

    def _found(self, sql: str) -> list[Any]:
        return self._con.execute(f"{sql} ORDER BY ALL", self._paths).fetchall()

    def _readings(self) -> str:
        """Return SQL of all readings that have a name."""
        return " UNION ALL ".join(
            f"SELECT code, file, line, t, w, most FROM {self._read(at)} JOIN (SELECT * FROM "
            f"things{at} JOIN codes{at} USING (row)) USING ({self._keys(at)})"
            for at in range(len(self._first))
        )

    def reduce(self, period_ns: int, gap_ns: int) -> None:
        """Reduce all readings to cells, each stamp of an entity once."""
        good = f"(SELECT * FROM ({self._readings()}) WHERE t IS NOT NULL AND w BETWEEN 0 AND most)"
        if self._reduced(good, period_ns, gap_ns):
            # Only now is it worth to sort by file and line, and to look at each stamp.
            stamp = "WINDOW stamp AS (PARTITION BY code, t ORDER BY file, line)"
            each = "SELECT *, first_value(w) OVER stamp AS kept, row_number() OVER stamp AS turn"
            told = f"""SELECT file, kept = w, count(*), min(code) FROM ({each} FROM {good} {stamp})
                WHERE turn > 1 GROUP BY ALL"""
            for number, is_same, count, code in self._found(told):
                finding, text = ("noted", _SAME) if is_same else ("dropped", _OTHER)
                self._tell(number, finding, text, count, self._names[code])
            once = "lag(t) OVER (PARTITION BY code ORDER BY t, file, line)"
            first = f"(SELECT * FROM {good} QUALIFY {once} IS DISTINCT FROM t)"
            self._reduced(first, period_ns, gap_ns)
        counts = f"SELECT sum(cell - t0 // {period_ns} - 1) FROM cells WHERE t0 IS NOT NULL"
        if (between := int(self._con.execute(counts).fetchall()[0][0] or 0)) > _MOST_BETWEEN:
            msg = (
                f"{between:,} cells lie between readings no further apart than longest_gap_s; pass "
                "a longer period_s or a shorter longest_gap_s"
            )
            raise LoadError(msg)

    def _reduced(self, readings: str, period_ns: int, gap_ns: int) -> int:
        """Make cells of readings; return how many stamps of an entity were there again."""
        # A row knows the time since the reading before as far as it lies in its own cell; the
        # part before, which only the first of a cell has, is kept with the cell.
        near = f"step BETWEEN 1 AND {gap_ns}"
        crossing = f"FILTER ({near} AND t0 < cell * {period_ns})"
        self._con.execute(
            f"""CREATE OR REPLACE TEMP TABLE cells AS WITH steps AS (
                SELECT code, t, w, lag(t) OVER before AS t0, lag(w) OVER before AS w0
                FROM {readings} WINDOW before AS (PARTITION BY code ORDER BY t)
            ), parts AS (
                SELECT *, t // {period_ns} AS cell, t - t0 AS step,
                t - greatest(t0, t // {period_ns} * {period_ns}) AS own FROM steps
            ) SELECT code, cell, count(*) AS count, min(w) AS low, max(w) AS high,
                avg(w) AS mean, var_pop(w) AS variance, count(*) FILTER (step = 0) AS again,
                sum(own) FILTER ({near}) AS covered,
                sum((w - (w - w0) * own / step / 2) * own) FILTER ({near}) AS energy,
                any_value(t0) {crossing} AS t0, any_value(w0) {crossing} AS w0,
                min(t) AS t1, any_value(w) {crossing} AS w1
            FROM parts GROUP BY code, cell""",
            self._paths,
        )
        return int(self._con.execute("SELECT sum(again) FROM cells").fetchall()[0][0] or 0)

    def table(self, period_ns: int) -> pd.DataFrame:
        """Add the time between cells to both, and return all in order of entity and time."""
        end = f"least(t1, (cell + 1) * {period_ns})"
        start = f"greatest(t0, cell * {period_ns})"
        middle = f"(({start} - t0) + ({end} - t0)) / 2 / (t1 - t0)"
        frame = self._con.sql(
            f"""WITH between AS (
                SELECT code, unnest(range(t0 // {period_ns}, cell)) AS cell, t0, w0, t1, w1
                FROM cells WHERE t0 IS NOT NULL
            ), parts AS (
                SELECT code, cell, count, low, high, mean, variance, covered, energy FROM cells
                UNION ALL
                SELECT code, cell, 0, NULL, NULL, NULL, NULL, {end} - {start},
                (w0 + (w1 - w0) * {middle}) * ({end} - {start}) FROM between
            ) SELECT code, cell * {period_ns} AS time_ns, CAST(sum(count) AS BIGINT) AS
                reading_count, greatest(min(low), least(max(high), max(mean))) AS mean_w,
                min(low) AS min_w, max(high) AS max_w,
                coalesce(max(variance) * sum(count), 0) AS m2_w2,
                CASE WHEN sum(covered) > 0 THEN sum(energy) / {SECOND} END AS energy_j,
                coalesce(CAST(sum(covered) AS DOUBLE), 0) / {period_ns} AS covered_share
            FROM parts GROUP BY code, cell
            HAVING sum(count) > 0 OR sum(covered) > 0 ORDER BY code, cell"""
        ).df()
        names = pd.Index(self._names, dtype=pd.Series([""]).dtype)
        frame.insert(
            1,
            "entity",
            pd.Categorical.from_codes(frame.pop("code"), names).remove_unused_categories(),
        )
        frame.insert(2, "period_s", period_ns / SECOND)
        return POWER_ROLLUP.check(frame)


def _name(who: Mapping[str, Any], host: str | None) -> tuple[str, bool]:
    """Return the name of an entity, '' if there is none, and whether its host is unknown."""
    texts = {role: "" if v is None else printable(str(v).strip()) for role, v in who.items()}
    if "" in texts.values():
        return "", False
    last = texts.get("entity", texts.get("gpu", ""))
    if "gpu" in texts and (number := _NUMBER.fullmatch(last)):
        last = f"gpu{int(number[1])}"
    is_bare = re.fullmatch(r"gpu\d+", last) is not None
    if "node" not in texts and host and (is_bare or "entity" not in texts):
        texts["node"] = host
    name = "/".join(text for text in (texts.get("node"), last) if text)
    return name, is_bare and "node" not in texts
