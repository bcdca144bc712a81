"""Tables of training across regions: links, workers, exchanges, losses and times to a loss."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table

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

STALENESS = table("""
    staleness: One row per scheme, kind of exchange and who exchanges: how old models are.

    scheme: category - scheme, as in local_training_rate
    event: category - update of a worker or push of a region
    region: category - region
    worker: Int32? >=0 - worker; missing for pushes
    event_count: int64 >=1 - exchanges counted
    low_count: float64 >=0 - updates by others meanwhile, 5th percentile
    median_count: float64 >=0 - the same, median
    high_count: float64 >=0 - the same, 95th percentile
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
