"""What tests of readers of failure logs share."""

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.time import Given


def read(module, folder, text, *, name="some.log", **given):
    """Write a file and read it with one reader, as the entry point would."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return module.read(Source(name, path), Given(**given))


def recognised(module, text, name="some.log"):
    """Tell whether a reader takes a file by its beginning."""
    head = text if isinstance(text, bytes) else text.encode()
    return module.looks_like(head[:4096], name)


def findings(part):
    """Return the findings as {what: (finding, count)}, without what was simply read."""
    frame = part.findings.frame()
    frame = frame[frame["finding"] != "read"]
    return dict(zip(frame["what"], zip(frame["finding"], frame["count"], strict=True), strict=True))


def ns(text):
    """Nanoseconds since the epoch of a UTC stamp."""
    return pd.Timestamp(text, tz="UTC").as_unit("ns").value


FOREIGN = {
    "kineto": '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "gemm", "ts": 1}]}',
    "package": '{"name": "left-pad", "version": "1.0.0", "message": "hello"}',
    "text": "step 1 loss 2.5\nstep 2 loss 2.4\n",
    "noise": bytes(range(256)) * 16,
    "empty object": "{}",
}
