"""Claims about operators replayed alone, and about graphs written as Chakra files.

The counts on the printed side are taken from the files by a generic JSON parser and a walk up
the callers, without the loaders; a file that was written and read again must differ in 0 rows.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from workbench import load
from workbench.fidelity._registry import Reading, claim
from workbench.tables import DEPENDENCIES, NODES, Trace

# Operators of PyTorch that compute nothing, so that there is nothing to time.
_NO_COMPUTE = {"aten::record_stream", "aten::set_"}


@claim(
    noun="operator_benchmarks",
    name="operators that can be replayed, one process",
    source="the file itself, counted by a generic JSON parser",
    needs=("kineto-resnet",),
)
def one_process(folder: Path) -> Iterator[Reading]:
    """Compare the operators of every file, and those of PyTorch among them."""
    for path in sorted(folder.rglob("*_et.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        name = path.relative_to(folder).as_posix()
        yield from _compare(name, [document], load.operator_calls(path))


@claim(
    noun="operator_benchmarks",
    name="operators that can be replayed, the 8 ranks of DLRM",
    source="the files themselves, counted by a generic JSON parser",
    needs=("kineto-dlrm-8rank",),
)
def dlrm(folder: Path) -> Iterator[Reading]:
    """Compare the operators of all ranks, and those of PyTorch among them."""
    path = folder / "dlrm_pytorch_et.tar.gz"
    with tarfile.open(path) as archive:
        members = [entry for entry in archive if entry.isfile() and entry.name.endswith(".json")]
        files = [archive.extractfile(entry) for entry in members]
        documents = [json.load(file) for file in files if file is not None]
    yield from _compare("DLRM", documents, load.operator_calls(path))


@claim(
    noun="operator_benchmarks",
    name="graphs written as Chakra and read again",
    source="the rows before writing; not one may differ",
    needs=("kineto-resnet", "kineto-dlrm-8rank", "chakra-et"),
)
def round_trip(resnet: Path, dlrm_folder: Path, chakra: Path) -> Iterator[Reading]:
    """Compare nodes and dependencies of every sample with what a written copy gives back."""
    files = {
        "linear": resnet / "linear_et.json.gz",
        "ResNet": resnet / "resnet_et.json.gz",
        "DLRM, 8 ranks": dlrm_folder / "dlrm_pytorch_et.tar.gz",
        "Chakra's own sample": chakra / "feeder_tests_trace.tar.gz",
    }
    for name, file in files.items():
        trace = load.traces(file, progress=False)
        # Chakra's sample has dependencies on nodes that it lacks; they are kept as they are.
        again = _written(trace, allow_stuck=name.startswith("Chakra"))
        for part, table in (("nodes", NODES), ("dependencies", DEPENDENCIES)):
            before, after = getattr(trace, part), getattr(again, part)
            yield Reading(f"{name}, {part}", len(before), len(after), unit="")
            different = _different(table.cast(before), table.cast(after))
            yield Reading(f"{name}, {part} that differ", 0, different, unit="")


def _compare(name: str, documents: list[dict[str, Any]], calls: pd.DataFrame) -> Iterator[Reading]:
    printed: Counter[str] = Counter()
    for document in documents:
        printed.update(_outermost(document["nodes"]))
    replayed = sum(
        count
        for operator, count in printed.items()
        if operator.startswith("aten::") and operator not in _NO_COMPUTE
    )
    here = int(calls["is_replayed"].sum())
    total = sum(printed.values())
    yield Reading(f"{name}, operators", total, len(calls), unit="")
    yield Reading(f"{name}, replayable", replayed, here, unit="")
    yield Reading(
        f"{name}, replayable share", replayed / total, here / len(calls), unit="", tolerance=1e-12
    )


def _outermost(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """Name the operators that no other operator calls."""
    callers = {node["id"]: node.get("ctrl_deps", node.get("parent")) for node in nodes}
    is_operator = {node["id"]: _is_operator(node) for node in nodes}
    for node in nodes:
        above: int | None = callers[node["id"]]
        while above in callers and not is_operator[above] and callers[above] != above:
            above = callers[above]
        if is_operator[node["id"]] and not is_operator.get(above, False):
            yield node["name"]


def _is_operator(node: dict[str, Any]) -> bool:
    listed = {entry["name"]: entry["value"] for entry in node.get("attrs", [])}
    schema = listed.get("op_schema", node.get("op_schema"))
    return bool(schema) or node["name"].startswith(("record_param_comms", "nccl:"))


def _written(trace: Trace, *, allow_stuck: bool) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        load.write_chakra(trace, Path(folder, "copy"), allow_stuck=allow_stuck)
        return load.traces(folder, progress=False)


def _different(before: pd.DataFrame, after: pd.DataFrame) -> int:
    """Count the rows that are not the same; all if there are not as many."""
    if len(before) != len(after):
        return max(len(before), len(after))
    pairs = [before[name].astype(object).where(before[name].notna(), None) for name in before]
    others = [after[name].astype(object).where(after[name].notna(), None) for name in after]
    same = pd.concat([a == b for a, b in zip(pairs, others, strict=True)], axis=1)
    missing = pd.concat([a.isna() & b.isna() for a, b in zip(pairs, others, strict=True)], axis=1)
    return int((~(same | missing).all(axis=1)).sum())
