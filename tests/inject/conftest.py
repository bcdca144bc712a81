"""Small models for fault injection; all of it needs PyTorch."""

import pytest


@pytest.fixture
def make_mlp(torch_here):
    """Give the function that makes a small classifier, the same every time."""

    def make(classes=3):
        nn = torch_here.nn
        torch_here.manual_seed(7)
        layers = [nn.Linear(5, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, classes)]
        return nn.Sequential(*layers)

    return make


@pytest.fixture
def mlp(make_mlp):
    """Give a classifier of 3 classes with 91 parameters."""
    return make_mlp()


@pytest.fixture
def inputs(torch_here):
    """Give 20 inputs of it."""
    return torch_here.randn(20, 5, generator=torch_here.Generator().manual_seed(1))
