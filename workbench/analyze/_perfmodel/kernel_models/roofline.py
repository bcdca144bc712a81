"""Distance of each operator from the peaks of its GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, Ints, Nest, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.analyze._perfmodel.kernel_models.hardware import hardware
from workbench.analyze._perfmodel.kernel_models.matrix_products import matrix_peaks, printed_peaks
from workbench.analyze._perfmodel.kernel_models.operator_work import (
    OperatorWork,
    family_of,
    operator_work,
)
from workbench.errors import WorkbenchError
from workbench.tables import DEVICES, MATRIX_PEAKS, ROOFLINE

# Names that drivers give the modules whose peaks are known. A PCIe card of the same chip is slower.
_GPU_OF = {
    "V100": r"Tesla V100-SXM2-\d+GB", "A100": r"(NVIDIA )?A100-SXM4-80GB",
    # One PCI device, 20B0, in NVIDIA's list of supported GPUs (open-gpu-kernel-modules, README).
    "A100-40GB": r"(NVIDIA )?A100-(SXM4-40GB|PG509-200)",
    "H100": r"NVIDIA H100 80GB HBM3", "H200": r"NVIDIA H200", "B200": r"NVIDIA B200",
    "GB200": r"NVIDIA GB200", "MI300X": r"AMD Instinct MI300X( OAM)?",
}  # fmt: skip
# Matrix units compute float32 in this shorter type where PyTorch allows it; kernels say so.
_TF32 = re.compile(r"tf32|s1688(?!\d)|s161616|xf32", re.IGNORECASE)
_COUNTED = ("matrix product", "convolution", "attention")
# A roof reached to within this is no contradiction: clocks and data sheets are not that exact.
_ABOVE = 1.02
_COLUMNS = ("name", "category", "process", "thread", "launch", "external_id", "correlation")
_INPUTS = ("input_shapes", "input_types", "input_strides", "input_values")
_KEYS = ("name", "input_shapes", "input_types")
_NO_GPU = f"no peaks of its GPU are known, only of {', '.join(_GPU_OF)}; pass peaks="
_OUTER = "counted in the operators inside"
_FASTER = {
    "memory": "faster than the memory: its data may stay in a cache",
    "compute": "faster than the peak: the type, the peak or the counted operations are wrong",
}


@per_rank
def roofline(
    events: pd.DataFrame,
    *,
    devices: pd.DataFrame | None = None,
    peaks: pd.DataFrame | None = None,
    peak_share: float = 1.0,
    by_caller: bool = False,
) -> pd.DataFrame:
    """Compare each operator, by the shapes of its inputs, with the roof of its GPU.

    GPU work is credited to the innermost operator around its launch, so that an operator inside
    another counts once, and its time is that of the kernels, not of the call.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, recorded with ``record_shapes=True``; without, there
        are times only.
    devices
        Table :data:`workbench.tables.DEVICES`, as ``load.traces(...).devices`` holds it: tells
        which peaks of data sheets hold. Of another GPU there are speeds, and no roof.
    peaks
        Table :data:`workbench.tables.MATRIX_PEAKS`, one row per type of one GPU, in place of those.
    peak_share
        Part of the peaks of matrix units that counts as reachable, above 0 up to 1.
    by_caller
        Keep calls from different places apart, in column ``operators_around``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROOFLINE`, longest time first within each rank. Its
        ``kernel_ns`` adds up to the durations of all GPU work.

    Raises
    ------
    WorkbenchError
        If there is no GPU work, peaks are of several GPUs, or the share is out of range.

    Notes
    -----
    The shortest time is ``max(operations / peak, bytes / bandwidth)``, the share of the roof is
    that over the measured time. Operations: ``2 m n k`` of a matrix product (bias left out), ``2 N
    H W k`` per weight of a convolution, ``2 (d + d_v)`` per pair of query and key of attention,
    where a causal mask leaves n (n + 1) / 2 pairs, and ``2 (3 d + 2 d_v)`` backwards with scores
    computed again. Bytes: inputs and results, each once. An operator without a closed form, or
    whose inputs do not state it, has none, and the note says why. Kernels that run at the same
    time slow each other; their durations are added all the same.

    References
    ----------
    Williams, Waterman, Patterson (2009), Roofline: an insightful visual performance model,
    doi.org/10.1145/1498765.1498785.
    """
    work = arrays.required(arrays.gpu_work(events, *_COLUMNS), events, "roofline")
    if not 0 < peak_share <= 1:
        msg = f"peak_share must be above 0 and at most 1, not {peak_share!r}"
        raise WorkbenchError(msg)
    limits = _limits(work.rank, devices, peaks)
    limits["peak_flop_per_s"] *= peak_share
    calls = _calls(events, arrays.nest(events, work), by_caller=by_caller)
    table = _with_roofs(_summed(events, work, calls), limits)
    columns = [name for name in ROOFLINE.columns if name in table]
    table = table.sort_values(["rank", "kernel_ns"], ascending=[True, False], kind="stable")
    return ROOFLINE.of(table[columns].reset_index(drop=True))


# ---- which peaks hold ----


def _limits(rank: Ints, devices: pd.DataFrame | None, peaks: pd.DataFrame | None) -> pd.DataFrame:
    """Return the peaks by rank and type."""
    ranks = np.unique(rank)
    if peaks is not None:
        MATRIX_PEAKS.check(peaks)
        if peaks.empty or peaks["gpu"].nunique() > 1 or peaks["dtype"].duplicated().any():
            gpus = ", ".join(sorted(set(peaks["gpu"])))
            msg = f"peaks must be of one GPU, a row per type; these are of {gpus or 'none'}"
            raise WorkbenchError(msg)
        return peaks.merge(pd.DataFrame({"rank": ranks}), how="cross")
    names = {} if devices is None else _names(DEVICES.check(devices))
    of_rank = [(number, _gpu(names.get(int(number), set()))) for number in ranks]
    return pd.DataFrame(of_rank, columns=["rank", "gpu"]).merge(_known_peaks(), on="gpu")


def _names(devices: pd.DataFrame) -> dict[int, set[str]]:
    return {int(str(rank)): set(names) for rank, names in devices.groupby("rank")["name"]}


def _gpu(names: set[str]) -> str | None:
    for gpu, pattern in _GPU_OF.items():
        if names and all(re.fullmatch(pattern, name) for name in names):
            return gpu
    return None


@cache
def _known_peaks() -> pd.DataFrame:
    halves = hardware().assign(dtype="float16", element_bytes=2)
    halves = halves.rename(columns={"fp16_flop_per_s": "peak_flop_per_s"})
    rows = [matrix_peaks(), halves[list(MATRIX_PEAKS.columns)], printed_peaks("roofline_peaks")]
    return MATRIX_PEAKS.of(pd.concat(rows, ignore_index=True))


# ---- which operator started what ----


class _Calls(NamedTuple):
    """Operators that started GPU work, as positions in ``keys``; MISSING for work without one."""

    of_work: Ints
    keys: pd.DataFrame


def _calls(events: pd.DataFrame, tree: Nest, *, by_caller: bool) -> _Calls:
    used = np.unique(tree.starter[tree.starter != MISSING])
    row = tree.row[used]
    code = arrays.codes(events["name"])
    names = events["name"].cat.categories
    keys = pd.DataFrame({"name": code[row].astype(np.int64)})
    for name in _INPUTS:
        keys[name] = arrays.codes(events[name])[row] if name in events else MISSING
    keys["is_outer"] = _is_outer(tree, used, [family_of(str(name)) for name in names[code[row]]])
    if by_caller:
        keys["caller"] = _callers(events, tree, used)
    position = np.full(len(tree.row) + 1, MISSING)
    position[used] = np.arange(len(used))
    return _Calls(position[tree.starter], keys)


def _is_outer(tree: Nest, used: Ints, families: Sequence[str]) -> NDArray[np.bool_]:
    """Return which operators are around another one of their kind that started GPU work, too."""
    # Attention and convolutions may be computed by matrix products inside.
    alike = [_COUNTED[0] if family in _COUNTED else family for family in families]
    of_call, is_outer = np.array(alike, dtype=object), np.zeros(len(used), np.bool_)
    for family in set(alike) - {"unknown"}:
        above = np.unique(tree.parent[used[of_call == family]])
        while len(above := above[above != MISSING]):
            is_outer |= np.isin(used, above) & (of_call == family)
            above = np.unique(tree.parent[above])
    return is_outer


def _callers(events: pd.DataFrame, tree: Nest, used: Ints) -> list[str]:
    names = events["name"].cat.categories[arrays.codes(events["name"])[tree.row]]
    paths = {MISSING: ""}
    # A caller stands before what it calls.
    for operator, above in enumerate(tree.parent.tolist()):
        paths[operator] = f"{paths[above]} > {names[operator]}" if paths[above] else names[operator]
    return [paths[above] for above in tree.parent[used].tolist()]


def _summed(events: pd.DataFrame, work: Work, calls: _Calls) -> pd.DataFrame:
    """Add up time and work by rank, operator, shapes and types."""
    keys = calls.keys
    caller, callers = pd.factorize(keys["caller"]) if "caller" in keys else (0 * keys["name"], [""])
    kernel = arrays.codes(events["name"])[work.row].astype(np.int64)
    talks = (work.kind == KINDS.index("communication")).astype(np.int64)
    of_call = [np.append(column, MISSING)[calls.of_work].astype(np.int64)
               for column in (*(keys[name] for name in _KEYS), caller)]  # fmt: skip
    groups = arrays.grouped(work.rank, *of_call, talks)
    rank, name, shapes, types, around, is_talk = groups.keys
    total = groups.total(work.end - work.start)
    per_rank = arrays.grouped(rank)
    table = pd.DataFrame(
        {
            "rank": rank,
            "name": arrays.relabelled(name, events["name"]),
            "shapes": _relabelled(shapes, events, "input_shapes"),
            "types": _relabelled(types, events, "input_types"),
            "kernel_count": groups.sizes(),
            "kernel_ns": total,
            "time_share": arrays.shares(total, per_rank.total(total)[per_rank.number]),
            "kernel": _longest(groups.number, kernel, work, events),
        }
    )
    if "caller" in keys:
        table["operators_around"] = arrays.texts(around, list(callers)).fillna("")
    is_tf32 = _is_tf32(events)[kernel]
    table["is_tf32"] = np.bincount(groups.number, weights=is_tf32, minlength=len(table)) > 0
    table = table.join(_work_of_groups(groups.number, calls, _described(events, keys)))
    table["call_count"] = table["call_count"].fillna(0)
    table["family"] = table["family"].fillna("unknown")
    table["note"] = table["note"].fillna("no operator around its launch")
    talking = is_talk > 0
    table.loc[talking, "family"] = "communication"
    table.loc[talking, "note"] = "bound by links, not by the peaks of the GPU"
    table.loc[talking, ["flop_count", "moved_bytes"]] = np.nan
    return table


def _relabelled(codes: Ints, events: pd.DataFrame, column: str) -> pd.Series:
    if column in events:
        return arrays.relabelled(codes, events[column])
    return pd.Series(arrays.labelled(codes, []))


def _longest(group: Ints, kernel: Ints, work: Work, events: pd.DataFrame) -> list[str]:
    """Name the GPU work that takes longest in each group."""
    pairs = arrays.grouped(group, kernel)
    of_group, of_kernel = pairs.keys
    order = np.lexsort((-pairs.total(work.end - work.start), of_group))
    first = order[np.unique(of_group[order], return_index=True)[1]]
    return [str(name) for name in events["name"].cat.categories[of_kernel[first]]]


def _is_tf32(events: pd.DataFrame) -> NDArray[np.bool_]:
    return np.array([bool(_TF32.search(name)) for name in events["name"].cat.categories], bool)


def _described(events: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """Return for each call what it must do; calls with equal inputs are computed once."""
    columns = ["name", *_INPUTS, "is_outer"]
    number = keys.groupby(columns, sort=False).ngroup()
    distinct = keys[columns].drop_duplicates()
    texts = [
        [None if code == MISSING else str(events[name].cat.categories[code]) for code in codes]
        for name, codes in distinct[columns[:-1]].items()
    ]
    rows = []
    for is_outer, *inputs in zip(distinct["is_outer"], *texts, strict=True):
        found = operator_work(*inputs)
        # The work is that of the operators inside; what this one starts besides is extra.
        outer = is_outer and found.flop_count is not None
        rows.append(
            found._replace(flop_count=None, moved_bytes=None, note=_OUTER) if outer else found
        )
    described = pd.DataFrame(rows, columns=[*OperatorWork._fields])
    numbers = ["flop_count", "moved_bytes"]
    described[numbers] = described[numbers].astype("float64")
    return described.iloc[number].reset_index(drop=True)


def _work_of_groups(group: Ints, calls: _Calls, described: pd.DataFrame) -> pd.DataFrame:
    pairs = pd.DataFrame({"group": group, "call": calls.of_work})
    pairs = pairs[pairs["call"] != MISSING].drop_duplicates()
    pairs = pairs.join(described, on="call")
    by = pairs.groupby("group")
    # One call whose work cannot be told makes the sum unknown.
    table = by.agg({"family": "first", "dtype": "first", "note": "max"})
    table["call_count"] = by.size()
    for column in ("flop_count", "moved_bytes"):
        table[column] = by[column].sum().where(by[column].count() == by.size())
    return table


# ---- what the peaks allow ----


def _with_roofs(table: pd.DataFrame, limits: pd.DataFrame) -> pd.DataFrame:
    table["dtype"] = table["dtype"].mask(
        table["is_tf32"] & (table["dtype"] == "float32") & table["family"].isin(_COUNTED), "tf32"
    )
    peaks = limits.set_index(["rank", "dtype"])["peak_flop_per_s"]
    of_row = pd.MultiIndex.from_frame(table[["rank", "dtype"]].astype({"dtype": object}))
    table["peak_flop_per_s"] = peaks.reindex(of_row).to_numpy()
    memory = limits.groupby("rank")["memory_bytes_per_s"].max()
    table["memory_bytes_per_s"] = memory.reindex(table["rank"]).to_numpy()
    seconds = table["kernel_ns"].replace(0, np.nan) / 1e9
    flop_count, moved = table["flop_count"], table["moved_bytes"]
    table["flop_per_s"], table["bytes_per_s"] = flop_count / seconds, moved / seconds
    table["intensity_flop_per_byte"] = flop_count / moved.replace(0, np.nan)
    moving = 1e9 * moved / table["memory_bytes_per_s"]
    # Without matrix units there is a lower bound of operations only, which binds nothing.
    counted = table["family"].isin(_COUNTED)
    computing = (1e9 * flop_count / table["peak_flop_per_s"]).where(counted, 0.0)
    roof = computing.where(computing > moving, moving).where(computing.notna() & moving.notna())
    bound = pd.Series(np.where(computing > moving, "compute", "memory"), index=table.index)
    table["bound"], table["roof_ns"] = bound.where(roof.notna()), roof
    table["roof_ratio"] = roof / (1e9 * seconds)
    table["gain_ns"] = (table["kernel_ns"] - roof).clip(lower=0)
    has_gpu = table["memory_bytes_per_s"].notna()
    table.loc[~has_gpu & flop_count.notna(), "note"] = _NO_GPU
    no_peak = counted & has_gpu & table["peak_flop_per_s"].isna() & flop_count.notna()
    table.loc[no_peak, "note"] = "no peak is known for " + table["dtype"].astype(object)
    above = table["roof_ratio"] > _ABOVE
    table["is_sure"] = ~above
    table.loc[above, "note"] = table.loc[above, "bound"].map(_FASTER)
    table["note"] = table["note"].replace("", None)
    for column in ("family", "bound"):
        table[column] = table[column].astype("category")
    return table
