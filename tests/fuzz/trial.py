"""One damaged file through one loader, and what may come of it."""

import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.corpus import DOORS, Seed, flagged
from tests.fuzz.mutations import Mutation, mutated
from tests.fuzz.structures import structured
from workbench.errors import WorkbenchError

MOST_CPU_S = 20
MOST_CHANGE = 0.01
# Mistakes of our own code that the guard turned into an error that names the file.
_MISTAKES = (AttributeError, LookupError, TypeError, AssertionError)


class Outcome(NamedTuple):
    """What came of a trial: ``kind`` is a defect if it begins with an exclamation mark."""

    number: int
    seed: str
    mutation: str
    kind: str
    detail: str = ""
    cpu_s: float = 0.0


class _HangError(BaseException):
    """The limit of CPU time is reached; no loader may catch it."""


@contextmanager
def _limited(cpu_s: float) -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise _HangError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Before(NamedTuple):
    """What the whole file gives."""

    totals: dict[str, float]
    findings: dict[tuple[str, str], int]


def before(seed: Seed, folder: Path) -> Before | None:
    """Load a seed; None if it is no input of its loader."""
    door = DOORS[seed.door]
    try:
        result = door.load(_written(folder, seed, seed.data))
    except (WorkbenchError, OSError):
        return None
    return Before(door.totals(result), flagged(result))


def drawn(number: int, seeds: list[Seed]) -> tuple[Seed, Mutation]:
    """Return what trial ``number`` damages, and how: always the same."""
    rng = Random(number)
    seed = seeds[number % len(seeds)]
    if made := structured(rng, seed.name, seed.data):
        return seed, Mutation(*made)
    # A document that is cut misses a bracket; lines that are cut between two miss nothing.
    is_json = seed.data.lstrip()[:1] in (b"{", b"[") and not seed.name.endswith(".jsonl")
    return seed, mutated(rng, seed.data, is_json=is_json)


def run(number: int, seeds: list[Seed], known: dict[str, Before], folder: Path) -> Outcome:
    """Damage a file, load it, and judge what comes of it."""
    seed, mutation = drawn(number, seeds)
    door = DOORS[seed.door]
    path = _written(folder, seed, mutation.data, mutation.ending)
    began = time.process_time()
    try:
        with _limited(MOST_CPU_S):
            result = door.load(path)
            kind, detail = _judged(result, known[seed.name], seed, mutation)
    except (WorkbenchError, FileNotFoundError) as error:
        cause = error.__cause__
        kind = "refused, by the guard" if isinstance(cause, _MISTAKES) else "refused"
        detail = _place(cause) if isinstance(cause, _MISTAKES) else ""
    except _HangError:
        kind, detail = f"! no end after {MOST_CPU_S} s", traceback.format_exc(limit=-4)
    except Exception as error:  # noqa: BLE001 - anything else is what this looks for
        kind, detail = f"! {type(error).__name__}", f"{str(error)[:200]} {_place(error)}"
    return Outcome(number, seed.name, mutation.name, kind, detail, time.process_time() - began)


def _judged(result: Any, whole: Before, seed: Seed, mutation: Mutation) -> tuple[str, str]:
    """Say whether something changed, and whether it is told."""
    door = DOORS[seed.door]
    totals, findings = door.totals(result), flagged(result)
    changed = [
        f"{name}: {old:g} -> {totals.get(name, 0.0):g}"
        for name, old in whole.totals.items()
        if abs(totals.get(name, 0.0) - old) > MOST_CHANGE * abs(old)
    ]
    is_told = any(count > whole.findings.get(key, 0) for key, count in findings.items())
    if changed and not is_told:
        # What is cut already tells no more if it is cut again.
        was_cut = any(finding == "truncated" for finding, _ in whole.findings)
        is_torn = mutation.name.startswith("torn")
        is_defect = mutation.is_told and (is_torn or not was_cut)
        return "! changed, untold" if is_defect else "loaded, changed", "; ".join(changed)
    return ("loaded, told" if is_told else "loaded, unchanged"), ""


def _written(folder: Path, seed: Seed, data: bytes, ending: str = "") -> Path:
    name = seed.name.rsplit("/", 1)[-1]
    for packing in (".gz", ".tar", ".tgz"):
        name = name.removesuffix(packing)
    path = folder / f"{name}{ending}"
    for old in folder.iterdir():
        old.unlink()
    path.write_bytes(data)
    return path


def _place(error: BaseException | None) -> str:
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/workbench/" in frame.filename] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "nowhere"
    return f"{type(error).__name__} at {where}: {str(error)[:120]}"
