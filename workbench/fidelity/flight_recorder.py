"""Claims about hangs: ranks that were made to fail, found in what the others recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim, published

_CASES = ("lock_gil_1st", "gpu_error_1st")
_DUMPS = "NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces"
_SETS = ("flight-recorder",)
_DEFAULT_GROUP = "0"


@claim(
    noun="flight_recorder",
    name="ranks that were made to fail",
    source=f"{_DUMPS}, fault_injection.log",
    needs=_SETS,
)
def suspects(folder: Path) -> Iterator[Reading]:
    """Compare the suspects with the injection log: all of the injected ranks and no other."""
    for case in _CASES:
        log = (folder / case / "fault_injection.log").read_text(encoding="utf-8")
        injected = {int(rank) for rank in re.findall(r"^Rank (\d+), fault_type", log, re.MULTILINE)}
        table = analyze.flight_suspects(load.flight_recorder(folder / case, progress=False))
        named = set(table["rank"].dropna().astype(int))
        yield Reading(
            f"{case}, injected ranks that are suspects", len(injected), len(injected & named), ""
        )
        yield Reading(f"{case}, suspects that were not injected", 0, len(named - injected), "")


@claim(
    noun="flight_recorder",
    name="where the failed ranks stand",
    source=_DUMPS,
    needs=_SETS,
)
def positions(folder: Path) -> Iterator[Reading]:
    """Compare pending operations and sequence numbers.

    Of the failed GPUs all ranks stand level in the group of everybody, so its numbers tell
    nothing; in the tensor-parallel groups the peers have completed what they have not.
    """
    tables = {
        case: analyze.flight_positions(load.flight_recorder(folder / case, progress=False))
        for case in _CASES
    }
    for row in published("flight_recorder"):
        table = tables[row["case"]]
        rank = f" of rank {row['rank']}" if row["rank"] else ""
        here = _MEASURES[row["measure"]](table, row["rank"])
        what = f"{row['case']}, {row['measure']}{rank}"
        yield Reading(what, int(row["value"]), here, "", source=row["source"])


def _pending(table: pd.DataFrame, rank: str) -> int:
    return int(table.loc[table["rank"] == int(rank), "pending_count"].sum())


def _without_pending(table: pd.DataFrame, _rank: str) -> int:
    return int((table.groupby("rank")["pending_count"].sum() == 0).sum())


def _stands_at(table: pd.DataFrame, rank: str) -> int:
    mine = table[(table["group"] == _DEFAULT_GROUP) & (table["rank"] == int(rank))]
    return int(mine["enqueued_seq"].iloc[0])


def _stand_elsewhere(table: pd.DataFrame, _rank: str) -> int:
    return int((table.loc[table["group"] == _DEFAULT_GROUP, "behind_count"] != 0).sum())


_MEASURES = {
    "pending operations": _pending,
    "ranks without pending operations": _without_pending,
    "last collective of the default group": _stands_at,
    "ranks that stand elsewhere in the default group": _stand_elsewhere,
}
