"""Call stacks as one line of text, and the phase of training that they show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

# Innermost frames that are written out; the phase is read from all of them.
_SHOWN_FRAMES = 8
_LONGEST_FRAME = 200
# Frames of the interpreter and of the recorder itself, which torch's own viewer hides as well.
_NOISE = re.compile(
    r"unwind::unwind|CapturedTraceback::gather|gather_with_cpp|^_start$|__libc_start|^_?PyEval_"
    r"|^_?PyObject_|^_?PyFunction_|core/boxing|/Register|/Redispatch|Modules/main\.c|ceval\.c"
    r"|Objects/(?:call|methodobject)\.c|cpython/abstract\.h|pythonrun\.c"
)
_BACKWARD = re.compile(r"autograd::[Ee]ngine|_engine_run_backward|autograd/graph\.py|\bbackward\b")
# The innermost frame that fits decides: an optimizer is called by a training loop, not around it.
_PHASES = (
    ("optimizer", re.compile(r"/optim/|Optimizer\.(?:step|zero_grad)|optimizer\.step")),
    ("communication", re.compile(r"torch/distributed/|ProcessGroup|\bnccl|c10d::", re.IGNORECASE)),
    ("backward", _BACKWARD),
    ("parameters", re.compile(r"^(?:__init__|reset_parameters|_apply|to) \(.*\bnn/")),
    ("forward", re.compile(r"\bforward\b|nn/modules/|nn\.Module: ")),
)


class Stack(NamedTuple):
    """A call stack as text and the phase it shows; None where there is none."""

    text: str | None
    phase: str | None


_NO_STACK = Stack(None, None)


def stack_of(frames: Sequence[str]) -> Stack:
    """Write frames, innermost first, as one line.

    Examples
    --------
    >>> stack_of(["forward (nn/modules/linear.py:125)", "main (train.py:9)"])
    Stack(text='forward (nn/modules/linear.py:125) < main (train.py:9)', phase='forward')
    """
    read = [_read(text) for text in frames]
    return _stack(read, is_backward=any(frame.is_backward for frame in read))


class _Frame(NamedTuple):
    """A frame, and what it says by itself."""

    shown: str
    is_noise: bool
    is_python: bool
    phase: str | None
    is_backward: bool


# The stacks of a job are many, their frames are few.
@lru_cache(maxsize=1 << 16)
def _read(text: str) -> _Frame:
    phase = next((phase for phase, pattern in _PHASES if pattern.search(text)), None)
    is_noise, is_backward = bool(_NOISE.search(text)), bool(_BACKWARD.search(text))
    return _Frame(text[:_LONGEST_FRAME], is_noise, ".py:" in text, phase, is_backward)


def _stack(frames: Sequence[_Frame], *, is_backward: bool) -> Stack:
    # Mostly the innermost frames are enough.
    shown = [*islice((f for f in frames if f.is_python and not f.is_noise), _SHOWN_FRAMES)]
    if not shown:
        shown = [frame for frame in frames if not frame.is_noise] or [*frames]
        shown = [frame for frame in shown if frame.is_python] or shown
    phase = next((frame.phase for frame in frames if frame.phase), None)
    # Activation checkpointing runs the forward pass again inside the backward one.
    phase = "recompute" if phase == "forward" and is_backward else phase
    text = " < ".join(frame.shown for frame in shown[:_SHOWN_FRAMES] if frame.shown)
    return Stack(text or None, phase)


class StackTexts:
    """Makes stacks of the frames of a snapshot, which share them among thousands of actions.

    Lists and frames live as long as the snapshot, so their identities are keys.
    """

    def __init__(self) -> None:
        self._of_list: dict[int, Stack] = {}
        self._stacks: dict[tuple[int, ...], Stack] = {}
        self._frames: dict[int, _Frame] = {}
        self._backward: set[int] = set()

    def of(self, frames: Any) -> Stack:
        """Return the stack of a list of frames, as the snapshot holds it."""
        if not isinstance(frames, list) or not frames:
            return _NO_STACK
        if (stack := self._of_list.get(id(frames))) is None:
            key = tuple(map(id, frames))
            if (stack := self._stacks.get(key)) is None:
                stack = self._stacks[key] = self._made(frames, key)
            self._of_list[id(frames)] = stack
        return stack

    def _made(self, frames: Sequence[Any], key: Sequence[int]) -> Stack:
        try:
            read = [*map(self._frames.__getitem__, key)]
        except KeyError:
            self._frames |= {id(frame): _read(_frame_text(frame)) for frame in frames}
            read = [self._frames[number] for number in key]
            self._backward |= {number for number in key if self._frames[number].is_backward}
        return _stack(read, is_backward=not self._backward.isdisjoint(key))


def _frame_text(frame: Any) -> str:
    if not isinstance(frame, dict):
        return ""
    name, line = frame.get("name"), frame.get("line")
    # Enough of the path to tell files of one name apart.
    file = "/".join(str(frame.get("filename") or "").replace("\\", "/")[-400:].split("/")[-4:])
    name = name if isinstance(name, str) else "?"
    return f"{name} ({file}:{line})" if file and isinstance(line, int) else name
