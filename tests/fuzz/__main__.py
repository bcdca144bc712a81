"""Damage every bundled and shared file in many ways, and see that loaders only say so.

``python -m tests.fuzz --count 100000`` runs trials; ``--first 417 --count 1 --keep FOLDER``
repeats one and keeps its file.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from tests.fuzz.corpus import seeds as all_seeds
from tests.fuzz.trial import MOST_CPU_S, Before, Outcome, before, drawn, run

MOST_ADDRESS_BYTES = 16 << 30
MOST_MEMORY_BYTES = 2 << 30
_LARGEST = ("slowest_cpu_s", "memory_mib", "inputs")


def main() -> int:
    """Run trials and print their counts; 1 if there is a defect."""
    asked = _arguments()
    if asked.workers > 1:
        return _in_processes(asked)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_BYTES, MOST_ADDRESS_BYTES))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        known: dict[str, Before] = {}
        chosen = [seed for seed in all_seeds() if fnmatch(seed.name, asked.only)]
        for seed in chosen:
            if whole := before(seed, folder):
                known[seed.name] = whole
        seeds = [seed for seed in chosen if seed.name in known]
        if asked.keep:
            seed, mutation = drawn(asked.first, seeds)
            kept = asked.keep / f"{seed.name.rsplit('/', 1)[-1]}{mutation.ending}"
            kept.write_bytes(mutation.data)
            _say(f"{kept}: {seed.door}, {mutation.name}")
        outcomes = []
        for number in range(asked.first, asked.first + asked.count * asked.step, asked.step):
            _limit_cpu()
            if asked.verbose:
                _say(f"trial {number}")
            outcomes.append(run(number, seeds, known, folder))
    return _told(outcomes, len(seeds))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="trials to run")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--step", type=int, default=1, help="distance of their numbers")
    parser.add_argument("--only", default="*", help="pattern of the names of seeds: made/*.sqlite")
    parser.add_argument("--workers", type=int, default=1, help="processes to share them")
    parser.add_argument("--keep", type=Path, help="folder for the file of the first trial")
    parser.add_argument("--verbose", action="store_true", help="print the number of each trial")
    return parser.parse_args()


def _limit_cpu() -> None:
    """Let the system end a trial that no handler of signals can end, inside a library."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 2 * MOST_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _in_processes(asked: argparse.Namespace) -> int:
    counts = [asked.count // asked.workers + (n < asked.count % asked.workers)
              for n in range(asked.workers)]  # fmt: skip
    workers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.fuzz", "--verbose", "--count", str(count)),
                *("--first", str(asked.first + n), "--step", str(asked.workers)),
                *("--only", asked.only),
            ],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for n, count in enumerate(counts)
    ]  # fmt: skip
    total: Counter[str] = Counter()
    for worker in workers:
        lines = worker.communicate()[0].splitlines()
        last = lines[-1] if lines else "{}"
        if worker.returncode not in (0, 1) or not last.startswith("{"):
            _say(f"! the process of {last} ended with {worker.returncode}")
            total["defects"] += 1
            continue
        for line in lines[:-1]:
            if not line.removeprefix("trial ").isdigit():
                _say(line)
        summary = json.loads(last)
        for name, count in summary.items():
            total[name] = max(total[name], count) if name in _LARGEST else total[name] + count
    _say(json.dumps(dict(total)))
    return 1 if total["defects"] else 0


def _told(outcomes: list[Outcome], seed_count: int) -> int:
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for each in outcomes:
        if each.kind.startswith("!"):
            _say(f"trial {each.number}: {each.kind}: {each.mutation} of {each.seed}")
            _say(f"  {each.detail}")
    guarded = Counter(each.detail for each in outcomes if "guard" in each.kind)
    for detail, count in guarded.most_common(20):
        _say(f"guarded {count:>5}: {detail}")
    is_large = memory_bytes > MOST_MEMORY_BYTES
    if is_large:
        _say(f"memory: {memory_bytes >> 20:,} MiB, more than {MOST_MEMORY_BYTES >> 20:,}")
    summary = {
        "inputs": seed_count,
        "mutations": len(outcomes),
        "defects": sum(each.kind.startswith("!") for each in outcomes) + is_large,
        "slowest_cpu_s": round(max((each.cpu_s for each in outcomes), default=0.0), 1),
        "memory_mib": memory_bytes >> 20,
        **dict(sorted(Counter(each.kind for each in outcomes).items())),
    }
    _say(json.dumps(summary))
    return 1 if summary["defects"] else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
