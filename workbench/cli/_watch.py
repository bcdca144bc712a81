"""The command that follows the folder of a running job and keeps its findings up to date."""

from __future__ import annotations

import datetime
import html
import os
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from workbench.cli._app import (
    BootTime,
    Node,
    Unit,
    Year,
    Zone,
    options_of,
    plain,
    say,
    tell,
)
from workbench.errors import LoadError, WorkbenchError

if TYPE_CHECKING:
    from workbench.tables import Bundle, Findings, RankFiles

_MOST_FILES = 100_000
_PAGE = "findings.html"
# Written line by line for as long as the job runs, so that their files never settle.
_APPENDED = frozenset({"power logs", "failure logs", "job logs"})
# Growing logs are read again after this many times as long as reading took.
_PAUSE = 9
# Who reads slowly, or with a keyboard, can stop it; a page that a tag reloads cannot be stopped.
_FOLLOW = """<p><label><input type="checkbox" id="follow" checked> Reload every 10 s</label></p>
<noscript><p>Reload this page to see later findings.</p></noscript>
<script>(function () {
  var box = document.getElementById("follow"), kept = "wb-follow";
  try { box.checked = sessionStorage.getItem(kept) !== "no"; } catch (error) { /* no storage */ }
  box.addEventListener("change", function () {
    try { sessionStorage.setItem(kept, box.checked ? "yes" : "no"); } catch (error) { }
  });
  setInterval(function () { if (box.checked) location.reload(); }, 10000);
})();</script>"""
Stamp = tuple[int, int, int]
Key = tuple[str, str]


class _StoppedError(BaseException):
    """Raised by a signal, wherever the work is; no handler of errors may swallow it."""


def watch(
    folder: Annotated[
        Path, typer.Argument(help="Folder that a job writes into.", exists=True, file_okay=False)
    ],
    *,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    out: Annotated[Path, typer.Option(help="Folder for the page findings.html.")] = Path("_watch"),
    period_s: Annotated[
        float, typer.Option(help="Time between looks at the folder, in seconds.", min=0.05)
    ] = 10.0,
) -> None:
    """Follow a running job: report new findings and those that end.

    A file is read once it has stopped changing, and again only after it changes; logs of power,
    failures and steps are read while they grow, in at most a tenth of the time. Of several traces
    of a rank the newest counts. The page is rewritten as a whole and reloads itself. Stop with
    Ctrl-C or SIGTERM: the exit code is 0.

    \b
    Examples:
      workbench watch runs/monday --tz UTC
      workbench watch /scratch/job17 --period-s 60 --out /var/www/job17
    """
    stop = threading.Event()

    def stopped(number: int, frame: object) -> NoReturn:
        del number, frame
        stop.set()
        raise _StoppedError

    former = {name: signal.signal(name, stopped) for name in (signal.SIGINT, signal.SIGTERM)}
    cache = Path(tempfile.mkdtemp(prefix="workbench-watch-"))
    try:
        out.mkdir(parents=True, exist_ok=True)
        options = options_of(tz, year, boot_time, node, unit)
        job = Job(folder.resolve(), out.resolve(), options, cache)
        tell(f"watching {folder}; page: {out / _PAGE}; stop with Ctrl-C")
        while not stop.is_set():
            for line in job.look():
                typer.echo(line)
            stop.wait(period_s)
    except _StoppedError:
        pass
    finally:
        for name, handler in former.items():
            signal.signal(name, handler)
        shutil.rmtree(cache, ignore_errors=True)
    tell("stopped")


