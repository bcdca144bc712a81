"""Collectives played message by message, with the data they carry, as an oracle of formulas.

A message leaves when its sender holds the data and has sent what came before; it takes the latency
and the bytes over the bandwidth of the level on which the two ranks meet. Nothing here knows a
closed form. Every collective proves that each rank ends with what it should have.
"""

from math import ceil, log2, prod


class Network:
    """Ranks in nested groups; ``counts``, ``latency`` and ``seconds_per_byte`` innermost first."""

    def __init__(self, counts, latency, seconds_per_byte):
        self.counts, self.latency, self.per_byte = counts, latency, seconds_per_byte
        self.ranks = prod(counts)
        self.ready = [0.0] * self.ranks

    def level(self, one, other):
        """Give the innermost level on which two ranks are in one group."""
        below = 1
        for level, count in enumerate(self.counts):
            below *= count
            if one // below == other // below:
                return level
        raise AssertionError

    def cost(self, one, other, size):
        level = self.level(one, other)
        return self.latency[level] + size * self.per_byte[level]

    def step(self, messages):
        """Deliver messages of one step (sender, receiver, bytes); senders use what they had."""
        arrived = list(self.ready)
        sent = dict(enumerate(self.ready))
        for one, other, size in messages:
            sent[one] += self.cost(one, other, size)
            arrived[other] = max(arrived[other], sent[one])
        self.ready = [max(arrived[rank], sent[rank]) for rank in range(self.ranks)]

    def lines(self, level):
        """Give the sets of ranks that differ in their place at one level only."""
        stride, count = prod(self.counts[:level]), self.counts[level]
        starts = [rank for rank in range(self.ranks) if rank // stride % count == 0]
        return [[start + stride * place for place in range(count)] for start in starts]

    @property
    def time(self):
        return max(self.ready)


def ring_steps(lines, count, direction):
    """Give, per step of a ring, what goes from where to where, as (sender, receiver, part)."""
    for step in range(count - 1):
        shift = step if direction == "gather" else step + 1
        yield [
            (line[place], line[(place + 1) % count], (place - shift) % count)
            for line in lines
            for place in range(count)
        ]


def halving_steps(lines, count, direction):
    """Give the steps of recursive halving (or doubling): partners exchange sets of parts."""
    distances = [2**power for power in range(int(log2(count)))]
    for distance in distances if direction == "gather" else distances[::-1]:
        yield [
            (line[place], line[place ^ distance], parts_to(place, distance, direction, count))
            for line in lines
            for place in range(count)
        ]


def parts_to(place, distance, direction, count):
    if direction == "gather":
        return [part for part in range(count) if part // distance == place // distance]
    partner = place ^ distance
    return [part for part in range(count) if part // distance == partner // distance]


def reduce_then_gather(network, size, *, steps, rounds="both"):
    """Reduce-scatter level by level from the inside, then gather back; parts are checked."""
    levels = range(len(network.counts))
    volumes = [size / prod(network.counts[:level]) for level in levels]
    if rounds in ("both", "scatter"):
        for level in levels:
            scattered(network, level, volumes[level], steps)
    if rounds in ("both", "gather"):
        for level in reversed(levels):
            gathered(network, level, volumes[level], steps)
    return network.time


def scattered(network, level, volume, steps):
    """Reduce-scatter on one level: a part is complete when it holds the addend of each rank."""
    count, lines = network.counts[level], network.lines(level)
    addends = {rank: [{rank} for _ in range(count)] for line in lines for rank in line}
    for messages in steps(lines, count, "scatter"):
        carried = [(b, p, set(addends[a][p])) for a, b, parts in messages for p in listed(parts)]
        for receiver, part, sums in carried:
            addends[receiver][part] |= sums
        deliver(network, messages, volume / count)
    for line in lines:
        for part in range(count):
            assert any(addends[rank][part] == set(line) for rank in line)


def gathered(network, level, volume, steps):
    """Gather on one level: a rank sends only parts that it holds."""
    count, lines = network.counts[level], network.lines(level)
    held = {rank: {line.index(rank)} for line in lines for rank in line}
    for messages in steps(lines, count, "gather"):
        assert all(set(listed(parts)) <= held[sender] for sender, _, parts in messages)
        for _, receiver, parts in messages:
            held[receiver] |= set(listed(parts))
        deliver(network, messages, volume / count)
    assert all(parts == set(range(count)) for parts in held.values())


def deliver(network, messages, part_bytes):
    network.step([(a, b, part_bytes * len(listed(parts))) for a, b, parts in messages])


def listed(parts):
    return parts if isinstance(parts, list) else [parts]


def bruck_gather(network, size):
    """Gather in ceil(log2 n) steps: rank r gets all that rank r + 2^k holds, or what it lacks."""
    n = network.ranks
    held = {rank: [rank] for rank in range(n)}
    for power in range(ceil(log2(n))):
        distance = 2**power
        sent = {rank: held[(rank + distance) % n][: n - distance] for rank in range(n)}
        network.step([((r + distance) % n, r, size / n * len(sent[r])) for r in range(n)])
        held = {rank: held[rank] + sent[rank] for rank in range(n)}
    assert all(sorted(parts) == list(range(n)) for parts in held.values())
    return network.time


def ring_all_to_all(network, size):
    """Forward every share from rank to rank until it has arrived, one message per share and hop."""
    n = network.ranks
    held = {rank: {(rank, (rank + far) % n) for far in range(1, n)} for rank in range(n)}
    while any(held.values()):
        most = max(len(shares) for shares in held.values())
        for _ in range(most):
            network.step([(rank, (rank + 1) % n, size / n) for rank in range(n)])
        moved = {(rank + 1) % n: held[rank] for rank in range(n)}
        held = {rank: {(a, b) for a, b in moved[rank] if b != rank} for rank in range(n)}
    return network.time


def direct_all_to_all(network, size, control):
    """Put one share to each peer, one after the other; the last latency is seen at the end."""
    n = network.ranks
    busy = [
        sum(control + size / n * network.per_byte[network.level(a, b)] for b in range(n) if b != a)
        for a in range(n)
    ]
    return max(busy) + max(network.latency[network.level(0, b)] for b in range(1, n))


def two_phase_all_to_all(network, size, control):
    """Hand shares to the rank of the node with the receiver's place, then put whole bundles."""
    n, inside = network.ranks, network.counts[0]
    held = {rank: [(rank, other) for other in range(n)] for rank in range(n)}
    first = dict.fromkeys(range(n), 0.0)
    handed = {rank: [] for rank in range(n)}
    for rank in range(n):
        for place in range(inside):
            via = rank // inside * inside + place
            bundle = [share for share in held[rank] if share[1] % inside == place]
            handed[via] += bundle
            if via != rank:
                first[rank] += control + len(bundle) * size / n * network.per_byte[0]
    second, got = dict.fromkeys(range(n), 0.0), {rank: [] for rank in range(n)}
    for rank in range(n):
        for node in range(n // inside):
            other = node * inside + rank % inside
            bundle = [share for share in handed[rank] if share[1] == other]
            got[other] += bundle
            if other != rank:
                level = network.level(rank, other)
                second[rank] += control + len(bundle) * size / n * network.per_byte[level]
    assert all(sorted(a for a, _ in got[rank]) == list(range(n)) for rank in range(n))
    far = max(network.latency[network.level(0, b)] for b in range(1, n))
    latencies = far + (network.latency[0] if n > inside else 0.0)
    return max(first.values()) + max(second.values()) + latencies


def bruck_all_to_all(network, size):
    """Send, in step k, all shares whose remaining distance has bit k."""
    n = network.ranks
    held = {rank: [(rank, other) for other in range(n)] for rank in range(n)}
    for power in range(ceil(log2(n))):
        moving = {
            rank: [share for share in held[rank] if (share[1] - rank) % n >> power & 1]
            for rank in range(n)
        }
        network.step([(r, (r + 2**power) % n, size / n * len(moving[r])) for r in range(n)])
        held = {
            rank: [share for share in held[rank] if share not in moving[rank]]
            + moving[(rank - 2**power) % n]
            for rank in range(n)
        }
    assert all(b == rank for rank in range(n) for _, b in held[rank])
    return network.time


def binomial_tree(network):
    """Send a message without bytes up a binomial tree to rank 0, and back to all."""
    n = network.ranks
    powers = range(ceil(log2(n)))
    for power in powers:
        distance = 2**power
        network.step([(r, r - distance, 0) for r in range(n) if r % (2 * distance) == distance])
    reached = {0}
    for power in reversed(powers):
        distance = 2**power
        messages = [(r, r + distance, 0) for r in sorted(reached) if r + distance < n]
        network.step(messages)
        reached |= {other for _, other, _ in messages}
    assert reached == set(range(n))
    return network.time
