"""Names of columns and series that are of another quantity than power, whatever unit is given."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[^A-Za-z0-9%]+|(?<=[a-z0-9])(?=[A-Z][a-z])")
# Words of the quantities that samplers and trackers write beside power.
_OTHERS = {
    *("util", "utilization", "utilisation", "utilized", "usage", "busy", "occupancy", "activity"),
    *("percent", "pct", "%", "mem", "memory", "vram", "framebuffer", "fb", "temp", "temps"),
    *("temperature", "hotspot", "degc", "celsius", "clock", "clocks", "clk", "mhz", "ghz", "hz"),
    *("freq", "frequency", "rpm", "speed", "voltage", "volt", "volts", "mv", "current", "amps"),
    *("ampere", "amperes", "bandwidth", "bw", "pcie", "rx", "tx", "throughput", "bytes", "kb"),
    *("mb", "gb", "kib", "mib", "gib", "flops", "tflops", "mfu", "latency", "ms", "seconds"),
    *("duration", "elapsed", "uptime", "runtime", "users", "requests", "queue", "humidity"),
    *("ecc", "error", "errors", "retries", "xid", "loss", "losses", "lr", "accuracy", "acc"),
    *("perplexity", "ppl", "grad", "gradient", "norm", "reward", "score", "step", "steps"),
    *("epoch", "epochs", "iteration", "iterations", "iter", "batch", "token", "tokens"),
    *("sample", "samples", "seed", "version", "progress", "eta", "cost", "price", "carbon"),
    *("co2", "emissions"),
}
# Units in brackets, at the end of a name.
_UNIT = re.compile(
    r"[\[(]\s*(%|°?[CFK]|[kmg]?hz|[kmgt]i?b(/s)?|m?v|ma|rpm|[mun]?s)\s*[\])]\s*$", re.IGNORECASE
)
# A load of these is a share of time, not of a feed.
_DEVICES = {"gpu", "cpu", "sm", "avg", "average"}


def is_other_quantity(name: str) -> bool:
    """Return whether a name says a utilization, memory, temperature, clock or loss.

    Examples
    --------
    >>> [name for name in ("gpu_util", "rack 3", "gpuLoad") if is_other_quantity(name)]
    ['gpu_util', 'gpuLoad']
    """
    words = {re.sub(r"\d+$", "", word.lower()) for word in _WORDS.split(name) if word}
    is_share = "load" in words and bool(words & _DEVICES)
    return is_share or bool(words & _OTHERS) or _UNIT.search(name) is not None
