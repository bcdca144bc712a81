"""Embedding outputs whose repeats and values are known: Zipf popularity, uniform numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.errors import WorkbenchError
from workbench.tables import EmbeddingOutputs

_MOST_VALUES = 500_000_000
_CARDINALITIES = {"users": 100_000, "items": 10_000, "regions": 100, "devices": 4}


def embedding_outputs(
    cardinalities: Mapping[str, int] | None = None,
    *,
    row_count: int = 2_048,
    dim: int = 32,
    skew: float = 1.0,
    scale: float = 0.2,
    seed: int = 7,
) -> EmbeddingOutputs:
    """Draw the embedding outputs of a batch from tables of known size and popularity.

    Parameters
    ----------
    cardinalities
        Rows of each table, by its name; four tables from 4 to 100,000 rows by default.
    row_count
        Samples of the batch.
    dim
        Numbers per row.
    skew
        Exponent of the popularity of rows; 0 for equally popular ones.
    scale
        Numbers are uniform between ``-scale`` and ``scale``.
    seed
        Of the generator.

    Returns
    -------
    workbench.tables.EmbeddingOutputs
        Arrays by table. Synthetic.

    Raises
    ------
    WorkbenchError
        If a number makes no sense, or more than 500 million values would be drawn.

    Notes
    -----
    The k-th row has probability ``p_k ~ k^-skew``, so among n samples
    ``sum 1 - (1 - p_k)^n`` distinct rows are expected. Quantised with bound e, a number falls into
    one of ``2 scale / 2 e`` bins, all equally likely but the outer ones.

    Examples
    --------
    >>> embedding_outputs({"users": 1_000}, row_count=256)
    EmbeddingOutputs: 1 table, 256 samples, 0.0328 MB
    """
    sizes = _CARDINALITIES if cardinalities is None else cardinalities
    counts = {f"rows of {name!r}": size for name, size in sizes.items()}
    counts |= {"row_count": row_count, "dim": dim}
    bad = [f"{name} is {value:g}" for name, value in counts.items() if not value >= 1]
    limits = {"skew": skew, "scale": scale}
    bad += [f"{name} is {value:g}" for name, value in limits.items() if not 0 <= value < np.inf]
    drawn = (sum(sizes.values()) + len(sizes) * row_count) * dim
    if bad or not sizes or drawn > _MOST_VALUES:
        msg = f"{'; '.join(bad) or f'{len(sizes)} tables, {drawn:,} values'}: counts start at 1, "
        msg += f"skew and scale at 0, and at most {_MOST_VALUES:,} values are drawn"
        raise WorkbenchError(msg)
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, size in sizes.items():
        rows = generator.uniform(-scale, scale, (size, dim)).astype(np.float32)
        popularity = np.arange(1, size + 1, dtype=np.float64) ** -skew
        arrays[name] = rows[generator.choice(size, row_count, p=popularity / popularity.sum())]
    return EmbeddingOutputs(arrays)
