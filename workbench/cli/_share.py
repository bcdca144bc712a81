"""The command that packs a report for others, and the names in its data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli._app import Json, plain, print_json, records
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.tables import Bundle

_COLUMNS = {"node": "host", "host": "host", "user": "user", "model": "model", "entity": "host",
            "source": "path", "path": "path"}  # fmt: skip
# Steps of a path that name nobody.
_COMMON = {
    *("data", "home", "job", "jobs", "lib", "log", "logs", "mnt", "opt", "power", "root", "run"),
    *("runs", "scratch", "srv", "tmp", "trace", "traces", "users", "usr", "var", "work", "shared"),
    *("failures", "memory", "flight", "steps"),
}
_MOST_NAMES = 20_000


def pack(
    report: Annotated[Path, typer.Argument(help="Folder that workbench report wrote.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write; by default next to the folder.", show_default=False),
    ] = None,
    anonymise: Annotated[
        bool,
        typer.Option("--anonymise", help="Replace names of hosts, users, models and paths."),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further name to replace: host=gpu-a17.", show_default=False),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A name to leave as it is.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a report as one HTML file and a zip, to send to others.

    With --anonymise names are replaced everywhere by the same pseudonym: in pages, figures,
    pictures, tables and names of files. Replacements are printed; read the list, because a
    name that is not on it stays (add it with --name). Nothing is written if a name remains.

    \b
    Examples:
      workbench share _report
      workbench share _report --anonymise --name model=atlas-70b --out for_vendor.html
    """
    from workbench import share

    folder = report.resolve()
    target = out or folder.with_name(f"{folder.name.lstrip('_')}.html")
    packed = share.pack(
        report, target, anonymise=anonymise, names=_given(name or []), keep=keep or []
    )
    if as_json:
        print_json({"page": str(packed.page), "archive": str(packed.archive),
                    "replaced": records(packed.replaced)})  # fmt: skip
        return
    for path in (packed.page, packed.archive):
        typer.echo(f"{plain(path)}  {path.stat().st_size / 1e6:.1f} MB")
    if anonymise or name:
        typer.echo(f"Replaced, {len(packed.replaced)} names (keep this list to yourself):")
    for row in packed.replaced.itertuples():
        typer.echo(f"  {row.pseudonym}: {plain(row.name)}")


def _given(texts: list[str]) -> dict[str, str]:
    names = {}
    for text in texts:
        kind, sign, name = text.partition("=")
        if not sign:
            msg = f"--name {text} is not KIND=NAME, e.g. --name host=gpu-a17"
            raise WorkbenchError(msg)
        names[name] = kind
    return names


def from_data_on(path: str, data: Path) -> str:
    """Return the path without the folders that hold the data: pages show none of them."""
    for way in (data.resolve(), data.absolute()):
        path = path.removeprefix(f"{way.parent}{os.sep}")
    return path


def names_in(bundle: Bundle, data: Path) -> dict[str, str]:
    """List the names of hosts, users, models and paths that the tables of a job hold."""
    names: dict[str, str] = {}
    for column, values in _texts(bundle):
        kind = _COLUMNS[column]
        for value in values[:_MOST_NAMES]:
            # Entities are node001/gpu3; sources are job.tar!/logs/node001.log.
            text = (
                re.sub(r"/(gpu|cpu|dram|module|package)\S*$", "", value)
                if kind == "host"
                else value
            )
            if kind == "path":
                text = from_data_on(value, data)
            is_entity_of_file = kind == "host" and "(" in text
            for step in _steps(text) if kind == "path" else [text] * (not is_entity_of_file):
                names.setdefault(step, kind)
    for step in _steps(data.absolute().name):
        names.setdefault(step, "path")
    return {name: kind for name, kind in names.items() if _is_telling(name)}


def _texts(table: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of all tables of a bundle that may hold names, each value once."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        for column in _COLUMNS.keys() & set(table.columns):
            if not pd.api.types.is_numeric_dtype(table[column]):
                yield column, [str(value) for value in table[column].dropna().unique()]
    elif is_dataclass(table):
        for field in fields(table):
            yield from _texts(getattr(table, field.name))


def _steps(path: str) -> list[str]:
    """Return the steps of a path that may name something, and file names without their endings."""
    steps = [step for step in re.split(r"[/\\!:]+", path) if step]
    return [
        re.sub(r"(\.(pt|trace|json|gz|csv|log|parquet|tar|jsonl|txt|zst))+$", "", s) for s in steps
    ]


def _is_telling(name: str) -> bool:
    is_word = name.lower() in _COMMON or re.fullmatch(r"(rank|gpu|step|trace)[_-]?\d*", name)
    return len(name) > 2 and not is_word and not name.isdecimal() and name == name.strip()
