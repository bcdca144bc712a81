"""The kinds of data there are: how each is recognised, what reads it, which notebooks show it.

Whoever routes data by its kind (``workbench check``, ``report``, ``lab``, ``convert``, the fleet
door, the notebooks) asks this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.errors import LoadError
from workbench.load import kind_rules as rules
from workbench.load._files.archive import Paths, Source, given_paths, shown, shown_all, survey
from workbench.load._files.findings import Finding, listed
from workbench.load._files.rank_names import Window
from workbench.load._files.stored import stored_sets
from workbench.load._files.time import BootTime, Hosts, check_hosts, checked, host_of
from workbench.load._files.wanted import LOGS_AND_INJECTIONS, STORED_SUFFIX, appearance
from workbench.load._power.part import Unit
from workbench.load.kind_rules import HEAD_BYTES, Sample

# A notebook only has to know which kinds there are, not all files of each.
_LOOKED_AT_FILES = 200
_SET_BESIDE = "holds {} as stored tables, beside others that are read; pass this folder alone"
_DAMAGED_SET = "holds stored tables that are damaged; run 'workbench convert' again"
UNKNOWN = "unrecognized kind"
_OWN_TABLE = (
    "a table under names of its own is read in Python: load.power and load.failure_table take "
    "the names as columns"
)


@dataclass(frozen=True)
class Options:
    """Facts from the caller that files do not state, as in :func:`load.failures`."""

    tz: str | None = None
    year: int | None = None
    boot_time: BootTime = None
    node: Hosts = None
    unit: Unit | None = None
    scope: str | None = None
    window: Window = None

    def check(self) -> None:
        """Refuse what means nothing before anything is read; ValueError or TypeError."""
        checked(self.tz, self.year, self.boot_time)
        check_hosts(self.node)


@dataclass(frozen=True)
class Kind:
    """One kind of data; ``name`` is plural, for messages.

    Attributes
    ----------
    recognise
        Says of a file, and the kinds it was found to be already, whether it is of this one.
    function
        The function of :mod:`workbench.load` that reads it, by name or itself, with the fields of
        :class:`Options` in ``options``.
    notebooks
        Names of the notebooks that show it and need nothing else, without their ending.
    excludes
        Whether a file of this kind is of no other.
    is_one_file
        Whether the function reads one file, no folder and no archive.
    advice
        How to see it, for a kind that no notebook shows by itself.
    """

    name: str
    recognise: Callable[[Sample, Set[str]], bool]
    function: str | Callable[..., Any]
    options: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = ()
    excludes: bool = True
    is_one_file: bool = False
    advice: str = ""

    @property
    def door(self) -> Callable[..., Any]:
        """The function that reads it, which is imported when it is needed."""
        if not isinstance(self.function, str):
            return self.function
        named: Callable[..., Any] = getattr(import_module("workbench.load"), self.function)
        return named

    def read(self, path: Paths, options: Options, *, progress: bool = True) -> Any:
        """Read a path with the function of this kind."""
        stated = asdict(options)
        arguments = {name: stated[name] for name in self.options}
        return (
            self.door(path, **arguments)
            if self.is_one_file
            else self.door(path, **arguments, progress=progress)
        )


_POWER_OPTIONS = ("tz", "node", "unit", "scope")
_POWER_NOTEBOOKS = ("06_power", "07_fleet_timeline")
_FAILURE_NOTEBOOKS = ("03_goodput_under_failures",)
# In the order they are asked: a file of a kind that excludes others is not asked further.
KINDS: tuple[Kind, ...] = (
    Kind(
        "exhaustive injections", rules.is_every_fault, "exhaustive_injections", is_one_file=True,
        advice="in Python, plot.pvf(analyze.pvf(load.exhaustive_injections(path), average='bits'), "
        "source=...) does, and explore.pvf_by_bit",
    ),
    Kind("injections", rules.is_injections, "injections", notebooks=("04_pvf_fault_injection",)),
    Kind(
        "injection records", rules.is_injection_records, "injection_records", is_one_file=True,
        advice="in Python, plot.pvf(analyze.pvf(load.injection_records(path), average='bits'), "
        "source=...) does",
    ),
    Kind(
        "job operations", rules.is_operations, "job_operations",
        notebooks=("02_workload_imbalance",), is_one_file=True,
    ),
    Kind(
        "power logs", rules.is_power, "power", _POWER_OPTIONS, _POWER_NOTEBOOKS, excludes=False,
    ),
    Kind("failure tables", rules.is_failure_table, "failure_table", ("tz",), _FAILURE_NOTEBOOKS,
         is_one_file=True),
    Kind(
        "traces", rules.is_trace, "traces", ("window",),
        notebooks=(
            "00_start_here", "01_traces", "05_performance_model", "08_communication", "10_model",
        ),
    ),
    Kind(
        "memory snapshots", rules.is_memory_snapshot, "memory",
        advice="in Python, plot.memory_peak(analyze.memory_peak(load.memory(path).memory), "
        "source=...) does",
    ),
    Kind("flight-recorder dumps", rules.is_flight_dump, "flight_recorder",
         notebooks=_FAILURE_NOTEBOOKS),
    Kind(
        "failure logs", rules.is_failure_log, "failures",
        ("tz", "year", "boot_time", "node"), _FAILURE_NOTEBOOKS, excludes=False,
    ),
    # A notebook on a job log alone there is not; 06 and 07 lay it beside power.
    Kind(
        "job logs", rules.is_job_log, "job_log", ("tz",), excludes=False,
        advice="add the power logs, failure logs or traces of the job",
    ),
    Kind(
        "document lengths", rules.is_lengths, "document_lengths",
        notebooks=("02_workload_imbalance",), is_one_file=True,
    ),
    Kind("power logs", rules.is_plain_power, "power", _POWER_OPTIONS, _POWER_NOTEBOOKS),
)  # fmt: skip
NAMES = tuple(dict.fromkeys(kind.name for kind in KINDS))


def kind_named(name: str) -> Kind:
    """Return the row of the table for a name."""
    # Power logs stand in the table twice, sure and guessed, and are read alike.
    return next(kind for kind in KINDS if kind.name == name)


@dataclass(frozen=True)
class Told:
    """Kinds of the files under a path: names of kinds, and the files, by label."""

    kinds: Mapping[str, frozenset[str]]
    sources: Mapping[str, Source] = field(repr=False)
    passed_over: list[Finding] = field(repr=False)
    unknown: list[Finding] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds that there are, in the order of the table."""
        present = frozenset().union(*self.kinds.values())
        return tuple(name for name in NAMES if name in present)

    def place(self, name: str, path: Paths) -> Paths:
        """Return where a kind is read from: the path, or a folder of stored tables under it."""
        own = (self.sources[label] for label, kinds in self.kinds.items() if name in kinds)
        return next((source.path for source in own if _is_set(source)), path)


