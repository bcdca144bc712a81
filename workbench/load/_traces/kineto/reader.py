"""PyTorch profiler (Kineto) traces of every generation since 2021."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain
from queue import SimpleQueue
from typing import Literal, get_args

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.stream import Stream
from workbench.load._traces.kineto._stream import (
    Engine,
    RawTrace,
    Spare,
    StreamReader,
    padded,
    read_ahead,
)
from workbench.load._traces.kineto.blocks import Copies
from workbench.load._traces.kineto.processes import ProcessFinder
from workbench.load._traces.kineto.rank import RankTables, rank_tables, slots

EngineName = Literal["auto", "compiled", "python"]

# Surer than any other mark: only such files have it.
EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_HEAD = re.compile(rb'"traceEvents"|"ph"\s*:|"schemaVersion"|"deviceProperties"')


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    return _HEAD.search(head) is not None


def kineto(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    engine: EngineName = "auto",
    stream: Stream | None = None,
    advance: Callable[[int], object] | None = None,
) -> list[RankTables]:
    """Read one Kineto file, mostly one rank; :func:`workbench.load.traces` is the entry point.

    ``advance`` is called with the bytes of each block, for a progress bar.
    """
    parser = Parser(args, engine)
    raws = parser.parse(source, stream, advance)
    parser.finish()
    return ranks_of(raws, args=args, rules=rules)


def ranks_of(
    raws: Sequence[RawTrace], *, args: Sequence[str] = (), rules: pd.DataFrame | None = None
) -> list[RankTables]:
    """Interpret what one file holds, once all its rows are copied."""
    finder = ProcessFinder(raws[0].texts())
    parts = [part for raw in raws for part in finder.parts(raw)]
    return [rank_tables(raw, label=raw.findings.source, args=args, rules=rules) for raw in parts]


class Parser:
    """Parses one file after the other with one engine, so that their texts have common numbers."""

    def __init__(self, args: Sequence[str], engine: EngineName) -> None:
        self._slots, self._make = slots(args), _engine(engine)
        self._engine: Engine | None = None
        self._spare: Spare = SimpleQueue()  # memory that the system has not to clear for each file
        self._copies = Copies()

    def parse(
        self,
        source: Source,
        stream: Stream | None,
        advance: Callable[[int], object] | None = None,
    ) -> list[RawTrace]:
        """Parse the documents in a file; their columns have all rows after :meth:`finish`."""
        raws: list[RawTrace] = []
        with stream or source.open() as opened, closing(read_ahead(opened, self._spare)) as blocks:
            engine = self._engine = self._engine or self._make(self._slots)
            reader = StreamReader(engine, source.label, advance, self._copies)
            try:
                raws.append(reader.read(blocks))
                # Two writers, or a shell, may have put several documents into one file.
                while reader.following:
                    label, following = f"{source.label}!document {len(raws) + 1}", reader.following
                    reader = StreamReader(engine, label, advance, self._copies, reader.end)
                    raws.append(reader.read(chain([padded(following)], blocks)))
            except BaseException:
                # Rows of the damaged file are left in the engine, those before it are wanted.
                self._copies.copy(engine.block, reader.start)
                self._engine = None
                raise
            if len(raws) > 1:
                raws[0].findings.source += "!document 1"
            for note in opened.notes:
                raws[0].findings.add("suspicious", note)
        return raws

    def finish(self) -> None:
        """Copy the rows that are left in the block to the columns of their files."""
        if self._engine is not None:
            self._copies.copy(self._engine.block, self._engine.rows)
            self._engine.rows = 0


def is_compiled(name: EngineName) -> bool:
    """Return whether the compiled scanner is used when ``name`` is requested."""
    return _compiled(name) is not None


def _engine(name: EngineName) -> Callable[..., Engine]:
    if compiled := _compiled(name):
        return compiled
    from workbench.load._traces.kineto._engine_python import PythonEngine

    return PythonEngine


def _compiled(name: EngineName) -> Callable[..., Engine] | None:
    """Return the engine with the compiled scanner; None where Python reads."""
    if name not in get_args(EngineName):
        msg = f"engine must be one of {get_args(EngineName)}, not {name!r}"
        raise ValueError(msg)
    if name == "python":
        return None
    try:
        from workbench.load._traces.kineto._engine_compiled import CompiledEngine
    except ImportError:
        # Installed without a compiler, for another kind of machine, or from another source.
        if name == "auto":
            return None
        msg = (
            "engine='compiled' is not built here, or from another source; install again where "
            "there are a C compiler and Python's headers (Debian: apt install gcc python3-dev), or "
            "use engine='auto'"
        )
        raise ValueError(msg) from None
    return CompiledEngine
