"""Meters that read one feed twice: the AC and the DC side of a host, told apart by their files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

# Stamps in ns and powers in W of one entity, in order of time, none missing.
Track = tuple[NDArray[np.int64], NDArray[np.float64]]

_FILE = re.compile(r" \(.*\)$")
_SIDE = re.compile(r"(?<![a-z])(ac|dc)(?![a-z])", re.IGNORECASE)
# A supply loses about 5 %, more when idle; two hosts of one job are less alike than this.
_LEAST_CORRELATION = 0.98
_RATIO_SPREAD = 0.05
_MOST_RATIO = 1.5
# Fewer readings rise and fall together by chance.
_LEAST_READINGS = 5
# Steady series are alike whatever they measure.
_STILL_SHARE = 1e-3


def sides_of_one(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names of which one says AC and the other DC of the same thing; None without."""
    for group in _groups(names):
        by_side: dict[str, str] = {}
        for name in group:
            sides = {side.lower() for side in _SIDE.findall(name)}
            if len(sides) == 1:
                by_side.setdefault(sides.pop(), name)
        if len(by_side) == 2:
            return by_side["ac"], by_side["dc"]
    return None


def read_alike(tracks: Mapping[str, Track]) -> tuple[str, str] | None:
    """Return two entities that bear one name and rise and fall together; None if there are none.

    Names that differ in the file they are from, or in AC and DC, are one name.
    """
    for group in _groups(tracks):
        for position, name in enumerate(group):
            for earlier in group[:position]:
                if _is_one_feed(tracks[earlier], tracks[name]):
                    return earlier, name
    return None


def _groups(names: Iterable[str]) -> Iterator[list[str]]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_name[_SIDE.sub("", _FILE.sub("", name))].append(name)
    return (group for group in by_name.values() if len(group) > 1)


def _is_one_feed(track: Track, second: Track) -> bool:
    (time, power), (other_time, other_power) = track, second
    if len(time) < _LEAST_READINGS or len(other_time) < _LEAST_READINGS:
        return False
    # Only where both were read: beyond that np.interp would repeat the last reading.
    inside = (time >= other_time[0]) & (time <= other_time[-1]) & (power > 0)
    if inside.sum() < max(_LEAST_READINGS, min(len(time), len(other_time)) // 2):
        return False
    own = power[inside]
    beside = np.interp(time[inside] - time[0], other_time - time[0], other_power)
    if min(np.ptp(own) / own.mean(), np.ptp(beside)) <= _STILL_SHARE:
        return False
    ratio = beside / own
    usual = float(np.median(ratio))
    return bool(
        1 / _MOST_RATIO <= usual <= _MOST_RATIO
        and ratio.std() <= _RATIO_SPREAD * usual
        and np.corrcoef(own, beside)[0, 1] >= _LEAST_CORRELATION
    )
