"""Claims about execution traces: as many nodes, of the same types, as the files state.

The counts on the printed side are taken from the files by other means than the loaders:
a walk over the protobuf wire format, or a generic JSON parser.
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

# mlcommons/chakra, schema/protobuf/et_def.proto, enum NodeType
_CHAKRA_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
_TYPE_FIELD = 3
_VARINT, _FIXED64, _BYTES = 0, 1, 2


@claim(
    noun="execution_traces",
    name="Chakra protobuf",
    source="the file itself, counted by walking the protobuf wire format",
    needs=("chakra-et",),
)
def chakra_protobuf(folder: Path) -> Iterator[Reading]:
    """Compare the nodes of each type with the messages of every .et file."""
    for name, content, nodes in _loaded(folder / "feeder_tests_trace.tar.gz", ".et"):
        _, *messages = _messages(content)  # the first one describes the file
        yield from _compare(name, Counter(map(_node_type, messages)), nodes["type"])


@claim(
    noun="execution_traces",
    name="Chakra JSON",
    source="the file itself, counted by a generic JSON parser",
    needs=("chakra-et",),
)
def chakra_json(folder: Path) -> Iterator[Reading]:
    """Compare the nodes of each type with the entries of every workload graph."""
    for name, content, nodes in _loaded(folder / "json_trace.tar.gz", ".json"):
        entries = json.loads(content)["workload_graph"]
        types = Counter(_CHAKRA_TYPES[entry["NodeType"]] for entry in entries)
        yield from _compare(name, types, nodes["type"])


@claim(
    noun="execution_traces",
    name="PyTorch, one process",
    source="the file itself, counted by a generic JSON parser",
    needs=("kineto-resnet", "chakra-et"),
)
def pytorch(resnet: Path, chakra: Path) -> Iterator[Reading]:
    """Compare nodes and collectives with the entries of files of three schema versions."""
    for path in sorted(resnet.rglob("*_et.json.gz")):
        content = gzip.decompress(path.read_bytes())
        name = path.relative_to(resnet).as_posix()
        yield from _compare_pytorch(name, content, load.traces(path).nodes)
    for name, content, nodes in _loaded(chakra / "1.0.2-chakra.0.0.4.tgz", ".json"):
        yield from _compare_pytorch(name, content, nodes)


@claim(
    noun="execution_traces",
    name="PyTorch, the 8 ranks of DLRM",
    source="the files themselves, counted by a generic JSON parser",
    needs=("kineto-dlrm-8rank",),
)
def pytorch_dlrm(folder: Path) -> Iterator[Reading]:
    """Compare nodes and collectives of every rank with the entries of its file."""
    for name, content, nodes in _loaded(folder / "dlrm_pytorch_et.tar.gz", ".json"):
        yield from _compare_pytorch(name, content, nodes)


def _compare(name: str, printed: Counter[str], types: pd.Series) -> Iterator[Reading]:
    here = Counter(types.astype(str))
    yield Reading(f"{name}, nodes", sum(printed.values()), sum(here.values()), unit="")
    for kind in sorted(printed | here):
        yield Reading(f"{name}, {kind}", printed[kind], here[kind], unit="")


def _compare_pytorch(name: str, content: bytes, nodes: pd.DataFrame) -> Iterator[Reading]:
    """Compare counts and names; the sum of ids shows that no node was taken for another."""
    entries: list[dict[str, Any]] = json.loads(content)["nodes"]
    printed = Counter(entry["name"] for entry in entries)
    here = Counter(nodes["name"].astype(str))
    collectives = "record_param_comms"
    yield Reading(f"{name}, nodes", len(entries), len(nodes), unit="")
    yield Reading(f"{name}, {collectives}", printed[collectives], here[collectives], unit="")
    yield Reading(f"{name}, names", len(printed), len(printed & here), unit="")
    yield Reading(
        f"{name}, sum of ids", sum(entry["id"] for entry in entries), nodes["node"].sum(), unit=""
    )


def _loaded(archive: Path, suffix: str) -> Iterator[tuple[str, bytes, pd.DataFrame]]:
    """Give name, bytes and loaded nodes of every file of an archive, each loaded alone."""
    with tarfile.open(archive) as members, tempfile.TemporaryDirectory() as folder:
        for member in members:
            base = Path(member.name).name
            # Archives made on a Mac hold a companion "._name" for every file.
            if not member.isfile() or not base.endswith(suffix) or base.startswith("._"):
                continue
            file = members.extractfile(member)
            content = file.read() if file is not None else b""
            alone = Path(folder, base)
            alone.write_bytes(content)
            yield base, content, load.traces(alone).nodes


def _messages(content: bytes) -> Iterator[bytes]:
    """Cut a file of length-delimited messages into its messages."""
    place = 0
    while place < len(content):
        length, place = _varint(content, place)
        yield content[place : place + length]
        place += length


def _node_type(message: bytes) -> str:
    """Read the type of a node, skipping all its other fields."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        field, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            length, place = _varint(message, place)
            place += length
        elif wire == _VARINT:
            value, place = _varint(message, place)
            if field == _TYPE_FIELD:
                return _CHAKRA_TYPES[value]
        else:
            place += 8 if wire == _FIXED64 else 4
    return _CHAKRA_TYPES[0]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Read one variable-length integer; give its value and the place behind it."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
