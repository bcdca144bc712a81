"""Measured iteration times of training configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as _plain_table
from workbench.load._files.tables import as_floats, without_cut_row
from workbench.tables import CONFIGURATIONS, ITERATIONS

_NS_PER_MS = 1_000_000
# Name in the table -> names in the file: ours, then vTrain's.
_NEEDED = {
    "gpu_count": "# GPUs",
    "global_batch_count": "global batch",
    "micro_batch_count": "micro batch",
    "hidden": "hidden size",
    "head_count": "attention heads",
    "layer_count": "# layers",
    "sequence_tokens": "sequence length",
    "tensor_parallel": "tensor parallelism",
    "data_parallel": "data parallelism",
    "pipeline_parallel": "pipeline parallelism",
}
_TIME = {"iteration_ms": "iteration time (ms)"}
# vTrain's files know neither context nor expert parallelism, chunks or experts.
_ONE = (
    "context_parallel", "expert_parallel", "chunk_count", "expert_count", "routed_count",
    "moe_every",
)  # fmt: skip
# Of these a model may have none, or as another column.
_NONE = (
    "shared_count", "dense_first_count", "dense_ffn", "window_tokens", "full_attention_every",
    "query_rank", "latent_rank", "rotary_width", "value_width", "next_token_count",
)  # fmt: skip
_CHOICES = {
    "recompute": ("none", "selective", "full"),
    "sharding": ("none", "zero1", "fsdp", "hsdp"),
}
_FLAGS = ("is_gated", "is_tied", "is_chunked", "has_sequence_parallel", "has_flash_attention")
_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}


def iterations(
    path: str | Path, *, gpu: str = "A100", recompute: str = "full", vocabulary: int = 51_200
) -> pd.DataFrame:
    """Read how long iterations of training configurations took.

    Rows that contradict themselves are kept and say so in ``doubt``: parallelism that does
    not multiply to the number of GPUs, batches, layers or heads that do not divide, a
    configuration that was measured twice.

    Parameters
    ----------
    path
        CSV (or Parquet) file with the columns of VIA-Research/vTrain (``# GPUs``, ``global
        batch``, ..., ``iteration time (ms)``), or with the names of the table
        :data:`workbench.tables.CONFIGURATIONS` and ``iteration_ms``. Columns beyond GPUs,
        batches, hidden, heads, layers, sequence, TP, DP, PP and time may be absent.
    gpu
        Kind of GPU, where the file has no column ``gpu``; vTrain measured A100.
    recompute
        Activations computed again, where the file has no column ``recompute``. vTrain's
        files do not say; a wrong choice scales the fitted efficiency and cancels.
    vocabulary
        Tokens of the vocabulary, where the file has no column ``vocabulary_count``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ITERATIONS`, in the order of the file. ``attrs["left_out"]``
        counts a last row without a line end, whose last number may be cut.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, or a value is missing, negative, no number, or a sentinel;
        the message names file, line and column.

    References
    ----------
    vTrain, arXiv:2312.12391; VIA-Research/vTrain, ``data/``.
    """
    path = Path(path)
    frame = _plain_table.read(path)
    # vTrain's files begin with a byte-order mark, which would stick to the first name.
    frame.columns = [str(name).removeprefix("\ufeff").strip() for name in frame.columns]
    _plain_table.refuse_repeated(frame, path)
    frame = frame.rename(columns={old: new for new, old in {**_NEEDED, **_TIME}.items()})
    if missing := [
        f"{new} (or {old})" for new, old in (_NEEDED | _TIME).items() if new not in frame
    ]:
        msg = f"{path}: no column {missing}; it has {list(frame.columns)}"
        raise LoadError(msg)
    defaults: dict[str, Any] = {"gpu": gpu, "recompute": recompute, "vocabulary_count": vocabulary}
    frame, left_out = without_cut_row(frame, path, [*CONFIGURATIONS.columns, *_TIME])
    table = _table(frame, path, defaults)
    table["source"] = [f"{path.name}, line {line}" for line in range(2, len(table) + 2)]
    table["doubt"] = _doubts(table)
    if table.empty:
        return ITERATIONS.empty()
    table = ITERATIONS.cast(table)
    table.attrs["left_out"] = left_out
    return ITERATIONS.check(table, origin=str(path))


def _table(frame: pd.DataFrame, path: Path, defaults: dict[str, Any]) -> pd.DataFrame:
    columns: dict[str, Any] = {name: _whole(frame, name, path) for name in _NEEDED}
    hidden, heads = columns["hidden"], columns["head_count"]
    assumed = {
        **dict.fromkeys(_ONE, 1),
        **dict.fromkeys(_NONE, 0),
        "ffn": 4 * hidden,
        "kv_head_count": heads,
        "head_width": np.maximum(hidden // heads, 1),
        "vocabulary_count": defaults["vocabulary_count"],
    }
    for name, value in assumed.items():
        columns[name] = _whole(frame, name, path) if name in frame else value
    for name in ("gpu", "recompute", "sharding"):
        columns[name] = _texts(frame, name, path, defaults.get(name, "none"))
    for name in _FLAGS:
        columns[name] = _flags(frame, name, path, default=name == "is_tied")
    columns["model"] = frame.get("model")
    columns["dur_ns"] = np.rint(_numbers(frame, "iteration_ms", path) * _NS_PER_MS).astype(np.int64)
    table = pd.DataFrame(columns, index=frame.index)
    return table[[*CONFIGURATIONS.columns, "dur_ns"]]


def _numbers(frame: pd.DataFrame, name: str, path: Path) -> np.ndarray:
    values = as_floats(frame[name])
    _refuse(frame, name, path, good=np.isfinite(values) & (values > 0), need="a number above 0")
    return values


def _whole(frame: pd.DataFrame, name: str, path: Path) -> np.ndarray:
    least = 0 if name in _NONE else 1
    values = as_floats(frame[name])
    # From 2^53 on a float no longer holds every whole number.
    good = (values == np.floor(values)) & (values >= least) & (values < 2**53)
    _refuse(frame, name, path, good=good, need=f"a whole number from {least}")
    return values.astype(np.int64)


def _texts(frame: pd.DataFrame, name: str, path: Path, default: str) -> pd.Series:
    values = frame[name] if name in frame else pd.Series(default, index=frame.index)
    choices = _CHOICES.get(name)
    good = values.notna() if choices is None else values.isin(choices)
    need = "a name" if choices is None else f"one of {list(choices)}"
    _refuse(frame.assign(**{name: values}), name, path, good=good.to_numpy(dtype=bool), need=need)
    return values


def _flags(frame: pd.DataFrame, name: str, path: Path, *, default: bool) -> Any:
    if name not in frame:
        return default
    words = frame[name].astype(str).str.strip().str.lower()
    _refuse(frame, name, path, good=words.isin(_TRUE | _FALSE).to_numpy(), need="yes or no")
    return words.isin(_TRUE)


def _refuse(frame: pd.DataFrame, name: str, path: Path, *, good: np.ndarray, need: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        printed = {**_NEEDED, **_TIME}.get(name)
        label = f"{name} ({printed})" if printed else name
        value = frame[name].iloc[row]
        problem = "is missing" if pd.isna(value) else f"is {value!r}"
        msg = f"{path}, line {row + 2}: {label} {problem}, not {need}"
        raise LoadError(msg)


def _doubts(table: pd.DataFrame) -> list[str]:
    sizes = ["tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"]
    product = table[sizes].prod(axis=1)
    per_round = table["data_parallel"] * table["micro_batch_count"]
    twice = table.duplicated(list(CONFIGURATIONS.columns), keep=False)
    left = table["global_batch_count"] % per_round
    rules = {
        "TP x CP x PP x DP is not the number of GPUs": product != table["gpu_count"],
        "global batch does not divide by DP x micro-batch": left != 0,
        "layers do not divide by PP": table["layer_count"] % table["pipeline_parallel"] != 0,
        "heads do not divide by TP": table["head_count"] % table["tensor_parallel"] != 0,
        "measured more than once": twice,
    }
    flags = np.column_stack([np.asarray(broken, dtype=bool) for broken in rules.values()])
    return ["; ".join(word for word, on in zip(rules, row, strict=True) if on) for row in flags]
