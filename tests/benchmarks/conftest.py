"""What some benchmarks need."""

import os

import pytest


@pytest.fixture(scope="session")
def torch_here():
    """Give torch; skip the test where it is not installed, but fail it under CI."""
    try:
        import torch
    except ImportError:
        reason = "PyTorch is not installed; pip install 'ai-infra-workbench[inject]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return torch
