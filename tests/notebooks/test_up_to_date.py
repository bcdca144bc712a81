"""Notebooks as committed are those that publishing them now would write."""

from pathlib import Path

import pytest

from workbench import share

LIST = Path(__file__).with_name("data_sets.txt").read_text().splitlines()
PUBLISHED_WITH = [line.partition("#")[0].strip() for line in LIST if not line.startswith("#")]


@pytest.mark.slow
def test_publishing_again_changes_nothing(path, real_data):
    for name in PUBLISHED_WITH:
        real_data(name)
    assert share.publish(path, check=True, progress=False) == ""
