"""The command itself: its exit codes, its errors, and how it prints."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.load.kinds import Told

_LINE_BREAK = "\n"
LOOK = 1
IMPOSSIBLE = 2
_PIPE_CLOSED = 141  # as shells report SIGPIPE

_EXIT_CODES = """\b
Exit codes: 0 all is well; 1 something to look at; 2 error (usage or input)."""


class _CleanErrors(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn its expected errors into exit code 2."""
        try:
            return self._invoke(ctx)
        except BrokenPipeError:
            # The reader of the output, such as head, has enough; Python flushes once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_PIPE_CLOSED) from None

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (WorkbenchError, OSError) as error:
            tell(say(str(error)))
            raise typer.Exit(IMPOSSIBLE) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under the names of their panels, each with its whole first line."""
        # Typer draws panels only with rich, which is not required, and cuts lines with "...".
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            if (command := self.get_command(ctx, name)) is None or command.hidden:
                continue
            panel = getattr(command, "rich_help_panel", None)
            title = panel if isinstance(panel, str) else "Commands"
            panels.setdefault(title, []).append((name, _first_line(command.help)))
        # One width for all, so that the descriptions of all panels begin in one column.
        width = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about) for name, about in rows])


def _first_line(about: str | None) -> str:
    return (about or "").strip().partition("\n")[0]


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
_OPTIONS = ("tz", "year", "boot_time", "node", "unit", "window")
_ONLY_PYTHON = (
    "period_s", "scope", "rank", "reading", "columns", "column", "operations", "time_unit", "tool",
    "tokens_per_step", "args", "rules", "engine", "cache", "window_s", "campaign",
    "outcomes", "zero_run_rows", "most_ranks", "client", "steps",
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
    plain = _NAME.sub(lambda match: f"--{match[1].replace('_', '-')}", plain)
    lacking = dict.fromkeys(match[1] for match in _UNSAID.finditer(plain))
    hint = f" ({' and '.join(lacking)}: only in Python, as an argument of load)" if lacking else ""
    return _UNSAID.sub(_as_words, plain) + hint


def _as_option(match: re.Match[str]) -> str:
    value = match[2] or match[3] or match[4] or ""
    shown = f'"{value}"' if " " in value else value
    return f"--{match[1].replace('_', '-')}" + (f" {shown}" if value else "")


def _as_words(match: re.Match[str]) -> str:
    next_character = match.string[match.end() : match.end() + 1]
    return match[1] if next_character in ("", " ", ",", ";", ".", ")") else f"{match[1]} "


Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script to read.")]


def records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Turn a table into plain rows, missing values into None."""
    if frame is None:
        return []
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def plain(text: object, *, kept: str = "") -> str:
    """Write what a terminal might obey as code: names of files may hold anything."""
    if (shown := str(text)).isprintable():
        return shown
    return "".join(
        c
        if c.isprintable() or c in kept
        else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in shown
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


def list_sets(as_json: Json = False) -> None:
    """List the data sets, where they lie and their licences.

    \b
    Examples:
      workbench datasets list
      workbench datasets list --json
    """
    from workbench import datasets

    table = datasets.describe()
    shown = ["dataset", "place", "file_count", "size_bytes", "licence", "about"]
    print_table(table if as_json else table[shown], as_json=as_json)


def fetch(
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
        print_json(folders)
    else:
        for folder in folders.values():
            typer.echo(folder)


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names; all available sets by default.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the files of data sets with their checksums.

    Exit code 1 if a file is missing or has changed.

    \b
    Examples:
      workbench datasets verify
      workbench datasets verify kineto-dlrm-8rank --json
    """
    import pandas as pd

    from workbench import datasets

    sets = datasets.describe()
    chosen = names or list(sets.loc[sets["place"] != "not available", "dataset"])
    table = pd.concat([datasets.verify(name) for name in chosen], ignore_index=True)
    print_table(table[["dataset", "file", "size_bytes", "verdict"]], as_json=as_json)
    if (table["verdict"] != "ok").any():
        raise typer.Exit(LOOK)


def record(
    command: Annotated[list[str], typer.Argument(help="The command to run, after --.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not hold a recording.")],
    period_s: Annotated[float, typer.Option(help="Time between readings, in seconds.")] = 0.1,
) -> None:
    """Sample power, clocks and throttle reasons during a command.

    Readings are written as Parquet. The command's exit code is passed on; Ctrl-C reaches it, and
    what was sampled is kept. If sampling fails the command still runs to its end, and the exit
    code is 1 instead of 0.

    \b
    Examples:
      workbench record --out run1 -- python train.py --steps 200
      workbench record --out run1 --period-s 0.05 -- torchrun --nproc-per-node 8 train.py
    """
    from workbench.record import record as run_and_record

    done = run_and_record(command, out, period_s=period_s)
    # On stderr: stdout belongs to the command that was measured.
    for entity in done.missing:
        tell(f"not sampled: {entity}")
    sampled = ", ".join(done.entities) or "nothing (the command ran all the same)"
    tell(f"{done.reading_count:,} readings of {sampled} in {plain(done.folder)}")
    if done.error:
        lost = f"; {done.lost_count:,} readings are lost" if done.lost_count else ""
        tell(f"sampling ended early: {done.error}{lost}")
    raise typer.Exit(done.exit_code or (LOOK if done.error else 0))


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
    window: Chosen = None,
    as_json: Json = False,
) -> None:
    """Validate input files and report problems.

    The kind of every file is named. All that had to be repaired, dropped or assumed is
    counted, with its first place; what needs a look is marked with "!". Exit code 0 if every
    file is clean, 1 if one has findings that need a look, 2 if one cannot be read at all.

    \b
    Examples:
      workbench check rank0.pt.trace.json.gz
      workbench check --tz UTC logs/node001_nvidia_smi.csv
      workbench check --json runs/monday runs/tuesday > quality.json
    """
    from workbench.tables import HARMLESS

    options = options_of(tz, year, boot_time, node, unit, window)
    results = [_checked(file, options) for file in files]
    if not any(result["error"] for result in results):
        refuse_idle_window(options, (row for result in results for row in result["findings"]))
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
    source: Annotated[Path, typer.Argument(help="File, folder or archive.", exists=True)],
    target: Annotated[Path, typer.Argument(help="Folder, or a file that ends in .parquet.")],
    *,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of data, as check names it; traces if there are.", metavar="KIND"),
    ] = None,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
) -> None:
    """Write data of any kind as Parquet, which loads many times faster.

    Of traces, a folder gets one file per rank, so that any number of ranks fits into memory; a
    second run does only what is lacking or has changed. Of logs, dumps and snapshots it gets one
    file per table. All commands read the result like the source.

    \b
    Examples:
      workbench convert runs/monday monday.parquet
      workbench convert runs/monday monday/
      workbench convert --kind "power logs" --tz UTC runs/monday monday-power/
    """
    if target.suffix not in ("", ".parquet") or (target.suffix and target.is_dir()):
        msg = f"{target}: must end in .parquet for a file, or be a folder without a suffix"
        raise typer.BadParameter(msg)
    options = options_of(tz, year, boot_time, node, unit)
    name, files = _kind_to_convert(source, kind)
    if target.suffix and name not in ("traces", "exhaustive injections"):
        msg = f"{target}: {plain(source)} holds {name}, which become a folder of tables; name one"
        raise typer.BadParameter(msg)
    if name == "traces":
        summary = _convert_traces(source, target)
    else:
        target, summary = _convert_tables(source, target, name, files, options)
    typer.echo(plain(target))
    typer.echo(summary, err=True)


def _kind_to_convert(source: Path, kind: str | None) -> tuple[str, Told]:
    """Return the kind of data to convert, and the kinds of all files; the others are named."""
    from workbench.load.kinds import NAMES, told, unfit

    if kind is not None and kind not in NAMES:
        msg = f"--kind {kind}: must be one of {', '.join(NAMES)}"
        raise typer.BadParameter(msg)
    # Asked before loading: the message then says what the file is instead.
    names = (files := told(source)).names
    if not names or (kind and kind not in names):
        raise unfit(source, files, (kind,) if kind else NAMES)
    if kind is None and len(names) > 1 and "traces" not in names:
        msg = f"{plain(source)}: holds {' and '.join(names)}; choose one with --kind"
        raise typer.BadParameter(msg)
    chosen = kind or ("traces" if "traces" in names else names[0])
    if others := [name for name in names if name != chosen]:
        tell(f"not converted: {', '.join(others)}; choose one with --kind")
    return chosen, files


def _convert_traces(source: Path, target: Path) -> str:
    from workbench import load
    from workbench.tables.traces import flagged_text

    if target.suffix:
        trace = load.traces(source)
        load.write(trace, target)
        return repr(trace)
    ranks = load.rank_files(source)
    quality = load.write_ranks(ranks, target)
    return f"{len(ranks)} ranks; {flagged_text(quality)}"


def _convert_tables(
    source: Path, target: Path, name: str, files: Told, options: dict[str, Any]
) -> tuple[Path, str]:
    from workbench import load
    from workbench.load.kinds import Options, kind_named
    from workbench.load.quality_report import joined
    from workbench.tables.traces import flagged_text

    path = load.by_kind(source, name)[name]
    loaded = kind_named(name).read(path or source, Options(**options))
    quality = getattr(loaded, "quality", None)
    if quality is not None:
        # That its loader did not take files of other kinds concerns nobody.
        quality = joined({name: quality}, files)
        loaded = replace(loaded, quality=quality)
    if name == "exhaustive injections" and not target.suffix:
        target /= "exhaustive.parquet"
    load.write(loaded, target)
    return target, name if quality is None else f"{name}; {flagged_text(quality)}"


def obfuscate(
    source: Annotated[Path, typer.Argument(help="Traces: file, folder or archive.", exists=True)],
    target: Annotated[Path, typer.Argument(help="Folder to write, new or empty.")],
    factor: Annotated[
        float | None,
        typer.Option(help="Factor for all times; by default random and kept secret."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a copy of traces without names, hosts and true times.

    Sizes are rounded. The copy behaves like the source: shares, waits and replays are equal.
    What a reader can still infer is printed. Exit code 1 if something could not be
    read, which is named and missing in the copy.

    \b
    Examples:
      workbench obfuscate runs/monday shared/monday
    """
    from workbench import load

    written = load.write_obfuscated(source, target, factor=factor)
    for file in written:
        typer.echo(plain(file), err=True)
    if as_json:
        print_json(records(written.visible))
    else:
        # Whole lines: what is shown to others must not be cut.
        typer.echo("Still visible, and what it reveals:")
        for row in records(written.visible):
            typer.echo(f"  {row['what']}: {row['value']} ({row['reveals']})")
    for row in records(written.quality):
        tell(f"not in the copy: {row['source']}: {row['what']} ({row['count']:,})")
    if len(written.quality):
        raise typer.Exit(LOOK)


def _checked(file: Path, options: dict[str, Any]) -> dict[str, Any]:
    from workbench import load
    from workbench.cli._diagnose import unread
    from workbench.load.kinds import told

    quality, error = None, None
    kinds: dict[str, list[str]] = {}
    try:
        kinds = {label: sorted(names) for label, names in told(file).kinds.items()}
        quality = load.quality(file, **options)
        error = "; ".join(unread(quality)) or None
    except (WorkbenchError, OSError) as problem:
        error = say(str(problem))
    return {"path": str(file), "error": error, "kinds": kinds, "findings": records(quality)}


def _print_findings(result: dict[str, Any], harmless: Collection[str]) -> None:
    """Print the kind of every file, and below it what was found; equal findings once."""
    from workbench.tables import folded_findings

    if result["error"]:
        tell(result["error"])
    by_source: dict[str, list[dict[str, Any]]] = {}
    for row in folded_findings(result["findings"]):
        by_source.setdefault(row["source"], []).append(row)
    # Every file is listed, those without findings too: their kind is an answer.
    for source in [*by_source, *_unmentioned(result)]:
        kinds = result["kinds"].get(source)
        kind_text = "" if kinds is None else f" {' and '.join(kinds) or 'unrecognized kind'}"
        typer.echo(f"{plain(source)}:{kind_text}")
        for row in by_source.get(source, ()):
            mark = " " if row["finding"] in harmless else "!"
            first_place = f" (first: {row['where']})" if row["where"] else ""
            text = plain(f"{say(row['what'])}{first_place}")
            typer.echo(f"{mark} {row['finding']:<12}{row['count']:>12,}  {text}")


def _unmentioned(result: dict[str, Any]) -> list[str]:
    sources = {row["source"] for row in result["findings"]}
    return [label for label in result["kinds"] if label not in sources]


def _optional(about: str) -> Any:
    # The default None is not a value that a user could write.
    return typer.Option(help=about, show_default=False)


Zone = Annotated[str | None, _optional("Time zone of times without one, e.g. UTC or +01:00.")]
Year = Annotated[int | None, _optional("Year of times without one (first of a file).")]
BootTime = Annotated[str | None, _optional("Boot of the host, for times in seconds since then.")]
Node = Annotated[
    list[str] | None,
    _optional(
        "Host of files without one: HOST, a pattern that matches it in the file name, or "
        "PART=HOST for names with PART (repeatable)."
    ),
]
Unit = Annotated[
    Literal["W", "kW", "MW", "mW"] | None, _optional("Unit of power columns without one.")
]
Chosen = Annotated[
    str | None,
    _optional("Which of several windows of each rank: first, last, or its number from 0."),
]
# Characters that patterns have and hosts have not.
_OF_PATTERNS = re.compile(r"[\\\[\](){}*+?|^$]")


def options_of(
    tz: str | None, year: int | None, boot_time: str | None, node: list[str] | None,
    unit: str | None, window: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the options as the arguments of the loaders; refuse what means nothing."""
    from workbench.load.kinds import Options

    hosts = _hosts(node)
    try:
        Options(tz, year, boot_time, hosts).check()
    except ValueError as error:
        name = re.match(r"tz|year|boot_time", str(error))
        hint = f"--{name[0].replace('_', '-')}" if name else None
        raise typer.BadParameter(say(str(error)), param_hint=hint) from None
    if window not in (None, "first", "last") and not window.isdecimal():
        msg = f"{window!r} must be first, last or the number of a window, from 0"
        raise typer.BadParameter(msg, param_hint="--window")
    options = {"tz": tz, "year": year, "boot_time": boot_time, "node": hosts, "unit": unit}
    return options | {"window": int(window) if window and window.isdecimal() else window}


def refuse_idle_window(options: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Refuse --window where no process recorded several, so that it changes nothing."""
    from workbench._shared.kernel_kinds import SEVERAL_WINDOWS

    is_used = any(row["what"].startswith(SEVERAL_WINDOWS) for row in rows)
    if options.get("window") is not None and not is_used:
        msg = "--window has no effect: no process recorded several windows here; leave it out"
        raise WorkbenchError(msg)


def _hosts(texts: list[str] | None) -> str | dict[str, str] | re.Pattern[str] | None:
    if not texts:
        return None
    pairs = [text.partition("=") for text in texts]
    if all(name_part and sign and host for name_part, sign, host in pairs):
        return {name_part: host for name_part, _, host in pairs}
    if len(texts) > 1:
        msg = f"several are given as PART=HOST, e.g. rack1=node001; got {', '.join(texts)}"
        raise typer.BadParameter(msg, param_hint="--node")
    if not _OF_PATTERNS.search(texts[0]):
        return texts[0]
    try:
        return re.compile(texts[0])
    except re.error as error:
        msg = f"{texts[0]!r} is not a pattern ({error})"
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
