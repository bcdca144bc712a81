"""What a kernel writes when a GPU fails: bursts of lines, and much that means nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MILLISECOND, SECOND, MINUTE = 1_000_000, 1_000_000_000, 60_000_000_000
BUSES = ("1b", "43", "52", "61", "9b", "c3", "d1", "df")
_CHANNEL = "Ch 00000008"
_LINKS = 18


@dataclass(frozen=True)
class Fault:
    """A way to fail.

    Attributes
    ----------
    code
        Xid that leads the burst; None where the kernel says nothing.
    cause
        What fails, in words.
    other_codes
        Further Xids of the burst.
    weight
        How often it happens, beside the others.
    is_drained
        Whether the node is taken out for repair, so that the job needs another.
    has_node
        Whether a host is at fault.
    is_fatal
        Whether what runs there cannot go on.
    """

    code: str | None
    cause: str
    other_codes: str
    weight: float
    is_drained: bool = True
    has_node: bool = True
    is_fatal: bool = True


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
        """Draw a whole number; ``random()`` gives the same stream in every version of numpy."""
        return int((random or self._random).random() * limit)

    def xid(self, after_ns: int, code: str, text: str, user: str | None = None) -> Said:
        """Write a numbered error."""
        who = f"{self.user if user is None else user}, " if user != "" else ""
        return Said(after_ns, f"NVRM: Xid (PCI:{self.device}): {code}, {who}{text}")

    def action(self, after_ns: int, *, is_reboot: bool) -> Said:
        """Write what the driver asks for."""
        asked = "0x2 (Node Reboot Required)" if is_reboot else "0x1 (GPU Reset Required)"
        text = f"GPU recovery action changed from 0x0 (None) to {asked}"
        return self.xid(after_ns, "154", text, self.nobody)


def _off_the_bus(gpu: _Gpu) -> list[Said]:
    return [
        gpu.xid(0, "79", "GPU has fallen off the bus."),
        Said(41_000, f"NVRM: GPU {gpu.device}.0: GPU has fallen off the bus."),
        Said(60_000, f"NVRM: GPU {gpu.device}.0: GPU serial number is .", is_report=False),
        gpu.action(2 * SECOND + gpu.below(900) * MILLISECOND, is_reboot=True),
    ]


def _double_bit(gpu: _Gpu) -> list[Said]:
    part, row = gpu.below(12), 4096 + gpu.below(60_000)
    told = f"at partition {part}, subpartition {gpu.below(2)}"
    text = "An uncorrectable double bit error (DBE) has been detected on GPU in the "
    text += f"framebuffer {told}."
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
        told = f"RPC response from GPU{gpu.slot} GSP! Expected function {calls[min(nth, 1)]}."
        text = f"Timeout after 6s of waiting for {told}"
        lines.append(gpu.xid(6 * nth * SECOND + (gpu.below(900) * 1000 if nth else 0), "119", text))
    history = f"NVRM: GPU{gpu.slot} GSP RPC buffer contains function 103 (GSP_RM_ALLOC)"
    end = gpu.action(6 * times * SECOND, is_reboot=False)
    return [lines[0], Said(2_000, history, is_report=False), *lines[1:], end]


def _page_fault(gpu: _Gpu) -> list[Said]:
    address = 0x7F00_0000_0000 + 0x20_0000 * gpu.below(65_536)
    lines = []
    for nth in range(1 + gpu.below(4)):
        place = f"ENGINE GRAPHICS GPCCLIENT_T1_{nth} faulted @ 0x{address + 4096 * nth:x}"
        text = f"{_CHANNEL}, intr 00000000. MMU Fault: {place}. Fault is of type FAULT_PDE"
        lines.append(gpu.xid(nth * 30_000, "31", f"{text} ACCESS_TYPE_VIRT_READ", gpu.process))
    return [*lines, gpu.xid(4 * MILLISECOND, "43", _CHANNEL, gpu.process)]


def _exception(gpu: _Gpu) -> list[Said]:
    lines = []
    for nth in range(2 + gpu.below(6)):
        place = f"(GPC {gpu.below(8)}, TPC {gpu.below(9)}, SM {gpu.below(2)})"
        text = f"Graphics SM Warp Exception on {place}: Out Of Range Address"
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
