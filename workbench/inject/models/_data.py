"""Generated inputs of the shipped models: clicks, incident tickets; and enlarged digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_DENSE, _TABLES, _ROWS = 13, 26, 1000
_WORLD_SEED = 1234


def clicks(count: int, seed: int) -> tuple[Array, Array, Array]:
    """Draw inputs and clicks of one fixed, invented world.

    Gives dense features [count x 13] float32, row numbers [count x 26] int64, and clicks [count]
    float32 of 0 and 1. Dense features are log1p(lognormal(0, 1)); rows are
    min(zipf(1.2) - 1, 999). A click has the probability sigmoid(linear part + 0.6 x effect of
    every row + products of rank 4 of the first table with the next five - 1.2).
    """
    # The world stays the same for all seeds, or training and judging would have other users.
    draws, world = np.random.default_rng(seed), np.random.default_rng(_WORLD_SEED)
    dense = np.log1p(draws.lognormal(0, 1, (count, _DENSE)).astype(np.float32))
    sparse = np.stack(
        [np.minimum(draws.zipf(1.2, count) - 1, _ROWS - 1) for _ in range(_TABLES)], 1
    )
    weights = world.normal(0, 0.35, _DENSE)
    effects = [world.normal(0, 0.5, _ROWS) for _ in range(_TABLES)]
    factors = [world.normal(0, 0.6, (_ROWS, 4)) for _ in range(_TABLES)]
    logit = dense @ weights - 1.2
    logit = logit + sum(effects[k][sparse[:, k]] for k in range(_TABLES)) * 0.6
    first = factors[0][sparse[:, 0]]
    for k in range(1, 6):
        logit += (first * factors[k][sparse[:, k]]).sum(1)
    clicked = draws.random(count) < 1 / (1 + np.exp(-logit))
    return dense, sparse.astype(np.int64), clicked.astype(np.float32)


def area_under_curve(scores: Array, labels: Array) -> float:
    """Return the probability that a clicked input scores above one that was not clicked."""
    from scipy.stats import rankdata

    # Mann-Whitney: the area is the share of pairs of a hit and a miss in the right order.
    rank = rankdata(scores)
    hits = int((labels == 1).sum())
    misses = len(labels) - hits
    return float((rank[labels == 1].sum() - hits * (hits + 1) / 2) / (hits * misses))


_SIDE = 28


def enlarged(digits: Array) -> Array:
    """Enlarge digits [inputs x 8 x 8] of 0 .. 16 to [inputs x 1 x 28 x 28] float32 of 0 .. 1.

    Bilinear, in single steps that round the same everywhere, so that the inputs have one
    checksum on all machines.
    """
    image = digits.astype(np.float32) / np.float32(16)
    for axis in (1, 2):
        side = image.shape[axis]
        # Bilinear, with the centres of pixels as the points.
        position = np.clip((np.arange(_SIDE) + 0.5) * side / _SIDE - 0.5, 0, side - 1)
        low = np.floor(position).astype(np.int64)
        share = (position - low).astype(np.float32)
        shape = [1, 1, 1]
        shape[axis] = _SIDE
        weight = share.reshape(shape)
        upper = np.minimum(low + 1, side - 1)
        image = image.take(low, axis) * (1 - weight) + image.take(upper, axis) * weight
    return image[:, None]


# The phrases that tickets are made of; invented, no real ticket was used. Their order decides
# what a seed draws, so it is part of the shipped truth.


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in " ".join(text.split()).split(";"))


#: Cause -> what somebody finds who looks in the right place.
EVIDENCE = {
    "network": _phrases("""
    link flap on port {n}; packet loss on the leaf switch; infiniband symbol errors climbing;
    optic {n} lost light; nic reports carrier down; pause frames flood the fabric; cable
    reseated and bandwidth returned; route to the spine is gone; nccl ring broke between two
    racks; mtu mismatch on bond
    """),
    "gpu": _phrases("""
    xid {n} on device {n}; uncorrectable ecc in hbm; gpu fell off the bus; nvlink replay errors;
    row remapping failed; device {n} runs slow in every kernel; cuda illegal access only on this
    board; page retirement pending; sxm board swapped and job runs; nvswitch fatal error
    """),
    "storage": _phrases("""
    checkpoint write takes {n} minutes; nfs mount stale; lustre ost {n} unreachable; disk full
    on scratch; nvme media errors; dataset read throttled; inode quota exceeded; metadata server
    overloaded; object store returns errors; raid rebuild in progress
    """),
    "power": _phrases("""
    psu {n} failed; breaker tripped in row {n}; rack lost feed b; power cap engaged; thermal
    throttle from hot inlet; fan {n} stopped; coolant flow low; bmc logged brownout; pdu
    overload alarm; leak sensor wet
    """),
    "software": _phrases("""
    stack trace in data loader; python exception in optimizer; library version changed
    yesterday; assert in collective wrapper; wrong shape after config merge; container image
    lacks package; driver and toolkit mismatch; segfault in custom kernel; bug fixed by
    reverting commit; nan since new learning rate
    """),
    "scheduler": _phrases("""
    job preempted by higher priority; slurm time limit reached; node drained by mistake;
    allocation spans the wrong partition; cgroup killed the rank; requeue loop in controller;
    pod evicted for memory request; reservation ended early; quota of account used up; prolog
    script refuses node
    """),
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
#: Around the evidence of another cause (it was not that), and around that of the cause.
DENIALS = (
    ("ruled out", ""), ("no sign of", ""), ("it is not", ""), ("we first suspected", "but no"),
    ("last month we had", "that is solved"), ("", "was a false alarm"),
    ("", "was on another cluster"), ("checked for", "and found nothing"),
)  # fmt: skip
CLAIMS = tuple(
    (words, "")
    for words in ("", "", "found", "logs show", "we see", "most likely", "again", "operator says")
)
#: What tells nothing.
CHATTER = _phrases("""
    please look; opened by oncall; seen {n} times today; job of {n} nodes; started after the
    weekend; user is waiting; same rack as ticket {n}; not urgent; high priority; will retry; no
    change from our side
