"""Cells of time: what a roll-up keeps of the readings of one entity, and how cells are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from workbench._shared.numbers import Moments, joined, of_values, together
from workbench.errors import LoadError
from workbench.load._power.rows import SECOND

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Entity and cell in one number, entity first; half of the cells lie before 1970.
_SHIFT = 40
_HALF = 1 << (_SHIFT - 1)
_MOST_ENTITIES = 1 << (63 - _SHIFT)
# Rows without readings that long gaps may ask for.
_MOST_BETWEEN = 50_000_000
# Odd constants of splitmix64.
_MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


@dataclass(frozen=True)
class Cells:
    """Readings of some entities, reduced per entity and cell, in order of both.

    ``energy_j`` and ``covered_ns`` count the time between readings inside the cell, not that from
    cell to cell. ``digest`` is the same for the same readings in any order. A cell is contested if
    its readings came in pieces that overlap in time: only the readings themselves tell which of
    them are there twice. ``owner`` is the number of the file.
    """

    moments: Moments
    first_ns: Ints
    first_w: Floats
    last_ns: Ints
    last_w: Floats
    energy_j: Floats
    covered_ns: Ints
    digest: NDArray[np.uint64]
    is_contested: NDArray[np.bool_]
    owner: Ints

    def __len__(self) -> int:
        return len(self.first_ns)

    def take(self, at: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Cells:
        own = {f.name: getattr(self, f.name)[at] for f in fields(self)[1:]}
        moments = Moments(*(getattr(self.moments, f.name)[at] for f in fields(Moments)))
        return Cells(moments, **own)


def keys_of(codes: NDArray[np.integer], cells: Ints) -> Ints:
    """Return entity and cell in one number."""
    if codes.max(initial=0) >= _MOST_ENTITIES:
        msg = f"{_MOST_ENTITIES:,} entities or more; is the column of their names the right one?"
        raise LoadError(msg)
    return (codes.astype(np.int64) << _SHIFT) + cells + _HALF


def codes_and_cells(keys: Ints) -> tuple[Ints, Ints]:
    return keys >> _SHIFT, (keys & ((1 << _SHIFT) - 1)) - _HALF


def cells_of(keys: Ints, time_ns: Ints, watts: Floats, *, gap_ns: int, owner: int) -> Cells:
    """Reduce readings that are in order of entity and time, each with a power and a stamp once."""
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]][: len(keys)])
    if not len(starts):
        nothing = np.zeros(0, np.int64)
        none = nothing.astype(np.float64)
        return Cells(
            of_values(nothing, none), nothing, none, nothing, none, none, nothing,
            nothing.astype(np.uint64), nothing.astype(bool), nothing,
        )  # fmt: skip
    ends = np.append(starts[1:], len(keys)) - 1
    step, level = _steps(time_ns, watts, gap_ns)
    # The time before the first reading of a cell is not inside it.
    step[starts] = 0
    return Cells(
        of_values(keys, watts),
        time_ns[starts], watts[starts], time_ns[ends], watts[ends],
        np.add.reduceat(level * step, starts) / SECOND,
        np.add.reduceat(step, starts),
        np.add.reduceat(_mixed(time_ns, watts), starts),
        np.zeros(len(starts), dtype=bool),
        np.full(len(starts), owner, dtype=np.int64),
    )  # fmt: skip


def _steps(time_ns: Ints, watts: Floats, gap_ns: int) -> tuple[Ints, Floats]:
    """Return the time since the reading before, 0 if too long, and the mean of both powers."""
    step = np.diff(time_ns, prepend=time_ns[:1])
    step[step > gap_ns] = 0
    level = watts.copy()
    level[1:] = (watts[1:] + watts[:-1]) / 2
    return step, level


def _mixed(time_ns: Ints, watts: Floats) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = time_ns.view(np.uint64) * _MIX[0]
    mixed ^= watts.view(np.uint64) * _MIX[1]
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIX[2]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def stacked(pieces: Sequence[Cells]) -> Cells:
    """Put cells of several pieces below each other."""
    own = {
        f.name: np.concatenate([getattr(piece, f.name) for piece in pieces])
        for f in fields(Cells)[1:]
    }
    return Cells(joined([piece.moments for piece in pieces]), **own)


def merged(pieces: Cells, gap_ns: int) -> tuple[Cells, Cells]:
    """Make one cell of all pieces of a cell; also return the copies that were left out.

    Pieces that follow each other are joined, with the time between if it is not a gap; of equal
    ones the first counts; where they overlap otherwise the cell is contested.
    """
    key = pieces.moments.key
    if (key[1:] > key[:-1]).all():
        return pieces, pieces.take(np.zeros(0, np.int64))
    order = np.lexsort((pieces.owner, pieces.last_ns, pieces.first_ns, key))
    cells = pieces.take(order)
    is_copy = _repeats(cells)
    copies = cells.take(is_copy)
    if len(copies):
        cells = cells.take(~is_copy)
    key = cells.moments.key
    is_first = np.r_[True, key[1:] != key[:-1]][: len(key)]
    if is_first.all():
        return cells, copies
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(key)) - 1
    between = np.zeros(len(key), np.int64)
    between[1:] = cells.first_ns[1:] - cells.last_ns[:-1]
    between[starts] = 0
    is_contested = cells.is_contested | (~is_first & (between <= 0))
    between[between > gap_ns] = 0
    level = (cells.first_w + np.roll(cells.last_w, 1)) / 2
    return Cells(
        together(cells.moments),
        cells.first_ns[starts], cells.first_w[starts],
        np.maximum.reduceat(cells.last_ns, starts), cells.last_w[ends],
        np.add.reduceat(cells.energy_j + level * between / SECOND, starts),
        np.add.reduceat(cells.covered_ns + between, starts),
        np.add.reduceat(cells.digest, starts),
        np.logical_or.reduceat(is_contested, starts),
        cells.owner[starts],
    ), copies  # fmt: skip


def _repeats(cells: Cells) -> NDArray[np.bool_]:
    """Return which cells hold the readings of the one before."""
    result = np.zeros(len(cells), dtype=bool)
    moments = cells.moments
    same = (np.diff(moments.key) == 0) & (np.diff(moments.count) == 0)
    same &= (np.diff(cells.first_ns) == 0) & (np.diff(cells.last_ns) == 0)
    same &= cells.digest[1:] == cells.digest[:-1]
    result[1:] = same & ~cells.is_contested[1:] & ~cells.is_contested[:-1]
    return result


def with_time_between(cells: Cells, *, period_ns: int, gap_ns: int) -> Cells:
    """Add the time from the last reading of a cell to the first of the next one to both.

    Power is a straight line between them. Cells that lie wholly in between get a row of their own,
    without readings.
    """
    code, cell = codes_and_cells(cells.moments.key)
    step = cells.first_ns[1:] - cells.last_ns[:-1]
    before = np.flatnonzero((code[1:] == code[:-1]) & (step > 0) & (step <= gap_ns))
    after = before + 1
    count = cell[after] - cell[before] + 1
    if (between := int(count.sum()) - 2 * len(count)) > _MOST_BETWEEN:
        msg = (
            f"{between:,} cells lie between readings no further apart than longest_gap_s; pass a "
            "longer period_s or a shorter longest_gap_s"
        )
        raise LoadError(msg)
    segment = np.repeat(np.arange(len(before)), count)
    offset = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    of_piece = cell[before][segment] + offset
    start, end = cells.last_ns[before][segment], cells.first_ns[after][segment]
    low, high = cells.last_w[before][segment], cells.first_w[after][segment]
    begins = np.maximum(start, of_piece * period_ns)
    ends = np.minimum(end, (of_piece + 1) * period_ns)
    covered = ends - begins
    middle = ((begins - start) + (ends - start)) / 2 / (end - start)
    key = keys_of(code[before][segment], of_piece)
    energy = (low + (high - low) * middle) * covered / SECOND
    return _added(cells, key, energy, covered)


def _added(cells: Cells, key: Ints, energy_j: Floats, covered_ns: Ints) -> Cells:
    own = cells.moments.key
    every = np.union1d(own, key[covered_ns > 0])
    at, of_piece = np.searchsorted(every, own), np.searchsorted(every, key)
    is_kept = covered_ns > 0
    position = np.full(len(every), -1, np.int64)
    position[at] = np.arange(len(own))
    is_new = position < 0
    # Rows without readings are copies of any row, with nothing in them.
    filled = cells.take(np.where(is_new, 0, position))
    moments = filled.moments
    values = {name: np.where(is_new, np.nan, getattr(moments, name)) for name in _POWERS}
    energy, covered = (np.where(is_new, 0, own) for own in (filled.energy_j, filled.covered_ns))
    np.add.at(energy, of_piece[is_kept], energy_j[is_kept])
    np.add.at(covered, of_piece[is_kept], covered_ns[is_kept])
    count = np.where(is_new, 0, moments.count)
    squares = np.where(is_new, 0, moments.squares)
    moments = replace(moments, key=every, count=count, squares=squares, **values)
    return replace(filled, moments=moments, energy_j=energy, covered_ns=covered)


_POWERS = ("mean", "low", "high")
