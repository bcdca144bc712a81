"""The eight ranks of a real job, for all tests of twins."""

import pytest

from workbench import load


@pytest.fixture(scope="session")
def dlrm_trace(dlrm):
    return load.traces(dlrm, progress=False)
