"""Findings: ask every rule of every domain, and rank what they find by cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from workbench._shared.numbers import quantity, significant
from workbench.analyze._communication import findings as _communication  # noqa: F401
from workbench.analyze._failures import findings as _failures  # noqa: F401 - registers its rules
from workbench.analyze._fleet import findings as _fleet  # noqa: F401
from workbench.analyze._imbalance import findings as _imbalance  # noqa: F401
from workbench.analyze._lib.advice import advice_for
from workbench.analyze._lib.finding_rules import RULES, LacksDataError, Rule, thresholds_text
from workbench.analyze._perfmodel import findings as _perfmodel  # noqa: F401
from workbench.analyze._power import findings as _power  # noqa: F401
from workbench.analyze._pvf import findings as _pvf  # noqa: F401
from workbench.analyze._traces import findings as _traces  # noqa: F401
from workbench.analyze._traces import memory as _memory  # noqa: F401
from workbench.analyze._traces.rank_evidence import reduced
from workbench.errors import WorkbenchError
from workbench.tables import (
    FINDING_RULES,
    FINDINGS,
    Bundle,
    FailureLog,
    Findings,
    FlightRecording,
    Injections,
    JobLog,
    MemoryRecording,
    PowerLog,
    RankFiles,
    Trace,
)

Loaded = Bundle | Trace | RankFiles | PowerLog | JobLog | FailureLog | FlightRecording
Loaded |= MemoryRecording | Injections
# By kind of data the field of a bundle that holds it.
_FIELDS = {
    "traces": "trace", "power logs": "power", "job logs": "job", "failure logs": "failures",
    "flight-recorder dumps": "flight", "memory snapshots": "memory", "injections": "injections",
    "job operations": "operations", "document lengths": "document_lengths",
}  # fmt: skip
# A finding, and the rule that may say the contrary of it.
_CONTRADICTED = {"exposed_communication": "communication_on_path"}
_MOST_DOUBTS = 3
_CONFIDENCE = ("high", "medium", "low")
# A name such as node-1e05 is not a number.
_POWER_OF_TEN = re.compile(r"(?<![\w.-])\d(?:\.\d+)?e[+-]\d+(?![\w.])")
_MILLISECONDS = re.compile(r"(?<![\w.,-])(\d[\d,]{3,}(?:\.\d+)?) ms\b")


def findings(
    bundle: Loaded,
    *,
    domains: Collection[str] | None = None,
    rules: Collection[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    least_time_share: float = 0.0,
    client: Any = None,
) -> Findings:
    """Ask every rule that has data, and rank what they find by cost.

    Of traces that :func:`workbench.load.rank_files` lists one rank after the other is loaded,
    reduced to small tables and forgotten, so that any number of ranks fits into memory. The
    findings are those of a load of all ranks at once.

    Parameters
    ----------
    bundle
        All that is known about one job, from :func:`workbench.load.bundle`; or what one loader
        returned, e.g. :func:`workbench.load.traces`, or :func:`workbench.load.rank_files`.
    domains
        Domains whose rules are asked; all by default.
    rules
        Rules of these domains that are asked, by name; all by default.
    thresholds
        Thresholds to use instead of the defaults, by rule and name, e.g.
        ``{"straggler.least_share": 0.02}``; :func:`finding_rules` lists them.
    least_time_share
        Findings with a smaller share of the GPU time are dropped; those without a share stay.
    client
        A ``distributed.Client`` whose workers load the ranks of ``rank_files``; None uses this
        machine.

    Returns
    -------
    workbench.tables.Findings
        ``findings`` (:data:`workbench.tables.FINDINGS`): the failure with which the log ends,
        then the largest share of GPU time first, those without a share last; and ``rules``
        (:data:`workbench.tables.FINDING_RULES`), how each rule answered. Costs may overlap, so
        they need not add up. ``tables`` has what rules computed on the way; of traces loaded rank
        by rank also ``traces.ranks`` and ``traces.quality``, which names the ranks that cannot be
        read and why.

    Raises
    ------
    ValueError
        If a threshold, a rule or a domain does not exist.
    TypeError
        If ``bundle`` is nothing that a loader returned.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> found = findings(load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False))
    >>> str(found.findings["domain"].iloc[0])
    'fleet'
    """
    held = Bundle.of(bundle)
    if held.rank_files is not None:
        held = replace(held, trace=reduced(held.rank_files, client))
    chosen = _chosen(domains, rules)
    settings = _settings(thresholds or {}, chosen)
    evidence: dict[type[Any], Any] = {}
    doubts = {need: _loader_doubt(getattr(held, field)) for need, field in _FIELDS.items()}
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []

    def asked(rule: Rule, thresholds: Mapping[str, float]) -> Any:
        if rule.evidence not in evidence:
            evidence[rule.evidence] = rule.evidence.of(held)
        doubt = "; ".join(filter(None, (doubts.get(need) for need in rule.needs)))
        return _ask(rule, evidence[rule.evidence], thresholds, doubt)

    for rule in chosen:
        made, answer = asked(rule, settings[rule.name])
        rows += made
        answers.append(answer)
    # A rule of another domain may say the contrary, and the pages must not differ.
    own = {rule.name for rule in chosen}
    for name in sorted(_contrary_to(rows) - own if rules is None else ()):
        rows += asked(RULES[name], RULES[name].thresholds)[0]
    rows = [row for row in _told_once(rows, answers) if row["rule"] in own]
    _in_words_of(held.trace, rows)
    table = FINDINGS.cast(pd.DataFrame(rows, columns=list(FINDINGS.columns)))
    table = table[~(table["time_share"] < least_time_share).fillna(value=False)]
    table = _ranked(table)
    tables = {
        f"{kind.domain}.{name}": value
        for kind, inputs in evidence.items()
        for name, value in vars(inputs or object).items()
        if name in vars(kind) and name[0] != "_" and isinstance(value, pd.DataFrame)
    }
    if held.rank_files is not None and held.trace is not None:
        tables |= {"traces.ranks": held.trace.ranks, "traces.quality": held.trace.quality}
    return Findings(FINDINGS.check(table), _rules_table(answers), tables)


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Put the end of the log first, then the largest share of time.

    What has no share follows by cost, costs of one unit together.
    """
    units = table["cost_unit"].astype(str)
    keys = {
        "_is_no_end": table["rule"].ne("last_failure"),
        "_without_cost": table["cost"].isna(),
        "_unit": units.map({unit: number for number, unit in enumerate(units.unique())}),
        "_confidence": table["confidence"].astype(str).map(_CONFIDENCE.index),
    }
    return (
        table.assign(**keys)
        .sort_values(
            ["_is_no_end", "time_share", "_without_cost", "_unit", "cost", "_confidence"],
            ascending=[True, False, True, True, False, True],
            na_position="last",
            kind="stable",
            ignore_index=True,
        )
        .drop(columns=list(keys))
    )


