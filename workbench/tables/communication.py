"""Tables about communication: collectives, links, start-up, compression, regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import TableError
from workbench.tables.table import table

NETWORK_LEVELS = table("""
    network_levels: One row per level of a network, innermost first; a level groups those before it.

    level: str - smallest unit that holds both ends of a message: node, zone, building, site
    group_count: Int64? >=1 - units of the level before (ranks for the first) in one unit; missing
        in the last: as many as it takes
    latency_us: float64 >=0 - latency of a message between two units
    gb_per_s: float64 >=0 - bandwidth of a rank, one direction [10^9 bytes/s]
    oversubscription_ratio: float64 >=1 - bandwidth that its ranks have together / bandwidth of the
        level
""")

COLLECTIVE_SCALING = table("""
    collective_scaling: One row per number of ranks, size and algorithm of a collective: its time by
    the model. latency + control + transfer = modelled.

    collective: str - all-reduce, all-gather, reduce-scatter or all-to-all
    algorithm: str - ring, hierarchical ring, tree, recursive doubling, PAT, direct, two-phase or
        Bruck
    rank_count: int64 >=1 - ranks that take part
    size_bytes: int64 >=0 - size of the larger buffer of a rank, as nccl-tests counts it
    modelled_ns: float64 >=0 - time by the model
    latency_ns: float64 >=0 - of that: latencies of messages that follow each other
    control_ns: float64 >=0 - of that: control messages to each peer of an all-to-all
    transfer_ns: float64 >=0 - of that: bytes over bandwidths
    bus_gb_per_s: Float64? >=0 - bus bandwidth [10^9 bytes/s]; missing for one rank
    slowest_level: str - level of the network that takes most of the time; empty for one rank
    is_chosen: bool - fastest of the algorithms compared
    doubt: str - what the model assumes that does not hold for this number of ranks
""")

STARTUP_TIME = table("""
    startup_time: One row per library and number of ranks: how long the communication library takes
    to start.

    library: str - communication library, and who reports on it
    rank_count: int64 >=1 - ranks of the job
    startup_s: float64 >=0 - time to start
    low_s: float64 >=0 - lower of the two curves through the published points
    high_s: float64 >=0 - upper of them
    basis: str - published: printed for this size; interpolated or extrapolated: from the curves
    doubt: str - why the time may be wrong; empty between published points
    source: str - who printed the points
""")

STARTUP_GOODPUT = table("""
    startup_goodput: One row per library and size of a job: goodput with the start-up as a part of
    every recovery.

    library: str - communication library, and who reports on it
    gpu_count: int64 >=1 - GPUs of the job
    startup_s: float64 >=0 - time to start
    failure_interval_min: float64 >=0 - mean time between failures of the job
    productive_share: Float64? 0..1 - goodput; missing where the convention has no answer
    low_share: Float64? 0..1 - with the upper end of the start-up time
    high_share: Float64? 0..1 - with its lower end
    startup_share: Float64? 0..1 - of the GPU time: what the start-ups cost
    convention: str - how failures are counted
    basis: str - of the start-up time: published, interpolated or extrapolated
    doubt: str - why the time may be wrong; empty between published points
""")

ALL_TO_ALL_PADDING = table("""
    all_to_all_padding: One row per layer of a mixture-of-experts model: an all-to-all whose shares
    are padded to one size, compared with the exact one.

    layer: int32 >=0 - layer
    rank_count: int64 >=1 - ranks that share the experts
    imbalance_ratio: float64 >=1 - largest load of a rank / mean load
    exact_count: float64 >=0 - load of all ranks, as routed
    padded_count: float64 >=0 - load of all ranks, each padded
    saved_share: float64 0..1 - of the padded traffic: saved by exact sizes
    busiest_saved_share: float64 0..1 - of the padded traffic of the busiest rank, which decides the
        time on a network without oversubscription
""")

COMMUNICATION_SPEEDUP = table("""
    communication_speedup: One row per share of exposed communication: how much faster it must be
    for a step to become so much shorter.

    communication_share: float64 0..1 - of the step: exposed communication
    saved_share: float64 0..1 - of the step: what is saved
    speedup_ratio: Float64? >=1 - communication time before / after; missing where no speed-up is
        enough
