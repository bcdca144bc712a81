"""The register of rules that turn tables into findings, and the one way to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pandas as pd

from workbench.errors import WorkbenchError

Confidence = Literal["high", "medium", "low"]


class Cost(TypedDict):
    """A cost as a finding states it; unpacked into one."""

    cost: float
    cost_unit: str
    time_share: float


class LacksDataError(WorkbenchError):
    """A rule has tables, but they do not hold what it reads; it answers that it has no data."""


@dataclass(frozen=True)
class Finding:
    """One finding of a rule; the columns of :data:`workbench.tables.FINDINGS`."""

    finding: str
    where: str = ""
    cost: float | None = None
    cost_unit: str = ""
    cost_basis: str = ""
    time_share: float | None = None
    confidence: Confidence = "high"
    doubt: str = ""
    evidence: str = ""
    next_step: str = ""
    # Rules that say the same, comma separated: where one found something, this is left out.
    told_by: str = ""
    # Whether it says the contrary of them: it is then the doubt of theirs.
    is_contrary: bool = False


@dataclass(frozen=True)
class Rule:
    """A rule: the trouble it looks for, the evidence it reads, its thresholds and its reason."""

    domain: str
    name: str
    about: str
    evidence: type[Any]
    reference: str
    find: Callable[..., Iterable[Finding]]
    thresholds: Mapping[str, float]

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds of data that it needs."""
        needs: tuple[str, ...] = self.evidence.needs
        return needs


RULES: dict[str, Rule] = {}


def needs(count: int, least: float, noun: str) -> None:
    """Raise if there is too little for a rule to look at: nothing found would be no answer."""
    if count < least:
        msg = f"needs {int(least)} {noun}, and there {'is' if count == 1 else 'are'} {count:,}"
        raise LacksDataError(msg)


def rule(
    evidence: type[Any], *, reference: str
) -> Callable[[Callable[..., Iterator[Finding]]], Any]:
    """Register a function as the rule of its name.

    The function takes an instance of ``evidence`` and thresholds as keywords; the first line of
    its docstring names the trouble. ``evidence`` has ``domain``, ``needs`` and ``of(bundle)``,
    which returns None if the bundle lacks the data.
    """

    def register(find: Callable[..., Iterator[Finding]]) -> Callable[..., Iterator[Finding]]:
        options = list(inspect.signature(find).parameters.values())[1:]
        about = (inspect.getdoc(find) or "").partition("\n")[0].rstrip(".")
        RULES[find.__name__] = Rule(
            evidence.domain,
            find.__name__,
            about,
            evidence,
            reference,
            find,
            {option.name: option.default for option in options},
        )
        return find

    return register


def rows_of(table: pd.DataFrame) -> list[Any]:
    """Return the rows of a table as named tuples."""
    return list(table.itertuples())


def first_of(table: pd.DataFrame) -> Any:
    """Return the first row of a table by the names of its columns."""
    return table.iloc[0]


def ranks_text(numbers: object) -> str:
    """Name ranks as runs: ranks 0 to 3, 6."""
    values = sorted({int(number) for number in numbers})  # type: ignore[attr-defined]
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    named = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"rank{'s' * (len(values) > 1)} {', '.join(named)}"


def thresholds_text(thresholds: Mapping[str, float]) -> str:
    """Write thresholds as ``name value``."""
    return ", ".join(f"{name} {value:g}" for name, value in thresholds.items())
