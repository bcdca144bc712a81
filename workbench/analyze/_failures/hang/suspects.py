"""The root cause of a hang: the suspect ranks, how sure that is, and why."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from workbench.analyze._failures.hang.roots import Suspect, mismatches, roots
from workbench.analyze._failures.hang.waits import State, Wait, waits
from workbench.tables import FLIGHT_POSITIONS, FLIGHT_SUSPECTS, FlightRecording

_ORDER = ("high", "medium", "low", "none")


def flight_suspects(recording: FlightRecording) -> pd.DataFrame:
    """Name the ranks that caused a hang, with reason and confidence, or say it cannot.

    Of the ranks that wait for each other (:func:`workbench.analyze.flight_waits`), those
    that are waited for and wait for nobody are its roots. What keeps a root is told by its
    own dump: nothing pending, a collective its peers have completed, or one that everybody
    entered and nobody completed, where the dumps cannot tell whose fault it is.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FLIGHT_SUSPECTS`, one row per suspect, most certain
        first. ``verdict`` is *found* if any is of high or medium confidence (those of low
        confidence are then dropped), *cannot tell*, or *nothing hangs*. Where no rank
        stands out there is one row without a rank, whose ``evidence`` says why.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.

    Notes
    -----
    ============== ========== ==========================================================
    reason         confidence rule
    ============== ========== ==========================================================
    never arrived  high       nothing pending; by sequence number it has not called a
                              collective that all other members of the group have called
    never arrived  medium     the same, but only half of the others or more have called
                              it, or its number is not known, or only a send or receive
                              waits for it
    never arrived  low        fewer than half of the others have called it
    mismatch       high       called another operation than more than half of the members
    mismatch       medium     the same operation with other sizes or element types
    mismatch       low        as many have called the one as the other
    stalled        medium     has not completed what a member it synchronises with has
    not started    medium     its GPU has not started what its peers have started
    stopped early  medium     waits, but has called less than a peer held up by the same
                              operations, so what it waits for did not stop its host
    deadlock       medium     ranks wait for each other in a circle of collectives
    deadlock       low        the same, by sends and receives
    no dump        medium     in some collective it is all that is missing, and more than
                              half of the members left dumps
    no dump        low        otherwise
    all entered    low        every member has entered its oldest operation, none is
                              through: one of them, or the network between them
    ============== ========== ==========================================================

    A stalled rank is a root whatever else it waits for: a collective that synchronises
    cannot end anywhere before every member has sent its share. The recorder cannot see a
    completion any more once the GPU has failed, so a failed GPU looks so; a broken link
    and dumps taken at very different times do too, hence medium.

    Numbers of pending operations are stated as evidence, and convict nobody: a rank whose
    host runs ahead has many, one whose host is blocked has few.

    References
    ----------
    PyTorch, ``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp``, ``update_state``
    (errors of a failed GPU leave the state as it was). NVIDIA/nvidia-resiliency-ext,
    ``tests/attribution/unit/fr_traces`` (injected faults).
    """
    state = State(recording)
    return suspects_table(state, *suspects(state))


def suspects(state: State) -> tuple[list[Suspect], str]:
    """Return the suspects, most certain first, and the verdict."""
    found_waits = waits(state)
    found = [*mismatches(state), *roots(state, found_waits)]
    best: dict[int | None, Suspect] = {}
    for each in found:
        known = best.get(each.rank)
        if known is None or _ORDER.index(each.confidence) < _ORDER.index(known.confidence):
            best[each.rank] = each
    chosen = list(best.values())
    certain = [each for each in chosen if each.confidence in {"high", "medium"}]
    if certain:
        chosen, verdict = certain, "found"
    else:
        chosen, verdict = _uncertain(state, chosen)
    chosen = _counted(chosen, found_waits)
    key = {name: place for place, name in enumerate(_ORDER)}
    chosen.sort(
        key=lambda each: (
            key[each.confidence], -each.waiting_count, -1 if each.rank is None else each.rank
        )
    )  # fmt: skip
    return chosen, verdict


def suspects_table(state: State, found: list[Suspect], verdict: str) -> pd.DataFrame:
    counts = {rank: len(state.pending.get(rank, ())) for rank in state.have}
    median = float(np.median(list(counts.values()))) if counts else 0.0
    rows = []
    for each in found:
        evidence = each.evidence
        if each.rank in counts:
            evidence += f"; {counts[each.rank]:,} operations pending, the median is {median:,.4g}"
        rows.append(
            {
                **each._asdict(),
                "description": state.description.get(each.group or ""),
                "pending_count": counts.get(each.rank) if each.rank is not None else None,
                "evidence": evidence,
                "verdict": verdict,
            }
        )
    frame = pd.DataFrame(
        {name: [row[name] for row in rows] for name in FLIGHT_SUSPECTS.columns}, dtype=object
    )
    return FLIGHT_SUSPECTS.check(FLIGHT_SUSPECTS.cast(frame))


def _uncertain(state: State, weak: list[Suspect]) -> tuple[list[Suspect], str]:
    hanging = {rank for rank in state.have if state.pending.get(rank)}
    if not hanging and not weak:
        what = (
            f"none of the {len(state.have):,} dumped ranks has an operation pending; either "
            "nothing hangs, or it hangs outside of collectives"
        )
        return [Suspect(None, "none", "nothing hangs", evidence=what)], "nothing hangs"
    if not weak:
        what = f"{len(hanging):,} ranks have operations pending, but no group tells for whom"
        return [Suspect(None, "none", "nothing pending", evidence=what)], "cannot tell"
    is_mutual = {each.reason for each in weak} <= {"all entered", "deadlock"}
    if is_mutual and hanging <= {each.rank for each in weak}:
        return [_everybody(hanging, weak)], "cannot tell"
    return weak, "cannot tell"


def _everybody(hanging: set[int], weak: list[Suspect]) -> Suspect:
    """Say that every rank that hangs may be the one, without naming each."""
    first = weak[0]
    if any(each.reason == "deadlock" for each in weak):
        what = (
            f"all {len(hanging):,} ranks that hang wait for each other by sends and receives; "
            "the dumps do not tell who should have gone first"
        )
        return Suspect(None, "none", "deadlock", evidence=what)
    if len({(each.group, each.seq, each.operation) for each in weak}) > 1 or first.seq is None:
        first = Suspect(None, "none", "all entered")
        where = "operations that all their members have entered"
    else:
        where = f"{first.operation} {first.seq:,} of group {first.group}"
    what = (
        f"all {len(hanging):,} ranks that hang are in {where}, and none is through: one of "
        "their GPUs, or the network, and the dumps do not tell which"
    )
    return first._replace(rank=None, confidence="none", evidence=what)


def _counted(found: list[Suspect], edges: list[Wait]) -> list[Suspect]:
    waiting: dict[int, set[int]] = {}
    for edge in edges:
        waiting.setdefault(edge.waits_for, set()).add(edge.rank)
    counted = []
    for each in found:
        if each.rank is None:
            counted.append(each)
            continue
        seen, ahead = {each.rank}, [each.rank]
        while ahead:
            news = waiting.get(ahead.pop(), set()) - seen
            seen |= news
            ahead.extend(news)
        counted.append(each._replace(waiting_count=len(seen) - 1))
    return counted


# What is pending on every rank in every process group, and who lags behind.


def flight_positions(recording: FlightRecording) -> pd.DataFrame:
    """Lay out a hang as a matrix of ranks and process groups.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FLIGHT_POSITIONS`, one row per rank and group it is a
        member of, by rank; ranks without a dump too. ``confidence``, ``reason`` and
        ``verdict`` are those of :func:`workbench.analyze.flight_suspects`.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.

    Notes
    -----
    ``behind_count`` is the largest number any member has called less the rank's own. It is
    missing where the rank's own is not known. Sends and receives count as pending, and have
    no number that could be compared between ranks.
    """
    state = State(recording)
    found, verdict = suspects(state)
    known = {each.rank: each for each in found}
    pending = Counter((op.rank, op.group) for ops in state.pending.values() for op in ops)
    rows = []
    for group, members in state.members.items():
        numbers = {rank: state.called(rank, group) for rank in members}
        furthest = max((number for number in numbers.values() if number is not None), default=None)
        for rank in members:
            number, suspect = numbers[rank], known.get(rank)
            has_dump = rank in state.have
            rows.append(
                {
                    "rank": rank,
                    "group": group,
                    "description": state.description[group],
                    "has_dump": has_dump,
                    "pending_count": pending[rank, group] if has_dump else None,
                    "enqueued_seq": number,
                    "completed_seq": state.completed(rank, group),
                    "behind_count": None
                    if number is None or furthest is None
                    else furthest - number,
                    "confidence": "none" if suspect is None else suspect.confidence,
                    "reason": "" if suspect is None else suspect.reason,
                    "verdict": verdict,
                }
            )
    if not rows:
        return FLIGHT_POSITIONS.empty()
    frame = pd.DataFrame(rows, columns=list(FLIGHT_POSITIONS.columns), dtype=object)
    frame = frame.sort_values(["rank", "group"], kind="stable", ignore_index=True)
    return FLIGHT_POSITIONS.check(FLIGHT_POSITIONS.cast(frame))
