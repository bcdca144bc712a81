"""Small models that come with weights, and one to test engines by; torch is imported when used."""

from __future__ import annotations

import importlib
from typing import Any

from workbench.inject._model import torch

__all__ = ["DLRM", "DotInteraction", "Entangled", "LeNet", "TicketClassifier", "entangled_inputs"]


def __getattr__(name: str) -> Any:
    """Import a class when it is first requested."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    torch()
    return getattr(importlib.import_module(f"{__name__}.networks"), name)
