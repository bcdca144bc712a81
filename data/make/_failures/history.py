"""One history of a job on nodes that fail: what struck when, and what the job did then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from workbench.simulate import FailureProcess, failure_times

# What a kernel writes when a GPU fails: bursts of lines, and much that means nothing.

MILLISECOND, SECOND, MINUTE = 1_000_000, 1_000_000_000, 60_000_000_000
BUSES = ("1b", "43", "52", "61", "9b", "c3", "d1", "df")
_CHANNEL = "Ch 00000008"
_LINKS = 18


@dataclass(frozen=True)
class Fault:
    """A way to fail."""

    code: str | None  # Xid that leads the burst; None where the kernel says nothing
    cause: str
    other_codes: str  # further Xids of the burst
    weight: float  # how often it happens, beside the others
    is_drained: bool = True  # the node is taken out for repair, so the job needs another
    has_node: bool = True  # a host is at fault
    is_fatal: bool = True  # what runs there cannot go on


# The mix is made up: it is to have every kind, not to be that of any cluster.
FAULTS = (
    Fault("79", "GPU has fallen off the bus", "154", 22),
    Fault("48", "double-bit ECC error", "45, 63", 10),
    Fault("74", "NVLink error", "", 10),
    Fault("95", "uncontained memory error", "154", 7),
    Fault("119", "timeout of a call to the GPU system processor (GSP)", "154", 10),
    Fault("149", "NVLink 5 error (NETIR)", "", 8),
    Fault("94", "contained memory error", "45", 9, is_drained=False),
    Fault("31", "GPU memory page fault", "43", 8, is_drained=False),
    Fault("13", "graphics engine exception", "43", 6, is_drained=False),
    Fault(None, "host stopped responding", "", 5),
    Fault(None, "software error", "", 5, is_drained=False, has_node=False),
)
REMAPPED = Fault("63", "GPU memory remapping event", "", 0, is_drained=False, is_fatal=False)


@dataclass(frozen=True)
class Said:
    """One line of a burst: how long after its first, and whether it reports the failure."""

    after_ns: int
    text: str
    is_report: bool = True


class _Gpu:
    """Writes the lines of one GPU and draws what differs between them."""

    def __init__(self, device: str, *, is_busy: bool, random: np.random.Generator) -> None:
        self.device = device
        self.slot = BUSES.index(device.split(":")[1])
        # The kernel names the process at fault, or none where none is.
        self.process = f"pid={41_000 + self.below(900, random)}, name=python3"
        self.nobody = "pid='<unknown>', name=<unknown>"
        self.user = self.process if is_busy else self.nobody
        self._random = random

    def below(self, limit: int, random: np.random.Generator | None = None) -> int:
        return int((random or self._random).random() * limit)

    def xid(self, after_ns: int, code: str, text: str, user: str | None = None) -> Said:
        who = f"{self.user if user is None else user}, " if user != "" else ""
        return Said(after_ns, f"NVRM: Xid (PCI:{self.device}): {code}, {who}{text}")

    def action(self, after_ns: int, *, is_reboot: bool) -> Said:
        request = "0x2 (Node Reboot Required)" if is_reboot else "0x1 (GPU Reset Required)"
        text = f"GPU recovery action changed from 0x0 (None) to {request}"
        return self.xid(after_ns, "154", text, self.nobody)


def _off_the_bus(gpu: _Gpu) -> list[Said]:
    return [
        gpu.xid(0, "79", "GPU has fallen off the bus."),
        Said(41_000, f"NVRM: GPU {gpu.device}.0: GPU has fallen off the bus."),
        Said(60_000, f"NVRM: GPU {gpu.device}.0: GPU serial number is .", is_report=False),
        gpu.action(2 * SECOND + gpu.below(900) * MILLISECOND, is_reboot=True),
    ]


def _double_bit(gpu: _Gpu) -> list[Said]:
    partition, row = gpu.below(12), 4096 + gpu.below(60_000)
    location = f"at partition {partition}, subpartition {gpu.below(2)}"
    text = "An uncorrectable double bit error (DBE) has been detected on GPU in the "
    text += f"framebuffer {location}."
    remap = f"Row Remapper: New row (0x{row:016x}) marked for remapping, reset gpu to activate."
    after = 3 * MILLISECOND
    channels = [
        gpu.xid((9 + nth) * MILLISECOND, "45", f"Ch {8 + nth:08x}", gpu.process)
        for nth in range(1 + gpu.below(3))
    ]
    ecc = [gpu.xid(0, "48", text, gpu.nobody), gpu.xid(after, "63", remap, gpu.nobody)]
    return ecc + channels


def _nvlink(gpu: _Gpu) -> list[Said]:
    link = gpu.below(_LINKS)
    words = ", ".join(["0x10000", *["0x0"] * 6])
    text = f"NVLink: fatal error detected on link {link}({words})"
    times = range(1 + gpu.below(4))
    return [gpu.xid(nth * 120 * MILLISECOND, "74", text, gpu.nobody) for nth in times]


def _nvlink5(gpu: _Gpu) -> list[Said]:
    link, status = gpu.below(_LINKS), 0x4000 + gpu.below(4096)
    text = f"NETIR_LINK_EVT Fatal XC0 i0 Link {link:02d} (0x{status:08x} 0x00000000 0x00000000)"
    times = range(1 + gpu.below(3))
    return [gpu.xid(nth * 15 * MILLISECOND, "149", text, "") for nth in times]


def _uncontained(gpu: _Gpu) -> list[Said]:
    text = "Uncontained: FBHUB. RST: Yes, D-RST: No"
    return [gpu.xid(0, "95", text, gpu.nobody), gpu.action(80 * MILLISECOND, is_reboot=False)]


def _contained(gpu: _Gpu) -> list[Said]:
    text = "Contained: SM (0x1). RST: No, D-RST: No"
    return [gpu.xid(0, "94", text), gpu.xid(12 * MILLISECOND, "45", _CHANNEL)]


def _processor_timeout(gpu: _Gpu) -> list[Said]:
    """Repeat every 6 s, as long as somebody asks."""
    calls = ("103 (GSP_RM_ALLOC) (0x2080 0x4)", "76 (GSP_RM_CONTROL) (0x20801813 0x4c)")
    times = 3 + gpu.below(7)
    lines = []
    for nth in range(times):
        words = f"RPC response from GPU{gpu.slot} GSP! Expected function {calls[min(nth, 1)]}."
        text = f"Timeout after 6s of waiting for {words}"
        lines.append(gpu.xid(6 * nth * SECOND + (gpu.below(900) * 1000 if nth else 0), "119", text))
    history = f"NVRM: GPU{gpu.slot} GSP RPC buffer contains function 103 (GSP_RM_ALLOC)"
    end = gpu.action(6 * times * SECOND, is_reboot=False)
    return [lines[0], Said(2_000, history, is_report=False), *lines[1:], end]


def _page_fault(gpu: _Gpu) -> list[Said]:
    address = 0x7F00_0000_0000 + 0x20_0000 * gpu.below(65_536)
    lines = []
    for nth in range(1 + gpu.below(4)):
        location = f"ENGINE GRAPHICS GPCCLIENT_T1_{nth} faulted @ 0x{address + 4096 * nth:x}"
        text = f"{_CHANNEL}, intr 00000000. MMU Fault: {location}. Fault is of type FAULT_PDE"
        lines.append(gpu.xid(nth * 30_000, "31", f"{text} ACCESS_TYPE_VIRT_READ", gpu.process))
    return [*lines, gpu.xid(4 * MILLISECOND, "43", _CHANNEL, gpu.process)]


def _exception(gpu: _Gpu) -> list[Said]:
    lines = []
    for nth in range(2 + gpu.below(6)):
        location = f"(GPC {gpu.below(8)}, TPC {gpu.below(9)}, SM {gpu.below(2)})"
        text = f"Graphics SM Warp Exception on {location}: Out Of Range Address"
        lines.append(gpu.xid(nth * 25_000, "13", text, gpu.process))
    return [*lines, gpu.xid(4 * MILLISECOND, "43", _CHANNEL, gpu.process)]


def _remapped(gpu: _Gpu) -> list[Said]:
    row = 4096 + gpu.below(60_000)
    text = f"Row Remapper: New row (0x{row:016x}) marked for remapping, reset gpu to activate."
    return [gpu.xid(0, "63", text, gpu.nobody)]


_BURSTS: dict[str | None, Callable[[_Gpu], list[Said]]] = {
    "79": _off_the_bus,
    "48": _double_bit,
    "74": _nvlink,
    "149": _nvlink5,
    "95": _uncontained,
    "94": _contained,
    "119": _processor_timeout,
    "31": _page_fault,
    "13": _exception,
    "63": _remapped,
}


def burst(
    fault: Fault, device: str, *, is_busy: bool, random: np.random.Generator
) -> tuple[Said, ...]:
    """Write what the kernel says of a fault, in order of time; nothing if it does not notice."""
    if fault.code is None:
        return ()
    return tuple(_BURSTS[fault.code](_Gpu(device, is_busy=is_busy, random=random)))


def harmless(random: np.random.Generator) -> tuple[Said, ...]:
    """Write a line or two that every healthy host writes now and then."""
    kind, number = int(random.random() * 4), int(random.random() * 8)
    if kind == 0:
        port = f"mlx5_core 0000:{16 + number:02x}:00.0 ibs{number}"
        back = int((2 + 20 * random.random()) * SECOND)
        return Said(0, f"{port}: Link down"), Said(back, f"{port}: Link up")
    if kind == 1:
        back = int((1 + 60 * random.random()) * SECOND)
        server = f"nfs: server data{1 + number:02d}"
        return Said(0, f"{server} not responding, still trying"), Said(back, f"{server} OK")
    if kind == 2:
        text = (
            "segfault at 0 ip 00005581c0a1 sp 00007ffd3f20 error 4 in node_exporter[5581c0a0+1f000]"
        )
        return (Said(0, f"node_exporter[{2_000 + 311 * number}]: {text}"),)
    return (Said(0, "perf: interrupt took too long (2510 > 2500), lowering its rate"),)


START_NS = int(datetime(2026, 1, 12, 8, tzinfo=UTC).timestamp()) * SECOND
STEP_NS, STEPS_BETWEEN_SAVES = 20 * SECOND, 360
_DAY_NS = 24 * 60 * MINUTE
# Some of them strike while the node is under repair.
_LEMON_FAILURE_SHARE = 0.3
# Means in minutes; all are lognormal.
_RECOVERY = {
    "detection": 4.0,
    "allocation": 3.0,
    "NCCL init": 1.5,
    "checkpoint load": 4.0,
    "first step": 1.5,
}
_SPREAD = 0.5
_LEAST_DETECTION_MIN, _MOST_DETECTION_MIN = 1.0, 10.0
_LEAST_REPAIR_MIN, _MEAN_REPAIR_MIN = 60.0, 420.0
_REMAPS_PER_NODE_DAY = 0.005
# Two bursts of one device are this far apart, so that nobody takes them for one.
_APART_NS = 20 * MINUTE


@dataclass(frozen=True)
class Cluster:
    """The nodes of the job, its spares, and how often all of them fail."""

    seed: int
    node_count: int
    days: float
    failure_interval_min: float
    lemon_count: int

    @property
    def nodes(self) -> tuple[str, ...]:
        total = self.node_count + max(2, self.node_count // 16)
        width = max(3, len(str(total)))
        return tuple(f"node{number:0{width}d}" for number in range(1, total + 1))

    @property
    def end_ns(self) -> int:
        return START_NS + int(self.days * _DAY_NS)

    def lemons(self) -> tuple[str, ...]:
        """Hosts that fail far more often; the job has them from its beginning."""
        order = np.argsort(self.random(1).random(self.node_count), kind="stable")
        return tuple(sorted(self.nodes[position] for position in order[: self.lemon_count]))

    def random(self, *stream: int) -> np.random.Generator:
        """Give everything that is drawn a stream of its own."""
        return np.random.default_rng([self.seed, *stream])


@dataclass(frozen=True)
class Strike:
    """A node fails; how long the job would need to go on, and the node to be well again."""

    number: int
    at_ns: int
    node: str
    detection_ns: int
    allocation_ns: int
    startup_ns: int
    repair_ns: int


@dataclass(frozen=True)
class Incident:
    """A failure, and the kernel's message."""

    fault: Fault
    at_ns: int
    node: str
    device: str
    lines: tuple[Said, ...]

    @property
    def end_ns(self) -> int:
        return self.at_ns + max((line.after_ns for line in self.lines), default=0)


