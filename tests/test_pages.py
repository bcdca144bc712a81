"""README and its companions: every link leads somewhere, every claim and every command holds."""

import ast
import importlib.util
import inspect
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import typer

from tests.analyze.imbalance.jobs import test_traced
from tests.load.traces.nsight.nsight_files import tables, write
from tests.load.traces.xplane.xplane_files import gpu_space
from workbench import analyze, explore, inject, load, plot, simulate
from workbench.cli import app
from workbench.load import kinds
from workbench.load._files import signatures
from workbench.share import _execute, _normalise, _prose
from workbench.share.svg import why_no_pictures

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
OWN_DATA = (ROOT / "docs" / "own_data.md").read_text()
FUNCTIONS = (ROOT / "docs" / "functions.md").read_text()
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "data" / "README.md"]
GUIDES += sorted(ROOT.glob("docs/**/*.md"))
VERBS = {"load": load, "analyze": analyze, "plot": plot, "explore": explore}
DOMAINS = ("traces", "imbalance", "failures", "pvf", "perfmodel", "power", "fleet", "communication")
MOST_BYTES = 200_000


def by_name(path):
    return str(path.relative_to(ROOT))


def refresh_module():
    """Load the script that writes screens and outputs; docs/ is not a package."""
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


refresh = refresh_module()


