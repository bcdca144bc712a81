"""How often the rows of embedding tables are looked up: locality_stats of dlrm_datasets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.tables import whole_text
from workbench.tables import REUSE_HISTOGRAM

_BATCH = re.compile(r"(\S+\.pt)(?:\.gz)?$")
_SAMPLES = re.compile(r"Locality stats after processing (\d+) batches of size (\d+)$")
_TOTALS = {
    "lookup_count": re.compile(r"Avg # of indices: (\d+)$"),
    "unique_count": re.compile(r"Avg # of unique cols: (\d+)$"),
    "reuse_ratio": re.compile(r"Avg col size: (\d+(?:\.\d+)?)$"),
}
_SECTIONS = {
    "Histogram of col sizes:": "row_share",
    "Ratio of index distribution at different column sizes:": "lookup_share",
}
_BIN = re.compile(r"\((\d+)(?:, (\d+)\]|\+): (\d(?:\.\d+)?)$")
_CUMULATIVE = re.compile(r"\[.*\]$")
# Shares are printed with three digits, so that many bins may be off by this much together.
_ROUNDING_PER_BIN = 0.0006


def reuse_histogram(path: str | Path) -> pd.DataFrame:
    """Read histograms of how often rows of embedding tables are looked up in a batch.

    Parameters
    ----------
    path
        A ``locality_stats.txt`` of facebookresearch/dlrm_datasets; it describes several batches.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.REUSE_HISTOGRAM`, one row per batch and bin, in the
        order of the file. Cumulative sums in the file are skipped by design.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a line is not known, or a batch is incomplete, occurs twice or does not add
        up, or its bins overlap; names the line.

    Notes
    -----
    The file calls a look-up an index, a row a column, and look-ups per row column size.
    """
    path = Path(path)
    batches: list[dict[str, Any]] = []
    lines = whole_text(path).splitlines()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if name := _BATCH.match(line):
            batches.append({"batch": name[1], "line": number})
        elif line and not (batches and _taken(batches[-1], line)):
            msg = f"{path}, line {number}: {line[:80]!r} is not part of a locality_stats.txt"
            raise LoadError(msg)
    if not batches:
        msg = f"{path}: describes no batch; a locality_stats.txt of dlrm_datasets is needed"
        raise LoadError(msg)
    names = [batch["batch"] for batch in batches]
    for batch in batches:
        if names.count(batch["batch"]) > 1:
            msg = f"{path}, line {batch['line']}: batch {batch['batch']!r} occurs twice"
            raise LoadError(msg)
    rows = [row for batch in batches for row in _rows(batch, path)]
    return REUSE_HISTOGRAM.check(REUSE_HISTOGRAM.cast(pd.DataFrame(rows)), str(path))


def _taken(batch: dict[str, Any], line: str) -> bool:
    """Add what a line says to its batch; say whether it was understood."""
    if section := _SECTIONS.get(line):
        batch["section"] = batch.setdefault(section, {})
        return True
    if (interval := _BIN.match(line)) and "section" in batch:
        key = (int(interval[1]), int(interval[2]) if interval[2] else None)
        if key in batch["section"]:
            return False
        batch["section"][key] = float(interval[3])
        return True
    if samples := _SAMPLES.match(line):
        batch["sample_count"] = int(samples[1]) * int(samples[2])
        return True
    for name, pattern in _TOTALS.items():
        if total := pattern.match(line):
            batch[name] = float(total[1]) if name == "reuse_ratio" else int(total[1])
            return True
    return bool(_CUMULATIVE.match(line))


def _rows(batch: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    where = f"{path}, line {batch['line']}: batch {batch['batch']!r}"
    needed = ("sample_count", *_TOTALS, *_SECTIONS.values())
    if missing := [name for name in needed if name not in batch]:
        msg = f"{where} does not say {missing}; the file may be cut off"
        raise LoadError(msg)
    shares = {name: batch[name] for name in _SECTIONS.values()}
    if shares["row_share"].keys() != shares["lookup_share"].keys():
        msg = f"{where} has other bins for rows than for look-ups; the file may be cut off"
        raise LoadError(msg)
    ordered = sorted(shares["row_share"], key=lambda ends: ends[0])
    if any(upto != above for (_, upto), (above, _) in pairwise(ordered)):
        msg = f"{where}: its bins overlap, or leave something out between them: {ordered}"
        raise LoadError(msg[:400])
    for name, bins in shares.items():
        if abs(sum(bins.values()) - 1) > _ROUNDING_PER_BIN * max(len(bins), 1):
            msg = f"{where}: its {name}s add up to {sum(bins.values()):.3f}, not to 1"
            raise LoadError(msg)
    for above, upto in shares["row_share"]:
        yield {
            "batch": batch["batch"],
            "above_count": above,
            "upto_count": upto,
            **{name: batch[name] for name in ("sample_count", *_TOTALS)},
            **{name: bins[above, upto] for name, bins in shares.items()},
        }