@dataclass
class Attempt:
    number: int
    nodes: tuple[str, ...]
    submit_ns: int
    ready_ns: int
    running_ns: int
    first_step: int
    last_step: int = 0
    saved_step: int = 0
    stopped_ns: int = 0  # when it failed, or was done
    end_ns: int = 0  # when that was noticed
    spare: str | None = None
    incident: Incident | None = None
    saves: list[tuple[int, int | None, int]] = field(default_factory=list)  # start, end, step


@dataclass
class History:
    cluster: Cluster
    incidents: list[Incident]
    attempts: list[Attempt]
    repairs: list[tuple[str, int, int]]  # node, from, until


def history(cluster: Cluster) -> History:
    """Let nodes fail and the job go on, to the end."""
    job = _Job(cluster)
    for strike in _strikes(cluster):
        job.hit(strike)
    job.finish()
    incidents = [*job.incidents, *_remaps(cluster, job)]
    incidents.sort(key=lambda incident: (incident.at_ns, incident.node))
    return History(cluster, incidents, job.attempts, job.repairs)


def _strikes(cluster: Cluster) -> Iterator[Strike]:
    lemons, nodes = cluster.lemons(), cluster.nodes
    process = FailureProcess(
        failure_interval_min=cluster.failure_interval_min,
        node_count=len(nodes),
        lemon_share=len(lemons) / len(nodes),
        lemon_failure_share=_LEMON_FAILURE_SHARE if lemons else 0.0,
        repair_min=_MEAN_REPAIR_MIN,
    )
    horizon = cluster.days * 24 * 60
    drawn = failure_times(
        process,
        horizon_min=horizon,
        seed=cluster.seed,
        runs=1,
        replicas=1,
        recovery_min=_RECOVERY,
        recovery_spread=_SPREAD,
    )
    # The process numbers lemons last.
    hosts = [*(node for node in nodes if node not in lemons), *lemons]
    for number, row in enumerate(drawn[drawn["time_min"] < horizon].to_dict("records")):
        yield _strike(number, row, hosts)


