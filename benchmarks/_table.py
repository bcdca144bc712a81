"""Measured ratios beside their targets, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Row:
    """One comparison: both sides in words, the ratio and what it should reach."""

    what: str
    workbench: str
    peer: str
    ratio: float | None = None
    target: float | None = None
    unit: str = "×"
    smaller_is_better: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio <= self.target if self.smaller_is_better else self.ratio >= self.target

    def cells(self) -> list[str]:
        """Return the row as texts."""
        sign = "≤" if self.smaller_is_better else "≥"
        ratio = "" if self.ratio is None else f"{self.ratio:,.{_decimals(self.ratio)}f} {self.unit}"
        target = "" if self.target is None else f"{sign} {_short(self.target)} {self.unit}"
        verdict = {True: "yes", False: "MISSED", None: ""}[self.met]
        note = f" ({self.note})" if self.note else ""
        return [self.what, self.workbench, self.peer, ratio + note, target, verdict]


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def markdown(rows: Sequence[Row], machine: Mapping[str, str], remarks: Sequence[str]) -> str:
    """Render comparisons, how they were made and where."""
    head = ["what", "workbench", "peer", "ratio", "target", "met?"]
    lines = [head, ["---"] * len(head), *(row.cells() for row in rows)]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    where = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "\n\n".join([table, *remarks, f"Machine: {where}."]) + "\n"


def publish(
    name: str, rows: Sequence[Row], about: Mapping[str, str], remarks: Sequence[str], folder: Path
) -> None:
    """Print comparisons, and write them to ``<name>.md`` and ``<name>.json`` of a folder."""
    text = markdown(rows, about, remarks)
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    content = {"machine": dict(about), "rows": [asdict(row) for row in rows]}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
