"""The command that says what is wrong with a job, where, and what it costs."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli._app import (
    IMPOSSIBLE,
    LOOK,
    BootTime,
    Chosen,
    Json,
    Node,
    Unit,
    Year,
    Zone,
    options_of,
    plain,
    print_json,
    records,
    refuse_idle_window,
    say,
    tell,
)
from workbench.errors import MissingExtraError, WorkbenchError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.tables import Bundle, Findings

_ADDS = {
    "traces": "stragglers, exposed communication and slow links",
    "job logs": "interruptions, lost work and slower steps",
    "power logs": "capped, throttled and odd GPUs",
    "failure logs": "causes, lemon nodes and crash loops",
    "memory snapshots": "what ran out of memory",
    "flight-recorder dumps": "the root cause of a hang",
    "job operations": "slow workers and pipeline bubbles",
    "document lengths": "unequal attention",
    "injections": "vulnerable components",
}


_UNKNOWN = "unrecognized kind"
_MOST_NOT_READ = 5
_SYNTHETIC = "SYNTHETIC DATA: all or some of it was simulated, not measured."


def diagnose(
    paths: Annotated[list[Path], typer.Argument(help="Files, folders or archives of one job.")],
    *,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    window: Chosen = None,
    min_cost: Annotated[
        float, typer.Option(help="Smallest share of GPU time to show, in %.", min=0, max=100)
    ] = 0.0,
    top: Annotated[int, typer.Option(help="Findings to print.", min=1)] = 10,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    csv: Annotated[
        Path | None,
        typer.Option(help="Folder for every table behind the findings.", show_default=False),
    ] = None,
    xlsx: Annotated[
        Path | None,
        typer.Option(help="Workbook for the same tables; needs openpyxl.", show_default=False),
    ] = None,
) -> None:
    """Rank the problems of a job: where, at what cost, and what to do.

    Whatever lies under the paths is recognized by its content; findings are printed with the most
    expensive first. Exit code 0 if nothing was found, 1 if there are findings, 2 if
    nothing can be read, no rule has data, or no file of a kind that is there can be read.

    \b
    Examples:
      workbench diagnose runs/monday --tz UTC
      workbench diagnose traces/ power/ --json > findings.json
      workbench diagnose runs/monday --csv tables/
    """
    from workbench.cli._job import judged

    options = options_of(tz, year, boot_time, node, unit, window)
    path = paths[0] if len(paths) == 1 else paths
    bundle, found = judged(path, options, least_time_share=min_cost / 100)
    errors = unread(bundle.quality)
    if as_json:
        print_json({"errors": errors, "findings": records(found.findings),
                    "rules": records(found.rules), "files": records(bundle.files),
                    "is_synthetic": bundle.is_synthetic})  # fmt: skip
    elif markdown:
        typer.echo(_markdown(found, is_synthetic=bundle.is_synthetic))
    else:
        _print(found, bundle, paths, top)
    tables = {"findings": found.findings, "rules": found.rules, **found.tables}
    if csv is not None:
        _write_csv(tables, csv)
    if xlsx is not None:
        _write_xlsx(tables, xlsx)
    if errors:
        raise typer.Exit(IMPOSSIBLE)
    if len(found.findings):
        raise typer.Exit(LOOK)
    if not _applied(found.rules):
        raise typer.Exit(IMPOSSIBLE)


def _applied(rules: pd.DataFrame) -> int:
    """Count the rules that had data to look at, and could."""
    return int(rules["state"].isin(["found", "nothing"]).sum())


def cost_text(row: Any) -> str:
    """Write the cost of a finding for people."""
    import pandas as pd

    from workbench._shared.numbers import quantity, significant

    parts = []
    if not pd.isna(row.cost):
        parts.append(quantity(float(row.cost), row.cost_unit))
    if not pd.isna(row.time_share):
        parts.append(f"{significant(100 * float(row.time_share), 2)} % of the GPU time")
    return ", ".join(parts) or "no cost known"


def _print(found: Findings, bundle: Bundle, paths: list[Path], top: int) -> None:
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 110)
    typer.echo(f"Read: {plain(_held(bundle))}")
    if bundle.is_synthetic:
        typer.echo(_SYNTHETIC)
    _tell_of_quality(bundle.quality, width)
    count = len(found.findings)
    applied, of_all = _applied(found.rules), len(found.rules)
    if not applied:
        typer.echo("No rule ran: none has enough data to look at.")
    elif not count:
        typer.echo(f"Nothing found by {_counted(applied, 'rule')}, of {of_all}.")
    else:
        shown = (f", the first {top}" if top > 1 else ", the first") if count > top else ""
        typer.echo(f"{_counted(count, 'finding')}{shown}; {applied} of {of_all} rules applied; "
                   "costs may overlap.\n")  # fmt: skip
    for number, row in enumerate(found.findings.head(top).itertuples(), 1):
        typer.echo(_block(number, row, width))
    refused = found.rules[found.rules["state"] == "refused"]
    for row in refused.itertuples():
        typer.echo(_wrapped("unchecked", f"{row.about}: {row.note}", width, indent=0))
    held = {need for need in _ADDS if need in set(found.rules.loc[
        found.rules["state"] != "no data", "needs"])}  # fmt: skip
    lacking = [f"{adds} ({need})" for need, adds in _ADDS.items() if need not in held]
    if lacking:
        typer.echo(textwrap.fill(f"Other data would add {'; '.join(lacking)}.", width))
    named = " ".join(str(path) for path in paths[:1])
    typer.echo(f"The evidence as pages: workbench report --data {plain(named)}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else f'{noun}s'.replace('ys', 'ies')}"


def _held(bundle: Bundle) -> str:
    """Name what was read, with its size."""
    sizes: dict[str, Any] = {
        "traces of {} ranks": bundle.trace and bundle.trace.ranks,
        "a job log of {} steps": bundle.job and bundle.job.steps,
        "power of {} meters": bundle.power and bundle.power.entities,
        "{} logged failures": bundle.failures and bundle.failures.failures,
        "a flight recording of {} ranks": bundle.flight and bundle.flight.ranks,
        "memory of {} ranks": bundle.memory and bundle.memory.memory["rank"].unique(),
        "{} job operations": bundle.operations,
        "{} document lengths": bundle.document_lengths,
        "{} injected faults": bundle.injections and bundle.injections.faults,
    }
    return ", ".join(
        _with_count(text, len(table)) for text, table in sizes.items() if table is not None
    )


def _with_count(text: str, count: int) -> str:
    """Put a count into a text that ends with a noun; one of something is singular."""
    return text.format(f"{count:,}").removesuffix("s" if count == 1 else "\0")


def _tell_of_quality(quality: pd.DataFrame | None, width: int) -> None:
    """Tell of what could not be read, of traces without work for rules, and of odd durations."""
    from workbench._shared.time_groups import SHARE_NO_TIME

    if quality is None:
        return
    for what in [*_not_read(quality), *_not_understood(quality)]:
        tell(what)
    for what in [*_limits(quality), *_about_work(quality)]:
        name = "times" if SHARE_NO_TIME in what else "traces"
        typer.echo(_wrapped(name, what, width, indent=0))


def _not_read(quality: pd.DataFrame) -> list[str]:
    """Return what could not be read, as a message each."""
    from workbench.tables.traces import UNREAD

    rows = quality[(quality["finding"] == "dropped") & ~quality["what"].str.startswith(UNREAD)]
    # What is said of many files is said once.
    reasons = rows["what"].where(~rows["what"].str.startswith(_UNKNOWN), _UNKNOWN)
    told = [
        f"{_named(same['source'].tolist())}: {same['what'].iloc[0]}"
        for _, same in rows.groupby(reasons, sort=False)
    ]
    more = len(told) - _MOST_NOT_READ
    told = told[:_MOST_NOT_READ] + [f"and more for {more} other reasons: workbench check"] * (
        more > 0
    )
    # The exit code says that they are errors, also where much else was not read.
    errors = [f"error: {text}" for text in unread(quality)]
    return [*errors, *(say(f"not read: {text}") for text in told)]


def unread(quality: pd.DataFrame | None) -> list[str]:
    """Return what is wrong with each kind of data of which no file could be read."""
    from workbench.tables.traces import UNREAD

    if quality is None:
        return []
    texts = quality.loc[quality["finding"] == "dropped", "what"]
    return [say(text) for text in texts if text.startswith(UNREAD)]


def _limits(quality: pd.DataFrame) -> list[str]:
    """Return which of several windows was read, and whose history begins late."""
    from workbench._shared.kernel_kinds import OVERFLOWED, SEVERAL_WINDOWS
    from workbench._shared.time_groups import SHARE_NO_TIME

    is_read = quality["finding"] != "skipped by design"
    rows = quality[is_read & quality["what"].str.startswith((SEVERAL_WINDOWS, OVERFLOWED))]
    apart = quality.loc[quality["what"].str.contains(SHARE_NO_TIME, regex=False), "what"].unique()
    return [say(text) for text in apart] + [
        say(f"{what} ({_named(same['source'].tolist())})")
        for what, same in rows.groupby("what", sort=False)
    ]


def _not_understood(quality: pd.DataFrame) -> list[str]:
    """Return which lines may report a failure that nothing is said of."""
    rows = quality[(quality["finding"] == "suspicious") & quality["what"].str.contains("no rule")]
    return [
        say(f"not understood: {row['what']}: {row['count']:,} ({row['source']}, {row['where']})")
        for _, row in rows.iterrows()
    ][:_MOST_NOT_READ]


def _about_work(quality: pd.DataFrame) -> list[str]:
    """Return why rules about traces have nothing to work on, or work of doubtful length."""
    from workbench._shared import kernel_kinds as kinds

    told = (kinds.NO_GPU_WORK, kinds.NOTHING_RECORDED, kinds.CPU_COLLECTIVES, kinds.BOUNDED,
            kinds.DOUBTFUL)  # fmt: skip
    rows = quality[quality["what"].str.startswith(told)]
    return [
        f"{what} ({_named(same['source'].tolist())}"
        + "".join(f"; {same['count'].sum():,}, {first}" for first in same["where"].dropna()[:1])
        + ")"
        for what, same in rows.groupby("what", sort=False)
    ]


def _named(sources: list[str], most: int = 3) -> str:
    """Name files, the first ones of many."""
    if len(sources) == 1:
        return sources[0]
    folder = os.path.commonpath([os.path.dirname(source) for source in sources])  # noqa: PTH120
    names = [source.removeprefix(f"{folder}/") for source in sources[:most]]
    more = ", ..." if len(sources) > most else ""
    return f"{len(sources)} in {folder or '.'} ({', '.join(names)}{more})"


def _block(number: int, row: Any, width: int) -> str:
    """Write one finding as a block of lines."""
    head = textwrap.fill(plain(f"{number}. {row.finding}"), width, subsequent_indent="   ")
    facts = {
        "where": row.where,
        "cost": f"{cost_text(row)} ({row.cost_basis})" if row.cost_basis else cost_text(row),
        "confidence": f"{row.confidence}{f'; {say(row.doubt)}' if row.doubt else ''}",
        "next": say(row.next_step),
        "evidence": row.evidence,
    }
    lines = [_wrapped(name, str(text), width) for name, text in facts.items() if text]
    return "\n".join([head, *lines, ""])


def _wrapped(name: str, text: str, width: int, *, indent: int = 3) -> str:
    label = f"{' ' * indent}{name:<11}"
    return textwrap.fill(
        plain(text), width, initial_indent=label, subsequent_indent=" " * len(label)
    )


def _markdown(found: Findings, *, is_synthetic: bool) -> str:
    """Write the findings as a Markdown table."""

    def cell(text: object) -> str:
        return re.sub(r"([|<>*_`\\\[\]])", r"\\\1", plain(text))

    lines = ["| # | finding | where | cost | confidence | next |", "|---|---|---|---|---|---|"]
    for number, row in enumerate(found.findings.itertuples(), 1):
        cells = [row.finding, row.where, cost_text(row), row.confidence, row.next_step]
        lines.append(f"| {number} | {' | '.join(cell(text) for text in cells)} |")
    return "\n".join([*([f"**{_SYNTHETIC}**", ""] if is_synthetic else []), *lines])


def _write_csv(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv")
    tell(f"{len(tables)} tables in {folder}")


def _write_xlsx(tables: dict[str, pd.DataFrame], file: Path) -> None:
    import pandas as pd

    try:
        writer = pd.ExcelWriter(file, engine="openpyxl")
    except ImportError:
        msg = "--xlsx needs openpyxl: pip install openpyxl, or write --csv instead"
        raise MissingExtraError(msg) from None
    with writer:
        for name, table in tables.items():
            # A sheet has at most 1,048,576 rows, and no time zones.
            table.head(1_000_000).to_excel(writer, sheet_name=name[:31])
    tell(f"{len(tables)} tables in {file}")


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files of two runs or more, or one folder with a folder per run."),
    ],
    *,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    window: Chosen = None,
    halves: Annotated[
        bool, typer.Option("--halves", help="Compare the two halves of one run.")
    ] = False,
    run_spread: Annotated[
        float,
        typer.Option(help="Known spread from run to run of equal code, in per cent.", min=0),
    ] = 0.0,
    top: Annotated[int, typer.Option(help="Rows to print.", min=1)] = 15,
    as_json: Json = False,
    csv: Annotated[Path | None, typer.Option(help="File for all rows.", show_default=False)] = None,
    html: Annotated[
        Path | None, typer.Option(help="File for a page with a picture.", show_default=False)
    ] = None,
) -> None:
    """Compare two runs, or find the run of many where a change begins.

    Two runs: steps, time by kind, collectives, kernels, energy and failure rates; without steps
    by a range that repeats in both, or per second and per call. More runs, or a folder of them:
    one row per run, and the first run of a lasting change.
    A difference is "changed" where chance does not explain it, else "not resolvable". The verdict
    comes first: slower, faster, equal, or why it cannot be resolved. Exit code 0 if equal, 1 if
    something changed, 2 if that cannot be resolved, or a kind of files cannot be read.

    \b
    Examples:
      workbench compare runs/monday runs/tuesday --html compare.html
      workbench compare runs/monday --halves
      workbench compare runs/
    """
    from workbench import analyze, plot
    from workbench._shared.run_verdict import trend_verdict

    runs = _Runs(
        _runs_of(paths, halves=halves), options_of(tz, year, boot_time, node, unit, window)
    )
    names = list(runs)
    source = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    if len(names) > 2:
        trend = analyze.run_trend(runs)
        table = analyze.run_changes(trend)
        word, sentence = trend_verdict(trend, table)
        answer: dict[str, Any] = {"outcome": word, "verdict": sentence, "runs": records(trend),
                                  "changes": records(table)}  # fmt: skip
        lines, written = _trend_lines(trend, table), trend
    else:
        bundles = analyze.run_halves(runs[names[0]]) if halves else [runs[name] for name in names]
        table = written = analyze.run_comparison(*bundles, run_spread_share=run_spread / 100)
        answer = {
            **{str(name): value for name, value in table.attrs.items()},
            "rows": records(table),
        }
        lines = _comparison_lines(table, top)
    refuse_idle_window(runs.options, runs.told)
    if as_json:
        print_json({**answer, "errors": runs.errors})
    else:
        typer.echo("\n".join(plain(line) for line in [answer["verdict"], *lines]))
    if csv is not None:
        written.to_csv(csv, index=False)
    if html is not None:
        sides = (f"{names[0]}, first half", "its second half") if halves else names
        page = (
            plot.run_trend_page(trend, table, source=source) if len(names) > 2
            else plot.run_comparison_page(table, names=(sides[0], sides[1]), source=source,
                                          synthetic=runs.is_synthetic)
        )  # fmt: skip
        html.write_text(page, encoding="utf-8")
        tell(f"page in {html}")
    raise typer.Exit(_exit_code(answer["outcome"], runs.errors, table))


def _exit_code(outcome: str, errors: Sequence[str], table: pd.DataFrame) -> int:
    """Return 2 for an error and for an answer that is none, else 1 for a change."""
    from workbench._shared.run_verdict import UNRESOLVED

    is_changed = bool((table["verdict"] == "changed").any())
    if errors or (outcome == UNRESOLVED and not is_changed):
        return IMPOSSIBLE
    return LOOK if is_changed else 0


class _Runs(Mapping[str, Any]):
    """Runs by name, each loaded when its name is looked up: many traces do not fit into memory."""

    def __init__(self, paths: Sequence[Path], options: dict[str, Any]) -> None:
        self.paths: dict[str, Path] = {}
        for path in paths:
            name = path.resolve().name
            # Folders of one name in different places keep their paths.
            name = str(path) if name in self.paths else name
            self.paths[f"{name} again" if name in self.paths else name] = path
        self.options = options
        self.is_synthetic = False
        self.told: list[dict[str, Any]] = []
        self.errors: list[str] = []

    def __getitem__(self, name: str) -> Bundle:
        from workbench import load

        bundle = load.bundle(self.paths[name], **self.options)
        self.is_synthetic |= bundle.is_synthetic
        self.told += records(bundle.quality)
        self.errors += unread(bundle.quality)
        for text in [] if bundle.quality is None else _not_read(bundle.quality):
            tell(text)
        for text in [] if bundle.quality is None else _limits(bundle.quality):
            tell(text)
        return bundle

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def _runs_of(paths: list[Path], *, halves: bool) -> list[Path]:
    """Return where the runs are: the paths, or what lies in the one folder."""
    if halves and len(paths) > 1:
        msg = f"--halves compares the halves of one run, not {len(paths)} runs"
        raise WorkbenchError(msg)
    if halves or len(paths) > 1:
        return paths
    folder = paths[0]
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    runs = [path for path in inside if path.is_dir() and not path.name.startswith(".")]
    if len(runs) < 2:
        msg = (
            f"{folder}: one run has nothing to compare with. Give two runs, a folder with a "
            "folder per run, or --halves to compare the halves of this run"
        )
        raise WorkbenchError(msg)
    return runs


def _comparison_lines(table: pd.DataFrame, top: int) -> Iterator[str]:
    yield from (_difference(row) for row in table.head(top).itertuples())
    yield from (f"Not like with like: {text}" for text in table.attrs["warnings"])
    yield from (f"Doubt: {text}" for text in table.attrs["doubts"])
    changed = int((table["verdict"] == "changed").sum())
    yield f"{changed} of {_counted(len(table), 'quantity')} changed from A to B."


def _trend_lines(trend: pd.DataFrame, changes: pd.DataFrame) -> Iterator[str]:
    import pandas as pd

    from workbench._shared.numbers import significant

    named = changes.assign(name=changes["quantity"] + " from " + changes["first_run"] + " on")
    row: Any
    for row in named.rename(columns={"before": "a", "after": "b"}).itertuples():
        yield _difference(row)
        if row.doubt:
            yield f"{'':<15} {row.doubt}"
    for row in trend.itertuples():
        step = "no steps" if pd.isna(row.step_ms) else f"{significant(row.step_ms, 4)} ms per step"
        yield f"{row.run:<24} {step}{f'; {row.doubt}' if row.doubt else ''}"


def _difference(row: Any) -> str:
    """Write one row of a comparison."""
    import pandas as pd

    from workbench._shared.numbers import significant

    span = "" if pd.isna(row.low) else f" ({_signed(row.low)} to {_signed(row.high)})"
    name = row.name if len(row.name) <= 44 else f"{row.name[:41]}..."
    return (
        f"{row.verdict:<15} {name:<44} {significant(row.a, 4):>9} -> {significant(row.b, 4):>9} "
        f"{row.unit}, {_signed(row.difference)}{span}"
    )


def _signed(value: float) -> str:
    """Write a difference with its sign, never as a power of ten."""
    from workbench._shared.numbers import significant

    return f"{'+' if value >= 0 else ''}{significant(value)}"
