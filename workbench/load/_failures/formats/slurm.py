"""Accounting of Slurm: ``sacct --parsable2 --duplicates``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text import text_lines
from workbench.load._files.time import SECOND, Given, LogPart, duration_ns, failure_rows, utc_ns
from workbench.tables import SAYS_SYNTHETIC, TIMELINE

NAME = "Slurm accounting"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    return header_in(head) is not None or is_wide(head)


def read(source: Source, settings: Given) -> LogPart:
    """Read the runs of all jobs of a file.

    Steps are folded into their job. A job that ran again (``--duplicates``) has one attempt
    per run.
    """
    head = source.head()
    if header_in(head) is None and is_wide(head):
        msg = (
            f"{source.label}: sacct's table for people cuts fields off; "
            "write it again with sacct --parsable2 --duplicates"
        )
        raise LoadError(msg)
    findings = Findings(source.label)
    jobs = jobs_of(read_records(source, findings, keep=COLUMNS), settings, findings)
    note_crash_loops(jobs, findings)
    findings.add("read", "runs of jobs", len(jobs))
    return LogPart(
        failures_of(jobs, settings, source.label), timeline_of(jobs, source.label), findings
    )


# Records of ``sacct --parsable2``: texts, put together where a field holds line breaks.

TOO_FEW = "records with too few fields"
TOO_MANY = "records with too many fields: a text contains the separator"
NO_JOB = "records without a job number where JobID should be"
NOT_A_RECORD = "lines that are not parts of a record"
JOINED = "records joined from several lines"
HEADER_AGAIN = "headers repeated"
_NEEDED = frozenset({"JobID", "State"})
_FIRST_LINES = 20
_MOST_TEXTS = 100_000
_HEADER = re.compile(r"\w+(\t|[^\w\s]+)\w")
_JOB_ID = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?(?:\.\S+)?")
_WIDE = re.compile(r"^ *\w+( +\w+)* *\n(-+ )+", re.MULTILINE)
# Columns that users and administrators write, and that may hold line breaks.
_FREE = {"AdminComment", "Comment", "Constraints", "Extra", "JobName", "Reason", "StdErr"}
_FREE |= {"StdIn", "StdOut", "SubmitLine", "SystemComment", "WorkDir"}


@dataclass(frozen=True)
class Header:
    names: list[str]
    separator: str


@dataclass
class Records:
    names: list[str]
    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def header_of(text: str) -> Header | None:
    if (match := _HEADER.match(text)) is None:
        return None
    names = text.split(match[1])
    plain = names[:-1] if names[-1] == "" else names  # --parsable ends lines with a separator
    is_one = all(re.fullmatch(r"\w+", name) for name in plain) and set(plain) >= _NEEDED
    return Header(names, match[1]) if is_one else None


def header_in(head: bytes) -> Header | None:
    lines = head.decode(errors="replace").removeprefix("\ufeff").split("\n")[:_FIRST_LINES]
    return next((header for line in lines if (header := header_of(line.rstrip("\r")))), None)


def is_wide(head: bytes) -> bool:
    """Whether a file is sacct's table for people, which cuts long fields off."""
    match = _WIDE.search(head.decode(errors="replace"))
    return match is not None and set(match[0].split()) >= _NEEDED


def read_records(
    source: Source, findings: Findings, *, keep: Collection[str] | None = None
) -> Records:
    """Read a file; what is not a whole record is dropped, and counted by kind with its line."""
    lines = text_lines(source, findings)
    header = _first_header(lines, source, findings)
    # sacct prints a column twice if --format names it twice.
    names = _distinct(header.names)
    columns = [i for i, name in enumerate(names) if name and (keep is None or name in keep)]
    job = names.index("JobID")
    records = Records([names[i] for i in columns])
    texts: dict[str, str] = {}
    for line, fields in _joined(lines, header, findings):
        if fields == header.names:
            findings.add("skipped by design", HEADER_AGAIN, 1, f"line {line:,}")
        elif _JOB_ID.fullmatch(fields[job]):
            # Most texts are repeated: states, dates, hosts. Each is kept once.
            records.rows.append([texts.setdefault(fields[i], fields[i]) for i in columns])
            if len(texts) > _MOST_TEXTS:
                texts.clear()
            records.lines.append(line)
        else:
            if header_of(header.separator.join(fields)) is not None:
                raise _other_header(source.label, line)
            where = f"line {line:,}: {fields[job][:40]!r}"
            findings.add("dropped", NO_JOB, 1, where)
    return records


