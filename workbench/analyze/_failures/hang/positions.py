"""What is pending on every rank in every process group, and who lags behind."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from workbench.analyze._failures.hang.state import State
from workbench.analyze._failures.hang.suspects import suspects
from workbench.tables import FLIGHT_POSITIONS, FlightRecording


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
