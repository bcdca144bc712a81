"""Generated incident tickets: short texts whose cause is known, with denials, gaps and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.simulate.injections.models._ticket_words import (
    CHATTER,
    CLAIMS,
    DENIALS,
    EVIDENCE,
    SYMPTOMS,
)

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
