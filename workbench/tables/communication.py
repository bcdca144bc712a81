"""Tables about communication at scale: networks, collectives, start-up, padding, links."""

from __future__ import annotations

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
    basis: str - topology file, host name in the trace, or host name in the file name; and what is
        doubtful
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

FAULT_CHECKLIST = table("""
    fault_checklist: One row per kind of fault: whether a flight-recorder dump alone can show it,
    and whether these dumps do.

    kind: str - kind of fault
    scope: str - rank, job or slow
    visible: str - in a dump alone: yes, in part or no
    reasons: str - reasons of `flight_suspects` that stand for it, ;-separated
    needs: str - what tells more, e.g. the kernel log; empty if nothing else is needed
    verdict: str - found, possible (a reason fits this kind and others), not found, cannot be seen,
        or not asked (no dumps)
    ranks: str - suspected ranks, comma separated
""")
