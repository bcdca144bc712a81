"""One flight-recorder dump: what it says of its groups, their status and its operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from workbench.errors import LoadError
from workbench.load._files.findings import Findings, Record, Row
from workbench.load._files.json_events import to_integer
from workbench.tables import SAYS_SYNTHETIC

_STATES = ("scheduled", "started", "completed")
_KNOWN_KEYS = {
    "version", "nccl_version", "comm_lib_version", "pg_config", "pg_status", "entries", "rank",
    "host_name", "synthetic",
}  # fmt: skip
_DUMP_KEYS = {"entries", "pg_config", "pg_status"}
_PEERS = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
_TORCH = re.compile(r"(?:^|/)torch/")
_TEXT_LIMIT = 300
_MOST_SIZES = 10_000
# Writing an integer takes quadratic time, and Python refuses more than 4,300 digits.
_MOST_BITS = 128
_MOST_MEMBERS = 1 << 22
# The recorder keeps TORCH_NCCL_TRACE_BUFFER_SIZE operations: 2,000 unless somebody requested more.
MOST_ENTRIES = 200_000
MOST_VALUES = 20_000_000


@dataclass
class Dump:
    """The content of one file, before it is known whose it is."""

    label: str
    version: str | None
    nccl_version: str | None
    groups: dict[str, tuple[str | None, tuple[int, ...]]]
    status: dict[str, dict[str, int | None]]
    entries: list[Row]
    findings: Findings = field(repr=False)

    @property
    def own_ranks(self) -> set[int]:
        """Ranks that belong to all of its groups; a rank records those it is a member of."""
        members = [set(ranks) for _, ranks in self.groups.values() if ranks]
        return set.intersection(*members) if members else set()


def is_dump(content: object) -> bool:
    return isinstance(content, Mapping) and "version" in content and bool(_DUMP_KEYS & set(content))


def parse(content: Record, label: str) -> Dump:
    """Read the content of one dump; what cannot be read is missing and counted."""
    _refuse_floods(content, label)
    findings = Findings(label)
    groups = _groups(content.get("pg_config"), findings)
    findings.add("noted", SAYS_SYNTHETIC, int(content.get("synthetic") is True))
    unknown = sorted(_shown(key)[:40] for key in content if key not in _KNOWN_KEYS)
    status = _status(content.get("pg_status"), findings)
    entries = _entries(content.get("entries"), groups, findings)
    _end_unwatched(entries, status, findings)
    if unknown:
        findings.add("skipped by design", f"further parts of the dump: {', '.join(unknown[:8])}")
    return Dump(
        label=label,
        version=_text(content.get("version")),
        nccl_version=_text(content.get("nccl_version", content.get("comm_lib_version"))),
        groups=groups,
        status=status,
        entries=entries,
        findings=findings,
    )


def _refuse_floods(content: Record, label: str) -> None:
    entries = content.get("entries")
    reason = ""
    if isinstance(entries, list | tuple) and len(entries) > MOST_ENTRIES:
        reason = f"holds {len(entries):,} operations, more than the {MOST_ENTRIES:,} that are read"
    else:
        try:
            refuse_endless(content, most=MOST_VALUES)
        except UnfoldedError as error:
            reason = str(error)
    if reason:
        msg = f"{label}: the dump {reason}; no recorder writes that, leave the file out"
        raise LoadError(msg)


def _groups(config: object, findings: Findings) -> dict[str, tuple[str | None, tuple[int, ...]]]:
    table = {}
    for key, fields in config.items() if isinstance(config, Mapping) else ():
        members = _members(fields.get("ranks") if isinstance(fields, Mapping) else None)
        if members is None:
            findings.add("dropped", "groups whose members cannot be read", where=_shown(key))
            continue
        name = _text(fields.get("name")) or _shown(key)
        table[name] = (_text(fields.get("desc")), members)
    return table


def _members(ranks: object) -> tuple[int, ...] | None:
    """Read members; the recorder writes them as a text ``[0, 1]``."""
    if isinstance(ranks, str):
        inside = ranks.strip().removeprefix("[").removesuffix("]")
        # Counted before the split, which would need the memory already.
        if inside.count(",") >= _MOST_MEMBERS:
            return None
        ranks = inside.split(",") if inside.strip() else []
    if not isinstance(ranks, list | tuple) or len(ranks) > _MOST_MEMBERS:
        return None
    numbers = [to_integer(rank) for rank in ranks]
    if any(number is None or not 0 <= number < 1 << 31 for number in numbers):
        return None
    # The order stays: peers are numbered by their position in the group.
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


def _status(status: object, findings: Findings) -> dict[str, dict[str, int | None]]:
    table = {}
    for key, fields in status.items() if isinstance(status, Mapping) else ():
        if not isinstance(fields, Mapping):
            findings.add("dropped", "states of groups that cannot be read", where=_shown(key))
            continue
        table[_shown(key)] = {
            # The recorder writes -1 where nothing was seen.
            name: _natural(fields.get(f"{name}_collective"))
            for name in ("last_enqueued", "last_started", "last_completed")
        }
    return table


def _entries(
    entries: object, groups: Mapping[str, tuple[str | None, tuple[int, ...]]], findings: Findings
) -> list[Row]:
    if entries is None:
        return []
    if not isinstance(entries, list | tuple):
        findings.add("dropped", "operations, which are not a list")
        return []
    rows = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("profiling_name"), str):
            findings.add("dropped", "operations without a name", where=f"operation {position}")
            continue
        rows.append(_entry(entry, position, groups, findings))
    rows.sort(key=lambda row: row["record"])
    _share_batch_states(rows)
    _close_batches(rows, findings)
    return rows


def _entry(
    entry: Record,
    position: int,
    groups: Mapping[str, tuple[str | None, tuple[int, ...]]],
    findings: Findings,
) -> Row:
    group, description = _group_of(entry)
    # Names begin with the backend: nccl:_all_gather_base.
    backend, _, operation = entry["profiling_name"][:_TEXT_LIMIT].rpartition(":")
    peers = _PEERS.match(operation)
    is_p2p = peers is not None or entry.get("is_p2p") is True
    record = _natural(entry.get("record_id"))
    state = entry.get("state")
    if state not in _STATES:
        findings.add("suspicious", "operations in an unknown state", where=f"operation {position}")
        state = "unknown"
    row = {
        "backend": backend, "group": group, "description": description,
        "local_group": _text(entry.get("pg_id")),
        "record": position if record is None else record, "state": state,
        "seq": _natural(entry.get("collective_seq_id", entry.get("seq_id"))),
        "p2p_seq": _natural(entry.get("p2p_seq_id")), "op": _natural(entry.get("op_id")),
        "operation": operation.split(" ")[0], "kind": "p2p" if is_p2p else "collective",
        "peer": _peer(peers, groups.get(group or ""), findings) if peers else None,
        "created_ns": _time(entry.get("time_created_ns")),
        "started_ns": _time(entry.get("time_discovered_started_ns")),
        "completed_ns": _time(entry.get("time_discovered_completed_ns")),
        "timeout_ms": _natural(entry.get("timeout_ms")), "frame": _frame(entry.get("frames")),
        "retired": entry["retired"] if isinstance(entry.get("retired"), bool) else None,
    }  # fmt: skip
    if row["operation"] == "coalesced":
        row["kind"] = "coalesced"
    for side, key in (("in", "input"), ("out", "output")):
        row[f"{side}_sizes"], row[f"{side}_count"] = _sizes(entry.get(f"{key}_sizes"))
        row[f"{side}_dtypes"] = _joined(entry.get(f"{key}_dtypes"))
    return row


def _group_of(entry: Record) -> tuple[str | None, str | None]:
    """Read the group; recorders before 2.4 write a name, or a number alone."""
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and group:
        return _text(group[0]), _text(group[1]) if len(group) > 1 else None
    name = group if group is not None else entry.get("pg_name", entry.get("pg_id"))
    return _text(name), None


def _peer(
    match: re.Match[str], group: tuple[str | None, tuple[int, ...]] | None, findings: Findings
) -> int | None:
    """Return the global rank of the other side; the name counts inside the group."""
    # A name in a file may hold any number of digits.
    position = int(match[3]) if len(match[3]) < 10 else -1
    if group is None or not 0 <= position < len(group[1]):
        findings.add("suspicious", "sends and receives whose peer is in no known group")
        return None
    return group[1][position]


def _share_batch_states(rows: list[Row]) -> None:
    # Only the entry that stands for a batch changes its state; nobody watches the members.
    stand_ins = (row for row in rows if row["kind"] == "coalesced")
    batches = {(row["group"], row["seq"], row["p2p_seq"]): row for row in stand_ins}
    for row in rows if batches else ():
        batch = batches.get((row["group"], row["seq"], row["p2p_seq"]))
        if batch is not None and row is not batch and row["record"] < batch["record"]:
            for name in ("state", "started_ns", "completed_ns"):
                row[name] = batch[name]


def _close_batches(rows: list[Row], findings: Findings) -> None:
    """Take batches for completed whose stand-in is missing from a dump of pending work.

    Such a dump drops what has completed, but nobody watches the members of a batch, so
    they stay in it for good. Only they share a number among sends and receives.
    """
    if any(row["state"] == "completed" for row in rows):
        return
    batches: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] != "collective" and row["p2p_seq"] is not None:
            batches.setdefault((row["group"], row["seq"], row["p2p_seq"]), []).append(row)
    for batch in batches.values():
        if len(batch) > 1 and all(row["kind"] == "p2p" for row in batch):
            remark = "batches of sends and receives completed: not listed as pending"
            findings.add("assumed", remark)
            for row in batch:
                row["state"] = "completed"


def _end_unwatched(
    rows: list[Row], status: Mapping[str, Mapping[str, int | None]], findings: Findings
) -> None:
    """Complete the operations of backends that leave every state at "scheduled", as gloo does.

    What such a backend retired is finished; where it retires nothing, the last completed
    collective of the status decides. NCCL's states are watched, and a GPU that failed leaves
    one behind although its operation was retired.
    """
    by_backend: dict[str, list[Row]] = {}
    for row in rows:
        by_backend.setdefault(row["backend"], []).append(row)
    for backend, own in by_backend.items():
        if backend.startswith("nccl") or any(
            row["state"] not in ("scheduled", "unknown") or row["completed_ns"] for row in own
        ):
            continue
        retires = any(row["retired"] for row in own)
        for row in own:
            last = status.get(row["local_group"] or "", {}).get("last_completed")
            is_counted = row["kind"] == "collective" and (row["seq"] or 0) <= (last or 0)
            if row["retired"] if retires else row["seq"] is not None and is_counted:
                row["state"] = "completed"
                remark = f"operations of {backend or 'a backend without a name'}, which leaves "
                remark += "their states as scheduled: completed, as they are no longer watched"
                findings.add("assumed", remark)


def _sizes(value: object) -> tuple[str, int | None]:
    shapes = []
    for shape in value if isinstance(value, list | tuple) else ():
        numbers = [_natural(size) for size in shape] if isinstance(shape, list | tuple) else [None]
        if any(number is None for number in numbers):
            return "", None
        shapes.append([number for number in numbers if number is not None])
    if sum(map(len, shapes)) > _MOST_SIZES:
        return "", None
    count = sum(prod(shape) for shape in shapes)
    text = ";".join("x".join(map(str, shape)) for shape in shapes)[:_TEXT_LIMIT]
    # Sizes from a file may have a product beyond the int64 of the table.
    return text, count if shapes and count < 1 << 63 else None


def _joined(value: object) -> str:
    values: Iterable[object] = value if isinstance(value, list | tuple) else ()
    return ";".join(str(dtype) for dtype in values if isinstance(dtype, str))[:_TEXT_LIMIT]


def _frame(frames: object) -> str | None:
    """Write the innermost frame that is the user's own, else the innermost."""
    shown = []
    for frame in frames if isinstance(frames, list | tuple) else ():
        if isinstance(frame, Mapping) and isinstance(frame.get("filename"), str):
            name, file = _shown(frame.get("name"))[:80], frame["filename"][-160:]
            shown.append(f"{name} ({file}:{_natural(frame.get('line'))})")
            if not _TORCH.search(file):
                return shown[-1]
    return shown[0] if shown else None


