"""Kinds of faults beside what a flight-recorder dump shows of them."""

from __future__ import annotations

import pandas as pd

from workbench import datasets
from workbench.analyze._failures.hang.suspects import flight_suspects
from workbench.tables import FAULT_CHECKLIST, FlightRecording


def fault_checklist(recording: FlightRecording | None = None) -> pd.DataFrame:
    """Check dumps of a hang against every kind of fault that a fleet's analyser tells apart.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns; None for the list alone.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULT_CHECKLIST`, one row per kind. What a dump alone
        cannot show is never said to be absent: join the log named in ``needs``.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.

    References
    ----------
    Kinds: meta-pytorch/torchcomms, ``comms/analyzer/if/NCCLAnalyzerVerdict.thrift``; which of
    them a dump shows is a judgement of this project.
    """
    table = pd.read_csv(datasets.path("published") / "fault_kinds.csv", keep_default_na=False)
    ranks: dict[str, list[int]] = {}
    if recording is not None:
        for row in flight_suspects(recording).dropna(subset=["rank"]).to_dict("records"):
            ranks.setdefault(row["reason"], []).append(int(row["rank"]))
    verdicts, suspects = [], []
    for visible, reasons in zip(table["visible"], table["reasons"], strict=True):
        named = sorted({rank for reason in reasons.split(";") for rank in ranks.get(reason, [])})
        seen = {"yes": "found", "in part": "possible"}.get(visible, "")
        absent = "cannot be seen" if visible == "no" else "not found"
        verdicts.append("not asked" if recording is None else seen if named else absent)
        suspects.append(", ".join(map(str, named)))
    return FAULT_CHECKLIST.of(table.assign(verdict=verdicts, ranks=suspects))
