"""Fault injection into PyTorch models; the only folder that knows torch."""

from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections._shipped import (
    SHIPPED,
    shipped_facts,
    shipped_inputs,
    shipped_judge,
    shipped_model,
)

__all__ = [
    "SHIPPED",
    "Judge",
    "shipped_facts",
    "shipped_inputs",
    "shipped_judge",
    "shipped_model",
]
