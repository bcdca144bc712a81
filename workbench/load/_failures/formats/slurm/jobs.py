"""Records of sacct as runs of jobs: one row per attempt, with times, nodes and GPUs."""

from __future__ import annotations

import re

import pandas as pd

from workbench.errors import LoadError
from workbench.load._failures.formats.slurm.lines import Records
from workbench.load._failures.formats.slurm.states import (
    ENDED_STATES,
    FAILURE_STATES,
    OTHER_STATES,
    gpu_count,
    is_per_node,
)
from workbench.load._failures.hostlist import hosts
from workbench.load._files.findings import Findings
from workbench.load._files.local_times import duration_ns, utc_ns
from workbench.load._files.log_file import SECOND, Given
from workbench.tables import SAYS_SYNTHETIC

_TIMES = ("Submit", "Eligible", "Start", "End")
COLUMNS = (
    *("JobID", "State", *_TIMES, "Elapsed", "Suspended", "DBIndex", "Cluster", "JobName"),
    *("ExitCode", "Reason", "FailedNode", "Comment", "AdminComment", "SystemComment"),
    *("NNodes", "AllocNodes", "NodeList", "AllocTRES", "AllocGRES", "ReqTRES"),
)
_JOB = r"(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?)(?:\.(?P<step>.*))?"
_COMMENTS = ("Comment", "AdminComment", "SystemComment")


def jobs_of(records: Records, given: Given, findings: Findings) -> pd.DataFrame:
    """Return one row per run of a job.

    Columns: those of sacct, and ``job``, ``attempt``, ``word`` (the state's first word),
    ``start_ns`` and the like, ``node_count``, ``gpu_count``, ``hosts``, ``step_states``,
    ``line``, ``is_local``.
    """
    frame = _frame(records, findings)
    _note_comments(frame, findings)
    frame = _with_times(frame, given, findings)
    parts = frame["JobID"].str.extract(f"^{_JOB}$")
    frame["job"], is_step = parts["job"], parts["step"].notna()
    clusters = frame[~is_step].groupby("job")["Cluster"].nunique()
    shared = frame["job"].isin(clusters.index[clusters > 1])
    frame["job"] = frame["job"].mask(shared, frame["job"] + "@" + frame["Cluster"])
    what = "records of jobs with one number in several clusters, named job@cluster"
    findings.add("noted", what, int(shared.sum()), _line(frame[shared]))
    runs = _latest(frame[~is_step], findings)
    runs = pd.concat([runs, _from_steps(frame[is_step], runs["job"], findings)])
    runs = _numbered(runs)
    runs["step_states"] = _step_states(runs, frame[is_step])
    _check_times(runs, findings)
    return _with_resources(runs, findings)


def _frame(records: Records, findings: Findings) -> pd.DataFrame:
    """Make a frame with all columns; those the file lacks hold empty texts."""
    text = pd.Series([""]).dtype
    frame = pd.DataFrame(records.rows, columns=records.names, dtype=text)
    frame = frame.reindex(columns=list(COLUMNS), fill_value="").astype(text)
    frame["line"] = pd.Series(records.lines, dtype="int64")
    twice = frame.duplicated(list(COLUMNS))
    findings.add("set aside", "records written twice", int(twice.sum()), _line(frame[twice]))
    frame = frame[~twice].reset_index(drop=True)
    frame["word"] = frame["State"].str.split(n=1).str[0].fillna("").str.rstrip("+")
    odd = ~frame["word"].isin(ENDED_STATES | OTHER_STATES)
    for word, some in frame[odd].groupby("word"):
        what = f"state {str(word)[:40]!r}, which is not one of Slurm's"
        findings.add("suspicious", what, len(some), _line(some))
    return frame


def _line(frame: pd.DataFrame) -> str | None:
    return None if frame.empty else f"line {int(frame['line'].iloc[0]):,}"


def _note_comments(frame: pd.DataFrame, findings: Findings) -> None:
    says = pd.Series(data=False, index=frame.index)
    for name in _COMMENTS:
        says |= frame[name].str.startswith("SYNTHETIC")
    findings.add("noted", SAYS_SYNTHETIC, int(says.sum()), _line(frame[says]))


