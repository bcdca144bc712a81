"""CodeCarbon's ``emissions.csv``: one row per run of a program, with what it used in all.

Notes
-----
The columns ``*_power`` hold the last sample of a run (since 3.1 the mean of its samples); the mean
is taken from the energy (kWh) and the duration. Of a run of several tasks the duration is that of
the last one and the energy that of all, so the power and the energy are taken as they are written,
and the duration is not. A row with a name of a task has the energy of that task alone.
What CodeCarbon cannot measure it estimates (memory always, a
CPU without RAPL from its rated power), and the file does not say which.

References
----------
mlco2/codecarbon, *Output*; issues 985 (last sample) and 1316 (0 kWh without a counter).
"""

from __future__ import annotations

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.tables import csv_table, header_of
from workbench.load._files.time import utc_ns
from workbench.load._power.part import (
    TASKS,
    NoPowerError,
    PowerOptions,
    PowerPart,
    numbers_of,
    readings_of_windows,
    tell,
)

NAME = "CodeCarbon emissions"
_NEEDED = {"timestamp", "duration", "emissions"}
# Device -> scope, how its energy is known, and the column of the product.
_DEVICES = {
    "gpu": ("gpu", "average", "gpu_model"),
    "cpu": ("cpu", "unknown", "cpu_model"),
    "ram": ("memory", "estimate", ""),
}
_J_PER_KWH = 3.6e6
# *_power is the last sample of a run (issue 985); this far from the mean it is reported.
_LAST_SAMPLE_RATIO = 1.2
# Devices whose energies are of one duration agree on it within this share.
_SAME_DURATION = 0.05
_SECOND = 1_000_000_000


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the header by its emissions, duration, and energy of a kind of device."""
    names = set(header_of(head))
    return names >= _NEEDED and any(f"{device}_energy" in names for device in _DEVICES)


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the mean power of each run: of its GPUs together, its CPUs together, its memory.

    Stamps are those of the end of a run, in local time. Every run is an entity of its own:
    runs on several machines may write into one file, and overlap. Of several rows of one run
    the last one counts, since its energies hold those of the others; rows of tasks add up.
    """
    findings = Findings(source.label)
    raw = csv_table(source, findings)
    runs = _runs(raw, options, findings)
    pieces = [_windows(runs, device, options, findings) for device in _DEVICES if len(runs)]
    windows = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame()
    if windows.empty:
        msg = f"{source.label}: holds a header and no run with a time"
        raise NoPowerError(msg)
    readings, counters, _ = readings_of_windows(windows.drop(columns="facts"), findings)
    entities = dict(zip(windows["entity"], windows["facts"], strict=True))
    return PowerPart(readings, entities, findings, counters)


def _runs(raw: pd.DataFrame, options: PowerOptions, findings: Findings) -> pd.DataFrame:
    lines = pd.Series(raw.index.to_numpy(), index=raw.index)
    ends = utc_ns(raw["timestamp"].fillna(""), lines, options.tz, findings)
    spent = numbers_of(raw, "duration", findings)
    is_timed = ends.ns.notna() & (spent > 0) & (spent < 1e9)
    tell(raw[~is_timed], findings, "dropped", "runs without a usable time or duration")
    end_ns = ends.ns[is_timed].astype("int64")
    start_ns = end_ns - (spent[is_timed] * _SECOND).round().astype("int64")
    runs = raw[is_timed].assign(start_ns=start_ns, end_ns=end_ns, spent_s=spent[is_timed])
    runs["line"] = runs.index
    runs["is_local"] = ends.is_local[is_timed]
    name = runs.get("run_id", pd.Series(index=runs.index, dtype=object))
    runs["run"] = name.fillna("run of line " + runs["line"].astype(str))
    task = runs.get("task_name", pd.Series(index=runs.index, dtype=object))
    runs["is_task"] = task.notna()
    runs = _without_touching(runs.sort_values(["end_ns", "line"], kind="stable"))
    is_earlier = runs.duplicated(["run", "is_task"], keep="last") & ~runs["is_task"]
    text = "earlier rows of a run, whose energies are in its last row"
    tell(runs[is_earlier], findings, "skipped by design", text)
    return _with_true_duration(runs[~is_earlier], findings)


