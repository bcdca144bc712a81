"""The profile of a trace: statistics from which a trace that behaves alike can be drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import LoadError
from workbench.tables.table import table

SYNC = "sync"
"""Kind of an operation in which the host waits for a stream."""
WORK_KINDS = ("compute", "communication", "memory", "other")
QUANTILE_COUNT = 33
CHAIN_DEPTH = 5
# A profile is a few kB; what is far larger was not made by the workbench.
MOST_BYTES = 4 << 20
MOST_OPERATIONS = 200_000
_MOST_VALUE = 1e15
_MOST_STREAMS = 256
_VERSION = 1

TRACE_LIKENESS = table("""
    trace_likeness: One row per score of a synthetic trace beside the real one.

    score: str - mix, shape, order, behaviour or leak
    kind: str - of the score: a kind of work, a part of the time, a change or a sign of the source
    value: float64 - the score, a number without unit
    limit: Float64? - what the value may be at most, or at least, without unit; missing if nothing
        can tell
    used_ratio: Float64? 0..10 - of the allowed distance from a perfect score: above 1 fails; 10
        stands for more, too
    verdict: str - pass, FAIL or not checked
""")


def bucket(values: ArrayLike) -> NDArray[np.int64]:
    """Return the half octave of positive numbers, and -1 for those below 1."""
    number = np.maximum(np.asarray(values, dtype=np.float64), 0.5)
    half: NDArray[np.int64] = np.maximum(np.floor(2 * np.log2(number)), -1).astype(np.int64)
    return half


class Operation(NamedTuple):
    """One symbol of the order: what the host starts, or waits for; it holds no name."""

    kind: str  # compute, communication, memory, other; or sync: the host waits
    stream: int  # number of the stream, the busiest is 0; of a sync -1 means all
    bucket: int  # half octave of its size if such work has sizes, else of its duration
    waits: int  # stream of which work has to end first; -1 if none
    back: int  # which work: so many were started on that stream since
    operation: str  # of communication: all-reduce, all-to-all, ...; else empty
    group: int  # ranks that take part; 0 means all


class Block(NamedTuple):
    """A part of the motif, repeated."""

    repeats: int
    operations: tuple[int, ...]  # positions in TraceProfile.operations
    gaps: tuple[int, ...]  # half octaves of the host time before each


@dataclass(frozen=True)
class KindProfile:
    """Quantiles of one kind of work, at equal steps from the least to the largest."""

    count: int
    dur_ns: tuple[float, ...]
    gap_ns: tuple[float, ...]
    size_bytes: tuple[float, ...]  # empty if no size is recorded
    correlation: float  # of the ranks of size and duration: the parameter of a Gaussian copula


@dataclass(frozen=True)
class TraceProfile:
    """Source of a statistical twin: kinds and numbers, no name of the source."""

    rank_count: int
    step_count: int
    is_synthetic: bool
    kinds: Mapping[str, KindProfile]
    operations: tuple[Operation, ...]
    motif: tuple[Block, ...]
    chain: Mapping[tuple[int, ...], Mapping[int, int]] = field(repr=False)
    launch_ns: float
    tail_ns: float  # host time from the last operation to the end of a step
    start_ns: tuple[float, ...]  # quantiles of when ranks begin, after the first
    compute_noise_ratio: float  # standard deviation of log time between ranks
    host_noise_ratio: float
    doubts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Describe the source and the size of the profile."""
        count = sum(block.repeats * len(block.operations) for block in self.motif)
        head = (
            f"TraceProfile of {self.rank_count} rank{'s' * (self.rank_count != 1)}: {count:,} "
            f"operations a step in {len(self.motif)} blocks, {len(self.chain):,} contexts, "
            f"{len(self.as_json()) / 1000:.1f} kB"
        )
        return "\n".join([head, *(f"  {doubt}" for doubt in self.doubts)])

    def as_json(self) -> str:
        """Return the profile as JSON text, the same text for equal profiles."""
        data = asdict(self) | {
            "version": _VERSION,
            "operations": [list(operation) for operation in self.operations],
            "motif": [[block.repeats, block.operations, block.gaps] for block in self.motif],
            "chain": [[list(seen), sorted(n.items())] for seen, n in self.chain.items()],
        }
        return json.dumps(data, separators=(",", ":"), allow_nan=False)


