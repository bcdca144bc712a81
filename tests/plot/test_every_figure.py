"""Laws that every figure obeys, whatever it is about and however large or odd its table."""

import functools
import json
import re

import numpy as np
import pandas as pd
import pytest

from tests.plot.communication import communication_rows, compression_rows, region_rows
from tests.plot.conftest import HOSTILE
from tests.plot.fleet import work_rows
from tests.plot.greyscale import alike_in_grey
from tests.plot.perfmodel import graph_rows
from tests.plot.power import energy_rows as power_energy_rows
from tests.plot.power import limit_rows
from tests.plot.power import swing_rows as power_swing_rows
from tests.plot.pvf import injection_rows
from tests.plot.traces import trace_rows
from tests.rules import for_every
from workbench import plot, tables
from workbench.errors import TableError


def job_slowdown(rank, n):
    return {
        "step_count": 1 + n, "worker_count": 8, "actual_ns": 1.2e9, "replay_ns": 1.1e9 + n,
        "ideal_ns": 9e8, "slowdown_ratio": 1.22, "waste_ratio": 0.18, "delay_ratio": 0.08,
        "worst_workers_ratio": 0.2, "pauses_ratio": 1.2, "verdict": HOSTILE, "note": HOSTILE,
    }  # fmt: skip


def job_slowdown_by(rank, n):
    if rank % 2:
        return {"operation": f"{HOSTILE}{n}", "slowdown_ratio": 1 + n / 1_000}
    return {"dp_rank": rank, "stage": n % 16, "slowdown_ratio": 0.9 + n / 1_000}


def job_steps(_, n):
    return {
        "step": n, "actual_ns": 1e9 + n % 7, "replay_ns": 9e8 + n % 7, "ideal_ns": 7e8,
        "slowdown_ratio": 9 / 7, "delay_ratio": 0.1,
    }  # fmt: skip


