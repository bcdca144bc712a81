"""How long ``workbench diagnose`` takes from a folder of traces to the first finding.

    python benchmarks/diagnose.py [--ranks 8 64] [--size-mb 15] [--rounds N]

A real step of 8 ranks is repeated until every file has the wished size; further ranks are copies
of the 8 with numbers, groups, times and names of kernels of their own. Every run is the command
itself in a fresh process. The table goes to the screen and to ``benchmarks/results/diagnose.md``
and ``.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._enlarge import enlarge
from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from workbench import datasets

SET, ARCHIVE = "kineto-dlrm-8rank", "dlrm_kineto.tar.gz"
MB = 1_000_000
# A person waits so long for 8 and for 64 ranks.
TARGET_S = {8: 5.0, 64: 60.0}
_OF_RANK = re.compile(rb'"rank": \d+, "world_size": \d+')
# What diagnose answers: all is well, or there are findings.
_ANSWERED = (0, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=list(TARGET_S))
    parser.add_argument("--size-mb", type=float, default=15.0, help="size of the file of a rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--archive", type=Path, help=f"archive of the ranks (from {SET})")
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 1 GB")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    archive = options.archive or datasets.path(SET) / ARCHIVE
    rows = []
    for count in options.ranks:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
            folder = make_job(archive, Path(scratch), count, int(options.size_mb * MB))
            rows.append(_row(folder, count, options))
    remarks = [
        f"Medians of {options.rounds} runs of the command, imports included; compiled code is on "
        f"disk. Files are plain JSON of about {options.size_mb:g} MB per rank: a real step of 8 "
        "ranks repeated, and beyond 8 ranks the same with numbers, groups, times and names of "
        "kernels of their own."
    ]
    publish("diagnose", rows, about, remarks, options.out)
    return 0


def make_job(
    archive: Path, scratch: Path, count: int, size_bytes: int, *, pack: bool = False
) -> Path:
    """Write the traces of a job of ``count`` ranks into a folder, and return it."""
    folder, once = scratch / "job", scratch / "once.json"
    folder.mkdir()
    with tarfile.open(archive) as packed:
        members = sorted(
            (member for member in packed if member.isfile()), key=lambda member: member.name
        )
        for number, member in enumerate(members):
            content = packed.extractfile(member)
            assert content is not None
            once.write_bytes(content.read())
            large = scratch / "large.json"
            enlarge(once, large, size_bytes)
            text = large.read_bytes()
            for rank in range(number, count, len(members)):
                path = folder / f"rank{rank}.pt.trace.json"
                content_of_rank = _as_rank(text, rank, count, len(members))
                if pack:
                    path = path.with_name(f"{path.name}.gz")
                    content_of_rank = gzip.compress(content_of_rank, 1, mtime=0)
                path.write_bytes(content_of_rank)
    return folder


def _as_rank(text: bytes, rank: int, count: int, size: int) -> bytes:
    """Return a trace as another rank would write it: no two files hold the same events.

    Every ``size`` ranks are a process group, with times and names of kernels of its own.
    """
    offset = rank // size
    members = list(range(offset * size, min((offset + 1) * size, count)))
    group = {"pg_name": f"group_{offset}", "ranks": members, "pg_size": len(members)}
    said = json.dumps({"rank": rank, "world_size": count, "pg_config": [group]})[1:-1]
    text = _OF_RANK.sub(said.encode(), text, count=1)
    text = text.replace(b', "dur": ', b'.%03d, "dur": ' % (offset % 1000))
    return text.replace(b'"name": "volta_', b'"name": "volta_v%d_' % (offset % 16))


def _row(folder: Path, count: int, options: argparse.Namespace) -> Row:
    _diagnose(folder)  # compiles where nothing is compiled yet
    costs = [_diagnose(folder) for _ in range(options.rounds)]
    wall_s, cpu_s = (statistics.median(cost) for cost in zip(*costs, strict=True))
    size_mb = sum(path.stat().st_size for path in folder.iterdir()) / MB
    return Row(
        f"diagnose {count} ranks ({options.size_mb:g} MB each)",
        f"{wall_s:.1f} s (CPU {cpu_s:.1f}) for {size_mb:,.0f} MB",
        "",
        wall_s,
        TARGET_S.get(count),
        "s",
        smaller_is_better=True,
    )


def _diagnose(folder: Path) -> tuple[float, float]:
    """Run the command on a folder; return its wall and its CPU time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "workbench.cli", "diagnose", str(folder), "--top", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began
    if done.returncode not in _ANSWERED:
        msg = f"diagnose failed: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
