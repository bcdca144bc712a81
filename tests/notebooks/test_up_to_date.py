"""Notebooks as committed are those that publishing them now would write."""

import importlib

import pytest

from tests.notebooks.conftest import ON_BUNDLED_DATA, PUBLISHED_WITH
from tests.notebooks.runs import without_values

publish = importlib.import_module("workbench.share.publish")


@pytest.mark.slow
def test_publishing_again_changes_nothing(path, real_data, runs):
    if path.stem in ON_BUNDLED_DATA:
        # Compared where it runs anyway, as a newcomer runs it: see test_runs.py.
        return
    for name in PUBLISHED_WITH:
        real_data(name)
    assert publish.difference(without_values(runs.published(path)), path) == ""
