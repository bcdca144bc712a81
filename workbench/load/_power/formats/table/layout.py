"""Which columns of a table of power telemetry are time, entity and power."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workbench.errors import LoadError
from workbench.load._power.formats.table.columns import (
    ENTITIES,
    FEED,
    GROUPS,
    INDICES,
    NAMING,
    NODES,
    UUIDS,
    PowerColumn,
    PowerLayout,
    shown,
    wide_name,
)
from workbench.load._power.formats.table.counter_columns import (
    counter_beside,
    counters_of,
    has_counter,
    with_clear_units,
)
from workbench.load._power.formats.table.named import named
from workbench.load._power.formats.table.names import PowerName, power_name, unit_factor, words_of
from workbench.load._power.formats.table.unnamed import (
    BARE,
    NO_UNIT,
    SHARES,
    VALUES,
    Cell,
    all_others,
    in_their_cells,
    is_limit,
)
from workbench.load._power.part import NoPowerError, PowerGiven

_TIMES: tuple[str, ...] = (
    # These need no zone.
    *("unixtime", "unix_time", "unix_timestamp", "timestamp_unix", "unix"),
    *(
        "time",
        "timestamp",
        "ts",
        "datetime",
        "date_time",
        "time_utc",
        "timestamp_utc",
        "@timestamp",
    ),
    *("_time", "time_stamp", "epoch", "epoch_time"),
    *("stamp", "date", "t", "elapsed", "elapsed_time", "seconds", "window_start"),
)
_TIME_UNIT = re.compile(r"_?(ns|us|ms|s|sec|seconds)$")
_WIDE_GPU = re.compile(r"(?:.+/)?gpu\d+")
_SUMMIT_PART = re.compile(
    r"p(\d)_(?:(gpu)(\d)_)?power(?:[._]mean)?|ps(\d)_input_power(?:[._]mean)?"
)
# What facebookresearch/gcm writes beside a power_draw in milliwatts.
_MILLIWATTS = {"power_draw", "power_used_percent"}
_CLUSTER = {"sum_inp", "count_inp", "size_inp"}
_WORDS = r"(?:power|pwr|draw|usage|milliwatts?|milli|kilo|mega|watts?|[km]?w|mean|avg|average)"
_TAIL = re.compile(rf"(?:(?:^|[\s_./:\-\[(]+){_WORDS})+[\])\s]*$", re.IGNORECASE)
_START = re.compile(r"^(?:power|pwr|watts?)[\s_./:-]+", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_TOTAL_WORDS = {"total", "totals", "sum", "overall"}
_OF_ALL_WORDS = {"grand", "all", "it", "load", "site", "cluster", "nodes", "servers", "racks"}
_TWICE = "a sum of the others, which would count them twice"


def layout(
    names: Sequence[str],
    given: PowerGiven,
    label: str,
    *,
    time: str | None = None,
    cells: Mapping[str, Cell] | None = None,
    with_counters: bool = False,
) -> PowerLayout:
    """Say what the columns of a table are.

    Parameters
    ----------
    names
        The columns, in order.
    given
        What the caller said.
    label
        The file, for messages.
    time
        The column of times, if its name does not tell.
    cells
        Columns that hold no plain numbers, and what they hold.
    with_counters
        Whether counters of energy will do if there is no power.

    Raises
    ------
    NoPowerError
        If there is no column of times or of powers.
    LoadError
        If the unit of powers is not told.
    """
    if given.columns is not None:
        return named(layout, names, given, label, cells=cells)
    kinds = cells or {}
    texts = {name for name, kind in kinds.items() if kind == "text"}
    by_lower = {name.strip().lower(): name for name in names}
    time = time_column(names) or time
    if time is None:
        msg = (
            f"{label}: no column of times among {shown(names)}; name it time, timestamp or "
            "time_ms (UTC, with an offset, or since 1970)"
        )
        raise NoPowerError(msg)
    if set(by_lower) >= _CLUSTER:
        total = PowerColumn(
            by_lower["sum_inp"], "cluster", given.scope or "unknown", "average", 1.0
        )
        return PowerLayout(time, (replace(total, is_entity=True),), is_cluster=True)
    found = _with_identity(time, by_lower, given)
    powers, left_out = _powers([name for name in names if name != time], found, given)
    powers, counters = _by_source(powers, by_lower), list[PowerColumn]()
    if with_counters:
        numbers = [name for name in names if name not in texts]
        is_named = has_counter(names)
        counters, totals = counters_of(numbers, is_named, found, given)
        left_out += [(name, _TWICE) for name in totals]
        counters = counter_beside(counters, powers) if powers else with_clear_units(counters, label)
    if powers and not found.identity:
        powers = _without_totals(_with_stated(powers, kinds, given), left_out)
    elif not powers and not counters:
        others = [name for name in names if name not in texts and not is_limit(name)]
        powers, bare = all_others(others, found, given, label, kinds)
        powers = _without_totals(powers, left_out)
        left_out += [(name, "a limit, no power that is drawn") for name in filter(is_limit, names)]
        left_out += [(name, BARE) for name in bare]
    units, bare_powers = _with_units(in_their_cells(powers, kinds, given), given, label)
    left_out += [(name, NO_UNIT) for name in bare_powers]
    return replace(found, powers=units, counters=tuple(counters), left_out=tuple(left_out))


def _by_source(powers: list[PowerColumn], names: Iterable[str]) -> list[PowerColumn]:
    """Give the powers of tables that are known by their columns the unit that they have."""
    if set(names) >= _MILLIWATTS:
        return [replace(power, factor=power.factor or 1e-3) for power in powers]
    if any(_is_summit(power.name) for power in powers):
        return [replace(power, factor=power.factor or 1.0) for power in powers]
    return powers


def _with_stated(
    powers: list[PowerColumn], kinds: Mapping[str, Cell], given: PowerGiven
) -> list[PowerColumn]:
    """Add the columns of a wide table whose cells are powers to those whose names say so."""
    known = {power.name for power in powers}
    # Where names tell the powers, a column that is empty or 0 so far may be anything.
    stated = (name for name, kind in kinds.items() if kind == "unit")
    more = [name for name in stated if name not in known and not is_limit(name)]
    if not more:
        return powers
    scope = given.scope or "unknown"
    added = [PowerColumn(n, wide_name(n.strip()), scope, is_entity=True) for n in more]
    return [*(replace(p, part=p.part or _bare(p.name)) for p in powers), *added]


def has_value(names: Iterable[str]) -> bool:
    """Say whether a table of named things has a column of values, of whatever they may be."""
    lowered = {name.strip().lower() for name in names}
    return bool(lowered & VALUES) and bool(lowered & NAMING)


def time_column(names: Iterable[str]) -> str | None:
    """Find the column of times."""
    by_lower = {name.strip().lower(): name for name in reversed(list(names))}
    for known in _TIMES:
        for lowered, name in by_lower.items():
            if lowered == known or (
                _TIME_UNIT.search(lowered) and _TIME_UNIT.sub("", lowered) == known
            ):
                return name
    return None


def tells_power(names: Sequence[str]) -> bool:
    """Say whether a table surely is one of power: by times, and powers or counters of energy."""
    return time_column(names) is not None and (has_power(names) or has_counter(names))


def has_power(names: Iterable[str]) -> bool:
    """Say whether one of the columns says that it holds powers, or shares of them."""
    listed = [name.strip() for name in names]
    lowered = {name.lower() for name in listed}
    return lowered >= _CLUSTER or bool(lowered & set(SHARES)) or any(map(power_name, listed))


def _with_identity(time: str, by_lower: dict[str, str], given: PowerGiven) -> PowerLayout:
    def first(known: Iterable[str]) -> str | None:
        return next((by_lower[name] for name in known if by_lower.get(name, time) != time), None)

    if entity := first(ENTITIES):
        return PowerLayout(time, (), entity=entity)
    node, index, uuid = first(NODES), first(INDICES), first(UUIDS)
    # An index tells GPUs apart inside a host only.
    is_uuid = uuid is not None and (index is None or (node is None and given.node is None))
    device = uuid if is_uuid else index
    if node is None and device is None and (group := first(GROUPS)):
        return PowerLayout(time, (), entity=group, scope=group.strip().lower())
    scope = "gpu" if device is not None else "unknown"
    return PowerLayout(time, (), node=node, device=device, is_uuid=is_uuid, scope=scope)


def _powers(
    names: Sequence[str], found: PowerLayout, given: PowerGiven
) -> tuple[list[PowerColumn], list[tuple[str, str]]]:
    """Give the columns of powers, one of each thing, and those left out."""
    known = {name: power_name(name.strip()) for name in names if name not in found.identity}
    powers = {name: said for name, said in known.items() if said is not None}
    left_out = [(name, "another statistic than the mean") for name, said in powers.items()
                if said.statistic == "other"]  # fmt: skip
    kept = {name: said for name, said in powers.items() if said.statistic != "other"}
    by_thing: dict[tuple[str, ...], list[str]] = {}
    for name, said in kept.items():
        by_thing.setdefault(said.stem, []).append(name)
    chosen = []
    for same in by_thing.values():
        best = _chosen(same, kept, given)
        chosen.append(best)
        left_out += [(name, f"the same as {best}, read otherwise") for name in same if name != best]
    is_one = len(chosen) == 1
    columns = [_column(name, kept[name], found, given, is_one=is_one) for name in chosen]
    return _without_totals(columns, left_out), left_out


def _without_totals(
    columns: list[PowerColumn], left_out: list[tuple[str, str]]
) -> list[PowerColumn]:
    """Leave out sums beside what they sum; beside GPUs alone one may hold more, and stays."""
    totals = [column for column in columns if column.is_entity and _is_total(column.part)]
    whole = [c for c in columns if c not in totals and c.scope not in ("gpu", "cpu", "memory")]
    is_all_gpu = {column.scope for column in columns} == {"gpu"}
    twice = totals if whole or (is_all_gpu and len(totals) < len(columns)) else []
    left_out += [(column.name, _TWICE) for column in twice]
    return [column for column in columns if column not in twice]


def _is_total(part: str) -> bool:
    words = {word.lower() for word in words_of(part)}
    return bool(words & _TOTAL_WORDS) and words <= _TOTAL_WORDS | _OF_ALL_WORDS


def _chosen(same: Sequence[str], kept: dict[str, PowerName], given: PowerGiven) -> str:
    """Choose among columns that differ in how they were read only."""
    order: list[str] = [given.reading or "unknown", "unknown", "average", "instant"]
    return min(same, key=lambda name: order.index(kept[name].method))


def _column(
    name: str, said: PowerName, found: PowerLayout, given: PowerGiven, *, is_one: bool
) -> PowerColumn:
    """Say what one column of powers meters."""
    column = PowerColumn(name, "", found.scope, said.method, said.factor, said.is_mw)
    if not found.identity:
        part = _bare(name)
        if is_one and not _WIDE_GPU.fullmatch(part):
            part = ""
        feed = FEED.fullmatch(part)
        told = feed[1].lower() if feed and said.scope == "unknown" else said.scope
        scope = told if said.scope != "unknown" else given.scope or told
        return replace(column, part=part, scope=scope, is_entity=True)
    if is_one and found.scope != "unknown":
        return column
    if summit := _is_summit(name):
        part, scope = _summit_part(summit)
        return replace(column, part=part, scope=scope)
    scope = said.scope if said.scope != "unknown" else given.scope or "unknown"
    if said.stem == ("input", "power"):
        return replace(column, scope=given.scope or "node_ac", factor=said.factor or 1.0)
    part = "" if is_one or said.stem == ("power",) else _bare(name)
    return replace(column, part=part, scope=scope)


def _is_summit(name: str) -> re.Match[str] | None:
    return _SUMMIT_PART.fullmatch(name.strip().lower())


def _summit_part(match: re.Match[str]) -> tuple[str, str]:
    """Name a sensor of Summit: GPUs 0 to 5 of a node, three to a socket."""
    if match[4]:
        return f"ps{match[4]}", "unknown"
    if match[2]:
        return f"gpu{3 * int(match[1]) + int(match[3])}", "gpu"
    return f"cpu{match[1]}", "cpu"


def _bare(name: str) -> str:
    """Name the thing that a column meters: its name without power and unit."""
    split = name.strip() if _TAIL.search(name) or _START.match(name) else _CAMEL.sub("_", name)
    bare = _START.sub("", _TAIL.sub("", split))
    return wide_name(bare) if bare else name.strip()


def _with_units(
    powers: Sequence[PowerColumn], given: PowerGiven, label: str
) -> tuple[tuple[PowerColumn, ...], list[str]]:
    """Give every column its unit, or ask for it; GPUs without one are told by their size.

    Beside powers that name their unit, those that do not are the second, and not taken.
    """
    given_factor = None if given.unit is None else unit_factor(given.unit)
    with_units = [replace(p, factor=p.factor or given_factor) for p in powers]
    unknown = [p.name for p in with_units if p.factor is None and not p.is_mw and p.scope != "gpu"]
    if unknown and len(unknown) == len(powers):
        msg = (
            f"{label}: columns {shown(unknown)} name no unit; pass unit= ('W', 'kW', 'MW' or "
            "'mW'), or name them like power_w"
        )
        raise LoadError(msg)
    return tuple(power for power in with_units if power.name not in unknown), unknown
