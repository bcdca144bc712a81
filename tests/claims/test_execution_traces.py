"""Execution traces from a model: counted by closed form, read by plain protobuf, played."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._execution_traces import execution_traces
from tests.load.traces.chakra.chakra_files import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVE,
    COMPUTE,
    REDUCE_SCATTER,
    SEND,
    attributes_of,
    nodes_of,
)
from workbench import analyze, load
from workbench.analyze import Layout, ModelShape
from workbench.errors import PerformanceModelError

RECEIVE = 6
SMALL = ModelShape(layers=3, hidden=64, heads=4, vocabulary=256, name="small")


def written(tmp_path, layout, shape=SMALL, **options):
    files = load.write_chakra(execution_traces(shape, layout, **options), tmp_path / "job")
    assert files.quality.empty
    return {int(path.name.split(".")[-2]): nodes_of(path) for path in files}, files


def played_ns(ranks, transfer_ns=0):
    """Play all ranks: a node starts when what it needs has ended, a receive also its send."""
    ends, blocked = {}, [(rank, node) for rank, nodes in ranks.items() for node in nodes]
    while blocked:
        left = []
        for rank, node in blocked:
            needs = [ends.get((rank, number)) for number in node.data_deps]
            told = attributes_of(node)
            if node.type == RECEIVE:
                needs.append(ends.get((told["comm_src"], rank, told["comm_tag"])))
            if None in needs:
                left.append((rank, node))
                continue
            end = max(needs, default=0) + node.duration_micros * 1000
            if node.type == SEND:
                ends[rank, told["comm_dst"], told["comm_tag"]] = end + transfer_ns
            ends[rank, node.id] = end
        assert len(left) < len(blocked), "the ranks wait for each other"
        blocked = left
    return max(ends.values())


def agree_on_collectives(ranks, members):
    assert all(int(name) >= 1 for name in members)
    lists = defaultdict(set)
    for rank, nodes in ranks.items():
        of_group = defaultdict(list)
        for node in nodes:
            told = attributes_of(node)
            if node.type == COLLECTIVE:
                assert rank in members[told["pg_name"]]
                of_group[told["pg_name"]].append((told["comm_type"], told["comm_size"]))
        for name, calls in of_group.items():
            lists[name].add(tuple(calls))
    assert all(len(calls) == 1 for calls in lists.values())


layouts = st.builds(
    lambda tensor, pipeline, data, rounds, micro, sharding, recompute: Layout(
        tensor=tensor, pipeline=pipeline, data=data, micro_batch=micro, sequence=128,
        global_batch=rounds * data * micro, sharding=sharding, recompute=recompute,
    ),
    st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 2), st.integers(1, 4),
    st.integers(1, 2), st.sampled_from(["none", "zero1"]),
    st.sampled_from(["none", "selective", "full"]),
)  # fmt: skip


@pytest.mark.long
@given(layout=layouts)
def test_counts_and_bytes_are_those_of_the_closed_forms(tmp_path_factory, layout):
    ranks, _ = written(tmp_path_factory.mktemp("et"), layout)
    t, p, d = layout.tensor, layout.pipeline, layout.data
    rounds = layout.global_batch // (d * layout.micro_batch)
    assert sorted(ranks) == list(range(t * p * d))
    count, size = Counter(), Counter()
    for nodes in ranks.values():
        for node in nodes:
            told = attributes_of(node)
            use = node.name if node.name in ("gradients", "weights", "optimizer") else "passes"
            key = (node.type, told.get("comm_type"), use)
            count[key] += 1
            size[key] += told.get("comm_size", 0)
            assert told["is_cpu_op"] is False
    message = layout.micro_batch * layout.sequence * SMALL.hidden * 2
    full = layout.recompute == "full"
    passes = t * d * SMALL.layers * rounds
    reduces = (COLLECTIVE, ALL_REDUCE, "passes")
    assert count[reduces] == (4 + 2 * full) * passes * (t > 1)
    assert size[reduces] == count[reduces] * message
    extra = {"none": 0, "selective": 1, "full": 6}[layout.recompute]
    assert count[COMPUTE, None, "passes"] == (12 + extra) * passes + 2 * rounds * t * d
    for kind in (SEND, RECEIVE):
        assert count[kind, None, "passes"] == 2 * (p - 1) * rounds * t * d
        assert size[kind, None, "passes"] == count[kind, None, "passes"] * message
    whole, rounding = 2 * SMALL.parameter_count, 2 * t * p * d
    sharded = layout.sharding == "zero1"
    gradients = size[COLLECTIVE, REDUCE_SCATTER if sharded else ALL_REDUCE, "gradients"] / d
    weights = size[COLLECTIVE, ALL_GATHER, "weights"]
    assert gradients == pytest.approx(whole * (d > 1), abs=rounding)
    # Of an all-gather the share of one rank counts: read as the whole it would be d times this.
    assert weights == pytest.approx(whole * (d > 1 and sharded), abs=rounding)


@pytest.mark.long
@given(layout=layouts)
def test_graphs_have_no_cycle_and_their_ranks_agree_on_collectives(tmp_path_factory, layout):
    ranks, files = written(tmp_path_factory.mktemp("et"), layout)
    for nodes in ranks.values():
        ids = [node.id for node in nodes]
        assert sorted(set(ids)) == ids
        assert all(needed < node.id for node in nodes for needed in node.data_deps)
    played_ns(ranks)
    sent, received = Counter(), Counter()
    for rank, nodes in ranks.items():
        for node in nodes:
            told = attributes_of(node)
            ends = tuple(told.get(f"comm_{name}") for name in ("src", "dst", "tag", "size"))
            if node.type in (SEND, RECEIVE):
                (sent if node.type == SEND else received)[ends] += 1
                assert ends[node.type == RECEIVE] == rank
    assert sent == received
    assert set(sent.values()) <= {1}
    agree_on_collectives(ranks, json.loads(files.groups.read_text()) if files.groups else {})


def test_four_stages_are_not_four_times_as_fast_the_bubble_stays(tmp_path):
    shape = ModelShape(layers=8, hidden=4096, heads=32, vocabulary=1)
    layout = Layout(pipeline=4, global_batch=6, sequence=4096)
    alone, _ = written(tmp_path / "one", replace(layout, pipeline=1), shape)
    ranks, _ = written(tmp_path / "four", layout, shape)
    optimizer = max(n.duration_micros for n in ranks[0] if n.name == "optimizer") * 1000
    passes = [n for n in ranks[1] if n.type == COMPUTE and n.name != "optimizer"]
    one_round = sum(node.duration_micros for node in passes) * 1000 / 6
    # 1F1B: (m + p - 1) passes forward and backward, instead of m.
    assert played_ns(ranks) == pytest.approx((6 + 4 - 1) * one_round + optimizer, rel=0.002)
    assert played_ns(alone) / played_ns(ranks) == pytest.approx(4 * 6 / 9, rel=0.02)
    # With transfers: as the schedule says, whose times are computed elsewhere.
    forward = sum(n.duration_micros for n in passes if n.name.endswith("forward 0")) * 1000
    times = analyze.PassTimes(forward, one_round - forward, transfer_ns=10**6)
    schedule = analyze.schedule_times(analyze.pipeline_schedule("1f1b", 4, 6), times)
    step = (schedule["start_ns"] + schedule["dur_ns"]).max() + optimizer
    assert played_ns(ranks, 10**6) == pytest.approx(step, rel=0.002)


@pytest.mark.long
def test_nodes_add_up_to_the_planner_s_compute_and_optimizer():
    for more in ({}, {"flash_attention": True}, {"recompute": "full"}, {"recompute": "selective"}):
        layout = Layout(tensor=2, data=2, global_batch=8, sequence=2048, sharding="zero1", **more)
        shape = ModelShape(layers=6, hidden=2048, heads=16, kv_heads=4, ffn=5632, gated=True)
        nodes = execution_traces(shape, layout, gpu="A100").nodes
        own = nodes[nodes["rank"] == 0]
        is_optimizer = own["name"] == "optimizer"
        planned = (
            analyze.assumed_model()
            .predict(analyze.configurations(shape, layout, gpu="A100"))
            .iloc[0]
        )
        here = own.loc[~is_optimizer, "dur_ns"].sum()
        assert here == pytest.approx(planned["compute_ns"], abs=len(own) / 2)
        assert own.loc[is_optimizer, "dur_ns"].sum() == pytest.approx(
            planned["optimizer_ns"], rel=1e-3
        )


# ASTRA-sim 518bd51, examples/workload/microbenchmarks: what its files of 8 ranks have.
ASTRA_SIM = {"is_cpu_op": "bool_val", "comm_type": "int64_val", "comm_size": "int64_val"}


@pytest.mark.oracle
def test_collectives_and_messages_have_the_attributes_that_simulators_read(tmp_path):
    layout = Layout(tensor=2, pipeline=2, data=2, global_batch=4, sequence=128, sharding="zero1")
    ranks, _ = written(tmp_path, layout)
    kinds = set()
    for node in ranks[0]:
        fields = {entry.name: entry.WhichOneof("value") for entry in node.attr}
        if node.type == COLLECTIVE:
            assert {name: fields[name] for name in ASTRA_SIM} == ASTRA_SIM
            kinds.add(attributes_of(node)["comm_type"])
        elif node.type in (SEND, RECEIVE):
            names = ("comm_src", "comm_dst", "comm_tag")
            assert [fields[name] for name in names] == ["int32_val"] * 3
    assert kinds == {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER}


def test_what_is_read_again_is_what_was_made_and_says_that_it_is_synthetic(tmp_path):
    trace = execution_traces(SMALL, Layout(tensor=2, pipeline=2, global_batch=4))
    assert trace.is_synthetic
    load.write_chakra(trace, tmp_path / "job")
    again = load.traces(tmp_path, progress=False)
    assert again.is_synthetic
    for name in ("node", "name", "type", "dur_ns", "collective", "group", "size_bytes"):
        before, after = (t.nodes[name].astype(object).where(t.nodes[name].notna(), None)
                         for t in (trace, again))  # fmt: skip
        assert before.tolist() == after.tolist()


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        ({"experts": 4, "routed": 2}, {}, "experts"),
        ({}, {"context": 2}, "context parallelism"),
        ({}, {"pipeline": 2, "chunks": 2, "global_batch": 2}, "several chunks per stage"),
        ({}, {"sharding": "fsdp"}, "sharding='fsdp'"),
        ({}, {"sequence_parallel": True}, "sequence parallelism"),
        ({"latent_rank": 8}, {}, "latent attention"),
        ({"next_tokens": 1}, {}, "layers for further tokens"),
        ({}, {"global_batch": 10**6}, r"48,000,000 nodes, of 3,000,000 at most"),
        ({}, {"tensor": 3}, "heads do not divide by 3"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_with_its_reason(shape, layout, message):
    with pytest.raises(PerformanceModelError, match=message):
        execution_traces(replace(SMALL, **shape), Layout(**layout))