def _strike(number: int, row: Mapping[Any, Any], hosts: list[str]) -> Strike:
    detection = min(max(row["detection_min"], _LEAST_DETECTION_MIN), _MOST_DETECTION_MIN)
    startup = row["init_min"] + row["load_min"] + row["first_step_min"]
    return Strike(
        number,
        at_ns=START_NS + _whole(row["time_min"]),
        node=hosts[int(row["node"])],
        detection_ns=_whole(detection),
        allocation_ns=_whole(row["allocation_min"]),
        startup_ns=_whole(startup),
        repair_ns=_whole(_LEAST_REPAIR_MIN + row["repair_min"]),
    )


def _whole(minutes: float) -> int:
    """Turn minutes into ns, whole microseconds: what logs can write."""
    return round(minutes * 60_000_000) * 1000


class _Job:
    def __init__(self, cluster: Cluster) -> None:
        self.incidents: list[Incident] = []
        self.attempts: list[Attempt] = []
        self.repairs: list[tuple[str, int, int]] = []
        self._cluster = cluster
        self._lemons = cluster.lemons()
        self._well_again: dict[str, int] = {}
        self._last_line: dict[tuple[str, str], int] = {}
        first = cluster.nodes[: cluster.node_count]
        running = START_NS + 8 * MINUTE
        self._attempt = Attempt(1, first, START_NS - 2 * MINUTE, START_NS, running, first_step=0)
        self._stopped_by: Strike | None = None

    def hit(self, strike: Strike) -> None:
        self._go_on(strike.at_ns)
        is_member = strike.node in self._attempt.nodes
        is_out = self._well_again.get(strike.node, 0) > strike.at_ns
        if is_out or (is_member and self._stopped_by):
            return
        incident = self._incident(strike, is_busy=is_member)
        self.incidents.append(incident)
        if incident.fault.is_drained:
            self._well_again[strike.node] = strike.at_ns + strike.repair_ns
            self.repairs.append((strike.node, strike.at_ns, self._well_again[strike.node]))
        if is_member:
            self._stop(strike, incident)

    def finish(self) -> None:
        """Run to the end, or an hour more if the last failure was just before it."""
        self._go_on(None)
        end = max(self._cluster.end_ns, self._attempt.running_ns + 60 * MINUTE)
        self._attempt.stopped_ns = self._attempt.end_ns = end // SECOND * SECOND
        self._work()
        self.attempts.append(self._attempt)

    def _incident(self, strike: Strike, *, is_busy: bool) -> Incident:
        random = self._cluster.random(2, strike.number)
        is_lemon = strike.node in self._lemons
        fault = _drawn(random.random(), is_hardware=is_lemon or not is_busy)
        slot = int(random.random() * len(BUSES))
        if is_lemon:  # It is always the same GPU.
            slot = int(self._cluster.random(3, self._lemons.index(strike.node)).random() * 8)
        device = self._quiet_device(strike, slot)
        lines = burst(fault, device, is_busy=is_busy, random=random)
        incident = Incident(fault, strike.at_ns, strike.node, device, lines)
        self._last_line[strike.node, device] = incident.end_ns
        return incident

    def _quiet_device(self, strike: Strike, slot: int) -> str:
        devices = [f"0000:{bus}:00" for bus in BUSES[slot:] + BUSES[:slot]]
        last = [self._last_line.get((strike.node, device), 0) for device in devices]
        quiet = [
            device
            for device, at in zip(devices, last, strict=True)
            if at < strike.at_ns - _APART_NS
        ]
        return quiet[0] if quiet else devices[int(np.argmin(last))]

    def _stop(self, strike: Strike, incident: Incident) -> None:
        self._attempt.stopped_ns = strike.at_ns
        self._attempt.end_ns = strike.at_ns + strike.detection_ns
        self._attempt.incident = incident
        self._work()
        self.attempts.append(self._attempt)
        self._stopped_by = strike

    def _work(self) -> None:
        """Count the steps of the attempt, and save them every two hours of work."""
        attempt = self._attempt
        random = self._cluster.random(4, attempt.number)
        at, step = attempt.running_ns, attempt.first_step
        attempt.saved_step = step
        # A save that has begun when the job stops is listed without an end, and its steps are lost.
        while (start := at + STEPS_BETWEEN_SAVES * STEP_NS) <= attempt.stopped_ns:
            step += STEPS_BETWEEN_SAVES
            at = start + _whole(0.5 + random.random())
            is_done = at <= attempt.stopped_ns
            attempt.saves.append((start, at if is_done else None, step))
            if is_done:
                attempt.saved_step = step
        attempt.last_step = step + max(0, (attempt.stopped_ns - at) // STEP_NS)

    def _go_on(self, now: int | None) -> None:
        """Begin the next attempt if its nodes are there by now (None: whenever that is)."""
        strike, before = self._stopped_by, self._attempt
        if strike is None or before.incident is None:
            return
        ready, spare = before.end_ns + strike.allocation_ns, None
        if before.incident.fault.is_drained:
            ready, spare = self._spare(strike.node, ready)
        if now is not None and ready > now:
            return
        nodes = tuple(sorted(spare if spare and n == strike.node else n for n in before.nodes))
        running, step = ready + strike.startup_ns, before.saved_step
        self._attempt = Attempt(
            before.number + 1, nodes, before.end_ns, ready, running, step, spare=spare
        )
        self._stopped_by = None

    def _spare(self, lost: str, ready: int) -> tuple[int, str]:
        """Find the first host that is well and not of the job, waiting for one if necessary."""
        candidates = [n for n in self._cluster.nodes if n == lost or n not in self._attempt.nodes]
        ready = max(ready, min(self._well_again.get(node, 0) for node in candidates))
        return ready, next(node for node in candidates if self._well_again.get(node, 0) <= ready)


def _drawn(share: float, *, is_hardware: bool) -> Fault:
    faults = [f for f in FAULTS if not is_hardware or (f.code and f.is_drained)]
    weights = np.cumsum([fault.weight for fault in faults])
    return faults[int(np.searchsorted(weights, share * weights[-1], side="right"))]


def _remaps(cluster: Cluster, job: _Job) -> list[Incident]:
    """Let healthy GPUs remap rows of memory now and then, which stops nothing."""
    random = cluster.random(5)
    failed = {incident.node for incident in job.incidents}
    healthy = [node for node in cluster.nodes if node not in failed]
    remaps = []
    for node in healthy:
        if random.random() < _REMAPS_PER_NODE_DAY * cluster.days:
            at = START_NS + _whole(random.random() * cluster.days * 24 * 60)
            device = f"0000:{BUSES[int(random.random() * len(BUSES))]}:00"
            lines = burst(REMAPPED, device, is_busy=False, random=random)
            remaps.append(Incident(REMAPPED, at, node, device, lines))
    return remaps
