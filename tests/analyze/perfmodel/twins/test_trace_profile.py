"""Profiles: what they keep of a trace, what they do not, and what is found in its order."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.traces.profiles import overlapped, profile
from workbench import analyze, load, simulate
from workbench.analyze._perfmodel.twins.chain import fitted_chain, perplexity
from workbench.analyze._perfmodel.twins.motif import folds
from workbench.errors import WorkbenchError

SEQUENCES = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def step_of(codes, dur=1_000.0):
    names = {"kind": codes, "stream": 0, "waits": -1, "back": 0, "operation": "", "group": 0}
    return pd.DataFrame(names | {"dur": dur, "gap": 1.0, "size": -1.0})


def expanded(blocks):
    return [code for repeats, rows in blocks for code in rows["kind"].tolist() * repeats]


@given(SEQUENCES)
def test_blocks_put_together_give_the_order_again(codes):
    assert expanded(folds(step_of(codes))) == codes


def test_layers_are_found_as_one_block():
    layer = [0, 1, 0, 2, 3]
    blocks = folds(step_of([3, 3, *layer * 12, 1]))
    assert [(repeats, len(rows)) for repeats, rows in blocks] == [(1, 1), (12, 5), (1, 2)]


def test_work_of_other_lengths_is_no_repetition():
    dur = np.tile([1e3, 1e3, 8e3], 10)
    assert [(n, len(rows)) for n, rows in folds(step_of([0] * 30, dur))] == [(10, 3)]


@given(st.lists(SEQUENCES, min_size=1, max_size=3), st.integers(0, 5))
def test_probabilities_of_a_chain_add_up_to_one(sequences, depth):
    """One symbol after each beginning: their probabilities, computed one by one, sum to 1."""
    chain = fitted_chain(sequences, depth=depth)
    beginning = sequences[0]
    before = perplexity(chain, [beginning], symbol_count=4) ** -len(beginning)
    after = [
        perplexity(chain, [[*beginning, code]], symbol_count=4) ** -(len(beginning) + 1)
        for code in range(4)
    ]
    assert sum(after) == pytest.approx(before)


@pytest.mark.oracle
def test_without_order_the_chain_has_the_perplexity_of_its_entropy():
    codes = np.random.default_rng(0).choice(4, 4_000, p=[0.4, 0.3, 0.2, 0.1]).tolist()
    shares = np.bincount(codes) / len(codes)
    entropy = float(np.exp(-(shares * np.log(shares)).sum()))
    plain = fitted_chain([codes], depth=0)
    assert perplexity(plain, [codes], symbol_count=4) == pytest.approx(entropy, rel=0.01)
    cycle = [0, 1, 2, 3] * 50
    assert perplexity(fitted_chain([cycle], depth=3), [cycle], symbol_count=4) < 2


def test_a_profile_of_a_twin_finds_what_the_twin_was_made_of():
    made = profile(
        [
            (("compute", 100_000), {}),
            (("communication", 600_000), {"stream": 1, "waits": 0, "collective": "all-reduce"}),
            (("sync", 1), {"stream": 1}),
        ],
        [0, 0, 1, 2],
        steps=3,
    )
    found = analyze.trace_profile(simulate.traces_like(made))
    order = [found.operations[code] for block in found.motif for code in block.operations]
    assert [(op.kind, op.stream, op.waits) for op in order] == [
        ("compute", 1, -1), ("compute", 1, -1), ("communication", 0, 1), ("sync", 0, -1),
    ]  # fmt: skip
    assert found.step_count == 3
    assert found.rank_count == 2
    assert found.kinds["compute"].dur_ns[16] == pytest.approx(100_000, rel=0.02)
    assert found.launch_ns == 5_000
    assert found.is_synthetic


def test_of_several_ranks_the_transfer_counts_and_not_the_wait():
    made = overlapped(start_ns=tuple(np.linspace(0, 4e6, 33).tolist()))
    trace = simulate.traces_like(made, ranks=4, repeats=1)
    measured = trace.events.loc[trace.events["kind"] == "communication", "dur_ns"]
    assert measured.max() > 2_000_000
    found = analyze.trace_profile(trace)
    assert found.kinds["communication"].dur_ns[-1] == pytest.approx(600_000, rel=0.03)
    assert found.start_ns[-1] == pytest.approx(3e6, rel=0.01)


def test_a_profile_is_a_few_kb_without_any_name_of_the_source(dlrm_trace):
    text = analyze.trace_profile(dlrm_trace).as_json()
    assert 1_000 < len(text) < 12_000
    names = set(dlrm_trace.events["name"].astype(str)) - {"sync"}
    texts = set(re.findall(r'"([^"]*)"', text))
    assert not texts & names
    assert "nccl" not in text.lower()
    assert json.loads(text)["rank_count"] == 8


@pytest.mark.oracle
def test_counts_of_a_profile_are_those_of_the_trace(dlrm_trace):
    kinds = analyze.trace_profile(dlrm_trace).kinds
    counted = dlrm_trace.events["kind"].value_counts()
    assert {kind: entry.count for kind, entry in kinds.items()} == {
        kind: int(count) for kind, count in counted.items() if count
    }


def test_a_trace_without_gpu_work_has_no_profile(dlrm_trace):
    from dataclasses import replace

    host = replace(dlrm_trace, events=dlrm_trace.events[dlrm_trace.events["kind"].isna()])
    with pytest.raises(WorkbenchError, match="no GPU work"):
        analyze.trace_profile(host)


def test_one_rank_is_told_to_hold_its_waits(real_data):
    path = real_data("kineto-hta") / "trace_diff" / "control"
    doubts = analyze.trace_profile(load.traces(path, progress=False)).doubts
    assert "one rank: waiting for other ranks counts as transfer" in doubts
