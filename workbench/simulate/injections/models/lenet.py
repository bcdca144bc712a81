"""LeNet-5 with ReLU and max pooling, for digits of 28 x 28 pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class LeNet(nn.Module):
    """Tell the ten digits apart: two convolutions and three linear layers, 61,706 parameters.

    References
    ----------
    LeCun et al.: Gradient-based learning applied to document recognition. Proc. IEEE 86
    (11), 1998; the sizes of its figure 2, with ReLU and max pooling as is usual now.
    """

    #: Pattern of dotted parameter names -> component.
    components: ClassVar[Mapping[str, str]] = {
        f"{name}.*": name for name in ("conv1", "conv2", "fc1", "fc2", "fc3")
    }

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.relu1 = nn.ReLU()
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.relu2 = nn.ReLU()
        self.pool2 = nn.MaxPool2d(2)
        self.flat = nn.Flatten()
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(120, 84)
        self.relu4 = nn.ReLU()
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Give ten logits per image of ``images`` [inputs x 1 x 28 x 28], values 0 to 1."""
        x = self.pool1(self.relu1(self.conv1(images)))
        x = self.flat(self.pool2(self.relu2(self.conv2(x))))
        x = self.relu4(self.fc2(self.relu3(self.fc1(x))))
        logits: Tensor = self.fc3(x)
        return logits


# Handwritten digits of 8 x 8 pixels, enlarged to what LeNet reads.

SIDE = 28
_DARKEST = 16

Array = npt.NDArray[Any]


def enlarged(digits: Array) -> Array:
    """Enlarge digits [inputs x 8 x 8] of 0 .. 16 to [inputs x 1 x 28 x 28] float32 of 0 .. 1.

    Bilinear, in single steps that round the same everywhere, so that the inputs have one
    checksum on all machines.
    """
    image = digits.astype(np.float32) / np.float32(_DARKEST)
    for axis in (1, 2):
        low, share = _places(image.shape[axis])
        shape = [1, 1, 1]
        shape[axis] = SIDE
        weight = share.reshape(shape)
        upper = np.minimum(low + 1, image.shape[axis] - 1)
        image = image.take(low, axis) * (1 - weight) + image.take(upper, axis) * weight
    return image[:, None]


def _places(side: int) -> tuple[Array, Array]:
    """Give for every new pixel its lower neighbour and the share of the upper one."""
    place = np.clip((np.arange(SIDE) + 0.5) * side / SIDE - 0.5, 0, side - 1)
    low = np.floor(place).astype(np.int64)
    return low, (place - low).astype(np.float32)


# A small model with what makes partial runs hard: a bypass, shared weights, an idle branch.


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
