"""Cards of findings: every text escaped, made data labelled, costs comparable by eye."""

from dataclasses import replace

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from workbench import analyze, datasets, load, plot, tables

HOSTILE = "<script>alert(1)</script><img src=x>"


@pytest.fixture(scope="module")
def bundle() -> tables.Bundle:
    return load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False)


@pytest.fixture(scope="module")
def found(bundle) -> tables.Findings:
    return analyze.findings(bundle)


def cards(shown):
    return BeautifulSoup(shown.html, "html.parser").select(".finding")


def with_texts(found: tables.Findings, text: str) -> tables.Findings:
    names = ["finding", "where", "cost_unit", "cost_basis", "doubt", "evidence", "next_step"]
    return replace(found, findings=found.findings.assign(**dict.fromkeys(names, text)))


def test_each_text_of_a_finding_is_escaped(found: tables.Findings) -> None:
    soup = BeautifulSoup(plot.findings(with_texts(found, HOSTILE)).html, "html.parser")
    assert soup.select("script, img") == []
    assert soup.select_one(".claim").text == HOSTILE
    assert "\x1b" not in repr(plot.findings(with_texts(found, "\x1b[31mred")))


def test_made_data_are_labelled(found: tables.Findings) -> None:
    shown = plot.findings(found, source="fleet-demo", synthetic=True)
    assert "synthetic" in shown.html
    assert "synthetic" in repr(shown)
    assert "ynthetic" not in plot.findings(replace(found, findings=found.findings.head(0))).html


def test_findings_left_out_are_counted(found: tables.Findings) -> None:
    assert f"{len(found.findings) - 1} more" in plot.findings(found, count=1).html


def test_nothing_found_is_said(found: tables.Findings) -> None:
    shown = plot.findings(replace(found, findings=found.findings.head(0)))
    assert "No rule found anything" in shown.html
    assert "No rule found anything" in shown.text


def test_bars_are_as_long_as_the_shares_of_time_compare(found: tables.Findings) -> None:
    shares = found.findings["time_share"].dropna().astype(float)
    shown = cards(plot.findings(found, count=len(found.findings)))
    widths = [float(rect["width"].rstrip("%")) for card in shown
              for rect in card.select(".cost rect")]  # fmt: skip
    assert widths == pytest.approx(list(100 * shares / shares.max()), abs=0.01)
    # A finding without a share has its own unit and no bar that could be compared.
    assert len(shown) > len(widths)


def test_confidence_is_a_word_and_dots(found: tables.Findings) -> None:
    for card, level in zip(
        cards(plot.findings(found, count=99)), found.findings["confidence"], strict=True
    ):
        assert card.select_one(".conf").text.strip() == level
        assert len(card.select(".conf i.on")) == ["low", "medium", "high"].index(level) + 1


def card_of(found, rule):
    rows = found.findings[found.findings["rule"] == rule]
    return cards(plot.findings(replace(found, findings=rows), count=99))


def heights(card):
    return [float(rect["height"]) for rect in card.select(".thumb rect") if rect["fill"][0] == "#"]


def test_the_picture_of_a_straggler_shows_its_own_rank_and_its_own_reason(found) -> None:
    by_rank = found.tables["traces.by_rank"]
    compute, loader = card_of(found, "straggler")
    expected = by_rank["compute_ns"] / by_rank["compute_ns"].max()
    assert heights(compute) == pytest.approx(list(58 * expected.astype(float)), abs=0.06)
    # Rank 3 computes no longer than the others: only its idle time tells it apart.
    assert heights(loader).index(max(heights(loader))) == 3
    assert by_rank["compute_ns"].idxmax() != 3
    for card, rank in ((compute, 6), (loader, 3)):
        fills = [rect["fill"] for rect in card.select(".thumb rect")]
        (odd,) = (place for place, fill in enumerate(fills) if fills.count(fill) == 1)
        assert odd == rank


def test_the_picture_of_a_state_marks_its_share(found) -> None:
    (card,) = card_of(found, "checkpoint_time")
    share = float(found.tables["fleet.states"]["time_share"].loc["checkpoint"])
    (mark,) = card.select(".thumb rect.f-ink")
    assert float(mark["width"]) == pytest.approx(220 * share, abs=0.06)


def test_a_finding_whose_table_is_missing_has_no_picture(found) -> None:
    shown = cards(plot.findings(replace(found, tables={}), count=99))
    assert [card for card in shown if card.select(".thumb svg")] == []


PAGES = [
    plot.Page("01", "01_traces.html", "Traces", "Rank 6 is late", "2 steps failed.",
              {"late_arrivals": "Who is late?"}),
    plot.Page("07", "07.html", HOSTILE, HOSTILE),
]  # fmt: skip


@pytest.fixture(scope="module")
def page(found, bundle):
    shown = plot.dashboard(found, bundle, source="my job", pages=PAGES, downloads={"All": "a.csv"})
    return BeautifulSoup(shown.html, "html.parser")


def test_the_dashboard_leads_to_the_evidence(page, found) -> None:
    (first,) = (card for card in page.select(".finding") if "Rank 6 delays" in card.text)
    assert first.select_one("dd a")["href"] == "01_traces.html#Who%20is%20late%3F"
    assert page.select_one(".tools a")["href"] == "a.csv"
    ranks = [int(card["id"].split("-")[1]) for card in page.select(".finding")]
    assert ranks == list(range(1, len(found.findings) + 1))


