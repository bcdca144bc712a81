"""The register of signatures: a mark that is lacking would hide a format; what it saves is counted."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.load.power.formats.test_registry import OTHERS, SAMPLES
from workbench import datasets
from workbench.load._files import signatures

HEAD_BYTES = 1 << 16
GROUPS = {
    "traces": (*signatures.FORMATS_BEFORE_KINETO, *signatures.TRACE_FORMATS),
    "power": signatures.POWER_FORMATS,
    "failures": signatures.FAILURE_FORMATS,
}
MARKS = {row.module: [] for rows in GROUPS.values() for row in rows}
for rows in GROUPS.values():
    for row in rows:
        MARKS[row.module].append(row)
# Modules of the package, without the empty ones of folders, that a load may enter.
COUNT = """
import sys
from pathlib import Path
from workbench import load
{call}
paths = (getattr(module, "__file__", None) for name, module in [*sys.modules.items()]
         if name.split(".")[0] == "workbench" and not name.startswith("workbench.datasets"))
print(len([path for path in paths if path and Path(path).name != "__init__.py"]))
"""


@pytest.fixture(scope="module")
def heads():
    """Give the beginnings of files of every kind, as their tools write them and made by hand."""
    files = [seed.data for seed in (*corpus.seeds(), *corpus.made_files())]
    texts = [text.encode() for _, text in SAMPLES] + [text.encode() for text in OTHERS.values()]
    return [data[:HEAD_BYTES] for data in (*files, *texts)]


def lacks_its_mark(module, head):
    rows = MARKS[module]
    is_taken = rows[0].reader.looks_like(head, "file")
    return is_taken and all(row.mark.search(head) is None for row in rows)


@pytest.mark.parametrize("module", MARKS)
def test_no_file_that_a_module_takes_lacks_its_mark(heads, module):
    assert [head[:200] for head in heads if lacks_its_mark(module, head)] == []


@given(data=st.data())
def test_no_damaged_file_that_a_module_takes_lacks_its_mark(heads, data):
    head = data.draw(st.sampled_from(heads))
    cut = data.draw(st.slices(len(head)))
    damaged = head[cut] if cut.step == 1 else head[: cut.stop]
    assert [module for module in MARKS if lacks_its_mark(module, damaged)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_each_mark_spares_most_modules_most_files(heads, group):
    asked = sum(row.mark.search(head) is not None for row in GROUPS[group] for head in heads)
    assert asked < 0.35 * len(GROUPS[group]) * len(heads)


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ('load.traces(sys.argv[1] + "/traces", progress=False)', 30),
        (
            'load.power(sys.argv[1] + "/power/synthetic_node001_nvidia_smi.csv", tz="UTC", '
            'node="node001")',
            26,
        ),
    ],
    ids=["traces of eight ranks", "power of one file"],
)
def test_a_load_enters_few_files_of_the_package(call, most):
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(call=call), str(datasets.path("fleet-demo"))],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert int(done.stdout) <= most
