"""Bring README.md and pages of docs up to date: ``python docs/refresh.py``.

``python docs/refresh.py findings`` measures the rules behind findings again, which takes minutes;
``python docs/refresh.py screens`` photographs the pages in the README, in Chromium.

The lines under commands are what these print. Run it after messages were reworded.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RULES = ROOT / "docs" / "diagnose.md"
COMMANDS = ROOT / "docs" / "commands.md"
OWN_DATA = ROOT / "docs" / "own_data.md"
SCREENS = ROOT / "docs" / "screens"
TUTORIAL = ROOT / "docs" / "site" / "tutorial.md"
CONSOLE = re.compile(r"(?<=```console\n)\$ .*?(?=```)", re.DOTALL)


def screens() -> None:
    """Photograph the first page of a report, and its timeline in two states."""
    from playwright.sync_api import sync_playwright

    from workbench import datasets
    from workbench.share.svg import find_chrome

    data = datasets.path("kineto-dlrm-8rank") / "dlrm_kineto.tar.gz"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        command = [sys.executable, "-m", "workbench.cli", "report", "--data", str(data)]
        subprocess.run([*command, "--out", folder, "01_traces.ipynb"], check=True)
        browser = browsers.chromium.launch(executable_path=find_chrome(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 640})
        page.goto(Path(folder, "index.html").as_uri())
        page.screenshot(path=SCREENS / "findings_page.png")
        page.goto(Path(folder, "01_traces.html").as_uri())
        explorer = page.locator(".wb-explorer").first
        window = explorer.get_by_label("window")
        late = window.locator("option", has_text="others wait for this rank").first
        for name, state in (("whole", "whole trace"), ("window", late.text_content())):
            window.select_option(label=state)
            page.wait_for_timeout(1_000)
            page.evaluate(
                "e => scrollTo(0, e.getBoundingClientRect().top + scrollY - 60)",
                explorer.element_handle(),
            )
            page.screenshot(path=SCREENS / f"timeline_{name}.png")
        browser.close()


def with_outputs(text: str, pages: str = "") -> str:
    """Return a page with what its commands print now, run one after the other.

    A report of all notebooks is made of the notebook ``pages`` if given; its lines of progress,
    which would differ, are left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Commands name the bundled data as seen from the root, and write beside it.
        (Path(folder) / "data").symlink_to(ROOT / "data")
        (Path(folder) / "runs").mkdir()
        monday = ROOT / "data" / "fleet-demo" / "traces"
        (Path(folder) / "runs" / "monday").symlink_to(monday)
        _at_half_speed(monday, Path(folder) / "runs" / "tuesday")
        return CONSOLE.sub(lambda match: _session(match[0], folder, pages), text)