""")

COLLECTIVE_BANDWIDTH = table("""
    collective_bandwidth: One row per collective, members and size in a trace: measured bus
    bandwidth, that of the model, and that of other groups.

    operation: str - all-reduce, all-gather, reduce-scatter or all-to-all
    members: str - global ranks, comma separated
    rank_count: int64 >=2 - members
    node_count: int64 >=1 - nodes they are on
    scope: str optional - one node, one rail, several rails, between nodes (rails are not recorded)
        or across switches
    size_bytes: int64 >=1 - size of the larger buffer of a rank
    collective_count: int64 >=1 - collectives measured
    dur_ns: float64 >=1 - median over them of the shortest duration of all ranks
    bus_gb_per_s: float64 >=0 - bus bandwidth of that [10^9 bytes/s]
    modelled_gb_per_s: float64 >=0 - of the fastest algorithm of the model [10^9 bytes/s]
    algorithm: str - that algorithm
    model_ratio: float64 >=0 - measured / modelled bandwidth
    peer_ratio: Float64? 0..1 - measured / best of all groups of as many ranks and nodes and of the
        same scope with the same collective and size; missing without another group
    doubt: str - why the duration may not be that of the transfer
""")

SLOW_LINKS = table("""
    slow_links: One row per link of a node: whether all groups that use it are slow.

    node: int32 >=0 - number of the node, in order of its first rank
    node_name: str optional - its name, where places are given
    rail: Int32? >=0 - adapter of the node; missing for the links inside the node
    group_count: int64 >=1 - groups of ranks that use the link and can be compared
    slow_count: int64 >=0 - of them slower than their peers
    best_ratio: float64 0..1 - best of their bandwidths / that of their peers: a bound of what the
        link can do
    suspect: str - link, node, rail, switch or inside the node, whichever explains most slow groups;
        empty for no suspect
    alike_count: int64 >=0 - other suspects that the same groups use, so no trace tells them apart
    doubt: str - what cannot be told
""")

RANK_PLACES = table("""
    rank_places: One row per rank: the node it runs on, and where that hangs in the network.

    rank: int32 >=0 - global rank
    node: str - name of the node
    rail: Int32? >=0 - adapter of the node that the rank uses, as numbered on every node; missing if
        not recorded
    switch: str? - switch (or pod) of the node; missing if not recorded
    basis: str - host name in the trace or in the file name, or where else places come from; and
        what is doubtful
""")

COLLECTIVE_SCOPES = table("""
    collective_scopes: One row per scope and operation: matched collectives by the links they use.

    scope: str - one node, one rail, several rails, between nodes (rails are not recorded) or across
        switches
    operation: str - e.g. all-reduce
    collective_count: int64 >=1 - collectives
    group_count: int64 >=1 - different sets of ranks that run them
    size_bytes: Int64? >=0 - sum over the collectives of the mean size of their ranks; missing if
        one of them has none
    kernel_ns: int64 >=0 - duration of their kernels, summed over the ranks
    transfer_ns: int64 >=0 - of it: ranks times the shortest duration of each collective
    waiting_share: float64 0..1 - of the kernel time: the rest, waiting for the last rank
    bus_gb_per_s: Float64? >=0 - bus bandwidth over the transfer time [10^9 bytes/s]
""")

PLACE_BANDWIDTH = table("""
    place_bandwidth: One row per pair of nodes, and per node with itself: bus bandwidth of the
    collectives that both take part in.

    node: str - node that comes first
    other_node: str - node that comes later, or the same: collectives inside the node
    scope: str - inside the node or between nodes
    group_count: int64 >=1 - groups of ranks that both are in
    least_node_count: int64 >=1 - nodes of the smallest of these groups
    best_gb_per_s: float64 >=0 - bus bandwidth of the fastest of them [10^9 bytes/s]
    best_ratio: float64 0..1 - of that of the best pair of this scope
    doubt: str - why the pair itself may be faster
""")


# Tables about a compressed exchange: embedding outputs, their bounds, bytes sent, speed-up.


@dataclass(frozen=True, eq=False)
class EmbeddingOutputs:
    """Contents of the embedding exchange for one batch: by table, an array (sample, number).

    All arrays are float32, without NaN and infinity, and have one row per sample.
    """

    arrays: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        """Refuse arrays that cannot be one batch of an exchange; every misfit is named."""
        counts = [len(array) for array in self.arrays.values() if np.ndim(array) == 2]
        misfits = [
            f"table {name!r} {misfit}"
            for name, array in self.arrays.items()
            if (misfit := _misfit(array, counts[0] if counts else 0))
        ]
        if misfits or not self.arrays:
            msg = "not the embedding outputs of one batch:\n  - "
            raise TableError(msg + "\n  - ".join(misfits or ["no tables at all"]))

    @property
    def row_count(self) -> int:
        """Samples of the batch."""
        return len(next(iter(self.arrays.values())))

    def __repr__(self) -> str:
        """Describe how much was loaded of which kind."""
        size = sum(array.nbytes for array in self.arrays.values()) / 1e6
        tables = f"{len(self.arrays):,} table{'s' * (len(self.arrays) != 1)}"
        return f"EmbeddingOutputs: {tables}, {self.row_count:,} samples, {size:.3g} MB"


def _misfit(array: object, row_count: int) -> str:
    if not isinstance(array, np.ndarray):
        return f"is a {type(array).__name__}; needs a NumPy array of float32"
    if array.ndim != 2 or not array.size:
        return f"has shape {array.shape}; needs samples x numbers, at least one of each"
    if array.dtype != np.float32:
        return f"has dtype {array.dtype}, needs float32: what is sent and counted in bytes"
    if len(array) != row_count:
        return f"has {len(array):,} samples, the first table {row_count:,}"
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        where = f"row {row}, column {column} is {array[row, column]}"
        return f"has {bad.sum():,} values without a bound: {where}; find out where training broke"
    return ""


TABLE_BOUNDS = table("""
    table_bounds: One row per embedding table: the error that is allowed to each of its values.

    table: str - embedding table
    scale: float64 >=0 - root mean square of its outputs (unit: that of the outputs)
    bound_ratio: float64 0..1 - bound / scale
    bound: float64 >=0 - largest absolute error of a value (unit: that of the outputs)