def _without_touching(runs: pd.DataFrame) -> pd.DataFrame:
    """Let tasks of one run follow each other: their stamps are cut to whole seconds."""
    ends: dict[str, int] = {}
    moved = runs[["start_ns", "end_ns"]].to_numpy(dtype="int64", copy=True)
    for at, (run, is_task) in enumerate(zip(runs["run"], runs["is_task"], strict=True)):
        late = ends.get(run, moved[at, 0]) - moved[at, 0]
        if is_task:
            moved[at] += late if 0 < late <= _SECOND else 0
            ends[run] = int(moved[at, 1])
    return runs.assign(start_ns=moved[:, 0], end_ns=moved[:, 1])


def _with_true_duration(runs: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Take the duration that power and energy of all devices agree on, where it is another."""
    spent = {
        device: pd.to_numeric(runs[f"{device}_energy"], errors="coerce")
        * _J_PER_KWH / pd.to_numeric(runs[f"{device}_power"], errors="coerce")
        for device in _DEVICES if {f"{device}_energy", f"{device}_power"} <= set(runs)
    }  # fmt: skip
    known = pd.DataFrame(spent, index=runs.index)
    known = known.where((known > 0) & (known < 1e9))
    middle = known.median(axis=1)
    # Memory is estimated, at the same power throughout; a single other device proves nothing.
    agree = (known.max(axis=1) - known.min(axis=1) <= _SAME_DURATION * middle) & (
        known.count(axis=1) > 1
    )
    ratio = middle / runs["spent_s"]
    is_other = agree & ((ratio > _LAST_SAMPLE_RATIO) | (ratio < 1 / _LAST_SAMPLE_RATIO))
    text = (
        "runs whose energies are not of their duration (of several tasks?): power and energy are "
        "taken as written, and the duration from them; the time before the last task is assumed"
    )
    tell(runs[is_other], findings, "suspicious", text)
    spent_s = runs["spent_s"].mask(is_other, middle)
    start = runs["end_ns"] - (spent_s * _SECOND).round().astype("int64")
    start_ns = runs["start_ns"].mask(is_other, start)
    return runs.assign(spent_s=spent_s, start_ns=start_ns, is_other=is_other)


def _windows(
    runs: pd.DataFrame, device: str, options: PowerOptions, findings: Findings
) -> pd.DataFrame:
    scope, method, model = _DEVICES[device]
    column = f"{device}_energy"
    if column not in runs:
        return pd.DataFrame()
    energy = numbers_of(runs, column, findings) * _J_PER_KWH
    is_known = energy.between(0, 1e15)
    tell(runs[~is_known], findings, "dropped", f"runs without a usable {column}")
    power = energy / runs["spent_s"]
    if f"{device}_power" in runs:
        last = numbers_of(runs, f"{device}_power", findings)
        ratio = (last / power).where((last > 0) & (power > 0))
        is_off = (ratio > _LAST_SAMPLE_RATIO) | (ratio < 1 / _LAST_SAMPLE_RATIO)
        text = f"runs whose {device}_power, the last sample, is far from their mean; not used"
        tell(runs[is_off], findings, "noted", text)
        is_silent = (energy == 0) & ((last > 0) | (scope != "gpu"))
        tell(runs[is_silent], findings, "suspicious", f"runs with 0 kWh of {device}")
        # Devices agree on the duration nearly; each keeps the power that its row says.
        is_own = runs["is_other"] & (last > 0) & (energy > 0)
        own_ns = (energy / last * _SECOND).where(is_own, 0).round().astype("int64")
        runs = runs.assign(start_ns=runs["start_ns"].mask(is_own, runs["end_ns"] - own_ns))
    prefix = f"{options.node}/" if options.node else ""
    windows = runs[["start_ns", "end_ns", "line"]].assign(
        entity=prefix + runs["run"] + runs["is_task"].map({True: TASKS, False: "/"}) + device,
        energy_j=energy,
    )
    counts = pd.to_numeric(runs["gpu_count"], errors="coerce") if "gpu_count" in runs else 1
    # Several GPUs together are not one GPU, and have no scope of their own.
    together = pd.Series((counts > 1) & (scope == "gpu"), index=runs.index)
    tell(runs[together], findings, "noted", "GPUs counted together; their scope is unknown")
    scopes = pd.Series(scope, index=runs.index).mask(together, "unknown")
    models = runs[model] if model in runs else pd.Series(index=runs.index, dtype=object)
    facts: list[Row] = [
        {"scope": metered, "method": method, "node": options.node, "device": device, "unit": "W",
         "model": product if isinstance(product, str) else None,
         "assumed": f"tz={options.tz}" if is_local else ""}
        for metered, product, is_local in zip(scopes, models, runs["is_local"], strict=True)
    ]  # fmt: skip
    windows["facts"] = pd.Series(facts, index=windows.index, dtype=object)
    return windows[is_known]
