"""Power as a baseboard controller tells it: what ipmitool, FreeIPMI and ipmiutil print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workbench.load._files.archive import Source
from workbench.load._files.text import whole_lines
from workbench.load._power.part import PowerOptions, PowerPart, plain_name
from workbench.load._power.stamps import Gathered, Page, Stamps, stamp_line

NAME = "power readings of IPMI"

_HOW = (
    "Log a line with the time before every reading: "
    "while sleep 1; do date -u +%FT%TZ; ipmitool dcmi power reading; done"
)
# A reading as the three tools print it; the host in front is that of pdsh, clush and ipmi-dcmi.
_HOST = r"^(?:(?P<host>[\w.-]+):[ \t]+)?[ \t]*"
_FIELDS = {
    "instant": r"Instantaneous power reading|Current Power",
    "average": r"Average power reading over sample period"
    r"|(?:Average|Avg) Power over sampl(?:e|ing) duration",
    "stamp": r"IPMI timestamp|Time ?Stamp",
    "state": r"Power reading state is|Power Measurement",
}
_ANY_FIELD = "|".join(f"(?P<{name}>{form})" for name, form in _FIELDS.items())
_FIELD = re.compile(rf"{_HOST}(?:{_ANY_FIELD})[ \t]*:[ \t]*(?P<said>.*)", re.IGNORECASE)
_WATTS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *Watts?\b", re.IGNORECASE)
# ipmitool sdr: name | value unit | state, or name | id | state | entity | value unit;
# ipmitool sensor: name | value | unit | state | ...
_SDR = re.compile(
    r"(?P<name>[^|]{1,64}?)[ \t]*\|(?:[^|]*\|){0,3}?[ \t]*(?P<value>\d+(?:\.\d+)?|na)[ \t]*\|?"
    r"[ \t]*Watts[ \t]*(?:\||$)",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    r"pwr consumption|power meter|(?:sys\w*[ _])?total[ _]?(?:power|pwr)|sys\w*[ _]power",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    rb"Instantaneous power reading:|Current Power *: *\d+ *Watts|Power reading state is:"
    rb"|Power Measurement *: *(?:Active|Not)|\|[^|\n]*\bWatts\b",
    re.IGNORECASE,
)
_INACTIVE = "readings while the controller does not measure; they are missing"
_NO_NUMBER = "readings that are not numbers of watts; they are missing"
_SCOPE = "IPMI says nothing of where it meters; taken as the input of the node (node_ac)"
_OTHER = "lines without a power reading"


@dataclass
class _Block:
    """Output of one call for one host."""

    line: int
    page_ns: int | None
    watts: dict[str, float | None] = field(default_factory=dict)
    time_ns: int | None = None
    is_active: bool = True


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise the labels of a power reading, or a list of sensors with some in watts."""
    return head.lstrip()[:1] not in (b"{", b"[", b"<") and bool(_KNOWN.search(head))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read power readings of DCMI, one after the other, and sensors in watts.

    DCMI reports the power of the platform and not where it is metered. Controllers take it from
    the power supplies, nearly always at their input, so the scope is ``node_ac`` unless the
    caller says another one. Stamps are those of the controller's clock; a reading whose clock
    was never set takes that of a line before it that holds nothing but a stamp. A controller
    that does not measure prints numbers all the same; they are missing.

    References
    ----------
    DCMI 1.5, Get Power Reading; ipmitool dcmi, sdr, sensor; FreeIPMI ipmi-dcmi; ipmiutil dcmi.
    """
    gathered = Gathered(source, options)
    findings = gathered.findings
    for host, sensor, block in _readings(source, gathered):
        name = "/".join(text for text in (host, sensor) if text) or "node"
        kind, watts = _taken(block, options)
        if not block.is_active:
            findings.add("dropped", _INACTIVE, 1, f"line {block.line:,}")
            watts = None
        time_ns = block.page_ns if block.time_ns is None else block.time_ns
        gathered.readings.add(name, time_ns, block.line, watts)
        gathered.entities.setdefault(name, _entity(host, sensor, kind, options))
    content = gathered.part(_HOW)
    is_taken = any(facts["scope"] == "node_ac" for facts in content.entities.values())
    findings.add("assumed", _SCOPE, int(is_taken and not options.scope))
    return content


def _taken(block: _Block, options: PowerOptions) -> tuple[str, float | None]:
    order = ("average", "instant") if options.reading == "average" else ("instant", "average")
    kind = next((kind_ for kind_ in order if kind_ in block.watts), "instant")
    return kind, block.watts.get(kind)


def _entity(host: str, sensor: str, kind: str, options: PowerOptions) -> dict[str, Any]:
    is_node = not sensor or _TOTAL.search(sensor)
    scope = options.scope or ("node_ac" if is_node else "unknown")
    assumed = f"scope={options.scope}" if options.scope else ""
    result = {"scope": scope, "method": "unknown" if sensor else kind, "node": host or None}
    return result | {
        "device": sensor or None, "assumed": assumed, "unit": "W", "is_unnamed": not host
    }  # fmt: skip


def _readings(source: Source, gathered: Gathered) -> Iterator[tuple[str, str, _Block]]:
    """Yield host, sensor ('' if it is the platform) and reading, in the order of their ends."""
    stamps, options, findings = gathered.stamps, gathered.options, gathered.findings
    blocks: dict[str, _Block] = {}
    page = Page()
    for number, text in whole_lines(source, findings):
        if (stamp := stamp_line(text)) is not None:
            page.begin(stamps.ns(stamp, number))
        elif match := _FIELD.match(text):
            host = plain_name(match["host"] or options.node or "")
            if match["instant"] and host in blocks:
                yield host, "", blocks.pop(host)
            block = blocks.get(host) or _Block(number, page.time_ns(host))
            blocks[host] = block
            _fill(block, match, number, stamps)
        elif match := _SDR.match(text):
            host, sensor = options.node or "", plain_name(match["name"])
            watts = None if match["value"].lower() == "na" else float(match["value"])
            findings.add("dropped", _NO_NUMBER, int(watts is None), f"line {number:,}")
            yield host, sensor, _Block(number, page.time_ns((host, sensor)), {"instant": watts})
        else:
            findings.add("skipped by design", _OTHER, int(bool(text.strip())), f"line {number:,}")
    yield from ((host, "", block) for host, block in blocks.items())


def _fill(block: _Block, match: re.Match[str], number: int, stamps: Stamps) -> None:
    value = match["said"].strip()
    if match["stamp"]:
        # Some versions do not end the line behind the stamp.
        block.time_ns = stamps.ns(re.split(r" {2,}Sampling", value)[0], number)
    elif match["state"]:
        block.is_active = value.lower() in ("activated", "active")
    else:
        watts = _WATTS.match(value)
        kind = "instant" if match["instant"] else "average"
        block.watts[kind] = float(watts[1]) if watts else None
        where = f"line {number:,}: {value[:40]}"
        stamps.findings.add("dropped", _NO_NUMBER, int(watts is None), where)
