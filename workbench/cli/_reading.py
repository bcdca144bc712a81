"""Options that say what files do not, shared by all commands that read data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli._app import PowerUnit, say

Zone = Annotated[
    str | None,
    typer.Option(
        help="Time zone of stamps that have none, e.g. UTC or +01:00.", show_default=False
    ),
]
Year = Annotated[
    int | None,
    typer.Option(help="Year of stamps that have none, of the first of a file.", show_default=False),
]
BootTime = Annotated[
    str | None,
    typer.Option(
        help="When the host was booted, for stamps that count seconds since then.",
        show_default=False,
    ),
]
Node = Annotated[
    list[str] | None,
    typer.Option(
        help="Host of files that name none: HOST, or a pattern for the file name that matches it, "
        "or PART=HOST for files with PART in their name (may be repeated).",
        show_default=False,
    ),
]
Unit = PowerUnit
# Characters that patterns have and hosts have not.
_OF_PATTERNS = re.compile(r"[\\\[\](){}*+?|^$]")


def options_of(
    tz: str | None,
    year: int | None,
    boot_time: str | None,
    node: list[str] | None,
    unit: str | None,
) -> dict[str, Any]:
    """Return the options as the arguments of the loaders; refuse what means nothing.

    Raises
    ------
    typer.BadParameter
        If an option cannot be used; names it.
    """
    from workbench.load.kinds import Options

    hosts = _hosts(node)
    try:
        Options(tz, year, boot_time, hosts).check()
    except ValueError as error:
        name = re.match(r"tz|year|boot_time", str(error))
        hint = f"--{name[0].replace('_', '-')}" if name else None
        raise typer.BadParameter(say(str(error)), param_hint=hint) from None
    return {"tz": tz, "year": year, "boot_time": boot_time, "node": hosts, "unit": unit}


def _hosts(said: list[str] | None) -> str | dict[str, str] | re.Pattern[str] | None:
    """Return the host, the pattern or the parts of file names that were said."""
    if not said:
        return None
    pairs = [text.partition("=") for text in said]
    if all(part and sign and host for part, sign, host in pairs):
        return {part: host for part, _, host in pairs}
    if len(said) > 1:
        msg = f"several are given as PART=HOST, e.g. rack1=node001; got {', '.join(said)}"
        raise typer.BadParameter(msg, param_hint="--node")
    if not _OF_PATTERNS.search(said[0]):
        return said[0]
    try:
        return re.compile(said[0])
    except re.error as error:
        msg = f"{said[0]!r} is no pattern ({error})"
        raise typer.BadParameter(msg, param_hint="--node") from None


def plain_options(options: dict[str, Any], data: Path | None) -> dict[str, Any]:
    """Return options as plain values that a cell of a notebook can hold.

    A pattern becomes the host of each file that it matches.
    """
    node = options["node"]
    if data is None or not isinstance(node, re.Pattern):
        return options
    from workbench.load.kinds import hosts_by_file

    return {**options, "node": hosts_by_file(data.resolve(), node)}
