"""Rules about the code itself: mirrored names, documented columns, light imports, short files."""

import ast
import collections
import functools
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import claims
from tests.rules import for_every
from workbench import (
    analyze,
    datasets,
    explore,
    inject,
    load,
    plot,
    record,
    share,
    simulate,
    tables,
)

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    module.__name__.removeprefix("workbench."): module
    for module in (
        load,
        simulate,
        inject,
        analyze,
        plot,
        explore,
        share,
        record,
        datasets,
        claims,
    )
}
TABLES = {
    name: table
    for module in (tables, claims)
    for name in module.__all__
    if isinstance(table := getattr(module, name), tables.Table)
}


def by_name(paths):
    """Give paths by their name inside the project."""
    return {str(path.relative_to(ROOT)): path for path in sorted(paths)}


SOURCES = by_name((ROOT / "workbench").rglob("*.py"))
CLAIMS = by_name((ROOT / "claims").rglob("*.py"))
GENERATORS = by_name((ROOT / "data" / "make").rglob("*.py"))
CODE = by_name(path for part in ("tests", "benchmarks") for path in (ROOT / part).rglob("*.py"))
PAGES = by_name([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")])
LINES_PER_FILE = {"workbench": 800, "claims": 800, "data": 800, "tests": 600, "benchmarks": 600}
COLUMNS_TO_LIST = 6
# Shorter ones are alike because there is only one way to write them.
SAME_LINES = 5
BANNED_CALLS = {"print", "eval", "exec", "pickle.load", "pickle.loads", "pd.read_pickle"}

# Figures of what was loaded, or of a part of a result; there is nothing to work out first.
DRAWN_AS_IS = {
    "run_comparison_page",
    "run_trend_page",
    "dashboard",
    "timeline",
    "timeline_live",
    "packing_queues",
}
# What explorers share, no noun; and a trace redrawn, which is seen as its time breakdown.
EXPLORER_PARTS = {"Explorer", "trace_like"}

UNITS = ("_ns", "_us", "_ms", "_s", "_min", "_h", "_w", "_j", "_c", "_mhz", "_gbps")
UNITS += ("_days", "_hz", "_level")
UNITS += ("_bytes", "_share", "_ratio", "_count", "_tokens", "_batches", "_cost")
UNITS += ("_w2",)
# Units that a bare name would hide; the others are counts, or shares and ratios, which have none.
MEASURED = tuple(
    unit for unit in UNITS if unit not in ("_count", "_share", "_ratio", "_cost", "_level")
)
INTEGERS, FLOATS = {"int32", "int64"}, {"float32", "float64"}
# torch's names of how many ranks there are, and names of one operation, expert or sequence.
NAMES_OF_THE_FIELD = {"group_size", "world_size", "last_started", "last_completed", "expert"}
NAMES_OF_THE_FIELD |= {"sequence"}


def functions(module):
    """Public functions of a room by name."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in found.items() if inspect.isfunction(each)}


PUBLIC = {
    f"{room}.{name}": function
    for room, module in ROOMS.items()
    for name, function in functions(module).items()
}


@functools.cache
def syntax_tree(path):
    return ast.parse(path.read_text())


@functools.cache
def calls_and_imports(path):
    """Give what a file calls, by name, and the modules that it imports names from."""
    nodes = list(ast.walk(syntax_tree(path)))
    # Names only: what is called otherwise, the result of a call or an item, has none.
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {ast.unparse(each) for each in called if isinstance(each, ast.Name | ast.Attribute)}
    return names, [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]


@for_every(room=ROOMS)
def test_public_names_are_listed_once_and_exist(room):
    assert len(room.__all__) == len(set(room.__all__))
    assert all(hasattr(room, name) for name in room.__all__)


def test_every_explorer_has_a_figure_and_every_figure_an_analysis():
    explorers = set(functions(explore)) - EXPLORER_PARTS
    figures = set(functions(plot))
    assert explorers <= figures
    assert figures - DRAWN_AS_IS <= set(functions(analyze))


@for_every(function=PUBLIC)
def test_docstring_names_the_table_it_returns_and_lists_its_columns(function):
    doc = inspect.getdoc(function) or ""
    returns = re.search(
        r"Returns\n-+\npandas\.DataFrame\n(.*?)(\n\n[A-Z][\w ]+\n-|\Z)", doc, re.DOTALL
    )
    annotation = str(inspect.signature(function).return_annotation)
    if annotation in {"pd.DataFrame", "<class 'pandas.DataFrame'>"}:
        assert returns, "a function that returns a frame says which table it is"
    if returns is None:
        return
    named = re.search(r"(?:tables|claims)\.(\w+)`", returns[1])
    assert named, "the Returns section names a table of workbench.tables, or of the claims"
    columns = TABLES[named[1]].columns
    if len(columns) <= COLUMNS_TO_LIST:
        assert [name for name in columns if f"``{name}``" not in returns[1]] == []


@for_every(function=PUBLIC)
def test_docstring_explains_every_parameter(function):
    doc = inspect.getdoc(function) or ""
    parameters = {name for name in inspect.signature(function).parameters if name[0] != "_"}
    if function.__module__.startswith(("workbench.plot", "workbench.explore")):
        parameters -= {"source", "synthetic"}  # what their packages say of all
    headings = set(re.findall(r"\w+", "\n".join(re.findall(r"^[\w*, ]+$", doc, re.MULTILINE))))
    assert [name for name in parameters if name not in headings] == []


def of_dtype(table, dtypes):
    """Columns of some number types, with and without missing values."""
    return {name: each for name, each in table.columns.items() if each.dtype.lower() in dtypes}


def last_word(name):
    """Give the word that says what is measured: ``blocked`` of ``host_blocked_ns``."""
    unit = next((unit for unit in MEASURED if name.endswith(unit)), "")
    return name.removesuffix(unit).rpartition("_")[2]


# Words that stand before a unit, as often as they do: start of start_ns, size of size_bytes.
MEASURED_WORDS = collections.Counter(
    last_word(name)
    for table in TABLES.values()
    for name in of_dtype(table, INTEGERS)
    if name.endswith(MEASURED)
)


@for_every(table=TABLES)
def test_an_integer_without_a_unit_is_a_number_of_something_and_no_quantity(table):
    bare = [name for name in of_dtype(table, INTEGERS) if not name.endswith(UNITS)]
    measured = [name for name in bare if last_word(name) in MEASURED_WORDS]
    assert set(measured) - NAMES_OF_THE_FIELD == set(), "elsewhere this word has a unit"


def test_most_quantities_would_be_noticed_without_their_unit():
    assert (
        sum(count for count in MEASURED_WORDS.values() if count > 1) > 0.8 * MEASURED_WORDS.total()
    )


@for_every(table=TABLES)
def test_a_float_has_a_unit_a_unit_beside_it_or_none_by_its_limits(table):
    """What a model returns, a residual or a metric, is in the unit of that model."""
    is_of_a_model = any(table is each for each in vars(tables.pvf).values())
    is_unit_beside = any("unit" in name for name in table.columns)
    without = [
        name
        for name, column in of_dtype(table, FLOATS).items()
        if not name.endswith(UNITS) and "_per_" not in name
        if (column.lower, column.upper) not in {(0, 1), (-1, 1)}
        if not (is_of_a_model or is_unit_beside or "unit" in column.meaning)
    ]
    assert without == [], f"{table.name}: no unit in {without}"


@for_every(table=TABLES)
def test_shares_are_fractions(table):
    columns = table.columns
    assert [name for name in columns if name.endswith(("_percent", "_pct"))] == []
    shares = {name: column for name, column in columns.items() if name.endswith("_share")}
    assert [name for name, share in shares.items() if (share.lower, share.upper) != (0, 1)] == []


@for_every(path=SOURCES | CLAIMS | GENERATORS | CODE)
def test_files_are_short_enough_to_be_about_one_thing(path):
    name = path.relative_to(ROOT)
    lines = len(path.read_text().splitlines())
    assert lines <= LINES_PER_FILE[name.parts[0]]


@pytest.mark.long
@for_every(
    path=SOURCES | GENERATORS | {name: CLAIMS[name] for name in CLAIMS if "__main__" not in name}
)
def test_the_package_never_prints_and_never_unpickles(path):
    calls, _ = calls_and_imports(path)
    assert calls & BANNED_CALLS == set()


@for_every(path=SOURCES)
def test_private_modules_stay_in_their_room(path):
    room = path.relative_to(ROOT / "workbench").parts[0].removesuffix(".py")
    _, imports = calls_and_imports(path)
    foreign = {
        node: re.match(r"workbench\.(?!_)(\w+)\._(?!style\b)", node.module) for node in imports
    }
    assert [ast.unparse(node) for node, name in foreign.items() if name and name[1] != room] == []


@for_every(path=SOURCES)
def test_the_package_imports_nothing_that_wheels_lack(path):
    """Generators of demo data, tests and benchmarks lie beside the package, not in it."""
    nodes = list(ast.walk(syntax_tree(path)))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    outside = {"claims", "data", "tests", "benchmarks"}
    assert outside & {module.partition(".")[0] for module in modules if module} == set()


def test_no_function_is_written_twice():
    """What two files need lies in one of them, or in what they share."""
    places = {}
    for name, path in (SOURCES | CLAIMS | GENERATORS).items():
        for node in syntax_tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and size_of(node) >= SAME_LINES:
                places.setdefault(ast.dump(node), []).append(f"{name}:{node.lineno} {node.name}")
    assert [same for same in places.values() if len(same) > 1] == []


def size_of(node):
    """Count the lines of a definition outside its docstring."""
    skipped = ast.get_docstring(node, clean=False)
    return node.end_lineno - node.lineno + 1 - (skipped.count("\n") + 1 if skipped else 0)


@for_every(path=SOURCES)
def test_colours_come_from_the_palette(path):
    text = "" if path.name == "palette.py" else path.read_text()
    assert re.findall(r"""["'](?:#[0-9A-Fa-f]{3,8}|rgba?\(.*?\))["']""", text) == []


@for_every(path=SOURCES)
def test_no_figure_borrows_the_colour_of_gpu_work(path):
    """Faults, failures and watts are not compute, communication or memory."""
    work = "compute|forward|backward|communication|transfer|overlapped|memory|lookup|operator"
    is_other = re.search(r"plot/_(pvf|power|failures)/", path.as_posix())
    text = path.read_text() if is_other else ""
    assert re.findall(rf"""(?:COLOURS\[|colour\(|fill\(|area\()["'](?:{work})["']""", text) == []
    assert re.findall(rf"""COLOURS\[["'](?:{work})["'] if""", text) == []


def modules_after(statement):
    """Names of the top-level modules that a fresh interpreter holds after a statement."""
    program = f"{statement}\nimport sys\nprint(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


DRAWING = {"plotly", "holoviews", "panel", "bokeh", "matplotlib"}
JUPYTER = {"IPython", "ipywidgets", "ipykernel", "jupyterlab", "nbclient", "nbconvert", "kaleido"}
HEAVY = {"torch", "numba", "dask", "pyarrow", "pooch", "joblib", "google"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import workbench", DRAWING | JUPYTER | HEAVY | {"pandas", "numpy", "typer"}),
        ("import workbench.cli", DRAWING | JUPYTER | HEAVY | {"pandas", "numpy", "rich"}),
        ("from workbench import load", DRAWING | JUPYTER | {"torch", "numba", "dask"}),
        ("from workbench import analyze", DRAWING | JUPYTER | {"torch", "numba", "dask"}),
        ("from workbench import simulate", DRAWING | JUPYTER | {"torch", "numba", "dask"}),
        (
            "from workbench import inject",
            DRAWING | JUPYTER | {"torch", "numba", "dask", "distributed"},
        ),
        ("from workbench import datasets", DRAWING | JUPYTER | {"torch", "numba", "pooch"}),
        ("from workbench import plot", JUPYTER | {"torch", "holoviews", "panel", "bokeh"}),
        ("from workbench import explore", {"torch", "holoviews", "panel", "bokeh", "nbconvert"}),
        ("from workbench import share", {"torch", "holoviews", "kaleido"}),
        ("from workbench import record", DRAWING | JUPYTER | {"torch", "numba", "pandas"}),
    ],
)
def test_imports_bring_only_what_they_need(statement, unwanted):
    assert modules_after(statement) & unwanted == set()


TEXT_KINDS = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".csv", ".html", ""}


def texts():
    """Give the text files of the project, without environments, caches and what was built."""
    for folder, subfolders, names in os.walk(ROOT):
        skipped = (
            ".",
            "_report",
            "_site",
            "_pages_of_docs",
            "__pycache__",
            "build",
            "dist",
            "workbench-notebooks",
        )
        subfolders[:] = [
            name
            for name in subfolders
            if name in {".ci", ".github"} or not name.startswith(skipped)
        ]
        yield from (Path(folder, name) for name in names if Path(name).suffix in TEXT_KINDS)


def texts_with(pattern):
    found = {}
    for path in texts():
        if match := re.search(pattern, path.read_text(errors="replace")):
            found[str(path.relative_to(ROOT))] = match[0]
    return found


def test_no_text_holds_a_path_of_one_machine():
    folders = "|".join(["work", "root", "Users"])
    assert texts_with(rf"(?<![\w.~$}}<>-])/(?:{folders})/\w") == {}


def test_no_open_ends_are_left_in_the_text():
    marks = "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"])
    assert texts_with(rf"\b(?:{marks})\b") == {}


