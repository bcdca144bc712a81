"""The bundled demonstration of imbalance: generated data with its truth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.simulate._folder import new_folder, write, write_truth
from workbench.simulate._imbalance.document_lengths import document_lengths
from workbench.simulate._imbalance.pipeline_engine import JobShape
from workbench.simulate._imbalance.pipeline_job import pipeline_job

_JOB = JobShape(dp_ranks=8, stages=4, micro_batches=8, steps=6)
_DOCUMENTS = 12_000
_CAUSES = {"slow worker": 1.6, "last stage": 1.1, "sequence lengths": 0.08}
# As in the files of ByteDance-Seed/StragglerAnalysis, times in seconds.
_NAMES = {
    "step": "step", "dp_rank": "dp_rank", "stage": "stage", "operation": "optype",
    "sequence": "seq_id", "micro_batch": "mb_id", "chunk": "gmc", "start_ns": "start_ts",
    "dur_ns": "duration",
}  # fmt: skip
_README = """# Synthetic data on imbalance

**Nothing here was measured.** `workbench.simulate.imbalance` made every file from seed {seed}.

| file | holds |
|---|---|
| `synthetic_job.parquet` | every operation of a job of {dp_ranks} x {stages} workers in {steps} \
steps; seconds from the beginning of the job |
| `truth.csv` | what was put into the job, where, and what it costs |
| `synthetic_lengths.txt` | lengths of {documents:,} documents in tokens, one per line: short ones \
around {median_tokens:,} tokens, and {long_share:.0%} long ones up to {longest_tokens:,} |

The licence is that of the workbench (MIT).
"""


def imbalance(out: str | Path, *, seed: int) -> pd.DataFrame:
    """Write the demonstration data on imbalance, and the truth about it.

    A job of 32 workers in which one computes 1.6 times as long as the others, the last
    stage has a little more work, and micro-batches differ a little in length. And lengths
    of documents with a heavy tail.

    Parameters
    ----------
    out
        Folder to write into; made if absent, must be empty.
    seed
        Seed of all that is random. The same seed gives the same contents.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_TRUTH`, one row per cause, as written to
        ``truth.csv``: ``cause``, ``dp_rank``, ``stage``, ``size_ratio`` and
        ``slowdown_ratio``.

    Raises
    ------
    FileExistsError
        If ``out`` holds files already.
    """
    folder = new_folder(out)
    job = pipeline_job(_CAUSES, seed=seed, shape=_JOB)
    written = job.operations.rename(columns=_NAMES)
    for name in ("mb_id", "gmc"):
        written[name] = written[name].fillna(-1).astype("int16")
    for name in ("start_ts", "duration"):
        written[name] = written[name].astype("float64") / 1e9
    for name in ("dp_rank", "stage", "seq_id"):
        written[name] = written[name].astype("int16")
    packed = written.to_parquet(index=False, compression="zstd")
    write(folder / "synthetic_job.parquet", packed)
    write_truth(folder, job.truth, float_format="%.6f")
    lengths = document_lengths(_DOCUMENTS, seed=seed)
    lines = "\n".join(map(str, lengths["length_tokens"].tolist())) + "\n"
    write(folder / "synthetic_lengths.txt", lines)
    about = {**_JOB._asdict(), "documents": _DOCUMENTS, **lengths.attrs["truth"]}
    write(folder / "README.md", _README.format(**about))
    return job.truth
