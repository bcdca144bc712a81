"""What a series of Prometheus meters: host and device by its labels, whatever else they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.load._files.xid_codes import pci_address
from workbench.load._power.formats.prometheus.metrics import Meaning
from workbench.load._power.part import PowerGiven
from workbench.load._power.samples import plain_name

_HOSTS = (
    "Hostname", "hostname", "host", "node", "kubernetes_node", "nodename", "node_name",
    "exported_instance", "instance", "target",
)  # fmt: skip
_INDICES = ("gpu", "gpu_id", "index", "gpu_index", "minor_number", "card", "device")
_UUIDS = ("UUID", "uuid", "gpu_uuid", "serial_number", "pci_bus_id")
_PARTS = (
    "cpu", "nvswitch", "name", "sensor", "chip", "power_supply", "psu", "outlet", "socket",
    "package", "path", "power_control", "member_id", "id", "index", "device", "mode",
)  # fmt: skip
_MODELS = ("modelName", "model", "card_model", "card_series", "gpu_name")
_OWN = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)?")
_BARE_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:gpu|nvidia|card|accel)?(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True)
class Metered:
    """One thing that is metered: its name and what the labels say of it."""

    entity: str
    node: str | None
    device: str | None
    model: str | None


def metered(name: str, labels: Mapping[str, str], meaning: Meaning, given: PowerGiven) -> Metered:
    """Return what a series of a metric meters.

    Labels that say who uses a device (pod, container, job) or which slice of it they watch
    (MIG) are passed over: it is the same device.
    """
    node = host_of(labels, given)
    model = next((plain_name(labels[each]) for each in _MODELS if labels.get(each)), None)
    if meaning.scope == "gpu" and ":" not in name and (device := _device(labels, node)):
        entity = f"gpu{device}" if device.isdecimal() else device
        return Metered(f"{node}/{entity}" if node else entity, node, device, model)
    part = _part(name, labels, meaning)
    entity = "/".join(each for each in (node or "", part) if each) or "node"
    return Metered(entity, node, part or None, model)


def host_of(labels: Mapping[str, str], given: PowerGiven) -> str | None:
    """Return the host that labels name, without a port; else what the caller said."""
    for each in _HOSTS:
        if host := labels.get(each):
            host = host if each.lower() == "hostname" else re.sub(r":\d+$", "", host)
            if _OWN.fullmatch(host) and given.node:
                return given.node
            return plain_name(host)
    return given.node


def _device(labels: Mapping[str, str], node: str | None) -> str | None:
    indices = (_NUMBERED.fullmatch(labels[each]) for each in _INDICES if labels.get(each))
    index = next((str(int(found[1])) for found in indices if found), None)
    name, value = next(((each, labels[each]) for each in _UUIDS if labels.get(each)), ("", ""))
    if value:
        value = pci_address(value) or value if name == "pci_bus_id" else plain_name(value)
        value = f"GPU-{value}" if _BARE_UUID.fullmatch(value) else value
    # Of a host that nobody names, two devices may have one number.
    return index or value or None if node else value or index


def _part(name: str, labels: Mapping[str, str], meaning: Meaning) -> str:
    """Name what is metered inside a host, or among others without one."""
    if not name or ":" in name:
        named = {k: v for k, v in labels.items() if k not in _HOSTS}
        texts = [*([name] if name else []), *(f"{k}={v}" for k, v in sorted(named.items()))]
        return plain_name(",".join(texts)) if texts or labels else "all"
    found = {each: labels[each] for each in _PARTS if labels.get(each)}
    numbered = (f"{k}{value}" if value.isdecimal() else value for k, value in found.items())
    return plain_name("-".join(dict.fromkeys(part for part in (meaning.part, *numbered) if part)))
