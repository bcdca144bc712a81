"""Call stacks as one line of text, and the phase of training that they show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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


def stack_of(frames: Sequence[str]) -> Stack:
    """Write frames, innermost first, as one line.

    Examples
    --------
    >>> stack_of(["forward (nn/modules/linear.py:125)", "main (train.py:9)"])
    Stack(text='forward (nn/modules/linear.py:125) < main (train.py:9)', phase='forward')
    """
    if not frames:
        return Stack(None, None)
    shown = [frame for frame in frames if not _NOISE.search(frame)] or list(frames)
    python = [frame for frame in shown if ".py:" in frame] or shown
    text = " < ".join(frame[:_LONGEST_FRAME] for frame in python[:_SHOWN_FRAMES])
    return Stack(text, _phase(frames))


def _phase(frames: Sequence[str]) -> str | None:
    for frame in frames:
        for phase, pattern in _PHASES:
            if pattern.search(frame):
                # Activation checkpointing runs the forward pass again inside the backward one.
                is_again = phase == "forward" and any(map(_BACKWARD.search, frames))
                return "recompute" if is_again else phase
    return None


class StackTexts:
    """Makes stacks of the frames of a snapshot, which share them among thousands of actions."""

    def __init__(self) -> None:
        self._stacks: dict[int, Stack] = {}
        self._frames: dict[int, str] = {}

    def of(self, frames: Any) -> Stack:
        """Return the stack of a list of frames, as the snapshot holds it."""
        if not isinstance(frames, list) or not frames:
            return Stack(None, None)
        # Lists live as long as the snapshot, so their identity is a key.
        key = id(frames)
        if key not in self._stacks:
            self._stacks[key] = stack_of([*self._texts(frames)])
        return self._stacks[key]

    def _texts(self, frames: Iterable[Any]) -> Iterable[str]:
        for frame in frames:
            if isinstance(frame, dict):
                key = id(frame)
                if key not in self._frames:
                    self._frames[key] = _frame_text(frame)
                yield self._frames[key]


def _frame_text(frame: dict[Any, Any]) -> str:
    name, line = frame.get("name"), frame.get("line")
    # Enough of the path to tell files of one name apart.
    file = "/".join(str(frame.get("filename") or "").replace("\\", "/")[-400:].split("/")[-4:])
    name = name if isinstance(name, str) else "?"
    return f"{name} ({file}:{line})" if file and isinstance(line, int) else name
