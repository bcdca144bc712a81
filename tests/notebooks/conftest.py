"""The notebooks as they are committed."""

from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    """Give the path of each notebook in turn."""
    return request.param


@pytest.fixture
def notebook(path):
    """Give the content of each notebook in turn."""
    return nbformat.read(path, as_version=4)