def read_profile(text: str | bytes, origin: str) -> TraceProfile:
    """Read a profile from JSON text; a LoadError names origin and field of the first misfit."""
    if len(text) > MOST_BYTES:
        raise _misfit(origin, "the file", f"{len(text):,} bytes", f"at most {MOST_BYTES:,}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _misfit(origin, "the file", f"an error ({error})", "JSON in UTF-8") from error
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        version = data.get("version") if isinstance(data, dict) else type(data).__name__
        raise _misfit(origin, "version", version, f"{_VERSION} of a trace profile")
    return _Reader(origin).profile(data)


def _misfit(origin: str, name: str, value: object, expected: str) -> LoadError:
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
    return LoadError(
        f"{origin}: {name} is {shown}, expected {expected}; "
        "write it again with load.write_trace_profile"
    )


class _Reader:
    """Reads the fields of a profile, each within limits."""

    def __init__(self, origin: str) -> None:
        self._origin = origin

    def profile(self, data: dict[str, Any]) -> TraceProfile:
        names = [known.name for known in fields(TraceProfile)]
        if wrong := sorted(set(names).symmetric_difference(data.keys() - {"version"})):
            is_known = wrong[0] in names
            shown = "missing" if is_known else "unknown"
            raise _misfit(self._origin, wrong[0], shown, f"the fields {', '.join(names)}")
        listed = self._list("operations", data["operations"], self._operation)
        motif = self._list("motif", data["motif"], self._block(len(listed)))
        self._limited(motif, listed)
        kinds = self._dict("kinds", data["kinds"])
        profile = TraceProfile(
            rank_count=self._whole("rank_count", data["rank_count"], 1),
            step_count=self._whole("step_count", data["step_count"], 1),
            is_synthetic=self._flag("is_synthetic", data["is_synthetic"]),
            kinds={name: self._kind(name, entry) for name, entry in kinds.items()},
            operations=listed,
            motif=motif,
            chain=dict(self._list("chain", data["chain"], self._context(len(listed)))),
            launch_ns=self._number("launch_ns", data["launch_ns"]),
            tail_ns=self._number("tail_ns", data["tail_ns"]),
            start_ns=self._quantiles("start_ns", data["start_ns"]),
            compute_noise_ratio=self._number("compute_noise_ratio", data["compute_noise_ratio"], 2),
            host_noise_ratio=self._number("host_noise_ratio", data["host_noise_ratio"], 2),
            doubts=self._list("doubts", data["doubts"], self._text),
        )
        used = {operation.kind for operation in listed} - {SYNC}
        if lacking := sorted(used - profile.kinds.keys()):
            raise _misfit(self._origin, "kinds", sorted(kinds), f"an entry for {lacking[0]}")
        return profile

    def _limited(self, motif: tuple[Block, ...], listed: tuple[Operation, ...]) -> None:
        count = sum(block.repeats * len(block.operations) for block in motif)
        if not 0 < count <= MOST_OPERATIONS:
            limit = f"1 to {MOST_OPERATIONS:,} operations"
            raise _misfit(self._origin, "motif", f"{count:,} operations", limit)
        if all(listed[code].kind == SYNC for block in motif for code in block.operations):
            raise _misfit(self._origin, "motif", "waits alone", "work among the operations")

    def _operation(self, name: str, value: Any) -> Operation:
        row = self._row(name, value, 7)
        text = [self._text(f"{name}[{at}]", row[at]) for at in (0, 5)]
        if text[0] not in (*WORK_KINDS, SYNC):
            expected = ", ".join([*WORK_KINDS, SYNC])
            raise _misfit(self._origin, f"{name}[0]", text[0], f"one of {expected}")
        stream, waits = (self._whole(f"{name}[{at}]", row[at], -1, _MOST_STREAMS) for at in (1, 3))
        if stream < 0 and text[0] != SYNC:
            raise _misfit(self._origin, f"{name}[1]", stream, "a stream from 0")
        half_octave = self._whole(f"{name}[2]", row[2], -1, 100)
        back = self._whole(f"{name}[4]", row[4], 0, MOST_OPERATIONS)
        group = self._whole(f"{name}[6]", row[6], 0, 1_000_000)
        return Operation(text[0], stream, half_octave, waits, back, text[1], group)

    def _block(self, most: int) -> Callable[[str, Any], Block]:
        def read(name: str, value: Any) -> Block:
            repeats, listed, gaps = self._row(name, value, 3)
            operations = self._list(f"{name}[1]", listed, self._below(most))
            lags = self._list(f"{name}[2]", gaps, self._below(100, least=-1))
            if len(lags) != len(operations):
                raise _misfit(self._origin, f"{name}[2]", f"{len(lags)} gaps", "one per operation")
            times = self._whole(f"{name}[0]", repeats, 1, MOST_OPERATIONS)
            return Block(times, operations, lags)

        return read

    def _context(self, most: int) -> Callable[[str, Any], tuple[tuple[int, ...], dict[int, int]]]:
        def read(name: str, value: Any) -> tuple[tuple[int, ...], dict[int, int]]:
            seen, counts = self._row(name, value, 2)
            context = self._list(f"{name}[0]", seen, self._below(most))
            if len(context) > CHAIN_DEPTH:
                raise _misfit(self._origin, f"{name}[0]", seen, f"at most {CHAIN_DEPTH} operations")
            pairs = self._list(f"{name}[1]", counts, lambda at, pair: self._row(at, pair, 2))
            after = {
                self._whole(f"{name}[1]", code, 0, most - 1): self._whole(f"{name}[1]", count, 1)
                for code, count in pairs
            }
            return context, after

        return read

    def _kind(self, name: str, value: Any) -> KindProfile:
        name = self._text("kinds", name)
        if name not in WORK_KINDS:
            raise _misfit(self._origin, "kinds", name, f"one of {', '.join(WORK_KINDS)}")
        entry, at = self._dict(f"kinds.{name}", value), f"kinds.{name}"
        wanted = [known.name for known in fields(KindProfile)]
        if set(entry) != set(wanted):
            raise _misfit(self._origin, at, sorted(entry), f"the fields {', '.join(wanted)}")
        sizes = entry["size_bytes"]
        return KindProfile(
            count=self._whole(f"{at}.count", entry["count"], 1),
            dur_ns=self._quantiles(f"{at}.dur_ns", entry["dur_ns"]),
            gap_ns=self._quantiles(f"{at}.gap_ns", entry["gap_ns"]),
            size_bytes=self._quantiles(f"{at}.size_bytes", sizes) if sizes != [] else (),
            correlation=self._number(f"{at}.correlation", entry["correlation"], 1, least=-1),
        )

    def _quantiles(self, name: str, value: Any) -> tuple[float, ...]:
        numbers = self._list(name, value, self._number)
        if len(numbers) != QUANTILE_COUNT or list(numbers) != sorted(numbers):
            raise _misfit(self._origin, name, value, f"{QUANTILE_COUNT} numbers in order")
        return numbers

    def _list(self, name: str, value: Any, read: Callable[[str, Any], Any]) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MOST_OPERATIONS:
            raise _misfit(self._origin, name, value, "a list")
        return tuple(read(f"{name}[{at}]", entry) for at, entry in enumerate(value))

    def _row(self, name: str, value: Any, length: int) -> list[Any]:
        if not isinstance(value, list) or len(value) != length:
            raise _misfit(self._origin, name, value, f"a list of {length}")
        return value

    def _dict(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(self._origin, name, value, "an object")
        return value

    def _below(self, most: int, *, least: int = 0) -> Callable[[str, Any], int]:
        return lambda name, value: self._whole(name, value, least, most - 1)

    def _whole(self, name: str, value: Any, least: int, most: float = _MOST_VALUE) -> int:
        number = self._number(name, value, most, least=least)
        if number % 1:
            raise _misfit(self._origin, name, value, "a whole number")
        return int(number)

    def _number(
        self, name: str, value: Any, most: float = _MOST_VALUE, *, least: float = 0
    ) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and least <= value <= most):  # which NaN is not
            raise _misfit(self._origin, name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def _flag(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _misfit(self._origin, name, value, "true or false")
        return value

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > 400:
            raise _misfit(self._origin, name, value, "a text of at most 400 characters")
        return value
