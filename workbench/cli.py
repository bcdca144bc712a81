"""The ``workbench`` command: a thin skin over the public functions.

Every command prints its result on standard output and everything else on standard error.
Exit codes are the same everywhere: 0 all is well, 1 there is something to look at, 2 it
could not be done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import pandas as pd

LOOK = 1
IMPOSSIBLE = 2

_EXIT_CODES = """\b
Exit codes: 0 all is well; 1 there is something to look at;
2 it could not be done (wrong usage, unreadable or missing input)."""


class _CleanErrors(TyperGroup):
    """Show errors raised on purpose as one message, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn its expected errors into exit code 2."""
        try:
            return super().invoke(ctx)
        except (WorkbenchError, OSError) as error:
            typer.echo(f"workbench: {error}", err=True)
            raise typer.Exit(IMPOSSIBLE) from None


def _app(about: str) -> typer.Typer:
    return typer.Typer(
        cls=_CleanErrors,
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _app(
    "Load, analyse, plot and explore how large AI training jobs behave.\n\n"
    "\b\nExamples:\n"
    "  workbench lab                          JupyterLab on the notebooks\n"
    "  workbench report --data runs/monday    the notebooks on your own traces, as pages\n"
    "  workbench check rank0.pt.trace.json    what a file holds and what is wrong with it\n\n"
    + _EXIT_CODES
)
datasets_app = _app("List, fetch and verify data sets, bundled and public.\n\n" + _EXIT_CODES)
app.add_typer(datasets_app, name="datasets")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script to read.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder (or file, or archive) with your own traces; the best set at hand by default.",
        exists=True,
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from workbench import __version__

        typer.echo(__version__)
        raise typer.Exit


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


@app.command("check")
def check_files(
    files: Annotated[list[Path], typer.Argument(help="Traces: files, folders or archives.")],
    as_json: Json = False,
) -> None:
    """Say what files hold, and what had to be repaired, left out or assumed.

    Exit code 0 if every file is clean, 1 if one has findings that need a look, 2 if one
    cannot be read at all.

    \b
    Examples:
      workbench check rank0.pt.trace.json.gz
      workbench check --json runs/monday runs/tuesday > quality.json
    """
    from workbench import load

    results: list[dict[str, Any]] = []
    for file in files:
        try:
            found, error = load.quality(file), None
        except (WorkbenchError, OSError) as problem:
            found, error = None, str(problem)
        results.append({"path": str(file), "error": error, "findings": _records(found)})
    if as_json:
        _print_json(results)
    else:
        for result in results:
            _print_findings(result)
    if any(result["error"] for result in results):
        raise typer.Exit(IMPOSSIBLE)
    if any(row["finding"] != "read" for result in results for row in result["findings"]):
        raise typer.Exit(LOOK)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="Trace: file, folder or archive.", exists=True)],
    target: Annotated[Path, typer.Argument(help="File to write, ending in .parquet.")],
) -> None:
    """Write a trace as Parquet, which loads many times faster.

    \b
    Examples:
      workbench convert runs/monday monday.parquet
    """
    from workbench import load

    if target.suffix != ".parquet":
        msg = f"{target}: the target must end in .parquet"
        raise typer.BadParameter(msg)
    trace = load.traces(source)
    load.write_parquet(trace, target)
    typer.echo(target)
    typer.echo(repr(trace), err=True)


@datasets_app.command("list")
def datasets_list(as_json: Json = False) -> None:
    """List the data sets: where each lies, how large it is, and its licence.

    \b
    Examples:
      workbench datasets list
      workbench datasets list --json
    """
    from workbench import datasets

    table = datasets.describe()
    shown = ["dataset", "place", "file_count", "size_bytes", "licence", "about"]
    _print_table(table if as_json else table[shown], as_json=as_json)


@datasets_app.command("fetch")
def datasets_fetch(
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
        _print_json(folders)
    else:
        for folder in folders.values():
            typer.echo(folder)


@datasets_app.command("verify")
def datasets_verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names; every set at hand by default.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare every file of data sets with its checksum; exit code 1 if one differs.

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
    _print_table(table[["dataset", "file", "size_bytes", "verdict"]], as_json=as_json)
    if (table["verdict"] != "ok").any():
        raise typer.Exit(LOOK)


@app.command("fidelity")
def fidelity_claims(
    noun: Annotated[
        str | None, typer.Argument(help="Only claims about this, e.g. traces.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare what the workbench computes with numbers that others printed.

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
        _print_json(_records(table))
    else:
        typer.echo(fidelity.text(table))
    if fidelity.failed(table):
        raise typer.Exit(LOOK)


def _notebooks_folder() -> Path:
    """Give the folder with the notebooks: inside the installed package, or of the clone."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if folder.is_dir():
            return folder
    msg = f"{package}: the notebooks are missing; install ai-infra-workbench again"
    raise WorkbenchError(msg)


def _notebooks() -> list[Path]:
    return sorted(_notebooks_folder().glob("[0-9]*.ipynb"))


def _notebooks_to_edit() -> Path:
    """Give a folder of notebooks a person may change: never the installed package."""
    import shutil

    folder = _notebooks_folder()
    if folder.name == "notebooks":
        return folder
    copy = Path("workbench-notebooks")
    copy.mkdir(exist_ok=True)
    for notebook in folder.iterdir():
        if notebook.is_file() and not (copy / notebook.name).exists():
            shutil.copyfile(notebook, copy / notebook.name)
    return copy


def _records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Turn a table into plain rows, missing values into None."""
    if frame is None:
        return []
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def _print_table(frame: pd.DataFrame, *, as_json: bool) -> None:
    if as_json:
        _print_json(_records(frame))
    else:
        typer.echo(frame.to_string(index=False, max_colwidth=60))


def _print_findings(result: dict[str, Any]) -> None:
    if result["error"]:
        typer.echo(f"workbench: {result['error']}", err=True)
        return
    typer.echo(f"{result['path']}:")
    for row in result["findings"]:
        place = f" (first: {row['where']})" if row["where"] else ""
        typer.echo(f"  {row['finding']:<12}{row['count']:>12,}  {row['what']}{place}")
