"""The bundled demonstration of imbalance: generated data with its truth."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from data.make._folder import new_folder, write, write_truth
from data.make._imbalance.pipeline_job import JobShape, pipeline_job
from workbench.errors import WorkbenchError
from workbench.tables import DOCUMENT_LENGTHS, EMBEDDING_TABLES

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

**Nothing here was measured.** `data.make.imbalance` made every file from seed {seed}.

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
        Table :data:`data.make.JOB_TRUTH`, one row per cause, as written to ``truth.csv``:
        ``cause``, ``dp_rank``, ``stage``, ``size_ratio`` and ``slowdown_ratio``.

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
    # Seconds, as in the published files, so that both are read alike.
    for name in ("start_ts", "duration"):
        written[name] = written[name].astype("float64") / 1e9
    for name in ("dp_rank", "stage", "seq_id"):
        written[name] = written[name].astype("int16")
    write(folder / "synthetic_job.parquet", _marked(written))
    write_truth(folder, job.truth, float_format="%.6f")
    lengths = document_lengths(_DOCUMENTS, seed=seed)
    lines = "\n".join(["# synthetic", *map(str, lengths["length_tokens"].tolist())]) + "\n"
    write(folder / "synthetic_lengths.txt", lines)
    about = {**_JOB._asdict(), "documents": _DOCUMENTS, **lengths.attrs["truth"]}
    write(folder / "README.md", _README.format(**about))
    return job.truth


def _marked(table: pd.DataFrame) -> bytes:
    """Write a table as Parquet, with the mark that it was simulated in its metadata."""
    content = pa.Table.from_pandas(table, preserve_index=False)
    metadata = {**(content.schema.metadata or {}), b"synthetic": b"true"}
    buffer = io.BytesIO()
    pq.write_table(content.replace_schema_metadata(metadata), buffer, compression="zstd")
    return buffer.getvalue()


def document_lengths(
    count: int = 20_000,
    *,
    seed: int = 0,
    median_tokens: int = 3_000,
    long_share: float = 0.02,
    longest_tokens: int = 128 * 1024,
) -> pd.DataFrame:
    """Draw lengths of documents from a mixture with a heavy tail.

    Parameters
    ----------
    count
        Documents to draw.
    seed
        The same seed gives the same lengths.
    median_tokens
        Median of the short ones, which are lognormal with a deviation of 0.6.
    long_share
        Share of long ones, log-uniform from four times the median to the longest.
    longest_tokens
        No document is longer.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`: ``length_tokens``. ``attrs["truth"]``
        holds the arguments. Nothing in it was measured.

    Raises
    ------
    WorkbenchError
        If an argument is impossible.

    Examples
    --------
    >>> int(document_lengths(1000, seed=1)["length_tokens"].max()) <= 128 * 1024
    True
    """
    if count < 1 or not 0 <= long_share <= 1 or not 1 <= 4 * median_tokens < longest_tokens:
        msg = (
            f"cannot draw {count:,} documents with long_share {long_share}: it lies between 0 and "
            f"1, and longest_tokens ({longest_tokens:,}) above four medians ({median_tokens:,})"
        )
        raise WorkbenchError(msg)
    rng = np.random.default_rng(seed)
    short = rng.lognormal(np.log(median_tokens), 0.6, count)
    tail = np.exp(rng.uniform(np.log(4 * median_tokens), np.log(longest_tokens), count))
    drawn = np.where(rng.random(count) < long_share, tail, short)
    lengths = np.clip(np.rint(drawn), 1, longest_tokens).astype(np.int64)
    table = pd.DataFrame({"length_tokens": lengths})
    table.attrs["truth"] = {
        "seed": seed,
        "median_tokens": median_tokens,
        "long_share": long_share,
        "longest_tokens": longest_tokens,
    }
    return DOCUMENT_LENGTHS.check(table)


_ROWS = (1e3, 4e7)
_DIMS = {32: 0.10, 64: 0.35, 96: 0.20, 128: 0.30, 256: 0.05}
_POOLING_LOG_MEAN, _POOLING_LOG_SD, _POOLING = 1.3, 1.4, (1.0, 200.0)
_ELEMENT_BYTES = 4


def embedding_tables(count: int = 788, *, seed: int = 0) -> pd.DataFrame:
    """Draw the embedding tables of a large recommendation model.

    The sizes are invented, in the range that large models have; the default number of
    tables is that of a published batch of look-ups.

    Parameters
    ----------
    count
        Number of tables.
    seed
        Seed of the draw; the same seed gives the same tables.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EMBEDDING_TABLES`: ``table``, ``row_count``,
        ``dim_count``, ``pooling_ratio``, ``element_bytes``. ``attrs["synthetic"]`` is true
        and ``attrs["source"]`` names the distribution.

    Raises
    ------
    WorkbenchError
        If ``count`` is below 1.

    Notes
    -----
    Rows: log-uniform from 1,000 to 40 million. Dimension: 32, 64, 96, 128, 256 with
    probability 0.10, 0.35, 0.20, 0.30, 0.05. Look-ups per sample: log-normal with mean 1.3
    and standard deviation 1.4 of the logarithm, from 1 to 200. Elements: 4 bytes.

    References
    ----------
    Number of tables: facebookresearch/dlrm_datasets, embedding_bag/2022 (788 tables).

    Examples
    --------
    >>> tables = embedding_tables()
    >>> len(tables), int(tables["dim_count"].max())
    (788, 256)
    """
    if count < 1:
        msg = f"count must be 1 or more, not {count}"
        raise WorkbenchError(msg)
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.uniform(np.log(_ROWS[0]), np.log(_ROWS[1]), count)).astype(np.int64)
    dims = rng.choice(list(_DIMS), count, p=list(_DIMS.values())).astype(np.int64)
    pooling = rng.lognormal(_POOLING_LOG_MEAN, _POOLING_LOG_SD, count).clip(*_POOLING)
    # Padded, so that names sort like their numbers.
    width = max(len(str(count - 1)), 3)
    tables = pd.DataFrame(
        {
            "table": [f"table_{number:0{width}}" for number in range(count)],
            "row_count": rows,
            "dim_count": dims,
            "pooling_ratio": pooling,
            "element_bytes": np.full(count, _ELEMENT_BYTES, dtype=np.int64),
        }
    )
    tables.attrs["synthetic"] = True
    tables.attrs["source"] = f"data.make.embedding_tables, {count} tables, seed {seed}"
    return EMBEDDING_TABLES.check(tables)
