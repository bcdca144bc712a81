"""How NVIDIA's readings of power come about, by product."""

from __future__ import annotations

import re

# Ampere and newer give the mean of the last second as power.draw. GA100 is dropped: the
# manual of nvidia-smi counts it among them, that of NVML does not.
_AVERAGED = re.compile(
    r"\b(?:A(?:2|10|10G|16|40)|L(?:2|4|20|40|40S|40G)|H(?:20|100|200|800)|GH200|GB?(?:10|100|200|300)"
    r"|B(?:100|200|300)|RTX (?:30|40|50)\d\d|RTX A\d{4}|RTX \d{4} Ada|RTX PRO)\b"
)
_INSTANT = re.compile(r"\b(?:V100S?|P100|P40|P4|T4|K80|M40|M60|TITAN|GTX|RTX 20\d\d|Quadro)\b")


def method_of(column: str, model: str | None) -> str:
    """Say what a reading of a column means on a product.

    Examples
    --------
    >>> method_of("power.draw", "NVIDIA H100 80GB HBM3"), method_of("power.draw", None)
    ('avg_1s', 'unknown')
    """
    if column.endswith("instant"):
        return "instant"
    if column.endswith("average"):
        return "avg_1s"
    name = (model or "").replace("-", " ")
    if _AVERAGED.search(name):
        return "avg_1s"
    return "instant" if _INSTANT.search(name) else "unknown"
