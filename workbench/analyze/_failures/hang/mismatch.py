"""Collectives in which the members of a group did not call the same thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from workbench.analyze._failures.hang.roots import Suspect
from workbench.analyze._failures.hang.state import Op, Place, State

# Every member gives and takes as much as every other one.
_EQUAL_SIZES = {
    "all_reduce", "allreduce_coalesced", "broadcast", "reduce", "_all_gather_base",
    "all_gather_single", "_reduce_scatter_base", "reduce_scatter_single",
}  # fmt: skip


class _Call(NamedTuple):
    operations: tuple[str, ...]
    details: tuple[tuple[object, ...], ...]

    def words(self, place: int) -> str:
        name = self.operations[place] if place < len(self.operations) else "nothing"
        sent, received, *dtypes = self.details[place] if place < len(self.details) else (None, None)
        counts = [f"{count:,}" for count in (sent, received) if isinstance(count, int)]
        return " ".join([name, *(["of " + " to ".join(counts)] if counts else []), *_types(dtypes)])


def mismatches(state: State) -> Iterator[Suspect]:
    """Give the ranks that called something else than their peers, in the first such place."""
    first: dict[str, int] = {}
    for (group, seq), ranks in state.calls.items():
        calls = {rank: _call(ops) for rank, ops in ranks.items()}
        if len(set(calls.values())) > 1 and _is_open(ranks):
            first[group] = min(seq, first.get(group, seq))
    for group, seq in first.items():
        ranks = state.calls[group, seq]
        yield from _odd_ones((group, seq), {rank: _call(ops) for rank, ops in ranks.items()})


def _is_open(ranks: Mapping[int, list[Op]]) -> bool:
    return any(op.state != "completed" for ops in ranks.values() for op in ops)


def _call(ops: list[Op]) -> _Call:
    return _Call(
        tuple(op.operation for op in ops),
        tuple(
            (
                op.in_count if op.operation in _EQUAL_SIZES else None,
                op.out_count if op.operation in _EQUAL_SIZES else None,
                op.in_dtypes,
                op.out_dtypes,
            )
            for op in ops
        ),
    )


def _odd_ones(place: Place, calls: Mapping[int, _Call]) -> Iterator[Suspect]:
    group, seq = place
    (usual, count), *others = Counter(calls.values()).most_common()
    is_tie = bool(others) and 2 * count <= len(calls)
    for rank, call in calls.items():
        if call == usual and not is_tie:
            continue
        other = usual if call != usual else others[0][0]
        differ = call.operations != other.operations
        confidence = "low" if is_tie else "high" if differ else "medium"
        at = _first_difference(call, other)
        yield Suspect(
            rank,
            confidence,
            "mismatch",
            group=group,
            seq=seq,
            operation=call.operations[min(at, len(call.operations) - 1)],
            evidence=(
                f"as number {seq:,} of group {group} it called {call.words(at)}, "
                f"{sum(each == other for each in calls.values()):,} of {len(calls):,} members "
                f"{other.words(at)}"
            ),
        )


def _first_difference(one: _Call, other: _Call) -> int:
    for place in range(max(len(one.operations), len(other.operations))):
        if one.words(place) != other.words(place):
            return place
    return 0


def _types(dtypes: list[object]) -> list[str]:
    known = [str(each) for each in dict.fromkeys(dtypes) if each]
    return [f"({' to '.join(known)})"] if known else []
