"""LeNet-5 with ReLU and max pooling, for digits of 28 x 28 pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

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
