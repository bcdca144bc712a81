"""Small models: three that come with weights and inputs to judge them on, and one to test by.

Their modules import torch, so they are imported when first requested.
"""

from __future__ import annotations

import importlib
from typing import Any

from workbench.simulate.injections._model import torch

_PLACES = {
    "DLRM": "dlrm",
    "DotInteraction": "dlrm",
    "Entangled": "entangled",
    "entangled_inputs": "entangled",
    "LeNet": "lenet",
    "TicketClassifier": "ticket_classifier",
}

__all__ = ["DLRM", "DotInteraction", "Entangled", "LeNet", "TicketClassifier", "entangled_inputs"]


def __getattr__(name: str) -> Any:
    """Import a class when it is first requested."""
    if name not in _PLACES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    torch()
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
