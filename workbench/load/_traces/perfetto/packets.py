"""Packets of a Perfetto trace, read in bounded memory; only the fields that are used."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from workbench.load._files.findings import Findings
from workbench.load._files.protobuf import decoder_of, message_class
from workbench.load._files.stream import Stream
from workbench.load._traces.chakra.schema import fields, tag, varint

_BLOCK_BYTES = 1 << 20
_LARGEST_PACKET = 64 << 20
_PACKET = (1, 2)  # field and wire type of a packet in a trace
_LOOKED_AT = 16
# Timestamp, sequence, clock snapshot, synchronisation marker, configuration, track descriptor.
_SURE = {(8, 0), (10, 0), (6, 2), (36, 2), (33, 2), (60, 2)}
_NAMES = (".pftrace", ".perfetto", "perfetto-trace")

_MESSAGES = {
    "Clock": {"id": "1 uint32", "timestamp": "2 uint64", "is_incremental": "3 bool",
              "unit_ns": "4 uint64"},
    "Snapshot": {"clocks": "1 Clock*"},
    "Named": {"iid": "1 uint64", "name": "2 bytes"},
    "Interned": {"categories": "1 Named*", "names": "2 Named*", "keys": "3 Named*",
                 "values": "29 Named*"},
    "Annotation": {"key_iid": "1 uint64", "bool": "2 bool", "uint": "3 uint64", "int": "4 int64",
                   "double": "5 double", "text": "6 bytes", "pointer": "7 uint64",
                   "key": "10 bytes", "text_iid": "17 uint64"},
    "Event": {"category_iids": "3 uint64*", "annotations": "4 Annotation*", "type": "9 int32",
              "name_iid": "10 uint64", "track": "11 uint64", "categories": "22 bytes*",
              "name": "23 bytes"},
    "Defaults": {"event": "11 Event", "clock": "58 uint32"},
    "Process": {"pid": "1 int32"},
    "Thread": {"pid": "1 int32", "tid": "2 int64"},
    "Track": {"uuid": "1 uint64", "name": "2 bytes", "process": "3 Process", "thread": "4 Thread",
              "parent": "5 uint64", "static_name": "10 bytes"},
    "Packet": {"snapshot": "6 Snapshot", "timestamp": "8 uint64", "sequence": "10 uint32",
               "event": "11 Event", "interned": "12 Interned", "flags": "13 uint32",
               "is_cleared": "41 bool", "packed": "50 bytes", "clock": "58 uint32",
               "defaults": "59 Defaults", "track": "60 Track"},
}  # fmt: skip


def looks_like(head: bytes, label: str) -> bool:
    """Return whether a file begins with packets; other protobuf files begin with the same byte."""
    at, present = 0, set()
    for _ in range(_LOOKED_AT):
        try:
            number, wire, start = tag(head, at)
            length, start = varint(head, start)
        except (IndexError, OverflowError):
            break
        if (number, wire) != _PACKET:
            return False
        if start + length > len(head):
            break
        packet = set(fields(head[start : start + length]))
        # Field 1 of an XPlane is a number, that of a packet never is.
        if (1, 0) in packet:
            return False
        present |= packet
        at = start + length
    if at == 0:
        return head.startswith(b"\x0a") and any(name in label.lower() for name in _NAMES)
    return len(_SURE & present) > 1


@cache
def _packet_class() -> Any:
    return message_class("workbench_perfetto", "Packet", _MESSAGES, syntax="proto2")


def packets(stream: Stream, findings: Findings) -> Iterator[Any]:
    """Yield the packets in order; those that cannot be decoded are counted."""
    decode = decoder_of(_packet_class())
    for raw in _raw_packets(stream, findings):
        packet = decode(raw)
        if packet is None:
            findings.add("dropped", "packets that cannot be decoded")
            continue
        if not packet.packed:
            yield packet
            continue
        for inner in _unpacked(packet.packed, findings):
            if (one := decode(inner)) is None:
                findings.add("dropped", "packets that cannot be decoded")
            else:
                yield one


def _raw_packets(stream: Stream, findings: Findings) -> Iterator[bytes]:
    data, offset = b"", 0
    while block := stream.read(max(_BLOCK_BYTES, len(data))):
        data += block
        at, reason = 0, ""
        for end, raw in _split(data):
            at = end
            if raw is None:
                reason = "no packet begins where one should"
                break
            yield raw
        if not reason and len(data) - at > _LARGEST_PACKET:
            reason = f"a packet of more than {_LARGEST_PACKET:,} bytes"
        offset, data = offset + at, data[at:]
        if reason:
            where = f"byte {offset:,}"
            findings.add("truncated", f"everything behind damage ({reason})", 1, where)
            return
    if data:
        findings.add("truncated", "a last packet without its end", 1, f"byte {offset:,}")


def _split(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Yield each whole packet with the place behind it; None for what is not a packet."""
    at = 0
    while at < len(data):
        try:
            number, wire, start = tag(data, at)
            if number == 0 or wire != _PACKET[1]:
                yield at, None
                return
            length, start = varint(data, start)
        except IndexError:
            return
        except OverflowError:
            yield at, None
            return
        if start + length > len(data):
            return
        at = start + length
        yield at, data[start:at] if number == _PACKET[0] else b""


def _unpacked(packed: bytes, findings: Findings) -> list[bytes]:
    """Return the packets inside a packed one."""
    try:
        data = zlib.decompressobj().decompress(packed, _LARGEST_PACKET)
    except zlib.error:
        findings.add("dropped", "packed packets that cannot be unpacked")
        return []
    return [raw for _, raw in _split(data) if raw is not None]
