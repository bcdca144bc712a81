"""An offline static site from notebooks: an overview, and one page per notebook."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from workbench._shared.progress import tell
from workbench.errors import LoadError, PublishError, WorkbenchError
from workbench.share import _execute, _normalise, _prose, _snapshot
from workbench.share._execute import LoopThread
from workbench.share._prose import ABSENT_MIME
from workbench.share.bundle import EXPLORER_MIME, title_of
from workbench.share.svg import svg_of

if TYPE_CHECKING:
    from workbench.share._exporter import Link, ReportExporter

_TITLE = "Findings by notebook"
_MARK = ".workbench-report"
_FINDINGS = 4
_Jobs: TypeAlias = list[tuple[Path, dict[str, object]]]
_Ran: TypeAlias = tuple[Any, list[str]]  # a notebook, and the titles of its figures before
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# Runs in the kernel before the notebook, so that explorers hand over all their states, and
# tables their values.
_PREAMBLE = f"""
def _prepare_outputs():
    def bundle(explorer, include=None, exclude=None):
        from workbench.explore.static import static_html
        found = explorer._repr_mimebundle_(include=include, exclude=exclude)
        data, metadata = found if isinstance(found, tuple) else (found, {{}})
        if {EXPLORER_MIME!r} not in data:
            try:
                data = {{**data, {EXPLORER_MIME!r}: static_html(explorer)}}
            except (TypeError, ValueError):
                pass  # too many states, or a control without a list of values
        return data, metadata
    def table(frame, include=None, exclude=None):
        from workbench.share._tables import as_data
        return as_data(frame)
    def absent(missing, include=None, exclude=None):
        return {{{ABSENT_MIME!r}: repr(missing)}}
    formatter = get_ipython().display_formatter.mimebundle_formatter
    formatter.for_type_by_name("workbench.explore.panel", "Explorer", bundle)
    # pandas 3 names its classes by the package, pandas 2 by the module.
    for module in ("pandas", "pandas.core.frame"):
        formatter.for_type_by_name(module, "DataFrame", table)
    formatter.for_type_by_name("workbench.load.missing_data", "Missing", absent)
_prepare_outputs()
del _prepare_outputs
"""


@dataclass(frozen=True)
class PageFacts:
    """Facts about a page for the overview.

    Attributes
    ----------
    stem
        Name of the notebook without its ending.
    href, label, title
        Address, short name and heading.
    answers
        Titles of its figures; of those that show one's own data, if it was made from such.
    problems
        How many of its steps failed, in words; empty if none did.
    sections
        By function of ``plot`` the section that shows its figure first.
    """

    stem: str
    href: str
    label: str
    title: str
    answers: tuple[str, ...]
    problems: str
    sections: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The first page of a site: title, HTML that is trusted as it is, and where data come from.

    ``with_pages`` lays it out again once the pages are made, with links to them.
    """

    title: str
    html: str
    data: str = ""
    is_synthetic: bool = False
    with_pages: Callable[[Sequence[PageFacts]], Overview] | None = None


@dataclass(frozen=True)
class _Page:
    path: Path
    notebook: Any
    has_own_data: bool
    is_foreign: bool
    problems: str
    unloaded: str  # why its data could not be loaded, so that it shows nothing of them


