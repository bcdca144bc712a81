"""The networks of the shipped models, and one that is hard for engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


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
        # Not persistent: a buffer in the state would be saved, and count as part of the weights.
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
        """Return a logit per input for ``dense`` [inputs x features], ``sparse`` [inputs x tables].

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
    for next_width in widths:
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        width = next_width
    return layers


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
        """Return ten logits per image of ``images`` [inputs x 1 x 28 x 28], values 0 to 1."""
        x = self.pool1(self.relu1(self.conv1(images)))
        x = self.flat(self.pool2(self.relu2(self.conv2(x))))
        x = self.relu4(self.fc2(self.relu3(self.fc1(x))))
        logits: Tensor = self.fc3(x)
        return logits


_START_SPREAD = 0.02


class Attention(nn.Module):
    """Multi-head self-attention that leaves padding out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        """Mix ``x`` [inputs x places x dim] over its places; ``is_token`` is False for padding."""
        query, key, value = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=is_token)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class Block(nn.Module):
    """One layer of the encoder: attention and feed-forward, each with a norm after it."""

    def __init__(self, dim: int, heads: int, feed_forward: int) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.attention_norm = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, feed_forward), nn.GELU(), nn.Linear(feed_forward, dim)
        )
        self.feed_forward_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        """Return the next representation of ``x`` [inputs x places x dim]."""
        x = self.attention_norm(x + self.attention(x, is_token))
        output: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return output


class TicketClassifier(nn.Module):
    """Name the cause of a ticket from its words, read at the first place by a pooler.

    Two layers, hidden size 128, two heads, feed-forward 512: BERT-Tiny with a vocabulary
    of a few hundred words instead of 30,522.

    Parameters
    ----------
    word_count
        Words of the vocabulary; word 0 is padding.
    class_count
        Causes.
    places
        Longest ticket in words; shorter ones are padded to it.

    References
    ----------
    Turc et al.: Well-Read Students Learn Better. arXiv:1908.08962 (the sizes).
    """

    #: Pattern of dotted parameter names -> component.
    components: ClassVar[Mapping[str, str]] = {
        "words.*": "token embeddings",
        "positions.*": "position embeddings",
        "*norm.*": "norms",
        "blocks.0.attention.*": "block0.attention",
        "blocks.0.feed_forward.*": "block0.feed_forward",
        "blocks.1.attention.*": "block1.attention",
        "blocks.1.feed_forward.*": "block1.feed_forward",
        "pooler.*": "pooler",
        "classifier.*": "classifier",
    }

    place: Tensor

    def __init__(self, word_count: int, class_count: int, places: int) -> None:
        super().__init__()
        dim, heads, feed_forward, layers = 128, 2, 512, 2
        self.words = nn.Embedding(word_count, dim)
        self.positions = nn.Embedding(places, dim)
        self.register_buffer("place", torch.arange(places)[None], persistent=False)
        self.norm = nn.LayerNorm(dim)
        self.blocks = nn.ModuleList([Block(dim, heads, feed_forward) for _ in range(layers)])
        self.pooler = nn.Linear(dim, dim)
        self.tanh = nn.Tanh()
        self.classifier = nn.Linear(dim, class_count)
        nn.init.normal_(self.words.weight, 0, _START_SPREAD)
        nn.init.normal_(self.positions.weight, 0, _START_SPREAD)

    def forward(self, words: Tensor) -> Tensor:
        """Return one logit per cause for ``words`` [inputs x places], padded with 0."""
        # Word 0 is padding, which attention must not see.
        is_token = (words != 0).unsqueeze(1).unsqueeze(1)
        x = self.norm(self.words(words) + self.positions(self.place))
        for block in self.blocks:
            x = block(x, is_token)
        logits: Tensor = self.classifier(self.tanh(self.pooler(x[:, 0])))
        return logits


class Entangled(nn.Module):
    """Classify six numbers; untrained, the same every time.

    One layer is used twice, another module holds the same weights under a second name, the
    input bypasses both, and one branch is computed by nobody. Faults are computed by the
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
            # Tied weights: two modules, one tensor.
            self.again.weight = self.shared.weight
            self.again.bias = self.shared.bias
            self.idle = nn.Linear(16, 4)
            self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three logits per row of ``x`` [inputs x 6]."""
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.shared(x))
        x = x + torch.tanh(self.again(self.shared(x)))
        logits: Tensor = self.last(x)
        return logits


def entangled_inputs(count: int = 200, *, seed: int = 1) -> tuple[Tensor]:
    """Return inputs for :class:`Entangled`, the same every time: one tensor [count x 6]."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, 6, generator=generator),)
