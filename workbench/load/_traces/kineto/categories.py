"""Texts as numbers, on their way to a pandas categorical."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd


@dataclass
class CodedTexts:
    """One text per row: ``codes`` into sorted, distinct ``texts``; -1 where missing."""

    codes: npt.NDArray[np.int32]
    texts: list[str]

    @classmethod
    def of(
        cls, codes: npt.NDArray[np.generic], texts: Sequence[str], *, missing: str | None = None
    ) -> CodedTexts:
        """Keep only texts that occur, each once, in order.

        Parameters
        ----------
        codes
            Per row, a position in ``texts``; below 0 where there is none.
        texts
            May hold texts twice and texts that do not occur.
        missing
            Text for rows without one; None leaves them missing.
        """
        occurs = np.zeros(len(texts) + 1, np.bool_)
        occurs[np.maximum(codes, -1)] = True
        lacking = bool(occurs[-1])
        used = np.flatnonzero(occurs[:-1]).tolist()
        wanted = {texts[code] for code in used}
        if lacking and missing is not None:
            wanted.add(missing)
        ordered = sorted(wanted)
        position = {text: at for at, text in enumerate(ordered)}
        table = np.full(len(texts) + 1, -1, np.int32)
        table[used] = [position[texts[code]] for code in used]
        if lacking and missing is not None:
            table[-1] = position[missing]
        return cls(table[np.maximum(codes, -1)], ordered)

    def matches(self, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Say for each row whether its text passes ``test``; missing texts do not."""
        passed = np.zeros(len(self.texts) + 1, np.bool_)
        passed[:-1] = [test(text) for text in self.texts]
        return passed[self.codes]

    def take(self, rows: npt.NDArray[np.generic]) -> CodedTexts:
        """Return the texts of the given rows; the texts stay, even if unused now."""
        return CodedTexts(self.codes[rows], self.texts)

    def categorical(self) -> pd.Categorical:
        """Return the texts as a pandas categorical."""
        return pd.Categorical.from_codes(self.codes, categories=pd.Index(self.texts, dtype="str"))
