"""PyTorch profiler (Kineto) traces of every generation since 2021."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Literal, get_args

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.stream import Stream
from workbench.load._traces.kineto._engine_python import PythonEngine
from workbench.load._traces.kineto._stream import Engine, RawTrace, Spare, StreamReader
from workbench.load._traces.kineto.blocks import Copies
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
) -> RankTables:
    """Read one Kineto file; :func:`workbench.load.traces` is the entry point.

    ``advance`` is called with the bytes of each block, for a progress bar.
    """
    parser = Parser(args, engine)
    raw = parser.parse(source, stream, advance)
    parser.finish()
    return rank_tables(raw, label=source.label, args=args, rules=rules)


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
    ) -> RawTrace:
        """Parse a file; its columns have all their rows after :meth:`finish`."""
        with stream or source.open() as opened:
            engine = self._engine = self._engine or self._make(self._slots)
            reader = StreamReader(opened, engine, source.label, advance, self._spare, self._copies)
            try:
                return reader.read()
            except BaseException:
                # Rows of the damaged file are left in the engine, those before it are wanted.
                self._copies.copy(engine.block, reader.start)
                self._engine = None
                raise

    def finish(self) -> None:
        """Copy the rows that are left in the block to the columns of their files."""
        if self._engine is not None:
            self._copies.copy(self._engine.block, self._engine.rows)
            self._engine.rows = 0


def is_compiled(name: EngineName) -> bool:
    """Return whether the compiled scanner is used when ``name`` is requested."""
    return _engine(name) is not PythonEngine


def _engine(name: EngineName) -> Callable[..., Engine]:
    if name not in get_args(EngineName):
        msg = f"engine must be one of {get_args(EngineName)}, not {name!r}"
        raise ValueError(msg)
    if name == "python":
        return PythonEngine
    try:
        from workbench.load._traces.kineto._engine_compiled import CompiledEngine
    except ImportError:
        # Installed without a compiler, for another kind of machine, or from another source.
        if name == "auto":
            return PythonEngine
        msg = (
            "engine='compiled' is not built here, or from another source; install again where "
            "there are a C compiler and Python's headers (Debian: apt install gcc python3-dev), or "
            "use engine='auto'"
        )
        raise ValueError(msg) from None
    return CompiledEngine
