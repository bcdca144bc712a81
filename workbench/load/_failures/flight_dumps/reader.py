"""Dumps of the NCCL flight recorder: one file per rank, written when a job hangs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._failures.flight_dumps.dump import Dump, is_dump, parse
from workbench.load._files.archive import Paths, Source, given_paths, shown, shown_all, survey
from workbench.load._files.findings import Finding, Findings, guarded, listed, quality_frame
from workbench.load._files.rank_names import RankArgument, given_ranks, rank_in_name
from workbench.load._files.safe_pickle import (
    LARGEST_BYTES,
    PickleError,
    plain_values,
)
from workbench.load._files.stored import stored_tables
from workbench.load._files.text import tell_of_damage
from workbench.load._files.time import table_of_rows
from workbench.load._files.wanted import DUMPS, NO_DUMP
from workbench.tables import (
    FLIGHT_ENTRIES,
    FLIGHT_GROUPS,
    FLIGHT_RANKS,
    FLIGHT_STATUS,
    QUALITY,
    FlightRecording,
)

_PICKLE_STARTS = (b"\x80", b"(", b"}", b"]")
# Of the dump and of its entries, which may come first; two of them make a dump.
_NAMES = (b"pg_config", b"pg_status", b"nccl_version", b"collective_seq_id", b"profiling_name")


def flight_recorder(
    path: Paths, *, rank: RankArgument = None, progress: bool = True
) -> FlightRecording:
    """Load the flight-recorder dumps of one job, pickled or JSON, without running anything.

    PyTorch keeps the last collectives of every rank in memory and writes them to one file
    per rank when its watchdog gives up (``TORCH_NCCL_DUMP_ON_TIMEOUT``,
    ``TORCH_FR_DUMP_TEMP_FILE``). The files are pickles; they are read by instructions
    that can make lists, dicts, texts and numbers, and nothing else.

    Parameters
    ----------
    path
        A dump, a folder, an archive (``.tar``, ``.tar.gz``, ``.zip``) or a list of these.
    rank
        Ranks where the files do not state them: one number for one file, a list in order
        of the files, or a dict from a part of the file name to the number.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    FlightRecording
        ``ranks`` (:data:`workbench.tables.FLIGHT_RANKS`), ``groups``
        (:data:`workbench.tables.FLIGHT_GROUPS`), ``status``
        (:data:`workbench.tables.FLIGHT_STATUS`), ``entries``
        (:data:`workbench.tables.FLIGHT_ENTRIES`) and ``quality``, which lists ranks that
        left no dump and files that could not be read.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a dump that can be read, a file named itself cannot,
        two files are of one rank, or the rank of a file is unknown.

    Notes
    -----
    The rank is the argument's, else the file name's (``nccl_trace_rank_3``, ``_dump_3``,
    ``nccl_trace_host-12_rank_7``), else the only rank that is a member of all groups of the
    dump. Status is kept per ``pg_id`` and members per group name; entries name both. For
    a rank without entries both lists are in the order in which groups were made, which is
    used where they are equally long and no entry of any rank speaks against it.

    References
    ----------
    PyTorch, ``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp`` (fields) and
    ``torch/distributed/flight_recorder`` (its analyser).
    """
    stored: FlightRecording | None = stored_tables(path, "flight-recorder dumps")
    if stored is not None:
        return stored
    files = survey(path, wanted=DUMPS)
    findings = [remark.row for remark in files.remarks]
    named = set(map(Path, given_paths(path)))
    dumps: list[Dump] = []
    total = sum(source.size_bytes for source in files.sources)
    with progress_bar(total=total, unit="B", label="loading dumps", enabled=progress) as bar:
        for source in files.sources:
            try:
                with guarded(source.label):
                    dumps.append(_read(source))
            except (LoadError, OSError) as error:
                if source.path in named and len(files.sources) == 1:
                    raise
                _pass_over(source, error, findings)
            bar.update(source.size_bytes)
    if not dumps:
        _raise_nothing(path, findings)
    with guarded(shown_all(path)):
        return _assembled(owned(dumps, rank), findings)


def looks_like_a_dump(head: bytes) -> bool:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    is_likely = text.startswith(b"{") or head.startswith(_PICKLE_STARTS)
    return is_likely and sum(name in head for name in _NAMES) > 1


def _assembled(ranks: Sequence[Owned], findings: list[Finding]) -> FlightRecording:
    groups, name_of = groups_of(ranks)
    status = status_table(ranks, name_of)
    findings += _of_the_set(ranks, groups, status)
    frames = [owned.dump.findings.frame() for owned in ranks]
    return FlightRecording(
        ranks=ranks_table(ranks),
        groups=groups,
        status=status,
        entries=entries_table(ranks, name_of),
        quality=QUALITY.joined([quality_frame(findings), *frames]),
    )


def _read(source: Source) -> Dump:
    with source.open() as stream:
        # One byte more than allowed tells that it is too large.
        raw = stream.read(LARGEST_BYTES + 1)
        cut = stream.truncated_at is not None
        damage = Findings(source.label)
        tell_of_damage(stream, damage)
    is_json = raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    if not is_json and not raw.startswith(_PICKLE_STARTS):
        msg = f"{source.label}: {NO_DUMP}: neither a pickle nor JSON"
        raise LoadError(msg)
    try:
        content = _json(raw) if is_json else plain_values(raw)
    except PickleError as error:
        also = "; the file was cut off when it was packed" if cut else ""
        msg = f"{source.label}: the dump {error}{also}; get the file again, or leave it out"
        raise LoadError(msg) from error
    if not is_dump(content):
        kind = f"a dict with {_names(content)}" if isinstance(content, Mapping) else "no dict"
        msg = (
            f"{source.label}: {NO_DUMP}: it holds {kind}; a dump is a dict with 'version', "
            "'pg_config', 'pg_status' and 'entries'"
        )
        raise LoadError(msg)
    dump = parse(content, source.label)
    for _, finding, what, count, where in damage.rows():
        dump.findings.add(finding, what, count, where)
    return dump


def _names(content: Mapping[Any, Any]) -> str:
    keys = list(islice(content, 5))
    names = [repr(key[:30]) if isinstance(key, str) else type(key).__name__ for key in keys]
    return ", ".join(names) or "no keys"


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        msg = f"is not valid JSON ({str(error)[:120]})"
        raise PickleError(msg) from error


def _pass_over(source: Source, error: Exception, findings: list[Finding]) -> None:
    remark = str(error).removeprefix(f"{source.label}: ")
    finding = "skipped by design" if remark.startswith(NO_DUMP) else "dropped"
    findings.append((source.label, finding, remark, 1, None))


def _raise_nothing(path: Paths, findings: Sequence[Finding]) -> None:
    where = ", ".join(shown(item) for item in given_paths(path)) or "an empty list"
    msg = (
        f"{where}: no flight-recorder dump that can be read; they are named like "
        f"nccl_trace_rank_0 or _dump_0{listed(findings)}"
    )
    raise LoadError(msg)


def _of_the_set(
    ranks: Sequence[Owned], groups: pd.DataFrame, status: pd.DataFrame
) -> list[Finding]:
    remarks: list[Finding] = []
    have = {owned.rank for owned in ranks}
    label = ranks[0].dump.label
    every = {int(rank) for text in groups["members"] for rank in str(text).split(",") if rank}
    if lacking := sorted(every - have):
        names = ", ".join(map(str, lacking[:16])) + (", ..." if len(lacking) > 16 else "")
        remark = f"members of groups that left no dump; where they are is not known: rank {names}"
        remarks.append((label, "suspicious", remark, len(lacking), None))
    by_order = status.loc[status["joined_by"] == "order", "rank"].nunique()
    if by_order:
        remark = "ranks without entries: their status is joined to groups by the order of both"
        remarks.append((label, "noted", remark, int(by_order), None))
    if unjoined := int((status["joined_by"] == "none").sum()):
        remark = "states of groups that no entry names; it is not known which group they are of"
        remarks.append((label, "noted", remark, unjoined, None))
    if unrecorded := int((~groups["is_recorded"]).sum()):
        remark = "groups without a list of members: taken to be the ranks that used them"
        remarks.append((label, "assumed", remark, unrecorded, None))
    versions = {owned.dump.version for owned in ranks}
    if len(versions) > 1:
        remark = f"different versions of the recorder: {', '.join(sorted(map(str, versions)))}"
        remarks.append((label, "suspicious", remark, len(versions), None))
    return remarks


# Whose a flight-recorder dump is: told by the caller, the file name, or its groups.

# Whoever writes dumps may choose any prefix; the rank is what stands last.
_LAST_NUMBER = re.compile(r"(?:^|[^0-9])(\d{1,6})$")
_ENDINGS = re.compile(r"(?:\.(?:json|pkl|pickle|bin|dump|trace|gz|bz2|xz|zstd?|lz4))+$")
_RANK_PART = re.compile(r"[-_.]*(?:rank|worker)[-_]?\d+|[-_.]*\d+$", re.IGNORECASE)
_PREFIXES = re.compile(
    r"(?:^|(?<=[-_.]))(?:nccl|comm_lib|comm|lib|flight|recorder|fr|trace|traces|dump|dumps|pg|synthetic)"
    r"(?=[-_.]|$)",
    re.IGNORECASE,
)


class Owned(NamedTuple):
    rank: int
    rank_source: str
    node: str | None
    dump: Dump


def owned(dumps: Sequence[Dump], stated_ranks: RankArgument) -> list[Owned]:
    """Assign a rank to every dump, in order of rank."""
    labels = [dump.label for dump in dumps]
    stated = given_ranks(labels, stated_ranks)
    ranked = [_owned(*pair) for pair in zip(dumps, stated, strict=True)]
    first: dict[int, Owned] = {}
    for entry in ranked:
        if (twin := first.setdefault(entry.rank, entry)) is not entry:
            msg = (
                f"two dumps are of rank {entry.rank}: {twin.dump.label} ({twin.rank_source}) and "
                f"{entry.dump.label} ({entry.rank_source}). Load the dumps of one hang at a time, "
                "or pass rank={'part of the file name': number, ...}"
            )
            raise LoadError(msg)
    return sorted(ranked, key=lambda entry: entry.rank)


def _owned(dump: Dump, stated: int | None) -> Owned:
    node = node_in_name(dump.label)
    named_rank, own = rank_in_dump_name(dump.label), dump.own_ranks
    if stated is not None:
        return Owned(stated, "argument", node, dump)
    # A number in the name must be a member of the dump's own groups.
    if named_rank is not None and (not own or named_rank in own):
        return Owned(named_rank, "file name", node, dump)
    if len(own) == 1:
        (only,) = own
        if named_rank is not None:
            remark = f"the file name tells rank {named_rank}, its groups only fit rank {only}; "
            remark += f"took {only}"
            dump.findings.add("suspicious", remark)
        return Owned(only, "groups", node, dump)
    why = "neither its name nor its groups state its rank"
    if named_rank is not None:
        why = f"its name tells rank {named_rank}, which is not a member of all groups of the dump"
    msg = f"{dump.label}: {why}. Pass rank={{'part of the file name': number, ...}}"
    raise LoadError(msg)


def rank_in_dump_name(label: str) -> int | None:
    """Return the rank that a dump's name tells, None if it tells none.

    Examples
    --------
    >>> rank_in_dump_name("dumps/nccl_trace_host-12_rank_7")
    7
    >>> rank_in_dump_name("hang.tar.gz!_dump_15")
    15
    >>> rank_in_dump_name("nccl_trace_rank_3.json")
    3
    >>> rank_in_dump_name("node4-gpu") is None
    True
    """
    if (rank := rank_in_name(label)) is not None:
        return rank
    match = _LAST_NUMBER.search(_base(label))
    return int(match[1]) if match else None


def node_in_name(label: str) -> str | None:
    """Return the host that a dump's name tells, None if it tells none.

    Examples
    --------
    >>> node_in_name("dumps/nccl_trace_host-12_rank_7")
    'host-12'
    >>> node_in_name("dumps/_dump_15") is None
    True
    """
    host = _PREFIXES.sub("", _RANK_PART.sub("", _base(label), count=1)).strip("-_.")
    return host if re.search(r"[A-Za-z]", host) else None


def _base(label: str) -> str:
    return _ENDINGS.sub("", re.split(r"[/\\!]", label)[-1])


# Put the dumps of all ranks into tables, and find out which group is which.

# How c10d describes the group of all ranks.
_DEFAULT_GROUP = "default_pg"

NameOf = Callable[[int, str | None], str | None]


def ranks_table(ranks: Sequence[Owned]) -> pd.DataFrame:
    rows = []
    for owned in ranks:
        times = [row["created_ns"] for row in owned.dump.entries if row["created_ns"] is not None]
        operations = [row for row in owned.dump.entries if row["kind"] != "coalesced"]
        rows.append({
            "rank": owned.rank, "rank_source": owned.rank_source, "node": owned.node,
            "source": owned.dump.label, "version": owned.dump.version,
            "nccl_version": owned.dump.nccl_version, "entry_count": len(owned.dump.entries),
            "pending_count": sum(row["state"] != "completed" for row in operations),
            "first_ns": min(times, default=None), "last_ns": max(times, default=None),
        })  # fmt: skip
    return table_of_rows(FLIGHT_RANKS, rows)


def groups_of(ranks: Sequence[Owned]) -> tuple[pd.DataFrame, NameOf]:
    """Make table FLIGHT_GROUPS, and a function that names the group a rank means.

    Groups that split off another one can share a name and not their members; only name
    and members together tell them apart.
    """
    keys: dict[tuple[str, tuple[int, ...]], str | None] = {}
    group_of: dict[tuple[int, str], tuple[str, tuple[int, ...]]] = {}
    users: dict[str, dict[int, str | None]] = {}
    have = {owned.rank for owned in ranks}
    everybody = set(have)
    for owned in ranks:
        for name, (description, in_group) in owned.dump.groups.items():
            if not name:
                # gloo lists its last group without a name; whoever is in it is in the default one.
                everybody.update(in_group)
                continue
            group_of[owned.rank, name] = (name, in_group)
            keys[name, in_group] = keys.get((name, in_group)) or description
        # Groups that the dump does not list: their members are the ranks that use them.
        for row in owned.dump.entries:
            if row["group"] is not None and row["group"] not in owned.dump.groups:
                users.setdefault(row["group"], {})[owned.rank] = row["description"]
    recorded = set(keys)
    for name, described in users.items():
        is_default = _DEFAULT_GROUP in described.values()
        key = (name, tuple(sorted(everybody if is_default else described)))
        keys.setdefault(key, next(filter(None, described.values()), None))
        group_of |= {(rank, name): key for rank in key[1]}
    # Two groups can have one name, if their members differ.
    shared = pd.Series([name for name, _ in keys]).value_counts()
    names = {
        key: key[0] if shared[key[0]] == 1 else f"{key[0]} ({_listed(key[1])})" for key in keys
    }
    rows = [
        {"group": names[key], "description": description, "members": ",".join(map(str, key[1])),
         "group_size": len(key[1]), "dumped_count": sum(rank in have for rank in key[1]),
         "is_recorded": key in recorded or description == _DEFAULT_GROUP}
        for key, description in keys.items()
    ]  # fmt: skip

    def name_of(rank: int, group: str | None) -> str | None:
        key = None if group is None else group_of.get((rank, group))
        return None if key is None else names[key]

    return table_of_rows(FLIGHT_GROUPS, rows), name_of


def status_table(ranks: Sequence[Owned], name_of: NameOf) -> pd.DataFrame:
    """Make table FLIGHT_STATUS; see the notes of ``load.flight_recorder``."""
    ordered = {owned.rank: _by_order(owned) for owned in ranks}
    group_of = {owned.rank: _by_entries(owned) for owned in ranks}
    # Order is trusted only if it contradicts no pair that entries prove, on any rank.
    in_order = all(
        ordered[rank].get(local, group) == group
        for rank, pairs in group_of.items()
        for local, group in pairs.items()
        if ordered[rank]
    ) and any(group_of.values())
    rows = []
    for owned in ranks:
        for local, numbers in owned.dump.status.items():
            group, joined_by = group_of[owned.rank].get(local), "entries"
            if group is None and in_order:
                group, joined_by = ordered[owned.rank].get(local), "order"
            rows.append({
                "rank": owned.rank, "local_group": local, "group": name_of(owned.rank, group),
                "joined_by": "none" if group is None else joined_by, **numbers,
            })  # fmt: skip
    return table_of_rows(FLIGHT_STATUS, rows)


def entries_table(ranks: Sequence[Owned], name_of: NameOf) -> pd.DataFrame:
    rows = [
        {**row, "rank": owned.rank, "group": name_of(owned.rank, row["group"])}
        for owned in ranks
        for row in owned.dump.entries
    ]
    return table_of_rows(FLIGHT_ENTRIES, rows)


def _by_entries(owned: Owned) -> dict[str, str]:
    return {
        row["local_group"]: row["group"]
        for row in owned.dump.entries
        if row["local_group"] is not None and row["group"] is not None
    }


def _by_order(owned: Owned) -> dict[str, str]:
    """Pair numbers and names of groups, both counted up as groups are made."""
    numbers, names = list(owned.dump.status), list(owned.dump.groups)
    if len(numbers) != len(names) or not all(text.isdecimal() for text in (*numbers, *names)):
        return {}
    return dict(zip(sorted(numbers, key=int), sorted(names, key=int), strict=True))


def _listed(members: Sequence[int]) -> str:
    most = 4
    return ", ".join(map(str, members[:most])) + (", ..." if len(members) > most else "")
