"""The room as a whole: what importing it costs, and how it names pages."""

import subprocess
import sys
from pathlib import Path

import pytest

from workbench.share.report import _label


def test_the_room_is_light_until_it_is_used():
    heavy = ("plotly", "pandas", "nbformat", "nbconvert", "nbclient", "kaleido", "IPython")
    program = f"import sys, workbench.share; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("04_pvf_fault_injection", "PVF fault injection"),
        ("03_goodput_under_failures", "Goodput under failures"),
        ("my_pages", "My pages"),
        ("07", "07"),
    ],
)
def test_pages_are_named_after_their_notebooks(name, label):
    assert _label(Path(f"{name}.ipynb")) == label
