"""The doors into the project agree: pyproject.toml, environment.yml, uv.lock, README, Makefile."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import rattler
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rattler.exceptions import InvalidMatchSpecError

import claims
from workbench import datasets

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
CONDA_SPECS = [spec for spec in CONDA["dependencies"] if isinstance(spec, str)]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "README.md").read_text()


def bounds(requirements):
    """Name and bounds of every requirement, in one spelling, with those of our extras."""
    parsed = [Requirement(text) for text in requirements]
    ours = [extra for each in parsed if each.name == PROJECT["name"] for extra in each.extras]
    brought = bounds([text for extra in ours for text in EXTRAS[extra]]) if ours else {}
    return brought | {
        canonicalize_name(each.name): each.specifier
        for each in parsed
        if each.name != PROJECT["name"]
    }


BASE = bounds(PROJECT["dependencies"])
LAB = BASE | bounds(EXTRAS["lab"])


def conda_bounds(spec):
    """Name and bounds of one line, as conda reads it; conda's "=3.12" is "==3.12.*"."""
    matched = rattler.MatchSpec(spec)
    version = re.sub(r"^=?(\d[\d.]*)(\.\*)?$", r"==\1.*", matched.version or "")
    return matched.name.normalized, SpecifierSet(version)


@pytest.mark.parametrize("spec", CONDA_SPECS)
def test_conda_can_read_every_line_of_the_environment(spec):
    assert rattler.MatchSpec(spec).name is not None


def test_the_parity_test_would_notice_a_line_conda_cannot_read():
    with pytest.raises(InvalidMatchSpecError):
        rattler.MatchSpec("pandas >=2.2,,<4")


def test_conda_environment_has_the_bounds_of_pyproject_and_nothing_else():
    ours = LAB
    theirs = dict(conda_bounds(spec) for spec in CONDA_SPECS if spec != "pip")
    python = theirs.pop("python")
    assert theirs == ours
    (version,) = re.findall(r"3\.\d+", str(python))
    assert version in SpecifierSet(PROJECT["requires-python"])


def test_the_conda_package_needs_what_the_conda_environment_has():
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text())
    needed = dict(conda_bounds(spec) for spec in recipe["requirements"]["run"])
    assert SpecifierSet(str(needed.pop("python"))) == SpecifierSet(PROJECT["requires-python"])
    assert needed == LAB
    assert recipe["context"]["version"] == PROJECT["version"]
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"workbench = {PROJECT['scripts']['workbench']}"
    known = {*("schema_version", "context", "package", "source", "build", "requirements"),
             *("tests", "about", "extra")}  # fmt: skip
    assert recipe.keys() == known
    assert set(re.findall(r"\$\{\{ (\w+) \}\}", str(recipe))) == {"version", "PYTHON"}


def test_conda_uses_the_free_channel_only_and_ends_with_pip():
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    assert CONDA["dependencies"][-2:] == ["pip", {"pip": ["-e .[dev]"]}]


def locked_project():
    (package,) = [each for each in LOCK["package"] if each["name"] == PROJECT["name"]]
    return package


def test_lock_file_is_in_step_with_pyproject():
    locked = {
        (each["name"], SpecifierSet(each.get("specifier", "")), each.get("marker", ""))
        for each in locked_project()["metadata"]["requires-dist"]
    }
    declared = {(name, bound, "") for name, bound in BASE.items()}
    for extra, requirements in EXTRAS.items():
        for each in map(Requirement, requirements):
            # uv writes the full version, which is the same for a bound without a patch.
            python = str(each.marker or "").replace("python_version", "python_full_version")
            marker = f"extra == '{extra}'"
            marker = f"{python} and {marker}".replace('"', "'") if python else marker
            declared.add((canonicalize_name(each.name), each.specifier, marker))
    assert locked == declared
    assert LOCK["requires-python"] == PROJECT["requires-python"]
    assert locked_project()["version"] == PROJECT["version"]


def test_lock_file_names_the_public_index_only():
    text = (ROOT / "uv.lock").read_text()
    hosts = set(re.findall(r"\w+://([^/\"]+)", text))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
    sources = {tuple(each["source"].items()) for each in LOCK["package"]}
    assert sources == {(("editable", "."),), (("registry", "https://pypi.org/simple"),)}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # "google" is shared by many distributions; only protobuf is meant here.
            is_protobuf = node.module.startswith("google.protobuf")
            yield "google.protobuf" if is_protobuf else node.module.split(".")[0]


@functools.cache
def distributions_imported():
    """Map every distribution that the package imports from to the files that do."""
    known = packages_distributions()
    found = {}
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        for module in set(imported(path)) - set(sys.stdlib_module_names) - {"workbench"}:
            named = ["protobuf"] if module == "google.protobuf" else known.get(module, [module])
            for name in named:
                found.setdefault(canonicalize_name(name), []).append(path.name)
    return found


