"""Ranks that file names tell."""

from __future__ import annotations

import re

# Whole numbers only, and not the digits of a date or process id that follow.
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)|(?:^|[-_/.])r(\d{1,6})-")
_CHAKRA = re.compile(r"\.(\d{1,6})\.(?:et|json)(?:\.gz)?$")


def rank_in_name(label: str, *, is_chakra: bool = False) -> int | None:
    """Return the rank that the name of a file tells, None if it tells none or several.

    Parameters
    ----------
    label
        File, or ``archive!member``; only the last part of the path counts.
    is_chakra
        Whether Chakra's convention ``<name>.<rank>.et`` applies.

    Examples
    --------
    >>> rank_in_name("run/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")
    34
    >>> rank_in_name("jobs.tar.gz!dlrm/worker7_step_12.1694128201553.pt.trace.json")
    7
    >>> rank_in_name("llama.3.et", is_chakra=True)
    3
    >>> rank_in_name("ranking_v2.json") is None
    True
    """
    name = re.split(r"[/\\!]", label)[-1].lower()
    found = {int(a or b) for a, b in _RANK.findall(name)}
    if is_chakra:
        found |= {int(number) for number in _CHAKRA.findall(name)}
    return found.pop() if len(found) == 1 else None