def told(path: Paths, *, most_files: int | None = None) -> Told:
    """Return the kinds of data of every file under a path; only their beginnings are read.

    ``most_files`` are looked at, the first ones; None for all.
    """
    sets = stored_sets(path)
    # Every file is asked once for all kinds, rather than once by the loader of each.
    try:
        files = survey(path, wanted=LOGS_AND_INJECTIONS)
    except LoadError as error:
        if sets:
            return _with_sets(Told({}, {}, [], []), sets)
        first, line, rest = str(error).partition("\n")
        # What is wrong with a file says itself what to do.
        if not first.endswith(" found"):
            raise
        msg = f"{first}{_HOW}{line}{rest}"
        raise LoadError(msg) from error
    paths = {Path(entry) for entry in given_paths(path)}
    kinds: dict[str, frozenset[str]] = {}
    unknown: list[Finding] = []
    for source in islice(files.sources, most_files):
        is_named = not source.member and source.path in paths
        try:
            sample = Sample(source, source.head(HEAD_BYTES), is_named)
            kinds[source.label] = _kinds(sample)
        except LoadError as error:
            why = str(error).removeprefix(f"{source.label}: ")
            unknown.append((source.label, "dropped", why, 1, None))
            continue
        if not kinds[source.label]:
            is_own = sample.is_table and not sample.is_profile
            reason = f"{UNKNOWN}; {_OWN_TABLE}" if is_own else UNKNOWN
            unknown.append(
                (source.label, "dropped", reason, 1, appearance(sample.head, source.label))
            )
    sources = {source.label: source for source in files.sources}
    tables = {str(folder) for folder in sets}
    remarks = [
        remark.row for remark in files.remarks if str(Path(remark.source).parent) not in tables
    ]
    return _with_sets(Told(kinds, sources, remarks, unknown), sets)