# These come with a dependency and have no bounds of their own.
BROUGHT_ALONG = {
    "ipython": "ipywidgets",
    "jinja2": "nbconvert",
    "jupyter-client": "nbclient",
    "traitlets": "nbconvert",
}
# anywidget makes plotly's figures live; jupyterlab is started as a program.
NEEDED_UNIMPORTED = {"anywidget", "jupyterlab"}


@pytest.mark.parametrize(("name", "bringer"), BROUGHT_ALONG.items())
def test_what_is_not_declared_is_required_by_what_is(name, bringer):
    needed = [Requirement(text) for text in requires(bringer)]
    assert name in {canonicalize_name(each.name) for each in needed if each.marker is None}


@pytest.mark.long
def test_every_import_of_the_package_is_a_declared_dependency():
    optional = [
        text
        for name in ("snapshot", "inject", "train", "record", "rollup")
        for text in EXTRAS[name]
    ]
    declared = set(LAB | bounds(optional))
    allowed = declared | set(BROUGHT_ALONG)
    assert {n: f for n, f in distributions_imported().items() if n not in allowed} == {}


def test_every_runtime_dependency_is_used():
    declared = set(LAB)
    assert declared - set(distributions_imported()) - NEEDED_UNIMPORTED == set()


def test_readme_commands_are_targets_of_the_makefile():
    commands = re.findall(r"^make (\w+)$", README, re.MULTILINE)
    assert {"lab", "test"} <= set(commands)
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert set(commands) <= targets


def test_make_lab_opens_jupyterlab_and_waits_for_nothing_else():
    (recipe,) = re.findall(r"^lab: \.venv/ready  ##.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe == "\t$(BIN)/workbench lab\n"


def test_continuous_integration_calls_the_readme_test_command():
    assert re.search(r"\bmake test\b", (ROOT / ".ci" / "run").read_text())
    assert re.search(r"run: \.ci/run", (ROOT / ".github" / "workflows" / "ci.yml").read_text())


def listed(name):
    """Give the data sets of a list, each with its comment."""
    lines = (ROOT / "tests" / name).read_text().splitlines()
    parts = [line.partition("#") for line in lines if not line.startswith("#")]
    return {data_set.strip(): comment.strip() for data_set, _, comment in parts}


FETCHED, PUBLISHED_WITH = listed("data_sets.txt"), listed("notebooks/data_sets.txt")
PUBLIC = set(datasets.describe().query("place != 'bundled'")["dataset"])


def named_in(folder, pattern):
    """Give the public data sets that files name in quotes, each with one of the files."""
    texts = {path: path.read_text() for path in (ROOT / folder).rglob(pattern)}
    return {
        name: path.name
        for path, text in texts.items()
        for name in PUBLIC
        if re.search(rf"[\"']{name}(?:/|\\?[\"'])", text)
    }


def test_lists_of_data_sets_name_public_ones_and_say_who_reads_them():
    for data_sets in (FETCHED, PUBLISHED_WITH):
        assert data_sets.keys() - PUBLIC == set()
        assert [name for name, readers in data_sets.items() if not readers] == []
    used = re.findall(r"^\t.*\$\((DATA_SETS|PUBLISHED_WITH)\)", MAKEFILE, re.MULTILINE)
    assert used == ["PUBLISHED_WITH"]
    assert "\nFETCH = $(BIN)/workbench datasets fetch $(DATA_SETS) " in MAKEFILE
    assert MAKEFILE.count("\t$(FETCH)\n") == 1


def test_each_public_data_set_that_a_test_or_a_claim_reads_is_fetched():
    readers = named_in("tests", "*.py")
    readers |= {name: claim.name for claim in claims.claims() for name in claim.needs}
    assert {
        name: reader for name, reader in readers.items() if name in PUBLIC - FETCHED.keys()
    } == {}


def test_notebooks_are_published_with_the_public_data_sets_that_they_load():
    assert named_in("notebooks", "*.ipynb").keys() == PUBLISHED_WITH.keys()


def test_hooks_before_a_commit_have_the_versions_of_the_lock_file():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: entry.get("rev") for entry in config["repos"] for hook in entry["hooks"]}
    locked = {
        package["name"]: f"v{package['version']}"
        for package in LOCK["package"]
        if "version" in package
    }
    assert hooks["ruff-format"] == hooks["ruff-check"] == locked["ruff"]
    assert hooks["codespell"] == locked["codespell"]


def test_actions_are_pinned_to_a_commit():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: (.*)", "\n".join(path.read_text() for path in workflows))
    assert used
    assert [
        name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", name)
    ] == []


def test_every_python_that_the_package_allows_and_no_other_is_tested():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    text = str(workflow["jobs"])
    tested = set(re.findall(r"\b3\.1\d\b", text))
    assert min(tested, key=lambda version: int(version[2:])) == "3.11"
    assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in tested)
    named = {
        text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if re.search(r"3\.\d+$", text)
    }
    assert tested == named


def test_makefile_has_help_for_every_target_a_person_types():
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    documented = re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)
    assert sorted(phony) == sorted(documented)
