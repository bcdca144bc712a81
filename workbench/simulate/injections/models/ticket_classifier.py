"""A small transformer encoder of BERT-Tiny's shape that names the cause of an incident ticket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

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
            each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
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
        """Give the next representation of ``x`` [inputs x places x dim]."""
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
        """Give one logit per cause for ``words`` [inputs x places], padded with 0."""
        is_token = (words != 0).unsqueeze(1).unsqueeze(1)
        x = self.norm(self.words(words) + self.positions(self.place))
        for block in self.blocks:
            x = block(x, is_token)
        logits: Tensor = self.classifier(self.tanh(self.pooler(x[:, 0])))
        return logits
