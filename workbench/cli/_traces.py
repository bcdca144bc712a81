"""Commands that work on trace files: check, convert."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli._app import IMPOSSIBLE, LOOK, Json, plain, print_json, records, say, tell
from workbench.cli._reading import BootTime, Node, Unit, Year, Zone, options_of
from workbench.errors import WorkbenchError


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Traces, logs of power, failures or a job, flight-recorder dumps, operations of "
            "a job, lengths, injection results: files, folders, archives."
        ),
    ],
    *,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    as_json: Json = False,
) -> None:
    """Say what files hold and what is wrong with them.

    The kind of every file is named. All that had to be repaired, left out or assumed is
    counted, with its first place; what needs a look is marked with "!". Exit code 0 if every
    file is clean, 1 if one has findings that need a look, 2 if one cannot be read at all.

    \b
    Examples:
      workbench check rank0.pt.trace.json.gz
      workbench check --tz UTC logs/node001_nvidia_smi.csv
      workbench check --json runs/monday runs/tuesday > quality.json
    """
    from workbench.tables import HARMLESS

    options = options_of(tz, year, boot_time, node, unit)
    results = [_checked(file, options) for file in files]
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
    from workbench.load.kinds import told, unfit

    if target.suffix != ".parquet":
        msg = f"{target}: the target must end in .parquet"
        raise typer.BadParameter(msg)
    if "traces" not in (files := told(source)).names:
        raise unfit(source, files, ("traces",))
    trace = load.traces(source)
    load.write(trace, target)
    typer.echo(plain(target))
    typer.echo(repr(trace), err=True)


def _checked(file: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Give the kinds of the files under a path and what is found in them, or why not."""
    from workbench import load
    from workbench.load.kinds import told

    found, error = None, None
    kinds: dict[str, list[str]] = {}
    try:
        kinds = {label: sorted(names) for label, names in told(file).kinds.items()}
        found = load.quality(file, **options)
    except (WorkbenchError, OSError) as problem:
        error = say(str(problem))
    return {"path": str(file), "error": error, "kinds": kinds, "findings": records(found)}


def _print_findings(result: dict[str, Any], harmless: Collection[str]) -> None:
    """Print the kind of every file, and below it what was found; equal findings once."""
    from workbench.tables import folded_findings

    if result["error"]:
        tell(result["error"])
        return
    rows = folded_findings(result["findings"])
    for source in dict.fromkeys([*(row["source"] for row in rows), *_unmentioned(result)]):
        kinds = result["kinds"].get(source)
        named = "" if kinds is None else f" {' and '.join(kinds) or 'not recognised'}"
        typer.echo(f"{plain(source)}:{named}")
        for row in rows:
            if row["source"] == source:
                mark = " " if row["finding"] in harmless else "!"
                place = f" (first: {row['where']})" if row["where"] else ""
                what = plain(f"{say(row['what'])}{place}")
                typer.echo(f"{mark} {row['finding']:<12}{row['count']:>12,}  {what}")


def _unmentioned(result: dict[str, Any]) -> list[str]:
    """Return the files that no finding is on; their kind is still told."""
    sources = {row["source"] for row in result["findings"]}
    return [label for label in result["kinds"] if label not in sources]