def _natural(value: object) -> int | None:
    # Nearly all are small integers; the general reader takes a microsecond and more.
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    number = to_integer(value) if isinstance(value, int | str) else None
    return number if number is not None and number >= 0 else None


def _time(value: object) -> int | None:
    """Read a time; the JSON recorder writes 0 for none."""
    return _natural(value) or None


def _text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None if value.bit_length() > _MOST_BITS else str(value)
    return value[:_TEXT_LIMIT] if isinstance(value, str) else None


def _shown(value: object) -> str:
    """Write a name; the text of a container could be endless."""
    text = _text(value)
    return type(value).__name__ if text is None else text


# How much work walking plain values is, where one of them can stand in many places.

_DEEPEST = 64
_TEXT_CHARS = 32


class UnfoldedError(ValueError):
    """The values hold themselves, or are more than anybody wants to walk."""


def refuse_endless(content: object, *, most: int) -> None:
    """Raise if a walk over ``content`` would meet more than ``most`` values.

    A pickle of a kilobyte can hold a list that holds one list many times, which holds another
    one many times, and so on: few objects, and a walk without end. Every container is looked
    at once; a text counts by its length.

    Examples
    --------
    >>> pair = ["a"]
    >>> for _ in range(30):
    ...     pair = [pair, pair]
    >>> refuse_endless(pair, most=1_000_000)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UnfoldedError: unfolds to more than 1,000,000 values
    """
    _Sizes(most).of(content, 0)


class _Sizes:
    """Sizes of containers, each counted once; they are alive all the time, so ids are unique."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[int, int] = {}

    def of(self, value: object, depth: int) -> int:
        if isinstance(value, str):
            return 1 + len(value) // _TEXT_CHARS
        if not isinstance(value, list | tuple | Mapping):
            return 1
        if (size_before := self._known.get(id(value))) is not None:
            return size_before
        if depth > _DEEPEST:
            msg = f"is nested more than {_DEEPEST} deep, or contains itself"
            raise UnfoldedError(msg)
        size = 1
        for inner in (*value.keys(), *value.values()) if isinstance(value, Mapping) else value:
            size += self.of(inner, depth + 1)
            if size > self._most:
                msg = f"unfolds to more than {self._most:,} values"
                raise UnfoldedError(msg)
        self._known[id(value)] = size
        return size
