"""A comparison of runs as one page: no scripts, nothing from the network.

Everything about its look is in ``_STYLE``, so that another stylesheet can take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import pandas as pd

from workbench._shared.run_verdict import comparison_verdict, trend_verdict
from workbench.plot._style.palette import COLOURS
from workbench.plot._style.text import digits, safe, short
from workbench.tables import RUN_CHANGES, RUN_COMPARISON, RUN_TREND

_MOST_ROWS = 60
_SECTIONS = {
    "step time": "Steps",
    "time by kind": "Time by kind",
    "collective": "Collectives",
    "kernel": "Kernels",
    "energy of a step": "Energy",
    "failures": "Failures",
    "interruptions": "Interruptions",
}
_STYLE = f"""
:root {{ color-scheme: light dark; --bg: #fff; --ink: #16191d; --soft: #4b535c; --rule: #d9dde2;
  --zero: #7a838d; --more: {COLOURS["more"]}; --less: {COLOURS["less"]}; --none: #5a626b;
  --mark: #fff3d6; --more-ink: #a83f00; --less-ink: #0b5a8f; }}
@media (prefers-color-scheme: dark) {{ :root {{ --bg: #131619; --ink: #e9ebee; --soft: #aeb6bf;
  --rule: #363c44; --zero: #87919c; --less: #2b8fce; --none: #a4adb7; --mark: #3a2f12;
  --more-ink: #ff9e57; --less-ink: #86c5f2; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 76rem; padding: 1rem clamp(1rem, 2.5vw, 2rem) 3rem;
  background: var(--bg); color: var(--ink); font: 0.9375rem/1.45 system-ui, "Segoe UI",
  "Liberation Sans", Arial, sans-serif; }}
h1 {{ font-size: 1.6rem; line-height: 1.22; max-width: 48rem; }}
h2 {{ font-size: 1.2rem; margin: 2rem 0 0.4rem; }}
.soft, footer {{ color: var(--soft); max-width: 42rem; }}
.note {{ background: var(--mark); padding: 0.4rem 0.8rem; border-left: 4px solid var(--more); }}
table {{ border-collapse: collapse; width: 100%; table-layout: fixed; }}
th, td {{ padding: 0.25rem 0.5rem; border-bottom: 1px solid var(--rule); text-align: right;
  font-weight: 400; font-variant-numeric: tabular-nums; }}
tbody th {{ overflow-wrap: anywhere; }}
thead th {{ font-weight: 600; border-color: var(--ink); vertical-align: bottom; }}
th.name, td.verdict, th.verdict, td.l {{ text-align: left; }}
th.name {{ width: 26%; }} th.opt {{ width: 5rem; }} th.verdict {{ width: 8.5rem; }}
th.interval {{ width: 10rem; }} th.number {{ width: 6.5rem; }}
.runs {{ table-layout: auto; }} .runs td {{ white-space: nowrap; }} .runs th.opt {{ width: auto; }}
.runs th.plot {{ width: 30%; }}
td.plot svg {{ display: block; width: 100%; height: 1.25rem; overflow: visible; }}
line {{ stroke-width: 2; }} .zero {{ stroke: var(--zero); stroke-width: 1; }}
.more line:not(.zero) {{ stroke: var(--more); }} .more circle {{ fill: var(--more); }}
.less line:not(.zero) {{ stroke: var(--less); }} .less circle {{ fill: var(--less); }}
.none line:not(.zero) {{ stroke: var(--none); }} .none circle {{ fill: var(--bg);
  stroke: var(--none); stroke-width: 1.5; }}
.more td.verdict {{ color: var(--more-ink); font-weight: 600; }}
.less td.verdict {{ color: var(--less-ink); font-weight: 600; }}
.none td.verdict {{ color: var(--soft); }}
@media (max-width: 40rem) {{ .opt {{ display: none; }} table {{ font-size: 0.8125rem; }}
  th, td {{ padding: 0.25rem 0.2rem; }} th.name {{ width: 32%; }}
  th.verdict, th.number {{ width: 22%; }} }}
"""


def run_comparison_page(
    table: pd.DataFrame,
    *,
    names: tuple[str, str] = ("A", "B"),
    source: str = "",
    synthetic: bool = False,
) -> str:
    """Write the comparison of two runs as one HTML page.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.RUN_COMPARISON`; ``attrs`` give warnings and doubts.
    names
        Names of the two runs.

    Returns
    -------
    str
        The page: the result as its title, in what the runs are not alike, and per kind of
        quantity a table with every interval drawn against zero.
    """
    RUN_COMPARISON.check(table)
    heads = {"Not like with like:": "warnings", "Doubts:": "doubts"}
    notes = [(head, "; ".join(texts)) for head, name in heads.items()
             if (texts := table.attrs.get(name))]  # fmt: skip
    sections = "".join(
        _section(title, table[table["quantity"] == quantity])
        for quantity, title in _SECTIONS.items()
        if (table["quantity"] == quantity).any()
    )
    about = (
        f"A is {names[0]}, B is {names[1]}. All {len(table)} intervals hold together: a row is "
        "changed where its interval, drawn against the line at zero, does not contain zero. "
        "Intervals that are far longer than any change are cut at the edge."
    )
    body = f'<p class="soft">{escape(about)}</p>{sections}'
    return _page(comparison_verdict(table).sentence, notes, body, source, synthetic=synthetic)


def run_trend_page(
    table: pd.DataFrame, changes: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> str:
    """Write the trend of many runs as one HTML page.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.RUN_TREND`.
    changes
        Table :data:`workbench.tables.RUN_CHANGES` of the same runs.

    Returns
    -------
    str
        The page: the change as its title, one row per quantity, and one per run with its step
        time drawn.
    """
    RUN_TREND.check(table)
    rows = RUN_CHANGES.check(changes).itertuples()
    notes = [(f"{row.quantity}:", str(row.doubt)) for row in rows if row.doubt]
    body = ""
    if len(changes):
        shown = changes.assign(name=changes["quantity"] + ", from " + changes["first_run"])
        shown = shown.rename(columns={"before": "a", "after": "b"})
        for unit, of_unit in shown.groupby("unit", sort=False):
            body += _section(f"Largest change, {unit}", of_unit, heads=("before", "after"))
    body += f"<h2>Runs</h2>{_runs(table)}"
    is_made = synthetic or bool(table["is_synthetic"].any())
    return _page(trend_verdict(table, changes).sentence, notes, body, source, synthetic=is_made)


def _page(
    sentence: str, notes: Iterable[tuple[str, str]], body: str, source: str, *, synthetic: bool
) -> str:
    made = [("Synthetic data.", "The files say that they were made, not measured.")] * synthetic
    boxes = "".join(
        f'<p class="note"><strong>{escape(head)}</strong> {escape(text)}</p>'
        for head, text in [*made, *notes]
    )
    claim = safe(sentence[:1].upper() + sentence[1:])
    foot = f"<footer><p>Source: {escape(source)}</p></footer>" if source else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{claim}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{claim}</h1>{boxes}{body}</main>{foot}</body></html>\n"
    )


def _section(title: str, rows: pd.DataFrame, heads: tuple[str, str] = ("A", "B")) -> str:
    """Write one table whose rows share a unit and a scale."""
    shown = rows.head(_MOST_ROWS)
    unit = escape(str(rows["unit"].iloc[0]))
    # Resolved intervals and all differences fit; an interval that says nothing takes no room.
    is_changed = shown["verdict"] == "changed"
    ends = [*shown["difference"], *shown.loc[is_changed, "low"], *shown.loc[is_changed, "high"]]
    low, high = 1.5 * min(0.0, *ends), 1.5 * max(0.0, *ends)
    scale = (float(low), float(high - low) or 1.0)
    head = (
        f'<tr><th class="name" scope="col">{unit}</th>'
        + "".join(f'<th class="opt" scope="col">{escape(name)}</th>' for name in heads)
        + '<th class="plot" scope="col">drawn</th>'
        '<th class="number" scope="col">difference</th>'
        '<th class="opt interval" scope="col">interval</th>'
        '<th class="verdict" scope="col">verdict</th></tr>'
    )
    more = f"<p class='soft'>{len(rows) - len(shown)} more rows in the table.</p>" * (
        len(rows) > len(shown)
    )
    return (
        f"<h2>{escape(title)}</h2><table><thead>{head}</thead><tbody>"
        f"{''.join(_row(row, scale) for row in shown.itertuples())}</tbody></table>{more}"
    )


def _row(row: Any, scale: tuple[float, float]) -> str:
    is_more = row.difference > 0
    state, verdict = "none", "not resolvable"
    if row.verdict == "changed":
        state, verdict = ("more", "▲ more") if is_more else ("less", "▼ less")
    has_interval = not pd.isna(row.low)
    extent = f"{digits(float(row.low))} to {digits(float(row.high))}" if has_interval else "unknown"
    name = escape(short(row.name, 60))
    cells = [
        f'<th class="name" scope="row" title="{escape(row.name)}">{name}</th>',
        *(f'<td class="opt">{digits(float(value))}</td>' for value in (row.a, row.b)),
        f'<td class="plot">{_interval(row, scale)}</td>',
        f"<td>{'+' if is_more else ''}{digits(float(row.difference))}</td>",
        f'<td class="opt">{extent}</td><td class="verdict">{verdict}</td>',
    ]
    return f'<tr class="{state}">{"".join(cells)}</tr>'


def _interval(row: Any, scale: tuple[float, float]) -> str:
    """Draw an interval and its middle against the line at zero."""
    zero, middle = (_place(value, scale) for value in (0.0, float(row.difference)))
    bar = ""
    if not pd.isna(row.low):
        low, high = (_place(float(value), scale) for value in (row.low, row.high))
        bar = f'<line x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
    return (
        f'<svg aria-hidden="true"><line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="100%"/>'
        f'{bar}<circle cx="{middle}" cy="50%" r="4"/></svg>'
    )


def _place(value: float, scale: tuple[float, float]) -> str:
    """Return where a value lies on a scale of first value and length; the ends keep a margin."""
    return f"{min(max(2 + 96 * (value - scale[0]) / scale[1], 0), 100):.2f}%"


def _runs(table: pd.DataFrame) -> str:
    """Write one row per run, with its step time and its interval drawn on one scale."""
    columns = ("step_ms", "low_step_ms", "high_step_ms")
    ends = [float(value) for name in columns for value in table[name].dropna()]
    scale = (min(ends, default=0.0), (max(ends, default=1.0) - min(ends, default=0.0)) or 1.0)
    columns_of: dict[str, Callable[[Any], str]] = {
        "start": _start,
        "GPUs": lambda row: "" if pd.isna(row.rank_count) else f"{row.rank_count} {row.gpu}",
        "steps": lambda row: f"{row.step_count:,}",
        "exposed communication, ms": lambda row: _number(row.exposed_communication_ms),
        "energy, J": lambda row: _number(row.energy_j),
        "failures": lambda row: _number(row.failure_count),
    }
    rows: list[Any] = list(table.itertuples())
    texts = {name: [write(row) for row in rows] for name, write in columns_of.items()}
    shown = {name: column for name, column in texts.items() if any(column)}
    head = "".join(f'<th class="opt" scope="col">{name}</th>' for name in shown)
    body = "".join(
        f'<tr class="none"><th class="name" scope="row">{escape(row.run)}</th>'
        f'<td class="plot">{_step(row, scale)}</td><td>{_number(row.step_ms)}</td>'
        + "".join(f'<td class="opt">{escape(column[at])}</td>' for column in shown.values())
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return (
        '<table class="runs"><thead><tr><th class="name" scope="col">run</th>'
        '<th class="plot" scope="col">drawn</th><th scope="col">step, ms</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _start(row: Any) -> str:
    return "" if pd.isna(row.start_ns) else f"{pd.Timestamp(int(row.start_ns)):%Y-%m-%d %H:%M}"


def _number(value: Any) -> str:
    return "" if pd.isna(value) else digits(float(value))


def _step(row: Any, scale: tuple[float, float]) -> str:
    """Draw the mean step time of a run and its interval."""
    if pd.isna(row.step_ms):
        return ""
    middle, low, high = (
        _place(float(row.step_ms if pd.isna(value) else value), scale)
        for value in (row.step_ms, row.low_step_ms, row.high_step_ms)
    )
    return (
        f'<svg aria-hidden="true"><line x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
        f'<circle cx="{middle}" cy="50%" r="4"/></svg>'
    )
