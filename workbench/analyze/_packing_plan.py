"""A way of packing, as plain settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from workbench.errors import WorkbenchError

Strategy: TypeAlias = Literal["plain", "greedy", "solver", "delay queues", "best fit"]

_K = 1024


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
        queues = self.queues_from_tokens
        wrong = [
            text
            for text, bad in (
                (f"strategy {self.strategy!r}, not one of {get_args(Strategy)}",
                 self.strategy not in get_args(Strategy)),
                (f"context_tokens {self.context_tokens}, below 1", self.context_tokens < 1),
                (f"batch_sequences {self.batch_sequences}, below 1", self.batch_sequences < 1),
                (f"crossover_tokens {self.crossover_tokens}, not above 0",
                 not 0 < self.crossover_tokens < np.inf),
                (f"window_batches {self.window_batches}, below 1", self.window_batches < 1),
                (f"queues_from_tokens {queues}, not ascending from 1",
                 list(queues) != sorted({max(each, 1) for each in queues})),
                (f"memory_ratio {self.memory_ratio}, not above 1: a document as long as the "
                 "context would never be packed", not 1 < self.memory_ratio < np.inf),
                (f"slack_ratio {self.slack_ratio}, below 0", not 0 <= self.slack_ratio < 1),
                (f"solver_s {self.solver_s}, not above 0", not self.solver_s > 0),
            )
            if bad
        ]  # fmt: skip
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
