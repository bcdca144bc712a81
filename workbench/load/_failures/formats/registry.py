"""Readers of failure logs, chosen by content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.load._files import signatures
from workbench.load._files.archive import Source
from workbench.load._files.signatures import KERNEL_LOG, Signature, fitting
from workbench.load._files.stream import BLOCK_BYTES
from workbench.load._files.time import LogFormat

_KERNEL_HEAD = re.compile(
    rb"kern|NVRM|amdgpu|Linux version|^\[ *\d+\.\d{6}\]|^\[\w{3} \w{3} ", re.MULTILINE
)
_KERNEL_MARKS = (
    b"NVRM: Xid (", b": SXid (PCI:", b"NVRM: GPU ", b"kernel: Kernel panic", b"] Kernel panic",
    b"kernel: Out of memory: ", b"] Out of memory: Killed", b"kernel: amdgpu ", b"] amdgpu ",
    b"[Hardware Error]: ",
)  # fmt: skip
# Entries of a journal over several lines: journalctl -o export, verbose, json-sse, json-pretty.
_JOURNAL_HEAD = re.compile(
    rb'\A(?:__CURSOR=s=|.{20,60}\[s=[0-9a-f]{32};i=|data: \{"_*[A-Z]|\s*\{\s*"_*[A-Z]+[A-Z_]*" : )'
)
# Profiles are large, and no log; nobody should search them to their end.
_TRACE_HEAD = re.compile(rb'"traceEvents"|"schemaVersion"|"deviceProperties"|\APAR1')


def looks_like_a_trace(head: bytes) -> bool:
    return bool(_TRACE_HEAD.search(head))


def looks_like_a_log(head: bytes, label: str) -> bool:
    is_other = _TRACE_HEAD.search(head) or _JOURNAL_HEAD.search(head)
    return not is_other and fitting(signatures.FAILURE_FORMATS, head, label) is not None


def readers_of(source: Source, head: bytes) -> tuple[list[LogFormat], bool]:
    """Return the readers for a file, none if nobody knows it; report if they miss an Xid.

    A console log holds what several programs wrote, often gigabytes after its beginning: its
    lines are looked for in the whole file. A job may have printed the kernel's lines, too,
    which nobody reads there.
    """
    if _TRACE_HEAD.search(head) or _JOURNAL_HEAD.search(head):
        return [], False
    if form := fitting(signatures.FAILURE_FILES, head, source.label):
        return [form.reader], False
    is_system_log = KERNEL_LOG.fits(head, source.label)
    chosen = [form for form in signatures.CONSOLE_LOGS if form.fits(head, source.label)]
    if not (is_system_log and _KERNEL_HEAD.search(head)) and b"\0" not in head:
        missing: dict[Signature, Sequence[bytes]] = {
            form: form.anywhere for form in signatures.CONSOLE_LOGS if form not in chosen
        }
        if not is_system_log:
            missing[KERNEL_LOG] = _KERNEL_MARKS
        chosen += _mentioned(source, missing)
    readers: list[LogFormat] = [form.reader for form in signatures.CONSOLE_LOGS if form in chosen]
    is_late = KERNEL_LOG in chosen and not readers
    readers += [KERNEL_LOG.reader] if is_system_log or is_late else []
    return readers, KERNEL_LOG in chosen and not is_late


def _mentioned(source: Source, marks_of: Mapping[Signature, Sequence[bytes]]) -> list[Signature]:
    wanted = dict(marks_of)
    overlap = max((len(mark) for marks in wanted.values() for mark in marks), default=1) - 1
    mentioned: list[Signature] = []
    before = b""
    with source.open() as stream:
        while wanted and (block := stream.read(BLOCK_BYTES)):
            text = before + block
            hits = [form for form, marks in wanted.items() if any(mark in text for mark in marks)]
            for form in hits:
                del wanted[form]
            mentioned += hits
            before = text[-overlap:]
    return mentioned
