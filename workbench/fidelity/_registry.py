"""The list of claims and the one way to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from workbench import datasets
from workbench.errors import MissingExtraError, WorkbenchError
from workbench.tables import FIDELITY


@dataclass(frozen=True)
class Reading:
    """One printed number beside the number computed here.

    ``printed`` and ``here`` are compared as they are, before anything becomes a float,
    so integer nanoseconds are compared exactly. ``source`` stands in place of the source
    of the claim where the numbers of one claim come from several places. ``bound`` says
    that the printed number is no value but a limit: ``"at least"`` or ``"at most"``. A limit
    that is known to be missed has what was ``reached`` instead: up to there the verdict is
    ``short``, never ``pass``, beyond it the claim fails.
    """

    what: str
    printed: float
    here: float
    unit: str = "ns"
    tolerance: float = 0
    source: str = ""
    bound: Literal["", "at least", "at most"] = ""
    reached: float | None = None

    def holds(self) -> bool:
        """Say whether both numbers agree; a missing number agrees with nothing."""
        if self.bound:
            above = self.here - self.printed
            return bool((above if self.bound == "at least" else -above) >= -self.tolerance)
        return bool(abs(self.here - self.printed) <= self.tolerance)

    def verdict(self) -> str:
        """Give the verdict: pass, short (of a limit, as known) or FAIL."""
        if self.holds():
            return "pass"
        if self.reached is None or not self.bound:
            return "FAIL"
        return "short" if replace(self, printed=self.reached).holds() else "FAIL"


Compute = Callable[..., Iterable[Reading]]


@dataclass(frozen=True)
class Claim:
    """What the workbench says it reproduces, and how to work it out."""

    noun: str
    name: str
    source: str
    needs: tuple[str, ...]
    compute: Compute


_CLAIMS: list[Claim] = []


def claim(
    *, noun: str, name: str, source: str, needs: tuple[str, ...] = ()
) -> Callable[[Compute], Compute]:
    """Register a function as a claim; use it as a decorator.

    Parameters
    ----------
    noun
        What the claim is about; ``workbench fidelity NOUN`` runs the claims of one noun.
    name
        What is claimed, in a few words.
    source
        Paper, table, page or project the printed numbers come from.
    needs
        Data sets the function is given as paths, in this order. When one of them is
        absent the claim is reported as absent and the function is not called.

    Returns
    -------
    Callable
        The function itself, so that a test can call it.

    Raises
    ------
    ValueError
        If the noun has a claim of that name already.
    """

    def register(compute: Compute) -> Compute:
        if any((known.noun, known.name) == (noun, name) for known in _CLAIMS):
            msg = f"{noun!r} has a claim named {name!r} already; give this one another name"
            raise ValueError(msg)
        _CLAIMS.append(Claim(noun, name, source, needs, compute))
        return compute

    return register


def claims(noun: str | None = None) -> list[Claim]:
    """Return the registered claims of one noun, or all of them.

    Parameters
    ----------
    noun
        What the claims are about; None for all.

    Returns
    -------
    list of Claim
        In the order of registration.

    Raises
    ------
    WorkbenchError
        If no claim is about ``noun``.
    """
    chosen = [known for known in _CLAIMS if noun in {None, known.noun}]
    if noun is not None and not chosen:
        msg = f"no claims about {noun!r}; there are claims about {sorted(_nouns())}"
        raise WorkbenchError(msg)
    return chosen


def run(noun: str | None = None, *, progress: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Compute every claim now and compare it with the number printed elsewhere.

    Parameters
    ----------
    noun
        Run the claims about this noun only, e.g. ``"traces"``; all by default.
    progress
        Called with the name of each claim before it is computed.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FIDELITY`, one row per number compared, in the order
        of registration. A claim whose data set or optional package is absent has one row that
        says how to get it; one that cannot be computed has one row that fails and says why.

    Raises
    ------
    WorkbenchError
        If no claim is about ``noun``.
    """
    rows: list[dict[str, object]] = []
    for known in claims(noun):
        if progress is not None:
            progress(f"{known.noun}: {known.name}")
        rows.extend(_rows(known))
    if not rows:
        return FIDELITY.empty()
    dtypes = {name: column.dtype for name, column in FIDELITY.columns.items()}
    return FIDELITY.check(pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes))


def failed(frame: pd.DataFrame) -> bool:
    """Say whether any claim fails; one that is absent does not.

    Parameters
    ----------
    frame
        Table :data:`workbench.tables.FIDELITY`.

    Returns
    -------
    bool
        True if a verdict is ``FAIL``.
    """
    return bool((frame["verdict"] == "FAIL").any())


def _nouns() -> set[str]:
    return {known.noun for known in _CLAIMS}


def _rows(known: Claim) -> Iterator[dict[str, object]]:
    # Whatever goes wrong in one claim is that claim's failure and must not hide the others.
    try:
        if absent := [name for name in known.needs if not _is_at_hand(name)]:
            note = f"get it with: workbench datasets fetch {' '.join(absent)}"
            yield _row(known, verdict="absent", note=note)
            return
        compared = False
        for reading in known.compute(*(datasets.best(name)[0] for name in known.needs)):
            yield _compared(known, reading)
            compared = True
        if not compared:
            yield _row(known, verdict="FAIL", note="the claim compared nothing")
    except MissingExtraError as error:
        yield _row(known, verdict="absent", note=str(error))
    except Exception as error:  # noqa: BLE001
        yield _row(known, verdict="FAIL", note=f"{type(error).__name__}: {error}")


def _compared(known: Claim, reading: Reading) -> dict[str, object]:
    return _row(
        known,
        what=f"{reading.what}, {reading.bound}" if reading.bound else reading.what,
        verdict=reading.verdict(),
        printed=float(reading.printed),
        here=float(reading.here),
        tolerance=float(reading.tolerance),
        unit=reading.unit,
        **({"source": reading.source} if reading.source else {}),
    )


def _row(known: Claim, *, verdict: str, **others: object) -> dict[str, object]:
    return {
        "noun": known.noun,
        "claim": known.name,
        "what": "",
        "source": known.source,
        "unit": "",
        "verdict": verdict,
        "note": "",
        **others,
    }


def _is_at_hand(name: str) -> bool:
    places = datasets.describe().set_index("dataset")["place"]
    return str(places.get(name)) != "not at hand"
