"""Lines of XLA's profiles: streams of devices, threads of hosts, or repetitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workbench._shared.kernel_kinds import rules_of
from workbench.load._traces.columns import Codes, IntArray, Rows
from workbench.load._traces.kineto.blocks import MISSING, Texts

# Statistics that have a column: correlation of a call and its work, number of a step, size.
CORRELATION, STEP = "correlation_id", "step_num"
COPIES = ("memcpy_details", "memset_details")
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")

_DEVICE = re.compile(r"^/device:(GPU|TPU):(\d{1,6})")
_STREAM = re.compile(r"^Stream #(\d{1,18})")
_OPS, _ASYNC_OPS = "XLA Ops", "Async XLA Ops"
_SPANS = ("XLA Modules", "Steps")
_CALL = re.compile(r"^(?:cuda|hip)[A-Z]")
_DRIVER_CALL = re.compile(r"^cu[A-Z]")
_MARK = "ProfilerStep#"
# An instruction of XLA in full: %name = shape opcode(operands), attributes.
_HLO = re.compile(r"^%?(?P<name>[\w.-]+) = .*?[\]}) ](?P<opcode>[a-z][a-z0-9-]*)\(")
# Loops and branches, whose own operations stand on the same line.
_CONTROL_FLOW = re.compile(r"^(?:while|conditional)(?:\.\w+)*$")
_IN_FLIGHT = " (in flight)"


def instruction_name(text: str) -> str:
    """Return the name of an instruction that is spelled in full, any other text as it is.

    Names are mostly made of the opcode; where not, it is put in front.

    Examples
    --------
    >>> instruction_name("%copy-start.3 = (f32[8]{0}, u32[]) copy-start(f32[8]{0} %all-reduce.1)")
    'copy-start.3'
    >>> instruction_name("%psum.7 = f32[8]{0} all-reduce(f32[8]{0} %dot.2), to_apply=%add")
    'all-reduce.psum.7'
    """
    match = _HLO.match(text)
    if match is None:
        return text.removeprefix("%")
    name, opcode = match["name"], match["opcode"]
    is_told = opcode in name or opcode in ("fusion", "custom-call")
    return name if is_told else f"{opcode}.{name}"


def copied_bytes(details: str) -> int:
    """Return the size that the details of a copy state.

    Examples
    --------
    >>> copied_bytes("kind_src:host kind_dst:device size:4096 dest:0 async:1")
    4096
    """
    match = _SIZE.search(details)
    return int(match[1]) if match else MISSING


@dataclass(frozen=True)
class Line:
    """One line of a plane.

    Attributes
    ----------
    has_streams
        Whether a line of the plane shows a stream, so that lines of operations repeat its work.
    """

    plane: str
    name: str
    number: int = 0
    has_streams: bool = False

    @cached_property
    def device(self) -> int | None:
        match = _DEVICE.match(self.plane)
        return int(match[2]) if match else None

    @cached_property
    def is_work(self) -> bool:
        """Whether the rows occupy a device."""
        if self.device is None:
            return False
        return bool(is_stream(self.name)) or (
            self.name in (_OPS, _ASYNC_OPS) and not self.has_streams
        )

    @property
    def is_device_steps(self) -> bool:
        return self.device is not None and self.name == "Steps"

    @property
    def left_out(self) -> str:
        """Explain why the line has no place in the tables; '' if it has one."""
        if self.device is None:
            is_host = self.plane.startswith("/host:")
            return "" if is_host else f"plane {self.plane[:60]!r}, which has no place here"
        if self.is_work or self.name in _SPANS:
            return ""
        return f"line {self.name[:60]!r} of devices, which repeats the work of other lines"

    def rows(
        self,
        times: tuple[IntArray, IntArray],
        kind: IntArray,
        names: Names,
        numbers: Mapping[str, IntArray],
    ) -> Rows:
        """Make rows of the events of this line, given which of the names each has."""
        count, texts = len(kind), names.texts
        number = dict(numbers)
        steps = number.pop(STEP, None)
        correlation = number.pop(CORRELATION, None)
        if correlation is not None:
            number["correlation"] = correlation
        if self.is_device_steps:
            steps = names.steps[kind]
        codes = names.in_flight if self.name == _ASYNC_OPS else names.codes
        name, category = codes[kind], names.of_category(self)[kind]
        is_step = np.zeros(0, np.bool_) if steps is None else (steps >= 0) & (steps < 10**9)
        for row in np.flatnonzero(is_step):
            name[row] = texts.code(f"{_MARK}{steps[row]}")  # type: ignore[index]
            category[row] = texts.code("user_annotation")
        device = self.device
        if device is not None:
            stream = is_stream(self.name)
            number["device"] = np.full(count, device, np.int64)
            number["stream"] = np.full(count, int(stream[1]) if stream else self.number, np.int64)
        process = str(device) if device is not None else self.plane
        process_code = np.full(count, texts.code(process), np.int32)
        thread_code = np.full(count, texts.code(self.name), np.int32)
        return Rows(*times, name, category, process_code, thread_code, number)

    def category(self, name: str) -> str:
        if self.device is not None:
            if not self.is_work or (self.name == _OPS and _CONTROL_FLOW.match(name)):
                return "gpu_user_annotation"
            is_copy = name.startswith(("Memcpy", "MemCpy")), name.startswith(("Memset", "MemSet"))
            return {(True, False): "gpu_memcpy", (False, True): "gpu_memset"}.get(is_copy, "kernel")
        if name.startswith("$"):
            return "python_function"
        if _CALL.match(name):
            return "cuda_runtime"
        return "cuda_driver" if _DRIVER_CALL.match(name) else "cpu_op"


def is_stream(name: str) -> re.Match[str] | None:
    """Recognise a line that shows a stream of a GPU."""
    return _STREAM.match(name)


def _step(name: str) -> int:
    return int(name) if name.isdecimal() and len(name) < 10 else MISSING


class Names:
    """The distinct names of the events of some lines, and what follows from them, found once."""

    def __init__(self, spelled: Sequence[str], texts: Texts) -> None:
        self._spelled, self.texts = [instruction_name(text) for text in spelled], texts
        self.codes = np.array([texts.code(text) for text in self._spelled], np.int32)
        self._categories: dict[tuple[bool, bool, bool], Codes] = {}

    @cached_property
    def steps(self) -> IntArray:
        return np.array([_step(text) for text in self._spelled], np.int64)

    @cached_property
    def in_flight(self) -> Codes:
        """Number of each name on a line of work in flight, which computes nothing there."""
        kinds = [kind for kind, _ in rules_of(self._spelled)]
        is_moving = [kind in ("communication", "memory") for kind in kinds]
        spelled = [
            text if moves else f"{text}{_IN_FLIGHT}"
            for text, moves in zip(self._spelled, is_moving, strict=True)
        ]
        return np.array([self.texts.code(text) for text in spelled], np.int32)

    def of_category(self, line: Line) -> Codes:
        """Return the category of each name, which depends on the line."""
        key = (line.device is None, line.is_work, line.name == _OPS)
        if key not in self._categories:
            coded = [self.texts.code(line.category(text)) for text in self._spelled]
            self._categories[key] = np.array(coded, np.int32)
        return self._categories[key]


def one_kind_of_steps(parts: Sequence[tuple[Line, Rows]], texts: Texts) -> list[Rows]:
    """Leave out the steps of devices where the host marked its own.

    Hosts know when a step began, devices when its work did.
    """
    spelled = texts.all()
    is_marked = any(
        spelled[code].startswith(_MARK)
        for line, rows in parts if line.device is None
        for code in np.unique(rows.name)
    )  # fmt: skip
    return [rows for line, rows in parts if not (line.is_device_steps and is_marked)]
