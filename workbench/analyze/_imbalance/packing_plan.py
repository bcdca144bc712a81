"""A way of packing, as plain settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from workbench.errors import WorkbenchError

Strategy: TypeAlias = Literal["plain", "greedy", "solver", "delay queues", "best fit"]

_K = 1024


_WHOLE = ("context_tokens", "batch_sequences", "window_batches")
# memory_ratio: at 1 a document as long as the context would never be packed.
_ABOVE = {"crossover_tokens": 0.0, "memory_ratio": 1.0, "solver_s": 0.0}


def is_whole(value: Any, least: int = 1) -> bool:
    """Say whether a value is a whole number, of Python or numpy, from ``least`` on."""
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return number and bool(value >= least)


def is_between(value: Any, low: float, high: float) -> bool:
    """Say whether a value is a number above ``low`` and below ``high``."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and bool(low < value < high)


@dataclass(frozen=True)
class PackingPlan:
    """A way of packing documents into global batches.

    Parameters
    ----------
    strategy
        ``"plain"`` concatenates all documents and cuts every context; ``"greedy"`` puts the
        pieces of a window anew into sequences of one length, longest first; ``"solver"``
        does that exactly; ``"delay queues"`` packs sequences of any length and lets long
        documents wait for each other (WLB-LLM); ``"best fit"`` is best-fit decreasing with
        whole documents, as trainers ship it.
    context_tokens
        Length of a sequence, and the longest piece of a document.
    batch_sequences
        Micro-batches in a global batch: those of the pipeline times data-parallel ranks.
    crossover_tokens
        Length at which attention costs as much as everything else.
    window_batches
        Global batches that greedy, solver and best fit look at together.
    queues_from_tokens
        Lengths from which documents wait, ascending; only for delay queues.
    memory_ratio
        Tokens a micro-batch must stay below, over the context; only for delay queues.
    slack_ratio
        Tokens by which the solver may exceed the context, over the context.
    solver_s
        Seconds the solver has for each window.

    Raises
    ------
    WorkbenchError
        If a value is impossible; the message lists all of them.
    """

    strategy: Strategy = "plain"
    context_tokens: int = 128 * _K
    batch_sequences: int = 4
    crossover_tokens: float = 28 * _K
    window_batches: int = 1
    queues_from_tokens: tuple[int, ...] = (32 * _K, 64 * _K)
    memory_ratio: float = 1.25
    slack_ratio: float = 0.01
    solver_s: float = 10.0

    def __post_init__(self) -> None:
        values: dict[str, Any] = vars(self)
        if isinstance(values["queues_from_tokens"], list):
            # A plan is a key of dictionaries.
            object.__setattr__(self, "queues_from_tokens", tuple(values["queues_from_tokens"]))
        queues = values["queues_from_tokens"]
        wrong = [
            f"{name} {values[name]!r}, not a whole number of at least 1"
            for name in _WHOLE
            if not is_whole(values[name])
        ]
        wrong += [
            f"{name} {values[name]!r}, not a number above {least:g}"
            for name, least in _ABOVE.items()
            if not is_between(values[name], least, np.inf)
        ]
        if self.strategy not in get_args(Strategy):
            wrong.append(f"strategy {self.strategy!r}, not one of {get_args(Strategy)}")
        if not is_between(self.slack_ratio, -1e-12, 1):
            wrong.append(f"slack_ratio {self.slack_ratio!r}, not from 0 to below 1")
        if not _ascend(queues):
            wrong.append(f"queues_from_tokens {queues!r}, not ascending whole numbers from 1")
        if wrong:
            msg = "impossible packing plan:\n  - " + "\n  - ".join(wrong)
            raise WorkbenchError(msg)

    def label(self) -> str:
        """Name the plan in a few words, without what it shares with others."""
        if self.strategy == "delay queues":
            steps = "/".join(short_tokens(each) for each in self.queues_from_tokens)
            queues = f"queues from {steps}" if steps else "no queue"
            return f"{queues}, memory {self.memory_ratio:g}x"
        if self.strategy == "plain":
            return "plain"
        batches = "1 batch" if self.window_batches == 1 else f"{self.window_batches} batches"
        return f"{self.strategy}, {batches}"


def _ascend(values: Any) -> bool:
    whole = isinstance(values, tuple) and all(is_whole(each) for each in values)
    return whole and list(values) == sorted(set(values))


def short_tokens(tokens: int) -> str:
    """Write a number of tokens as people say it: 32K for 32,768."""
    return f"{tokens // _K}K" if tokens % _K == 0 else f"{tokens:,}"


def packing_plans(plan: PackingPlan, windows: Iterable[int] = (1, 2, 4, 8)) -> list[PackingPlan]:
    """List the ways of packing that WLB-LLM compares, for one model and context.

    Parameters
    ----------
    plan
        Its context, batch, crossover, queues and memory are kept.
    windows
        Batches that the greedy packer looks at together, one plan for each.

    Returns
    -------
    list of PackingPlan
        Plain, greedy with each window, no queue, the longest queue alone, all queues.
    """
    queues = plan.queues_from_tokens
    return [
        replace(plan, strategy="plain"),
        *(replace(plan, strategy="greedy", window_batches=each) for each in windows),
        *(
            replace(plan, strategy="delay queues", queues_from_tokens=queues[:count])
            for count in range(len(queues) + 1)
        ),
    ]
