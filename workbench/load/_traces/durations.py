"""Durations of events: of begin and end as a pair, and of GPU work that cannot be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench._shared.kernel_kinds import BOUNDED, DOUBTFUL
from workbench.load._files.findings import Findings
from workbench.load._traces.kineto.blocks import HAS_DUR, MISSING, CodedTexts

if TYPE_CHECKING:
    from workbench.load._traces.kineto.files import Files

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# An overflow in CUPTI.
_OVERFLOW_NS = 7 * 24 * 3600 * 1_000_000_000
# Work that is launched early (PDL), and branches of a graph that share the number of a stream,
# overlap by microseconds to milliseconds; no queue works on two pieces for a second.
_SURE_NS, _LEAST_NS, _IN_ORDER_NS = 1_000_000_000, 10_000_000, 10_000
_NEVER = 1 << 62
# Operations of XLA that last as long as the operations inside them.
_HOLDS_OTHERS = re.compile(r"^%?(?:while|conditional|call)\b")
_WAITS = re.compile(r"^(?:cuda|cu|hip)(?:Device|Ctx|Stream)Synchronize")
_BLOCKING_COPY = re.compile(r"^(?:cuda|hip)Memcpy(?!.*Async)(?!.*Peer)")


def pair_begin_end(
    fields: dict[str, npt.NDArray[Any]], findings: Findings
) -> npt.NDArray[np.bool_]:
    """Turn begin/end pairs into complete rows, in place; return which rows stay."""
    ph = fields["ph"]
    keep: npt.NDArray[np.bool_] = ph != ord("E")
    open_rows: dict[tuple[int, int], list[int]] = {}
    unmatched_ends = other_name = 0
    positions = np.flatnonzero((ph == ord("B")) | (ph == ord("E")))
    # Events stand in no order of time, and a stack needs one.
    for row in positions[np.argsort(fields["ts"][positions], kind="stable")]:
        stack = open_rows.setdefault((int(fields["pid"][row]), int(fields["tid"][row])), [])
        if ph[row] == ord("B"):
            stack.append(int(row))
        elif stack:
            begin = stack.pop()
            name = fields["name"][row]
            other_name += bool(name >= 0 and name != fields["name"][begin])
            fields["dur"][begin] = fields["ts"][row] - fields["ts"][begin]
            fields["flags"][begin] |= HAS_DUR
        else:
            unmatched_ends += 1
    never_ended = [row for stack in open_rows.values() for row in stack]
    keep[never_ended] = False
    findings.add("dropped", "begin events (phase B) without an end", len(never_ended))
    findings.add("dropped", "end events (phase E) without a begin", unmatched_ends)
    finding = "end events (phase E) that close a begin event of another name"
    findings.add("suspicious", finding, other_name)
    return keep


def cut_overflows(dur: IntArray, is_work: Mask, category: npt.NDArray[np.int32]) -> Mask:
    """Return which durations are an overflow, but for those of GPU work, which are cut in place.

    That work ran is known, and when it ended at the latest. ``is_work`` is of each category, and of
    none.
    """
    overflown = dur > _OVERFLOW_NS
    if overflown.any():
        cut = overflown & is_work[category]
        dur[cut], overflown = _OVERFLOW_NS, overflown & ~cut
    return overflown


def bound_durations(
    files: Files, times: tuple[IntArray, IntArray], work: Mask, launch: IntArray,
    names: CodedTexts, queues: Sequence[npt.NDArray[Any] | None],
) -> IntArray:  # fmt: skip
    """Return durations in which no work of a stream lasts seconds into the next one.

    Such work ends at the latest when the next work of its stream begins, or when a call returns
    that waited for it. The last of ``queues``, which tell streams apart, is their number. Findings
    count what was bounded, and name the first.
    """
    start, dur = times
    # Few traces have work as long as the overlap that is looked for.
    counts = files.counts(work & (dur > _LEAST_NS))
    if not any(counts):
        return dur
    is_named = {
        pattern: np.array([pattern.match(text) is not None for text in names.texts])
        for pattern in (_HOLDS_OTHERS, _WAITS, _BLOCKING_COPY)
    }
    for (findings, rows), count in zip(files, counts, strict=True):
        if not count:
            continue
        at = np.flatnonzero(work[rows])
        keys = [key[rows][at].astype(np.int64) for key in queues if key is not None]
        codes = names.codes[rows]
        own = _OneFile(start[rows], dur[rows], at, keys)
        # A wait for a device or stream is for this work if there is no other one.
        waits = np.flatnonzero(is_named[_WAITS][codes]) if own.lane.max() == 0 else at[:0]
        call = np.where(launch[rows][at] >= 0, launch[rows][at] - rows.start, -1)
        is_copied = (call >= 0) & is_named[_BLOCKING_COPY][codes[call]]
        limit = np.minimum(own.following(), own.waited(call, waits, is_copied))
        limit[is_named[_HOLDS_OTHERS][codes[at]]] = _NEVER
        last, is_doubtful = own.latest(limit)
        for finding, what, chosen in (
            ("repaired", BOUNDED, last < own.end), ("suspicious", DOUBTFUL, is_doubtful),
        ):  # fmt: skip
            if chosen.any():
                first = at[chosen][0]
                where = f"the first is {names.texts[codes[first]][:80]!r}, "
                where += f"{dur[rows][first] / 1e9:,.3g} s"
                findings.add(finding, what, int(chosen.sum()), where)
        if (last < own.end).any():
            dur = dur.copy() if dur is times[1] else dur
            dur[rows][at] = last - own.start
    return dur


class _OneFile:
    """The GPU work of one file, and what bounds it."""

    def __init__(
        self, start: IntArray, dur: IntArray, at: IntArray, keys: Sequence[IntArray]
    ) -> None:
        self._all_start, self._all_end, self._at = start, start + dur, at
        self.start, self.end = start[at], self._all_end[at]
        self._is_queued = keys[-1] != MISSING
        self.lane = np.zeros(len(at), np.int64)
        for key in keys:
            # Renumbered after each key, so that the products stay small.
            lane, distinct = pd.factorize(key)
            self.lane = pd.factorize(self.lane * len(distinct) + lane)[0]

    def following(self, places: int = 1) -> IntArray:
        """Return when the work begins that is so many places further in the same stream."""
        # Rows are in order of start.
        order = np.argsort(self.lane, kind="stable")
        begun = np.full(len(order), _NEVER)
        same = self.lane[order][places:] == self.lane[order][:-places]
        same &= self._is_queued[order][places:]
        begun[order[:-places][same]] = self.start[order][places:][same]
        return begun

    def waited(self, call: IntArray, waits: IntArray, is_copied: Mask) -> IntArray:
        """Return when the first call returned that waited for each piece of work."""
        waited = np.full(len(self._at), _NEVER)
        has = np.flatnonzero(call >= 0)
        done = np.minimum.accumulate(np.append(self._all_end[waits], _NEVER)[::-1])[::-1]
        waited[has] = done[np.searchsorted(self._all_start[waits], self._all_end[call[has]])]
        waited[is_copied] = np.minimum(waited, self._all_end[call])[is_copied]
        # Where work began after the wait for it, the clocks of host and GPU differ.
        return np.where(waited > self.start, waited, _NEVER)

    def latest(self, limit: IntArray) -> tuple[IntArray, Mask]:
        """Return when each piece of work ends at the latest, and what is doubtful besides."""
        over = self.end - limit
        is_late, is_long = over > _LEAST_NS, over > _SURE_NS
        overflown = self.end - self.start >= _OVERFLOW_NS
        # What may itself be too long cannot tell when the trace ends.
        is_sure = np.ones(len(self._all_end), np.bool_)
        is_sure[self._at[is_late | overflown]] = False
        first = int(self._all_start[0])
        rest = int(self._all_end[is_sure].max(initial=first))
        beyond = self.end - rest
        # Where shorter work overlaps as well, several streams share a number.
        crossing = ~is_long & (self.end - self.following(places=2) > _IN_ORDER_NS)
        size = int(self.lane.max()) + 1
        crossings, longs = (
            np.bincount(self.lane[of], minlength=size) for of in (crossing, is_long)
        )
        is_wrong = is_late & (beyond > max(rest - first, _LEAST_NS))
        is_wrong |= is_long & (crossings <= longs)[self.lane]
        last = np.where(is_wrong, np.maximum(limit, self.start), self.end)
        last = np.where(overflown & ~is_wrong, np.maximum(rest, self.start), last)
        is_last = self.end >= self._all_end.max()
        alone = np.delete(self._all_end, self._at[is_last]).max(initial=first)
        is_doubtful = (over > 10 * _LEAST_NS) | (
            is_last & (self.end - alone > max(alone - first, _SURE_NS))
        )
        return last, is_doubtful & (last == self.end)