def rows_of(table):
    """Return the cells of a table, row by row, without its head."""
    lines = [line[1:].rstrip("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def table_after(text, words):
    """Return the cells of the first table that follows some words."""
    return rows_of(re.search(r"(?:^\|.*\n)+", text.split(words, 1)[1], re.MULTILINE)[0])


def code_names(cell):
    return re.findall(r"`(\w+)`", cell)


def links(cell):
    return re.findall(r"\]\(([^)]+)\)", cell)


def calls_of(notebook):
    """Return the functions of the package that the code of a notebook uses, as load.traces."""
    cells = json.loads(notebook.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in VERBS
    }


CALLS = {path.name: calls_of(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def test_readme_stays_short_and_links_every_page_and_notebook():
    assert len(README.splitlines()) <= 120
    linked = {(ROOT / link).resolve() for link in links(README) if "://" not in link}
    assert set(ROOT.glob("docs/*.md")) | set(ROOT.glob("notebooks/*.ipynb")) <= linked


# -- pictures ---------------------------------------------------------------------------------


@pytest.mark.long
def test_pictures_of_the_readme_are_the_screens_and_name_the_findings_on_them(dlrm):
    shown = re.findall(r"!\[([^\]]*)\]\((docs/screens/\w+\.png)\)", README)
    assert {path for _, path in shown} == {
        str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "screens").iterdir()
    }
    assert all((ROOT / path).stat().st_size < MOST_BYTES for _, path in shown)
    # A screen says its titles to no test; the words for those who cannot see it are held to them.
    findings = analyze.findings(load.traces(dlrm, progress=False)).findings["finding"].head(3)
    numbered = " ".join(f"{place}. {claim}." for place, claim in enumerate(findings, start=1))
    assert numbered in shown[0][0], "run docs/refresh.py screens"


# -- where things are -------------------------------------------------------------------------


def domain_rows():
    """Return the table of domains: domain, cell by verb, cell of the notebook."""
    rows = table_after(CONTRIBUTING, "<!-- domains -->")
    return [
        (name.strip("`"), dict(zip(VERBS, cells, strict=True)), notebook)
        for name, *cells, notebook in rows
    ]


def functions_in(cells):
    """Return the functions that cells by verb name, such as load.traces."""
    return {f"{verb}.{name}" for verb, cell in cells.items() for name in code_names(cell)}


def test_the_table_of_domains_has_a_row_for_every_domain_on_disk():
    rows = [domain for domain, _, _ in domain_rows()]
    assert tuple(rows) == DOMAINS
    shared = {"files", "lib", "style", "jupyter"}
    for verb in VERBS:
        folders = (ROOT / "workbench" / verb).glob("_[a-z]*/__init__.py")
        assert {path.parent.name[1:] for path in folders} - shared <= set(rows)


def test_cells_of_the_table_of_domains_link_the_folder_of_their_functions():
    astray = []
    for domain, cells, _ in domain_rows():
        for verb, cell in cells.items():
            (link,) = links(cell)
            own = f"workbench/{verb}/_{domain}/"
            if (ROOT / own).is_dir() and link != own:
                astray.append(f"{domain}, {verb}: links {link}, not {own}")
            for name in code_names(cell):
                source = inspect.getsourcefile(inspect.unwrap(getattr(VERBS[verb], name)))
                if not Path(source).resolve().is_relative_to((ROOT / link).resolve()):
                    astray.append(f"{verb}.{name}: in {source}, not in {link}")
    assert astray == []


# load.fleet opens power logs through the loader of their kind.
OPENED_BY = {"load.power": "load.fleet", "load.traces": "load.bundle"}


def test_the_notebook_of_a_domain_calls_every_function_that_its_row_names():
    for domain, cells, notebook in domain_rows():
        named = functions_in(cells)
        assert named, domain
        if not notebook:
            assert all(named.isdisjoint(calls) for calls in CALLS.values()), domain
            continue
        (link,) = links(notebook)
        assert Path(link).name.startswith(f"{DOMAINS.index(domain) + 1:02}_")
        called = CALLS[Path(link).name]
        assert {OPENED_BY.get(name, name) for name in named - called} - called == set()


def test_load_fleet_opens_power_logs_with_load_power():
    assert kinds.kind_named("power logs").door is load.power
    assert kinds.kind_named("traces").door is load.traces


# -- functions by domain ----------------------------------------------------------------------


def noun_rows():
    """Return the tables of nouns: domain, cell by verb, cell of the notebook."""
    sections = re.findall(r"^## `(\w+)`.*\n\n((?:\|.*\n)+)", FUNCTIONS, re.MULTILINE)
    return [
        (domain, dict(zip(VERBS, cells, strict=True)), notebook)
        for domain, table in sections
        if domain in DOMAINS
        for _, *cells, notebook in rows_of(table)
    ]


def test_the_page_of_functions_names_every_public_name_and_no_other():
    named = {verb: set() for verb in VERBS}
    for _, cells, _ in noun_rows():
        for verb, cell in cells.items():
            named[verb] |= set(code_names(cell))
    generators = table_after(FUNCTIONS, "known truth")
    named["simulate"] = {
        name for row in generators for cell in row[1:] for name in code_names(cell)
    }
    injecting = table_after(FUNCTIONS, "the extra `inject`")
    named["inject"] = {name for row in injecting for name in code_names(row[1])}
    for row in table_after(FUNCTIONS, "option allows."):
        named["analyze"] |= set(code_names(row[1]))
    named["plot"] |= set(re.findall(r"`plot\.(\w+)`", FUNCTIONS))
    named["explore"] |= set(re.findall(r"`explore\.(\w+)`", FUNCTIONS))
    rooms = VERBS | {"simulate": simulate, "inject": inject}
    for verb, module in rooms.items():
        # A former name is an alias: its function goes by another one.
        former = {
            name
            for name in module.__all__
            if inspect.isfunction(value := getattr(module, name)) and value.__name__ != name
        }
        assert named[verb] == set(module.__all__) - former, verb


# What the notebook of a domain has no room for.
MORE_NOTEBOOKS = {"traces": ("10_",)}


def test_a_noun_links_the_notebook_of_its_domain_if_that_calls_one_of_its_functions():
    for domain, cells, cell in noun_rows():
        # A notebook of its own, and the one that plans with the functions of several domains.
        numbers = (f"{DOMAINS.index(domain) + 1:02}_", "09_")
        calling = [
            name for name, calls in CALLS.items() if not calls.isdisjoint(functions_in(cells))
        ]
        shown = [name for name in calling if name.startswith(numbers)]
        shown = shown or [
            name for name in calling if name.startswith(MORE_NOTEBOOKS.get(domain, "-"))
        ]
        assert [Path(link).name for link in links(cell)] == shown, cells


# -- commands and code ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_of_the_readme_and_the_tutorial_print_what_these_show(absent):
    if reason := why_no_pictures():
        absent(reason)
    assert "".join(refresh.CONSOLE.findall(README)).count("$ workbench") == 3
    for text in (README, refresh.TUTORIAL.read_text()):
        # Tests of their own run the other notebooks on data of a user.
        now = refresh.with_outputs(text, pages="00_start_here.ipynb")
        assert now == text, "run docs/refresh.py"


def test_the_page_of_commands_holds_the_help_of_every_command():
    text = refresh.COMMANDS.read_text()
    assert refresh.with_commands(text) == text, "run docs/refresh.py"
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [*typer.main.get_command(app).commands]


def commands_of(page):
    """Return the command lines of the package that a page prints, in blocks and in sentences."""
    text = page.read_text()
    # Every fence is matched, so that no end of a block is taken for the beginning of one.
    fences = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fences if language in ("", "shell")]
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(
        r"`((?:[^`\n]* && )?workbench [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    )
    parts = [part.strip() for line in lines for part in line.split(" && ")]
    return [part.partition(" #")[0] for part in parts if part.startswith("workbench ")]


@pytest.mark.long
def test_printed_commands_and_their_options_exist(tmp_path, monkeypatch):
    own_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = [line for page in GUIDES for line in commands_of(page)]
    assert len(lines) >= 20
    for line in lines:
        command, context, words = typer.main.get_command(app), None, shlex.split(line)[1:]
        while words and hasattr(command, "commands") and not words[0].startswith("-"):
            context = typer.Context(command, parent=context, info_name=words[0])
            assert words[0] in command.commands, line
            command, words = command.commands[words[0]], words[1:]
        if words and words != ["--help"]:
            command.make_context(line, words, parent=context)


def test_printed_targets_of_make_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    printed = {name for page in GUIDES for name in re.findall(r"`make (\w+)", page.read_text())}
    assert printed <= set(targets)


OWN_TABLES = {
    "config.json": [
        '{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "head_dim": 128,',
        '"intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,',
        '"vocab_size": 128256}',
    ],
    "tree.csv": ["entity,parent,level,nameplate_w,limit_w", "hall,,hall,25000,20000", *(
        f"node00{number},hall,node,9000,8000" for number in (1, 2, 3)
    )],
    "summary.csv": ["Injection,Layer,TensorIndex,Bit,masked,non_critical,critical", *(
        f"{number},conv1,\"({number}, 0)\",{number % 32},490,8,2" for number in range(40)
    )],
    "counters.csv": ["timestamp,gpu,energy_j", *(f"2026-01-12 08:00:0{at},0,{300 * at}" for at in range(9))],
    "gpus.csv": ["age_days,died", *(f"{10 * age},{age % 3 == 0}" for age in range(1, 30))],
    "results.csv": ["run,layer,bit,mismatches,images", "0,fc1,30,7,10", "1,fc1,2,0,10"],
    "strassen": [
        "# U", "1 0 1 0 1 -1 0", "0 0 0 0 1 0 1", "0 1 0 0 0 1 0", "1 1 0 1 0 0 -1",
        "# V", "1 1 0 -1 0 1 0", "0 0 1 0 0 1 0", "0 0 0 1 0 0 1", "1 0 -1 0 1 0 1",
        "# W", "1 0 0 1 -1 0 1", "0 0 1 0 1 0 0", "0 1 0 1 0 0 0", "1 -1 1 0 0 1 0",
    ],
    "contractions.txt": ["abc acd db & a:48;b:48;c:48;d:48;"],
}  # fmt: skip


def own_files(folder):
    """Lay bundled data where the examples expect a user's own."""
    bundled = {
        "runs/monday": "fleet-demo/traces",
        "runs/tuesday": "fleet-demo/traces",
        "runs/trace.json.gz": "fleet-demo/traces/synthetic_rank_0.pt.trace.json.gz",
        "job.parquet": "imbalance-demo/synthetic_job.parquet",
        "lengths.json": "imbalance-demo/synthetic_lengths.txt",
        "var/log/cluster": "failures-demo",
        "dumps": "hang-demo",
        "campaign": "pvf-demo/components/dlrm",
        "power": "fleet-demo/power",
        "job": "fleet-demo",
        "outputs.npz": "compressed-exchange/outputs.npz",
    }
    for name, source in bundled.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / "data" / source)
    incidents = {"when": ["2026-01-12 08:00:00"], "host": ["node1"], "why": ["GPU"]}
    pd.DataFrame(incidents).to_csv(folder / "incidents.csv", index=False)
    times = pd.date_range("2026-01-12 08:00", periods=4, freq="s")
    (folder / "runs" / "pipelined").mkdir()
    write(folder / "runs" / "report.sqlite", tables())
    (folder / "runs" / "jax").mkdir()
    (folder / "runs" / "jax" / "h.xplane.pb").write_bytes(gpu_space().SerializeToString())
    test_traced.traced(test_traced.job(), folder / "runs" / "pipelined")
    places = "".join(f"{rank},node{rank // 4},,,by hand\n" for rank in range(16))
    (folder / "places.csv").write_text(f"rank,node,rail,switch,basis\n{places}")
    meters = {"t": times, "host": "node1", "draw": [1.0, 2.0, 2.0, 1.0]}
    pd.DataFrame(meters).to_parquet(folder / "meters.parquet")
    (folder / "fleet_parquet").mkdir()
    readings = {
        "time": times.tz_localize("UTC"),
        "entity": "node1",
        "power_w": [1.0, 2.0, 2.0, 1.0],
    }
    pd.DataFrame(readings).to_parquet(folder / "fleet_parquet" / "day.parquet")
    for name, lines in OWN_TABLES.items():
        (folder / name).write_text("\n".join(lines) + "\n")


def python_of(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


# CONTRIBUTING.md holds patterns, not code to run.
RUN = [
    ROOT / "README.md",
    *(
        page
        for page in ROOT.glob("docs/*.md")
        if "```python" in page.read_text() and page.stem not in {"traces", "imbalance", "cluster"}
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=by_name)
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, torch_here):
    own_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = {
        "model": inject.shipped_model("lenet"),
        "inputs": inject.shipped_inputs("lenet")[0][:100],
    }
    for block in python_of(page.read_text()):
        exec(compile(block, "page", "exec"), given)


def test_every_block_of_code_of_the_guides_is_python_that_parses():
    for page in GUIDES:
        for block in python_of(page.read_text()):
            ast.parse(block)


REPORTS = {
    "runs/monday": "traces",
    "job.parquet": "job operations",
    "var/log/cluster": "failure logs",
    "campaign/": "injections",
    "power/": "power logs",
}


def test_a_report_writes_the_notebooks_that_the_page_names():
    for path, kind in REPORTS.items():
        report = rf"`workbench report --data {path}(?: [^`]*)?` writes (.*?)[.;] *(?:\n|[A-Z])"
        (sentence,) = re.findall(report, OWN_DATA)
        named = {Path(link).stem for link in links(sentence)}
        assert named == set(kinds.kind_named(kind).notebooks), path


def test_the_example_paths_hold_the_kinds_that_the_page_says(tmp_path):
    own_files(tmp_path)
    for path, kind in REPORTS.items():
        assert kind in kinds.kinds_of(tmp_path / path)


# -- benchmarks -------------------------------------------------------------------------------


# Only their findings are on the page, which links the tables.
LINKED_ONLY = {"checksums", "low_precision"}


def test_the_page_of_benchmarks_has_a_row_for_all_that_is_measured():
    page = ROOT / "benchmarks" / "RESULTS.md"
    assert [link for link in links(page.read_text()) if not (page.parent / link).exists()] == []
    shown = set(re.findall(r"^\| *([^|]+?) *\|", page.read_text(), re.MULTILINE))
    for part in (page.parent / "results").glob("*.md"):
        if part.stem in LINKED_ONLY:
            assert f"results/{part.name}" in links(page.read_text())
        else:
            assert {row[0] for row in rows_of(part.read_text())} - shown == set(), part.name


# -- contributing -----------------------------------------------------------------------------

LOAD = ROOT / "workbench" / "load"
# What a person puts in place of the words in angle brackets.
FILLED = {"<domain>": "power", "<format>": "*", "<noun>": "*"}


def test_paths_that_contributing_names_exist():
    text = re.sub(r"^```.*?^```", "", CONTRIBUTING, flags=re.DOTALL | re.MULTILINE)
    missing = []
    for span in re.findall(r"`([\w.*<>-]+/[\w.*<>-][\w./*<>-]*)`", text):
        path = span
        for words, name in FILLED.items():
            path = path.replace(words, name)
        if not [*ROOT.glob(path), *(ROOT / "workbench").glob(path)]:
            missing.append(span)
    assert missing == ["FOLDER/<set>/<file>"]


def test_the_map_of_load_shows_every_folder_and_nothing_that_is_not_there():
    rows = table_after(CONTRIBUTING, "<!-- map of load -->")
    shown = {row[0].strip("`") for row in rows}
    folders = {f"{path.parent.name}/" for path in LOAD.glob("*/__init__.py")}
    assert folders <= shown
    assert [name for name in shown if not (LOAD / name).exists()] == []
    for row in rows:
        inside = re.findall(r"`(\w+/)`", row[1])
        assert [name for name in inside if not (LOAD / row[0].strip("`") / name).is_dir()] == []


def members(contract):
    """Return the names that a protocol asks for."""
    return {name for name in {*vars(contract), *contract.__annotations__} if name[0] != "_"}


def test_every_format_has_what_contributing_asks_of_a_new_one():
    for domain, path, contract, asked in table_after(CONTRIBUTING, "<!-- formats -->"):
        assert f"/_{domain}/" in path
        registry = importlib.import_module(path.strip("`").removesuffix(".py").replace("/", "."))
        assert members(getattr(registry, contract.strip("`"))) == set(code_names(asked))
        rows = {"failures": signatures.FAILURE_FORMATS, "power": signatures.POWER_FORMATS}
        modules = [row.reader for row in rows.get(domain, ())] or registry.FORMATS
        lacking = [
            (module.NAME, name)
            for module in modules
            for name in code_names(asked)
            if not hasattr(module, name)
        ]
        assert lacking == []


def test_every_registry_of_formats_is_in_contributing():
    rows = table_after(CONTRIBUTING, "<!-- formats -->")
    there = {by_name(path) for path in LOAD.glob("*/formats/registry.py")}
    assert {row[1].strip("`") for row in rows} == there


def test_contributing_explains_the_tags_that_the_product_reads_and_notebooks_have():
    rows = table_after(CONTRIBUTING, "<!-- tags -->")
    explained = {row[0].strip("`") for row in rows}
    read = {_prose.PUBLISHED_CASE, _prose.NOTEBOOK_ONLY, _execute._INJECTED, "parameters"}
    assert explained == read
    used = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            used |= set(cell["metadata"].get("tags", []))
    assert used <= explained
    kept = _normalise._KEPT_IN_CELLS | _normalise._KEPT_IN_NOTEBOOK
    (sentence,) = re.findall(r"^Of the metadata only (.*?) are kept", CONTRIBUTING, re.MULTILINE)
    assert set(code_names(sentence)) == kept


def test_the_page_of_rules_is_that_of_today():
    page = refresh.RULES.read_text()
    assert page == refresh.with_rules(page)
    assert page.count("\n| ") > 40


def test_the_table_of_formats_has_every_registered_reader():
    page = refresh.OWN_DATA.read_text()
    assert page == refresh.with_formats(page), "run docs/refresh.py"
    told = pd.read_csv(ROOT / "docs" / "formats.csv")
    assert set(zip(told["kind"], told["format"], strict=True)) == set(refresh.readers())
    assert {kind for kind, _ in refresh.readers()} == set(kinds.NAMES)
    table = page.partition("<!-- every format -->")[2]
    assert table.count("\n| ") == len(told) + 1
