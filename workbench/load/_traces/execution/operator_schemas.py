"""Operator schemas as PyTorch writes them, and which of them may be called."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"([A-Za-z_]\w{0,99})::([A-Za-z_]\w{0,99})(?:\.([A-Za-z_]\w{0,99}))?")
_ARGUMENT = re.compile(r"(?P<type>\S.*?) (?P<name>[A-Za-z_]\w*)(?:=.*)?", re.DOTALL)
_MOST_CHARACTERS = 20_000
# Types of which values can be made from what a trace records.
_VALUES = {
    "Tensor", "Scalar", "int", "float", "bool", "ScalarType", "Layout", "Device", "MemoryFormat",
    "Generator",
}  # fmt: skip
# Texts steer an operator or name a file; only the former are let through.
_TEXTS = {"rounding_mode", "approximate", "reduce", "mode", "padding", "indexing", "side"}


class Argument(NamedTuple):
    """One argument of a schema: its type without aliases and lengths, and its name."""

    type: str
    name: str
    is_keyword: bool


class Schema(NamedTuple):
    """An operator: namespace, name, overload ('' for the default one), arguments."""

    namespace: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]


def parse(text: str) -> Schema | None:
    """Read a schema; None if it is none.

    Examples
    --------
    >>> schema = parse("aten::add.Tensor(Tensor(a!) self, *, Scalar alpha=1) -> Tensor")
    >>> schema.name, schema.overload, schema.arguments[1]
    ('add', 'Tensor', Argument(type='Scalar', name='alpha', is_keyword=True))
    """
    named = _NAME.match(text) if len(text) <= _MOST_CHARACTERS else None
    if named is None or text[named.end() : named.end() + 1] != "(":
        return None
    parts = _split(text[named.end() + 1 :])
    if parts is None:
        return None
    arguments: list[Argument] = []
    is_keyword = False
    for part in parts:
        if part == "*":
            is_keyword = True
            continue
        fits = _ARGUMENT.fullmatch(part)
        if fits is None:
            return None
        arguments.append(Argument(plain_type(fits["type"]), fits["name"], is_keyword))
    namespace, name, overload = named.groups()
    return Schema(namespace, name, overload or "", tuple(arguments))


def plain_type(text: str) -> str:
    """Return a type without aliases, symbolic numbers and fixed lengths.

    Examples
    --------
    >>> plain_type("Tensor(a!)[]"), plain_type("SymInt[2]?")
    ('Tensor[]', 'int[]?')
    """
    bare = re.sub(r"\([^()]*\)", "", text).replace("SymInt", "int")
    return re.sub(r"\[\d+\]", "[]", bare).strip()


def unusable(schema: Schema) -> str | None:
    """Say why an operator must not or cannot be called with recorded values; None if it can."""
    for argument in schema.arguments:
        bare = argument.type.replace("?", "").replace("[]", "")
        if bare == "str" and argument.name in _TEXTS:
            continue
        if bare not in _VALUES:
            known = bare if re.fullmatch(r"\w{1,30}", bare) else "unknown type"
            return f"takes a {known}, which a trace does not hold"
    return None


def _split(text: str) -> list[str] | None:
    """Cut the arguments at their commas; None if the list does not end."""
    parts: list[str] = []
    depth = begin = 0
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([":
            depth += 1
        elif sign in ")]" and depth:
            depth -= 1
        elif sign in ",)" and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
            if sign == ")":
                return [part for part in parts if part]
    return None
