"""Which columns of a table of power telemetry are time, entity and power."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from workbench.errors import LoadError
from workbench.load._power.formats.table.columns import (
    ENTITIES,
    FEED,
    GROUPS,
    INDICES,
    NAMING,
    NEVER,
    NODES,
    UUIDS,
    PowerColumn,
    PowerLayout,
    PowerName,
    ascii_unit,
    is_damaged,
    names_a_limit,
    power_name,
    scope_of,
    shown,
    wide_name,
    words_of,
)
from workbench.load._power.part import NoPowerError, PowerOptions, number_of, unit_factor
from workbench.load._power.quantities import is_other_quantity

_TIMES: tuple[str, ...] = (
    # These need no zone.
    *("unixtime", "unix_time", "unix_timestamp", "timestamp_unix", "unix"),
    *(
        "time", "timestamp", "ts", "datetime", "date_time", "time_utc", "timestamp_utc",
        "@timestamp",
    ),
    *("_time", "time_stamp", "epoch", "epoch_time"),
    *("stamp", "date", "t", "elapsed", "elapsed_time", "seconds", "window_start"),
)  # fmt: skip
# A date, rather than the time since a program began; seconds since 1970 are above 1998.
_DATE = re.compile(r"\d{4}[-/.]\d|\d[-/.]\d{1,2}[-/.]\d{2}|[A-Za-z]{3}")
_LEAST_EPOCH = 9e8
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
    options: PowerOptions,
    label: str,
    *,
    time: str | None = None,
    cells: Mapping[str, Cell] | None = None,
    with_counters: bool = False,
) -> PowerLayout:
    if options.columns is not None:
        return named(layout, names, options, label, cells=cells)
    kinds = cells or {}
    texts = {name for name, kind in kinds.items() if kind == "text"}
    by_lower = {name.strip().lower(): name for name in names}
    time = time or time_column(names)
    if time is None:
        msg = (
            f"{label}: no column of times among {shown(names)}; name it time, timestamp or "
            "time_ms (UTC, with an offset, or since 1970)"
        )
        raise NoPowerError(msg)
    if set(by_lower) >= _CLUSTER:
        scope = options.scope or "unknown"
        total = PowerColumn(by_lower["sum_inp"], "cluster", scope, "average", 1.0)
        return PowerLayout(time, (replace(total, is_entity=True),), is_cluster=True)
    columns_found = _with_identity(time, by_lower, options)
    powers, left_out = _powers([n for n in names if n != time], columns_found, options, kinds)
    powers, counters = _by_source(powers, by_lower), list[PowerColumn]()
    if with_counters:
        numbers = [name for name in names if name not in texts]
        is_named = has_counter(names)
        counters, totals = counters_of(numbers, is_named, columns_found, options)
        left_out += [(name, _TWICE) for name in totals]
        counters = counter_beside(counters, powers) if powers else with_clear_units(counters, label)
    if powers and not columns_found.identity:
        powers = _without_totals(_with_stated(powers, kinds, options), left_out)
    elif not powers and not counters:
        others = [name for name in names if name not in texts and not is_limit(name)]
        powers, bare = all_others(others, columns_found, options, label, kinds)
        powers = _without_totals(powers, left_out)
        left_out += [(name, "a limit, no power that is drawn") for name in filter(is_limit, names)]
        left_out += [(name, OTHER if is_other_quantity(name) else BARE) for name in bare]
    units, bare_powers = _with_units(in_their_cells(powers, kinds, options), options, label)
    left_out += [(name, NO_UNIT) for name in bare_powers]
    return replace(columns_found, powers=units, counters=tuple(counters), left_out=tuple(left_out))


def _by_source(powers: list[PowerColumn], names: Iterable[str]) -> list[PowerColumn]:
    if set(names) >= _MILLIWATTS:
        return [replace(power, factor=power.factor or 1e-3) for power in powers]
    if any(_is_summit(power.name) for power in powers):
        return [replace(power, factor=power.factor or 1.0) for power in powers]
    return powers


def _with_stated(
    powers: list[PowerColumn], kinds: Mapping[str, Cell], options: PowerOptions
) -> list[PowerColumn]:
    meanings = {power.name for power in powers}
    # Where names tell the powers, a column that is empty or 0 so far may be anything.
    stated = (name for name, kind in kinds.items() if kind == "unit")
    more = [name for name in stated if name not in meanings and not is_limit(name)]
    if not more:
        return powers
    scope = options.scope or "unknown"
    added = [PowerColumn(n, wide_name(n.strip()), scope, is_entity=True) for n in more]
    return [*(replace(p, part=p.part or _bare(p.name)) for p in powers), *added]


def has_value(names: Iterable[str]) -> bool:
    lowered = {name.strip().lower() for name in names}
    return bool(lowered & VALUES) and bool(lowered & NAMING)


def time_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that are called times, from the surest name to the least."""
    # Reversed, so that of two columns of one name the first stays.
    by_lower = {name.strip().lower(): name for name in reversed(list(names))}
    return list(dict.fromkeys(
        name for meanings in _TIMES for lowered, name in by_lower.items()
        if lowered == meanings
        or (_TIME_UNIT.search(lowered) and _TIME_UNIT.sub("", lowered) == meanings)
    ))  # fmt: skip