def report(  # noqa: PLR0913 - the entry point
    notebooks: str | Path | Iterable[str | Path],
    *,
    out: str | Path,
    data: str | Path | None = None,
    parameters: Mapping[str, object] | None = None,
    mode: Literal["offline", "static"] = "offline",
    timeout_s: float = 600.0,
    progress: bool = True,
    overview: Callable[[Sequence[PageFacts], Path], Overview] | None = None,
    wording: Callable[[str], str] = str,
) -> Path:
    """Run notebooks and write them as a site that needs no network.

    The site opens from a folder, a mail attachment or any web server. Figures
    are live; explorers with few states work without a kernel. A step that fails on
    the data is reported on its page, and the others go on.

    Parameters
    ----------
    notebooks
        One notebook or several, in the order of the pages; with ``overview`` also none.
    out
        Folder of the site; it is made, or replaced if it holds an earlier report.
    data
        Own data for the notebooks: the value of ``data`` in the cell tagged
        ``parameters``. By default each takes the best available set.
    parameters
        Further names of that cell and their values, e.g. ``{"tz": "UTC"}``; those that are
        None stay as they are.
    mode
        ``"offline"`` for live figures, ``"static"`` for pictures only and no
        script at all; pictures need Chromium or Chrome.
    timeout_s
        Longest time a single cell may take, in seconds.
    progress
        Whether to show a bar while notebooks run, and a line for each page that is made.
    overview
        Makes the first page from what the pages say; it may write files into the folder that it
        gets, and link them. It is asked first without pages, and its answer can be opened in
        ``out`` while they are made. By default the first page lists the pages.
    wording
        Rewrites the messages of steps that failed, e.g. in the words of a command line.

    Returns
    -------
    pathlib.Path
        The first page, ``out/index.html``.

    Raises
    ------
    PublishError
        If a notebook cannot be read or the data can be loaded by none, if no notebook
        takes ``data``, or if ``out`` holds something else than a report. An earlier
        report is then left as it was.
    """
    given = [notebooks] if isinstance(notebooks, (str, Path)) else list(notebooks)
    paths = _checked(given, overview)
    # Before anything runs: notebooks take minutes.
    if mode not in ("offline", "static"):
        msg = f"mode is {mode!r}, must be 'offline' or 'static'"
        raise ValueError(msg)
    out = Path(out).absolute()
    _refuse_foreign(out)
    jobs = _with_data(paths, data, parameters or {})
    run = partial(_run, timeout_s=timeout_s, progress=progress)
    exporter = _exporter(jobs, mode, _TITLE if overview is None else "Overview")
    with _fresh(out) as site:
        exporter.write_assets(site.path)
        with _running(jobs, run) as ran:
            early = None
            if overview and jobs and (early := _early(exporter, site, overview, str(data or ""))):
                follow = "1 page follows" if len(jobs) == 1 else f"{len(jobs)} pages follow"
                tell(f"index.html: can be opened, {follow}", enabled=progress)
            made = [
                _written(exporter, site, job, next(ran), wording, progress=progress) for job in jobs
            ]
        _refuse_unloaded([page for page, _ in made])
        _finish(exporter, site, made, overview, early, str(data or ""))
    return out / "index.html"


def __getattr__(name: str) -> Any:
    if name == "ReportExporter":
        from workbench.share._exporter import ReportExporter

        return ReportExporter
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def _checked(
    notebooks: Sequence[str | Path],
    overview: Callable[[Sequence[PageFacts], Path], Overview] | None,
) -> list[Path]:
    paths = [Path(name).absolute() for name in notebooks]
    if not paths and overview is None:
        msg = "no notebooks given; name at least one .ipynb file"
        raise PublishError(msg)
    pages = [path.stem for path in paths]
    if twice := sorted({page for page in pages if pages.count(page) > 1 or page == "index"}):
        msg = f"more than one page would be called {twice[0]}.html; rename a notebook"
        raise PublishError(msg)
    return paths


def _with_data(
    paths: list[Path], data: str | Path | None, parameters: Mapping[str, object]
) -> _Jobs:
    """Pair every notebook with the values of its parameters; empty if it takes no data."""
    if data is None:
        return [(path, {}) for path in paths]
    location = str(Path(data).absolute())
    takers = [path for path in paths if _execute.has_parameters(_execute.read(path))]
    if paths and not takers:
        msg = f"none of {', '.join(path.name for path in paths)} has a cell tagged 'parameters'"
        raise PublishError(msg)
    if not Path(location).exists():
        msg = f"{data}: there is no such file or folder"
        raise PublishError(msg)
    values = {name: value for name, value in parameters.items() if value is not None}
    return [(path, {"data": location, **values} if path in takers else {}) for path in paths]


@contextlib.contextmanager
def _running(jobs: _Jobs, run: Callable[..., _Ran]) -> Iterator[Iterator[_Ran]]:
    """Start one notebook, and two at a time from the first wait on; yield their ends in order."""
    workers = ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1))
    # Left from the inside out: the end of the loop stops the kernels, then the threads end.
    with workers as pool, LoopThread() as loop:
        running = [pool.submit(run, *job, loop=loop) for job in jobs[:1]]

        def ended() -> Iterator[_Ran]:
            running.extend(pool.submit(run, *job, loop=loop) for job in jobs[1:])
            yield from (task.result() for task in running)

        try:
            yield ended()
        finally:
            for task in running:
                task.cancel()


def _run(
    path: Path,
    parameters: Mapping[str, object],
    *,
    timeout_s: float,
    progress: bool,
    loop: LoopThread,
) -> _Ran:
    notebook = _execute.read(path)
    written_for = _titles(notebook)
    _execute.inject(notebook, parameters, path)
    _execute.execute(
        notebook,
        path,
        timeout_s=timeout_s,
        preamble=_PREAMBLE,
        go_on=True,
        show_progress=progress,
        loop=loop,
    )
    return notebook, written_for