""")

CAUSES = tuple(EVIDENCE)
TICKET_WORDS = 40
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


def vocabulary() -> tuple[str, ...]:
    """Return all words of the grammar; the number of a word is its position."""
    wrappers = [words for pair in (*DENIALS, *CLAIMS) for words in pair]
    evidence = [phrase for phrases in EVIDENCE.values() for phrase in phrases]
    phrases = (*wrappers, *evidence, *SYMPTOMS, *CHATTER)
    words = {word for phrase in phrases for word in phrase.split()} - {"{n}"}
    numbers = [str(number) for number in range(_NUMBERS)]
    return (_PADDING, _START, _UNKNOWN, *numbers, *sorted(words))


def tickets(count: int, seed: int) -> tuple[list[str], Array]:
    """Draw tickets and their causes: texts, and indices [count] int64 into :data:`CAUSES`.

    A ticket has a symptom that several causes share, most often one or two pieces of evidence
    for its cause, evidence for other causes that is denied, and chatter, in any order. Some
    words are lost or unreadable. Tickets without evidence can only be guessed at, so no
    classifier is always right.
    """
    draws = np.random.default_rng(seed)
    causes = draws.integers(0, len(CAUSES), count)
    return [_text(draws, int(cause)) for cause in causes], causes.astype(np.int64)


def numbered(texts: list[str], words: tuple[str, ...]) -> Array:
    """Turn texts into word numbers [texts x words] int64, padded with 0."""
    number = {word: position for position, word in enumerate(words)}
    unknown = number[_UNKNOWN]
    table = np.zeros((len(texts), TICKET_WORDS), dtype=np.int64)
    for row, text in enumerate(texts):
        numbers = [number[_START], *(number.get(word, unknown) for word in text.split())][
            :TICKET_WORDS
        ]
        table[row, : len(numbers)] = numbers
    return table


def _text(draws: np.random.Generator, cause: int) -> str:
    def happens(piece: str) -> bool:
        return bool(draws.random() < SHARES[piece])

    texts = [_one(draws, CHATTER)]
    if happens("symptom"):
        weight = np.array([weights[cause] for weights in SYMPTOMS.values()], dtype=float)
        texts.append(tuple(SYMPTOMS)[int(draws.choice(len(SYMPTOMS), p=weight / weight.sum()))])
    pieces = ("evidence", "second evidence")
    texts += [_wrapped(draws, CLAIMS, cause) for piece in pieces if happens(piece)]
    for piece in ("denial", "second denial"):
        if happens(piece):
            denied = (cause + int(draws.integers(1, len(CAUSES)))) % len(CAUSES)
            texts.append(_wrapped(draws, DENIALS, denied))
    words = " ".join(texts[number] for number in draws.permutation(len(texts))).split()
    words = [str(draws.integers(_NUMBERS)) if word == "{n}" else word for word in words]
    words = [_UNKNOWN if happens("unknown word") else word for word in words]
    return " ".join(word for word in words if not happens("lost word"))


def _wrapped(draws: np.random.Generator, wrappers: tuple[tuple[str, str], ...], cause: int) -> str:
    """Return evidence for a cause, with what is said before and after it."""
    before, after = wrappers[int(draws.integers(len(wrappers)))]
    return f"{before} {_one(draws, EVIDENCE[CAUSES[cause]])} {after}".strip()


def _one(draws: np.random.Generator, phrases: tuple[str, ...]) -> str:
    return phrases[int(draws.integers(len(phrases)))]
