"""Chakra execution traces (MLCommons): nodes, and what each must wait for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.load import _chakra_json, _chakra_protobuf
from workbench.load._findings import Findings
from workbench.load._graph import RankGraph, assemble, gather, read_all, without_collector
from workbench.load._rank_names import rank_in_name
from workbench.load.archive import Source
from workbench.tables import Trace

_JSON_STARTS = (b"{", b"[")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    """Say whether a file that begins with ``head`` is a Chakra trace."""
    if _is_json(head):
        return _chakra_json.looks_like(head)
    return _chakra_protobuf.looks_like(head)


def chakra(
    path: str | Path | Iterable[str | Path] | Iterable[Source], *, rank: int | None = None
) -> Trace:
    """Read Chakra execution traces, one file per rank.

    Parameters
    ----------
    path
        File, directory, archive or list of these: protobuf (``.et``) of every
        generation of the schema since 2022, a JSON workload graph, or protobuf
        printed as JSON; gzip is fine.
    rank
        Rank of a single file whose name does not tell it.

    Returns
    -------
    Trace
        ``nodes`` and ``dependencies`` are filled, ``events`` is empty. Times that
        the file does not state are missing; protobuf does not write 0, so a
        duration of 0 is missing too.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a file is no Chakra trace or damaged beyond repair (names the byte),
        or two files are of one rank.

    Notes
    -----
    A Chakra trace does not state its rank: it is the argument, else taken from
    the file name (``<name>.<rank>.et``), else 0 with a finding in ``quality``.
    Dependencies on missing nodes and in circles are kept and counted there.

    References
    ----------
    mlcommons/chakra: schema/protobuf/et_def.proto; before 2024 et_def/et_def.proto
    and eg_def/eg_def.proto.
    """
    found = gather(path)
    with without_collector():
        graphs = [_read(source) for source in found.sources]
    return assemble(graphs, found.remarks, rank)


def _read(source: Source) -> RankGraph:
    """Read one file."""
    graph = RankGraph(source.label, "chakra", Findings(source.label))
    data = read_all(source, graph.findings)
    reader = _chakra_json if _is_json(data[:64]) else _chakra_protobuf
    reader.read(data, graph)
    graph.name_rank = rank_in_name(source.label, is_chakra=True)
    return graph


def _is_json(head: bytes) -> bool:
    """Tell text from protobuf, of which a first byte may be a brace too."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return start.startswith(_JSON_STARTS) and b'"' in start[:64] and head[:1] in b"\xef {[ \t\r\n"