def _page(path: Path, ran: _Ran, parameters: Mapping[str, object], *, live: bool) -> _Page:
    notebook, written_for = ran
    failed = list(_execute.failures(notebook))
    # Data that lacks what every figure needs still has its quality table to show.
    unloaded = _unloaded(notebook, failed) if parameters else ""
    is_expected = unloaded or not failed or failed[0][1].ename == WorkbenchError.__name__
    if not is_expected and not _titles(notebook):
        number, error = failed[0]
        msg = f"{path}, cell {number}: {error.ename}: {_ANSI.sub('', error.evalue)}"
        raise PublishError(msg)
    _normalise.without_progress(notebook)
    _normalise.hide_paths(notebook, path.parent, str(parameters.get("data", "")))
    _snapshot.add_pictures(notebook, None if live else svg_of)
    return _Page(
        path,
        notebook,
        has_own_data=bool(parameters),
        is_foreign=bool(parameters) or (bool(written_for) and written_for != _titles(notebook)),
        problems=_problems(len(failed), unloaded),
        unloaded=unloaded,
    )


def _unloaded(notebook: Any, failed: list[tuple[int, Any]]) -> str:
    """Explain why data could not be loaded, if a page shows nothing of them; else nothing."""
    is_unloaded = bool(failed) and failed[0][1].ename == LoadError.__name__
    if not is_unloaded or _titles(_prose.without_published_cases(notebook)):
        return ""
    return _ANSI.sub("", str(failed[0][1].evalue))


def _refuse_unloaded(pages: Sequence[_Page]) -> None:
    """Refuse data that no page could load: pages of error messages help nobody."""
    own = [page for page in pages if page.has_own_data]
    if own and all(page.unloaded for page in own):
        raise PublishError("\n".join(dict.fromkeys(page.unloaded for page in own)))


def _problems(count: int, unloaded: str) -> str:
    if unloaded:
        return "Its data could not be loaded; the page says why."
    return f"{count} of its steps could not be computed." if count else ""


def _titles(notebook: Any) -> list[str]:
    return [title_of(figure) for figure in _snapshot.figures(notebook)]


def _exporter(jobs: _Jobs, mode: str, title: str) -> ReportExporter:
    from workbench.share._exporter import Link, ReportExporter, Site, title_of_notebook

    exporter: ReportExporter = ReportExporter(  # type: ignore[no-untyped-call]
        mode="shared" if mode == "offline" else "static"
    )
    links = [
        Link(f"{path.stem}.html", _label(path), title_of_notebook(_execute.read(path)))
        for path, _ in jobs
    ]
    first = Link("index.html", "Overview", title)
    exporter.site = Site((first, *links), made_on=_today())
    return exporter


def _early(
    exporter: ReportExporter,
    site: _Fresh,
    overview: Callable[[Sequence[PageFacts], Path], Overview],
    data: str,
) -> Overview | None:
    """Write the first page, which names the pages that are being made."""
    try:
        made = overview([], site.path)
    except WorkbenchError:
        return None  # its reason is shown with the pages, or ends the report
    pending = tuple(link.href for link in exporter.site.pages[1:])
    exporter.site = replace(exporter.site, href="index.html", pending=pending)
    _put_overview(exporter, site.path, made, data)
    exporter.site = replace(exporter.site, pending=())
    site.show()
    return made


def _written(
    exporter: ReportExporter,
    site: _Fresh,
    job: tuple[Path, dict[str, object]],
    ran: _Ran,
    wording: Callable[[str], str],
    *,
    progress: bool,
) -> tuple[_Page, dict[str, Any]]:
    """Write the page of a notebook that ran; return it, and what it says for the overview."""
    path, parameters = job
    page = _page(path, ran, parameters, live=exporter.mode != "static")
    _prose.word_errors(page.notebook, wording)
    exporter.site = replace(
        exporter.site,
        href=f"{path.stem}.html",
        data=Path(str(parameters["data"])).name if parameters else "",
        is_foreign=page.is_foreign,
    )
    body, resources = exporter.from_notebook_node(page.notebook)
    _put(site.path, {exporter.site.href: body, **exporter.files})
    hrefs = [link.href for link in exporter.site.pages]
    tell(
        f"{exporter.site.href}: page {hrefs.index(exporter.site.href)} of {len(hrefs) - 1}",
        enabled=progress,
    )
    return page, resources["wb"]


