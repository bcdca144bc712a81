"""What the explorers of the packing lab share: data sets by name, streams of documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import ipywidgets as widgets
import pandas as pd

from workbench import analyze
from workbench.analyze import PackingPlan
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider

K = 1024
_MOST_DOCUMENTS = 60_000
# Thresholds of the queues as shares of the context, by how they are called.
QUEUES: Mapping[str, tuple[float, ...]] = {
    "no queue": (),
    "1/4": (1 / 4,),
    "1/4, 1/2": (1 / 4, 1 / 2),
    "1/4, 1/2, 3/4": (1 / 4, 1 / 2, 3 / 4),
    "1/16 (too low for long tails)": (1 / 16,),
}

Lengths = pd.DataFrame | Mapping[str, pd.DataFrame]
Stream = Callable[[str, int, int], pd.DataFrame]


def named(lengths: Lengths) -> dict[str, pd.DataFrame]:
    """Give data sets a name each; a single one is called documents."""
    sets = {"documents": lengths} if isinstance(lengths, pd.DataFrame) else dict(lengths)
    if not sets:
        msg = "no lengths to explore; pass a table of load.document_lengths, or several by name"
        raise WorkbenchError(msg)
    return sets


def streams(sets: Mapping[str, pd.DataFrame], batches: int) -> Stream:
    """Return a function that draws a stream of some global batches, and remembers it."""

    @lru_cache(maxsize=32)
    def draw(name: str, context_k: int, sequences: int) -> pd.DataFrame:
        whole = sequences * context_k * K
        # Short documents would be millions; fewer batches of them say as much.
        affordable = int(_MOST_DOCUMENTS * float(sets[name]["length_tokens"].mean()))
        tokens = max(min(batches * whole, affordable), 12 * whole)
        return analyze.sample_documents(sets[name], token_count=tokens)

    return draw


def set_choice(sets: Mapping[str, pd.DataFrame]) -> widgets.Dropdown:
    """Offer the data sets."""
    return widgets.Dropdown(options=list(sets), description="documents")


def context_choice(*, values: tuple[int, ...] = (32, 64, 128, 160)) -> widgets.SelectionSlider:
    """Offer contexts in thousands of tokens."""
    return slider("context", [(f"{each}K", each) for each in values], 128)


def crossover_choice(*, values: tuple[int, ...], value: int) -> widgets.SelectionSlider:
    """Offer lengths at which attention overtakes the rest, in thousands of tokens."""
    return slider("crossover", [(f"{each}K", each) for each in values], value)


def plan_of(
    *, context_k: int, crossover_k: float, queues: str, memory: float, sequences: int = 4
) -> PackingPlan:
    """Make a plan of what the controls say."""
    context = context_k * K
    return PackingPlan(
        context_tokens=context,
        batch_sequences=sequences,
        crossover_tokens=crossover_k * K,
        queues_from_tokens=tuple(int(share * context) for share in QUEUES[queues]),
        memory_ratio=memory,
    )
