"""The notebooks as they are committed."""

from pathlib import Path

import nbformat
import pytest

# A line per data set, and the notebooks that show it: kineto-hta  # 05, 10.
_LISTED = [
    line.partition("#")
    for line in Path(__file__).with_name("data_sets.txt").read_text().splitlines()
    if not line.startswith("#")
]
PUBLISHED_WITH = [name.strip() for name, _, _ in _LISTED]
_SHOWING = {number.strip() for _, _, numbers in _LISTED for number in numbers.split(",")}
NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))

# These show nothing that a newcomer lacks.
ON_BUNDLED_DATA = {path.stem for path in NOTEBOOKS if path.stem[:2] not in _SHOWING}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    """Give the path of each notebook in turn."""
    return request.param


@pytest.fixture
def notebook(path):
    """Give the content of each notebook in turn."""
    return nbformat.read(path, as_version=4)
