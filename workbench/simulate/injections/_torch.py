"""PyTorch, imported only when something is injected."""

from __future__ import annotations

from typing import Any

from workbench.errors import InjectionError, MissingExtraError


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


def refuse_compiled(model: Any) -> None:
    """Refuse models that torch.compile made, whole or in part.

    What it compiled is looked through by no hook, and its kernels may hold copies of weights,
    so faults would be reported that never reached the result.
    """
    for name, module in model.named_modules():
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        if is_compiled or type(module).__name__ == "OptimizedModule":
            msg = (
                f"model: {f'its module {name!r}' if name else 'it'} was compiled with "
                "torch.compile, and faults may not reach compiled code; pass the model as it was "
                "before (model._orig_mod)"
            )
            raise InjectionError(msg)
