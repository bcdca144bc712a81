"""Columns of a table that count energy, and whether what they hold does count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.errors import LoadError
from workbench.load._power_columns import NEVER, PowerColumn, PowerLayout, shown, wide_name
from workbench.load._power_names import words_of
from workbench.load._power_part import PowerGiven

_JOULES = {"j": 1.0, "joule": 1.0, "joules": 1.0, "kj": 1e3, "uj": 1e-6, "millijoules": 1e-3}
_JOULES |= {"millijoule": 1e-3, "microjoules": 1e-6, "kilojoules": 1e3, "megajoules": 1e6}
_HOURS = {"wh": 3.6e3, "kwh": 3.6e6}
_BY_CASE = {"mJ": 1e-3, "MJ": 1e6, "MWh": 3.6e9}
_PREFIXES = {"milli": 1e-3, "micro": 1e-6, "kilo": 1e3, "mega": 1e6}
_ENERGY = {"energy", "joule", "joules"}
# What makes an energy something else than the reading of a counter.
_NO_COUNTER = {
    *("per", "limit", "budget", "cost", "price", "saved", "saving", "savings", "rate", "status"),
    *("delta", "diff", "interval", "step", "token", "sample", "mean", "avg", "average", "min"),
    *("max", "std", "stddev", "median", "count", "efficiency", "share", "percent", "pct"),
}
# With one of these a table is about steps or settings of a job, and so are its energies.
_OF_A_JOB = {"step", "steps", "iteration", "iter", "epoch", "loss", "global_step", "samples"}
_OF_A_JOB |= {"limit_w", "power_limit", "power_limit_w", "batch_size", "window_name"}
_FILLERS = _ENERGY | {"total", "consumption", "consumed", "counter", "cumulative", "used", "usage"}
_GPU = re.compile(r"(?:gpu|accelerator)\d*")
_FALLING = 0.01


def counter_columns(
    names: Iterable[str], *, is_gpu: bool
) -> list[tuple[str, str, bool, float | None]]:
    """Give the columns that count energy: name, part, whether of a GPU, and joules in one.

    The last is None where the unit may be two: ``mj`` of something that is no GPU.
    """
    found = []
    for name in names:
        if (said := _said(name)) is not None:
            rest, unit = said
            of_gpu = is_gpu or any(_GPU.fullmatch(word.lower()) for word in rest)
            found.append((name, "_".join(rest), of_gpu, _factor(unit, of_gpu=of_gpu)))
    return found


def counters_of(
    names: Sequence[str], is_named: bool, found: PowerLayout, given: PowerGiven
) -> list[PowerColumn]:
    """Give the counters of energy of a table of named things, or of nothing but counters."""
    others = [name for name in names if name not in (found.time, *found.identity)]
    others = [name for name in others if not NEVER.fullmatch(name.strip())]
    is_gpu = found.device is not None or given.scope == "gpu"
    columns = counter_columns(others, is_gpu=is_gpu)
    if not is_named and (found.identity or len(columns) < len(others)):
        return []
    is_one = len(columns) == 1 and is_named
    counters = []
    for name, part, of_gpu, factor in columns:
        scope = "gpu" if of_gpu else given.scope or found.scope
        own = "" if is_one else part if is_named else wide_name(part)
        column = PowerColumn(name, own, scope, "counter", factor, is_entity=not is_named)
        counters.append(column)
    return counters


def clear(counters: list[PowerColumn], label: str) -> list[PowerColumn]:
    """Refuse a unit that may be two."""
    unclear = [column.name for column in counters if column.factor is None]
    if unclear:
        msg = (
            f"{label}: columns {shown(unclear)} may be millijoules or megajoules (or watt-hours); "
            "name them like energy_j, energy_mJ, energy_MJ or energy_kWh"
        )
        raise LoadError(msg)
    return counters


def beside(counters: list[PowerColumn], powers: Sequence[PowerColumn]) -> list[PowerColumn]:
    """Keep the counter beside a power if its unit is clear, and both are of what a row names."""
    is_one = len(counters) == len(powers) == 1 and not powers[0].part
    return counters if is_one and counters[0].factor is not None else []


def has_counter(names: Iterable[str], identity: Iterable[str]) -> bool:
    """Say whether a table of named things counts their energy."""
    lowered = {name.strip().lower() for name in names}
    if lowered & _OF_A_JOB or not lowered & set(identity):
        return False
    return any(_said(name) is not None for name in names)


def falls_too_often(codes: np.ndarray, time_ns: np.ndarray, energy_j: np.ndarray) -> bool:
    """Say whether numbers rise and fall, or never move, as energies of intervals do.

    A counter falls where it was reset: rarely. One of a thing that is fed moves.
    """
    order = np.lexsort((time_ns, codes))
    some = order[np.isfinite(energy_j[order])]
    is_same = codes[some][1:] == codes[some][:-1]
    gained = np.diff(energy_j[some])[is_same]
    if not len(gained):
        return False
    falls = int((gained < 0).sum())
    things = len(np.unique(codes[some]))
    return falls > max(things, _FALLING * len(gained)) or not (gained != 0).any()


def _said(name: str) -> tuple[list[str], str] | None:
    """Return the words of a counter's name besides energy and unit, and the unit."""
    words = words_of(name.strip().strip("])").replace("[", "_").replace("(", "_"))
    lowered = [word.lower() for word in words]
    if set(lowered) & _NO_COUNTER:
        return None
    for place in range(len(words) - 1, -1, -1):
        unit = words[place]
        if _is_unit(unit):
            if place and lowered[place - 1] in _PREFIXES:
                unit, words = f"{lowered[place - 1]}{lowered[place]}", words[: place - 1]
                return [w for w in words if w.lower() not in _FILLERS], unit
            rest = [w for at, w in enumerate(words) if at != place]
            if not set(lowered) & _ENERGY and unit.lower() not in _HOURS and unit != "MWh":
                return None
            return [w for w in rest if w.lower() not in _FILLERS], unit
    return None


def _is_unit(word: str) -> bool:
    low = word.lower()
    return low in _JOULES or low in _HOURS or low in ("mj", "mwh")


def _factor(unit: str, *, of_gpu: bool) -> float | None:
    """Return the joules in one of a unit; drivers count those of GPUs in mJ."""
    low = unit.lower()
    known = _BY_CASE.get(unit) or _JOULES.get(low) or _HOURS.get(low)
    return known or (1e-3 if low == "mj" and of_gpu else None)