def test_the_dashboard_headline_is_computed(page, found, bundle) -> None:
    steps = bundle.job.steps
    kept = steps.drop_duplicates("step", keep="last")
    spans = bundle.job.spans
    useful = float((kept["end_ns"] - kept["start_ns"]).sum())
    whole = float(spans["end_ns"].max() - spans["start_ns"].min())
    assert (
        page.h1.text
        == f"my job: {useful / whole:.0%} of the job's time trained the model".replace("%", " %")
    )
    without = replace(found, tables={k: v for k, v in found.tables.items() if "fleet" not in k})
    by_rank = found.tables["traces.by_rank"]
    share = by_rank["compute_ns"].sum() / by_rank["span_ns"].sum()
    assert f"GPUs compute for {100 * share:.0f} %" in plot.dashboard(without, bundle).html


def test_the_dashboard_shows_where_the_time_went(page, found, bundle) -> None:
    states = found.tables["fleet.states"]
    rows = page.select("#time tbody tr")
    assert [row.th.text for row in rows] == list(states.index[states["time_s"] > 0])
    widths = [float(rect["width"].rstrip("%")) for rect in page.select("#time > svg rect")
              if rect["fill"][0] == "#"]  # fmt: skip
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert "useful steps 23 %" in page.select_one("#time > svg")["aria-label"]
    by_rank = found.tables["traces.by_rank"]
    traced = plot.dashboard(replace(found, tables={"traces.by_rank": by_rank}), bundle).html
    rows = BeautifulSoup(traced, "html.parser").select("#time tbody tr")
    share = by_rank["compute_ns"].sum() / by_rank["span_ns"].sum()
    assert rows[0].text.startswith("compute")
    assert rows[0].text.endswith(f"{100 * share:.0f} %")


def test_the_dashboard_names_the_largest_finding_of_each_page(page, found) -> None:
    rows = {row.th.text: row for row in page.select("#domains tbody tr")}
    largest = found.findings[found.findings["domain"] == "traces"]["finding"].iloc[0]
    assert largest in rows["Traces"].text
    assert "2 steps failed." in rows["Traces"].text


@pytest.mark.parametrize(
    ("cost", "unit", "words"),
    [
        (0.02667, "GPU-hours", "96 GPU-seconds"),
        (0.0268, "kWh", "26.8 Wh"),
        (1.0, "GPU-hours", "1 GPU-hour"),
        (12.5, "kWh", "12.5 kWh"),
    ],
)
def test_a_small_cost_is_told_in_a_smaller_unit(found, cost, unit, words) -> None:
    rows = found.findings.head(1).assign(cost=cost, cost_unit=unit).astype({"cost": "Float64"})
    assert words in repr(plot.findings(replace(found, findings=rows)))


def test_the_dashboard_counts_what_was_loaded(page, bundle) -> None:
    facts = page.select_one(".facts").text
    for told in (f"{len(bundle.files)} files", "8 traced ranks", "15 power meters", "128 logged"):
        assert told in facts
    rows = {row.th.text: row for row in page.select("#loaded tr") if row.th}
    assert f"{len(bundle.power.power):,} readings" in rows["power logs"].text


def test_a_clock_with_a_zero_of_its_own_is_not_put_on_the_axis_of_the_day(found) -> None:
    logs = load.bundle(datasets.path("fleet-demo") / "power", tz="UTC", progress=False)
    of_day = plot.dashboard(found, logs).html
    power, entities = logs.power.power, logs.power.entities.copy()
    own = entities["entity"].iloc[0]
    is_own = power["entity"] == own
    shifted = power["time_ns"].where(~is_own, power["time_ns"] - power["time_ns"].min())
    entities.loc[entities["entity"] == own, "clock"] = "own"
    mixed = replace(logs.power, power=power.assign(time_ns=shifted), entities=entities)
    shown = plot.dashboard(found, replace(logs, power=mixed)).html
    spans = [BeautifulSoup(text, "html.parser").select(".facts li")[-1].text
             for text in (of_day, shown)]  # fmt: skip
    assert spans[0] == spans[1]
    assert "from 2026-01-12" in spans[0]


def test_the_dashboard_names_what_would_fill_a_page_that_is_not_there(page) -> None:
    told = page.select_one("#domains .soft").text
    assert "workload imbalance (needs job operations or document lengths)" in told
    assert "traces" not in told
    missing = page.select_one("#loaded details")
    assert "5 kinds" in missing.summary.text
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in missing.text


def test_names_on_the_dashboard_are_escaped(page, found, bundle) -> None:
    assert page.select("script, img") == []
    files = bundle.files.assign(source=HOSTILE)
    quality = pd.DataFrame([{"source": HOSTILE, "finding": "dropped", "what": HOSTILE, "count": 1}])
    odd = replace(bundle, files=files, quality=quality)
    html = plot.dashboard(with_texts(found, HOSTILE), odd, source=HOSTILE).html
    soup = BeautifulSoup(html, "html.parser")
    assert soup.select("script, img") == []
    assert soup.select_one("#quality tbody").text.count(HOSTILE) >= 1
    assert len(soup.select_one("#quality summary").text) < 60


def test_a_dashboard_of_nothing_says_so(found) -> None:
    empty = replace(found, findings=found.findings.head(0), tables={})
    html = plot.dashboard(empty, tables.Bundle(), synthetic=True).html
    assert "found anything" in html
    assert "made" in html
