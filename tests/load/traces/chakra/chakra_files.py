"""Chakra files by the public schema, apart from the package: read, and played as ASTRA-sim does."""

import heapq
import json
from collections import defaultdict
from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# mlcommons/chakra: schema/protobuf/et_def.proto, the fields that nodes have.
_TEXT, _BOOL, _INT64, _UINT64, _MESSAGE = 9, 8, 3, 4, 11
SCHEMA = {
    "AttributeProto": {
        "name": (1, _TEXT), "double_val": (3, 1), "int32_val": (7, 5), "int64_val": (9, _INT64),
        "uint64_val": (13, _UINT64), "bool_val": (27, _BOOL), "string_val": (29, _TEXT),
    },
    "GlobalMetadata": {"version": (1, _TEXT), "attr": (2, "AttributeProto*")},
    "Node": {
        "id": (1, _UINT64), "name": (2, _TEXT), "type": (3, 5), "ctrl_deps": (4, f"{_UINT64}*"),
        "data_deps": (5, f"{_UINT64}*"), "start_time_micros": (6, _UINT64),
        "duration_micros": (7, _UINT64), "attr": (10, "AttributeProto*"),
    },
}  # fmt: skip
COMPUTE, SEND, COLLECTIVE = 4, 5, 7
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7


@cache
def public_classes():
    """Make the message classes of the public schema, as protoc would."""
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", package="ChakraProtoMsg", syntax="proto3"
    )
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, (number, kind) in fields.items():
            text = str(kind)
            entry = message.field.add(name=field, number=number, label=3 if "*" in text else 1)
            if field.endswith("_val"):
                entry.oneof_index = 0
            bare = text.rstrip("*")
            entry.type = int(bare) if bare.isdigit() else _MESSAGE
            if not bare.isdigit():
                entry.type_name = f".ChakraProtoMsg.{bare}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {n: message_factory.GetMessageClass(find(f"ChakraProtoMsg.{n}")) for n in SCHEMA}


def read_varint(data, at):
    """Decode a number; give it and where the next thing begins."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def split(data):
    """Give the delimited messages of a file."""
    at = 0
    while at < len(data):
        length, at = read_varint(data, at)
        yield data[at : at + length]
        at += length


def nodes_of(path):
    """Read the nodes of a file."""
    return [
        public_classes()["Node"].FromString(message) for message in [*split(path.read_bytes())][1:]
    ]


def attributes_of(node):
    """Return the attributes of a node as plain values."""
    return {entry.name: getattr(entry, entry.WhichOneof("value")) for entry in node.attr}


def ring_ns(collective, size, ranks):
    """Return the time of a ring collective on the simulator's H100 switch.

    Closed form of ASTRA-sim's recorded microbenchmarks, within -3.7 ... 0 %.
    """
    splits, active, latency_ns, bytes_per_ns, delay_ns = 4, 2, 936.25, 400 * 2**30 / 1e9, 10
    steps = {
        ALL_REDUCE: 2 * (ranks - 1), ALL_GATHER: ranks - 1, REDUCE_SCATTER: ranks - 1,
        ALL_TO_ALL: ranks * (ranks - 1) // 2,
    }[collective]  # fmt: skip
    message = size / splits / (1 if collective == ALL_GATHER else ranks)
    step_ns = 2 * latency_ns + 2 * message / bytes_per_ns + delay_ns
    return round(splits / active * steps * step_ns)


class _Rank:
    """The nodes of one rank, and which of them could start."""

    def __init__(self, path):
        self.nodes = {node.id: node for node in nodes_of(path)}
        self.attributes = {number: attributes_of(node) for number, node in self.nodes.items()}
        self.left = {number: len(set(node.data_deps)) for number, node in self.nodes.items()}
        self.users = defaultdict(list)
        for number, node in self.nodes.items():
            for needed in set(node.data_deps):
                self.users[needed].append(number)
        self.ready = defaultdict(list)
        self.busy = set()
        for number, count in self.left.items():
            if count == 0:
                heapq.heappush(self.ready[self.lane(number)], number)

    def lane(self, number):
        """One CPU, one stream of compute and one of communication, as ASTRA-sim has."""
        is_cpu = self.attributes[number]["is_cpu_op"]
        if self.nodes[number].type == COMPUTE:
            return "CPU" if is_cpu else "GPU"
        assert self.nodes[number].type == COLLECTIVE
        assert not is_cpu
        return "network"

    def startable(self):
        for lane in ("CPU", "GPU", "network"):
            if self.ready[lane] and lane not in self.busy:
                self.busy.add(lane)
                yield heapq.heappop(self.ready[lane])

    def finish(self, number):
        self.busy.discard(self.lane(number))
        del self.left[number]
        for user in self.users[number]:
            self.left[user] -= 1
            if self.left[user] == 0:
                heapq.heappush(self.ready[self.lane(user)], user)


class _Job:
    """The ranks of a job, and what each waits for."""

    def __init__(self, files, members):
        self.ranks = {int(path.name.split(".")[-2]): _Rank(path) for path in files}
        self.members = members
        self.waiting, self.begun = defaultdict(list), defaultdict(int)
        self.agenda = []

    def start(self, rank, now):
        for number in self.ranks[rank].startable():
            state = self.ranks[rank]
            node, told = state.nodes[number], state.attributes[number]
            if node.type == COMPUTE or told["comm_type"] == BROADCAST:
                end = now + (node.duration_micros * 1000 or 1)
                heapq.heappush(self.agenda, (end, rank, number))
            else:
                self.join(rank, number, told, now)

    def join(self, rank, number, told, now):
        """Begin a collective, which lasts from when the last of its group begins it."""
        name = told.get("pg_name", "")
        group = tuple(self.members[name]) if name else tuple(self.ranks)
        self.begun[rank, name] += 1
        call = (group, name, self.begun[rank, name], told["comm_type"], told["comm_size"])
        self.waiting[call].append((rank, number))
        if len(self.waiting[call]) == len(group):
            end = now + (ring_ns(told["comm_type"], told["comm_size"], len(group)) or 1)
            for other in self.waiting.pop(call):
                heapq.heappush(self.agenda, (end, *other))


def simulate(files, groups_file=None):
    """Play files as ASTRA-sim does, and return the end of each rank [ns]; None if one hangs."""
    job = _Job(files, json.loads(groups_file.read_text()) if groups_file else {})
    ends = dict.fromkeys(job.ranks, 0)
    for rank in job.ranks:
        job.start(rank, 0)
    while job.agenda:
        now, rank, number = heapq.heappop(job.agenda)
        job.ranks[rank].finish(number)
        ends[rank] = now
        job.start(rank, now)
    return None if any(state.left for state in job.ranks.values()) else ends
