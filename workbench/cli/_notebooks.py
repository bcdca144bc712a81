"""Commands that work on notebooks: lab, report, publish."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from workbench._shared.extras import need
from workbench.cli._app import (
    LOOK,
    BootTime,
    Chosen,
    Node,
    Unit,
    Year,
    Zone,
    options_of,
    plain_options,
    say,
)
from workbench.cli._overview import first_page
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.load.kinds import Told

_LOOKED_AT_FILES = 200
_FIRST = "00_start_here.ipynb"
_DEMO = "fleet-demo"
# JupyterLab otherwise asks for permission to fetch news, and looks for its own updates.
_QUIET = Path(__file__).with_name("_jupyter")

Data = Annotated[
    Path | None,
    typer.Option(
        help="Your own data: a folder, file or archive with traces, power logs, failure logs "
        "or tables, flight-recorder dumps, operations of a job, document lengths or injection "
        "results; the best available sets by default.",
        exists=True,
        show_default=False,
    ),
]


def lab(
    *,
    data: Data = None,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port to listen on; the next free one if taken.")
    ] = 8888,
) -> None:
    """Open JupyterLab on the notebooks; stop it with Ctrl-C.

    The notebooks are first copied to ./workbench-notebooks, so that running one changes no
    file of the package or the clone; existing copies are kept. With --data those that take such
    data open on it, without the figures and the text of other data.

    \b
    Examples:
      workbench lab
      workbench lab --data runs/monday --no-browser
    """
    need("jupyterlab", extra="lab", purpose="workbench lab")
    folder = notebooks_folder()
    fitting = [] if data is None else _fitting(sorted(folder.glob("*.ipynb")), data)
    options = plain_options(options_of(tz, year, boot_time, node, unit), data)
    folder = _copied(folder, Path("workbench-notebooks"))
    for notebook in fitting:
        _point_at(folder / notebook.name, {"data": str(Path(data or "").resolve()), **options})
    command = [sys.executable, "-m", "jupyterlab", str(folder), f"--port={port}"]
    if (folder / _FIRST).is_file():
        command.append(f"--LabApp.default_url=/lab/tree/{_FIRST}")
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        typer.echo("Running as root, as in a container: passing --allow-root.", err=True)
        # JupyterLab refuses to start as root otherwise.
        command.append("--allow-root")
    paths = os.pathsep.join(filter(None, (os.environ.get("JUPYTER_CONFIG_PATH"), str(_QUIET))))
    # In place of this process, so that signals reach JupyterLab and nothing is left behind.
    os.execve(sys.executable, command, {**os.environ, "JUPYTER_CONFIG_PATH": paths})


def report(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks to include; all by default.", show_default=False),
    ] = None,
    *,
    data: Data = None,
    tz: Zone = None,
    year: Year = None,
    boot_time: BootTime = None,
    node: Node = None,
    unit: Unit = None,
    window: Chosen = None,
    out: Annotated[Path, typer.Option(help="Folder to write; created if missing.")] = Path(
        "_report"
    ),
    mode: Annotated[
        Literal["offline", "static"],
        typer.Option(help="Live figures, or pictures only."),
    ] = "offline",
) -> None:
    """Write findings and their evidence as an offline static site.

    The first page ranks the findings about your data by their cost and says what was loaded. The
    others are the notebooks that take such data, rerun; other data is refused before anything
    runs. Without --data the site is about a bundled synthetic job, and notebooks that are named
    run on the data they are published with. The path of the first page is printed.

    \b
    Examples:
      workbench report
      workbench report --data runs/monday --out monday 01_traces.ipynb
      workbench report --data job.parquet
      workbench report --data var/log/kern.log --tz UTC --year 2026
      workbench report --data servers.csv --tz UTC --unit W
    """
    chosen = [_at_hand(path) for path in notebooks or []]
    from workbench import datasets, share

    if data is None and not chosen:
        # The bundled files are named after their hosts, and say that they are in UTC.
        data, tz, node = datasets.path(_DEMO), "UTC", [r"node\d+"]
    # Only numbered ones: they are the pages in order.
    pages = chosen or sorted(notebooks_folder().glob("[0-9]*.ipynb"))
    if data is not None:
        pages = _taking(chosen, data) if chosen else _fitting(pages, data, has_findings=True)
    stated = options_of(tz, year, boot_time, node, unit, window)
    options = plain_options(stated, data)
    overview = None if data is None else partial(first_page, data, stated)
    index = share.report(
        pages, out=out, data=data, parameters=options, mode=mode, overview=overview, wording=say
    )
    typer.echo(index)


def publish(
    notebooks: Annotated[list[Path], typer.Argument(help="Notebooks to publish, in place.")],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if a notebook is out of date.")
    ] = False,
    data_set: Annotated[
        list[str] | None,
        typer.Option(
            help="Data sets the notebooks are published with. If one is not downloaded nothing "
            "is published, and --check compares nothing and says so.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run notebooks and save them as they should be committed.

    Every figure gets a picture for viewers that run no scripts, widget state is removed,
    and outputs are made byte-stable. A notebook with an error or over 1 MB is refused.

    \b
    Examples:
      workbench publish notebooks/01_traces.ipynb
      workbench publish --check --data-set kineto-dlrm-8rank notebooks/*.ipynb
    """
    from workbench import share
    from workbench.errors import PublishError

    if names := " ".join(name for name in data_set or () if not _is_at_hand(name)):
        absent = f"{names} is not downloaded; get it with: workbench datasets fetch {names}"
        if not check:
            msg = f"nothing published: {absent}"
            raise WorkbenchError(msg)
        typer.echo(f"nothing compared: {absent}")
        raise typer.Exit
    outdated = 0
    for notebook in notebooks:
        try:
            difference = share.publish(notebook, check=check)
        except PublishError as error:
            outdated += 1
            typer.echo(f"workbench: {error}", err=True)
            continue
        if check and difference:
            outdated += 1
            typer.echo(f"{difference}\n{notebook}: out of date; publish it again")
        else:
            typer.echo(f"{notebook}: {'published' if difference else 'up to date'}")
    if outdated:
        raise typer.Exit(LOOK)


