"""The faces: one list of names each, imported when a name is first used."""

import ast
import inspect
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from workbench import analyze, explore, inject, load, plot, simulate

ROOT = Path(__file__).parents[1]
FACES = [load, simulate, inject, analyze, plot, explore]


def names_of(face):
    """Give (name, object) of everything a face offers, but not the modules among it."""
    offered = ((name, getattr(face, name)) for name in face.__all__)
    return [(name, value) for name, value in offered if not isinstance(value, types.ModuleType)]


def undocumented(value, name):
    """List the public parts of a function or class that have no docstring of their own."""
    parts = {name: value}
    if inspect.isclass(value):
        parts |= {
            f"{name}.{member}": getattr(attribute, "__func__", attribute)
            for member, attribute in vars(value).items()
            if not member.startswith("_")
            and isinstance(attribute, types.FunctionType | classmethod | staticmethod | property)
        }
    return [called for called, part in parts.items() if not (getattr(part, "__doc__", "") or "")]


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_every_public_name_and_method_is_documented(face):
    """The linter passes over modules in folders with an underscore."""
    documented = [(n, v) for n, v in names_of(face) if inspect.isclass(v) or inspect.isfunction(v)]
    assert documented
    assert [text for name, value in documented for text in undocumented(value, name)] == []


@pytest.mark.long
def test_every_file_of_the_package_says_what_it_holds():
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "workbench").rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_face_offers_no_name_twice_and_a_type_checker_sees_all_of_them(face):
    stub = Path(face.__file__).with_suffix(".pyi")
    listed = [
        alias.asname
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        for alias in node.names
    ]
    assert sorted(listed) == sorted(set(listed)) == sorted(face.__all__)
    assert set(dir(face)) >= set(listed)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_no_file_of_a_face_is_called_like_one_of_its_functions(face):
    """Whoever imports that file first would put the module in the function's place."""
    files = {module.name for module in pkgutil.iter_modules(face.__path__)}
    assert [name for name, _ in names_of(face) if name in files] == []


def test_importing_the_faces_reads_no_domain_and_draws_nothing():
    code = (
        "import sys\n"
        "from workbench import analyze, load, plot, simulate\n"
        "names = [m for m in sys.modules if m.startswith(('workbench.', 'plotly', 'pandas'))]\n"
        "print(*names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # A face of an extra first asks whether that is installed.
    asking = {"workbench.errors", "workbench._shared", "workbench._shared.extras"}
    assert set(done.stdout.split()) - asking == {
        f"workbench.{face}" for face in ("analyze", "load", "plot", "simulate")
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "import ipykernel, workbench.plot._style.style, plotly.io; plotly.io.renderers",
        "from workbench.share import _execute; _execute.read(Path(sys.argv[1]))",
    ],
)
def test_showing_a_figure_and_reading_a_notebook_build_no_grammar(code):
    notebook = next(Path(__file__).parents[1].glob("notebooks/00*.ipynb"))
    told = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"import sys; from pathlib import Path; {code}; import nbformat, jsonschema; "
            "assert jsonschema.FormatChecker; print('lark' in sys.modules)",
            str(notebook),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "False"
