"""Commands that work on data sets: list, fetch, verify."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli._app import LOOK, Json, print_json, print_table


def list_sets(as_json: Json = False) -> None:
    """List the data sets, where they lie and their licences.

    \b
    Examples:
      workbench datasets list
      workbench datasets list --json
    """
    from workbench import datasets

    table = datasets.describe()
    shown = ["dataset", "place", "file_count", "size_bytes", "licence", "about"]
    print_table(table if as_json else table[shown], as_json=as_json)


def fetch(
    names: Annotated[list[str], typer.Argument(help="Names, see: workbench datasets list.")],
    as_json: Json = False,
) -> None:
    """Get public data sets, check every file, and print the folders.

    \b
    Examples:
      workbench datasets fetch kineto-dlrm-8rank
    """
    from workbench import datasets

    folders = {name: str(datasets.fetch(name)) for name in names}
    if as_json:
        print_json(folders)
    else:
        for folder in folders.values():
            typer.echo(folder)


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names; every set at hand by default.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the files of data sets with their checksums.

    Exit code 1 if a file is missing or has changed.

    \b
    Examples:
      workbench datasets verify
      workbench datasets verify kineto-dlrm-8rank --json
    """
    import pandas as pd

    from workbench import datasets

    sets = datasets.describe()
    chosen = names or list(sets.loc[sets["place"] != "not at hand", "dataset"])
    table = pd.concat([datasets.verify(name) for name in chosen], ignore_index=True)
    print_table(table[["dataset", "file", "size_bytes", "verdict"]], as_json=as_json)
    if (table["verdict"] != "ok").any():
        raise typer.Exit(LOOK)
