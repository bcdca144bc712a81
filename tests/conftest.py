"""Real data for the tests: from a mirror next to the clone, or the download cache."""

import importlib
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from hypothesis import settings

from tests import rules
from tests.notebooks.runs import Runs
from workbench import datasets
from workbench.share.svg import find_chrome, why_no_pictures

_MIRROR = Path(__file__).resolve().parents[2] / "shared" / "data"
if _MIRROR.is_dir():
    os.environ.setdefault(datasets.MIRROR_ENV, str(_MIRROR))
# As many processes as cores run at once: threads of PyTorch would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The time of an example is that of the machine; what hangs is ended by the limit of its test.
# Every run draws other examples: fewer in each are made up for by the number of runs. A test
# that says how many it needs has a reason: each is costly, or what it looks for is rare.
settings.register_profile("usual", max_examples=20, deadline=None)
# For runs that ask whether the code works with other libraries: --hypothesis-profile=few.
settings.register_profile("few", max_examples=3, deadline=None)
# For the night: --hypothesis-profile=thorough.
settings.register_profile("thorough", max_examples=1_000, deadline=None)
settings.load_profile("usual")
# Of a first look, and of a run on other libraries.
TESTS_PER_FILE, SUBJECTS_PER_RULE, CASES_PER_TEST = 3, 10, 2
_CHROME_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def absent() -> Callable[[str], NoReturn]:
    """Give the one way to skip a test, for lack of something.

    Under continuous integration (the variable ``CI`` is set) it fails the test instead, so
    that what is missing can never look like a success.
    """

    def end(reason: str) -> NoReturn:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    return end