def job_schedule(rank, n):
    names = ("forward-compute", "backward-compute", "forward-send", HOSTILE)
    return {
        "version": ("actual", "ideal", "recorded")[n % 3], "step": 3, "dp_rank": 5,
        "stage": rank % 64, "operation": names[n // 3 % 4], "micro_batch": n % 12,
        "start_ns": n * 1_000_000, "dur_ns": 900_000,
    }  # fmt: skip


def job_micro_batches(rank, n):
    return {
        "step": n, "dp_rank": rank, "micro_batch": n % 8, "forward_ns": 1_000_000 + n,
        "backward_ns": 2_000_000 + n,
    }  # fmt: skip


def job_dispersion(_, n):
    return {
        "measure": f"{HOSTILE}{n}", "value_ratio": 1.2 if n % 3 else None,
        "lost_share": 0.1 if n % 2 else None, "formula": HOSTILE, "hides": HOSTILE,
    }  # fmt: skip


def length_shares(_, n):
    return {"length_tokens": n + 1, "longer_share": 1 / (n + 1), "token_share": 0.3,
            "square_share": 0.1}  # fmt: skip


def micro_batches(_, n):
    return {
        "batch": n // 4, "micro_batch": n % 4, "document_count": 2, "length_tokens": 9,
        "longest_tokens": 5, "linear_cost": 1.0, "attention_cost": 0.5 + n % 3,
    }  # fmt: skip


def packing_balance(_, n):
    return {
        "plan": f"{HOSTILE}{n}", "batch_count": 9, "imbalance_ratio": 1.1 + n,
        "imbalance_p95_ratio": 1.2 + n, "memory_ratio": 1.0, "is_stable": n % 2 == 0,
        "attention_imbalance_ratio": 1.0, "token_imbalance_ratio": 1.0, "note": HOSTILE,
    }  # fmt: skip


def packing_queues(_, n):
    return {
        "from_tokens": n + 1, "to_tokens": n + 2, "arrival_ratio": 0.4 + n, "is_stable": n < 1,
    }  # fmt: skip


def context_sharding(_, n):
    return {
        "batch": n, "even_cost": 1.0, "per_sequence_cost": 2.0 + n, "per_document_cost": 1.2,
        "adaptive_cost": 1.1, "hybrid_cost": 1.05, "is_per_document": True,
    }  # fmt: skip


def context_chunks(rank, n):
    return {"rank": rank, "document": n, "length_tokens": 5, "pair_count": 3.0 + n}


def pipeline(rank, n):
    return {
        "version": HOSTILE, "dp_rank": 0, "stage": rank, "task": ("forward", "backward")[n % 2],
        "micro_batch": n % 9, "start_cost": float(n), "dur_cost": 1.0,
    }  # fmt: skip


def pipeline_schedule(rank, n):
    return {
        "schedule": HOSTILE, "stage": rank, "action": "FBIW"[n % 4], "micro_batch": n % 9,
        "start_ns": 1e6 * n, "dur_ns": 1e6, "is_overlapped": n % 8 < 2, "is_critical": n % 3 == 0,
    }  # fmt: skip


def schedule_comparison(_, n):
    return {
        "schedule": f"{HOSTILE}{n}", "stage_count": 4, "micro_batch_count": 8, "chunk_count": 2,
        "step_ns": 1e9 + n, "bubble_share": 0.1, "peak_activations_ratio": 4.5,
        "doubt": HOSTILE if n % 2 else None,
    }  # fmt: skip


def training_speed(_, n):
    return {
        "recipe": f"{HOSTILE}{n}", "builds_on": f"{HOSTILE}0", "packing": HOSTILE,
        "context_sharding": HOSTILE, "speedup_ratio": 1.0 + 0.1 * (n % 5), "imbalance_ratio": 1.2,
    }  # fmt: skip


def incidents(rank, n):
    return {
        "start_ns": 1_740_327_858_000_000_000 + n * 7_000_000_000, "clock": "epoch",
        "node": f"{HOSTILE}{rank}", "device": HOSTILE, "kind": "xid", "code": "79",
        "cause": f"{HOSTILE}{n % 3}", "category": ("gpu", "unknown", HOSTILE)[n % 3],
        "severity": "fatal", "other_codes": HOSTILE, "line_count": 1 + n, "text": HOSTILE,
    }  # fmt: skip


def incident_counts(rank, n):
    return {
        "window_s": float(n), "category": ("gpu", HOSTILE)[rank % 2], "incident_count": 1 + n % 9,
        "line_count": 10 + n,
    }  # fmt: skip


# Tables that are not called as the figure is.
TABLE_OF = {"straggler_attribution": "blame", "parallelism_plan": "plan", "incidents": "failures"}
TABLE_OF |= {"pipeline_schedule": "schedule_times"}
TABLE_OF |= {"pvf_by_bit": "pvf"}


def table_sharding(rank, n):
    return {
        "table": f"{HOSTILE}{n}", "rank": rank, "world_size": 1_000, "scheme": "table",
        "row_count": 10, "dim_count": 64, "memory_bytes": 2_560, "lookup_ms": 1.0 + n,
        "communication_ms": 0.5, "perf_ms": 1.5 + n,
    }  # fmt: skip


def flight_suspects(rank, n):
    return {
        "rank": rank, "confidence": ("high", "medium", "low")[n % 3], "reason": HOSTILE,
        "waiting_count": n, "pending_count": n, "evidence": HOSTILE, "verdict": "found",
    }  # fmt: skip


def flight_waits(rank, n):
    whys = ("not called", "no dump", "not posted", "busy elsewhere", "not started", HOSTILE)
    return {"rank": rank, "waits_for": n % 90, "why": whys[n % 6], "operation": HOSTILE, "seq": n}


def flight_positions(rank, n):
    return {
        "rank": rank, "group": f"{HOSTILE}{n}", "description": f"{HOSTILE}{n % 50}",
        "has_dump": True, "pending_count": n, "behind_count": n % 2, "reason": HOSTILE,
        "confidence": ("high", "none")[rank % 2], "verdict": "found",
    }  # fmt: skip


def row_sharding(_, n):
    return {
        "placement": (HOSTILE, "random", "LPT")[n % 3], "unit_count": 256, "row_count": 1_000,
        "top_row_share": 0.1, "hot_row_count": n // 3, "hot_share": 0.2, "copy_count": 0,
        "max_to_mean_ratio": 2.0 + 1 / (n + 1), "bound_ratio": 1.5,
    }  # fmt: skip


def cause_shares(_, n):
    return {
        "cause": f"{HOSTILE}{n}", "failure_count": 5 + n, "failure_share": 0.2, "low_share": 0.1,
        "high_share": 0.3, "cumulative_share": 0.5, "printed_share": 0.25 if n % 2 else None,
    }  # fmt: skip


def failure_rates(_, n):
    return {
        "group": f"{HOSTILE}{n}", "failure_count": n, "node_count": 8, "exposure_node_days": 80.0,
        "per_1000_node_days": 12.5 * n, "low_per_1000_node_days": 5.0 * n,
        "high_per_1000_node_days": 46.0 + 20 * n, "mtbf_h": 240 / n if n else None,
        "low_mtbf_h": 1.0,
    }  # fmt: skip


def lemon_nodes(_, n):
    return {
        "node": f"{HOSTILE}{n}", "failure_count": n % 9, "exposure_node_days": 30.0,
        "expected_count": 1.5, "p_value_share": 0.01, "adjusted_p_value_share": 0.2,
        "shrunk_per_1000_node_days": 5.0 + n % 9, "is_lemon": n % 400 == 8,
        "dispersion_ratio": 1.2, "recall_share": 0.23,
    }  # fmt: skip


def lemon_recall(_, n):
    return {
        "observed_days": 1.0 + n, "failure_count": 80.0 * (1 + n), "least_failures_count": 3,
        "recall_share": min(n / 100, 1.0), "precision_share": 0.98 if n else None,
    }  # fmt: skip


def goodput(_, n):
    return {
        "state": "productive" if not n else f"{HOSTILE}{n}", "scope": HOSTILE,
        "gpu_time_share": 0.5 / (n + 1), "low_share": 0.4 / (n + 1) if n % 2 else None,
        "high_share": 0.6 / (n + 1) if n % 2 else None, "convention": HOSTILE,
    }  # fmt: skip


def goodput_ladder(_, n):
    return {
        "change": f"{HOSTILE}{n}", "convention": HOSTILE, "productive_share": 1 / (n + 1),
        "gain_ratio": -0.5 / (n + 1), "printed_share": 0.4 if n % 2 else None,
    }  # fmt: skip


def goodput_at_scale(_, n):
    return {
        "gpu_count": 8 * (n + 1), "replica_count": 12, "failure_interval_min": 1e4 / (n + 1),
        "recovery_min": 10.0, "synchronous_share": None if n % 5 == 4 else 1 / (n + 1),
        "replica_share": 0.9, "convention": HOSTILE,
    }  # fmt: skip


def goodput_windows(rank, n):
    return {"run": rank, "start_min": 60.0 * n, "productive_share": (n % 100) / 100}


def checkpoint_curve(_, n):
    return {
        "checkpoint_interval_min": 1.0 + n, "productive_share": 1 / (n + 1),
        "lost_work_share": n / (n + 1), "checkpoint_share": 0.1, "recovery_share": 0.1,
        "first_order_ratio": 1 - n / 10,
    }  # fmt: skip


def spares(_, n):
    return {
        "spare_count": n, "productive_share": n / (n + 9), "low_share": n / (n + 10),
        "high_share": n / (n + 8), "wait_min": 5.0 + n, "offered_load_ratio": 20.0,
    }  # fmt: skip


def parallelism_plan(rank, n):
    return {
        "gpu": HOSTILE, "recompute": HOSTILE, "tensor_parallel": 1 + rank, "fits": n % 3 > 0,
        "pipeline_parallel": 1 + n % 50, "dur_ns": 10**9 + n, "memory_bytes": 10**10 * (n + 1),
        "low_ns": 10**8 if n % 2 else None, "high_ns": 10**10 if n % 2 else None,
        "doubt": HOSTILE,
    }  # fmt: skip


def fast_matmul(_, n):
    return {
        "product": f"{HOSTILE}{n}", "m_count": 64 + n, "n_count": 64, "k_count": 64,
        "call_count": 1 + n, "gpu": HOSTILE, "dtype": HOSTILE, "algorithm": HOSTILE,
        "level_count": 1, "effective_count": 64.0 + n, "crossover_count": 900.0, "plain_ns": 1e6,
        "unfused_ratio": 0.9 + n / 9_999, "hidden_ratio": 1.1 + n / 9_999, "bound_ratio": 1.2,
        "verdict": ("does not pay", "only fused", "pays")[n % 3], "doubt": HOSTILE,
    }  # fmt: skip


def fast_matmul_crossover(rank, n):
    return {
        "gpu": f"{HOSTILE}{rank}", "dtype": HOSTILE, "algorithm": HOSTILE, "level_count": 1,
        "unfused_count": 900.0 + n, "hidden_count": 90.0 + n, "bound_ratio": 1.2,
    }  # fmt: skip


def inference_node(rank, n):
    resource = ("compute", "memory", "PCIe", "launch", "network")[n % 5]
    return {
        "setting": f"{HOSTILE}{n // 5}", "card": HOSTILE, "card_count": 6, "batch_count": 64,
        "resource": resource, "busy_ns": 1e6 + n, "throughput_per_s": 1e6 / (1 + n),
        "is_binding": n % 5 == 4, "latency_ns": 4e6, "needed_bytes": 10, "held_bytes": 9 + n % 7,
        "fits": n % 7 > 0, "doubt": HOSTILE,
    }  # fmt: skip


def inference_capacity(_, n):
    nodes = {} if n % 3 == 2 else {"node_count": 1 + n % 50, "utilization_share": 0.5}
    waits = {} if n % 3 == 2 else {"fill_ns": 1e5, "wait_ns": 1e6, "latency_ns": 1e7, "power_w": 72}
    return {
        "batch_count": 1 + n, "interval_ns": 1e6, "idle_latency_ns": 2e6, "is_best": n == 0,
        "verdict": HOSTILE if n % 3 == 2 else "feasible", "doubt": HOSTILE, **nodes, **waits,
    }  # fmt: skip


# Every function that is called as a figure makes a row for it.
MADE = globals() | {
    name: row
    for rows in (
        communication_rows, graph_rows, injection_rows, limit_rows, power_energy_rows,
        power_swing_rows, compression_rows, region_rows, trace_rows, work_rows,
    )
    for name, row in vars(rows).items()
}  # fmt: skip
ROWS = {name: row for name, row in MADE.items() if name in plot.__all__}
figures = for_every(noun={noun: noun for noun in ROWS})
# One row, and more rows than a figure may draw points.
SIZES = [(1, 1), (1_000, 6_000)]
CASES = {
    f"{noun}, {rows} rows of {ranks} ranks": (noun, ranks, rows)
    for noun in ROWS
    for ranks, rows in SIZES
}


@pytest.fixture(scope="module")
def table(build):
    """Make the table of a noun with some rows over some ranks, once: no figure may change it."""

    @functools.cache
    def make(noun, *, ranks, rows):
        made = [ROWS[noun](n % ranks, n) for n in range(rows)]
        table = getattr(tables, TABLE_OF.get(noun, noun).upper())
        keys = [name for name in ROWS[noun](0, 0) if name not in table.columns]
        before = pd.DataFrame(made, columns=keys)
        return pd.concat([before, build(table, made)], axis=1)

    return make


def draw(noun, frame, **options):
    return getattr(plot, noun)(frame, **options)


@pytest.fixture(scope="module")
def drawn(table):
    """Draw the usual figure of a noun, 200 rows of 8 ranks, once for all that is asked of it."""
    return functools.cache(lambda noun: draw(noun, table(noun, ranks=8, rows=200), source=HOSTILE))


def points(figure):
    held = ("y", "z", "ids")
    sizes = [np.size(getattr(trace, name, None)) for trace in figure.data for name in held]
    return max(sizes, default=0)


def texts(figure):
    """Collect whatever plotly reads HTML in, as the browser gets it."""
    found = []

    def walk(value):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            [walk(each) for key, each in value.items() if key not in ("meta", "template")]
        elif isinstance(value, list):
            [walk(each) for each in value]

    walk(json.loads(figure.to_json()))
    return found


def brightness(colour):
    parts = [int((colour or "#000000")[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return sum(weight * part**2.2 for weight, part in zip((0.21, 0.72, 0.07), parts, strict=True))


def test_every_figure_of_a_table_is_tested_here():
    drawn = {name for name in plot.__all__ if name[0].islower()}
    # Cards are text, and two figures follow a mouse over more points than a page holds.
    drawn -= {
        "dashboard",
        "findings",
        "timeline",
        "timeline_live",
    }
    # A page is text; tested in tests/plot/fleet.
    drawn -= {"run_comparison_page", "run_trend_page"}
    assert set(ROWS) == drawn


@pytest.mark.long
@figures
def test_an_empty_table_is_explained_in_words(noun, table):
    figure = draw(noun, table(noun, ranks=1, rows=0), source="nowhere")
    assert figure.layout.title.text
    assert len(figure.layout.annotations[0].text.split()) >= 4
    assert "nowhere" in figure.layout.annotations[-1].text
    assert not figure.data


@pytest.mark.long
@for_every(case=CASES)
def test_any_size_is_drawn_with_few_points_and_few_traces(case, table):
    noun, ranks, rows = case
    frame = table(noun, ranks=ranks, rows=rows)
    before = frame.copy(deep=True)
    figure = draw(noun, frame)
    assert frame.equals(before), "a figure changes its input"
    assert figure.data
    assert points(figure) <= 5_000
    assert len(figure.data) <= 50
    assert len(figure.layout.title.text) <= 160


@pytest.mark.long
@figures
def test_names_from_a_trace_stay_text(noun, drawn):
    figure = drawn(noun)
    allowed = re.compile(r"</?(?:b|i|br|extra)>")
    for text in texts(figure):
        assert "<" not in allowed.sub("", text), text
        assert not re.search(r"\$.*\$", text), text
    for trace in figure.data:
        assert "%{y}" not in str(trace.hovertemplate) or "script" not in str(trace.hovertemplate)


@pytest.mark.long
@figures
def test_generated_data_is_labelled_and_real_data_is_not(noun, table):
    for rows in (0, 8):
        frame = table(noun, ranks=8, rows=rows)
        marked = draw(noun, frame, source="demo", synthetic=True)
        plain = draw(noun, frame, source="demo")
        assert plain.data or not rows
        assert "SYNTHETIC DATA" in marked.layout.title.subtitle.text
        assert "synthetic" not in "".join(texts(plain)).lower()


@figures
def test_axes_that_carry_a_quantity_name_its_unit(noun, drawn):
    figure = drawn(noun)
    titles = f"{figure.layout.xaxis.title.text} {figure.layout.yaxis.title.text}"
    if figure.data[0].type == "icicle":
        # It has no axes; its labels name the unit.
        assert all(re.match(r"[\d.,]+ (?:s|ms|µs|ns)\b", text) for text in figure.data[0].text)
        return
    assert re.search(r"\[[^\]]+\]|launches waiting|rank that waits", titles), titles


@figures
def test_traces_are_told_apart_without_colour(noun, drawn):
    figure = drawn(noun)
    looks = set()
    for trace in figure.data:
        look = trace.to_plotly_json()
        marker = look.get("marker", {})
        pattern = marker.get("pattern", look.get("fillpattern", {})).get("shape")
        lightness = brightness(marker.get("color", look.get("fillcolor"))) > 0.4
        dash = look.get("line", {}).get("dash")
        panel, symbol = look.get("xaxis"), str(marker.get("symbol"))
        looks.add((panel, pattern, symbol, dash, lightness, look["type"]))
    assert len(looks) == len(figure.data)


@figures
def test_no_figure_needs_colour(noun, drawn):
    assert alike_in_grey(json.loads(drawn(noun).to_json())) == []


@figures
def test_a_wrong_table_is_refused(noun, table):
    frame = table(noun, ranks=1, rows=1)
    with pytest.raises(TableError, match="is missing"):
        draw(noun, frame.drop(columns=frame.columns[0]))
