"""Run every benchmark; those that need PyTorch or a browser only where these are installed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from benchmarks import (
    diagnose,
    explorers,
    exports,
    failures,
    goodput,
    imbalance,
    power,
    power_rollup,
    ranks,
    replay,
    snapshots,
    timeline,
    traces,
)

_PARTS = (
    failures, goodput, imbalance, power, replay, diagnose, ranks, power_rollup, exports, timeline,
    explorers, snapshots,
)  # fmt: skip
NEED_TORCH = ("checksums", "low_precision", "injections")
NEED_BROWSER = ("lab",)


def main() -> int:
    """Run them one after another; return the worst of what they return."""
    codes = [part.main([]) for part in _PARTS]
    codes += [_with("torch", name, "the extra inject") for name in NEED_TORCH]
    codes += [_with("playwright", name, "playwright and its browser") for name in NEED_BROWSER]
    return max(codes) or traces.main()


def _with(package: str, name: str, words: str) -> int:
    """Run one that needs a package, or say that it is dropped."""
    if find_spec(package) is None:
        print(f"# {name}: skipped, needs {words}", flush=True)
        return 0
    return int(import_module(f"benchmarks.{name}").main([]))


if __name__ == "__main__":
    sys.exit(main())