def _first_header(lines: Iterator[tuple[int, str]], source: Source, findings: Findings) -> Header:
    for number, text in lines:
        if (header := header_of(text)) is not None:
            return header
        if text.strip():
            findings.add("skipped by design", "lines before the header", 1, f"line {number:,}")
        if number == _FIRST_LINES:
            break
    msg = (
        f"{source.label}: no header with JobID and State; write it with "
        "sacct --parsable2 --duplicates --format=ALL (and without --noheader)"
    )
    raise LoadError(msg)


def _other_header(label: str, line: int) -> LoadError:
    msg = f"{label}, line {line:,}: another header with other columns; split the file there"
    return LoadError(msg)


def _distinct(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        distinct.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return distinct


def _joined(
    lines: Iterator[tuple[int, str]], header: Header, findings: Findings
) -> Iterator[tuple[int, list[str]]]:
    """Yield line and fields of whole records; a text with line breaks is put together."""
    joiner = _Joiner(header, findings)
    for number, text in lines:
        yield from joiner.add(number, text)
    yield from joiner.end()


class _Joiner:
    """Takes lines and gives records, one line late: the last text of a record may go on."""

    def __init__(self, header: Header, findings: Findings) -> None:
        self._wanted = len(header.names)
        self._separator = header.separator
        self._may_go_on = header.names[-1] in _FREE
        self._may_begin = header.names[0] in _FREE
        self._findings = findings
        self._held: tuple[int, list[str]] | None = None
        self._begun: list[str] = []
        self._begun_at = self._begun_count = 0

    def add(self, number: int, text: str) -> Iterator[tuple[int, list[str]]]:
        count = text.count(self._separator) + 1
        # A line break within a text: the line goes on with the record begun.
        if self._begun and count < self._wanted and self._begun_count + count - 1 <= self._wanted:
            return self._continue(text, count)
        self._give_up()
        # Without any separator it is part of a text, or no part of the table.
        if count == 1 < self._wanted and not (self._may_begin and text.strip()):
            self._alone(number, text)
            return iter(())
        return self._begin(number, text, count)

    def end(self) -> Iterator[tuple[int, list[str]]]:
        self._give_up()
        return self._release(None)

    def _begin(self, number: int, text: str, count: int) -> Iterator[tuple[int, list[str]]]:
        if count == self._wanted:
            return self._release((number, text.split(self._separator)))
        if count > self._wanted:
            if header_of(text) is not None:
                raise _other_header(self._findings.source, number)
            self._findings.add("dropped", TOO_MANY, 1, f"line {number:,}")
        else:
            self._begun, self._begun_at, self._begun_count = [text], number, count
        return self._release(None)

    def _continue(self, text: str, count: int) -> Iterator[tuple[int, list[str]]]:
        self._begun.append(text)
        self._begun_count += count - 1
        if self._begun_count < self._wanted:
            return iter(())
        self._findings.add("repaired", JOINED, 1, f"line {self._begun_at:,}")
        record = (self._begun_at, "\n".join(self._begun).split(self._separator))
        self._begun = []
        return self._release(record)

    def _alone(self, number: int, text: str) -> None:
        """Add a line without separators to the last text before it, if it may be that."""
        if self._held is not None and self._may_go_on and not text.startswith("sacct: "):
            self._held[1][-1] += f"\n{text}"
            if text.strip():
                self._findings.add("repaired", JOINED, 1, f"line {self._held[0]:,}")
        elif text.strip():
            where = f"line {number:,}: {text[:40]}"
            self._findings.add("dropped", NOT_A_RECORD, 1, where)

    def _give_up(self) -> None:
        """Leave out a record that was begun and never became whole."""
        if self._begun:
            self._findings.add("dropped", TOO_FEW, 1, f"line {self._begun_at:,}")
            self._begun = []

    def _release(self, record: tuple[int, list[str]] | None) -> Iterator[tuple[int, list[str]]]:
        # A record is given once the next one begins, as its last text may go on.
        finished, self._held = self._held, record
        return iter(() if finished is None else (finished,))


# Records as runs of jobs: one row per attempt, with times, nodes and GPUs.

_TIMES = ("Submit", "Eligible", "Start", "End")
COLUMNS = (
    *("JobID", "State", *_TIMES, "Elapsed", "Suspended", "DBIndex", "Cluster", "JobName"),
    *(
        "ExitCode",
        "DerivedExitCode",
        "Reason",
        "FailedNode",
        "Comment",
        "AdminComment",
        "SystemComment",
    ),
    *("NNodes", "AllocNodes", "NodeList", "AllocTRES", "AllocGRES", "ReqTRES"),
)
_JOB = r"(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?)(?:\.(?P<step>.*))?"
_COMMENTS = ("Comment", "AdminComment", "SystemComment")


def jobs_of(records: Records, settings: Given, findings: Findings) -> pd.DataFrame:
    """Return one row per run of a job.

    Columns: those of sacct, and ``job``, ``attempt``, ``word`` (the state's first word),
    ``start_ns`` and the like, ``node_count``, ``gpu_count``, ``hosts``, ``step_states``,
    ``line``, ``is_local``.
    """
    frame = _frame(records, findings)
    _note_comments(frame, findings)
    frame = _with_times(frame, settings, findings)
    ids = frame["JobID"].str.extract(f"^{_JOB}$")
    frame["job"], is_step = ids["job"], ids["step"].notna()
    clusters = frame[~is_step].groupby("job")["Cluster"].nunique()
    shared = frame["job"].isin(clusters.index[clusters > 1])
    frame["job"] = frame["job"].mask(shared, frame["job"] + "@" + frame["Cluster"])
    remark = "records of jobs with one number in several clusters, named job@cluster"
    findings.add("noted", remark, int(shared.sum()), _line(frame[shared]))
    runs = _latest(frame[~is_step], findings)
    runs = pd.concat([runs, _from_steps(frame[is_step], runs["job"], findings)])
    runs = _numbered(runs)
    runs["step_states"] = _of_steps(runs, frame[is_step], "word")
    runs["step_codes"] = _of_steps(runs, frame[is_step], "ExitCode")
    _check_times(runs, findings)
    return _with_resources(runs, findings)


def _frame(records: Records, findings: Findings) -> pd.DataFrame:
    text = pd.Series([""]).dtype
    frame = pd.DataFrame(records.rows, columns=records.names, dtype=text)
    frame = frame.reindex(columns=list(COLUMNS), fill_value="").astype(text)
    frame["line"] = pd.Series(records.lines, dtype="int64")
    twice = frame.duplicated(list(COLUMNS))
    remark = "records written twice"
    findings.add("skipped by design", remark, int(twice.sum()), _line(frame[twice]))
    frame = frame[~twice].reset_index(drop=True)
    frame["word"] = frame["State"].str.split(n=1).str[0].fillna("").str.rstrip("+")
    odd = ~frame["word"].isin(ENDED_STATES | OTHER_STATES)
    for word, records_of_word in frame[odd].groupby("word"):
        remark = f"state {str(word)[:40]!r}, which is not one of Slurm's"
        findings.add("suspicious", remark, len(records_of_word), _line(records_of_word))
    return frame


def _line(frame: pd.DataFrame) -> str | None:
    return None if frame.empty else f"line {int(frame['line'].iloc[0]):,}"


def _note_comments(frame: pd.DataFrame, findings: Findings) -> None:
    says = pd.Series(data=False, index=frame.index)
    for name in _COMMENTS:
        says |= frame[name].str.startswith("SYNTHETIC")
    findings.add("noted", SAYS_SYNTHETIC, int(says.sum()), _line(frame[says]))


def _with_times(frame: pd.DataFrame, settings: Given, findings: Findings) -> pd.DataFrame:
    stamps = pd.concat([frame[name] for name in _TIMES], ignore_index=True)
    lines = pd.concat([frame["line"]] * len(_TIMES), ignore_index=True)
    # Records are in order of jobs, not of time.
    times = utc_ns(stamps, lines, settings.tz, findings, is_in_order=False)
    count = len(frame)
    for position, name in enumerate(_TIMES):
        rows = slice(position * count, (position + 1) * count)
        frame[f"{name.lower()}_ns"] = times.ns.iloc[rows].array
    local = times.is_local.to_numpy().reshape(len(_TIMES), count)
    frame["is_local"] = pd.Series(local.any(axis=0), index=frame.index)
    # Elapsed leaves out the time for which a job was suspended.
    took = _durations(frame["Elapsed"]) + _durations(frame["Suspended"]).fillna(0)
    ended = frame["word"].isin(ENDED_STATES)
    frame["took_ns"] = took
    for name, opposite, sign in (("end", "start", 1), ("start", "end", -1)):
        inferred = frame[f"{opposite}_ns"] + sign * took
        use = ended & frame[f"{name}_ns"].isna() & inferred.notna() & (took > 0).fillna(value=False)
        frame.loc[use, f"{name}_ns"] = inferred[use]
        remark = f"times of {name} that were missing, computed from Elapsed"
        findings.add("repaired", remark, int(use.sum()), _line(frame[use]))
    return frame


def _durations(texts: pd.Series) -> pd.Series:
    duration_of = {text: duration_ns(text) for text in texts.unique()}
    values = [duration_of[text] for text in texts]
    return pd.Series(pd.array(values, dtype="Int64"), index=texts.index)


def _latest(jobs: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Keep the last record of each run: logs of several days report a run several times."""
    # sacct counts records by DBIndex; without it a job and its time of submission tell runs apart.
    keys = ["job", "DBIndex"] if jobs["DBIndex"].ne("").any() else ["job", "Submit"]
    begun = jobs["start_ns"].notna()
    waits = jobs[~begun].merge(jobs.loc[begun, keys].drop_duplicates(), on=keys)["line"]
    kept = jobs[~jobs["line"].isin(waits)]
    ended = kept["word"].isin(ENDED_STATES)
    # An ended record completes one written while the job ran; of two alike the later counts.
    kept = kept.assign(_ended=ended).sort_values(["_ended", "line"], kind="stable")
    kept = kept[~kept.duplicated([*keys, "start_ns"], keep="last")].drop(columns="_ended")
    remark = "earlier records of a run that a later one completes"
    findings.add("skipped by design", remark, len(jobs) - len(kept))
    return kept


def _from_steps(steps: pd.DataFrame, jobs: pd.Series, findings: Findings) -> pd.DataFrame:
    orphans = steps[~steps["job"].isin(jobs)].sort_values("line")
    if orphans.empty:
        return orphans
    widest = orphans.assign(_nodes=_node_numbers(orphans["NNodes"]).fillna(0))
    runs = widest.sort_values("_nodes", kind="stable").groupby("job").tail(1).drop(columns="_nodes")
    groups = orphans.groupby("job")
    lasts = orphans["end_ns"].isna().groupby(orphans["job"]).any()
    runs["start_ns"] = runs["job"].map(groups["start_ns"].min()).astype("Int64")
    end = runs["job"].map(groups["end_ns"].max()).astype("Int64")
    runs["end_ns"] = end.mask(runs["job"].map(lasts))
    # How a step ended does not say how its job did.
    runs["word"] = runs["State"] = ""
    runs["took_ns"] = pd.array([None] * len(runs), dtype="Int64")
    remark = "jobs of which only steps are recorded: their times are those of the steps"
    findings.add("assumed", remark, len(runs), _line(runs))
    return runs


def _numbered(runs: pd.DataFrame) -> pd.DataFrame:
    first = runs["start_ns"].fillna(runs["submit_ns"]).fillna(2**63 - 1)
    runs = runs.assign(_first=first).sort_values(["_first", "line"], kind="stable")
    runs = runs.drop(columns="_first").reset_index(drop=True)
    runs["attempt"] = (runs.groupby("job").cumcount() + 1).astype("Int32")
    return runs


def _of_steps(runs: pd.DataFrame, steps: pd.DataFrame, name: str) -> pd.Series:
    """List states, or exit codes, of failed steps that say more than those of the job."""
    # CANCELLED and FAILED of a step say nothing beyond the state of the job.
    telling = set(FAILURE_STATES) - {"CANCELLED", "FAILED"}
    bad = steps[steps[name].isin(telling) if name == "word" else ~steps[name].isin({"", "0:0"})]
    timed, begun = bad[bad["start_ns"].notna()], runs[runs["start_ns"].notna()]
    if timed.empty or begun.empty:
        return pd.Series("", index=runs.index)
    # Types differ by what a version of pandas makes of Int64 in an as-of join.
    at = timed["start_ns"].astype("int64")
    left = timed.assign(at=at).sort_values("at")[["at", "job", name]]
    right = begun.assign(at=begun["start_ns"].astype("int64"), run=begun.index).sort_values("at")
    met = pd.merge_asof(left, right[["at", "job", "run"]], on="at", by="job").dropna(subset="run")
    values: dict[int, set[str]] = {}
    for run, value in zip(met["run"].astype("int64"), met[name], strict=True):
        values.setdefault(run, set()).add(value)
    own = runs[name].to_dict()
    texts = [", ".join(sorted(values.get(run, set()) - {own[run]})) for run in runs.index]
    return pd.Series(texts, index=runs.index, dtype=pd.Series([""]).dtype)


def _check_times(runs: pd.DataFrame, findings: Findings) -> None:
    """Point out times that contradict each other, and leave out those of impossible runs."""
    ended = runs["word"].isin(ENDED_STATES)
    spent = runs["end_ns"] - runs["start_ns"]
    backwards = (spent < 0).fillna(value=False)
    remark = "runs that end before they start; their times are missing"
    findings.add("suspicious", remark, int(backwards.sum()), _line(runs[backwards]))
    off = ((spent - runs["took_ns"]).abs() > 2 * SECOND).fillna(value=False) & ~backwards & ended
    remark = "runs that took longer or shorter than Elapsed says; check the time zone"
    findings.add("suspicious", remark, int(off.sum()), _line(runs[off]))
    endless = ended & runs["end_ns"].isna()
    remark = "runs that ended without an end time"
    findings.add("suspicious", remark, int(endless.sum()), _line(runs[endless]))
    runs.loc[backwards, ["start_ns", "end_ns"]] = pd.NA


def _with_resources(runs: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    expanded: dict[str, tuple[str, ...]] = {}
    for text, line in zip(runs["NodeList"], runs["line"], strict=True):
        if text not in expanded:
            expanded[text] = _hosts(text, int(line), findings)
    runs["hosts"] = [expanded[text] for text in runs["NodeList"]]
    nodes = pd.Series(pd.array([None] * len(runs), dtype="Int64"), index=runs.index)
    listed = runs["hosts"].map(len)
    for count in (runs["AllocNodes"], runs["NNodes"], listed):
        number = count if count is listed else _node_numbers(count)
        nodes = nodes.fillna(number.astype("Int64").mask(number <= 0))
    runs["node_count"] = nodes
    runs["gpu_count"] = _gpus(runs, findings)
    return runs


def _node_numbers(texts: pd.Series) -> pd.Series:
    """Read numbers of nodes; sacct writes 1K for 1024."""
    numbers: dict[str, int | None] = {}
    for text in texts.unique():
        # Slurm shortens numbers of nodes: 2K is 2048.
        match = re.fullmatch(r"(\d{1,7})(K?)", text.strip(), re.ASCII)
        numbers[text] = int(match[1]) * (1024 if match[2] else 1) if match else None
    return pd.Series(pd.array([numbers[text] for text in texts], dtype="Int64"), index=texts.index)


def _hosts(text: str, line: int, findings: Findings) -> tuple[str, ...]:
    try:
        return hosts(text)
    except LoadError as error:
        findings.add("dropped", "host lists that cannot be read", 1, f"line {line:,}: {error}")
        return ()


def _gpus(runs: pd.DataFrame, findings: Findings) -> pd.Series:
    counts: pd.Series = pd.Series(pd.array([None] * len(runs), dtype="Int64"), index=runs.index)
    for name in ("AllocTRES", "AllocGRES", "ReqTRES"):
        counted = {text: (gpu_count(text), is_per_node(text)) for text in runs[name].unique()}
        gpus = pd.array([counted[text][0] for text in runs[name]], dtype="Int64")
        is_each = [counted[text][1] for text in runs[name]]
        per_node = pd.Series(is_each, index=runs.index, dtype=bool)
        numbers = pd.Series(gpus, index=runs.index)
        numbers = numbers.mask(per_node, numbers * runs["node_count"])
        if name == "ReqTRES":
            # A request tells GPUs only as long as nothing was allocated.
            numbers = numbers.mask(runs["start_ns"].notna() | runs["AllocTRES"].ne(""))
        use = counts.isna() & numbers.notna()
        if name == "AllocGRES":
            several = use & ~per_node & (runs["node_count"] > 1).fillna(value=False)
            remark = "AllocGRES of several nodes counts the GPUs of all of them together"
            findings.add("assumed", remark, int(several.sum()), _line(runs[several]))
        counts = counts.where(~use, numbers)
    # A job with resources listed and no GPU among them has none.
    return counts.mask(counts.isna() & runs["AllocTRES"].ne(""), 0)


# What Slurm's words mean: states of jobs, exit codes and counts of GPUs.


class Meaning(NamedTuple):
    category: str
    severity: str
    cause: str


# https://slurm.schedmd.com/job_state_codes.html; FAILED is any exit code but 0, whatever the
# reason, so nothing is said of its category.
FAILURE_STATES = {
    "BOOT_FAIL": Meaning("host", "fatal", "node did not boot"),
    "CANCELLED": Meaning("planned", "info", "cancelled"),
    "DEADLINE": Meaning("scheduler", "fatal", "deadline passed"),
    "FAILED": Meaning("unknown", "fatal", "job failed"),
    "LAUNCH_FAILED": Meaning("host", "fatal", "job could not be launched"),
    "NODE_FAIL": Meaning("host", "fatal", "node failed"),
    "OUT_OF_MEMORY": Meaning("software", "fatal", "out of host memory"),
    "PREEMPTED": Meaning("scheduler", "fatal", "preempted"),
    "RECONFIG_FAIL": Meaning("host", "fatal", "node could not be reconfigured"),
    "REQUEUED": Meaning("scheduler", "fatal", "requeued"),
    "REVOKED": Meaning("scheduler", "info", "revoked: it started in another cluster"),
    "TIMEOUT": Meaning("scheduler", "fatal", "time limit reached"),
}
ENDED_STATES = frozenset({"COMPLETED", *FAILURE_STATES})
OTHER_STATES = frozenset(
    {"COMPLETING", "CONFIGURING", "EXPEDITING", "PENDING", "POWER_UP_NODE", "REQUEUE_FED"}
    | {"REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT"}
    | {"STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB"}
)
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_SIGNALS = 64
# What Slurm's own signal for a memory kill (253) leaves in seven bits.
_MEMORY_SIGNAL = 125
_GPU = re.compile(r"(?:PER_NODE:)?(?:gres[/:])?gpu(?::([^=:,(]*[A-Za-z][^=:,(]*))?[=:](\d{1,9})")
_PER_NODE = re.compile(r"(?:^|,)PER_NODE:(?:gres[/:])?gpu[:=]")


def cause_of(state: str, exit_code: str, derived: str = "", of_steps: str = "") -> str:
    """Return why a run failed, by its codes and those of its steps, as sacct prints them.

    Notes
    -----
    sacct subtracts 128 from an ExitCode of 128 and more, and not from DerivedExitCode: 9 is 9, or
    137, which is what a shell makes of signal 9. A step that a signal ended tells which.

    References
    ----------
    Slurm 22.05: src/sacct/print.c, ``print_fields`` (``PRINT_EXITCODE``).
    """
    word = state.split(" ", 1)[0].rstrip("+")
    cause = FAILURE_STATES[word].cause
    if word == "CANCELLED" and " by " in state:
        who = state.split(" by ", 1)[1].strip()
        return f"{cause} by {'root' if who == '0' else f'user {who}'}"
    match = _EXIT.fullmatch(exit_code)
    if word != "FAILED" or match is None:
        return cause
    if match[2] != "0":
        return f"{cause}, killed by signal {match[2]}"
    low, high = int(match[1]), int(match[1]) + 128
    if low >= 128:
        return f"{cause} with exit code {low}"
    whole, signal = _code(derived)
    signals = {signal, *(_code(code)[1] for code in of_steps.split(", "))}
    shell = f"{high} (killed by signal {low})" if 0 < low <= _SIGNALS else str(high)
    # A job does not fail with 0.
    if low == 0 or low in signals or whole == high:
        return f"{cause} with exit code {shell}"
    if whole == low:
        return f"{cause} with exit code {low}"
    return f"{cause} with exit code {low} or {shell}, which sacct prints alike"


def _code(text: str) -> tuple[int, int]:
    """Return status and signal of an exit code; (0, 0) if it is none."""
    match = _EXIT.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def gpu_count(text: str) -> int | None:
    """Count the GPUs of a resource list; None if it does not say.

    ``gres/gpu=8,gres/gpu:h100=8`` names the same GPUs twice: counts by type are added up
    only where there is none of all types.
    """
    untyped: list[int] = []
    typed: list[int] = []
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        if match := _GPU.fullmatch(entry.strip()):
            (typed if match[1] else untyped).append(int(match[2]))
    # gres/gpu=8,gres/gpu:h100=8 counts the same GPUs twice; the plain entry holds all.
    if untyped:
        return max(untyped)
    return sum(typed) if typed else None


def is_per_node(text: str) -> bool:
    return _PER_NODE.search(text) is not None


# Runs of Slurm jobs as tables of failures and of states.

_TEXT_LENGTH = 200
_SHOWN = (
    "JobID",
    "JobName",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "Reason",
    "NodeList",
    "FailedNode",
    "Comment",
)
_USED = dict.fromkeys(
    (*_SHOWN, "word", "end_ns", "hosts", "job", "step_states", "step_codes", "line", "is_local")
)
_VAGUE = {"FAILED": 1, "CANCELLED": 2}
_COMPONENTS_NS = 60 * SECOND
# What is pointed out as a crash loop: a note, which changes no number.
_LOOP_STARTS, _LOOP_NS = 5, 3600 * SECOND


def failures_of(jobs: pd.DataFrame, settings: Given, label: str) -> pd.DataFrame:
    failed = jobs[jobs["word"].isin(FAILURE_STATES)].sort_values("end_ns", kind="stable")
    failed = failed[list(_USED)]
    rows: list[dict[str, Any]] = []
    for run in failed.to_dict("records"):
        code, states = run["word"], run["step_states"]
        cause = cause_of(run["State"], run["ExitCode"], run["DerivedExitCode"], run["step_codes"])
        if code in ("FAILED", "CANCELLED") and _ran_out_of_memory(run):
            states = ", ".join(sorted({code, *states.split(", ")} - {"", "OUT_OF_MEMORY"}))
            code, cause = "OUT_OF_MEMORY", FAILURE_STATES["OUT_OF_MEMORY"].cause
        meaning = FAILURE_STATES[code]
        has_end = pd.notna(run["end_ns"])
        end = int(run["end_ns"]) if has_end else None
        row = {"start_ns": end, "end_ns": end, "clock": "epoch" if has_end else "none"}
        row |= {"node": _node(run), "job": run["job"], "kind": "slurm", "code": code}
        row |= {"cause": cause}
        row |= {"category": meaning.category, "severity": meaning.severity}
        row |= {"other_codes": states, "text": _text(run), "line": run["line"]}
        row |= {"assumed": f"tz={settings.tz}" if run["is_local"] else ""}
        _append_once(rows, row)
    return failure_rows(rows, label)


def _ran_out_of_memory(run: Mapping[Any, Any]) -> bool:
    codes = (run["ExitCode"], run["DerivedExitCode"], *run["step_codes"].split(", "))
    has_signal = any(_code(code)[1] == _MEMORY_SIGNAL for code in codes)
    return has_signal or "OUT_OF_MEMORY" in run["step_states"]


def _append_once(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Append the failure of a job; components of a heterogeneous one, 7+0 and 7+1, fail once."""
    whole, plus, _ = str(row["job"]).partition("+")
    for number, earlier in enumerate(reversed(rows) if plus else ()):
        if (row["start_ns"] or 0) - (earlier["start_ns"] or 0) > _COMPONENTS_NS:
            break
        if str(earlier["job"]).startswith(f"{whole}+"):
            # FAILED and CANCELLED of a component follow what another one says in more detail.
            if _VAGUE.get(row["code"], 0) < _VAGUE.get(earlier["code"], 0):
                rows[-1 - number] = row
            return
    rows.append(row)


def _node(run: Mapping[Any, Any]) -> str | None:
    """Return the node that Slurm blames, or the only one that the job had."""
    blamed: tuple[str, ...] = ()
    if run["FailedNode"]:
        try:
            blamed = hosts(str(run["FailedNode"]))
        except LoadError:
            blamed = ()
    nodes = blamed or run["hosts"]
    return nodes[0] if isinstance(nodes, tuple) and len(nodes) == 1 else None


def _text(run: Mapping[Any, Any]) -> str:
    fields = [f"{name}={run[name]}" for name in _SHOWN if run[name] not in ("", "None")]
    text = " ".join(" ".join(fields).split())
    return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"


def timeline_of(jobs: pd.DataFrame, label: str) -> pd.DataFrame:
    common = jobs[["job", "attempt", "node_count", "gpu_count", "line"]].copy()
    ended = jobs["word"].isin(FAILURE_STATES) | jobs["word"].eq("COMPLETED")
    common["outcome"] = jobs["word"].where(ended)
    began = jobs["start_ns"].notna() & ~jobs["word"].eq("PENDING")
    running = common.assign(state="running", start_ns=jobs["start_ns"], end_ns=jobs["end_ns"])
    joined = {names: ",".join(names) or None for names in set(jobs["hosts"])}
    running["nodes"] = [joined[names] for names in jobs["hosts"]]
    # A wait cannot begin after the start; requeued jobs may have such an eligible time.
    since = jobs["eligible_ns"].mask((jobs["eligible_ns"] > jobs["start_ns"]).fillna(value=True))
    since = since.fillna(jobs["submit_ns"]).fillna(jobs["eligible_ns"])
    until = jobs["start_ns"].where(began, jobs["end_ns"])
    queued = common.assign(state="queued", start_ns=since, end_ns=until, nodes=None)
    queued["outcome"] = common["outcome"].mask(began)
    # No time, or less than none, was spent waiting where a requeued job kept its stamps.
    waited = since.notna() & ~(since >= until).fillna(value=False)
    # A run whose times are missing or impossible is listed all the same.
    lost = ~began & ~waited
    running.loc[lost, ["start_ns", "end_ns"]] = pd.NA
    rows = pd.concat([queued[waited], running[began | lost]])
    rows["clock"] = rows["start_ns"].notna().map({True: "epoch", False: "none"})
    rows = rows.assign(replica=None, first_step=None, last_step=None, source=label)
    rows = rows.sort_values(["start_ns", "line"], kind="stable").reset_index(drop=True)
    if rows.empty:
        return TIMELINE.empty()
    return TIMELINE.check(TIMELINE.cast(rows), label)


def note_crash_loops(jobs: pd.DataFrame, findings: Findings) -> None:
    begun = jobs[jobs["start_ns"].notna()]
    fifth = begun.groupby("job")["start_ns"].shift(_LOOP_STARTS - 1)
    quick = begun[((begun["start_ns"] - fifth) <= _LOOP_NS).fillna(value=False)]
    for job, runs in begun[begun["job"].isin(quick["job"])].groupby("job"):
        remark = f"job {job} is in a crash loop: {_LOOP_STARTS} starts or more within an hour"
        findings.add("noted", remark, len(runs), f"line {int(runs['line'].iloc[0]):,}")


# Names of hosts from Slurm's short form: ``node[001-004,007],login1``.

MOST_HOSTS = 1_000_000
_NOBODY = frozenset({"", "none assigned", "none", "(null)", "n/a", "unknown"})
# A name is a run of plain text and of brackets; a comma outside of brackets ends it.
_NAME = re.compile(r"(?:[^\[\],\s]+|\[[^\[\]]*\])+")
_PART = re.compile(r"([^\[\]]+)|\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


def hosts(text: str) -> tuple[str, ...]:
    """Expand a host list; several brackets in a name are all combined."""
    text = text.strip()
    if text.lower() in _NOBODY:
        return ()
    names: list[str] = []
    end = 0
    for name in _NAME.finditer(text):
        if text[end : name.start()] != ("," if end else ""):
            break
        names += _expanded(name[0], text, MOST_HOSTS - len(names))
        end = name.end()
    if end != len(text) or not end:
        msg = f"{text[:80]!r} is not a host list; one looks like node[001-004,007]"
        raise LoadError(msg)
    return tuple(names)


def _expanded(name: str, text: str, room: int) -> list[str]:
    """Expand one name, unless it has more hosts than there is room for."""
    choices = [
        [(plain,)] if plain else [_bounds(piece, text) for piece in inside.split(",")]
        for plain, inside in _PART.findall(name)
    ]
    sizes = [sum(_size(piece) for piece in pieces) for pieces in choices]
    # Counted before they are spelled out: a short text can name billions of hosts.
    if prod(sizes) > room:
        msg = f"{text[:80]!r} names more than {MOST_HOSTS:,} hosts"
        raise LoadError(msg)
    spelled = [[spelling for piece in pieces for spelling in _spelled(piece)] for pieces in choices]
    return ["".join(spelling) for spelling in product(*spelled)]


def _bounds(piece: str, text: str) -> tuple[str, ...]:
    match = _RANGE.fullmatch(piece.strip())
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        msg = f"{text[:80]!r} is not a host list: {piece[:40]!r} is not a range like 001-004"
        raise LoadError(msg)
    return (match[1], match[2] or match[1])


def _size(piece: tuple[str, ...]) -> int:
    return 1 if len(piece) == 1 else int(piece[1]) - int(piece[0]) + 1


def _spelled(piece: tuple[str, ...]) -> list[str]:
    """Return the members of a range with the zeros of its first number."""
    if len(piece) == 1:
        return list(piece)
    first, last = piece
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
