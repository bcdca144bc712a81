"""Recompute published results and compare: ``python -m claims``, or ``make claims``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import claims
from workbench.errors import WorkbenchError

LOOK, IMPOSSIBLE = 1, 2
_PIPE_CLOSED = 141  # as shells report SIGPIPE


def main(words: Sequence[str] | None = None) -> int:
    """Compute the claims, print them, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m claims",
        description="Recompute published results and compare. Every claim is computed now. A claim "
        "whose data set is absent says how to get it and fails nothing.",
        epilog="Exit codes: 0 all is well; 1 a claim fails; 2 error (usage or input).",
    )
    parser.add_argument("noun", nargs="?", help="only claims about this, e.g. traces")
    parser.add_argument("--json", action="store_true", help="print JSON for a script to read")
    asked = parser.parse_args(words)
    try:
        return _run(asked.noun, as_json=asked.json)
    except WorkbenchError as error:
        print(f"claims: {error}", file=sys.stderr)
        return IMPOSSIBLE
    except BrokenPipeError:
        # The reader of the output, such as head, has enough; Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def _run(noun: str | None, *, as_json: bool) -> int:
    table = claims.run(noun, progress=_tell if sys.stderr.isatty() else None)
    if as_json:
        rows = json.loads(table.to_json(orient="records", double_precision=15))
        print(json.dumps(rows, indent=2))
    else:
        print(claims.text(table))
    sys.stdout.flush()
    return LOOK if claims.failed(table) else 0


def _tell(name: str) -> None:
    print(name, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
