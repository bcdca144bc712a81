"""A small model with what makes partial runs hard: a bypass, shared weights, an idle branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn


class Entangled(nn.Module):
    """Classify six numbers; untrained, the same every time.

    One layer is used twice, another module holds the same weights under a second name, the
    input bypasses both, and one branch is computed by nobody. Faults are worked out by the
    way they take through all that, so it is what engines are compared on.

    Parameters
    ----------
    seed
        Of the weights.
    """

    #: Pattern of dotted parameter names -> component.
    components: ClassVar[Mapping[str, str]] = {
        "first.*": "bypassed",
        "shared.*": "shared",
        "idle.*": "idle branch",
        "last.*": "head",
    }

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(6, 16)
            self.shared = nn.Linear(16, 16)
            self.again = nn.Linear(16, 16)
            self.again.weight = self.shared.weight
            self.again.bias = self.shared.bias
            self.idle = nn.Linear(16, 4)
            self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Give three logits per row of ``x`` [inputs x 6]."""
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.shared(x))
        x = x + torch.tanh(self.again(self.shared(x)))
        logits: Tensor = self.last(x)
        return logits


def entangled_inputs(count: int = 200, *, seed: int = 1) -> tuple[Tensor]:
    """Give inputs for :class:`Entangled`, the same every time: one tensor [count x 6]."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, 6, generator=generator),)
