"""Entities of several files that are the same, and those that only share a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
import pandas as pd

from workbench.load._files.findings import Finding, Row
from workbench.load._power.part import PowerPart
from workbench.load._power.rows import SECOND, Rows, natural
from workbench.tables import POWER_ENTITIES

_CONTINUED = "entities that another file continues (a log cut in pieces); joined"
_GUESSED = (
    "entities of an unknown host that continue one of several files; joined with the first, which "
    "sums do not mind; pass node= to tell the hosts"
)
_FLAT = (
    "entities of an unknown host that read the same single number at the same times as another "
    "file; a copy, or another idle host? Taken once; pass node= if they are two"
)
_TOLD_APART = "entities whose name another file gives to another entity; the file was added"
_UNNAMED = (
    "entities of an unknown host that another file may continue, after a long pause or as a "
    "counter; kept separate, pass node= to join them"
)
# Files of one thing are cut at a moment; a longer pause may be another host.
_PAUSE_NS = 600 * SECOND
# Pieces of one log overlap in equal readings; two hosts seldom read the same.
_EQUAL_SHARE = 0.95
# From here on it pays to look for equal readings in all pieces at once, up to this many readings.
_MANY_PIECES = 16
_MOST_READINGS = 20_000_000
_NONE = np.empty(0)


@dataclass
class _Piece:
    """The readings of one entity in one file."""

    part: int
    known: Row
    time_ns: np.ndarray
    numbers: np.ndarray
    # Pieces of different families have no reading in common; None if nobody looked.
    family: int | None = field(default=None, init=False)

    @cached_property
    def extent(self) -> tuple[int, int, int] | None:
        """First and last time and the longest pause, in ns; None of no readings."""
        if not len(self.time_ns):
            return None
        pause = int(np.diff(self.time_ns).max(initial=0))
        return int(self.time_ns[0]), int(self.time_ns[-1]), pause

    @cached_property
    def is_own(self) -> bool:
        return bool(self.known.get("clock", "epoch") == "own")

    @cached_property
    def has_power(self) -> bool:
        """Return whether the file holds power of it, not only what goes with it."""
        return self.known.get("method") is not None

    @cached_property
    def is_power(self) -> bool:
        return self.known.get("method") not in (None, "counter")

    @cached_property
    def is_named(self) -> bool:
        return is_named(self.known)


def is_named(known: Row) -> bool:
    """Return whether the name of an entity is of it alone, in any file."""
    device = str(known.get("device") or "")
    is_gpu = known.get("scope", "") in ("gpu", "module", "cpu", "memory")
    is_vague = is_gpu or bool(known.get("is_unnamed"))
    return bool(known.get("node")) or device.startswith("GPU-") or not is_vague


def final_names(
    contents: Sequence[PowerPart], tracks: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]]
) -> tuple[list[dict[str, str]], list[Finding]]:
    """Return how the entities of each file are called in the load, and why."""
    names = [{name: name for name in content.entities} for content in contents]
    pieces_of = _pieces(contents, tracks)
    labels = _short([content.findings.source for content in contents])
    findings: list[Finding] = []
    for name, pieces in pieces_of.items():
        groups = _groups(pieces)
        kind, text = _why_apart(groups)
        for group in groups:
            new = f"{name} ({labels[group[0].part]})" if len(groups) > 1 else name
            new = new if new == name else _free(new, set(pieces_of))
            for position, piece in enumerate(group):
                names[piece.part][name] = new
                source = contents[piece.part].findings.source
                if position and _is_guessed(piece, group[:position], groups):
                    findings.append((source, "suspicious", _GUESSED, 1, new))
                elif position and _is_flat(piece, group[:position]):
                    findings.append((source, "suspicious", _FLAT, 1, new))
                elif position:
                    findings.append((source, "noted", _CONTINUED, 1, new))
                if len(groups) > 1:
                    findings.append((source, kind, text, 1, new))
    return names, counted(findings)


def _pieces(
    contents: Sequence[PowerPart], tracks: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]]
) -> dict[str, list[_Piece]]:
    result: dict[str, list[_Piece]] = {}
    for number, (content, track) in enumerate(zip(contents, tracks, strict=True)):
        for name, facts in content.entities.items():
            times, values = track.get(name, (_NONE, _NONE))
            result.setdefault(name, []).append(_Piece(number, facts, times, values))
    return result


def _why_apart(groups: Sequence[Sequence[_Piece]]) -> tuple[str, str]:
    firsts = [group[0] for group in groups]
    if any(_is_doubtful(left, right) for left, right in combinations(firsts, 2)):
        return "suspicious", _UNNAMED
    return "noted", _TOLD_APART


def _groups(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    _find_families(pieces)
    groups: list[list[_Piece]] = []
    for piece in pieces:
        # All of a group must fit: fitting is not transitive.
        home = next((g for g in groups if all(_may_be_one(piece, second) for second in g)), None)
        if home is None:
            groups.append([piece])
        else:
            home.append(piece)
    return groups


def _find_families(pieces: Sequence[_Piece]) -> None:
    """Enumerate groups of pieces that share readings, directly or through others."""
    sizes = [len(piece.time_ns) for piece in pieces]
    if len(pieces) < _MANY_PIECES or sum(sizes) > _MOST_READINGS:
        return
    times = np.concatenate([piece.time_ns for piece in pieces])
    # NaN differs from itself, so missing readings become -1, which is not power.
    numbers = np.nan_to_num(np.concatenate([piece.numbers for piece in pieces]), nan=-1)
    owner = np.repeat(np.arange(len(pieces)), sizes)
    order = np.lexsort((numbers, times))
    is_same = (np.diff(times[order]) == 0) & (np.diff(numbers[order]) == 0)
    left, right = owner[order][:-1][is_same], owner[order][1:][is_same]
    shape = (len(pieces), len(pieces))
    # Imported here: telling kinds of files apart needs no joins, and should take no second.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    shared = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=shape)
    _, families = connected_components(shared, directed=False)
    for piece, family in zip(pieces, families.tolist(), strict=True):
        piece.family = family


def _may_be_one(left: _Piece, right: _Piece) -> bool:
    """Return whether two pieces are of one thing: other times, or equal readings."""
    if _share_nothing(left, right) or left.is_own or right.is_own or not _are_alike(left, right):
        return False
    # A file of power and one of states have no readings to compare.
    if left.has_power != right.has_power:
        return left.is_named
    if left.extent is None or right.extent is None:
        return True
    start, end = max(left.extent[0], right.extent[0]), min(left.extent[1], right.extent[1])
    if start > end:
        # Between counters of two hosts there would be an energy that nobody drew.
        is_power = left.is_power and right.is_power
        return left.is_named or (is_power and start - end < _PAUSE_NS)
    inside = [_within(piece, start, end) for piece in (left, right)]
    (times, values), (other_times, other_values) = inside
    _, at_left, at_right = np.intersect1d(
        times, other_times, assume_unique=True, return_indices=True
    )
    own, other = (np.nan_to_num(v, nan=-1) for v in (values[at_left], other_values[at_right]))
    is_equal = own == other
    return bool(is_equal.sum() >= _EQUAL_SHARE * min(len(times), len(other_times)))


def _share_nothing(left: _Piece, right: _Piece) -> bool:
    """Return whether two pieces with power both have readings where they overlap, none equal.

    That settles it for the many files of many hosts without a look at their readings.
    """
    if left.family is None or left.family == right.family:
        return False
    if left.extent is None or right.extent is None or left.has_power != right.has_power:
        return False
    overlap = min(left.extent[1], right.extent[1]) - max(left.extent[0], right.extent[0])
    return overlap > max(left.extent[2], right.extent[2])


def _are_alike(left: _Piece, right: _Piece) -> bool:
    for key in ("scope", "method", "model"):
        pair = (left.known.get(key), right.known.get(key))
        if pair[0] != pair[1] and (key == "scope" or all(pair)):
            return False
    return True


def _within(piece: _Piece, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.searchsorted(piece.time_ns, [start, end + 1])
    return piece.time_ns[low:high], piece.numbers[low:high]


def _is_guessed(
    piece: _Piece, before: Sequence[_Piece], groups: Sequence[Sequence[_Piece]]
) -> bool:
    """Return whether a piece overlaps none it was joined to, and others were as near."""
    if piece.is_named or piece.extent is None or len(groups) < 2:
        return False
    ends = [second.extent for second in before if second.extent is not None]
    if any(end[0] <= piece.extent[1] and piece.extent[0] <= end[1] for end in ends):
        return False
    firsts = (group[0] for group in groups if group[0] is not before[0])
    return any(not first.is_own and _are_alike(piece, first) for first in firsts)


def _is_flat(piece: _Piece, before: Sequence[_Piece]) -> bool:
    """Return whether a piece was joined for equal readings that are all the same number."""
    if piece.is_named or piece.extent is None:
        return False
    spans = [second.extent for second in before if second.extent is not None]
    inside = [s for s in spans if s[0] <= piece.extent[1] and piece.extent[0] <= s[1]]
    if not inside:
        return False
    start, end = max(s[0] for s in inside), min(s[1] for s in inside)
    _, values = _within(piece, max(start, piece.extent[0]), min(end, piece.extent[1]))
    read = values[~np.isnan(values)]
    return len(read) > 0 and bool((read == read[0]).all())


def _is_doubtful(left: _Piece, right: _Piece) -> bool:
    """Return whether two pieces would be one thing if the pause between them were short."""
    if left.extent is None or right.extent is None:
        return False
    start, end = max(left.extent[0], right.extent[0]), min(left.extent[1], right.extent[1])
    pause = _PAUSE_NS if left.is_power and right.is_power else 0
    if start - end <= 0 or start - end < pause or (left.is_named and right.is_named):
        return False
    return not left.is_own and not right.is_own and _are_alike(left, right)


def counted(findings: Sequence[Finding]) -> list[Finding]:
    """Add up findings of one file that say the same; the first place that is known stays."""
    result: dict[tuple[str, str, str], tuple[int, str | None]] = {}
    for source, kind, text, count, where in findings:
        facts, first = result.get((source, kind, text), (0, where))
        result[source, kind, text] = (facts + count, where if first is None else first)
    return [(*key, count, where) for key, (count, where) in result.items()]


def _short(labels: Sequence[str]) -> list[str]:
    """Shorten names of files to their ends, as long as needed to tell them apart."""
    split = [label.replace("\\", "/").replace("!", "/").split("/") for label in labels]
    longest = max((len(contents) for contents in split), default=1)
    # As few folders as tell the files apart.
    for count in range(1, longest + 1):
        ends = ["/".join(contents[-count:]) for contents in split]
        if len(set(ends)) == len(ends):
            return ends
    return list(labels)


def _free(name: str, chosen: set[str]) -> str:
    number, free = 2, name
    while free in chosen:
        number, free = number + 1, f"{name} {number}"
    return free


# The table of what is metered: what the formats know, and what the readings tell.

_USUAL = {"clock": "epoch", "assumed": "", "scope": "unknown", "method": "unknown"}
_KNOWN = ("scope", "method", "node", "device", "model", "clock", "assumed", "limit_w")


def entity_table(
    contents: Sequence[PowerPart],
    names: Sequence[Mapping[str, str]],
    readings: Rows,
    methods: Mapping[str, str],
) -> pd.DataFrame:
    is_known: dict[str, Row] = {}
    for content, renamed in zip(contents, names, strict=True):
        for name, facts in content.entities.items():
            row = is_known.setdefault(renamed[name], {"source": content.findings.source})
            row.update({key: facts[key] for key in _KNOWN if row.get(key) is None and key in facts})
    for name, method in methods.items():
        is_known[name]["method"] = method
    labels = {name: _told(readings, span) for name, span in readings.slices()}
    empty = {"reading_count": 0, "missing_count": 0}
    rows = [
        {"entity": name} | _USUAL | {k: v for k, v in is_known[name].items() if v is not None}
        | labels.get(name, empty)
        for name in sorted(is_known, key=natural)
    ]  # fmt: skip
    columns = {name: [row.get(name) for row in rows] for name in POWER_ENTITIES.columns}
    frame = POWER_ENTITIES.cast(pd.DataFrame(columns, dtype=object))
    return POWER_ENTITIES.check(frame)


def _told(readings: Rows, span: slice) -> Row:
    times = readings.time_ns[span]
    missing = int(np.isnan(readings.numbers[span]).sum())
    period = float(np.median(np.diff(times))) / SECOND if len(times) > 1 else None
    return {
        "period_s": period, "reading_count": len(times) - missing, "missing_count": missing,
        "first_ns": int(times[0]), "last_ns": int(times[-1]),
    }  # fmt: skip