""")

COMPRESSION = table("""
    compression: One row per setting of the bound, number of destinations, stage and embedding
    table, or all tables together: bytes before and after.

    setting: str - how the bound was set: one number for all tables, or by table
    destination_count: int64 >=1 - ranks that the batch is split over; each gets a block per table
    stage: category - distinct rows (lossless: each row once and an index), quantized (whole
        numbers of 8 or 16 bits), entropy (of these, without its code table: the least that a coder
        of single values can send), zstd (of these: sent and read back)
    table: str - embedding table; all for the sum over tables
    bound: float64 >=0 - largest absolute error that was allowed (unit: that of the outputs)
    row_count: int64 >=1 - rows, one per sample and table
    distinct_count: int64 >=1 - rows that differ from the others of their block, as sent
    raw_bytes: int64 >=1 - bytes of the rows as float32
    sent_bytes: float64 >=0 - bytes in their place; with sizes, headers and values sent as they are
    ratio: float64 >=0 - raw / sent bytes (unit: none)
    escaped_count: int64 >=0 - values sent as they are, since no whole number keeps the bound
    max_error: float64 >=0 - largest absolute error that occurred (unit: that of the outputs)
    doubt: str - why the ratio may be worth nothing; empty if there is no reason
""")

COMPRESSION_SPEEDUP = table("""
    compression_speedup: One row per share, ratio, link and codec: what compression does to a step.

    communication_share: float64 0..1 - of the step: exchange that is exposed and would be
        compressed
    ratio: float64 >=0 - raw / sent bytes (unit: none)
    link_gb_per_s: float64 >=0 - bandwidth of the exchange per rank [10^9 bytes/s]
    compress_gb_per_s: float64 >=0 - raw bytes that a rank compresses [10^9 bytes/s]
    decompress_gb_per_s: float64 >=0 - raw bytes that a rank decompresses [10^9 bytes/s]
    effective_ratio: float64 >=0 - time of the plain exchange / that with codec
    speedup_ratio: float64 >=0 - time of a step before / after
    break_even_gb_per_s: float64 >=0 - bandwidth above which compression makes the exchange slower
        [10^9 bytes/s]; 0 if it always does, infinite if never
    is_faster: bool - whether compression makes the step shorter
""")


# Tables of training across regions: links, workers, exchanges, losses and times to a loss.

REGION_LINKS = table("""
    region_links: One row per ordered pair of regions, a region with itself included.

    from_region: str - region that sends
    to_region: str - region that receives
    bandwidth_gbps: float64 >=0 - bandwidth of one transfer, Gbit/s
""")

REGION_WORKERS = table("""
    region_workers: One row per worker: a replica of the model with its own data.

    worker: int32 >=0 - number of the worker, from 0
    region: str - region it runs in
    speed_ratio: float64 0..1 - local steps per second over those of the fastest worker
