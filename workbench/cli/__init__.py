"""The ``workbench`` command: a thin skin over the public functions.

Every command prints its result on standard output and everything else on standard error.
Exit codes are the same everywhere: 0 all is well, 1 there is something to look at, 2 error.
"""

from typing import Annotated

import typer

from workbench.cli._app import (
    check,
    convert,
    fetch,
    group,
    list_sets,
    obfuscate,
    record,
    verify,
)
from workbench.cli._diagnose import compare, diagnose
from workbench.cli._notebooks import lab, publish, report
from workbench.cli._share import pack
from workbench.cli._watch import watch

__all__ = ["app"]

app = group(
    "Load, analyse, plot and explore how large AI training jobs behave.\n\n"
    "\b\nExamples:\n"
    "  workbench diagnose runs/monday         what is wrong, where and its cost\n"
    "  workbench lab                          JupyterLab on the notebooks\n"
    "  workbench report --data runs/monday    the notebooks on your own traces, as pages"
)
_PANELS = {
    "Look": (diagnose, watch, check, lab),
    "Compare": (compare,),
    "Share": (report, pack, obfuscate),
    "Data": (convert, record),
    "Develop": (publish,),
}
_datasets = group("List, fetch and verify data sets, bundled and public.")
_datasets.command("list")(list_sets)
_datasets.command()(fetch)
_datasets.command()(verify)

for panel, commands in _PANELS.items():
    for command in commands:
        app.command("share" if command is pack else None, rich_help_panel=panel)(command)
app.add_typer(_datasets, name="datasets", rich_help_panel="Data")


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Handle options of the command itself, before any of its sub-commands."""
    if version:
        from workbench import __version__

        typer.echo(__version__)
        raise typer.Exit