def time_column(names: Iterable[str]) -> str | None:
    return next(iter(time_columns(names)), None)


def wall_time(columns: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first column of times whose cells are dates, or seconds since 1970; or None."""
    for name in time_columns(columns):
        cell = next((cell.strip() for cell in columns[name] if cell.strip()), "")
        number = number_of(cell)
        if _DATE.search(cell) if number is None else number >= _LEAST_EPOCH:
            return name
    return None


def tells_power(names: Sequence[str]) -> bool:
    """Return whether a table surely is one of power: by times, and powers or counters of energy."""
    return time_column(names) is not None and (has_power(names) or has_counter(names))


def has_power(names: Iterable[str]) -> bool:
    listed = [name.strip() for name in names]
    lowered = {name.lower() for name in listed}
    return lowered >= _CLUSTER or bool(lowered & set(SHARES)) or any(map(power_name, listed))


def _with_identity(time: str, by_lower: dict[str, str], options: PowerOptions) -> PowerLayout:
    def first(meanings: Iterable[str]) -> str | None:
        return next((by_lower[name] for name in meanings if by_lower.get(name, time) != time), None)

    if entity := first(ENTITIES):
        return PowerLayout(time, (), entity=entity)
    node, index, uuid = first(NODES), first(INDICES), first(UUIDS)
    # An index tells GPUs apart inside a host only.
    is_uuid = uuid is not None and (index is None or (node is None and options.node is None))
    device = uuid if is_uuid else index
    if node is None and device is None and (group := first(GROUPS)):
        return PowerLayout(time, (), entity=group, scope=group.strip().lower())
    scope = "gpu" if device is not None else "unknown"
    return PowerLayout(time, (), node=node, device=device, is_uuid=is_uuid, scope=scope)


def _powers(
    names: Sequence[str],
    columns_found: PowerLayout,
    options: PowerOptions,
    kinds: Mapping[str, Cell],
) -> tuple[list[PowerColumn], list[tuple[str, str]]]:
    identity = columns_found.identity
    meanings = {name: power_name(name.strip()) for name in names if name not in identity}
    powers = {name: meaning for name, meaning in meanings.items() if meaning is not None}
    left_out = [(name, "another statistic than the mean") for name, meaning in powers.items()
                if meaning.statistic == "other"]  # fmt: skip
    kept = {name: meaning for name, meaning in powers.items() if meaning.statistic != "other"}
    by_thing: dict[tuple[str, ...], list[str]] = {}
    for name, meaning in kept.items():
        by_thing.setdefault(meaning.stem, []).append(name)
    chosen = []
    for same in by_thing.values():
        # Of two columns of one power a product fills one.
        filled = [name for name in same if kinds.get(name) != "blank"]
        best = _chosen(filled or same, kept, options)
        chosen.append(best)
        left_out += [(name, f"the same as {best}, read otherwise") for name in same if name != best]
    is_one = len(chosen) == 1
    columns = [_column(name, kept[name], columns_found, options, is_one=is_one) for name in chosen]
    return _without_totals(columns, left_out), left_out


def _without_totals(
    columns: list[PowerColumn], left_out: list[tuple[str, str]]
) -> list[PowerColumn]:
    # Beside what it sums a total counts twice; beside GPUs alone it may hold more, and stays.
    totals = [column for column in columns if column.is_entity and _is_total(column.part)]
    total = [c for c in columns if c not in totals and c.scope not in ("gpu", "cpu", "memory")]
    is_all_gpu = {column.scope for column in columns} == {"gpu"}
    twice = totals if total or (is_all_gpu and len(totals) < len(columns)) else []
    left_out += [(column.name, _TWICE) for column in twice]
    return [column for column in columns if column not in twice]


def _is_total(device: str) -> bool:
    words = {word.lower() for word in words_of(device)}
    return bool(words & _TOTAL_WORDS) and words <= _TOTAL_WORDS | _OF_ALL_WORDS


def _chosen(same: Sequence[str], kept: dict[str, PowerName], options: PowerOptions) -> str:
    """Choose among columns that differ in how they were read only."""
    order: list[str] = [options.reading or "unknown", "unknown", "average", "instant"]
    return min(same, key=lambda name: order.index(kept[name].method))


def _column(
    name: str,
    meaning: PowerName,
    columns_found: PowerLayout,
    options: PowerOptions,
    *,
    is_one: bool,
) -> PowerColumn:
    column = PowerColumn(
        name, "", columns_found.scope, meaning.method, meaning.factor, meaning.is_mw
    )
    if not columns_found.identity:
        device = _bare(name)
        if is_one and not _WIDE_GPU.fullmatch(device):
            device = ""
        feed = FEED.fullmatch(device)
        scope_told = feed[1].lower() if feed and meaning.scope == "unknown" else meaning.scope
        scope = scope_told if meaning.scope != "unknown" else options.scope or scope_told
        return replace(column, part=device, scope=scope, is_entity=True)
    if is_one and columns_found.scope != "unknown":
        return column
    if summit := _is_summit(name):
        device, scope = _summit_part(summit)
        return replace(column, part=device, scope=scope)
    scope = meaning.scope if meaning.scope != "unknown" else options.scope or "unknown"
    if meaning.stem == ("input", "power"):
        return replace(column, scope=options.scope or "node_ac", factor=meaning.factor or 1.0)
    device = "" if is_one or meaning.stem == ("power",) else _bare(name)
    return replace(column, part=device, scope=scope)


def _is_summit(name: str) -> re.Match[str] | None:
    return _SUMMIT_PART.fullmatch(name.strip().lower())


def _summit_part(match: re.Match[str]) -> tuple[str, str]:
    # A node of Summit has GPUs 0 to 5, three to a socket.
    if match[4]:
        return f"ps{match[4]}", "unknown"
    if match[2]:
        return f"gpu{3 * int(match[1]) + int(match[3])}", "gpu"
    return f"cpu{match[1]}", "cpu"


def _bare(name: str) -> str:
    split = name.strip() if _TAIL.search(name) or _START.match(name) else _CAMEL.sub("_", name)
    bare = _START.sub("", _TAIL.sub("", split))
    return wide_name(bare) if bare else name.strip()


def _with_units(
    powers: Sequence[PowerColumn], options: PowerOptions, label: str
) -> tuple[tuple[PowerColumn, ...], list[str]]:
    """Find the unit of every column, or ask for it; unlabelled GPU columns are judged by size.

    Beside powers that name their unit, those that do not are the second, and not taken.
    """
    given_factor = None if options.unit is None else unit_factor(options.unit)
    with_units = [replace(p, factor=p.factor or given_factor) for p in powers]
    unknown = [p.name for p in with_units if p.factor is None and not p.is_mw and p.scope != "gpu"]
    if unknown and len(unknown) == len(powers):
        msg = (
            f"{label}: columns {shown(unknown)} name no unit; pass unit= ('W', 'kW', 'MW' or "
            "'mW'), or name them like power_w"
        )
        raise LoadError(msg)
    return tuple(power for power in with_units if power.name not in unknown), unknown


# Columns of a table that count energy, and whether what they hold does count.

_JOULES = {"j": 1.0, "joule": 1.0, "joules": 1.0, "kj": 1e3, "uj": 1e-6, "millijoules": 1e-3}
_JOULES |= {"millijoule": 1e-3, "microjoules": 1e-6, "kilojoules": 1e3, "megajoules": 1e6}
_HOURS = {"wh": 3.6e3, "kwh": 3.6e6}
_BY_CASE = {"mJ": 1e-3, "MJ": 1e6, "MWh": 3.6e9, "mWh": 3.6}
# A unit that is written without a separator: EnergykWh.
_GLUED = re.compile(r"(?<=[a-z0-9]{2})([kmM]?Wh|[kmM]J)$")
_PREFIXES = {"milli", "micro", "kilo", "mega"}
_ENERGY = {"energy", "joule", "joules"}
# What makes an energy something else than the reading of a counter.
_NO_COUNTER = {
    *("per", "limit", "budget", "cost", "price", "saved", "saving", "savings", "rate", "status"),
    *("delta", "diff", "interval", "step", "token", "sample", "mean", "avg", "average", "min"),
    *("max", "std", "stddev", "median", "count", "efficiency", "share", "percent", "pct"),
    *("intensity", "carbon", "co2", "gco2", "g", "emissions", "tariff", "export", "exported"),
    *("battery", "capacity", "remaining", "available", "stored", "soc", "predicted", "forecast"),
    *("hourly", "daily", "weekly", "monthly", "minutely", "last", "request", "job", "run"),
}
# A table with one of these words is about steps, requests or settings; so are its energies.
_OF_A_JOB = {"step", "steps", "iteration", "iterations", "iter", "loss", "samples", "request"}
_OF_A_JOB |= {"requests", "latency", "trial", "outcome", "batch", "limit", "window"}
_FILLERS = _ENERGY | {"total", "consumption", "consumed", "counter", "cumulative", "used", "usage"}
_PACKAGE = {"package", "pkg"}  # what RAPL calls a CPU
# Share of the steps that may fall: a counter falls only where it is reset.
_FALLING = 0.01
# A reset leaves less than this share of what was counted.
_RESET = 0.5
_ROUNDING = 1e-5


def counters_of(
    names: Sequence[str], is_named: bool, columns_found: PowerLayout, options: PowerOptions
) -> tuple[list[PowerColumn], list[str]]:
    """Return the counters of energy of a table of named things, or of nothing but counters.

    Their factor is missing where the unit may be two: ``mj`` of something that is not a GPU. The
    second are sums of the others, which would count them twice.
    """
    used = (columns_found.time, *columns_found.identity)
    remaining = [n for n in names if n not in used and not NEVER.fullmatch(n.strip())]
    meaning = {n: energy for n in remaining if (energy := energy_name(n)) is not None}
    if not is_named and (columns_found.identity or len(meaning) < len(remaining)):
        return [], []
    may_sum = not is_named and len(meaning) > 1
    totals = [name for name, (words, _) in meaning.items() if may_sum and not words]
    counters = []
    for name, (words, unit) in meaning.items():
        if name in totals:
            continue
        device = "" if is_named and len(meaning) == 1 else "_".join(words)
        device = device if is_named else wide_name(device)
        scope = _scope(words, columns_found, options)
        factor = joules_in(unit, of_gpu=scope == "gpu")
        is_mj = unit == "mj"
        counters.append(
            PowerColumn(name, device, scope, "counter", factor, is_mj, is_entity=not is_named)
        )
    return counters, totals


def _scope(words: Sequence[str], columns_found: PowerLayout, options: PowerOptions) -> str:
    """Tell what is metered, by the words of a name, or by what the table names."""
    lowered = {word.lower() for word in words}
    if columns_found.device is not None or options.scope:
        return "gpu" if columns_found.device is not None else str(options.scope)
    if (scope := "cpu" if lowered & _PACKAGE else scope_of(lowered)) != "unknown":
        return scope
    feed = FEED.fullmatch("_".join(words))
    return feed[1].lower() if feed else columns_found.scope


def with_clear_units(counters: list[PowerColumn], label: str) -> list[PowerColumn]:
    unclear = [column.name for column in counters if column.factor is None]
    if unclear:
        msg = (
            f"{label}: columns {shown(unclear)} may be millijoules or megajoules (or watt-hours); "
            "name them like energy_j, energy_mJ, energy_MJ or energy_kWh"
        )
        raise LoadError(msg)
    return counters


def counter_beside(counters: list[PowerColumn], powers: Sequence[PowerColumn]) -> list[PowerColumn]:
    """Keep the counter beside a power if its unit is clear, and both are of what a row names."""
    is_one = len(counters) == len(powers) == 1 and not powers[0].part
    return counters if is_one and counters[0].factor is not None else []


def has_counter(names: Iterable[str]) -> bool:
    lowered = {name.strip().lower() for name in names}
    words = {word for name in lowered for word in words_of(name)}
    if words & _OF_A_JOB or "epoch" in lowered or not lowered & NAMING:
        return False
    return any(energy_name(name) is not None for name in names)


def falls_too_often(codes: np.ndarray, time_ns: np.ndarray, energy_j: np.ndarray) -> bool:
    """Return whether numbers rise and fall, or never move, as energies of intervals do.

    A counter falls where it was reset: rarely, and to nearly nothing. One of a thing that is fed
    moves.
    """
    order = np.lexsort((time_ns, codes))
    subset = order[np.isfinite(energy_j[order])]
    is_same = codes[subset][1:] == codes[subset][:-1]
    before, after = energy_j[subset][:-1][is_same], energy_j[subset][1:][is_same]
    if not len(before):
        return False
    is_fall = after < before
    # Sums of counters lose their last digits.
    is_odd = (after > _RESET * before) & (after < (1 - _ROUNDING) * before)
    entities = len(np.unique(codes[subset]))
    most = _FALLING * len(before)
    is_still = not (after != before).any()
    return int(is_fall.sum()) > max(entities, most) or int(is_odd.sum()) > most or is_still


def energy_name(name: str) -> tuple[list[str], str] | None:
    """Return the words of a counter's name besides energy and unit, and the unit.

    Examples
    --------
    >>> energy_name("gpu0_total_energy_mJ"), energy_name("carbon_g_per_kWh")
    ((['gpu0'], 'mJ'), None)
    """
    if is_damaged(name):
        return None
    tokens = [token for token in re.split(r"[^A-Za-z0-9]+", ascii_unit(name)) if token]
    if tokens and not _is_unit(tokens[-1]) and (glued := _GLUED.search(tokens[-1])):
        tokens[-1:] = [tokens[-1][: glued.start()], glued[1]]
    position = next((at for at in range(len(tokens) - 1, -1, -1) if _is_unit(tokens[at])), None)
    if position is None:
        return None
    unit, remaining = tokens[position], tokens[:position] + tokens[position + 1 :]
    if position and tokens[position - 1].lower() in _PREFIXES:
        unit, remaining = f"{tokens[position - 1]}{unit}".lower(), tokens[: position - 1]
    words = [word for token in remaining for word in words_of(token)]
    lowered = {word.lower() for word in words}
    is_energy = lowered & _ENERGY or unit.lower().endswith(("wh", "joule", "joules"))
    if lowered & _NO_COUNTER or not is_energy:
        return None
    return [word for word in words if word.lower() not in _FILLERS], unit


def _is_unit(word: str) -> bool:
    low = word.lower()
    return low in _JOULES or low in _HOURS or low in ("mj", "mwh")


def joules_in(unit: str, *, of_gpu: bool) -> float | None:
    """Return the joules in one of a unit; None if it may be two. Drivers of GPUs count in mJ."""
    low = unit.lower()
    meanings = _BY_CASE.get(unit) or _JOULES.get(low) or _HOURS.get(low)
    return meanings or (1e-3 if low == "mj" and of_gpu else None)


# Columns of powers whose names do not say it: by their cells, or as the caller says.

# Cells of names, of numbers with a unit of power such as "627.40 W", and nothing or 0 so far.
Cell = Literal["text", "unit", "blank"]
# Columns of whatever a row measures.
VALUES = {"value", "_value", "val", "reading", "measurement", "metric_value"}
SHARES = ("measured_power_util", "production_power_util")
_LIMITS = {"limit", "limits", "cap", "budget", "nameplate", "tdp", "rated", "target", "setpoint"}
_LIMITS |= {"max", "min", "maximum", "minimum", "capacity", "headroom", "allocated", "available"}
_LIMITS |= {"reserved", "remaining"}
NO_UNIT = "it names no unit, as others do; pass unit= if it holds powers"
OTHER = "another quantity than power"
BARE = "its cells name no unit, as those of others do; pass unit= if they are powers"


def stated_columns(kinds: Mapping[str, Cell]) -> list[str]:
    stated = [name for name, kind in kinds.items() if kind == "unit"]
    return [name for name, kind in kinds.items() if kind in ("unit", "blank")] if stated else []


def in_their_cells(
    powers: Sequence[PowerColumn], kinds: Mapping[str, Cell], options: PowerOptions
) -> list[PowerColumn]:
    """Let cells name the unit; one that names none is of the unit given, or of none."""
    stated = set(stated_columns(kinds))
    if options.unit is not None:
        return list(powers)
    by_cell = [p.name in stated and p.factor is None for p in powers]
    return [replace(p, factor=1.0, needs_unit=True) if is_bare else p
            for p, is_bare in zip(powers, by_cell, strict=True)]  # fmt: skip


def is_limit(name: str) -> bool:
    """Return whether a name is that of a limit, not of what is drawn."""
    words = {word.lower() for word in words_of(name)}
    return bool(words & _LIMITS) or names_a_limit(words)


def all_others(
    names: Sequence[str],
    columns_found: PowerLayout,
    options: PowerOptions,
    label: str,
    kinds: Mapping[str, Cell],
) -> tuple[list[PowerColumn], list[str]]:
    """Take every column as a thing of its own, if the caller or the cells say the unit.

    The second are those that neither says the unit of, beside others whose cells do.
    """
    lowered = {name.lower() for name in names}
    if lowered & set(SHARES):
        msg = (
            f"{label}: holds powers as shares of a capacity ({', '.join(SHARES)}), not watts; "
            "multiply by the capacity in watts and save as power_w"
        )
        raise NoPowerError(msg)
    remaining = [n for n in names if n != columns_found.time and not NEVER.fullmatch(n.strip())]
    stated = [n for n in stated_columns(kinds) if n in remaining]
    # A unit that the caller gives is of powers; what says another quantity is none.
    others = [n for n in remaining if n not in stated and is_other_quantity(n)]
    remaining = [n for n in remaining if n not in others]
    values = [n for n in remaining if n.strip().lower() in VALUES]
    if values:
        _refuse_quantities(kinds, columns_found, label)
    if columns_found.identity:
        remaining = values or [n for n in stated if kinds[n] == "unit"]
    if not remaining or (columns_found.identity and len(remaining) != 1):
        msg = (
            f"{label}: no column of powers among {shown(names)}; name it power_w, power_kw or "
            "power [W]"
        )
        raise NoPowerError(msg)
    if options.unit is None and not stated:
        msg = (
            f"{label}: columns {shown(remaining)} name no unit; if they are powers, pass unit= "
            "('W', 'kW', 'MW' or 'mW') and scope= ('gpu', 'node_ac', 'rack', ...)"
        )
        # Losses and users are numbers over time, too; power beside them is loaded without them.
        raise NoPowerError(msg)
    scope = options.scope or "unknown"
    if columns_found.identity:
        scope = columns_found.scope if columns_found.scope != "unknown" else scope
        return [PowerColumn(remaining[0], scope=scope)], others
    wanted = remaining if options.unit else stated
    columns = [PowerColumn(n, wide_name(n.strip()), scope, is_entity=True) for n in wanted]
    return columns, [*(name for name in remaining if name not in wanted), *others]


def _refuse_quantities(kinds: Mapping[str, Cell], columns_found: PowerLayout, label: str) -> None:
    texts = [name for name, kind in kinds.items() if kind == "text"]
    more = [name for name in texts if name not in (columns_found.time, *columns_found.identity)]
    if more:
        msg = (
            f"{label}: columns {shown(more)} may say what each value is; keep the rows of power, "
            "leave those columns out, and save the values as power_w"
        )
        raise NoPowerError(msg)


# Tables of power whose columns the caller names.

# What the caller says, and the name that tells the same of a column.
_NAMES = {
    "time": "timestamp", "node": "node", "gpu": "gpu", "entity": "entity", "power_w": "power_w",
    "power_kw": "power_kw", "power": "power", "energy_j": "energy_j",
}  # fmt: skip
_POWERS = {"power_w", "power_kw", "power", "energy_j"}


def check_columns(options: PowerOptions) -> None:
    if (meaning := options.columns) is None:
        return
    if unknown := sorted(set(meaning) - set(_NAMES)):
        msg = f"columns= names {unknown}, which tables of power do not have; they have {[*_NAMES]}"
        raise ValueError(msg)
    if "time" not in meaning or not _POWERS & set(meaning):
        msg = f"columns= must name time and one of {sorted(_POWERS)}; it names {sorted(meaning)}"
        raise ValueError(msg)
    if "power" in meaning and options.unit is None:
        msg = "columns= names power; say in which unit with unit=, or name power_w"
        raise ValueError(msg)
    if len(set(meaning.values())) < len(meaning):
        msg = f"columns= names a column of the file twice: {sorted(meaning.values())}"
        raise ValueError(msg)


def named(
    layout: Callable[..., PowerLayout],
    names: Sequence[str],
    options: PowerOptions,
    label: str,
    *,
    cells: Mapping[str, Cell] | None,
) -> PowerLayout:
    """Build the layout from the columns that the caller names; others are not read."""
    meaning = options.columns or {}
    if missing := [reference for reference in meaning.values() if reference not in names]:
        msg = (
            f"{label}: no column {missing}; it has {shown(names)}. Say which is which with "
            "columns={...}"
        )
        raise LoadError(msg)
    usual = {reference: _NAMES[name] for name, reference in meaning.items()}
    own = {name: reference for reference, name in usual.items()}
    kinds = {usual[name]: kind for name, kind in (cells or {}).items() if name in usual}
    options = replace(options, columns=None)
    renamed = layout(list(own), options, label, cells=kinds, with_counters=True).renamed(own)
    remainder = tuple((name, "columns= does not name it") for name in names if name not in usual)
    return replace(renamed, left_out=(*renamed.left_out, *remainder))