""")


@dataclass(frozen=True, eq=False)
class Regions:
    """Links between regions and the workers in them; a plain bundle."""

    links: pd.DataFrame
    workers: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """Regions in the order of the file; the first one holds the global server by default."""
        return list(dict.fromkeys(self.links["from_region"]))

    @property
    def matrix(self) -> pd.DataFrame:
        """Bandwidth in Gbit/s, a row per sender and a column per receiver."""
        names = self.names
        keys = pd.MultiIndex.from_product([names, names])
        by_pair = self.links.set_index(["from_region", "to_region"])["bandwidth_gbps"]
        square = by_pair.reindex(keys).to_numpy().reshape(len(names), len(names))
        return pd.DataFrame(square, index=names, columns=names)

    @property
    def is_asymmetric(self) -> bool:
        """Whether some link has another bandwidth in the other direction."""
        matrix = self.matrix.to_numpy()
        return bool((matrix != matrix.T).any())

    def __repr__(self) -> str:
        """Describe the number of regions and workers, and the slowness of links between them."""
        between = self.links.loc[
            self.links["from_region"] != self.links["to_region"], "bandwidth_gbps"
        ]
        counts = {"region": len(self.names), "worker": len(self.workers)}
        text = "Regions: " + ", ".join(
            f"{n:,} {noun}{'s' * (n != 1)}" for noun, n in counts.items()
        )
        if len(between):
            text += f", {between.min():g} to {between.max():g} Gbit/s between regions"
        return text + (", links differ by direction" if self.is_asymmetric else "")


LOCAL_TRAINING_RATE = table("""
    local_training_rate: One row per scheme of training with local steps: how fast its clock is.

    scheme: category - synchronous, DiLoCo, DiLoCo dynamic, Async-Local-SGD, HALoS
    steps_per_s: float64 >=0 - local steps per second, all workers together
    total_s: float64 >=0 - time for all local steps of the job
    shortest_round_s: float64 >=0 - from one exchange to the next, fastest worker
    longest_round_s: float64 >=0 - the same, slowest worker
    compute_share: float64 0..1 - of the capacity (steps that the workers could do): used
    transfer_share: float64 0..1 - of the capacity: lost to transfers of the model
    wait_share: float64 0..1 - of the capacity: lost to waiting for slower workers
    halos_ratio: float64 >=0 - total time over that of HALoS
""")

LOCAL_TRAINING_SWEEP = table("""
    local_training_sweep: One row per scheme and value of an input that is varied.

    parameter: category - link factor (bandwidth between regions, times) or local steps
    value_ratio: float64 >=0 - value of that input
    scheme: category - scheme, as in local_training_rate
    steps_per_s: float64 >=0 - local steps per second, all workers together
    halos_ratio: float64 >=0 - total time over that of HALoS
""")

LOCAL_TRAINING_EVENTS = table("""
    local_training_events: One row per update of a server, push to the global server or merge.

    scheme: category - scheme, as in local_training_rate
    event: category - update (a server takes the local steps of a worker), push (the global server
        takes what a region did), merge (a region takes the global model)
    time_s: float64 >=0 - when it takes effect
    start_s: float64 >=0 - when the model that it started from was read
    region: category - region of the worker, or the one that pushes or merges
    worker: Int32? >=0 - worker; missing unless it is an update
    step_count: int64 >=0 - local steps that the event brings to its server
    staleness_count: Int64? >=0 - updates by others of the same server since `start_s`; missing for
        merges
""")


LOCAL_TRAINING_LOSSES = table("""
    local_training_losses: One row per evaluation of the global model of a training run.

    scheme: category - scheme, as in local_training_rate
    seed: int32 >=0 - seed of the initial model and of the data order
    step_count: int64 >=0 - local steps that the global model holds
    loss: float64 >=0 - held-out cross-entropy (unit: nats per character)
    staleness_count: float64 >=0 - mean staleness of the updates of the run
    model: category - what was trained
""")

LOCAL_TRAINING = table("""
    local_training: One row per evaluation of a training run, on the clock of some regions.

    scheme: category - scheme, as in local_training_rate
    seed: int32 >=0 - seed of the run
    step_count: int64 >=0 - local steps that the global model holds
    time_s: float64 >=0 - when the global model holds them
    loss: float64 >=0 - held-out cross-entropy (unit: nats per character)
    model: category - what was trained; the clock may be that of another model
    doubt: str - why the loss may be another one on this clock; empty if there is no reason
""")

TIME_TO_LOSS = table("""
    time_to_loss: One row per loss level and scheme: when the level is first reached, over seeds.

    loss: float64 >=0 - level of the held-out cross-entropy (unit: nats per character)
    scheme: category - scheme, as in local_training_rate
    seed_count: int64 >=0 - runs that reach the level
    run_count: int64 >=1 - runs there are
    time_s: float64? >=0 - time to the level, median of the seeds; missing if a run never does
    low_s: float64? >=0 - the same, shortest
    high_s: float64? >=0 - the same, longest
    step_count: float64? >=0 - local steps to the level, median of the seeds
    time_ratio: float64? >=0 - time over that of the reference scheme at the same seed, median
    low_time_ratio: float64? >=0 - the same, lowest
    high_time_ratio: float64? >=0 - the same, highest
    step_ratio: float64? >=0 - local steps over those of the reference scheme, median
    low_step_ratio: float64? >=0 - the same, lowest
    high_step_ratio: float64? >=0 - the same, highest
    clock_ratio: float64? >=0 - time per local step over that of the reference scheme, median
    reference: category - the reference scheme
    model: category - as in local_training
    doubt: str - as in local_training
""")
