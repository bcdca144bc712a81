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
    that are waited for and wait for nobody are its roots. What keeps a root is shown by its
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
    edges = waits(state)
    best: dict[int | None, Suspect] = {}
    for suspect in [*mismatches(state), *roots(state, edges)]:
        # One row per rank, by the surest of the rules that name it.
        strongest = best.setdefault(suspect.rank, suspect)
        if _ORDER.index(suspect.confidence) < _ORDER.index(strongest.confidence):
            best[suspect.rank] = suspect
    chosen = [suspect for suspect in best.values() if suspect.confidence in {"high", "medium"}]
    verdict = "found"
    if not chosen:
        chosen, verdict = _uncertain(state, list(best.values()))
    return sorted(_counted(chosen, edges), key=_rank_order), verdict


def _rank_order(suspect: Suspect) -> tuple[int, int, int]:
    rank = -1 if suspect.rank is None else suspect.rank
    return _ORDER.index(suspect.confidence), -suspect.waiting_count, rank


def suspects_table(state: State, chosen: list[Suspect], verdict: str) -> pd.DataFrame:
    counts = {rank: len(state.pending.get(rank, ())) for rank in state.have}
    median = float(np.median(list(counts.values()))) if counts else 0.0
    rows = []
    for suspect in chosen:
        row = suspect._asdict() | {"pending_count": None, "verdict": verdict}
        row["description"] = state.description.get(suspect.group or "")
        if suspect.rank in counts:
            row["pending_count"] = counts[suspect.rank]
            row["evidence"] += (
                f"; {counts[suspect.rank]:,} operations pending, the median is {median:,.4g}"
            )
        rows.append(row)
    frame = pd.DataFrame(rows, columns=list(FLIGHT_SUSPECTS.columns), dtype=object)
    return FLIGHT_SUSPECTS.of(frame)


def _uncertain(state: State, weak: list[Suspect]) -> tuple[list[Suspect], str]:
    hanging = {rank for rank in state.have if state.pending.get(rank)}
    if not hanging and not weak:
        why = (
            f"none of the {len(state.have):,} dumped ranks has an operation pending; either "
            "nothing hangs, or it hangs outside of collectives"
        )
        return [Suspect(None, "none", "nothing hangs", evidence=why)], "nothing hangs"
    if not weak:
        why = f"{len(hanging):,} ranks have operations pending, but no group states for whom"
        return [Suspect(None, "none", "nothing pending", evidence=why)], "cannot tell"
    # Where all that hang wait for each other, no rank is more suspicious than another.
    is_mutual = {suspect.reason for suspect in weak} <= {"all entered", "deadlock"}
    if is_mutual and hanging <= {suspect.rank for suspect in weak}:
        return [_everybody(state, hanging, weak)], "cannot tell"
    return weak, "cannot tell"


def _everybody(state: State, hanging: set[int], weak: list[Suspect]) -> Suspect:
    """Return a suspect that stands for every hanging rank, without naming each."""
    first = weak[0]
    if any(suspect.reason == "deadlock" for suspect in weak):
        why = (
            f"all {len(hanging):,} ranks that hang wait for each other by sends and receives; "
            "the dumps do not show which should have gone first"
        )
        return Suspect(None, "none", "deadlock", evidence=why)
    if len({(s.group, s.seq, s.operation) for s in weak}) > 1 or first.seq is None:
        first = Suspect(None, "none", "all entered")
        where = "operations that all their members have entered"
    else:
        where = f"{first.operation} {first.seq:,} of group {first.group}"
    why = (
        f"all {len(hanging):,} ranks that hang are in {where}, and none is through: one of "
        "their GPUs, or the network, and the dumps do not show which"
    )
    if first.group is not None and first.group in state.unlisted:
        group = f"group {first.group}"
        why = f"the dumps do not list the members of {group}: one may never have called it"
    return first._replace(rank=None, confidence="none", evidence=why)


def _counted(chosen: list[Suspect], edges: list[Wait]) -> list[Suspect]:
    waiting: dict[int, set[int]] = {}
    for edge in edges:
        waiting.setdefault(edge.waits_for, set()).add(edge.rank)
    counted = []
    for suspect in chosen:
        ahead = [] if suspect.rank is None else [suspect.rank]
        seen = set(ahead)
        # Walks along the waits, to count who is held up by the suspect, directly or through others.
        while ahead:
            news = waiting.get(ahead.pop(), set()) - seen
            seen |= news
            ahead.extend(news)
        counted.append(suspect._replace(waiting_count=max(len(seen) - 1, 0)))
    return counted


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
    chosen, verdict = suspects(state)
    by_rank = {suspect.rank: suspect for suspect in chosen}
    nobody = Suspect(None, "none", "")
    pending = Counter((op.rank, op.group) for ops in state.pending.values() for op in ops)
    rows = []
    for group, members in state.members.items():
        numbers = {rank: state.called(rank, group) for rank in members}
        furthest = max((number for number in numbers.values() if number is not None), default=None)
        for rank in members:
            number, suspect = numbers[rank], by_rank.get(rank, nobody)
            has_dump = rank in state.have
            count = pending[rank, group] if has_dump else None
            behind = None if number is None or furthest is None else furthest - number
            rows.append((
                rank, group, state.description[group], has_dump, count, number,
                state.completed(rank, group), behind, suspect.confidence, suspect.reason, verdict,
            ))  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(FLIGHT_POSITIONS.columns), dtype=object)
    frame = frame.sort_values(["rank", "group"], kind="stable", ignore_index=True)
    return FLIGHT_POSITIONS.of(frame)
