"""The ticket classifier: its words, its synthetic tickets and the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

# The phrases that generated incident tickets are made of; invented, no real ticket was used.

#: Cause -> what somebody finds who looks in the right place.
EVIDENCE = {
    "network": (
        "link flap on port {n}",
        "packet loss on the leaf switch",
        "infiniband symbol errors climbing",
        "optic {n} lost light",
        "nic reports carrier down",
        "pause frames flood the fabric",
        "cable reseated and bandwidth returned",
        "route to the spine is gone",
        "nccl ring broke between two racks",
        "mtu mismatch on bond",
    ),
    "gpu": (
        "xid {n} on device {n}",
        "uncorrectable ecc in hbm",
        "gpu fell off the bus",
        "nvlink replay errors",
        "row remapping failed",
        "device {n} runs slow in every kernel",
        "cuda illegal access only on this board",
        "page retirement pending",
        "sxm board swapped and job runs",
        "nvswitch fatal error",
    ),
    "storage": (
        "checkpoint write takes {n} minutes",
        "nfs mount stale",
        "lustre ost {n} unreachable",
        "disk full on scratch",
        "nvme media errors",
        "dataset read throttled",
        "inode quota exceeded",
        "metadata server overloaded",
        "object store returns errors",
        "raid rebuild in progress",
    ),
    "power": (
        "psu {n} failed",
        "breaker tripped in row {n}",
        "rack lost feed b",
        "power cap engaged",
        "thermal throttle from hot inlet",
        "fan {n} stopped",
        "coolant flow low",
        "bmc logged brownout",
        "pdu overload alarm",
        "leak sensor wet",
    ),
    "software": (
        "stack trace in data loader",
        "python exception in optimizer",
        "library version changed yesterday",
        "assert in collective wrapper",
        "wrong shape after config merge",
        "container image lacks package",
        "driver and toolkit mismatch",
        "segfault in custom kernel",
        "bug fixed by reverting commit",
        "nan since new learning rate",
    ),
    "scheduler": (
        "job preempted by higher priority",
        "slurm time limit reached",
        "node drained by mistake",
        "allocation spans the wrong partition",
        "cgroup killed the rank",
        "requeue loop in controller",
        "pod evicted for memory request",
        "reservation ended early",
        "quota of account used up",
        "prolog script refuses node",
    ),
}

#: What anybody sees first -> how often for each cause, in the order of EVIDENCE.
SYMPTOMS = {
    "job hangs in all reduce": (6, 3, 1, 1, 2, 1),
    "training is slow since noon": (3, 3, 3, 3, 1, 1),
    "rank {n} died without a word": (1, 4, 1, 2, 2, 4),
    "node {n} not reachable": (4, 1, 1, 5, 1, 2),
    "loss became nan": (1, 4, 1, 1, 6, 1),
    "checkpoint did not finish": (1, 1, 7, 1, 2, 2),
    "run stopped at step {n}": (2, 3, 2, 2, 3, 4),
    "throughput dropped by half": (4, 3, 3, 4, 1, 1),
    "job does not start": (1, 1, 2, 1, 4, 6),
    "collective timeout": (6, 3, 1, 1, 2, 1),
}

#: Around the evidence of another cause: it was not that.
DENIALS = (
    ("ruled out", ""),
    ("no sign of", ""),
    ("it is not", ""),
    ("we first suspected", "but no"),
    ("last month we had", "that is solved"),
    ("", "was a false alarm"),
    ("", "was on another cluster"),
    ("checked for", "and found nothing"),
)

#: Around the evidence of the cause.
CLAIMS = (
    ("", ""),
    ("", ""),
    ("found", ""),
    ("logs show", ""),
    ("we see", ""),
    ("most likely", ""),
    ("again", ""),
    ("operator says", ""),
)

#: What tells nothing.
CHATTER = (
    "please look",
    "opened by oncall",
    "seen {n} times today",
    "job of {n} nodes",
    "started after the weekend",
    "user is waiting",
    "same rack as ticket {n}",
    "not urgent",
    "high priority",
    "will retry",
    "no change from our side",
)

# Generated incident tickets: short texts whose cause is known, with denials, gaps and noise.

CAUSES = tuple(EVIDENCE)
PLACES = 40
#: How often a ticket has the piece, or a word suffers the accident.
SHARES = {
    "evidence": 0.93,
    "second evidence": 0.25,
    "denial": 0.55,
    "second denial": 0.25,
    "symptom": 0.9,
    "unknown word": 0.06,
    "lost word": 0.04,
}
_PADDING, _START, _UNKNOWN = "[pad]", "[cls]", "[unk]"
_NUMBERS = 20

Array = npt.NDArray[Any]


def vocabulary() -> tuple[str, ...]:
    """Give all words of the grammar; the number of a word is its place."""
    wrappers = [part for pair in (*DENIALS, *CLAIMS) for part in pair]
    evidence = [phrase for phrases in EVIDENCE.values() for phrase in phrases]
    phrases = (*wrappers, *evidence, *SYMPTOMS, *CHATTER)
    words = {word for phrase in phrases for word in phrase.split()} - {"{n}"}
    numbers = [str(number) for number in range(_NUMBERS)]
    return (_PADDING, _START, _UNKNOWN, *numbers, *sorted(words))


def tickets(count: int, seed: int) -> tuple[list[str], Array]:
    """Draw tickets and their causes.

    Parameters
    ----------
    count
        Tickets.
    seed
        Of the draw.

    Returns
    -------
    tuple
        Texts; causes [count] int64, indices into :data:`CAUSES`.

    Notes
    -----
    A ticket has a symptom that several causes share, most often one or two pieces of evidence
    for its cause, evidence for other causes that is denied, and chatter, in any order. Some
    words are lost or unreadable. Tickets without evidence can only be guessed at, so no
    classifier is always right.
    """
    draws = np.random.default_rng(seed)
    causes = draws.integers(0, len(CAUSES), count)
    return [_text(draws, int(cause)) for cause in causes], causes.astype(np.int64)


def numbered(texts: list[str], words: tuple[str, ...]) -> Array:
    """Turn texts into word numbers [texts x places] int64, padded with 0."""
    number = {word: place for place, word in enumerate(words)}
    unknown = number[_UNKNOWN]
    table = np.zeros((len(texts), PLACES), dtype=np.int64)
    for row, text in enumerate(texts):
        found = [number[_START], *(number.get(word, unknown) for word in text.split())][:PLACES]
        table[row, : len(found)] = found
    return table


def _text(draws: np.random.Generator, cause: int) -> str:
    """Write one ticket."""

    def happens(piece: str) -> bool:
        return bool(draws.random() < SHARES[piece])

    parts = [_one(draws, CHATTER)]
    if happens("symptom"):
        weight = np.array([weights[cause] for weights in SYMPTOMS.values()], dtype=float)
        parts.append(tuple(SYMPTOMS)[int(draws.choice(len(SYMPTOMS), p=weight / weight.sum()))])
    pieces = ("evidence", "second evidence")
    parts += [_wrapped(draws, CLAIMS, cause) for piece in pieces if happens(piece)]
    for piece in ("denial", "second denial"):
        if happens(piece):
            other = (cause + int(draws.integers(1, len(CAUSES)))) % len(CAUSES)
            parts.append(_wrapped(draws, DENIALS, other))
    words = " ".join(parts[place] for place in draws.permutation(len(parts))).split()
    words = [str(draws.integers(_NUMBERS)) if word == "{n}" else word for word in words]
    words = [_UNKNOWN if happens("unknown word") else word for word in words]
    return " ".join(word for word in words if not happens("lost word"))


def _wrapped(draws: np.random.Generator, wrappers: tuple[tuple[str, str], ...], cause: int) -> str:
    """Give evidence for a cause, with what is said before and after it."""
    before, after = wrappers[int(draws.integers(len(wrappers)))]
    return f"{before} {_one(draws, EVIDENCE[CAUSES[cause]])} {after}".strip()


def _one(draws: np.random.Generator, phrases: tuple[str, ...]) -> str:
    return phrases[int(draws.integers(len(phrases)))]


# A small transformer encoder of BERT-Tiny's shape that names the cause of an incident ticket.

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
