"""How fast and lean traces are loaded and analysed, against HolisticTraceAnalysis.

    python benchmarks/traces.py [--quick]

A real trace is repeated to about 500 MB. Every measurement is a fresh process; the tools
take turns; files are in memory before the first one.
The table goes to the screen and to ``benchmarks/results/traces.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._enlarge import enlarge, pack, split
from benchmarks._measure import PEER, Runs, machine, peer, read_once, run
from benchmarks._table import RESULTS, Row, markdown
from workbench import datasets

MIRROR = Path(__file__).resolve().parents[2] / "shared" / "data"
SET = "kineto-hta"
LARGE = "df_index_resolver/df_index_resolver.json.gz"
SMALL = "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
RANKS = 200
_TURNS = 5
MB = 1_000_000
# Both read whole microseconds from the large file.
AGREE_S = 1e-6

All = dict[str, Runs]


@dataclass(frozen=True)
class Files:
    """The traces that are measured."""

    plain: Path
    packed: Path
    small: Path
    small_packed: Path
    many: Path
    one: Path
    huge: Path | None
    source: str
    copies: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    options = _options(arguments)
    if MIRROR.is_dir():
        os.environ.setdefault(datasets.MIRROR_ENV, str(MIRROR))
    began = time.perf_counter()
    about = machine()
    python = None if options.no_peer else peer()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        files = _files(Path(scratch), options)
        _warm_up(files)
        measured: All = defaultdict(Runs)
        for number in range(options.runs):
            _say(f"round {number + 1} of {options.runs}")
            _round(measured, files, python, Path(scratch) / f"cache-{number}")
        if files.huge is not None:
            _say("the huge file")
            measured["huge"].results.append(run("workbench", files.huge))
        sizes = {
            name: path.stat().st_size
            for name, path in vars(files).items()
            if isinstance(path, Path) and path.is_file()
        }
    rows = [*_loading(measured, sizes), *_fractions(measured, sizes)]
    remarks = _remarks(measured, files, options.runs)
    text = markdown(rows, about, remarks)
    _write(options.out, text, rows, measured, about)
    print(text)
    _say(f"{time.perf_counter() - began:.0f} s in all; written to {options.out}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="100 MB, one round, no huge file: a first look"
    )
    parser.add_argument("--size-mb", type=float, help="size of the large file (500)")
    parser.add_argument("--huge-mb", type=float, help="size of the huge file (2000); 0 for none")
    parser.add_argument("--runs", type=int, help="rounds; costs are medians over them (3)")
    parser.add_argument("--no-peer", action="store_true", help="measure the workbench only")
    parser.add_argument("--source", type=Path, help=f"trace to repeat (from {SET})")
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 4 GB")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the table")
    options = parser.parse_args(arguments)
    defaults = (100, 0, 1) if options.quick else (500, 2000, 3)
    for name, default in zip(("size_mb", "huge_mb", "runs"), defaults, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def _files(scratch: Path, options: argparse.Namespace) -> Files:
    """Make the traces to measure."""
    _say("making traces")
    source = options.source or datasets.path(SET) / LARGE
    small_source = options.source or datasets.path(SET) / SMALL
    plain, small = scratch / "large.json", scratch / "small.json"
    copies = enlarge(source, plain, int(options.size_mb * MB))
    enlarge(small_source, small, 0)
    for path in (plain, small):
        pack(path, path.with_suffix(".json.gz"))
    many, one = scratch / "many", scratch / "one.json"
    split(small, many, RANKS)
    enlarge(many / "rank0.json", one, sum(path.stat().st_size for path in many.iterdir()))
    huge = scratch / "huge.json" if options.huge_mb else None
    if huge is not None:
        enlarge(source, huge, int(options.huge_mb * MB))
    packed, small_packed = (path.with_suffix(".json.gz") for path in (plain, small))
    return Files(plain, packed, small, small_packed, many, one, huge, source.name, copies)


def _warm_up(files: Files) -> None:
    """Bring files into memory."""
    _say("warming up")
    for path in (files.plain, files.packed, files.small, files.small_packed, files.one):
        read_once(path)
    for path in files.many.iterdir():
        read_once(path)


def _round(measured: All, files: Files, python: Path | None, cache: Path) -> None:
    """Measure everything once, the tools in turn."""
    inputs = {
        "plain": files.plain,
        "gzipped": files.packed,
        "small": files.small,
        "small gzipped": files.small_packed,
    }
    for name, path in inputs.items():
        measured[name].results.append(run("workbench", path))
        if python is not None:
            measured[f"{name}, peer"].results.append(run("hta", path, python=python))
    # Where small arrays find room moves a run of many files by a fifth.
    for _ in range(_TURNS):
        for name, path in (("many", files.many), ("one", files.one)):
            measured[name].results.append(run("workbench", path))
    for name in ("first", "second"):
        measured[name].results.append(run("workbench", files.plain, cache=cache))
    measured["gunzip"].results.append(run("gunzip", files.packed))
    measured["json"].results.append(run("json", files.plain))


def _loading(measured: All, sizes: dict[str, int]) -> list[Row]:
    rows = [
        _times("load", measured, "plain", sizes["plain"], 26),
        _peaks(measured, "plain", sizes["plain"]),
        _times("load, gzipped", measured, "gzipped", sizes["plain"], 26),
        _times("time breakdown + overlap + idle", measured, "plain", None, 30, part="analyses"),
        _times("load, small", measured, "small", sizes["small"], 8),
        _times("load it again in the same process", measured, "small", None, 11, part="again"),
        _times("load, small, gzipped", measured, "small gzipped", sizes["small"], None),
    ]
    rows += _processor_times(measured)
    first, second = measured["first"], measured["second"]
    ratio, note = _ratio(second, first, "load")
    rows.append(
        Row(
            "load again, from the cache",
            _seconds(second),
            f"{_seconds(first)} the first time",
            ratio,
            10,
            note=note,
        )
    )
    if "huge" in measured:
        peak = measured["huge"].median("load", "peak_mib") * 2**20 / 1e9
        what = f"peak of loading {sizes['huge'] / 1e9:.1f} GB of JSON"
        seconds = _seconds(measured["huge"])
        rows.append(Row(what, seconds, "", peak, 2.5, unit="GB", smaller_is_better=True))
    return rows


def _times(
    what: str,
    measured: All,
    name: str,
    size_bytes: int | None,
    target: float | None,
    *,
    part: str = "load",
) -> Row:
    ours, theirs = measured[name], measured.get(f"{name}, peer")
    size = f" ({size_bytes / MB:.0f} MB)" if size_bytes else ""
    if theirs is None:
        return Row(f"{what}{size}", _seconds(ours, part), "", target=target)
    ratio, note = _ratio(ours, theirs, part)
    return Row(
        f"{what}{size}", _seconds(ours, part), _seconds(theirs, part), ratio, target, note=note
    )


def _processor_times(measured: All) -> list[Row]:
    """Compare what whole processes cost, and many small files with a large one."""
    rows = []
    for what, names, part, most in (
        ("cold process to tables, small", ("small", "small, peer"), "process", 0.45),
        (f"{RANKS} files of 1 MB against one file", ("many", "one"), "load", 1.1),
    ):
        if names[1] in measured:
            ours, theirs = (measured[name].median(part, "cpu_s") for name in names)
            texts = (f"CPU {cpu:.2f} s" for cpu in (ours, theirs))
            rows.append(Row(what, *texts, ours / theirs, most, smaller_is_better=True))
    return rows


def _peaks(measured: All, name: str, size_bytes: int) -> Row:
    """Compare how much memory loading takes."""
    ours, theirs = (
        measured[key].median("load", "peak_mib") if key in measured else None
        for key in (name, f"{name}, peer")
    )
    return Row(
        f"peak memory of loading ({size_bytes / MB:.0f} MB)",
        f"{ours:.0f} MiB",
        f"{theirs:.0f} MiB" if theirs else "",
        ours / theirs if ours and theirs else None,
        0.25,
        smaller_is_better=True,
    )


def _ratio(ours: Runs, theirs: Runs, part: str) -> tuple[float, str]:
    """Return how many times less wall time is needed, and in words the same for CPU time."""
    wall = theirs.median(part, "wall_s") / ours.median(part, "wall_s")
    cpu = theirs.median(part, "cpu_s") / ours.median(part, "cpu_s")
    return wall, f"CPU {cpu:.1f} ×"


def _seconds(runs: Runs, part: str = "load") -> str:
    wall, cpu = runs.median(part, "wall_s"), runs.median(part, "cpu_s")
    return f"{wall:.2f} s (CPU {cpu:.2f})"


def _fractions(measured: All, sizes: dict[str, int]) -> list[Row]:
    """Compare the loader with the bare steps that any loader of such files takes."""
    rows = []
    for what, name, bare in (
        ("loader as a fraction of plain gunzip", "gzipped", "gunzip"),
        ("loader as a fraction of plain JSON decoding", "plain", "json"),
    ):
        speeds = [
            sizes["plain"] / MB / measured[key].median("load", "wall_s") for key in (name, bare)
        ]
        _, note = _ratio(measured[name], measured[bare], "load")
        ours, theirs = (f"{speed:.0f} MB/s" for speed in speeds)
        rows.append(Row(what, ours, theirs, speeds[0] / speeds[1], note=note))
    return rows


def _remarks(measured: All, files: Files, runs: int) -> list[str]:
    """Say how the numbers were made, and whether both tools saw the same."""
    remarks = [
        f"Medians of {runs} rounds; every measurement is a fresh process, the tools take turns; "
        f"many small files and one file are loaded {_TURNS} times per round, one after the other; "
        "files are in memory. Time and peak count from after "
        "the imports, the peak as resident memory above that, children included. The ratio is of "
        f"wall time, in brackets of CPU time. The large file is {files.source} {files.copies} "
        f"times, each with its own ids and times. The peer is {PEER}."
    ]
    if "plain, peer" in measured:
        ours, theirs = (measured[name].seen("compute_s") for name in ("plain", "plain, peer"))
        verdict = "agree" if abs(ours - theirs) < AGREE_S else "DISAGREE"
        remarks.append(
            f"The tools {verdict} on the compute time: {ours:.6f} s here, {theirs:.6f} s there "
            f"({measured['plain'].seen('rows'):,} rows here, "
            f"{measured['plain, peer'].seen('rows'):,} there, without instants)."
        )
    return remarks


def _write(
    folder: Path, text: str, rows: Sequence[Row], measured: All, about: dict[str, str]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traces.md").write_text(text, encoding="utf-8")
    content = {
        "machine": about,
        "rows": [{**asdict(row), "met": row.met} for row in rows],
        "runs": {name: runs.results for name, runs in measured.items()},
    }
    (folder / "traces.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    print(f"# {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
