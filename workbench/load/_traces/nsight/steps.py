"""Which NVTX ranges mark the steps of training."""

from __future__ import annotations

import re

import numpy as np

from workbench._shared.profiler_steps import is_step_name
from workbench.load._files.findings import Findings
from workbench.load._traces.columns import Rows
from workbench.load._traces.kineto.blocks import Texts

_WORDS = r"(?:(?:train(?:ing)?|global|optimi[sz]ation)[ _-]?)?(?:step|iteration|iter)"
_NUMBERED = re.compile(rf"^({_WORDS})[ _#:=-]*(\d{{1,9}})$", re.IGNORECASE)
_BARE = re.compile(rf"^{_WORDS}$", re.IGNORECASE)
_FEWEST = 2


def as_steps(rows: Rows, texts: Texts, findings: Findings) -> Rows:
    """Name the ranges that mark steps as PyTorch's profiler does, which is how they are known.

    Ranges named ``step 12`` or ``iteration_12`` count, of several such words the one with the most
    rows; without any, ranges of one such word alone, numbered in order on their thread. Nothing is
    renamed where PyTorch's profiler marked the steps itself.

    Examples
    --------
    >>> texts, ones = Texts(), np.ones(2, np.int64)
    >>> name = np.array([texts.code("iteration 7"), texts.code("iteration 8")], np.int32)
    >>> rows = Rows(ones, ones, name, name, name, name)
    >>> [texts.all()[code] for code in as_steps(rows, texts, Findings("a")).name]
    ['ProfilerStep#7', 'ProfilerStep#8']
    """
    spelled = texts.all()
    used = {int(code): spelled[code] for code in np.unique(rows.name)}
    if any(map(is_step_name, used.values())):
        return rows
    counts = np.bincount(rows.name, minlength=len(spelled))
    by_word: dict[str, dict[int, int]] = {}
    for code, text in used.items():
        if match := _NUMBERED.match(text):
            by_word.setdefault(match[1], {})[code] = int(match[2])
    if by_word:
        word, numbers = max(by_word.items(), key=lambda entry: (len(entry[1]), entry[0]))
        renamed = dict.fromkeys(numbers)
        table = np.arange(len(spelled), dtype=np.int32)
        for code in renamed:
            table[code] = texts.code(f"ProfilerStep#{numbers[code]}")
        what = f"ranges '{word} N' taken as steps and named ProfilerStep#N"
        findings.add("noted", what, int(counts[list(numbers)].sum()))
        rows.name = table[rows.name]
        return rows
    bare = [code for code, text in used.items() if _BARE.match(text) and counts[code] >= _FEWEST]
    if bare:
        _number(rows, max(bare, key=lambda code: int(counts[code])), texts, findings)
    return rows


def _number(rows: Rows, code: int, texts: Texts, findings: Findings) -> None:
    """Enumerate equal ranges in order of time, in each process separately."""
    word = texts.all()[code]
    marked = np.flatnonzero(rows.name == code)
    marked = marked[np.argsort(rows.start[marked], kind="stable")]
    seen: dict[int, int] = {}
    for row in marked:
        process = int(rows.process[row])
        seen[process] = seen.get(process, -1) + 1
        rows.name[row] = texts.code(f"ProfilerStep#{seen[process]}")
    what = f"ranges '{word}' taken as steps, numbered in order and named ProfilerStep#N"
    findings.add("assumed", what, len(marked))
