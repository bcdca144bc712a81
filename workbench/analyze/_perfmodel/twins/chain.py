"""A Markov chain of variable length over a sequence of symbols."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

Context = tuple[int, ...]
Chain = Mapping[Context, Mapping[int, int]]
_MOST_CONTEXTS = 200
# Nats by which a longer context has to predict better than a shorter one, as the likelihood
# ratio of one parameter (Rissanen's context algorithm).
_LEAST_GAIN = 3.0


def fitted_chain(sequences: Iterable[Sequence[int]], *, depth: int) -> Chain:
    """Count what follows each context, and keep the contexts that predict more than shorter ones.

    References
    ----------
    J. Rissanen, IEEE Transactions on Information Theory 29 (1983) 656; P. Bühlmann and A. J. Wyner,
    Annals of Statistics 27 (1999) 480.
    """
    counts: dict[Context, Counter[int]] = {}
    for sequence in sequences:
        symbols = tuple(sequence)
        for at, symbol in enumerate(symbols):
            for length in range(min(depth, at) + 1):
                counts.setdefault(symbols[at - length : at], Counter())[symbol] += 1
    gains = {seen: _gain(after, counts[seen[1:]]) for seen, after in counts.items() if seen}
    best = sorted(gains, key=lambda seen: (-gains[seen], seen))[:_MOST_CONTEXTS]
    chosen = {(), *(seen for seen in best if gains[seen] >= _LEAST_GAIN)}
    return {seen: dict(counts[seen]) for seen in sorted(chosen & counts.keys())}


def _gain(after: Counter[int], shorter: Counter[int]) -> float:
    total, whole = sum(after.values()), sum(shorter.values())
    return sum(
        count * math.log(count * whole / (total * shorter[symbol]))
        for symbol, count in after.items()
    )


def perplexity(chain: Chain, sequences: Iterable[Sequence[int]], *, symbol_count: int) -> float:
    """Return how many equally likely symbols the chain leaves to choose from, on average.

    Notes
    -----
    exp(-mean ln P(symbol | context)). Without context P = (n(symbol) + 1 / symbols) / (n + 1); each
    longer context that is known and all shorter ones weigh the same, so that ranks of one order do
    not make the chain surer than it is.
    """
    total, count = 0.0, 0
    depth = max((len(seen) for seen in chain), default=0)
    sums = {seen: sum(after.values()) for seen, after in chain.items()}
    for sequence in sequences:
        symbols = tuple(sequence)
        for at, symbol in enumerate(symbols):
            chance = 1 / max(symbol_count, 1)
            for length in range(min(depth, at) + 1):
                seen = symbols[at - length : at]
                if seen in chain and length:
                    chance = (chain[seen].get(symbol, 0) / sums[seen] + chance) / 2
                elif seen in chain:
                    chance = (chain[seen].get(symbol, 0) + chance) / (sums[seen] + 1)
            total, count = total - math.log(chance), count + 1
    return math.exp(total / max(count, 1))