def _with_sets(files: Told, sets: Mapping[Path, str]) -> Told:
    """Add folders of stored tables, each read as one; of a kind that files hold, those are read."""
    kinds, sources, unknown = dict(files.kinds), dict(files.sources), list(files.unknown)
    for folder, kind in sorted(sets.items(), key=lambda item: -_size_bytes(item[0])):
        label, present = shown(folder), Told(kinds, sources, [], []).names
        if kind and kind not in present:
            kinds[label], sources[label] = frozenset({kind}), Source(label, folder)
        else:
            why = _SET_BESIDE.format(kind) if kind else _DAMAGED_SET
            unknown.append((label, "dropped", why, 1, None))
    return replace(files, kinds=kinds, sources=sources, unknown=unknown)


def _is_set(source: Source) -> bool:
    return not source.member and source.path.is_dir()


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob(f"*{STORED_SUFFIX}"))


def kinds_of(path: str | Path, *, most_files: int | None = _LOOKED_AT_FILES) -> set[str]:
    """Recognise the kinds of data in a file, folder or archive.

    Parameters
    ----------
    path
        Any file or folder.
    most_files
        Files to look at, the first ones; None for all.

    Returns
    -------
    set of str
        Names of :data:`KINDS`; empty if nothing is recognised.

    Examples
    --------
    >>> from workbench import datasets
    >>> sorted(kinds_of(datasets.path("fleet-demo")))
    ['failure logs', 'job logs', 'power logs', 'traces']
    """
    try:
        return set(told(path, most_files=most_files).names)
    except LoadError:
        return set()


def by_kind(path: str | Path | None, *names: str) -> dict[str, Path | None]:
    """Pass a page that takes several kinds of data a path for each of them.

    Parameters
    ----------
    path
        The user's own data; None if there is none.
    *names
        The kinds that the page takes.

    Returns
    -------
    dict
        By kind the path, None where it holds nothing of the kind; the file itself where the loader
        of the kind reads no folder.

    Raises
    ------
    LoadError
        If it holds none of the kinds, or several files of a kind that is read from one.

    Examples
    --------
    >>> by_kind(None, "failure logs")
    {'failure logs': None}
    """
    if path is None:
        return dict.fromkeys(names)
    folder = Path(path).expanduser()
    files = told(folder, most_files=_LOOKED_AT_FILES)
    if not set(names) & set(files.names):
        raise unfit(folder, files, names)
    return {name: _place(folder, files, kind_named(name)) for name in names}


def _place(path: Path, told_of: Told, kind: Kind) -> Path | None:
    if kind.name not in told_of.names:
        return None
    files = [told_of.sources[label] for label, kinds in told_of.kinds.items() if kind.name in kinds]
    if not kind.is_one_file or _is_set(files[0]):
        return Path(str(told_of.place(kind.name, path)))
    if len(files) > 1 or files[0].member:
        why = f"{len(files)} files of" if len(files) > 1 else "an archive with"
        msg = f"{shown(path)}: {why} {kind.name}; name one file, unpacked"
        raise LoadError(msg)
    return files[0].path


def hosts_by_file(path: str | Path, node: Hosts) -> dict[str, str]:
    """Return the host of each file under a path as ``node`` tells it, by the label of the file."""
    hosts = {label: host_of(label, node) for label in told(path).kinds}
    return {label: host for label, host in hosts.items() if host is not None}


_HOW = "; docs/own_data.md says which tools write what can be read"


def unfit(path: Paths, files: Told, wanted: tuple[str, ...] = NAMES) -> LoadError:
    """Make the error that says what there is, how it can be read, and what was wanted."""
    name, rows = shown_all(path), [*files.unknown, *files.passed_over]
    if files.names:
        msg = f"{name}: holds {' and '.join(files.names)}, but no {_either(wanted)}"
    else:
        # The list of all kinds is longer than anything that is said of the file.
        msg = f"{name}: {UNKNOWN}{'' if wanted == NAMES else f' ({_either(wanted)})'}"
    if [row[0] for row in rows] != [name]:
        return LoadError(f"{msg}{'' if files.names else _HOW}{listed(rows)}")
    _, _, why, _, looks = rows[0]
    if looks:
        why = f"{looks}{why.removeprefix(UNKNOWN)}"
    return LoadError(f"{msg}: {why}{'' if files.names else _HOW}")


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _kinds(sample: Sample) -> frozenset[str]:
    names: set[str] = set()
    for kind in KINDS:
        if kind.recognise(sample, names):
            names.add(kind.name)
            if kind.excludes:
                break
    return frozenset(names)