def _finish(
    exporter: ReportExporter,
    site: _Fresh,
    made: Sequence[tuple[_Page, dict[str, Any]]],
    overview: Callable[[Sequence[PageFacts], Path], Overview] | None,
    early: Overview | None,
    data: str,
) -> None:
    links = exporter.site.pages[1:]
    exporter.site = replace(exporter.site, href="index.html", data="", is_foreign=False)
    if overview is None:
        cards = [
            _card(page, link, facts["findings"])
            for (page, facts), link in zip(made, links, strict=True)
        ]
        body = exporter.overview(
            _TITLE, {"cards": cards}, _overview_facts([facts for _, facts in made])
        )
        _put(site.path, {"index.html": body})
        return
    told = [_facts(page, link, facts) for (page, facts), link in zip(made, links, strict=True)]
    again = early and early.with_pages
    shown = again(told) if again else overview(told, site.path)
    _put_overview(exporter, site.path, shown, data)


def _put_overview(exporter: ReportExporter, folder: Path, made: Overview, data: str) -> None:
    shown = _normalise.without_folders(made.html, data)
    body = exporter.overview(made.title, {"overview": shown}, _facts_of(made))
    for table in folder.glob("csv/**/*.csv"):
        text = table.read_text(encoding="utf-8")
        table.write_text(_normalise.without_folders(text, data), encoding="utf-8")
    _put(folder, {"index.html": body})


def _put(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def _overview_facts(facts: list[dict[str, Any]]) -> dict[str, Any]:
    badges = {fact["badge"] for fact in facts}
    return {
        "data": list(dict.fromkeys(name for fact in facts for name in fact["data"])),
        "badge": badges.pop() if len(badges) == 1 else "Partly synthetic data",
    }


def _facts_of(made: Overview) -> dict[str, Any]:
    sign = " (synthetic)" * made.is_synthetic
    return {
        "data": [f"{made.data}{sign}"] if made.data else [],
        "badge": "Synthetic data" * made.is_synthetic,
    }


def _facts(page: _Page, link: Link, facts: dict[str, Any]) -> PageFacts:
    return PageFacts(
        page.path.stem,
        link.href,
        link.label,
        link.title,
        tuple(facts["findings"]),
        page.problems,
        facts["sections"],
    )


def _card(page: _Page, link: Link, findings: list[str]) -> dict[str, Any]:
    from workbench.share._exporter import question_of

    return {
        "href": link.href,
        "title": link.title,
        "question": question_of(page.notebook),
        "findings": findings[:_FINDINGS],
        "problems": page.problems,
    }


def _label(path: Path) -> str:
    """Return the short name of a page: ``01_traces`` becomes ``Traces``."""
    words = re.sub(r"^\d+[_-]*", "", path.stem).replace("_", " ").strip() or path.stem
    # A word without vowels is an abbreviation: PVF.
    spelled = [
        word if set(word.lower()) & set("aeiouy") else word.upper() for word in words.split()
    ]
    words = " ".join(spelled)
    return words[0].upper() + words[1:]


def _today() -> str:
    stamp = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(tz=datetime.UTC)
    day = datetime.datetime.fromtimestamp(int(stamp), tz=datetime.UTC) if stamp else now
    return f"{day:%Y-%m-%d}"


def _refuse_foreign(out: Path) -> None:
    """Refuse to replace a folder that is not a report of ours."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())) or (out / _MARK).is_file():
        return
    msg = f"{out} exists and is not an earlier report; choose another folder or remove it"
    raise PublishError(msg)


class _Fresh:
    """An empty folder, and the place that it takes."""

    def __init__(self, out: Path, scratch: Path) -> None:
        self.path, self._out = scratch / "new", out
        self._new, self._old = self.path, scratch / "old"
        self.path.mkdir()
        text = "This folder is replaced by the next report.\n"
        (self.path / _MARK).write_text(text, encoding="utf-8")

    def show(self) -> None:
        """Take the place, once; two renames, so that a reader meets the old report or this one."""
        if self.path == self._out:
            return
        if self._out.exists():
            self._out.rename(self._old)
        self._new.rename(self._out)
        self.path = self._out

    def withdraw(self) -> None:
        """Give the place back to what was there."""
        if not self._new.exists():
            self._out.rename(self._new)
        if self._old.exists():
            self._old.rename(self._out)


@contextlib.contextmanager
def _fresh(out: Path) -> Iterator[_Fresh]:
    """Yield an empty folder that is in the place of ``out`` when all went well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        site = _Fresh(out, Path(name))
        try:
            yield site
            site.show()
        except BaseException:
            site.withdraw()
            raise
