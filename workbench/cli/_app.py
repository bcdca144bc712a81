"""The command itself: its exit codes, its errors, and how it prints."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import pandas as pd

_LINE_BREAK = "\n"
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
            tell(say(str(error)))
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


# Arguments of loaders that are options of the commands, and those that only Python has.
_OPTIONS = ("tz", "year", "boot_time", "node", "unit")
_ONLY_PYTHON = (
    "period_s", "scope", "rank", "reading", "columns", "column", "operations", "time_unit", "tool",
    "tokens_per_step", "args", "rules", "engine", "cache", "window_s", "campaign", "outcomes",
    "zero_run_rows",
)  # fmt: skip
_VALUE = r"""(?:"([^"]*)"|'([^']*)'|([\w.+:-]*\w))?"""
_ARGUMENT = re.compile(rf"(?<![\w.-])({'|'.join(_OPTIONS)})={_VALUE}")
_NAME = re.compile(rf"(?<![\w.-])(boot_time\b|(?:{'|'.join(_OPTIONS)})(?= must\b)|"
                   rf"(?<=pass )(?:{'|'.join(_OPTIONS)})\b)(?!=)")  # fmt: skip
_UNSAID = re.compile(rf"(?<![\w.-])({'|'.join(_ONLY_PYTHON)})=")


def say(message: str) -> str:
    """Put what a loader says to Python into the words of the command.

    Loaders name their arguments; here they become the options of the command. Arguments that
    no command has are said to be of Python.

    Examples
    --------
    >>> say('a.log, line 3 has no time zone; pass tz="UTC", or the zone of the host')
    'a.log, line 3 has no time zone; pass --tz UTC, or the zone of the host'
    >>> say("holds no time; pass period_s=, the seconds")
    'holds no time; pass period_s, the seconds (period_s: only in Python, as an argument of load)'
    """
    plain = _ARGUMENT.sub(_as_option, message)
    plain = _NAME.sub(lambda found: f"--{found[1].replace('_', '-')}", plain)
    lacking = dict.fromkeys(found[1] for found in _UNSAID.finditer(plain))
    hint = f" ({' and '.join(lacking)}: only in Python, as an argument of load)" if lacking else ""
    return _UNSAID.sub(_as_words, plain) + hint


def _as_option(found: re.Match[str]) -> str:
    value = found[2] or found[3] or found[4] or ""
    shown = f'"{value}"' if " " in value else value
    return f"--{found[1].replace('_', '-')}" + (f" {shown}" if value else "")


def _as_words(found: re.Match[str]) -> str:
    rest = found.string[found.end() : found.end() + 1]
    return found[1] if rest in ("", " ", ",", ";", ".", ")") else f"{found[1]} "


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


def plain(text: object, *, kept: str = "") -> str:
    """Write what a terminal might obey as code: names of files may hold anything."""
    return "".join(
        c
        if c.isprintable() or c in kept
        else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in str(text)
    )


def tell(message: str) -> None:
    """Print a message of the workbench, which may have several lines, on stderr."""
    typer.echo(f"workbench: {plain(message, kept=_LINE_BREAK)}", err=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def print_table(frame: pd.DataFrame, *, as_json: bool) -> None:
    if as_json:
        print_json(records(frame))
    else:
        typer.echo(frame.to_string(index=False, max_colwidth=60))
