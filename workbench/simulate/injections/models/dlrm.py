"""A small deep-learning recommendation model: two MLPs, embedding tables, their dot products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn


class DotInteraction(nn.Module):
    """The bottom output, and the dot products of all pairs of vectors.

    Parameters
    ----------
    vector_count
        Vectors per input, the bottom output among them: one more than there are tables.

    Notes
    -----
    With the vectors v_0 (the bottom output) .. v_k (the tables), the output is
    ``[v_0, v_1·v_0, v_2·v_0, v_2·v_1, ...]``: the lower triangle without the diagonal, row
    by row. So it is linear in each vector while the others stand still.
    """

    row: Tensor
    column: Tensor

    def __init__(self, vector_count: int) -> None:
        super().__init__()
        row, column = torch.tril_indices(vector_count, vector_count, -1)
        self.register_buffer("row", row, persistent=False)
        self.register_buffer("column", column, persistent=False)

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Combine ``x`` [inputs x dim] and ``embedded`` [inputs x tables x dim]."""
        vectors = torch.cat([x.unsqueeze(1), embedded], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return torch.cat([x, products[:, self.row, self.column]], 1)


class DLRM(nn.Module):
    """Predict clicks from dense features and one looked-up row per table.

    The sizes default to those of the shipped model: 443,601 parameters.

    Parameters
    ----------
    dense_count
        Dense features.
    table_rows
        Rows of each embedding table.
    dim
        Length of an embedding, and of the bottom output.
    bottom, top
        Widths of the hidden layers of the two MLPs.

    References
    ----------
    Naumov et al.: Deep Learning Recommendation Model for Personalization and
    Recommendation Systems. arXiv:1906.00091.
    """

    #: Pattern of dotted parameter names -> component.
    components: ClassVar[Mapping[str, str]] = {
        "top.*": "top",
        "bottom.*": "bottom",
        "tables.*": "embeddings",
    }

    def __init__(
        self,
        dense_count: int = 13,
        table_rows: Sequence[int] = (1000,) * 26,
        dim: int = 16,
        *,
        bottom: Sequence[int] = (64,),
        top: Sequence[int] = (64, 32),
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList([_table(rows, dim) for rows in table_rows])
        self.bottom = nn.Sequential(*_mlp(dense_count, (*bottom, dim)))
        vector_count = len(table_rows) + 1
        self.interaction = DotInteraction(vector_count)
        pair_count = vector_count * (vector_count - 1) // 2
        last = top[-1] if top else dim + pair_count
        self.top = nn.Sequential(*_mlp(dim + pair_count, top), nn.Linear(last, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Give one logit per input for ``dense`` [inputs x features], ``sparse`` [inputs x tables].

        ``sparse`` holds one row number per table.
        """
        looked_up = [table(sparse[:, k : k + 1]) for k, table in enumerate(self.tables)]
        x = self.interaction(self.bottom(dense), torch.stack(looked_up, 1))
        logits: Tensor = self.top(x).squeeze(1)
        return logits


def _table(rows: int, dim: int) -> nn.EmbeddingBag:
    table = nn.EmbeddingBag(rows, dim, mode="sum")
    nn.init.uniform_(table.weight, -1 / math.sqrt(rows), 1 / math.sqrt(rows))
    return table


def _mlp(width: int, widths: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for each in widths:
        layers += [nn.Linear(width, each), nn.ReLU()]
        width = each
    return layers