def finding_rules() -> pd.DataFrame:
    """List the rules, their thresholds and their reasons.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FINDING_RULES`, one row per rule; every ``state`` is
        ``no data``, as none was asked.

    Examples
    --------
    >>> "straggler" in set(finding_rules()["rule"])
    True
    """
    return _rules_table([_answer(rule, rule.thresholds, "no data") for rule in _chosen(None, None)])


def _rules_table(answers: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(answers, columns=list(FINDING_RULES.columns))
    return FINDING_RULES.check(FINDING_RULES.cast(table))


def _chosen(domains: Collection[str] | None, names: Collection[str] | None) -> list[Rule]:
    known = {rule.domain for rule in RULES.values()}
    if unknown := set(domains or ()) - known:
        msg = f"no rules for the domain {min(unknown)!r}; there are {', '.join(sorted(known))}"
        raise ValueError(msg)
    if unknown := set(names or ()) - set(RULES):
        msg = f"{min(unknown)!r} is not a rule; analyze.finding_rules() lists them"
        raise ValueError(msg)
    # Which module was imported first must not decide: equal costs keep the order of the rules.
    return [
        rule
        for rule in sorted(RULES.values(), key=lambda rule: (rule.domain, rule.find.__module__))
        if (domains is None or rule.domain in domains) and (names is None or rule.name in names)
    ]


def _settings(thresholds: Mapping[str, float], rules: list[Rule]) -> dict[str, dict[str, float]]:
    """Lay the given thresholds over the defaults."""
    settings = {rule.name: dict(rule.thresholds) for rule in rules}
    for key, value in thresholds.items():
        name, _, threshold = key.partition(".")
        if threshold not in settings.get(name, {}):
            msg = f"{key!r} is not a threshold; analyze.finding_rules() lists them as rule.name"
            raise ValueError(msg)
        settings[name][threshold] = float(value)
    return settings


def _ask(
    rule: Rule, evidence: Any, settings: Mapping[str, float], doubt: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows that a rule finds, and how it answered."""
    if evidence is None:
        return [], _answer(rule, settings, "no data", note=f"needs {' and '.join(rule.needs)}")
    try:
        made = [_doubted(asdict(finding), doubt) for finding in rule.find(evidence, **settings)]
    except LacksDataError as error:
        return [], _answer(rule, settings, "no data", note=str(error).partition("\n")[0])
    except WorkbenchError as error:
        # An analysis that refuses these data must not hide what the other rules find.
        return [], _answer(rule, settings, "refused", note=str(error).partition("\n")[0])
    for row in made:
        row.update({name: _readable(text) for name, text in row.items() if isinstance(text, str)})
    text = thresholds_text(settings)
    rows = [{"domain": rule.domain, "rule": rule.name, "threshold": text, **row} for row in made]
    return rows, _answer(rule, settings, "found" if rows else "nothing", count=len(rows))


def _loader_doubt(loaded: Any) -> str:
    """Return what the loader of some files found suspicious; '' if nothing."""
    if isinstance(loaded, pd.DataFrame):
        return "; ".join(loaded.attrs.get("doubts", ()))
    quality = getattr(loaded, "quality", None)
    if quality is None:
        return ""
    rows = quality[quality["finding"] == "suspicious"]
    files = quality.loc[quality["finding"] == "read", "source"].nunique()
    texts = [
        f"{f'{count:,} of {files:,} files' if files > 1 else 'the file'} "
        f"{'have' if count > 1 else 'has'} {what} ({same['count'].sum():,})"
        for what, same in rows.groupby("what", sort=False)
        for count in [same["source"].nunique()]
    ]
    return "; ".join(
        [*texts[:_MOST_DOUBTS], *["more: workbench check"][: len(texts) - _MOST_DOUBTS]]
    )


def _doubted(row: dict[str, Any], doubt: str) -> dict[str, Any]:
    """Lower the confidence of what rests on a log that its loader doubts."""
    if not doubt:
        return row
    sure = "medium" if row["confidence"] == "high" else row["confidence"]
    return row | {"confidence": sure, "doubt": "; ".join(filter(None, (row["doubt"], doubt)))}


def _contrary_to(rows: list[dict[str, Any]]) -> set[str]:
    """Return the rules that may say the contrary of what was found."""
    return {_CONTRADICTED[row["rule"]] for row in rows if row["rule"] in _CONTRADICTED}


def _in_words_of(trace: Trace | None, rows: list[dict[str, Any]]) -> None:
    """Write the next steps on traces for the framework of the trace."""
    for row in rows:
        if "traces" in RULES[row["rule"]].needs:
            row["next_step"] = advice_for(trace, row["next_step"])


def _told_once(rows: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what a rule of other evidence says too, and say so in the answers.

    What contradicts a finding becomes its doubt, and its next step: both are one finding.
    """
    telling = {row["rule"]: row for row in rows}
    once = []
    by_rule = {answer["rule"]: answer for answer in answers}
    for row in rows:
        teller = next((name for name in row["told_by"].split(", ") if name in telling), None)
        if teller is None:
            once.append(row)
            continue
        if row["is_contrary"]:
            contrary = f"by a replay, {row['finding'][:1].lower()}{row['finding'][1:]}"
            doubt = "; ".join(filter(None, (contrary, telling[teller]["doubt"])))
            telling[teller].update(doubt=doubt, next_step=row["next_step"], confidence="low")
        if (answer := by_rule.get(row["rule"])) is not None:
            count = answer["finding_count"] - 1
            state, note = "found" if count else "nothing", f"reported by the rule {teller}"
            answer.update(finding_count=count, state=state, note=note)
    return once


def _readable(text: str) -> str:
    """Write numbers as every page does: no powers of ten, a space before %, s from 1,000 ms on."""
    text = _POWER_OF_TEN.sub(lambda match: significant(float(match[0])), text)
    text = _MILLISECONDS.sub(lambda match: quantity(float(match[1].replace(",", "")), "ms"), text)
    return re.sub(r"(?<=\d)%", " %", text)


def _answer(
    rule: Rule, settings: Mapping[str, float], state: str, *, count: int = 0, note: str = ""
) -> dict[str, Any]:
    return {
        "domain": rule.domain,
        "rule": rule.name,
        "about": rule.about,
        "needs": ", ".join(rule.needs),
        "state": state,
        "finding_count": count,
        "note": note,
        "thresholds": thresholds_text(settings),
        "reference": rule.reference,
    }
