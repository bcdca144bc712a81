"""Where the numbers of a figure come from: the words under it, and whose data they are."""

from __future__ import annotations

from typing import Literal

Origin = Literal["", "own", "data set", "published", "model"]


class Source(str):
    """Words for the foot of a figure that also say whose data the figure shows.

    Goes wherever a plain text names a source. A plain text leaves open whose data it is, so
    a report on somebody's data never lists its figure among the findings.

    Parameters
    ----------
    text
        The words.
    origin
        ``"own"`` for files of whoever runs this, ``"data set"`` for a bundled or public set,
        ``"published"`` for numbers that were printed, ``"model"`` for a closed form or a
        simulation; empty if that is not known.

    Examples
    --------
    >>> Source("nightly run", "own").origin
    'own'
    """

    origin: Origin

    def __new__(cls, text: str = "", origin: Origin = "") -> Source:
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def joined(self, *words: str) -> Source:
        """Add further words, all of the same origin."""
        return Source(" · ".join(filter(None, [self, *words])), self.origin)


def as_source(text: str) -> Source:
    """Take a text for the words of a source; one of unknown origin if it is plain."""
    return text if isinstance(text, Source) else Source(text)
