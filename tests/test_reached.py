"""A public name is shown or used: by a notebook, a command, a finding, or a claim.

Documentation and tests alone are no reason to be public.
"""

import ast
import functools
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FACES = ("load", "simulate", "inject", "analyze", "plot", "explore")
# Folders whose code users reach without calling a face: the command line, and what it runs.
COMMANDS = ("workbench/cli", "workbench/share", "workbench/record")
# Names that no code here calls, each with the reason why it is public all the same.
EXCEPTIONS = {
    "marks an analysis of one's own, which analyze.by_rank takes": (
        "analyze.per_rank", "analyze.across_ranks",
    ),
    "joins the phases of one design, as the message says that refuses to mix them": (
        "analyze.pooled",
    ),
    "draws the figure of explore.timeline, which keeps an index for its windows": (
        "plot.timeline",
    ),
    "zooms, by HoloViews, into more events than a page holds": ("plot.timeline_live",),
    "adds up the counters of energy that load.power returns": ("analyze.energy_from_counter",),
    "reads telemetry that does not fit into memory, which no notebook holds": (
        "load.power_rollup",
    ),
    "lists the faults that inject.campaign takes, or injects all of them": (
        "inject.activation_faults", "inject.exhaustive", "inject.exhaustive_faults",
        "inject.fault_list", "inject.stratified_faults",
    ),
    "makes the chunks that explore.injection_sample_sizes injects into a model of one's own": (
        "inject.running",
    ),
    "is a detector or a protection that the settings of a campaign take": (
        "inject.Detector", "inject.activation_clip", "inject.checksum_detector",
        "inject.protected", "inject.range_detector", "inject.weight_clamp",
    ),
}  # fmt: skip


@functools.cache
def faces():
    """Give where each public name is defined: (face, name) -> (module, its name there)."""
    where = {}
    for face in FACES:
        stub = ast.parse((ROOT / "workbench" / face / "__init__.pyi").read_text())
        for node in stub.body:
            # A module in a face is a folder of functions, and no name of a figure or table.
            if isinstance(node, ast.ImportFrom) and node.module != "_lib":
                module = f"workbench.{face}.{node.module}"
                where |= {(face, each.asname): (module, each.name) for each in node.names}
    return where


@functools.cache
def behind():
    return {place: name for name, place in faces().items()}


def names_in(code):
    """Give the public names that code uses through a face, or from the module behind it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module:
            face = node.module.removeprefix("workbench.")
            for each in node.names:
                yield behind().get((node.module, each.name), (face, each.name))


def pointed_to(code):
    """Give the public names that findings of a file of rules name as evidence or next step."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.keyword) and node.arg in ("evidence", "next_step"):
            yield from re.findall(r"\b(load|analyze|plot|explore)\.(\w+)", ast.unparse(node.value))


def loaders():
    """Give the functions that the commands read each kind of data with, by their names."""
    from workbench.load.kinds import KINDS

    return {("load", kind.function) for kind in KINDS if isinstance(kind.function, str)}


def code_of(*folders):
    return [file.read_text() for name in folders for file in (ROOT / name).rglob("*.py")]


def notebook_code():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield "\n".join(code)


def called():
    """Give the public names that are reached directly."""
    rules = [code for code in code_of("workbench/analyze") if "\n@rule(" in code]
    found = loaders()
    for code in [*notebook_code(), *rules, *code_of("workbench/explore", "claims", *COMMANDS)]:
        found |= set(names_in(code))
    for code in rules:
        found |= set(pointed_to(code))
    return found & faces().keys()


@functools.cache
def definitions(module):
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def words_of_types(name):
    """Give the words in the annotations of a function, or of the parts of a class."""
    module, inside = faces()[name]
    definition = definitions(module).get(inside)
    if definition is None:
        return set()
    nodes = list(ast.walk(definition))
    found = [node.annotation for node in nodes if isinstance(node, ast.arg | ast.AnnAssign)]
    found += [node.returns for node in nodes if isinstance(node, ast.FunctionDef)]
    return {word for each in found if each for word in re.findall(r"\w+", ast.unparse(each))}


def reached():
    """Give the public names that are reached, and the types that those take or return."""
    done, waiting = set(), called()
    while waiting:
        name = waiting.pop()
        done.add(name)
        words = words_of_types(name)
        waiting |= {each for each in faces() if each[1] in words} - done
    return done


@pytest.mark.long
@pytest.mark.essential
def test_every_public_name_is_reached_from_a_notebook_a_command_a_finding_or_a_claim():
    known = {tuple(name.split(".")) for names in EXCEPTIONS.values() for name in names}
    left = set(faces()) - reached()
    assert sorted(".".join(name) for name in left - known) == [], (
        "show it in a notebook, use it in a command, or leave it out of the face"
    )
    assert sorted(".".join(name) for name in known - left) == [], "no exception any more"


def test_documentation_and_strings_of_code_reach_nothing():
    code = '"""See :func:`workbench.plot.pvf`."""\nfrom workbench import plot\ncall = "plot.energy"'
    assert set(names_in(code)) & faces().keys() == set()
    assert ("plot", "pvf") in set(names_in(f"{code}\nplot.pvf(call)"))
    behind = "from workbench.analyze._power.capping import capped_share"
    assert ("analyze", "capped_share") in set(names_in(behind))
