"""Measured times of matrix products and collectives, from a package or from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims._tables import COLLECTIVE_TIMES, GEMM_TIMES
from workbench.errors import LoadError, MissingExtraError
from workbench.load._files import tables as plain
from workbench.load._files.tables import as_floats, read_csv, read_parquet, without_cut_row
from workbench.tables import QUALITY, Table

_GEMM_NAMES = {f"{letter}_count": (f"{letter}_count", letter) for letter in "mnk"}


def gemm_times(
    path: str | Path | None = None,
    *,
    gpus: Sequence[str] = ("H100", "H200"),
    dtypes: Sequence[str] | None = ("bfloat16",),
    framework: str = "vllm",
    version: str | None = None,
) -> pd.DataFrame:
    """Read measured times of matrix products.

    Parameters
    ----------
    path
        A CSV or Parquet file with ``m``, ``n``, ``k`` (or ``m_count``, ...), a time
        (``latency`` in ms, ``time_us`` or ``dur_ns``), and, where it has several, ``gpu`` and
        ``dtype``. None reads the tables of the installed package aiconfigurator-core.
    gpus
        GPUs to read from the package; for a file without a column ``gpu``, the one it was
        measured on.
    dtypes
        Element types to keep; None keeps all. For a file without ``dtype``, the one it is.
    framework
        Which of the package's measurements: ``"vllm"``, ``"sglang"`` or ``"trtllm"``. They call
        different kernels, so the times differ. vLLM's linear layers are plain cuBLAS.
    version
        Version of the framework; the newest by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.GEMM_TIMES`. ``attrs["quality"]`` has rows of
        :data:`workbench.tables.QUALITY`: what was dropped or repeats.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column, GPU, framework, version or type is missing, or a time is not a number above 0.
    MissingExtraError
        If the package is needed and not installed.

    References
    ----------
    ai-dynamo/aiconfigurator (Apache-2.0), ``systems/data/<gpu>/gemm/<framework>/<version>``;
    latencies in milliseconds.
    """
    if path is not None:
        return _own_gemms(Path(path), gpus=gpus, dtypes=dtypes)
    frames = []
    for gpu, folder in _chosen(gpus):
        file = newest(folder / "gemm" / framework, version, "gemm_perf.parquet")
        raw = plain.read(file)
        columns = {name: raw[letter] for name, (_, letter) in _GEMM_NAMES.items()}
        columns["dtype"] = raw["gemm_dtype"].astype(str)
        columns["dur_ns"] = positive_ns(raw["latency"], 1e6, file)
        frames.append(pd.DataFrame(columns).assign(gpu=gpu, source=described(file)))
    return finished(pd.concat(frames), GEMM_TIMES, dtypes=dtypes, origin=PACKAGE)


def collective_times(
    path: str | Path | None = None,
    *,
    gpus: Sequence[str] = ("H100", "H200"),
    dtypes: Sequence[str] | None = None,
    version: str | None = None,
) -> pd.DataFrame:
    """Read measured times of collectives.

    Parameters
    ----------
    path
        A file, recognised by its columns: DistCA's ``nccl_perf.csv`` and
        ``network-*.csv``, Vidur's ``all_reduce.csv``, vTrain's ``AR_GPU<n>_*_LUT``, or a CSV or
        Parquet file with ``collective``, ``rank_count``, ``size_bytes`` and a time
        (``dur_ns``, ``time_us`` or ``latency_ms``), and perhaps ``gpu``, ``dtype``,
        ``node_count``. None reads the tables of the installed package aiconfigurator-core.
    gpus
        GPUs to read from the package; for a file that does not name its GPU, the one it was
        measured on.
    dtypes
        Element types to keep; None keeps all.
    version
        Version of NCCL in the package; the newest by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.COLLECTIVE_TIMES`. ``attrs["quality"]`` has rows of
        :data:`workbench.tables.QUALITY`: what was dropped, repeats or is coarse.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the columns are none of those above, a GPU or version is missing, it is not known
        which GPU it was, or a time is not a number above 0.
    MissingExtraError
        If the package is needed and not installed.

    Notes
    -----
    Sizes are bytes as nccl-tests counts them: the larger of what a rank sends and receives.

    - aiconfigurator's ``message_size`` is a number of *elements*: its collector writes the size
      given to nccl-tests divided by 2 for ``half`` and by 1 for ``int8``. In the data, ``half``
      of N/2 elements takes as long as ``int8`` of N, and read as bytes no all-reduce of
      ``half`` would pass half of the bandwidth of ``int8``.
    - DistCA's ``network-*.csv`` count elements per GPU, so an all-gather of n ranks has n times
      as many bytes; its times have two decimals of a millisecond and hold a barrier.
    - Vidur's ``size`` is bytes; the time is the mean of the kernel.
    - vTrain's look-up tables hold nanoseconds, of which the out-of-place ones are read.

    References
    ----------
    ai-dynamo/aiconfigurator ``collector/collect_nccl.py``; NVIDIA/nccl-tests
    ``doc/PERFORMANCE.md``; hao-ai-lab/DistCA; microsoft/vidur; VIA-Research/vTrain.
    """
    if path is not None:
        return read_collectives(Path(path), gpus=gpus, dtypes=dtypes)
    frames = []
    for gpu, folder in _chosen(gpus):
        file = newest(folder / "comm" / "nccl", version, "nccl_perf.parquet")
        raw = plain.read(file)
        dtype = raw["nccl_dtype"].astype(str)
        # Its message_size counts elements, not bytes: see Notes.
        element = dtype.map({"half": 2, "int8": 1})
        if element.isna().any():
            odd = sorted(set(dtype[element.isna()]))
            msg = f"{file}: element types {odd} are not known, so sizes in bytes are not"
            raise LoadError(msg)
        frame = pd.DataFrame(
            {
                "collective": raw["op_name"].astype(str).str.replace("_", "-"),
                "dtype": dtype,
                "rank_count": raw["num_gpus"],
                "size_bytes": raw["message_size"] * element,
                "dur_ns": positive_ns(raw["latency"], 1e6, file),
            }
        ).replace({"collective": {"alltoall": "all-to-all"}})
        frames.append(frame.assign(gpu=gpu, node_count=1, source=described(file)))
    return finished(pd.concat(frames), COLLECTIVE_TIMES, dtypes=dtypes, origin=PACKAGE)


def _chosen(gpus: Sequence[str]) -> list[tuple[str, Path]]:
    folders = known_gpus()
    # A text is a sequence of its letters; without this check "H100" would ask for a GPU "H".
    odd = [gpus] if isinstance(gpus, str) or not gpus else [g for g in gpus if g not in folders]
    if odd:
        msg = f"the package has no GPU {odd}; pass some of {sorted(folders)} as a list"
        raise LoadError(msg)
    return [(gpu, folders[gpu]) for gpu in gpus]


def _own_gemms(path: Path, *, gpus: Sequence[str], dtypes: Sequence[str] | None) -> pd.DataFrame:
    raw = plain.read(path)
    plain.refuse_repeated(raw, path)
    # A last row without a line end may have lost digits of its time.
    plain.refuse_cut_row(raw, path, raw.columns)
    table: dict[str, Any] = {}
    for name, names in _GEMM_NAMES.items():
        column = next((spelling for spelling in names if spelling in raw), None)
        if column is None:
            msg = f"{path}: no column {' or '.join(names)}; it has {list(raw.columns)[:20]}"
            raise LoadError(msg)
        table[name] = plain.whole(raw[column], path, least=1)
    table["dur_ns"] = time_of(raw, path)
    table["gpu"] = one_or_column(raw, "gpu", gpus, path)
    own = next((name for name in ("dtype", "gemm_dtype") if name in raw), None)
    if own:
        table["dtype"] = raw[own].astype(str).to_numpy()
    else:
        # Without a column, the types to keep name the one type of all rows.
        table["dtype"], dtypes = one_or_column(raw, "dtype", dtypes, path), None
    frame = pd.DataFrame(table).assign(source=path.name)
    findings = [("truncated", damage, count) for damage, count in plain.left_out(path).items()]
    return finished(frame, GEMM_TIMES, dtypes=dtypes, origin=str(path), findings=findings)


_OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce")
_ELEMENT_BYTES = {"half": 2, "fp16": 2, "float16": 2, "bfloat16": 2, "float": 4, "int8": 1}
# Columns that the readers of this file take, of any of the formats.
_USED = re.compile(
    r"op|ngpu|dtype|size_bytes|t_us_out|gpu_type|world_size|nelem|latency\(ms\)|collective|"
    r"num_workers|size|devices_per_node|time_stats\.\w+\.mean|size\(B\)|type|time\(ns\)|"
    r"rank_count|node_count|gpu|dur_ns|time_us|latency_ms"
)
# DistCA's latencies have two decimals of a millisecond.
_COARSE_NS, _COARSE_STEPS = 10_000, 20


def read_collectives(
    path: Path, *, gpus: Sequence[str], dtypes: Sequence[str] | None
) -> pd.DataFrame:
    """Read one file of measured collectives; its columns tell the format."""
    raw = read_parquet(path)
    raw = read_csv(path) if raw is None else raw
    if raw.empty:
        msg = f"{path}: holds no measurements"
        raise LoadError(msg)
    columns = set(map(str, raw.columns))
    reader = next((read for needs, read in _READERS if needs <= columns), None)
    if reader is None:
        msg = f"{path}: no times of collectives are known with columns {sorted(columns)[:20]}; "
        msg += f"known: {[sorted(needs) for needs, _ in _READERS]}"
        raise LoadError(msg)
    raw, left_out = without_cut_row(raw, path, [name for name in columns if _USED.fullmatch(name)])
    frame = pd.DataFrame({"node_count": 1, **reader(raw, path)}, index=raw.index)
    if "gpu" not in frame:
        frame["gpu"] = one_or_column(raw, "gpu", gpus, path)
    findings = [("truncated", damage, count) for damage, count in left_out.items()]
    coarse = int((frame["dur_ns"] < _COARSE_NS * _COARSE_STEPS).sum()) if reader is _distca else 0
    if coarse:
        words = "times are rounded to 10 µs, which is much of a short one"
        findings.append(("noted", words, coarse))
    frame = frame.assign(source=path.name)
    return finished(frame, COLLECTIVE_TIMES, dtypes=dtypes, origin=str(path), findings=findings)


def operation(names: pd.Series, path: Path) -> pd.Series:
    letters = names.astype(str).str.lower().str.replace("[^a-z]", "", regex=True)
    spelled = letters.map({name.replace("-", ""): name for name in _OPERATIONS})
    if spelled.isna().any():
        odd = sorted(set(names[spelled.isna()].astype(str)))
        msg = f"{path}: {odd} are not known collectives; known: {list(_OPERATIONS)}"
        raise LoadError(msg)
    return spelled


def _nccl_tests(raw: pd.DataFrame, path: Path) -> dict[str, Any]:
    return {
        "collective": operation(raw["op"], path),
        "dtype": raw["dtype"].astype(str),
        "rank_count": plain.whole(raw["ngpu"], path, least=1),
        "size_bytes": plain.whole(raw["size_bytes"], path, least=1),
        "dur_ns": positive_ns(raw["t_us_out"], 1e3, path),
    }


def _distca(raw: pd.DataFrame, path: Path) -> dict[str, Any]:
    ranks, elements = (plain.whole(raw[name], path, least=1) for name in ("world_size", "nelem"))
    name, dtype = operation(raw["op"], path), raw["dtype"].astype(str)
    element_bytes = dtype.map(_ELEMENT_BYTES)
    if element_bytes.isna().any():
        odd = sorted(set(dtype[element_bytes.isna()]))
        msg = f"{path}: element types {odd} are not known; known: {list(_ELEMENT_BYTES)}"
        raise LoadError(msg)
    # Elements are those of one GPU; an all-gather receives as many from each.
    elements = elements * ranks.where(name == "all-gather", 1)
    return {
        "gpu": raw["gpu_type"].astype(str),
        "collective": name,
        "dtype": dtype,
        "rank_count": ranks,
        "size_bytes": elements * element_bytes.astype("int64"),
        "dur_ns": positive_ns(raw["latency(ms)"], 1e6, path),
    }


def _vidur(raw: pd.DataFrame, path: Path) -> dict[str, Any]:
    ranks, per_node, size = (
        plain.whole(raw[name], path, least=1)
        for name in ("num_workers", "devices_per_node", "size")
    )
    names = operation(raw["collective"], path)
    times = pd.Series(index=raw.index, dtype="int64")
    for name in names.unique():
        column = f"time_stats.{name.replace('-', '_')}.mean"
        if column not in raw:
            msg = f"{path}: no column {column!r} for {name}"
            raise LoadError(msg)
        # The column is empty in rows of other collectives, which is not an error there.
        rows = names == name
        times = times.where(~rows, positive_ns(raw[column].where(rows, 1.0), 1e6, path))
    return {
        "collective": names,
        "dtype": "half",
        "rank_count": ranks,
        "node_count": -(-ranks // per_node),
        "size_bytes": size,
        "dur_ns": times,
    }


def _vtrain(raw: pd.DataFrame, path: Path) -> dict[str, Any]:
    # The table holds sizes and times only.
    ranks = re.search(r"GPU(\d+)", path.name)
    if ranks is None or int(ranks[1]) < 2:
        msg = f"{path}: the number of ranks is stated only in the file's name, as AR_GPU8_..._LUT"
        raise LoadError(msg)
    return {
        "collective": "all-reduce",
        "dtype": raw["type"].astype(str),
        "rank_count": int(ranks[1]),
        "size_bytes": plain.whole(raw["size(B)"], path, least=1),
        "dur_ns": positive_ns(raw["time(ns)"], 1.0, path),
    }


def _own(raw: pd.DataFrame, path: Path) -> dict[str, Any]:
    counts = [name for name in ("rank_count", "size_bytes", "node_count") if name in raw]
    numbers = {name: plain.whole(raw[name], path, least=1) for name in counts}
    texts = {name: raw[name].astype(str) for name in ("dtype", "gpu") if name in raw}
    collective = operation(raw["collective"], path)
    times = time_of(raw, path)
    return {"collective": collective, "dtype": "not told", **numbers, **texts, "dur_ns": times}


Reader = Callable[[pd.DataFrame, Path], dict[str, Any]]
# Asked in this order: the own format needs least, so it comes last.
_READERS: tuple[tuple[frozenset[str], Reader], ...] = (
    (frozenset({"op", "ngpu", "dtype", "size_bytes", "t_us_out"}), _nccl_tests),
    (frozenset({"gpu_type", "world_size", "op", "nelem", "dtype", "latency(ms)"}), _distca),
    (frozenset({"collective", "num_workers", "size", "devices_per_node"}), _vidur),
    (frozenset({"size(B)", "count", "type", "time(ns)"}), _vtrain),
    (frozenset({"collective", "rank_count", "size_bytes"}), _own),
)

PACKAGE = "aiconfigurator-core"
_FOLDER = "aiconfigurator_core/systems/data"
_MISSING = (
    f"measured kernel times come with {PACKAGE}, which is not installed; "
    "pip install 'ai-infra-workbench[kernels]' (or pass a file of your own)"
)


def known_gpus() -> dict[str, Path]:
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(_MISSING) from error
    # Never imported: its import loads an engine that only its own predictions need.
    folder = Path(str(package.locate_file(_FOLDER)))
    if not folder.is_dir():
        msg = f"{PACKAGE} {package.version} has no folder {_FOLDER}; install 0.12 or a later 0.x"
        raise LoadError(msg)
    return {gpu_name(entry.name): entry for entry in sorted(folder.iterdir()) if entry.is_dir()}


def gpu_name(folder: str) -> str:
    """Call a GPU as the hardware table does: h100_sxm is the H100."""
    short = folder.removesuffix("_sxm")
    return short.upper() if re.fullmatch(r"[a-z]{1,2}\d+[a-z]?", short) else folder


def newest(folder: Path, version: str | None, file: str) -> Path:
    """Return the file of one version under a folder; the newest version if none is named."""
    entries = folder.iterdir() if folder.is_dir() else ()
    versions = sorted((entry.name for entry in entries if (entry / file).is_file()), key=_order)
    if not versions or (version is not None and version not in versions):
        msg = f"{folder}: no version {version or ''} with {file}; there are {versions or 'none'}"
        raise LoadError(msg)
    return folder / (version or versions[-1]) / file


def _order(version: str) -> list[tuple[int, str]]:
    fields = re.findall(r"\d+|[a-z]+", version)
    # A release stands above its candidates and below what was repaired after it.
    keys = [(int(text), "") if text.isdigit() else (-(text != "post"), text) for text in fields]
    return [*keys, (0, "")]


def described(file: Path) -> str:
    inside = file.as_posix().partition("aiconfigurator_core/")[2]
    return f"{PACKAGE} {metadata.version(PACKAGE)}, {inside}"


# Names of columns with times, and nanoseconds in one of their unit.
_TIMES = {"dur_ns": 1.0, "time_us": 1e3, "latency": 1e6, "latency_ms": 1e6, "latency(ms)": 1e6}


def positive_ns(values: pd.Series, per_unit: float, path: Path) -> pd.Series:
    """Return times as whole nanoseconds; raise with the row of the first not above 0."""
    numbers = as_floats(values)
    # A time that rounds to 0 ns was not measured.
    bad = ~(np.isfinite(numbers) & (np.rint(numbers * per_unit) >= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = f"{path}: column for {str(values.name)!r}: {int(bad.sum()):,} times are not a number "
        msg += f"above 0, the first is {values.iloc[[row]].tolist()[0]!r} in row {row:,}; "
        raise LoadError(msg + "leave out what was not measured")
    return pd.Series(np.rint(numbers * per_unit).astype(np.int64), index=values.index)


def time_of(raw: pd.DataFrame, path: Path) -> pd.Series:
    columns = [name for name in _TIMES if name in raw]
    if len(columns) != 1:
        msg = f"{path}: one column with times is needed, of {list(_TIMES)}; it has {columns}"
        raise LoadError(msg)
    return positive_ns(raw[columns[0]], _TIMES[columns[0]], path)


def one_or_column(
    raw: pd.DataFrame, name: str, chosen: Sequence[str] | None, path: Path
) -> str | np.ndarray:
    """Return a column of names, or the one name that the caller chose for all rows."""
    if name in raw:
        return raw[name].astype(str).to_numpy()
    if chosen is None or isinstance(chosen, str) or len(chosen) != 1:
        msg = f"{path}: does not say its {name}; pass {name}s=[...] with the one that applies"
        raise LoadError(msg)
    return chosen[0]


def finished(
    frame: pd.DataFrame,
    table: Table,
    *,
    dtypes: Sequence[str] | None,
    origin: str,
    findings: Sequence[tuple[str, str, int]] = (),
) -> pd.DataFrame:
    """Keep the types requested, and say what was dropped and what repeats."""
    frame = frame.reset_index(drop=True)
    rows = list(findings)
    if dtypes is not None:
        kept = frame["dtype"].isin(list(dtypes))
        if not kept.any():
            msg = f"{origin}: no rows of type {list(dtypes)}; it has {sorted(set(frame['dtype']))}"
            raise LoadError(msg)
        skipped = frame.loc[~kept, "dtype"].value_counts().to_dict()
        words = {name: f"type {name} not requested" for name in skipped}
        rows += [("skipped by design", words[name], int(n)) for name, n in skipped.items()]
        frame = frame[kept].reset_index(drop=True)
    # A repeat differs in time and source only.
    key = [name for name in table.columns if name not in ("dur_ns", "source")]
    if repeated := int(frame.duplicated(key).sum()):
        rows.append(("noted", "the same was measured before; analyses take the median", repeated))
    result = table.check(table.cast(frame), origin)
    quality = pd.DataFrame(rows, columns=["finding", "what", "count"])
    quality = quality.assign(source=origin, where=None)[list(QUALITY.columns)]
    # Rows, not a frame: pandas compares attributes when frames are put together.
    checked = QUALITY.check(QUALITY.cast(quality) if rows else QUALITY.empty())
    result.attrs["quality"] = checked.to_dict("records")
    return result
