"""Commands that work on trace files: check, convert."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli._app import IMPOSSIBLE, LOOK, Json, PowerUnit, print_json, records
from workbench.errors import WorkbenchError


def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="Traces, power or failure logs, injection results: files, folders."),
    ],
    tz: Annotated[
        str | None,
        typer.Option(help='Time zone of logs whose stamps have none, e.g. "UTC" or "+01:00".'),
    ] = None,
    unit: PowerUnit = None,
    as_json: Json = False,
) -> None:
    """Say what files hold and what is wrong with them.

    All that had to be repaired, left out or assumed is counted, with its first place; what
    needs a look is marked with "!". Exit code 0 if every file is clean, 1 if one has
    findings that need a look, 2 if one cannot be read at all.

    \b
    Examples:
      workbench check rank0.pt.trace.json.gz
      workbench check --tz UTC logs/node001_nvidia_smi.csv
      workbench check --json runs/monday runs/tuesday > quality.json
    """
    from workbench.tables import HARMLESS

    results = [_checked(file, tz, unit) for file in files]
    if as_json:
        print_json(results)
    else:
        for result in results:
            _print_findings(result, HARMLESS)
    if any(result["error"] for result in results):
        raise typer.Exit(IMPOSSIBLE)
    if any(row["finding"] not in HARMLESS for result in results for row in result["findings"]):
        raise typer.Exit(LOOK)


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
    load.write(trace, target)
    typer.echo(target)
    typer.echo(repr(trace), err=True)


def _checked(file: Path, tz: str | None, unit: Any) -> dict[str, Any]:
    """Give what is found in one file, or why it cannot be read."""
    from workbench import load

    found, error = None, None
    try:
        found = load.quality(file, tz=tz, unit=unit)
    except (WorkbenchError, OSError) as problem:
        error = _told(str(problem))
    except ValueError as problem:
        if tz is None and unit is None:
            raise
        hint = "--unit" if str(problem).startswith("unit ") else "--tz"
        raise typer.BadParameter(str(problem), param_hint=hint) from None
    return {"path": str(file), "error": error, "findings": records(found)}


def _told(error: str) -> str:
    """Say how to pass on the command line what a loader asks for."""
    if "; pass tz=" in error:
        return f"{error} (here: --tz UTC)"
    return f"{error} (here: --unit W)" if "pass unit=" in error else error


def _print_findings(result: dict[str, Any], harmless: Collection[str]) -> None:
    if result["error"]:
        typer.echo(f"workbench: {result['error']}", err=True)
        return
    source = None
    for row in result["findings"]:
        if row["source"] != source:
            source = row["source"]
            typer.echo(f"{source}:")
        mark = " " if row["finding"] in harmless else "!"
        place = f" (first: {row['where']})" if row["where"] else ""
        typer.echo(f"{mark} {row['finding']:<12}{row['count']:>12,}  {row['what']}{place}")