def _at_half_speed(source: Path, target: Path) -> None:
    """Copy traces with all times doubled: a run in which a change is found."""
    target.mkdir()
    for file in source.glob("*.json.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        for event in document["traceEvents"]:
            event |= {name: 2 * event[name] for name in ("ts", "dur") if name in event}
        (target / file.name).write_bytes(gzip.compress(json.dumps(document).encode(), 1))


def _session(console: str, folder: str, pages: str) -> str:
    printed = []
    for line in re.findall(r"^\$ workbench (.*)$", console, re.MULTILINE):
        is_whole = line.startswith("report ") and ".ipynb" not in line
        shown = _printed([*line.split(), *pages.split()] if is_whole else line.split(), folder)
        if is_whole:
            shown = re.sub(r"(?m)^\S+\.html: (can be opened, |page \d).*\n", "", shown)
        printed.append(f"$ workbench {line}\n{shown}")
    return "".join(printed)


def _printed(arguments: list[str], folder: str) -> str:
    command = [sys.executable, "-m", "workbench.cli", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    # 1 is an answer: there is something to look at.
    if done.returncode > 1:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    # Where a user works is not known here.
    return done.stdout.replace(str(Path(folder).resolve()), "...")


def with_commands(text: str) -> str:
    """Return a page with the help of every command, between its two marks."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from workbench.cli import app

    parts = ["<!-- commands -->"]
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        shown = (
            CliRunner()
            .invoke(app, [name, "--help"], env={"COLUMNS": "96"}, prog_name="workbench")
            .output
        )
        parts += [
            f"## {name}",
            "",
            "```text",
            *map(str.rstrip, shown.strip().splitlines()),
            "```",
            "",
        ]
    parts += ["<!-- end of commands -->"]
    pattern = r"<!-- commands -->.*<!-- end of commands -->"
    return re.sub(pattern, lambda _: "\n".join(parts), text, flags=re.DOTALL)


def with_rules(text: str) -> str:
    """Return a page with the rules behind findings, as they are now, between its two marks."""
    from workbench import analyze

    lines = ["| domain | rule | looks for | thresholds | reason |", "|---|---|---|---|---|"]
    for row in analyze.finding_rules().itertuples():
        cells = [row.domain, f"`{row.rule}`", row.about, row.thresholds or "none", row.reference]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(["<!-- rules -->", *lines, "<!-- end of rules -->"])
    return re.sub(r"<!-- rules -->.*<!-- end of rules -->", lambda _: table, text, flags=re.DOTALL)


def readers() -> dict[tuple[str, str], str]:
    """List every registered reader by kind of data and format, with what its module says of it."""
    from workbench.load import kinds
    from workbench.load._files import signatures
    from workbench.load._fleet import job_log
    from workbench.load._pvf.formats import registry as pvf
    from workbench.load._traces.memory import profile, snapshot

    modules = {
        "traces": {
            form.name: form.reader
            for form in (*signatures.FORMATS_BEFORE_KINETO, *signatures.TRACE_FORMATS)
        },
        "memory snapshots": {"snapshot": snapshot, "profile": profile},
        "job logs": {module.NAME: module for module in (*job_log.FORMATS, job_log.job_scalars)},
        **{
            kind: {form.reader.NAME: form.reader for form in forms}
            for kind, forms in (
                ("failure logs", signatures.FAILURE_FORMATS),
                ("power logs", signatures.POWER_FORMATS),
            )
        },
        "injections": {module.NAME: module for module in pvf.FORMATS},
    }
    found = {
        (kind, name): _first_line(module) for kind in modules for name, module in
        modules[kind].items()
    }  # fmt: skip
    doors = {kind.name: kind.door for kind in kinds.KINDS if kind.name not in modules}
    alone = {"flight-recorder dumps": "dump"}
    return found | {
        (kind, alone.get(kind, "table")): _first_line(door) for kind, door in doors.items()
    }


def _first_line(documented: object) -> str:
    return re.sub(r"``|:func:|`", "", (documented.__doc__ or "").split("\n")[0])


def with_formats(text: str) -> str:
    """Return a page with every format that is read, by kind of data, between its two marks."""
    from workbench.load.kinds import KINDS

    told = pd.read_csv(ROOT / "docs" / "formats.csv").set_index(["kind", "format"])
    heads = "| kind, and its loader | format | file | how to get it | what is loaded |"
    lines = [heads, "|---|---|---|---|---|"]
    doors = {kind.name: f"{kind.name}, `load.{kind.door.__name__}`" for kind in KINDS}
    about = readers()
    for kind, name in sorted(about, key=lambda key: (list(doors).index(key[0]), key[1].lower())):
        row = told.loc[(kind, name)]
        cells = [doors[kind], name, about[kind, name], row["export"], row["loaded"]]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(["<!-- every format -->", *lines, "<!-- end of every format -->"])
    pattern = r"<!-- every format -->.*<!-- end of every format -->"
    return re.sub(pattern, lambda _: table, text, flags=re.DOTALL)


def with_quality(text: str, cases: pd.DataFrame) -> str:
    """Return a page with how well troubles are found, between its two marks."""
    import claims

    quality = claims.finding_quality(cases)
    seeds = f"{cases['seed'].nunique()} odd seeds, {cases['seed'].min()} to {cases['seed'].max()}:"
    heads = ("trouble", "rule", "counts from", "cases", "recall", "nine of ten from", "elsewhere",
             "cost off by", "false findings", "goals")  # fmt: skip
    formats = {
        "trouble": "{}", "rule": "`{}`", "from_share": "{:.0%}", "case_count": "{}",
        "recall_share": "{:.0%}", "smallest_share": "{:.1%}", "elsewhere_ratio": "{:.2f}",
        "cost_error_ratio": "{:.0%}", "false_ratio": "{:.2f}", "verdict": "{}",
    }  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in quality.to_dict("records"):
        cells = [
            "" if pd.isna(row[name]) else str(form.format(row[name])).replace("%", " %")
            for name, form in formats.items()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(["<!-- quality -->", seeds, "", *lines, "<!-- end of quality -->"])
    pattern = r"<!-- quality -->.*<!-- end of quality -->"
    return re.sub(pattern, lambda _: table, text, flags=re.DOTALL)


def measure_findings() -> None:
    """Measure the rules in a hundred jobs per trouble, on seeds that no threshold was chosen on."""
    import claims

    cases = claims.finding_cases(range(1, 201, 2), progress=print)
    text = with_quality(RULES.read_text(encoding="utf-8"), cases)
    RULES.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the outputs, the help of commands, the formats and the rules again."""
    if sys.argv[1:]:
        {"findings": measure_findings, "screens": screens}[sys.argv[1]]()
        return
    for page, filled in (
        (RULES, with_rules),
        (COMMANDS, with_commands),
        (OWN_DATA, with_formats),
        (TUTORIAL, with_outputs),
        (README, with_outputs),
    ):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
