"""Data of several kinds by the time that they cover: what shares none has no common axis."""

from __future__ import annotations

from collections.abc import Mapping

# How the quality table says it; `diagnose` and the first page of a report show that row.
SHARE_NO_TIME = "share no time"
SLACK_NS = 120_000_000_000  # recorders are started and stopped by hand


def time_groups(spans: Mapping[str, tuple[int, int]]) -> list[list[str]]:
    """Group names by spans of ns that overlap, directly or by others; the first name leads.

    Examples
    --------
    >>> time_groups({"job": (0, 10**12), "power": (10**11, 2 * 10**12), "traces": (10**15, 10**15)})
    [['job', 'power'], ['traces']]
    """
    groups: list[tuple[int, int, list[str]]] = []
    for name in sorted(spans, key=lambda name: spans[name]):
        first, last = spans[name]
        if groups and first <= groups[-1][1] + SLACK_NS:
            low, high, names = groups[-1]
            groups[-1] = low, max(high, last), [*names, name]
        else:
            groups.append((first, last, [name]))
    order = {name: place for place, name in enumerate(spans)}
    sorted_names = [sorted(names, key=order.__getitem__) for _, _, names in groups]
    return sorted(sorted_names, key=lambda names: order[names[0]])
