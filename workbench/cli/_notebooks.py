"""Commands that work on notebooks: lab, report, publish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli._app import LOOK, app
from workbench.errors import WorkbenchError

Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder (or file, or archive) with your own traces; the best set at hand by default.",
        exists=True,
        show_default=False,
    ),
]


@app.command()
def lab(
    data: Data = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port to listen on; the next free one if taken.")
    ] = 8888,
) -> None:
    """Open JupyterLab on the notebooks; stop it with Ctrl-C.

    From a clone, the notebooks of the clone are opened. From an installed package, they
    are first copied to ./workbench-notebooks; files that are there already are kept.

    \b
    Examples:
      workbench lab
      workbench lab --data runs/monday --no-browser
    """
    folder = _notebooks_to_edit()
    command = [sys.executable, "-m", "jupyterlab", str(folder), f"--port={port}"]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        typer.echo("Running as root, as in a container: passing --allow-root.", err=True)
        command.append("--allow-root")
    environment = dict(os.environ)
    if data is not None:
        environment["WORKBENCH_DATA"] = str(data.resolve())
    try:
        raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command()
def report(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks to include; all by default.", show_default=False),
    ] = None,
    data: Data = None,
    out: Annotated[Path, typer.Option(help="Folder to write; made if need be.")] = Path("_report"),
) -> None:
    """Write the notebooks as an offline static site and print the path of its first page.

    The notebooks are run anew, on your own traces with --data. The site needs no network:
    it can be mailed as a folder or put on any web server.

    \b
    Examples:
      workbench report
      workbench report --data runs/monday --out monday 01_traces.ipynb
    """
    from workbench import share

    typer.echo(share.report(notebooks or _notebooks(), out=out, data=data))


@app.command()
def publish(
    notebooks: Annotated[list[Path], typer.Argument(help="Notebooks to publish, in place.")],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if a notebook is out of date.")
    ] = False,
) -> None:
    """Run notebooks and save them as they should be committed.

    Every figure gets a picture for places that run no scripts, widget state is taken out
    and outputs are made byte-stable. A notebook with an error or over 1 MB is refused.

    \b
    Examples:
      workbench publish notebooks/01_traces.ipynb
      workbench publish --check notebooks/*.ipynb
    """
    from workbench import share
    from workbench.errors import PublishError

    refused = 0
    for notebook in notebooks:
        try:
            share.publish(notebook, check=check)
        except PublishError as error:
            refused += 1
            typer.echo(f"workbench: {error}", err=True)
        else:
            typer.echo(f"{notebook}: {'up to date' if check else 'published'}")
    if refused:
        raise typer.Exit(LOOK)


def notebooks_folder() -> Path:
    """Give the folder with the notebooks: inside the installed package, or of the clone."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if folder.is_dir():
            return folder
    msg = f"{package}: the notebooks are missing; install ai-infra-workbench again"
    raise WorkbenchError(msg)


def _notebooks() -> list[Path]:
    return sorted(notebooks_folder().glob("[0-9]*.ipynb"))


def _notebooks_to_edit() -> Path:
    """Give a folder of notebooks a person may change: never the installed package."""
    folder = notebooks_folder()
    if folder.name == "notebooks":
        return folder
    copy = Path("workbench-notebooks")
    copy.mkdir(exist_ok=True)
    for notebook in folder.iterdir():
        if notebook.is_file() and not (copy / notebook.name).exists():
            shutil.copyfile(notebook, copy / notebook.name)
    return copy
