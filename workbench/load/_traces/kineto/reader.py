"""PyTorch profiler (Kineto) traces of every generation since 2021."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.stream import Stream
from workbench.load._traces.kineto._engine_python import PythonEngine
from workbench.load._traces.kineto._stream import Engine, StreamReader
from workbench.load._traces.kineto.rank import RankTables, rank_tables, slots

EngineName = Literal["auto", "compiled", "python"]

# Below this size of all files of a process, importing the compiler takes longer than it saves.
_COMPILED_FROM_BYTES = 24 << 20
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
    """Read one Kineto file; :func:`workbench.load.traces` is the front door.

    ``advance`` is called with the bytes of each block, for a progress bar.
    """
    wanted = slots(args)
    parser = _engine(engine, source.size_bytes)(wanted)
    with stream or source.open() as opened:
        raw = StreamReader(opened, parser, wanted, source.label, advance).read()
    return rank_tables(raw, label=source.label, args=args, rules=rules)


def is_worth_compiling(size_bytes: int) -> bool:
    """Say whether a process that reads so many bytes in all ends sooner with compiled code."""
    return size_bytes >= _COMPILED_FROM_BYTES and importlib.util.find_spec("numba") is not None


def _engine(name: EngineName, size_bytes: int) -> Callable[..., Engine]:
    if name not in get_args(EngineName):
        msg = f"engine must be one of {get_args(EngineName)}, not {name!r}"
        raise ValueError(msg)
    if name == "compiled" and importlib.util.find_spec("numba") is None:
        msg = "engine='compiled' needs numba: pip install 'ai-infra-workbench[fast]'"
        raise ValueError(msg)
    if name == "python" or (name == "auto" and not is_worth_compiling(size_bytes)):
        return PythonEngine
    from workbench.load._traces.kineto._engine_compiled import CompiledEngine

    return CompiledEngine
