"""Which devices, ranks and hosts an incident has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np
import pandas as pd

# A rank that waited reports these as well as the one at fault.
_NO_CULPRIT = ("unknown", "network", "follow-on")


def members(rows: pd.DataFrame, incident: np.ndarray, lead: pd.DataFrame) -> dict[str, pd.Series]:
    """Give the columns that list the members of each incident.

    Parameters
    ----------
    rows, incident
        Rows of table FAILURES, and the number of the incident of each.
    lead
        The row that leads each incident.
    """
    hosts = pd.Series(rows["node"].to_numpy()).groupby(incident).nunique()
    # A network port or a PCI address is told by its own host; a GPU index also by those that wait.
    has_port = lead["device"].astype(object).map(lambda name: ":" in str(name))
    is_told = has_port | ~lead["category"].isin(_NO_CULPRIT)
    is_spread = pd.Series(hosts.to_numpy() > 1)
    nowhere = is_spread & ~is_told
    listed = rows["devices"].where(rows["devices"] != "", rows["device"].fillna(""))
    devices = pd.Series(_joined(listed, incident, len(lead)))
    own = lead["device"].fillna("").astype(str)
    ranked = rows["rank"].astype(object).map(str).where(rows["rank"].notna(), "")
    ranks = _joined(rows["ranks"].where(rows["ranks"] != "", ranked), incident, len(lead))
    spans = [tuple(_spans(_numbers(text))) if text else () for text in ranks]
    return {
        "node": lead["node"].astype(object).mask(nowhere, None),
        "device": lead["device"].astype(object).mask(nowhere, None),
        "devices": devices.mask(is_spread, own).mask(nowhere, ""),
        "ranks": pd.Series(
            [", ".join(_written(span) for span in each) for each in spans], dtype=object
        ),
        "rank_count": pd.Series(
            [sum(last - first + 1 for first, last in each) for each in spans], dtype="int64"
        ),
    }


def _joined(listed: pd.Series, incident: np.ndarray, count: int) -> list[str]:
    """List the distinct texts of each incident, in order."""
    pairs = pd.DataFrame({"incident": incident, "text": listed.to_numpy(dtype=object)})
    pairs = pairs[pairs["text"] != ""].drop_duplicates()
    texts: dict[int, list[str]] = {}
    for number, text in pairs.itertuples(index=False, name=None):
        texts.setdefault(number, []).append(text)
    return [_once(texts.get(number, ())) for number in range(count)]


def _once(texts: Iterable[str]) -> str:
    """Join lists of names, each name once."""
    names = {name for text in texts for name in text.split(", ")}
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))


def _numbers(text: str) -> set[int]:
    """Read numbers and ranges such as ``0-6, 8``."""
    numbers: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Give the first and last number of every run without a gap."""
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        of_run = [number for _, number in run]
        yield of_run[0], of_run[-1]


def _written(span: tuple[int, int]) -> str:
    first, last = span
    return str(first) if first == last else f"{first}-{last}"
