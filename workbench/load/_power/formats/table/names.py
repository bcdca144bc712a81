"""What the name of a column says of it: a power, its unit, and what is metered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")
_IN_BRACKETS = re.compile(
    r"[\[(]\s*(milliwatts?|watts?|kilowatts?|megawatts?|[umk]?w)\s*[\])]\s*$", re.IGNORECASE
)
_WATT_HOURS = re.compile(
    r"(kilo|mega|milli|k)?[\s_.-]*watts?[\s_.*\u00b7-]*h(?:(?:ou)?rs?)?(?![a-z])", re.IGNORECASE
)
_W_H = re.compile(r"(?<![A-Za-z])([kmM]?)[wW][\s_.*\u00b7-]+[hH](?![A-Za-z])")
_PREFIXES = {"kilo": "k", "mega": "M", "milli": "m", "k": "k", "": ""}
_POWER = {"power", "pwr", "watt", "watts", "wattage"}
# Words that make a power something else: a limit, a share, a state, an energy.
_NO_POWER = {
    *("limit", "limits", "cap", "capped", "capping", "budget", "nameplate", "tdp", "rated"),
    *("util", "utilization", "utilisation", "percent", "pct", "share", "ratio", "factor"),
    *("state", "states", "mode", "profile", "management", "violation", "throttle", "reason"),
    *("reasons", "requested", "default", "enforced", "target", "setpoint", "energy", "hours"),
    *("hour", "wh", "kwh", "mwh", "joule", "joules", "capacity", "headroom", "allocated"),
    *("supply", "cycle", "on", "off", "status", "constraint", "smoothing", "brake", "saving"),
}
_MEANS = {"mean", "average", "avg"}
# Other statistics of a window, told apart from its mean.
# Limits by their short names: PL1 and PL2 of Intel, PPT of AMD.
_SHORT_LIMIT = re.compile(r"pl\d|ppt\d?")
_STATISTICS = {
    "min",
    "max",
    "minimum",
    "maximum",
    "std",
    "stddev",
    "count",
    "size",
    "peak",
    "median",
}
_QUANTILE = re.compile(r"(?:q|p)\d{1,2}")
_INSTANT = {"instant", "instantaneous"}
_GPU, _CPU, _MEMORY = {"gpu", "accelerator"}, {"cpu", "socket"}, {"dram", "memory", "mem", "ddr"}

Statistic = Literal["", "mean", "other"]


@dataclass(frozen=True)
class PowerName:
    """What the name of a column of powers says.

    Attributes
    ----------
    stem
        The name without unit and statistic, in lower case.
    factor
        Watts in one unit; None if the name says none, or an ambiguous one.
    is_mw
        Whether the unit is ``mw`` in lower case: milliwatts or megawatts.
    method
        average or instant, where the name says it, else unknown.
    scope
        gpu, cpu or memory, where the name says it, else unknown.
    statistic
        mean of a window, or another statistic of it.
    """

    stem: tuple[str, ...]
    factor: float | None = None
    is_mw: bool = False
    method: str = "unknown"
    scope: str = "unknown"
    statistic: Statistic = ""


def power_name(name: str) -> PowerName | None:
    """Read the name of a column; None if it does not say that it holds powers.

    Examples
    --------
    >>> power_name("power_draw_W").factor, power_name("input_power.mean").statistic
    (1.0, 'mean')
    >>> power_name("power_limit_w"), power_name("temperature_gpu")
    (None, None)
    """
    words, factor, is_mw = _without_unit(name)
    has_unit = factor is not None or is_mw
    lowered = [word.lower() for word in words]
    if set(lowered) & _NO_POWER or names_a_limit(lowered):
        return None
    if not (has_unit or set(lowered) & _POWER):
        return None
    statistic, method = _statistic(lowered), "unknown"
    if set(lowered) & _INSTANT:
        method = "instant"
    elif statistic == "mean":
        method = "average"
    kept = [word for word in lowered if word not in _MEANS | _STATISTICS | _INSTANT]
    return PowerName(tuple(kept), factor, is_mw, method, scope_of(lowered), statistic)


def names_a_limit(words: Iterable[str]) -> bool:
    """Say whether one of some words in lower case is the short name of a limit."""
    return any(map(_SHORT_LIMIT.fullmatch, words))


def unit_factor(unit: str) -> float:
    """Return the watts in one of the units W, kW, MW and mW."""
    return {"W": 1.0, "kW": 1e3, "MW": 1e6, "mW": 1e-3}[unit]


def words_of(name: str) -> list[str]:
    """Split a name such as ``p0_gpu1_power`` or ``PowerWatts`` into its words."""
    return [word for word in _SEPARATORS.split(_CAMEL.sub("_", name)) if word]


def ascii_unit(name: str) -> str:
    """Write the micro of a unit as ``u`` and watt-hours as ``Wh``: ``power_µW`` as ``power_uW``.

    Examples
    --------
    >>> ascii_unit("Watt-Hour"), ascii_unit("kilowatt hours used"), ascii_unit("kW-h")
    ('Wh', 'kWh used', 'kWh')
    """
    name = _WATT_HOURS.sub(lambda found: f" {_PREFIXES[(found[1] or '').lower()]}Wh", name)
    name = _W_H.sub(r"\1Wh", name).strip()
    return name.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")


def is_damaged(name: str) -> bool:
    """Say whether a name holds what was not UTF-8, which may have been the micro of a unit."""
    return "\N{REPLACEMENT CHARACTER}" in name


def _without_unit(name: str) -> tuple[list[str], float | None, bool]:
    """Return the words of a name without its unit, and what the unit is."""
    if is_damaged(name):
        kept = [word for word in words_of(name) if _factor(word) == (None, False)]
        return [*kept, "power"], None, False
    name = ascii_unit(name)
    if bracketed := _IN_BRACKETS.search(name):
        factor, is_mw = _factor(bracketed[1])
        return words_of(name[: bracketed.start()]), factor, is_mw
    words = words_of(name)
    for place in range(len(words) - 1, -1, -1):
        if words[place].lower() in _MEANS | _STATISTICS | _INSTANT | {"total"} and len(words) > 1:
            continue
        prefix = {"milli": 1e-3, "kilo": 1e3, "mega": 1e6}.get(words[place - 1].lower())
        if place and prefix and words[place].lower() in ("watt", "watts"):
            return words[: place - 1] + words[place + 1 :], prefix, False
        factor, is_mw = _factor(words[place])
        if factor is not None or is_mw:
            return words[:place] + words[place + 1 :], factor, is_mw
        break
    return words, None, False


def _factor(word: str) -> tuple[float | None, bool]:
    """Return watts per unit, and whether it may be milli or mega."""
    if word in ("mW", "MW"):
        return unit_factor(word), False
    low = word.lower()
    if low == "mw":
        return None, True
    known = {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "kilowatt": 1e3, "kilowatts": 1e3}
    known |= {"uw": 1e-6, "microwatt": 1e-6, "microwatts": 1e-6}
    known |= {"megawatt": 1e6, "megawatts": 1e6, "milliwatt": 1e-3, "milliwatts": 1e-3}
    return known.get(low), False


def _statistic(words: list[str]) -> Statistic:
    if set(words) & _MEANS:
        return "mean"
    if set(words) & _STATISTICS or any(_QUANTILE.fullmatch(word) for word in words[-1:]):
        return "other"
    return ""


def scope_of(words: Iterable[str]) -> str:
    """Tell what is metered by words such as ``gpu`` and ``gpu3``."""
    bare = {re.sub(r"\d+$", "", word) for word in words}
    for scope, names in (("gpu", _GPU), ("cpu", _CPU), ("memory", _MEMORY)):
        if bare & names:
            return scope
    return "unknown"
