"""What happens to the bits that are hit."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._arguments import in_range, whole_number
from workbench.simulate.injections.designs.bits import LAYOUTS

Kind = Literal["sbf", "mbf", "mbbf", "stuck0", "stuck1", "value"]
_Longs = npt.NDArray[np.int64]
_LEAST = {"flip_count": 1, "burst_bits": 2}


@dataclass(frozen=True)
class FaultModel:
    """What one experiment does to the bits it hits.

    Parameters
    ----------
    kind
        ``"sbf"``: one random bit flips; ``"mbf"``: several different bits flip, either
        ``flip_count`` of them or a share ``bit_error_ratio``; ``"mbbf"``: a burst of
        ``burst_bits`` neighbouring bits of one element flips; ``"stuck0"``, ``"stuck1"``:
        one random bit becomes 0 or 1, which it may be already; ``"value"``: one random
        element becomes ``value``.
    flip_count
        Of ``"mbf"``: bits per experiment.
    bit_error_ratio
        Of ``"mbf"``, instead of ``flip_count``: the probability of every bit to flip. An
        experiment can come out without any.
    burst_bits
        Of ``"mbbf"``: length of the burst.
    value
        Of ``"value"``: rounded to what the tensor can store.

    Raises
    ------
    InjectionError
        If the kind is none of these, it lacks its number or is given another one's, or the
        number is out of range.
    """

    kind: Kind = "sbf"
    flip_count: int | None = None
    bit_error_ratio: float | None = None
    burst_bits: int | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        """Refuse a model that cannot be followed."""
        if self.kind not in get_args(Kind):
            msg = f"kind={self.kind!r} is not one of {get_args(Kind)}"
            raise InjectionError(msg)
        own = {"mbf": ["flip_count", "bit_error_ratio"], "mbbf": ["burst_bits"], "value": ["value"]}
        needed = own.get(self.kind, [])
        numbers = ("flip_count", "bit_error_ratio", "burst_bits", "value")
        given = [name for name in numbers if getattr(self, name) is not None]
        if len(given) != bool(needed) or not set(given) <= set(needed):
            wanted = " or ".join(needed) if needed else "no further number"
            msg = f"kind={self.kind!r} takes {wanted}, and was given {given or 'none'}"
            raise InjectionError(msg)
        for name in given:
            object.__setattr__(self, name, _number(name, getattr(self, name)))

    def starts(self, cells: pd.DataFrame) -> pd.DataFrame:
        """Give the cells in which an experiment can begin."""
        if self.kind == "value":
            return cells.drop_duplicates("tensor").reset_index(drop=True)
        if self.burst_bits is None:
            return cells
        width = cells["dtype"].map({name: layout.bit_count for name, layout in LAYOUTS.items()})
        fits = cells[cells["bit"] + self.burst_bits <= width].reset_index(drop=True)
        if fits.empty:
            msg = f"burst_bits={self.burst_bits} does not fit into {sorted(set(cells['dtype']))}"
            raise InjectionError(msg)
        return fits

    def draws(self, population: int, count: int, rng: np.random.Generator) -> tuple[_Longs, _Longs]:
        """Draw places below ``population``: the experiment and the place of each."""
        if self.kind != "mbf":
            return np.arange(count), rng.integers(0, population, count)
        sizes = np.full(count, self.flip_count or 0)
        if self.bit_error_ratio is not None:
            sizes = rng.binomial(population, self.bit_error_ratio, count)
        if sizes.max(initial=0) > population:
            msg = f"flip_count={self.flip_count} is more than the {population} bits there are"
            raise InjectionError(msg)
        places = [rng.choice(population, size, replace=False) for size in sizes]
        return np.repeat(np.arange(count), sizes), np.concatenate([*places, np.zeros(0, int)])

    def rows(self, hits: pd.DataFrame) -> pd.DataFrame:
        """Give the rows of the places hit, with what only this kind knows."""
        hits = hits.assign(direction=None, value_after=np.nan)
        if self.burst_bits is not None:
            hits = hits.loc[hits.index.repeat(self.burst_bits)]
            step = np.tile(np.arange(self.burst_bits), len(hits) // self.burst_bits)
            hits = hits.assign(bit=hits["bit"] + step).reset_index(drop=True)
        elif self.kind == "value":
            hits = hits.assign(bit=None, value_after=self.value)
        elif self.kind != "sbf" and self.kind != "mbf":
            hits = hits.assign(direction="1to0" if self.kind == "stuck0" else "0to1")
        return hits

    def provenance(self) -> dict[str, Any]:
        """Say what the head of a campaign says of it."""
        count = {"sbf": 1, "stuck0": 1, "stuck1": 1, "mbf": self.flip_count}.get(self.kind)
        return {
            "fault_model": self.kind,
            "flip_count": self.burst_bits if self.kind == "mbbf" else count,
            "bit_error_ratio": self.bit_error_ratio,
        }


def _number(name: str, value: Any) -> float:
    """Give a number of a fault model, or say what it must be."""
    if name in _LEAST:
        return whole_number(name, value, least=_LEAST[name])
    if name == "bit_error_ratio":
        return in_range(name, value, least=0, most=1)
    # Infinities are values too.
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        msg = (
            f"value must be a number, not {value!r}: a missing value of a table cannot be told "
            "from NaN; flip exponent bits instead"
        )
        raise InjectionError(msg)
    return float(value)
