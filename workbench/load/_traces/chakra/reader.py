"""Chakra execution traces (MLCommons): nodes, and what each must wait for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.rank_names import RankArgument
from workbench.load._files.stream import Stream
from workbench.load._traces.chakra import json_form as _chakra_json
from workbench.load._traces.chakra import protobuf_form as _chakra_protobuf
from workbench.load._traces.graph import RankGraph, load, read_all
from workbench.tables import Trace

_JSON_STARTS = (b"{", b"[")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    if _is_json(head):
        return _chakra_json.looks_like(head)
    return _chakra_protobuf.looks_like(head)


def chakra(
    path: str | Path | Iterable[str | Path] | Iterable[Source], *, rank: RankArgument = None
) -> Trace:
    """Read Chakra execution traces, one file per rank.

    Protobuf (``.et``) of every generation of the schema since 2022, a JSON workload graph, or
    protobuf printed as JSON. Protobuf does not write 0, so a duration of 0 is missing.

    Notes
    -----
    A Chakra trace does not state its rank: it is the argument, else taken from the file name
    (``<name>.<rank>.et``), else counted in order of the files with a finding in ``quality``.
    Dependencies on missing nodes and on cycles are kept and counted there.

    References
    ----------
    mlcommons/chakra: schema/protobuf/et_def.proto; before 2024 et_def/et_def.proto and
    eg_def/eg_def.proto.
    """
    return load(path, _read, rank)


def _read(source: Source, stream: Stream) -> RankGraph:
    graph = RankGraph(source.label, "chakra", Findings(source.label))
    data = read_all(stream, graph.findings)
    reader = _chakra_json if _is_json(data[:64]) else _chakra_protobuf
    reader.read(data, graph)
    return graph


# A first byte of protobuf may be a brace, too: it is the length of a message of 123 bytes.
def _is_json(head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return start.startswith(_JSON_STARTS) and b'"' in start[:64] and head[:1] in b"\xef {[ \t\r\n"