def _with_times(frame: pd.DataFrame, given: Given, findings: Findings) -> pd.DataFrame:
    """Add times in ns; what Elapsed tells of a missing start or end is used."""
    stamps = pd.concat([frame[name] for name in _TIMES], ignore_index=True)
    lines = pd.concat([frame["line"]] * len(_TIMES), ignore_index=True)
    times = utc_ns(stamps, lines, given.tz, findings)
    count = len(frame)
    for place, name in enumerate(_TIMES):
        part = slice(place * count, (place + 1) * count)
        frame[f"{name.lower()}_ns"] = times.ns.iloc[part].array
    local = times.is_local.to_numpy().reshape(len(_TIMES), count)
    frame["is_local"] = pd.Series(local.any(axis=0), index=frame.index)
    took = _durations(frame["Elapsed"]) + _durations(frame["Suspended"]).fillna(0)
    ended = frame["word"].isin(ENDED_STATES)
    frame["took_ns"] = took
    for name, other, sign in (("end", "start", 1), ("start", "end", -1)):
        found = frame[f"{other}_ns"] + sign * took
        usable = ended & frame[f"{name}_ns"].isna() & found.notna() & (took > 0).fillna(value=False)
        frame.loc[usable, f"{name}_ns"] = found[usable]
        what = f"times of {name} that were missing, worked out from Elapsed"
        findings.add("repaired", what, int(usable.sum()), _line(frame[usable]))
    return frame


def _durations(texts: pd.Series) -> pd.Series:
    known = {text: duration_ns(text) for text in texts.unique()}
    values = [known[text] for text in texts]
    return pd.Series(pd.array(values, dtype="Int64"), index=texts.index)