@dataclass
class Job:
    """State of a job between two polls."""

    folder: Path
    out: Path
    options: dict[str, Any]
    cache: Path
    seen: dict[Path, Stamp] = field(default_factory=dict)
    judged: dict[Path, Stamp] = field(default_factory=dict)
    kinds: dict[Path, tuple[Stamp, frozenset[str]]] = field(default_factory=dict)
    ranks: dict[Path, tuple[Stamp, frozenset[int]]] = field(default_factory=dict)
    tables: dict[str, tuple[dict[Path, Stamp], Bundle | None]] = field(default_factory=dict)
    told: dict[Key, str] = field(default_factory=dict)
    problems: frozenset[str] = frozenset()
    rests_until_s: float = 0.0

    def look(self) -> list[str]:
        """Look once: read what has settled since, write the page, and say what is new."""
        now = self._stamps()
        settled = self._settled(now)
        self.seen = now
        if not settled or settled == self.judged:
            return []
        began_s = time.monotonic()
        problems: list[str] = []
        try:
            bundle, found = self._findings(settled, problems)
        except (WorkbenchError, OSError) as error:
            # A file may vanish or grow while it is read; the next look sees it again.
            problems.append(say(str(error)))
            found = None
        self.judged = settled
        lines = [f"{_now()} not read: {plain(text)}" for text in problems
                 if text not in self.problems]  # fmt: skip
        self.problems = frozenset(problems)
        if found is not None:
            lines += self._changes(found)
            self._write(found, bundle, len(settled))
        ended_s = time.monotonic()
        self.rests_until_s = ended_s + _PAUSE * (ended_s - began_s)
        return lines

    def _settled(self, now: dict[Path, Stamp]) -> dict[Path, Stamp]:
        """Return what may be read: files that stayed the same, and logs that only grew."""
        rests = time.monotonic() < self.rests_until_s
        settled: dict[Path, Stamp] = {}
        for path, stamp in now.items():
            before = self.seen.get(path)
            if before == stamp:
                settled[path] = stamp
            elif before is not None and before[2] == stamp[2] and before[0] < stamp[0]:
                kinds = self._kinds(path, stamp)
                if kinds and kinds <= _APPENDED:
                    settled[path] = self.judged.get(path, stamp) if rests else stamp
        return settled

    def _stamps(self) -> dict[Path, Stamp]:
        """Return size, time and identity of every file that is neither hidden nor our own."""
        stamps: dict[Path, Stamp] = {}
        for place, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith(".")
                          and (Path(place) / name).resolve() != self.out]  # fmt: skip
            for name in names:
                if name.startswith(".") or name.endswith((".tmp", ".part")):
                    continue
                path = Path(place, name)
                try:
                    stat = path.stat()
                except OSError:
                    continue
                if stat.st_size:
                    stamps[path] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if len(stamps) > _MOST_FILES:
                msg = f"{self.folder}: over {_MOST_FILES:,} files; watch a folder of one job"
                raise WorkbenchError(msg)
        return dict(sorted(stamps.items()))

    def _findings(self, settled: dict[Path, Stamp], problems: list[str]) -> tuple[Bundle, Findings]:
        from workbench import analyze
        from workbench.tables import QUALITY, Bundle, Trace

        by_kind: dict[str, dict[Path, Stamp]] = {}
        for path, stamp in settled.items():
            for kind in sorted(self._kinds(path, stamp)):
                by_kind.setdefault(kind, {})[path] = stamp
        traces = by_kind.pop("traces", {})
        held = [self._table(kind, paths, problems) for kind, paths in by_kind.items()]
        bundle = Bundle(rank_files=self._rank_files(traces, problems) if traces else None)
        for one in held:
            bundle = bundle if one is None else _with(bundle, one)
        found = analyze.findings(bundle)
        if bundle.rank_files is not None:
            ranks, quality = found.tables["traces.ranks"], found.tables["traces.quality"]
            rows = quality[quality["finding"] == "dropped"]
            problems += [f"{row.source}: {row.what}" for row in rows.itertuples()]
            together = [quality] if bundle.quality is None else [bundle.quality, quality]
            trace = Trace.of(ranks=ranks, quality=quality)
            bundle = replace(bundle, trace=trace, quality=QUALITY.joined(together))
            self._forget(2 * len(bundle.rank_files or ()) + 8)
        return bundle, found

    def _kinds(self, path: Path, stamp: Stamp) -> frozenset[str]:
        from workbench.load.kinds import told

        known = self.kinds.get(path)
        if known is None or known[0] != stamp:
            try:
                names = frozenset(told(path).names)
            except (LoadError, OSError):
                names = frozenset()
            self.kinds[path] = known = (stamp, names)
        return known[1]

    def _table(self, kind: str, paths: dict[Path, Stamp], problems: list[str]) -> Bundle | None:
        """Return the tables of one kind, reloaded only if one of its files is new or changed."""
        from workbench import load

        known = self.tables.get(kind)
        if known is not None and known[0] == paths:
            return known[1]
        try:
            made: Bundle | None = load.bundle(
                list(paths), **self.options, kinds={kind}, progress=False
            )
        except (LoadError, FileNotFoundError) as error:
            problems.append(say(str(error)))
            # The last that could be read, while a file is being rewritten.
            made = known[1] if known is not None else None
        self.tables[kind] = (paths, made)
        return made

    def _rank_files(self, paths: dict[Path, Stamp], problems: list[str]) -> RankFiles | None:
        """List one file per rank: where a rank has several, the one that was written last."""
        from workbench import load

        by_rank: dict[int, tuple[int, Path]] = {}
        whole: list[Path] = []
        for path, stamp in paths.items():
            known = self.ranks.get(path)
            if known is None or known[0] != stamp:
                try:
                    ranks = frozenset(file.rank for file in load.rank_files(path)
                                      if file.rank_source != "assumed")  # fmt: skip
                except (LoadError, OSError) as error:
                    problems.append(say(str(error)))
                    continue
                self.ranks[path] = known = (stamp, ranks)
            if len(known[1]) != 1:
                whole.append(path)
                continue
            (rank,) = known[1]
            by_rank[rank] = max(by_rank.get(rank, (0, path)), (stamp[1], path))
        chosen = sorted([*whole, *(path for _, path in by_rank.values())])
        return load.rank_files(chosen, cache=self.cache) if chosen else None

    def _forget(self, most: int) -> None:
        """Keep no more parsed ranks on disk than two traces of each."""
        kept = sorted(self.cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-most]:
            path.unlink(missing_ok=True)

    def _changes(self, found: Findings) -> list[str]:
        rows = found.findings.itertuples()
        now = {(str(row.rule), str(row.where)): str(row.finding) for row in rows}
        lines = [
            f"{_now()} new: {plain(text)}" for key, text in now.items() if key not in self.told
        ]
        lines += [f"{_now()} ended: {plain(text)}" for key, text in self.told.items()
                  if key not in now]  # fmt: skip
        self.told = now
        return lines

    def _write(self, found: Findings, bundle: Bundle, file_count: int) -> None:
        from workbench._shared.extras import need

        need("plotly", extra="plot", purpose="the page of workbench watch")
        from workbench import plot

        shown = plot.dashboard(
            found, bundle, source=self.folder.name, synthetic=bundle.is_synthetic
        )
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in sorted(self.problems))
        unread = f"<h2>Not read</h2><ul>{notes}</ul>" * bool(notes)
        style = files("workbench.share").joinpath("templates", "wbreport", "page.css")
        page = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{len(found.findings)} findings: {html.escape(self.folder.name)}</title>"
            f"<style>{style.read_text('utf-8')}</style></head>"
            f'<body><main class="wb-page">{_FOLLOW}<p>State of {_now()}, {file_count:,} files.</p>'
            f"{shown.html}{unread}</main></body></html>\n"
        )
        target = self.out / _PAGE
        unfinished = target.with_name(f".{_PAGE}.{os.getpid()}")
        try:
            unfinished.write_text(page, encoding="utf-8")
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)


def _with(bundle: Bundle, one: Bundle) -> Bundle:
    """Add the tables of one kind to those of others."""
    from workbench.tables import QUALITY

    names = ("power", "job", "failures", "flight", "memory", "operations", "document_lengths",
             "injections")  # fmt: skip
    held = {name: getattr(one, name) for name in names if getattr(one, name) is not None}
    both = [table for table in (bundle.quality, one.quality) if table is not None]
    return replace(bundle, **held, quality=QUALITY.joined(both) if both else None)


def _now() -> str:
    return f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