def _is_at_hand(name: str) -> bool:
    from workbench import datasets

    locations = datasets.describe().set_index("dataset")["place"]
    if name not in locations.index:
        datasets.best(name)  # which names the nearest
    return bool(locations[name] != "not available")


def notebooks_folder() -> Path:
    """Return the folder with the notebooks: inside the installed package, or of the clone."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if folder.is_dir():
            return folder
    msg = f"{package}: the notebooks are missing; install ai-infra-workbench again"
    raise WorkbenchError(msg)


def _fitting(notebooks: list[Path], data: Path, *, has_findings: bool = False) -> list[Path]:
    """Choose the notebooks that take data of this kind; none where a page of findings is enough."""
    from workbench import analyze
    from workbench.load.kinds import kind_named, unfit

    told_kinds, taking = _takers(data)
    if not told_kinds.names:
        msg = f"{str(unfit(data, told_kinds)).splitlines()[0]}; see: workbench check {data}"
        raise WorkbenchError(msg)
    chosen = [path for path in notebooks if path.stem in taking]
    if chosen or (has_findings and set(told_kinds.names) & {*analyze.finding_rules()["needs"]}):
        return chosen
    ways = "; ".join(kind_named(name).advice for name in told_kinds.names)
    held = " and ".join(told_kinds.names)
    msg = f"{data}: holds {held}, which no notebook shows on its own; {ways}"
    raise WorkbenchError(msg)


def _taking(notebooks: list[Path], data: Path) -> list[Path]:
    """Return the notebooks that were named, if each takes such data or is the user's own."""
    from workbench.load.kinds import KINDS

    told_kinds, taking = _takers(data)
    shipped = {name for kind in KINDS for name in kind.notebooks}
    if odd := [path.name for path in notebooks if path.stem in shipped - taking]:
        contents = (
            f"holds {' and '.join(told_kinds.names)}" if told_kinds.names else "is of no known kind"
        )
        fit = f"; those that do: {', '.join(sorted(taking))}" if taking else ""
        msg = f"{data}: {contents}, which {' and '.join(odd)} cannot show{fit}"
        raise WorkbenchError(msg)
    return notebooks


def _takers(data: Path) -> tuple[Told, set[str]]:
    from workbench.load.kinds import KINDS, told

    told_kinds = told(data, most_files=_LOOKED_AT_FILES)
    return told_kinds, {
        name for kind in KINDS if kind.name in told_kinds.names for name in kind.notebooks
    }


def _at_hand(notebook: Path) -> Path:
    """Return a notebook by its path, or one of the package by its name alone."""
    own = notebooks_folder() / notebook
    is_name = notebook.name == str(notebook) and not notebook.exists()
    return own if is_name and own.is_file() else notebook


def _copied(folder: Path, target: Path) -> Path:
    """Copy the notebooks to where a person may change them; keep what is there already.

    A new copy is signed: JupyterLab takes the style from outputs of a notebook it does not trust.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()  # type: ignore[no-untyped-call]
    target.mkdir(exist_ok=True)
    kept = 0
    for notebook in folder.glob("*.ipynb"):
        if (target / notebook.name).exists():
            kept += 1
        else:
            # JupyterLab shows nothing above the folder that it opens, so the pages go into it.
            text = notebook.read_text(encoding="utf-8").replace("](../docs/", "](docs/")
            (target / notebook.name).write_text(text, encoding="utf-8")
            signed = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
            notary.sign(signed)  # type: ignore[no-untyped-call]
    _copy_pages(folder, target / "docs")
    if kept:
        typer.echo(f"Copies kept in {target}: {kept}; remove that folder for fresh ones.", err=True)
    return target


def _copy_pages(folder: Path, target: Path) -> None:
    """Copy the pages that notebooks link; what they link elsewhere stays a name."""
    pages = next((way for way in (folder / "docs", folder.parent / "docs") if way.is_dir()), None)
    if pages is None:
        return
    target.mkdir(exist_ok=True)
    for page in pages.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../notebooks/", "](./../")
        text = re.sub(r"\[([^\]]*)\]\((?:site|screens|\.\.)/[^)]*\)", r"\1", text)
        (target / page.name).write_text(text, encoding="utf-8")


def _point_at(path: Path, parameters: dict[str, object]) -> None:
    """Set the names of the cell tagged ``parameters``; a notebook without one stays as it is."""
    from workbench import share

    notebook = json.loads(path.read_text(encoding="utf-8"))
    is_new = False
    for cell in notebook["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            source = "".join(cell["source"])
            for name, value in parameters.items():
                # re.sub reads backslashes of the new text as its own; paths of Windows hold them.
                line = f"{name} = {value!r}".replace("\\", r"\\")
                source = re.sub(rf"^{name}\b.*=.*$", line, source, flags=re.MULTILINE)
            is_new |= source != "".join(cell["source"])
            cell["source"] = source
    # A copy shows other data, unless it was pointed at this one before.
    if is_new:
        share.for_own_data(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
