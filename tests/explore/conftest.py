"""A real multi-rank trace, and explorers driven like a user would."""

import json

import pytest

from workbench import load


@pytest.fixture(scope="session")
def dlrm_trace(dlrm):
    return load.traces(dlrm, progress=False)


@pytest.fixture(scope="session")
def title():
    """Read the title on the screen of an explorer."""

    def read(explorer):
        figure = json.loads(explorer.out.json)
        return figure["layout"]["title"]["text"].replace("<br>", " ")

    return read
