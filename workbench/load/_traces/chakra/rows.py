"""What of a node the Chakra schema cannot hold, as one attribute of it.

Chakra counts microseconds, does not write 0, and knows neither callers nor the node types of
PyTorch. A file of the workbench stays readable by every tool of Chakra and still gives back the
very rows that were written.
"""

from __future__ import annotations

import json

from workbench.load._files.findings import Findings
from workbench.load._traces.graph import NodeRow, clean_text

ATTRIBUTE = b"workbench_row"
_TEXTS = ("type", "collective", "group")
_COUNTS = ("dur_ns", "size_bytes")
_NUMBERS = ("parent", "start_ns", "record_function", *_COUNTS)
# Numbers must fit the int64 columns they are put back into.
_MOST_BITS = 63


def exact(wanted: NodeRow, plain: NodeRow) -> bytes | None:
    """Return the attribute that turns ``plain``, as it would be read, into ``wanted``."""
    names = (*_TEXTS, *_NUMBERS, "is_cpu")
    values = {name: (getattr(wanted, name), getattr(plain, name)) for name in names}
    differing = {name: value for name, (value, read) in values.items() if value != read}
    return json.dumps(differing, separators=(",", ":")).encode() if differing else None


def restored(plain: NodeRow, attribute: object, findings: Findings) -> NodeRow:
    """Return a node as it was written; an attribute that makes no sense is dropped, counted."""
    if attribute is None:
        return plain
    try:
        stated = json.loads(attribute) if isinstance(attribute, bytes) else None
    except (ValueError, RecursionError):
        stated = None
    is_sound = isinstance(stated, dict) and all(map(_is_sound, stated, stated.values()))
    if not is_sound or not isinstance(stated, dict):
        findings.add("dropped", "exact times and types of nodes that cannot be read", 1)
        return plain
    texts = {
        name: clean_text(text, findings) for name, text in stated.items() if isinstance(text, str)
    }
    return plain._replace(**{**stated, **texts})


def _is_sound(name: object, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str) or (value is None and name != "type")
    if name == "is_cpu":
        return value is None or isinstance(value, bool)
    if name not in _NUMBERS:
        return False
    if value is None:
        return True
    is_number = type(value) is int and value.bit_length() <= _MOST_BITS
    return is_number and not (name in _COUNTS and value < 0)  # type: ignore[operator]
