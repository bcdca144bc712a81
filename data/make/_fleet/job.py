"""A small training job that exists in all telemetry at once, with known faults."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from data.make._fleet.engine import History, run
from data.make._fleet.kineto import trace_text
from data.make._fleet.power import (
    Readings,
    node_text,
    nvidia_smi_text,
    sample,
    sample_spare,
)
from data.make._fleet.program import FAULTS, MILLISECOND, plan
from data.make._fleet.truth import (
    kernel_log,
    readme_text,
    sacct_text,
    step_log,
    truth_table,
)
from data.make._folder import new_folder, read_truth, write, write_truth
from data.make._truth import FLEET_TRUTH

_POWER_PERIOD_NS = 500 * MILLISECOND


def fleet(
    out: str | Path,
    *,
    seed: int,
    ranks: int = 8,
    gpus_per_node: int = 4,
    steps: int = 6,
    faults: Collection[str] = FAULTS,
) -> pd.DataFrame:
    """Write the telemetry of a simulated training job, and the truth about it.

    One simulation on one clock is the source of everything: every rank runs the same steps, early
    ranks wait inside their collectives for the last one, power follows what the GPU does, a node
    fails and the job goes on from its last checkpoint. An analysis that is right finds what was
    injected; the same seed without a fault is the same job but for that fault.

    Parameters
    ----------
    out
        Folder to write into; made if absent, must be empty.
    seed
        Seed of all that is random. The same seed gives the same files.
    ranks
        GPUs of the job.
    gpus_per_node
        GPUs of a node; divides ``ranks``.
    steps
        Training steps in the traces. The job itself is about 100 steps longer.
    faults
        What to inject: any of ``"slow rank"``, ``"late host"``, ``"power cap"``,
        ``"failing node"``; ``()`` for a healthy job.

    Returns
    -------
    pandas.DataFrame
        Table :data:`data.make.FLEET_TRUTH`, one row per injected fault, as
        written to ``truth.csv``.

    Raises
    ------
    FileExistsError
        If ``out`` holds files already.
    ValueError
        If there are fewer than 2 ranks, ``gpus_per_node`` does not divide them,
        no step is to be traced, or a fault is unknown.

    Notes
    -----
    Written are ``traces/`` (Kineto, one file per rank), ``power/`` (nvidia-smi and
    AC meter, per node), ``failures/`` (kernel log per node, Slurm accounting),
    ``steps.jsonl`` and ``truth.csv``. All times are UTC. A collective on a rank
    starts when the rank gets there and ends, on all members of its group, when
    the last of them has come and the data have moved: with *B* bytes over *n*
    ranks, ``B (n-1)/n`` over the bus bandwidth plus a constant. A capped GPU
    computes at the clock *f* at which ``idle + dynamic (f/f0)**2.4`` meets the cap.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> truth = fleet(folder, seed=7, ranks=2, gpus_per_node=2, steps=1, faults=["slow rank"])
    >>> truth[["what", "size", "unit"]].to_dict("records")
    [{'what': 'slow rank', 'size': 1.25, 'unit': 'x (compute time)'}]
    """
    job = plan(seed=seed, ranks=ranks, gpus_per_node=gpus_per_node, steps=steps, faults=faults)
    folder = new_folder(out)
    history = run(job)
    truth = truth_table(history)
    for rank in range(ranks):
        name = f"traces/synthetic_rank_{rank}.pt.trace.json.gz"
        write(folder / name, trace_text(history, rank))
    for node, readings in _all_readings(history).items():
        write(folder / f"power/synthetic_{node}_nvidia_smi.csv", nvidia_smi_text(readings))
        write(folder / f"power/synthetic_{node}_ac.txt", node_text(job, node, readings))
        write(folder / f"failures/synthetic_{node}_kernel.log", kernel_log(history, node))
    write(folder / "failures/synthetic_sacct.txt", sacct_text(history))
    write(folder / "steps.jsonl", step_log(history))
    write(folder / "README.md", readme_text(job))
    write_truth(folder, truth)
    return truth


def fleet_truth(folder: str | Path) -> pd.DataFrame:
    """Read what was injected into a job that :func:`fleet` wrote.

    Parameters
    ----------
    folder
        Folder that was given to :func:`fleet`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`data.make.FLEET_TRUTH`, one row per injected fault.

    Raises
    ------
    LoadError
        If the folder has no ``truth.csv``.

    Examples
    --------
    >>> from workbench import datasets
    >>> truth = fleet_truth(datasets.path("fleet-demo"))
    >>> truth["what"].unique().tolist()
    ['slow rank', 'late host', 'power cap', 'failing node', 'job restart']
    """
    return read_truth(folder, FLEET_TRUTH, writer="fleet")


def _all_readings(history: History) -> dict[str, dict[int, Readings]]:
    """Sample every GPU of every node, the spare included."""
    job = history.job
    period = {"period_ns": _POWER_PERIOD_NS}
    readings = {
        node: {
            rank % job.gpus_per_node: sample(history, rank, **period)
            for rank in job.ranks_of(node, 1)
        }
        for node in job.nodes[:-1]
    }
    spare = range(job.gpus_per_node)
    readings[job.nodes[-1]] = {device: sample_spare(history, device, **period) for device in spare}
    return readings
