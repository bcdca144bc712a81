"""The command that compares the workbench with numbers printed elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from workbench.cli._app import LOOK, Json, print_json, records


def fidelity(
    noun: Annotated[
        str | None, typer.Argument(help="Only claims about this, e.g. traces.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare numbers computed here with those others printed.

    Every claim is computed now. A claim whose data set is absent says how to get it and
    fails nothing. Exit code 1 if a claim fails.

    \b
    Examples:
      workbench fidelity
      workbench fidelity traces --json
    """
    from workbench import fidelity

    shown = sys.stderr.isatty()
    table = fidelity.run(noun, progress=lambda name: typer.echo(name, err=True) if shown else None)
    if as_json:
        print_json(records(table))
    else:
        typer.echo(fidelity.text(table))
    if fidelity.failed(table):
        raise typer.Exit(LOOK)
