"""What another packing and another sharding would buy: recipes side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.context_sharding import ContextStrategy, context_sharding
from workbench.analyze._imbalance.packing import Packing, packing
from workbench.analyze._imbalance.packing_balance import packing_balance
from workbench.analyze._imbalance.packing_plan import PackingPlan
from workbench.analyze._imbalance.pipeline import Parallelism, micro_batch_costs, training_steps
from workbench.tables import DOCUMENT_LENGTHS, TRAINING_SPEED


@dataclass(frozen=True)
class _Recipe:
    name: str
    builds_on: str
    plan: PackingPlan
    strategy: ContextStrategy | None


def training_speed(
    lengths: pd.DataFrame,
    plan: PackingPlan,
    parallelism: Parallelism,
    *,
    launch_tokens: int = 512,
    overhead_cost: float = 0.0,
    edge_batches: int = 20,
) -> pd.DataFrame:
    """Compare recipes of packing and sharding by the tokens they train on per time.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, in the order of arrival.
    plan
        Context, batch, crossover, queues and memory; its strategy is not used.
    parallelism
        Pipeline, data- and context-parallel ranks.
    launch_tokens
        As for :func:`workbench.analyze.context_sharding`.
    overhead_cost
        As for :func:`workbench.analyze.micro_batch_costs`.
    edge_batches
        Batches left out at both ends, as for :func:`workbench.analyze.packing_balance`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRAINING_SPEED`: plain (concatenate and cut, sequences
        sharded whole); fixed (greedy in one batch, the better of both shardings for the
        whole run); plain with documents sharded, and with adaptive sharding; delay queues
        alone; delay queues with adaptive, and with hybrid sharding.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.packing` and :func:`workbench.analyze.training_steps`.

    Notes
    -----
    Communication, the optimizer and everything that packing does not change are left out, so
    speed-ups are upper bounds.

    References
    ----------
    arXiv:2503.17924 (Plain-4D, Fixed-4D, WLB-LLM; breakdown).
    """
    DOCUMENT_LENGTHS.check(lengths)
    plain = replace(plan, strategy="plain")
    greedy = replace(plan, strategy="greedy", window_batches=1)
    queues = replace(plan, strategy="delay queues")
    recipes = (
        _Recipe("plain", "plain", plain, "per sequence"),
        _Recipe("fixed length", "plain", greedy, None),
        _Recipe("documents sharded", "plain", plain, "per document"),
        _Recipe("adaptive sharding", "documents sharded", plain, "adaptive"),
        _Recipe("delay queues", "plain", queues, "per sequence"),
        _Recipe("delay queues, adaptive", "adaptive sharding", queues, "adaptive"),
        _Recipe("delay queues, hybrid", "adaptive sharding", queues, "hybrid"),
    )
    packed = {each: packing(lengths, each) for each in (plain, greedy, queues)}
    shared = {
        each: context_sharding(packed[each], ranks=parallelism.context, launch_tokens=launch_tokens)
        for each in packed
    }
    balances = {each: _balances(packed[each], edge_batches) for each in packed}
    rows = []
    for recipe in recipes:
        fixed: tuple[ContextStrategy, ...] = ("per sequence", "per document")
        choices = fixed if recipe.strategy is None else (recipe.strategy,)
        speeds = []
        for strategy in choices:
            costs = micro_batch_costs(
                shared[recipe.plan], strategy=strategy, overhead_cost=overhead_cost
            )
            speeds.append((*_speed(costs, parallelism, edge_batches), strategy))
        speed, bubble, doubt, strategy = max(speeds)
        rows.append(
            {
                "recipe": recipe.name,
                "builds_on": recipe.builds_on,
                "packing": recipe.plan.label(),
                "context_sharding": strategy,
                "speedup_ratio": speed,
                "bubble_share": bubble,
                **balances[recipe.plan],
                "note": "; ".join(filter(None, (balances[recipe.plan]["note"], doubt))),
            }
        )
    table = pd.DataFrame(rows)
    table["speedup_ratio"] /= table["speedup_ratio"].iloc[0]
    return TRAINING_SPEED.check(TRAINING_SPEED.cast(table))


def _speed(costs: pd.DataFrame, parallelism: Parallelism, edge: int) -> tuple[float, float, str]:
    total = costs["batch"].nunique()
    edge = edge if total > 3 * edge else total // 6
    inner = costs[costs["batch"].between(edge, total - edge - 1)]
    steps = training_steps(inner, parallelism)
    time = steps["step_cost"].to_numpy()
    tokens = float(steps["length_tokens"].sum() / time.sum())
    idle = float(np.average(steps["bubble_share"], weights=time))
    return tokens, idle, str(steps["note"].iloc[0])


def _balances(packed: Packing, edge: int) -> dict[str, Any]:
    row = packing_balance(packed, edge_batches=edge).iloc[0]
    names = ["imbalance_ratio", "delay_batches", "memory_ratio", "left_square_share"]
    return {name: row[name] for name in [*names, "is_stable", "note"]}