@pytest.fixture(scope="session")
def compiled(absent: Callable[[str], NoReturn]) -> Callable[[str], ModuleType]:
    """Give a compiled module; skip the test where it could not be built."""

    def module(name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            absent(f"{error}: python hatch_build.py says why")

    return module


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Give the runs of notebooks, which the processes of a test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runs"
    folder.mkdir(exist_ok=True)
    return Runs(folder)


@pytest.fixture(scope="session")
def real_data(absent: Callable[[str], NoReturn]) -> Callable[[str], Path]:
    """Give the folder of a public data set; skip the test where it is not available."""

    def folder(name: str) -> Path:
        if datasets.describe().set_index("dataset").loc[name, "place"] == "not available":
            absent(
                f"the public data set {name!r} is not available; get it with "
                f"`workbench datasets fetch {name}` or point {datasets.MIRROR_ENV} at a copy"
            )
        return datasets.path(name)

    return folder


@pytest.fixture(scope="session")
def torch_here(absent):
    """Give torch; skip the test where it is not installed."""
    try:
        import torch
    except ImportError:
        absent("PyTorch is not installed; pip install 'ai-infra-workbench[inject]'")
    torch.set_num_threads(1)
    return torch


@pytest.fixture(scope="session")
def kernel_package(absent):
    """Skip the test where the package with measured kernel times is not installed."""
    from importlib import metadata

    if sys.version_info >= (3, 14):
        pytest.skip("aiconfigurator-core has no wheel for Python 3.14; see pyproject.toml")
    try:
        return metadata.version("aiconfigurator-core")
    except metadata.PackageNotFoundError:
        absent("aiconfigurator-core is not installed; pip install 'ai-infra-workbench[kernels]'")


@pytest.fixture(scope="session")
def dlrm(real_data: Callable[[str], Path]) -> Path:
    """Give the Kineto traces of a real 8-rank DLRM job (one archive)."""
    return real_data("kineto-dlrm-8rank") / "dlrm_kineto.tar.gz"


@pytest.fixture(scope="session")
def fleet_demo() -> Path:
    """Give the bundled synthetic job."""
    return datasets.path("fleet-demo")


@pytest.fixture(scope="session")
def failures_demo() -> Path:
    """Give the bundled synthetic logs of a job whose nodes fail."""
    return datasets.path("failures-demo")


@pytest.fixture(scope="session")
def imbalance_demo() -> Path:
    """Give the bundled synthetic data on imbalance."""
    return datasets.path("imbalance-demo")


@pytest.fixture(scope="session")
def hang_demo() -> Path:
    """Give the bundled synthetic dumps of a hang."""
    return datasets.path("hang-demo")


@pytest.fixture(scope="session")
def docs_site(absent) -> Path:
    """Give the documentation site; the whole check has built it before."""
    site = Path(__file__).resolve().parents[1] / "_site"
    if not (site / "searchindex.js").is_file():
        absent("the documentation site is not built; run `make docs`")
    return site


@pytest.fixture(scope="session")
def browser(absent):
    """Start Chromium, once: a process can hold one Playwright only."""
    if reason := why_no_pictures():
        absent(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = _CHROME_FLAGS.split()
        started = playwright.chromium.launch(executable_path=find_chrome(), args=flags)
        yield started
        started.close()


def flight_entry(record, group, description, call, peer=None):
    """Make one flight-recorder entry of ``"all_reduce 7 scheduled"``, ``"send 3 ->1"``, ..."""
    operation, seq, *rest = call.split()
    state = next((word for word in rest if word.isalpha()), "scheduled")
    shape = [int(size) for word in rest for size in re.findall(r"^\[(\d+)\]$", word)] or [16]
    is_p2p = operation in {"send", "recv"}
    return {
        "record_id": record, "pg_id": int(group), "process_group": (group, description),
        "collective_seq_id": 0 if is_p2p else int(seq), "p2p_seq_id": int(seq) if is_p2p else 0,
        "op_id": int(seq), "profiling_name": f"nccl:{operation}" + (f" {peer}" if peer else ""),
        "time_created_ns": 1_700_000_000_000_000_000 + record, "input_sizes": [shape],
        "input_dtypes": ["Float"], "output_sizes": [shape], "output_dtypes": ["Float"],
        "state": state, "time_discovered_started_ns": 5 if state != "scheduled" else None,
        "time_discovered_completed_ns": 6 if state == "completed" else None,
        "retired": False, "timeout_ms": 600_000, "is_p2p": is_p2p,
    }  # fmt: skip


def flight_dump(rank, groups, calls):
    """Make the flight-recorder dump of one rank.

    ``groups`` maps a name to its members, in order; ``calls`` lists ``(group, call)``. A
    peer is written ``send 3 >1``, with the global rank.
    """
    entries = []
    for record, (group, call) in enumerate(calls):
        peer = re.search(r" >(\d+)", call)
        named = None
        if peer:
            sign = "->" if call.startswith("send") else "<-"
            inside = groups[group].index
            named = f"{inside(rank)}{sign}{inside(int(peer[1]))}"
        bare, purpose = re.sub(r" >\d+", "", call), f"PURPOSE_{len(groups[group])}"
        entries.append(flight_entry(record, group, purpose, bare, named))
    mine = {name: members for name, members in groups.items() if rank in members}
    return {
        "version": "2.9", "nccl_version": "2.27.3", "entries": entries,
        "pg_config": {
            name: {"name": name, "desc": f"PURPOSE_{len(members)}", "ranks": str(list(members))}
            for name, members in mine.items()
        },
        "pg_status": {},
    }  # fmt: skip


@pytest.fixture(scope="session")
def make_flight_dump():
    """Give the function that makes the content of one dump."""
    return flight_dump


@pytest.fixture
def write_flight_dumps(tmp_path):
    """Write dumps of a job made by hand: its groups, and what each dumped rank called."""

    def write(groups, calls, **changes):
        folder = tmp_path / f"dumps{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for rank, each in calls.items():
            content = flight_dump(rank, groups, each) | changes
            (folder / f"_dump_{rank}").write_bytes(pickle.dumps(content, protocol=2))
        return folder

    return write


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make quick` and of the run on older libraries."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="a first look: one case of the first tests of every file, few subjects per rule; no "
        "properties, no public data, nothing slow and no browser",
    )
    parser.addoption(
        "--few-cases",
        action="store_true",
        help=f"at most {CASES_PER_TEST} cases per test, from the first to the last: for other "
        "libraries, which change what a line of code does and not which values it meets",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let a rule look at few subjects where only a first look was asked for."""
    if config.getoption("--quick"):
        rules.subjects_at_most = SUBJECTS_PER_RULE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests that were asked for, and put those first that take longest."""
    for option, choose in (("--quick", _first_look), ("--few-cases", _few_cases)):
        if config.getoption(option):
            chosen = choose(items)
            kept = set(map(id, chosen))
            config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
            items[:] = chosen
    _longest_first(items)


def _few_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """Keep some cases of every test, spread evenly over all of them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for of_test in cases.values() for item in rules.spread(of_test, CASES_PER_TEST)]


def _first_look(items: list[pytest.Item]) -> list[pytest.Item]:
    """Keep the first tests of every file that are quick by their marks, data and kind."""
    tests: dict[Path, dict[str, pytest.Item]] = {}
    for item in items:
        if any(map(item.get_closest_marker, ("long", "slow", "browser"))):
            continue
        if "real_data" in getattr(item, "fixturenames", ()):
            continue
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            continue
        # The first case of a test stands for all.
        tests.setdefault(item.path, {}).setdefault(item.nodeid.partition("[")[0], item)
    return [item for of_file in tests.values() for item in [*of_file.values()][:TESTS_PER_FILE]]


def _longest_first(items: list[pytest.Item]) -> None:
    """Sort files by what their tests need: a long one that starts last keeps one process busy."""
    order = {"browser": 0, "slow": 1, "long": 2}
    ranks: dict[Path, int] = {}
    for item in items:
        marked = [rank for name, rank in order.items() if item.get_closest_marker(name)]
        ranks[item.path] = min([ranks.get(item.path, len(order)), *marked])
    items.sort(key=lambda item: ranks[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of the fuzz loop and of the claims, wherever they ran."""
    verdicts: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "fuzz" and outcome == "passed":
                    terminalreporter.write_line(f"fuzz: {value}")
                elif name == "claims":
                    verdicts.update(value)
    if verdicts:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        terminalreporter.write_line(f"claims: {counts}")


@pytest.fixture(scope="session")
def two_workers(absent):
    """Start a cluster of two processes, whose death once is one too many."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        absent("Dask is not installed; pip install 'ai-infra-workbench[cluster]'")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        yield client
