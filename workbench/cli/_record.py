"""The command that records power while another command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli._app import LOOK, plain, tell


def record(
    command: Annotated[list[str], typer.Argument(help="The command to run, after --.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not hold a recording.")],
    period_s: Annotated[float, typer.Option(help="Time between readings, in seconds.")] = 0.1,
) -> None:
    """Sample power, clocks and throttle reasons to Parquet while a command runs.

    The command's exit code is passed on; Ctrl-C reaches it, and what was sampled is kept.
    If sampling fails the command still runs to its end, and the exit code is 1 instead of 0.

    \b
    Examples:
      workbench record --out run1 -- python train.py --steps 200
      workbench record --out run1 --period-s 0.05 -- torchrun --nproc-per-node 8 train.py
    """
    from workbench.record import record as run_and_record

    done = run_and_record(command, out, period_s=period_s)
    for what in done.missing:
        tell(f"not sampled: {what}")
    sampled = ", ".join(done.entities) or "nothing (the command ran all the same)"
    tell(f"{done.reading_count:,} readings of {sampled} in {plain(done.folder)}")
    if done.error:
        lost = f"; {done.lost_count:,} readings are lost" if done.lost_count else ""
        tell(f"sampling ended early: {done.error}{lost}")
    raise typer.Exit(done.exit_code or (LOOK if done.error else 0))
