"""PyTorch, asked for only when something is injected."""

from __future__ import annotations

from typing import Any

from workbench.errors import MissingExtraError


def torch() -> Any:
    """Give the torch module, or say how to get it."""
    try:
        import torch as module
    except ImportError as error:
        msg = (
            "injecting faults needs PyTorch, which is not installed; "
            "pip install 'ai-infra-workbench[inject]' (results load and plot without it)"
        )
        raise MissingExtraError(msg) from error
    return module
