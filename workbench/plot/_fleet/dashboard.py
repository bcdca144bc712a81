"""The first page of a report: findings of all domains, what was loaded, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pandas as pd

from workbench._shared.time_groups import SHARE_NO_TIME
from workbench.plot._fleet.findings import FindingCards, Page, finding_list
from workbench.plot._fleet.findings import findings as finding_cards
from workbench.plot._style import html as parts
from workbench.plot._style.html import Column, safe_html
from workbench.plot._style.text import clock_time, duration, percent, plural
from workbench.tables import SAYS_SYNTHETIC, Bundle, Findings, folded_findings

_FIRST, _MOST_ROWS = 8, 40
_DOMAINS = {
    "traces": "01", "imbalance": "02", "failures": "03", "pvf": "04", "perfmodel": "05",
    "power": "06", "fleet": "07", "communication": "08",
}  # fmt: skip
_NAMES = {
    "traces": "traces", "imbalance": "workload imbalance", "failures": "failures",
    "pvf": "fault injection", "power": "power", "fleet": "the job as a whole",
    "perfmodel": "performance model",
}  # fmt: skip
# The shortest way to data of a kind.
_SOURCES = {
    "traces": "torch.profiler with CUDA activities, a file per rank; or Nsight Systems, rocprofv3",
    "job logs": "one JSON line per step, or the log of Megatron-LM or MLPerf",
    "power logs": "workbench record; nvidia-smi --query-gpu=timestamp,power.draw --format=csv",
    "failure logs": "journalctl -k of each host, sacct, torchelastic or NCCL logs",
    "flight-recorder dumps": "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "memory snapshots": "torch.cuda.memory._dump_snapshot('rank0.pickle')",
    "job operations": "a table of step, rank, stage, kind, start and duration of each operation",
    "document lengths": "one length per line: text, CSV or Parquet",
    "injections": "one row per injected fault, from any fault-injection tool",
}
# Findings of the quality table that change no number.
_HARMLESS = ("read", "skipped by design", "noted")


def dashboard(
    found: Findings,
    bundle: Bundle,
    *,
    source: str = "",
    synthetic: bool = False,
    pages: Sequence[Page] = (),
    downloads: Mapping[str, str] | None = None,
) -> FindingCards:
    """Show on one page what costs most, what was loaded, and which data would add what.

    Parameters
    ----------
    found
        From :func:`workbench.analyze.findings`.
    bundle
        The data behind it, from :func:`workbench.load.bundle`.
    source
        Name of the data.
    synthetic
        Whether the data were made; a note says so.
    pages
        Pages that show the evidence, each a ``plot.Page``; findings link them.
    downloads
        Addresses of files by name, offered below the findings.

    Returns
    -------
    FindingCards
        HTML without scripts, and the findings as text.
    """
    made = parts.note(_MADE) if synthetic else ""
    made += "".join(
        parts.note(f"<b>Not one time.</b> {safe_html(text)}.") for text in _apart(bundle)
    )
    head = f"<h1>{safe_html(headline(found, source))}</h1>{_lede(found)}{_facts(found, bundle)}"
    body = [
        head + made,
        _costs(found, bundle, pages, downloads or {}),
        _time(found),
        _by_domain(found, pages),
        _loaded(found, bundle),
    ]
    text = finding_cards(found, source=source, synthetic=synthetic, count=_FIRST).text
    return FindingCards(parts.page(*body), text)


_MADE = (
    "<b>Synthetic data.</b> Nothing on this page was measured: the files are made. "
    "Your own: <code>workbench report --data FOLDER</code>"
)


def headline(found: Findings, source: str) -> str:
    """Summarize in one line how much of the time was useful, or how many findings there are."""
    states, by_rank = found.tables.get("fleet.states"), found.tables.get("traces.by_rank")
    name = f"{source}: " if source else ""
    if states is not None and "useful steps" in states.index:
        share = float(states["time_share"].loc["useful steps"])
        return f"{name}{percent(share)} of the job's time trained the model"
    if by_rank is not None and float(by_rank["span_ns"].sum()):
        share = float(by_rank["compute_ns"].sum() / by_rank["span_ns"].sum())
        return f"{name}GPUs compute for {percent(share)} of the traced time"
    return f"{name}{plural(len(found.findings), 'finding')}"


def _lede(found: Findings) -> str:
    if not len(found.findings):
        asked = int(found.rules["state"].isin(["found", "nothing"]).sum())
        return f"<p>None of the {asked} rules with data found anything.</p>"
    first = found.findings.iloc[0]
    share = first["time_share"]
    cost = "" if pd.isna(share) else f" ({percent(share)} of the GPU time)"
    return f'<p class="lede">Largest finding{cost}: {safe_html(first["finding"])}.</p>'


def _apart(bundle: Bundle) -> list[str]:
    """Return which data share no time, so that they are not put on one axis."""
    texts = [] if bundle.quality is None else bundle.quality["what"].unique().tolist()
    return [text for text in texts if SHARE_NO_TIME in text]


def _facts(found: Findings, bundle: Bundle) -> str:
    counts = [(0 if bundle.files is None else len(bundle.files), "file")]
    if bundle.trace is not None:
        counts.append((bundle.trace.ranks["rank"].nunique(), "traced rank"))
    nodes = found.tables.get("failures.nodes")
    if nodes is not None and len(nodes):
        counts.append((len(nodes), "node"))
    if bundle.power is not None:
        counts.append((len(bundle.power.entities), "power meter"))
    if bundle.job is not None:
        counts.append((len(bundle.job.steps), "logged step"))
    facts = [plural(count, noun).split(" ", 1) for count, noun in counts]
    items = "".join(
        f"<li><b>{value}</b> {words}</li>" for value, words in [*facts, *_spans(bundle)[:1]]
    )
    return f'<ul class="facts">{items}</ul>'


def _spans(bundle: Bundle) -> list[tuple[str, str]]:
    """Write how long the data are and when they begin, by the log that covers most of a job."""
    spans = []
    if bundle.job is not None and len(bundle.job.spans):
        spans.append((bundle.job.spans["start_ns"].min(), bundle.job.spans["end_ns"].max()))
    elif bundle.job is not None and len(bundle.job.steps):
        spans.append((bundle.job.steps["start_ns"].min(), bundle.job.steps["end_ns"].max()))
    if bundle.power is not None and len(bundle.power.power):
        # Meters that count from a zero of their own say nothing about those of the day.
        clocks, power = bundle.power.entities.set_index("entity")["clock"], bundle.power.power
        is_of_day = power["entity"].map(clocks).eq("epoch")
        times = power.loc[is_of_day if is_of_day.any() else slice(None), "time_ns"]
        spans.append((times.min(), times.max()))
    if bundle.trace is not None and len(bundle.trace.ranks):
        spans.append((bundle.trace.ranks["first_ns"].min(), bundle.trace.ranks["last_ns"].max()))
    return [_span(int(first), int(last)) for first, last in spans if pd.notna(first)]


def _span(first_ns: int, last_ns: int) -> tuple[str, str]:
    """Write how long something lasted and, if its clock is that of the day, when it began."""
    day = pd.Timestamp(first_ns, unit="ns")
    began = f"from {day:%Y-%m-%d} {clock_time(first_ns)} UTC" if day.year >= 2000 else "recorded"
    return duration(last_ns - first_ns), began


def _section(name: str, title: str, told: str, body: str) -> str:
    link = f'<a class="wb-anchor" href="#{name}" aria-label="Link to this section"></a>'
    head = f"<h2>{title}{link}</h2><p>{told}</p>"
    return f'<section class="sec" id="{name}"><div class="sec-head">{head}</div>{body}</section>'


def _costs(
    found: Findings, bundle: Bundle, pages: Sequence[Page], downloads: Mapping[str, str]
) -> str:
    tables = dict(found.tables)
    if bundle.job is not None:
        tables["job.steps"] = bundle.job.steps
    drawn = replace(found, tables=tables)
    links = {page.number: page for page in pages}
    count = len(found.findings)
    body = finding_list(drawn, count=_FIRST, pages=links)
    if count > _FIRST:
        later = finding_list(drawn, count=count, pages=links, first=_FIRST)
        body += parts.fold(f"<b>{plural(count - _FIRST, 'further finding')}</b>", later)
    files = " ".join(
        f'<a href="{safe_html(href)}" download>{safe_html(name)}</a>'
        for name, href in downloads.items()
    )
    told = "Cost as a share of the GPU time that the data cover. Costs may overlap."
    body = body or "<p>No rule found anything in this data.</p>"
    return _section("findings", "What costs most", told, f'{body}<p class="tools">{files}</p>')


_PARTS = {
    "compute": "compute_ns", "exposed communication": "exposed_communication_ns",
    "exposed memory": "exposed_memory_ns", "exposed other": "exposed_other_ns", "idle": "idle_ns",
}  # fmt: skip


def _time(found: Findings) -> str:
    """Show where the time of the job went, by its log; without one, that of the traced GPUs."""
    states, by_rank = found.tables.get("fleet.states"), found.tables.get("traces.by_rank")
    if states is not None and len(states):
        lengths_s = states["time_s"].astype("float64").fillna(0.0)
        words = ("Where the time of the job went", "States of the job by its log.", "State")
    elif by_rank is not None and len(by_rank):
        sums = {part: float(by_rank[name].fillna(0).sum()) for part, name in _PARTS.items()}
        lengths_s = pd.Series(sums) / 1e9
        told = "Sum over all traced ranks. Exposed is what no computation hides."
        words = ("Where the GPU time went", told, "Part")
    else:
        return ""
    whole = float(lengths_s.sum())
    if not whole:
        return ""
    shares = lengths_s[lengths_s > 0] / whole
    parted = [(str(name), float(share)) for name, share in shares.items()]
    label = ", ".join(f"{name} {percent(share)}" for name, share in parted)
    longest = float(shares.max())
    rows = [
        [safe_html(name), parts.bar([(name, share / longest)]),
         safe_html(duration(float(lengths_s[name]) * 1e9)), safe_html(percent(share))]
        for name, share in parted
    ]  # fmt: skip
    columns = [Column(words[2]), Column(""), Column("Time"), Column("Share")]
    table = parts.table(columns, rows, caption=words[0])
    return _section("time", words[0], words[1], parts.bar(parted, height=26, label=label) + table)


def _by_domain(found: Findings, pages: Sequence[Page]) -> str:
    """Return a row per page, and per domain with findings that has no page."""
    by_number = {number: domain for domain, number in _DOMAINS.items()}
    counted = found.findings.groupby(found.findings["domain"].astype(str))["time_share"]
    sizes, largest = counted.size(), counted.max()
    first = found.findings.groupby(found.findings["domain"].astype(str))["finding"].first()
    rows, linked = [], set()
    for page in pages:
        domain = by_number.get(page.number, "")
        linked.add(domain)
        link = f'<a href="{safe_html(page.href)}">{safe_html(page.label)}</a>'
        said = str(first.get(domain, page.answer))
        answer = ". ".join(filter(None, [safe_html(said), safe_html(page.problems)]))
        rows.append([link, answer or "–", *_counts(domain, sizes, largest)])
    rows += [
        [
            safe_html(_NAMES.get(domain, domain)),
            safe_html(first[domain]),
            *_counts(domain, sizes, largest),
        ]
        for domain in sizes.index
        if domain not in linked
    ]
    columns = [
        Column("Page"), Column("Largest finding, or first answer", is_text=True),
        Column("Findings", is_optional=True),
        Column("Largest share", "% of the GPU time"),
    ]  # fmt: skip
    table = parts.table(columns, rows, caption="Pages and their largest finding")
    told = "A page without data of its own is not written."
    return _section("domains", "By domain", told, table + _absent(found))


def _counts(domain: str, sizes: pd.Series, largest: pd.Series) -> list[str]:
    share = largest.get(domain)
    cost = "–" if share is None or pd.isna(share) else percent(float(share)).removesuffix(" %")
    return [str(sizes.get(domain, 0)) if domain in _NAMES else "–", safe_html(cost)]


def _absent(found: Findings) -> str:
    """Return for each domain without any data which files would fill its page."""
    rules = found.rules.assign(domain=found.rules["domain"].astype(str))
    lines = []
    # Rules may lack something else, such as the host names in traces, that no other file has.
    held = _needs(rules[rules["state"] != "no data"])
    for domain in rules["domain"].unique():
        asked = rules[rules["domain"] == domain]
        lacking = [need for need in _needs(asked) if need not in held]
        if (asked["state"] == "no data").all() and lacking:
            lines.append(f"{_NAMES.get(domain, domain)} (needs {' or '.join(lacking)})")
    return f'<p class="soft">No data for: {safe_html("; ".join(lines))}.</p>' if lines else ""


def _needs(rules: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(need for needs in rules["needs"] for need in needs.split(", ")))


def _loaded(found: Findings, bundle: Bundle) -> str:
    flagged = _flagged(bundle.quality)
    rows = [
        [safe_html(kind), f"{len(files):,}", safe_html(_covers(kind, bundle)),
         _doubts(files, flagged)]
        for kind, files in _kinds(bundle).items()
    ]  # fmt: skip
    columns = [
        Column("Kind"), Column("Files"), Column("Covers", is_text=True),
        Column("To look at", is_text=True),
    ]  # fmt: skip
    table = parts.table(columns, rows, caption="Kinds of data, and what each covers")
    folds = [_missing(found), _rules(found), _provenance(bundle, flagged)]
    told = "Recognized by content, not by name."
    return _section("loaded", "What was loaded", told, table + "".join(folds))


def _kinds(bundle: Bundle) -> dict[str, set[str]]:
    """Return the files of each kind."""
    files: dict[str, set[str]] = {}
    if bundle.files is not None:
        for row in bundle.files.itertuples():
            for kind in str(row.kinds).split(", "):
                files.setdefault(kind or "not recognized", set()).add(str(row.source))
    return files


def _flagged(quality: pd.DataFrame | None) -> pd.DataFrame:
    if quality is None:
        return pd.DataFrame({"source": [], "finding": [], "what": [], "count": [], "where": []})
    rows = quality[~quality["finding"].astype(str).isin(_HARMLESS)]
    return rows[rows["what"] != SAYS_SYNTHETIC]


def _doubts(files: set[str], flagged: pd.DataFrame) -> str:
    """Count what was dropped, repaired or assumed in some files; a file may hold several kinds."""
    count = int(flagged["source"].astype(str).isin(files).sum())
    return f'<a href="#quality">{plural(count, "reading")}</a>' if count else "nothing"


def _counted(ranks: pd.DataFrame) -> range:
    """Stand for the events of ranks; those of ranks that were loaded one by one are gone."""
    return range(int(ranks["event_count"].sum()))


def _covers(kind: str, bundle: Bundle) -> str:
    """Describe what a kind of data covers, with its size."""
    of_kind: dict[str, list[tuple[str, Any]]] = {
        "traces": [("rank", bundle.trace and bundle.trace.ranks["rank"].unique()),
                   ("event", bundle.trace and _counted(bundle.trace.ranks))],
        "power logs": [("meter", bundle.power and bundle.power.entities),
                       ("reading", bundle.power and bundle.power.power)],
        "job logs": [("step", bundle.job and bundle.job.steps)],
        "failure logs": [("failure", bundle.failures and bundle.failures.failures)],
        "failure tables": [("failure", bundle.failures and bundle.failures.failures)],
        "flight-recorder dumps": [("rank", bundle.flight and bundle.flight.ranks)],
        "memory snapshots": [("action", bundle.memory and bundle.memory.memory)],
        "job operations": [("operation", bundle.operations)],
        "document lengths": [("document", bundle.document_lengths)],
        "injections": [("fault", bundle.injections and bundle.injections.faults)],
    }  # fmt: skip
    sizes = [(noun, table) for noun, table in of_kind.get(kind, []) if table is not None]
    return ", ".join(plural(len(table), noun) for noun, table in sizes) or "not used by any rule"


def _missing(found: Findings) -> str:
    """Fold which kinds of data are missing, what each would show, and where it comes from."""
    is_lacking = found.rules["state"] == "no data"
    held = _needs(found.rules[~is_lacking])
    lacking: dict[str, list[str]] = {}
    for row in found.rules[is_lacking].itertuples():
        for need in str(row.needs).split(", "):
            if need not in held:
                lacking.setdefault(need, []).append(str(row.about))
    if not lacking:
        return ""
    rows = [
        [safe_html(kind), safe_html("; ".join(asked[:3])), safe_html(_SOURCES.get(kind, "–"))]
        for kind, asked in lacking.items()
    ]
    columns = [
        Column("Kind"), Column("Would be looked for", is_text=True),
        Column("Where it comes from", is_text=True),
    ]  # fmt: skip
    table = parts.table(columns, rows, caption="Missing kinds of data")
    kinds = plural(len(lacking), "kind")
    return parts.fold(f"<b>{kinds} of data missing</b>: what each would add", table)


def _rules(found: Findings) -> str:
    columns = [Column("Rule"), Column("Looks for", is_text=True), Column("Answer", is_text=True),
               Column("Note", is_text=True, is_optional=True)]  # fmt: skip
    order = found.rules.sort_values("state", key=lambda state: state.astype(str), kind="stable")
    rows = [
        [f"{safe_html(row.domain)} <code>{safe_html(row.rule)}</code>", safe_html(row.about),
         safe_html(row.state), safe_html(row.note)]
        for row in order.itertuples()
    ]  # fmt: skip
    asked = int(found.rules["state"].isin(["found", "nothing"]).sum())
    table = parts.table(columns, rows, caption="Rules and how each answered")
    return parts.fold(f"<b>Rules</b>: {asked} of {len(rows)} applied", table, name="rules")


def _provenance(bundle: Bundle, flagged: pd.DataFrame) -> str:
    """Fold the files, and what was dropped, repaired or assumed on reading them."""
    readings: list[dict[str, Any]] = [dict(row) for _, row in flagged.iterrows()]
    doubts = folded_findings(readings, most_files=1)[:_MOST_ROWS]
    rows = [
        [safe_html(row["finding"]), safe_html(row["what"]), f"{int(row['count']):,}",
         _file(str(row["source"]))]
        for row in doubts
    ]  # fmt: skip
    columns = [Column("Reading"), Column("Finding", is_text=True), Column("Count"),
               Column("File", is_text=True, is_optional=True)]  # fmt: skip
    table = parts.table(columns, rows, caption="Doubts about files")
    shown = parts.fold(f"<b>To look at</b>: {len(doubts)} in the files", table, name="quality")
    names = [] if bundle.files is None else list(bundle.files["source"].astype(str))
    more = f"<p>and {len(names) - _MOST_ROWS:,} more</p>" if len(names) > _MOST_ROWS else ""
    items = "".join(f"<li>{_file(name)}</li>" for name in names[:_MOST_ROWS])
    files = parts.fold(
        f"<b>Provenance</b>: {plural(len(names), 'file')}", f"<ul>{items}</ul>{more}"
    )
    return (shown if rows else "") + files


def _file(name: str) -> str:
    """Write the last parts of a path; the whole of it is shown on pointing at it."""
    short = "/".join(PurePath(name).parts[-2:])
    return f'<span title="{safe_html(name)}">{safe_html(short)}</span>'
