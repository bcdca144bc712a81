"""The command itself: its exit codes, its errors, and how it prints."""

from __future__ import annotations

import json
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


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from workbench import __version__

        typer.echo(__version__)
        raise typer.Exit


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
