"""The entry point for traces: any file, list, directory or archive of any known format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import (
    CPU_COLLECTIVES,
    KINDS,
    NO_GPU_WORK,
    NOTHING_RECORDED,
    RECORD_GPU_WORK,
    read_rules,
)
from workbench._shared.progress import progress as progress_bar
from workbench._shared.rank_sets import PART, processes_for, remarks_on_set
from workbench.errors import LoadError, WorkbenchError
from workbench.load._files.archive import Paths, Source, Survey, shown_all, streams, survey
from workbench.load._files.findings import Dropped, Finding, Row, guarded, listed, quality_frame
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import (
    NO_RANK_TOLD,
    RankArgument,
    Ranked,
    Window,
    process_in_name,
    ranked,
)
from workbench.load._files.signatures import (
    FORMATS_BEFORE_KINETO,
    GRAPHS,
    PROFILES,
    TRACE_FORMATS,
    Signature,
    fitting,
)
from workbench.load._files.stream import Stream, plain_name
from workbench.load._files.wanted import appearance, is_utf16
from workbench.load._traces.gpu_ranks import GpuRank, by_gpu, told
from workbench.load._traces.kineto import reader as kineto_format
from workbench.load._traces.kineto.processes import ProcessFinder
from workbench.load._traces.kineto.rank import (
    NOT_UTF8,
    IntArray,
    Joint,
    RankTables,
    RawRank,
    joint_tables,
    metadata_text,
    rank_tables,
)
from workbench.load._traces.kineto.reader import EngineName, Parser, is_compiled, kineto, ranks_of
from workbench.load._traces.selection import (
    Columns,
    Steps,
    checked_columns,
    checked_steps,
    concat,
    events_table,
    judged_columns,
    within_columns,
    within_steps,
)
from workbench.tables import (
    DEPENDENCIES,
    DEVICES,
    EVENTS,
    NODES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    STEPS,
    Table,
    Trace,
)

_FORMAT = {form.name: form for form in TRACE_FORMATS}

# How fast one process reads content, unpacks that of packed files, and opens files.
_COMPILED_BYTES_PER_S, _PYTHON_BYTES_PER_S = 800e6, 28e6
_UNPACKED_BYTES_PER_S, _FILES_PER_S = 300e6, 1_000
# A file of fewer rows takes longer by itself than in a group; a group is as large as a large file.
_SMALL_ROWS, _GROUP_ROWS = 1 << 18, 1 << 20
_LONG_HEAD_BYTES = 4 << 20
_PIECE_ROWS = 1 << 16
# As `add_metadata` of PyTorch and other writers spell it.
_HOST_KEYS, _MOST_HOST_NAME = ("hostname", "host_name", "host"), 255
_FORM = re.compile(r"\.(?:db|json|pftrace)(?:\.\w{2,4})?$", re.IGNORECASE)
# As rpd2tracing.py opens its list; its events have no category.
_RPD = re.compile(rb'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*\{\s*\}\s*,')
# As PyTorch names the collectives that its backends without streams run.
_CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
_UNKNOWN = "is in an unrecognized format"
_UTF16 = "is UTF-16, no trace is; convert it: iconv -f UTF-16 -t UTF-8"


def traces(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    rank: RankArgument = None,
    window: Window = None,
    args: Sequence[str] = (),
    rules: pd.DataFrame | str | Path | None = None,
    engine: EngineName = "auto",
    cache: str | Path | None = None,
    steps: Steps = None,
    columns: Columns = None,
    progress: bool = True,
) -> Trace:
    """Load the traces of one job, one rank or thousands, into tables.

    Formats are recognised by content: PyTorch profiler (Kineto) traces of any generation and
    vendor, exports of Nsight Systems (SQLite, or a folder of Parquet), rocprofv3 (JSON and rocpd),
    Perfetto (``.pftrace``), Ascend NPUs (``trace_view.json``), PyTorch execution traces, Chakra
    execution traces (protobuf and JSON), and the workbench's own Parquet. Damage is repaired where
    that is safe, and everything dropped, repaired or assumed is counted in the quality table.

    Parameters
    ----------
    path
        A file (``.json``, ``.json.gz``, ``.sqlite``, ``.et``, ``.parquet``), a directory, an
        archive (``.tar.gz``, ``.zip``) or a list of these. Profiles and execution traces of one job
        may lie together.
    rank
        Ranks where the files do not state them: one number for one file, a list in order of the
        files, or a dict from a part of the file name to the number.
    window
        Which of several recordings of each rank, in order of time: ``"first"``, ``"last"`` or a
        number from 0. None takes the last that every rank has of windows that one process
        recorded, as file names and times show, and refuses any other second file of a rank.
    args
        Names of further event arguments to keep as columns, e.g. ``("Ev Idx",)``; shapes,
        types, strides and values of inputs are kept without asking.
    rules
        Kernel rules of your own, as a frame or CSV file (``kind``, ``rule``, ``pattern``), asked
        before the shipped ones.
    engine
        ``"auto"``, ``"compiled"`` (needs a compiler at installation) or ``"python"``; the
        tables are the same.
    cache
        Directory in which parsed files of Kineto are kept, by content, about 80 bytes per event;
        None keeps nothing. Tables that come from there are mapped: files may be deleted, not
        overwritten.
    steps
        First and last step to keep, as the events number them; events of other steps and of none
        are left out, which ``quality`` counts. Of Parquet only those rows come into memory.
    columns
        Columns of ``events`` to keep besides ``rank``, ``start_ns`` and ``dur_ns``; None keeps
        all. Of Parquet only those are read. An analysis that needs another one names it.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    Trace
        ``events`` (:data:`workbench.tables.EVENTS`), ``ranks``, ``devices``, ``process_groups``,
        ``steps``, ``nodes`` and ``dependencies`` (execution traces only) and ``quality``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a known trace that can be read (names the byte of a single
        one), formats are mixed, or two files claim one rank. Of several files those that are
        damaged beyond repair are dropped, with a finding in ``quality``.
    """
    steps, columns = checked_steps(steps), checked_columns(columns)
    if isinstance(args, str):
        msg = f"args must list names, e.g. args=({args!r},); got the text {args!r}"
        raise TypeError(msg)
    files, dropped = survey(path), Dropped()
    own_rules = read_rules(rules) if isinstance(rules, str | Path) else rules
    sources, findings = by_format(path, files, dropped)
    loaded = []
    reader = RankReader(tuple(args), own_rules, engine, cache_folder(cache))
    if ranks := _profiles(sources, reader, dropped, window, progress=progress):
        with guarded(shown_all(path)):
            ranks = _with_times(ranks, own_rules)
            whole = assemble(ranked(ranks, rank, window, findings), own_rules)
        whole = within_steps(whole, steps, shown_all(path))
        loaded.append(within_columns(whole, columns, shown_all(path)))
    if stored := _parquet_sets(sources.get("parquet", ()), dropped, steps, columns):
        loaded.append(stored)
    for name in [name for name in GRAPHS if name in sources]:
        with dropped.trying(shown_all(path)):
            loaded.append(_FORMAT[name].reads(sources[name], rank=None if loaded else rank))
    if not loaded:
        dropped.raise_if_all()
    trace = loaded[0] if len(loaded) == 1 else _joined(*loaded)
    if not (rows := [*findings, *dropped.rows]):
        return trace
    return replace(trace, quality=QUALITY.joined([trace.quality, quality_frame(rows)]))


def cache_folder(cache: object) -> Path | None:
    if cache is not None and not isinstance(cache, str | Path):
        msg = f"cache must be a folder, or None, which keeps nothing; got {cache!r}"
        raise TypeError(msg)
    return None if cache is None else Path(cache)


def by_format(
    path: Paths, files: Survey, dropped: Dropped
) -> tuple[dict[str, list[Source]], list[Finding]]:
    findings = [remark.row for remark in files.remarks]
    sources: dict[str, list[Source]] = {}
    for source in files.sources:
        with dropped.trying(source.label):
            if name := format_of(source):
                sources.setdefault(name, []).append(source)
            else:
                head = source.head()
                is_table = _FORMAT["parquet"].mark.search(head) is not None
                reason = _FORMAT["parquet"].reader.NO_TRACE if is_table else _UNKNOWN
                reason = _UTF16 if is_utf16(head) else reason
                seen = appearance(head, source.label) if reason == _UNKNOWN else None
                findings.append((source.label, "dropped", reason, 1, seen))
    if not sources:
        if not findings:
            dropped.raise_if_all()
        _raise_unknown(path, [*findings, *dropped.rows])
    # JAX writes both beside each other.
    if "xplane" in sources:
        same = "the JSON form of a profile, whose .xplane.pb is read"
        left = sources.pop("xprof json", [])
        findings += [(source.label, "skipped by design", same, 1, None) for source in left]
    findings += _without_twins(sources)
    findings += _without_stored_twins(sources, dropped)
    # A profile and the execution trace of its run belong together; no other pair does.
    profiles = sources.keys() & {"kineto", *PROFILES}
    is_mixed = len(profiles) > 1 or len(sources.keys() - profiles) > 1
    if len(sources) > 1 and ("parquet" in sources or is_mixed):
        _raise_mixed(sources)
    if "nsight" in sources:
        sources["nsight"] = PROFILES["nsight"].reader.exports(sources["nsight"])
    return sources, findings


def _without_twins(sources: dict[str, list[Source]]) -> list[Finding]:
    """Leave one form of each recording that rocprofv3 wrote in several, by their names."""
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    # From the form that tells most to the one that tells least.
    for name in ("rocpd", "rocprofv3", "perfetto"):
        for source in sources.pop(name, []):
            first = seen.setdefault(_FORM.sub("", source.label), name)
            if first == name:
                sources.setdefault(name, []).append(source)
            else:
                same = f"the same recording as {first}, which is read"
                findings.append((source.label, "skipped by design", same, 1, None))
    return findings


def _without_stored_twins(sources: dict[str, list[Source]], dropped: Dropped) -> list[Finding]:
    """Leave out what was converted from traces that lie beside it, by the names of their files."""
    originals = {short(source.label) for name in sources.keys() - {"parquet"}
                 for source in sources[name]}  # fmt: skip
    findings: list[Finding] = []
    for source in sources.pop("parquet", []):
        is_twin = False
        with dropped.trying(source.label):
            is_twin = (
                bool(originals) and _FORMAT["parquet"].reader.sources_of(source.path) <= originals
            )
        if is_twin:
            same = "was converted from traces beside it, which are read"
            findings.append((source.label, "skipped by design", same, 1, None))
        else:
            sources.setdefault("parquet", []).append(source)
    return findings


def assemble(
    numbered: Sequence[Ranked[RankTables | RawRank]], rules: pd.DataFrame | None = None
) -> Trace:
    groups = [_joint(files, rules) for files in _groups([file for _, _, file in numbered])]
    ranks = by_gpu(numbered, [of_file for group in groups for of_file in group.gpus])
    done = rows = 0
    for group in groups:
        own = ranks[done : done + sum(map(len, group.gpus))]
        numbers = np.array([one.rank for one in own], np.int32)
        group.events["rank"] = np.repeat(numbers, [one.gpu.rows for one in own])
        group.steps["rank"] = np.repeat(numbers, [one.gpu.steps for one in own])
        if done:
            # Positions in the table of some ranks become positions in that of all.
            group.events["launch"] = group.events["launch"] + rows
        done, rows = done + len(own), rows + len(group.events)
    events = concat([group.events for group in groups], sort_categories=True)
    if len(ranks) > 1:
        # As where each file has a table of its own.
        events["kind"] = events["kind"].cat.reorder_categories(sorted(KINDS))
    assumed = [
        (one.file.label, "assumed", NO_RANK_TOLD, 1, f"rank {one.rank}")
        for one in ranks
        if one.source == "assumed" and one.place == 0
    ]
    trace = Trace.of(
        events=EVENTS.check(events), ranks=ranks_table(ranks, events),
        devices=devices_table(ranks), process_groups=groups_table(ranks),
        steps=STEPS.joined(group.steps for group in groups),
    )  # fmt: skip
    of_files = [finding for _, _, file in numbered for finding in file.findings]
    of_files += told(ranks) + _without_gpu_work(ranks, events)
    remarks = assumed + _unreadable_names(trace) + _set_findings(trace)
    return replace(trace, quality=quality_frame(of_files + remarks))


def _unreadable_names(trace: Trace) -> list[Finding]:
    """Tell of names in the metadata that no encoding has, of which the readable part is kept."""
    sources = trace.ranks.set_index("rank")["source"]
    names = {"ranks": "host", "devices": "name", "process_groups": "description"}
    rows = ((getattr(trace, table), column) for table, column in names.items())
    lost = [
        table.loc[table[name].str.contains("\ufffd", regex=False).eq(True), "rank"]
        for table, name in rows
    ]
    counts = pd.concat(lost).value_counts(sort=False)
    return [
        (str(sources[rank]), "repaired", NOT_UTF8, int(count), None)
        for rank, count in counts.items()
    ]


def _without_gpu_work(ranks: Sequence[GpuRank], events: pd.DataFrame) -> list[Finding]:
    """Say of each rank why analyses of the GPU have nothing to work on."""
    is_work = events["kind"].cat.codes.to_numpy() >= 0
    lasts = events["dur_ns"].to_numpy() > 0
    name = events["name"].cat
    of_cpu = [code for code, text in enumerate(name.categories) if text.startswith(_CPU_BACKENDS)]
    on_cpu = np.isin(name.codes, of_cpu) if of_cpu else np.zeros(0, bool)
    findings: list[Finding] = []
    end = 0
    for rank in ranks:
        start, end = end, end + rank.gpu.rows
        if not lasts[start:end].any():
            findings.append((rank.label, "suspicious", NOTHING_RECORDED, 1, None))
        elif not is_work[start:end].any():
            remedy = f"; {RECORD_GPU_WORK}" if rank.file.format == "kineto" else ""
            findings.append((rank.label, "noted", NO_GPU_WORK + remedy, 1, None))
        if count := int(on_cpu[start:end].sum()):
            findings.append((rank.label, "noted", CPU_COLLECTIVES, count, None))
    return findings


def _groups(files: Sequence[RankTables | RawRank]) -> Iterator[list[RankTables | RawRank]]:
    """Yield files in order, those together that can be interpreted together."""
    group: list[RankTables | RawRank] = []
    rows = 0
    for file in files:
        if group and not (
            isinstance(file, RawRank) and isinstance(group[0], RawRank)
            and file.raw.texts == group[0].raw.texts
            and rows + file.raw.columns.rows <= _GROUP_ROWS
        ):  # fmt: skip
            yield group
            group, rows = [], 0
        group.append(file)
        rows += file.raw.columns.rows if isinstance(file, RawRank) else 0
    yield group


def _joint(files: Sequence[RankTables | RawRank], rules: pd.DataFrame | None) -> Joint:
    if isinstance(first := files[0], RankTables):
        return Joint(first.events, first.steps, [first.gpus], [first.clock], [first.findings])
    raws = [file for file in files if isinstance(file, RawRank)]
    tables = joint_tables([file.raw for file in raws], rules=rules)
    for file, clock, findings in zip(raws, tables.clocks, tables.findings, strict=True):
        file.clock, file.findings = clock, findings
    return tables


def format_of(source: Source) -> str:
    """Recognise the format of a source by its first bytes; '' if it is unknown."""
    head = source.head()
    if _RPD.match(head):
        return ""
    if form := fitting(FORMATS_BEFORE_KINETO, head, source.label):
        return form.name
    if kineto_format.EVENT_LIST.search(head):
        return "kineto"
    # From the surest mark to the least: many formats are JSON objects that begin alike.
    for form in TRACE_FORMATS:
        if form.fits(head, source.label) and _opens(form, source):
            return form.name
    # Some profilers write long metadata before the events.
    is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    if is_object and kineto_format.looks_like(source.head(_LONG_HEAD_BYTES), source.label):
        return "kineto"
    return ""


def _opens(form: Signature, source: Source) -> bool:
    return not form.opens or bool(getattr(form.reader, form.opens)(source))


def _read_all(
    wanted: Sequence[Source],
    reader: RankReader,
    dropped: Dropped,
    window: Window,
    *,
    progress: bool,
) -> list[RankTables | RawRank]:
    total = sum(source.size_bytes for source in wanted)
    # Members of a tar.gz are read in one pass; each process would unpack all before its own.
    one_pass = any(source.place is not None for source in wanted)
    most = 1 if one_pass else len(wanted)
    workers = processes_for(most, _expected_s(wanted, reader.engine))
    with progress_bar(total=total, unit="B", label="loading traces", enabled=progress) as bar:
        if workers > 1:
            return list(_in_processes(reader, wanted, workers, bar.update, dropped))
        tables: list[RankTables | RawRank] = []
        # Of which window a file is, its times tell; other columns are of one file.
        is_plain = window is None and reader.cache is None and not reader.args
        parser = Parser((), reader.engine)
        read = reader.parse_with(parser) if is_plain else reader.read
        for source, stream in streams(wanted, dropped):
            with dropped.trying(source.label), stream:
                tables += read(source, stream, bar.update)
        parser.finish()
        return _by_process(tables, dropped)


def _by_process(
    files: Sequence[RankTables | RawRank], dropped: Dropped
) -> list[RankTables | RawRank]:
    """Take each process of the files into which several were merged for a rank."""
    parts: list[RankTables | RawRank] = []
    finders: dict[object, ProcessFinder] = {}
    for file in files:
        if isinstance(file, RankTables):
            parts.append(file)
            continue
        texts = file.raw.texts
        with dropped.trying(file.label):
            finder = finders.get(texts) or finders.setdefault(texts, ProcessFinder(texts()))
            parts += [RawRank(raw) for raw in finder.parts(file.raw)]
    return parts


def _with_times(
    files: Sequence[RankTables | RawRank], rules: pd.DataFrame | None
) -> list[RankTables | RawRank]:
    """Interpret files by themselves that may be windows of one rank: their times are needed."""
    told = [(file.stated_rank, process_in_name(file.label)[0]) for file in files]
    counts = Counter(told)
    return [
        rank_tables(file.raw, label=file.label, rules=rules)
        if counts[key] > 1 and isinstance(file, RawRank)
        else file
        for file, key in zip(files, told, strict=True)
    ]


def _expected_s(wanted: Sequence[Source], engine: EngineName) -> float:
    """Return how long one process reads, about."""
    total = sum(source.size_bytes for source in wanted)
    packed = sum(source.size_bytes for source in wanted if plain_name(source.label) != source.label)
    rate = _COMPILED_BYTES_PER_S if is_compiled(engine) else _PYTHON_BYTES_PER_S
    return total / rate + packed / _UNPACKED_BYTES_PER_S + len(wanted) / _FILES_PER_S


@dataclass(frozen=True)
class RankReader:
    """Reads one source, from the cache if it is there; can be sent to a worker process."""

    args: tuple[str, ...]
    rules: pd.DataFrame | None
    engine: EngineName
    cache: Path | None
    format: str = "kineto"

    def read(
        self, source: Source, stream: object = None, advance: Callable[[int], object] | None = None
    ) -> list[RankTables]:
        if self.format != "kineto":
            ranks: list[RankTables] = PROFILES[self.format].reads(
                source, args=self.args, rules=self.rules, stream=stream
            )
            return ranks

        def parse() -> list[RankTables]:
            return kineto(
                source, args=self.args, rules=self.rules, engine=self.engine,
                stream=stream, advance=advance,  # type: ignore[arg-type]
            )  # fmt: skip

        if self.cache is None:
            return parse()
        from workbench.load._traces.kept_columns import get_or_store

        return get_or_store(self.cache, source, (self.args, self.rules), parse)

    def parse_with(self, parser: Parser) -> Callable[..., Sequence[RankTables | RawRank]]:
        """Return a function that leaves small files to be interpreted together."""

        def parse(
            source: Source, stream: Stream, advance: Callable[[int], object]
        ) -> Sequence[RankTables | RawRank]:
            raws = parser.parse(source, stream, advance)
            if max(raw.columns.rows for raw in raws) <= _SMALL_ROWS:
                return [RawRank(raw) for raw in raws]
            parser.finish()
            return ranks_of(raws, rules=self.rules)

        return parse

    # An error must not end the process that reads other files.
    def read_or_error(self, source: Source) -> list[RankTables] | Exception:
        try:
            with guarded(source.label):
                return self.read(source)
        except (WorkbenchError, OSError) as error:
            return error


def _in_processes(
    reader: RankReader,
    wanted: Sequence[Source],
    workers: int,
    advance: Callable[[int], object],
    dropped: Dropped,
) -> Iterator[RankTables]:
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=workers, return_as="generator")
    done = parallel(delayed(reader.read_or_error)(source) for source in wanted)
    for source, tables in zip(wanted, done, strict=True):
        advance(source.size_bytes)
        if isinstance(tables, list):
            yield from tables
            continue
        with dropped.trying(source.label):
            raise tables


def _profiles(
    sources: Mapping[str, Sequence[Source]],
    reader: RankReader,
    dropped: Dropped,
    window: Window,
    *,
    progress: bool,
) -> list[RankTables | RawRank]:
    """Read the profiles, which are all of one format; a file may hold several ranks."""
    if "kineto" in sources:
        return _read_all(sources["kineto"], reader, dropped, window, progress=progress)
    ranks: list[RankTables | RawRank] = []
    for name in PROFILES.keys() & sources.keys():
        for source, stream in streams(sources[name], dropped):
            with dropped.trying(source.label), stream:
                ranks += PROFILES[name].reads(
                    source, args=reader.args, rules=reader.rules, stream=stream
                )
    return ranks


def _parquet_sets(
    wanted: Sequence[Source], dropped: Dropped, steps: Steps, columns: Columns
) -> Trace | None:
    sets = []
    read = judged_columns(columns) if len(wanted) > 1 else columns
    for source in wanted:
        with dropped.trying(source.label):
            if source.place is not None:
                msg = f"{source.label}: Parquet inside an archive cannot be mapped; unpack it first"
                raise LoadError(msg)
            with guarded(source.label):
                sets.append(_FORMAT["parquet"].reads(source.path, steps, read))
    if len(sets) > 1:
        return joined_sets(sets, columns)
    return within_columns(sets[0], columns, wanted[0].label) if sets else None


def joined_sets(sets: Sequence[Trace], columns: Columns = None) -> Trace:
    """Join sets of different ranks, as files of one rank each are joined.

    Of some columns, the sets hold :func:`judged_columns`.
    """
    sets = sorted(sets, key=lambda of_ranks: int(of_ranks.ranks["rank"].min()))
    ranks = RANKS.joined(of_ranks.ranks for of_ranks in sets)
    if len(twins := ranks[ranks["rank"].duplicated(keep=False)]):
        first, second = twins["source"].iloc[:2]
        msg = f"two sets hold rank {twins['rank'].iloc[0]} ({first}, {second}); load one of them"
        raise LoadError(msg)
    rows, events = 0, []
    for of_ranks in sets:
        of_rank = of_ranks.events
        is_linked = "launch" in of_rank
        events.append(of_rank.assign(launch=of_rank["launch"] + rows) if is_linked else of_rank)
        rows += len(of_ranks.events)
    tables = {
        name: table.joined(getattr(of_ranks, name) for of_ranks in sets)
        for name, table in (
            ("devices", DEVICES), ("process_groups", PROCESS_GROUPS), ("steps", STEPS),
            ("nodes", NODES), ("dependencies", DEPENDENCIES), ("quality", QUALITY),
        )
    }  # fmt: skip
    declared = events_table(judged_columns(columns))
    whole = declared.check(concat(events, sort_categories=True))
    joined = Trace(events=whole, ranks=ranks, **tables)
    remarks = _set_findings(joined)
    quality = QUALITY.joined([joined.quality, quality_frame(remarks)])
    return within_columns(replace(joined, quality=quality), columns, str(ranks["source"].iloc[0]))


def _raise_unknown(path: Paths, findings: Sequence[Finding]) -> None:
    msg = (
        f"{shown_all(path)}: no readable trace found; supported: Kineto JSON, "
        "exports of Nsight Systems, rocprofv3 (JSON, rocpd), Perfetto (.pftrace), PyTorch "
        "execution traces, Chakra ET and the workbench's own Parquet."
        f"{listed(findings)}"
    )
    raise LoadError(msg)


def _joined(profile: Trace, graph: Trace) -> Trace:
    more = graph.ranks[~graph.ranks["rank"].isin(profile.ranks["rank"])]
    ranks = pd.concat([profile.ranks, more], ignore_index=True) if len(more) else profile.ranks
    groups = profile.process_groups if len(profile.process_groups) else graph.process_groups
    return replace(
        profile,
        ranks=RANKS.check(RANKS.cast(ranks.sort_values("rank", ignore_index=True))),
        process_groups=groups,
        nodes=graph.nodes,
        dependencies=graph.dependencies,
        quality=QUALITY.joined([profile.quality, graph.quality]),
    )


def _raise_mixed(by_format: Mapping[str, Sequence[Source]]) -> None:
    examples = ", ".join(f"{name} ({sources[0].label})" for name, sources in by_format.items())
    msg = (
        f"files of different formats: {examples}; profiles and execution traces of one job go "
        "together, anything else is loaded separately"
    )
    raise LoadError(msg)


# Ranks, devices and groups from the metadata of profiles.


def ranks_table(ranks: Sequence[GpuRank], events: pd.DataFrame) -> pd.DataFrame:
    start, lasting = events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()
    rows, end = [], 0
    for one in ranks:
        file, world, size = one.file, one.world_size, one.gpu.rows
        own = slice(end, end + size)
        end += size
        row = {"rank": one.rank, "rank_source": one.source, "source": one.label}
        row["format"] = file.format
        row |= {"backend": metadata_text(file.distributed, "backend"), "clock": file.clock}
        row["host"] = next(filter(None, (_host(file.metadata, key) for key in _HOST_KEYS)), None)
        row["world_size"] = world if world and world > 0 else None
        row["first_ns"] = int(start[own][0]) if size else None
        row["last_ns"] = _last(start[own], lasting[own]) if size else None
        rows.append(row | {"event_count": size})
    return _table(RANKS, rows)


def _host(metadata: Mapping[str, object], key: str) -> str | None:
    name = metadata_text(metadata, key) if isinstance(metadata.get(key), str) else None
    return name.strip()[:_MOST_HOST_NAME] or None if name else None


# Piece by piece: the ends of all events at once would take as much memory as their starts.
def _last(start: IntArray, lasting: IntArray) -> int:
    pieces = (slice(row, row + _PIECE_ROWS) for row in range(0, len(start), _PIECE_ROWS))
    return max(int((start[piece] + lasting[piece]).max()) for piece in pieces)


def _set_findings(trace: Trace) -> list[Finding]:
    """Return findings about the set as a whole: ranks that lack, clocks that differ."""
    ranks, events = trace.ranks, trace.events

    def names() -> list[set[int]]:
        row = np.flatnonzero(events["kind"].cat.codes.to_numpy() >= 0)
        name, rank = events["name"].cat, events["rank"].to_numpy()
        count = len(name.categories)
        pairs = rank[row].astype(np.int64) * count + name.codes.to_numpy()[row]
        distinct = np.sort(pd.unique(pairs))
        told = ranks.loc[ranks["rank_source"] != "argument", "rank"].to_numpy(np.int64)
        bounds = np.searchsorted(distinct, np.stack([told, told + 1], axis=1) * count)
        return [set((distinct[start:end] % count).tolist()) for start, end in bounds]

    def communicates() -> bool:
        return bool(events["kind"].eq("communication").any())

    remarks = remarks_on_set(ranks, names, communicates=communicates)
    source = short(str(ranks["source"].iloc[0]))
    return [(source, "suspicious", finding, count, None) for finding, count in remarks]


def devices_table(ranks: Sequence[GpuRank]) -> pd.DataFrame:
    described, before, last = list[Row](), None, range(0)
    numbers, rows = list[int](), list[int]()
    for one in ranks:
        # Ranks of one job mostly state the same.
        if (properties := one.file.metadata.get("deviceProperties")) != before:
            before, first = properties, len(described)
            described += [{"rank": 0} | _device(device) for device in _dicts(properties)]
            last = range(first, len(described))
        own = [row for row in last if one.gpu.device in (None, described[row]["device"])]
        numbers += [one.rank] * len(own)
        rows += own
    devices = _table(DEVICES, described).take(rows).reset_index(drop=True)
    return DEVICES.check(devices.assign(rank=np.array(numbers, np.int32)))


def _device(properties: Row) -> Row:
    major, minor = properties.get("computeMajor"), properties.get("computeMinor")
    processors = properties.get("numSms", properties.get("multiProcessorCount"))
    return {
        "device": to_integer(properties.get("id")),
        "name": str(metadata_text(properties, "name") or ""),
        "memory_bytes": to_integer(properties.get("totalGlobalMem")),
        "capability": None if major is None else f"{major}.{minor}",
        "processor_count": to_integer(processors),
    }


def groups_table(ranks: Sequence[GpuRank]) -> pd.DataFrame:
    rows = [
        {"rank": one.rank, "group": metadata_text(group, "pg_name") or "",
         "description": metadata_text(group, "pg_desc"), "members": _members(group, one),
         "backend": metadata_text(group, "backend_config"),
         "group_size": to_integer(group.get("pg_size"))}
        for one in ranks
        for group in _dicts(one.file.distributed.get("pg_config"))
    ]  # fmt: skip
    return _table(PROCESS_GROUPS, rows)


def _members(group: Row, one: GpuRank) -> str:
    ranks = group.get("ranks")
    if isinstance(ranks, str):
        ranks = ranks.strip("[] ").split(",") if ranks.strip("[] ") else []
    if not isinstance(ranks, list):
        return ""
    processes = [number for rank in ranks if (number := to_integer(rank)) is not None]
    size = to_integer(group.get("pg_size"))
    if not processes and one.numbering.most > 1 and size == one.file.world_size:
        processes = list(range(size or 0))  # the default group lists none
    return ",".join(map(str, one.numbering.members(processes, one.place)))


def _dicts(value: object) -> list[Row]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _table(table: Table, rows: list[Row]) -> pd.DataFrame:
    if not rows:
        return table.empty()
    # A number from the metadata that its column cannot hold is missing.
    limits = {"Int32": 1 << 31, "Int64": 1 << 63}
    for name, column in table.columns.items():
        if limit := limits.get(column.dtype):
            low = -limit if column.lower is None else column.lower
            for row in rows:
                if row[name] is not None and not low <= row[name] < limit:
                    row[name] = None
    return table.check(table.cast(pd.DataFrame(rows, columns=list(table.columns))))


def short(label: str) -> str:
    return PART.sub("", label).rsplit("!", 1)[-1].replace("\\", "/").rsplit("/", 1)[-1]
