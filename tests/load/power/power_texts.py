"""Files of power telemetry, made for tests in the forms that tools and exporters write."""

import json

from workbench.load._files.archive import sources
from workbench.load._power.part import PowerOptions

T0 = 1_700_000_000
S = 1_000_000_000


def written(tmp_path, text, name="power.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(module, tmp_path, text, **given):
    """Read a text with one reader, without the entry point."""
    (source,) = sources(written(tmp_path, text))
    return module.read_power(source, PowerOptions(**given))


def recognised(module, text):
    raw = text if isinstance(text, bytes) else text.encode()
    return module.looks_like(raw[: 1 << 16], "power.txt")


def readings(part):
    """Return (entity, seconds after T0, watts) of the readings; a missing one is None."""
    frame = part.readings
    return [
        (str(entity), (int(time_ns) - T0 * S) / S, None if watts != watts else float(watts))
        for entity, time_ns, watts in zip(
            frame["entity"], frame["time_ns"], frame["power_w"], strict=True
        )
    ]


def findings(part):
    """Return what was found, by finding and words."""
    frame = part.findings.frame()
    return dict(zip(zip(frame["finding"], frame["what"], strict=True), frame["count"], strict=True))


def count_of(part, words):
    """Return how often something was found whose words contain these."""
    return sum(count for (_, what), count in findings(part).items() if words in what)


def answer(*result, kind="matrix", **more):
    """What /api/v1/query_range and /api/v1/query answer."""
    return json.dumps(
        {"status": "success", "data": {"resultType": kind, "result": list(result)}} | more
    )


def series(values, name="DCGM_FI_DEV_POWER_USAGE", step=15, **labels):
    """One series of a matrix, a sample every 15 s; None is a missing one."""
    usual = {"gpu": "3", "UUID": "GPU-1", "Hostname": "node7", "modelName": "NVIDIA H100 80GB HBM3"}
    metric = {k: v for k, v in ({"__name__": name} | usual | labels).items() if v is not None}
    pairs = [[T0 + step * i, str(v)] for i, v in enumerate(values) if v is not None]
    return {"metric": metric, "values": pairs}
