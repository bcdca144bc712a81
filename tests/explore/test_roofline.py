"""The explorer of rooflines."""

import json

import pytest

from tests.test_howtos import shaped_trace
from workbench import explore, load


@pytest.fixture
def shaped(tmp_path):
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(shaped_trace()))
    return load.traces(path, progress=False)


def test_a_lower_peak_brings_compute_closer_to_its_roof(shaped, title):
    explorer = explore.roofline(shaped, source="made", synthetic=True)
    assert explorer.message.value == ""
    assert "memory roof" in title(explorer)
    first = explorer.figure().data[-1]
    explorer.controls["kept"].value = 0.7
    assert max(explorer.figure().data[-1].y) <= max(first.y)
    explorer.controls["family"].value = "matrix product"
    explorer.controls["top"].value = 10
    assert "aten::mm" in title(explorer)
