"""Timers that Megatron-LM prints into its log: times by rank, or the extremes over ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source, shown
from workbench.load._files.findings import Findings, Row, guarded
from workbench.load._files.text import whole_lines
from workbench.tables import MEGATRON_TIMERS

_HEAD = re.compile(r"(?P<kind>\(min, max\) time|max time|times) across ranks \(ms\):(?P<rest>.*)$")
_ITERATION = re.compile(r"\biteration[ =]\s*(\d+)/\s*\d+ *\|")
# srun --label and torchrun put the task before each line.
_TASK = re.compile(r"^(?:\d+|\[[^\]\s]+\]):\s?")
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_EXTREMES = re.compile(rf"^\s*(\S+) ?\.*: \({_NUMBER}, {_NUMBER}\)\s*$")
_LARGEST = re.compile(rf"^\s*(\S+) ?\.+: {_NUMBER}\s*$")
_NAME = re.compile(r"^\s+(\S+):\s*$")
_RANK = re.compile(rf"^\s+rank\s+(\d+): {_NUMBER}\s*$")
_NS_PER_MS = 1_000_000


def megatron_timers(path: str | Path) -> pd.DataFrame:
    """Read the timers of a Megatron-LM log.

    A timer sums what one kind of work took on a rank, per iteration: there are no single
    operations in it, so it says who is slow and not when.

    Parameters
    ----------
    path
        The log of a run with ``--timing-log-level``; with ``--timing-log-option all`` it has a time
        for every rank, otherwise only the extremes over ranks. May be compressed.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MEGATRON_TIMERS`: ``position``, ``step``, ``timer``,
        ``statistic``, ``rank``, ``dur_ns``, in the order of the file. ``attrs["left_out"]`` counts
        a last line without a line end, which may be cut, and damage of a packed file.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the log has no timers, or one block has two times for a timer of a rank.

    Notes
    -----
    Megatron-LM prints timers after the line of the last iteration of an interval, as means over its
    iterations; timers of checkpoints and of the start have no such meaning and stand under the
    names that they have. Lines of other programs between those of a block are skipped. A rank
    without a time in a timer (0) is not printed.

    References
    ----------
    NVIDIA/Megatron-LM, megatron/core/timers.py: ``_get_global_min_max_time_string`` and
    ``_get_all_ranks_time_string``.
    """
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(file)
    findings = Findings(shown(file))
    with guarded(shown(file), "timers"):
        rows = list(_rows(whole_lines(Source(shown(file), file), findings)))
    if not rows:
        msg = (
            f"{shown(file)}: no timers of Megatron-LM; log with --timing-log-level 2 and "
            "--timing-log-option all"
        )
        raise LoadError(msg)
    table = pd.DataFrame(rows)
    twice = table.duplicated(["position", "timer", "statistic", "rank"])
    if twice.any():
        row = table[twice].iloc[0]
        msg = (
            f"{shown(file)}, line {row['line']:,}: timer {row['timer']!r} has a second time for "
            f"{row['statistic']} {'' if pd.isna(row['rank']) else int(row['rank'])}; are the logs "
            "of several runs in one file?"
        )
        raise LoadError(msg)
    table = MEGATRON_TIMERS.cast(table[list(MEGATRON_TIMERS.columns)])
    lost = {"truncated", "dropped", "suspicious"}
    table.attrs = {"left_out": {what: n for _, kind, what, n, _ in findings.rows() if kind in lost}}
    return MEGATRON_TIMERS.check(table, shown(file))


def _rows(lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    """Yield one row per printed time; a block goes on until the next head or iteration."""
    block, kind, timer, iteration = -1, "", "", None
    for number, raw in lines:
        line = _TASK.sub("", raw)
        if match := _ITERATION.search(line):
            iteration, kind = int(match[1]), ""
        elif head := _HEAD.search(line):
            block, kind, timer = block + 1, head["kind"], ""
            line = head["rest"]
        if not kind:
            continue
        if kind == "times" and (name := _NAME.match(line)):
            timer = name[1]
        for name_of, statistic, rank, text in _times(line, kind, timer):
            yield {
                "position": block, "step": iteration, "timer": name_of, "statistic": statistic,
                "rank": rank, "dur_ns": _nanoseconds(text), "line": number,
            }  # fmt: skip


def _nanoseconds(text: str) -> float:
    time_ns = float(text) * _NS_PER_MS
    # Infinite ones stay so, for the table to refuse.
    return round(time_ns) if math.isfinite(time_ns) else time_ns


def _times(line: str, kind: str, timer: str) -> list[tuple[str, str, int | None, str]]:
    """Return timer, statistic, rank and time of what one line of a block states."""
    if kind == "times":
        match = _RANK.match(line)
        return [(timer, "rank", int(match[1]), match[2])] if match and timer else []
    if match := (_LARGEST if kind == "max time" else _EXTREMES).match(line):
        statistics = ("max",) if kind == "max time" else ("min", "max")
        times = zip(statistics, match.groups()[1:], strict=True)
        return [(match[1], name, None, text) for name, text in times]
    return []
