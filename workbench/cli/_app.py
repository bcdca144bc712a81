"""The command itself: its exit codes, its errors, and how it prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

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


def group(about: str) -> typer.Typer:
    """Make a group of commands whose help ends with the exit codes."""
    return typer.Typer(
        cls=_CleanErrors,
        help=f"{about}\n\n{_EXIT_CODES}",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


PowerUnit = Annotated[
    Literal["W", "kW", "MW", "mW"] | None,
    typer.Option(help="Unit of columns of power that name none.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script to read.")]


def records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Turn a table into plain rows, missing values into None."""
    if frame is None:
        return []
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def print_table(frame: pd.DataFrame, *, as_json: bool) -> None:
    if as_json:
        print_json(records(frame))
    else:
        typer.echo(frame.to_string(index=False, max_colwidth=60))
