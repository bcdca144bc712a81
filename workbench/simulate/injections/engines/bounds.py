"""Which changes cannot change a decision, and which decisions are too close to tell.

Two kinds of bounds. *Reach*: a change of one unit (a column or channel) moves the margin by
no more than ``reach`` times its size; what cannot bridge the margin is not run at all.
*Rounding*: sums in another order differ by a few units in the last place of the magnitudes
summed; decisions that close are left to an exact run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.simulate.injections._judge import Golden
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.engines.amplitudes import AbsoluteRun, UnboundedError
from workbench.simulate.injections.engines.graph import Program
from workbench.simulate.injections.engines.interaction import DotShortcut

EPSILON = 2.0**-23
# Units in the last place of the magnitudes summed; what is seen is a small part of it.
ROUNDING = 4.0
_SHRUNK = 1 - 1e-3
# Sums of magnitudes below this cannot overflow in any order, with room for rounding.
LARGEST = 3e38


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the changes of one operation's units.

    Attributes
    ----------
    reach
        [units x inputs] or [units x 1]: how far a change of 1 moves the margin at most.
    peak
        As ``reach``: the largest number on the way that a change of 1 makes, all magnitudes
        summed up.
    size
        [inputs]: magnitudes summed on the way to the output in the golden run.
    room
        [inputs]: what a change may move the margin by for sure; at most 0 where the golden
        decision itself is a matter of rounding.
    factor
        2 where a margin is the difference of two outputs.
    """

    reach: Any
    peak: Any
    size: Any
    room: Any
    factor: float

    def is_close(self, margins: Any, rows: Any, change: Any, units: Any) -> Any:
        """Say which margins are at the level of rounding."""
        level = self.size[rows] + change * self.at(self.peak, units, rows)
        return ~(margins > self.factor * ROUNDING * EPSILON * level)

    def is_huge(self, change: Any, units: Any, rows: Any) -> Any:
        """Say which changes may overflow on the way, or may not."""
        return ~(change * self.at(self.peak, units, rows) + self.size[rows] < LARGEST)

    def closeness(
        self, golden: Golden, pairs: tuple[Any, Any], change: Any, huge: Any
    ) -> Callable[[Any, slice], Any]:
        """Give the test which outputs of pairs of unit and input are a matter of rounding."""
        units, rows = pairs

        def close(outputs: Any, span: slice) -> Any:
            margins = golden.margins(outputs, rows[span])
            near = self.is_close(margins, rows[span], change[span], units[span])
            return (near & torch().isfinite(margins)) | huge[span]

        return close

    @staticmethod
    def at(bound: Any, units: Any, rows: Any) -> Any:
        """Give a bound for pairs of unit and input."""
        return bound[units, 0] if bound.shape[1] == 1 else bound[units, rows]


def head_of(program: Program, golden: Golden) -> Any:
    """Give the linear operation that gives the classes; None if the output is not that."""
    node = program.output
    if golden.judge.criterion != "argmax" or node.op != "call_module":
        return None
    return node if type(program.modules[node.target]) is torch().nn.Linear else None


def bounds(
    program: Program,
    golden: Golden,
    start: Any,
    size_from: tuple[Any, Any],
    shortcut: DotShortcut | None,
) -> Bounds | None:
    """Give the bounds for changes of the units of ``start``, or None if there are none.

    Parameters
    ----------
    program, golden
        The model, and the measure of its outputs.
    start
        Operation whose units change.
    size_from
        Operation that is hit, and the magnitudes it sums.
    shortcut
        The way through dot products, if it is to be taken.
    """
    try:
        size = AbsoluteRun(program, is_change=False)(*size_from)
        if shortcut is None:
            reach, peak = _reach(program, golden, start)
            reach, peak = reach[:, None], peak[:, None]
        else:
            reach, peak = _reach_through(program, golden, start, shortcut)
    except UnboundedError:
        return None
    return _bounds(golden, reach, peak, size)


def vector_bounds(
    program: Program, golden: Golden, shortcut: DotShortcut, vector: int
) -> Bounds | None:
    """Give the bounds for changes of the components of a vector of the dot products."""
    node = shortcut.nodes[vector]
    try:
        size = AbsoluteRun(program, is_change=False)(node, program.golden[node].abs())
        reach, peak = _vector_reach(program, golden, shortcut, vector)
    except UnboundedError:
        return None
    return _bounds(golden, reach, peak, size)


def _bounds(golden: Golden, reach: Any, peak: Any, size: Any) -> Bounds:
    factor = 1.0 if golden.judge.criterion == "threshold" else 2.0
    size = size.reshape(len(size), -1).amax(1)
    margins = golden.margins(golden.outputs, torch().arange(len(golden)))
    room = margins * _SHRUNK - factor * ROUNDING * EPSILON * size
    return Bounds(reach, peak, size, room, factor)


def _reach(program: Program, golden: Golden, start: Any) -> tuple[Any, Any]:
    """Give how far changes of single units carry: to the margin, and at most on the way."""
    shape = program.golden[start].shape[1:]
    ones = torch().zeros(shape[0], *shape)
    ones[torch().arange(shape[0]), torch().arange(shape[0])] = 1
    plain = AbsoluteRun(program, is_change=True)
    reach = plain(start, ones).reshape(shape[0], -1).amax(1)
    peak = plain.peak
    if golden.judge.criterion != "argmax":
        return reach, peak
    head = head_of(program, golden)
    if start is head:
        return torch().ones(shape[0]), peak
    if head is None:
        return 2 * reach, peak
    return AbsoluteRun(program, is_change=True)(start, ones, head=head).flatten(), peak


def _reach_through(
    program: Program, golden: Golden, start: Any, shortcut: DotShortcut
) -> tuple[Any, Any]:
    """Give the same where changes pass the dot products in the first vector."""
    first = shortcut.nodes[0]
    units = program.golden[start].shape[1]
    run = AbsoluteRun(program, is_change=True)
    to_vector = run(start, torch().eye(units), until=first)
    reach, _ = _reach(program, golden, shortcut.entry)
    here = to_vector @ (shortcut.slopes(0).abs() @ reach).T
    behind = _peaks(program, shortcut, 0, to_vector)
    return here.contiguous(), torch().maximum(run.peak[:, None], behind)


def _vector_reach(
    program: Program, golden: Golden, shortcut: DotShortcut, vector: int
) -> tuple[Any, Any]:
    """Give for the components of a vector how far they carry, and the peak."""
    reach, _ = _reach(program, golden, shortcut.entry)
    slopes = shortcut.slopes(vector)
    components = torch().eye(slopes.shape[1])
    here = (slopes.abs() @ reach).T.contiguous()
    return here, _peaks(program, shortcut, vector, components).clamp_min(1.0)


def _peaks(program: Program, shortcut: DotShortcut, vector: int, ways: Any) -> Any:
    """Give the largest numbers behind the dot products, [ways x inputs].

    ``ways`` [ways x length of the vector] says how far changes of 1 move its components.
    """
    slopes = shortcut.slopes(vector, absolute=True)
    run = AbsoluteRun(program, is_change=True)
    peaks = []
    for way in ways:
        run(shortcut.entry, (way[:, None] * slopes).sum(1))
        peaks.append(run.peak)
    return torch().stack(peaks)
