"""Run every benchmark; those of fault injection only where PyTorch is installed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from benchmarks import (
    diagnose,
    explorers,
    failures,
    goodput,
    imbalance,
    power,
    replay,
    traces,
)

_PARTS = (failures, goodput, imbalance, power, replay, diagnose, explorers)
NEED_TORCH = ("checksums", "low_precision", "injections")


def main() -> int:
    """Run them one after another; return the worst of what they return."""
    codes = [part.main([]) for part in _PARTS]
    codes += [_with_torch(name) for name in NEED_TORCH]
    return max(codes) or traces.main()


def _with_torch(name: str) -> int:
    """Run one that needs PyTorch, or say that it is dropped."""
    if find_spec("torch") is None:
        print(f"# {name}: skipped, needs the extra inject", flush=True)
        return 0
    return int(import_module(f"benchmarks.{name}").main([]))


if __name__ == "__main__":
    sys.exit(main())