def _latest(jobs: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Keep the last record of each run: logs of several days tell of a run several times."""
    keys = ["job", "DBIndex"] if jobs["DBIndex"].ne("").any() else ["job", "Submit"]
    begun = jobs["start_ns"].notna()
    waits = jobs[~begun].merge(jobs.loc[begun, keys].drop_duplicates(), on=keys)["line"]
    kept = jobs[~jobs["line"].isin(waits)]
    ended = kept["word"].isin(ENDED_STATES)
    kept = kept.assign(_ended=ended).sort_values(["_ended", "line"], kind="stable")
    kept = kept[~kept.duplicated([*keys, "start_ns"], keep="last")].drop(columns="_ended")
    what = "earlier records of a run that a later one completes"
    findings.add("set aside", what, len(jobs) - len(kept))
    return kept


def _from_steps(steps: pd.DataFrame, known: pd.Series, findings: Findings) -> pd.DataFrame:
    """Make runs of jobs of which the file has steps only."""
    orphans = steps[~steps["job"].isin(known)].sort_values("line")
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
    what = "jobs of which only steps are recorded: their times are those of the steps"
    findings.add("assumed", what, len(runs), _line(runs))
    return runs


def _numbered(runs: pd.DataFrame) -> pd.DataFrame:
    """Sort by time and number the attempts of each job from 1."""
    first = runs["start_ns"].fillna(runs["submit_ns"]).fillna(2**63 - 1)
    runs = runs.assign(_first=first).sort_values(["_first", "line"], kind="stable")
    runs = runs.drop(columns="_first").reset_index(drop=True)
    runs["attempt"] = (runs.groupby("job").cumcount() + 1).astype("Int32")
    return runs


def _step_states(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.Series:
    """List states of failed steps that say more than the job's own state."""
    bad = steps[steps["word"].isin(set(FAILURE_STATES) - {"CANCELLED", "FAILED"})]
    timed, begun = bad[bad["start_ns"].notna()], runs[runs["start_ns"].notna()]
    if timed.empty or begun.empty:
        return pd.Series("", index=runs.index)
    # Types differ by what a version of pandas makes of Int64 in an as-of join.
    left = timed.assign(at=timed["start_ns"].astype("int64")).sort_values("at")[
        ["at", "job", "word"]
    ]
    right = begun.assign(at=begun["start_ns"].astype("int64"), run=begun.index).sort_values("at")
    met = pd.merge_asof(left, right[["at", "job", "run"]], on="at", by="job").dropna(subset="run")
    told: dict[int, set[str]] = {}
    for run, word in zip(met["run"].astype("int64"), met["word"], strict=True):
        told.setdefault(run, set()).add(word)
    own = runs["word"].to_dict()
    texts = [", ".join(sorted(told.get(run, set()) - {own[run]})) for run in runs.index]
    return pd.Series(texts, index=runs.index, dtype=pd.Series([""]).dtype)


def _check_times(runs: pd.DataFrame, findings: Findings) -> None:
    """Point out times that contradict each other, and leave out those of impossible runs."""
    ended = runs["word"].isin(ENDED_STATES)
    spent = runs["end_ns"] - runs["start_ns"]
    backwards = (spent < 0).fillna(value=False)
    what = "runs that end before they start; their times are missing"
    findings.add("suspicious", what, int(backwards.sum()), _line(runs[backwards]))
    off = ((spent - runs["took_ns"]).abs() > 2 * SECOND).fillna(value=False) & ~backwards & ended
    what = "runs that took longer or shorter than Elapsed says; check the time zone"
    findings.add("suspicious", what, int(off.sum()), _line(runs[off]))
    endless = ended & runs["end_ns"].isna()
    what = "ended runs without a time of end"
    findings.add("suspicious", what, int(endless.sum()), _line(runs[endless]))
    runs.loc[backwards, ["start_ns", "end_ns"]] = pd.NA


def _with_resources(runs: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Add hosts, their number and the number of GPUs."""
    expanded: dict[str, tuple[str, ...]] = {}
    for text, line in zip(runs["NodeList"], runs["line"], strict=True):
        if text not in expanded:
            expanded[text] = _hosts(text, int(line), findings)
    runs["hosts"] = [expanded[text] for text in runs["NodeList"]]
    nodes = pd.Series(pd.array([None] * len(runs), dtype="Int64"), index=runs.index)
    named = runs["hosts"].map(len)
    for count in (runs["AllocNodes"], runs["NNodes"], named):
        number = count if count is named else _node_numbers(count)
        nodes = nodes.fillna(number.astype("Int64").mask(number <= 0))
    runs["node_count"] = nodes
    runs["gpu_count"] = _gpus(runs, findings)
    return runs


def _node_numbers(texts: pd.Series) -> pd.Series:
    """Read numbers of nodes; sacct writes 1K for 1024."""
    known: dict[str, int | None] = {}
    for text in texts.unique():
        match = re.fullmatch(r"(\d{1,7})(K?)", text.strip(), re.ASCII)
        known[text] = int(match[1]) * (1024 if match[2] else 1) if match else None
    return pd.Series(pd.array([known[text] for text in texts], dtype="Int64"), index=texts.index)


def _hosts(text: str, line: int, findings: Findings) -> tuple[str, ...]:
    try:
        return hosts(text)
    except LoadError as error:
        findings.add("left out", "host lists that cannot be read", 1, f"line {line:,}: {error}")
        return ()


def _gpus(runs: pd.DataFrame, findings: Findings) -> pd.Series:
    """Count GPUs from what was allocated, or requested if nothing is yet."""
    counts: pd.Series = pd.Series(pd.array([None] * len(runs), dtype="Int64"), index=runs.index)
    for name in ("AllocTRES", "AllocGRES", "ReqTRES"):
        known = {text: (gpu_count(text), is_per_node(text)) for text in runs[name].unique()}
        found = pd.array([known[text][0] for text in runs[name]], dtype="Int64")
        each = pd.Series([known[text][1] for text in runs[name]], index=runs.index, dtype=bool)
        numbers = pd.Series(found, index=runs.index)
        numbers = numbers.mask(each, numbers * runs["node_count"])
        if name == "ReqTRES":
            numbers = numbers.mask(runs["start_ns"].notna() | runs["AllocTRES"].ne(""))
        use = counts.isna() & numbers.notna()
        if name == "AllocGRES":
            many = use & ~each & (runs["node_count"] > 1).fillna(value=False)
            what = "AllocGRES of several nodes counts the GPUs of all of them together"
            findings.add("assumed", what, int(many.sum()), _line(runs[many]))
        counts = counts.where(~use, numbers)
    # A job with resources listed and no GPU among them has none.
    return counts.mask(counts.isna() & runs["AllocTRES"].ne(""), 0)
