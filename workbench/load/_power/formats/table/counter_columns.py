"""Columns of a table that count energy, and whether what they hold does count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.errors import LoadError
from workbench.load._power.formats.table.columns import (
    FEED,
    NAMING,
    NEVER,
    PowerColumn,
    PowerLayout,
    shown,
    wide_name,
)
from workbench.load._power.formats.table.names import ascii_unit, is_damaged, scope_of, words_of
from workbench.load._power.part import PowerGiven

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
_FALLING = 0.01
# A reset leaves less than this share of what was counted.
_RESET = 0.5
_ROUNDING = 1e-5


def counters_of(
    names: Sequence[str], is_named: bool, found: PowerLayout, given: PowerGiven
) -> tuple[list[PowerColumn], list[str]]:
    """Give the counters of energy of a table of named things, or of nothing but counters.

    Their factor is missing where the unit may be two: ``mj`` of something that is no GPU. The
    second are sums of the others, which would count them twice.
    """
    others = [name for name in names if name not in (found.time, *found.identity)]
    others = [name for name in others if not NEVER.fullmatch(name.strip())]
    said = {name: told for name in others if (told := energy_name(name)) is not None}
    if not is_named and (found.identity or len(said) < len(others)):
        return [], []
    totals = [] if is_named or len(said) < 2 else [n for n, (words, _) in said.items() if not words]
    counters = []
    for name, (words, unit) in said.items():
        if name in totals:
            continue
        part = "" if is_named and len(said) == 1 else "_".join(words)
        scope = _scope(words, found, given)
        counters.append(
            PowerColumn(
                name,
                part if is_named else wide_name(part),
                scope,
                "counter",
                joules_in(unit, of_gpu=scope == "gpu"),
                is_mw=unit == "mj",
                is_entity=not is_named,
            )
        )
    return counters, totals


def _scope(words: Sequence[str], found: PowerLayout, given: PowerGiven) -> str:
    """Tell what is metered, by the words of a name, or by what the table names."""
    lowered = {word.lower() for word in words}
    if found.device is not None or given.scope:
        return "gpu" if found.device is not None else str(given.scope)
    if (scope := "cpu" if lowered & _PACKAGE else scope_of(lowered)) != "unknown":
        return scope
    feed = FEED.fullmatch("_".join(words))
    return feed[1].lower() if feed else found.scope


def with_clear_units(counters: list[PowerColumn], label: str) -> list[PowerColumn]:
    """Refuse a unit that may be two."""
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
    """Say whether a table of named things counts their energy."""
    lowered = {name.strip().lower() for name in names}
    words = {word for name in lowered for word in words_of(name)}
    if words & _OF_A_JOB or "epoch" in lowered or not lowered & NAMING:
        return False
    return any(energy_name(name) is not None for name in names)


def falls_too_often(codes: np.ndarray, time_ns: np.ndarray, energy_j: np.ndarray) -> bool:
    """Say whether numbers rise and fall, or never move, as energies of intervals do.

    A counter falls where it was reset: rarely, and to nearly nothing. One of a thing that is fed
    moves.
    """
    order = np.lexsort((time_ns, codes))
    some = order[np.isfinite(energy_j[order])]
    is_same = codes[some][1:] == codes[some][:-1]
    before, after = energy_j[some][:-1][is_same], energy_j[some][1:][is_same]
    if not len(before):
        return False
    is_fall = after < before
    # Sums of counters lose their last digits.
    is_odd = (after > _RESET * before) & (after < (1 - _ROUNDING) * before)
    things = len(np.unique(codes[some]))
    most = _FALLING * len(before)
    is_still = not (after != before).any()
    return int(is_fall.sum()) > max(things, most) or int(is_odd.sum()) > most or is_still


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
    place = next((at for at in range(len(tokens) - 1, -1, -1) if _is_unit(tokens[at])), None)
    if place is None:
        return None
    unit, others = tokens[place], tokens[:place] + tokens[place + 1 :]
    if place and tokens[place - 1].lower() in _PREFIXES:
        unit, others = f"{tokens[place - 1]}{unit}".lower(), tokens[: place - 1]
    words = [word for token in others for word in words_of(token)]
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
    known = _BY_CASE.get(unit) or _JOULES.get(low) or _HOURS.get(low)
    return known or (1e-3 if low == "mj" and of_gpu else None)