@for_every(page=PAGES)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def wordings():
    """Return the rules of docs/style.txt: an expression, and what to write instead and why."""
    lines = (ROOT / "docs" / "style.txt").read_text().splitlines()
    rules = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return {re.compile(rule.replace(" ", r"\s+")): better for rule, better in rules}


WORDINGS = wordings()
ANY_WORDING = re.compile("|".join(rule.pattern for rule in WORDINGS))
PROSE_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None)}
NOTEBOOKS = by_name((ROOT / "notebooks").glob("*.ipynb"))


def prose(path):
    """Yield line, or cell, and text of what a file says in words; code has its own rules."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "markdown":
                yield number, "".join(cell["source"])
    elif path.suffix == ".md":
        blank = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
        yield 1, blank.sub(lambda code: "\n" * code[0].count("\n"), text)
    elif ANY_WORDING.search(text):  # most files need no second look
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            # A string without a space is a name.
            if token.type in PROSE_TOKENS and " " in token.string:
                yield token.start[0], token.string


@for_every(path=SOURCES | CLAIMS | GENERATORS | PAGES | NOTEBOOKS)
def test_prose_uses_the_words_of_the_style_list(path):
    misses = [
        f"{line + text.count(chr(10), 0, match.start())}: {match[0]!r} -> {better}"
        for line, text in prose(path)
        for rule, better in WORDINGS.items()
        if (match := rule.search(text))
    ]
    assert misses == []


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.py", '"""Refuse a queue\n    that grows for\n    ever."""\n', 1),
        ("a.py", "anew = mend(text)  # a value that is fine\n", 0),
        ("a.md", "Files at hand.\n\n```\nfor want of it\n```\n", 1),
    ],
)
def test_the_style_list_reads_prose_and_no_code(tmp_path, name, text, count):
    page = tmp_path / name
    page.write_text(text)
    misses = [rule for _, said in prose(page) for rule in WORDINGS if rule.search(said)]
    assert len(misses) == count


BREACHES = {
    ("analyze", "from workbench import plot"): "rooms of one floor do not know each other",
    ("load", "import plotly.graph_objects"): "Only plot, explore and share know plotly",
    ("share", "import ipywidgets"): "Only explore knows widgets",
    ("simulate", "import torch"): "Only fault injection imports torch",
    ("explore", "import distributed"): "Only fault injection imports torch",
    ("explore", "import nbclient"): "Only share runs and converts notebooks",
    ("share", "from workbench import analyze"): "share turns any notebook into pages",
    ("cli", "import claims"): "the package never imports them",
}


def lint_imports(folder):
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    program += "from importlinter.cli import lint_imports\n"
    program += "sys.exit(lint_imports(no_cache=True, no_logo=True))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )


def broken_contracts(report):
    """Give the name of each broken contract, in one line, and what the report says of it."""
    _, details = report.split("Broken contracts\n", 1)
    _, *parts = re.split(r"\n\n((?:\S.*\n)+)-+\n", details)
    names = [" ".join(name.split()) for name in parts[::2]]
    return dict(zip(names, parts[1::2], strict=True))


@pytest.mark.slow
def test_each_broken_import_rule_is_noticed(tmp_path):
    for package in ("workbench", "claims"):
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for number, (room, statement) in enumerate(BREACHES):
        culprit = tmp_path / "workbench" / room / f"culprit_{number}.py"
        culprit.write_text(f"{statement}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = broken_contracts(done.stdout)
    unnoticed = [
        breach
        for number, (breach, contract) in enumerate(BREACHES.items())
        if not any(
            contract in name and f"workbench.{breach[0]}.culprit_{number} ->" in chains
            for name, chains in broken.items()
        )
    ]
    assert unnoticed == [], done.stdout
