"""Iteration times, FLOPs and memory of configurations: printed numbers, laws, refusals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from claims._closed_form import memory_footprint, model_flops
from claims._iterations import iterations
from workbench import analyze
from workbench.errors import PerformanceModelError
from workbench.tables import ITERATIONS, PLAN

GPT = analyze.model_shape("GPT-3 175B")
MIXTRAL = analyze.model_shape("Mixtral 8x7B")


def jobs(shape=GPT, gpu="H100", **layout):
    return analyze.configurations(shape, analyze.Layout(**layout), gpu=gpu)


def seconds(model, table, **options):
    return float(model.predict(table, **options)["analytic_ns"].iloc[0]) / 1e9


@pytest.fixture(scope="module")
def many(real_data):
    return iterations(real_data("iterations-vtrain") / "ground_truth_multi.csv")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "billions"),
    [("GPT-3 175B", 175), ("Llama 3 405B", 405), ("Megatron 22B", 22), ("Megatron 530B", 530),
     ("Megatron 1T", 1008), ("Lumos 15B", 15), ("Mixtral 8x7B", 46.7)],
)  # fmt: skip
def test_published_models_have_their_parameters(name, billions):
    assert analyze.model_shape(name).parameter_count / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.oracle
def test_a_routed_model_has_its_active_parameters():
    assert MIXTRAL.active_parameter_count / 1e9 == pytest.approx(12.9, rel=0.01)


@settings(max_examples=15)
@given(
    faster=st.floats(1.1, 4),
    tensor=st.sampled_from([1, 4, 8, 16]),
    recompute=st.sampled_from(["none", "full"]),
    field=st.sampled_from(["peak_tflops", "memory_gb_per_s", "node_gb_per_s", "network_gb_per_s"]),
)
def test_better_hardware_is_never_slower(faster, tensor, recompute, field):
    model, kind = analyze.assumed_model(), analyze.gpu_type("H100")
    table = jobs(tensor=tensor, pipeline=8, data=4, global_batch=64, recompute=recompute)
    better = {"H100": replace(kind, **{field: faster * getattr(kind, field)})}
    before, after = seconds(model, table), seconds(model, table, gpus=better)
    assert after < before if field == "peak_tflops" else after <= before


def test_each_kind_of_parallelism_costs_what_it_moves_and_nothing_without_it():
    model = analyze.assumed_model()
    alone = model.predict(jobs(MIXTRAL, global_batch=64)).iloc[0]
    zero = ["bubble_ns", "tensor_ns", "context_ns", "expert_ns", "pipeline_ns", "data_ns"]
    assert (alone[zero] == 0).all()
    for column, layout in {
        "bubble_ns": {"pipeline": 4}, "tensor_ns": {"tensor": 4}, "context_ns": {"context": 4},
        "expert_ns": {"expert": 4, "data": 4}, "pipeline_ns": {"pipeline": 4}, "data_ns": {"data": 4},
    }.items():  # fmt: skip
        assert model.predict(jobs(MIXTRAL, global_batch=64, **layout)).iloc[0][column] > 0
    chunked = model.predict(jobs(MIXTRAL, global_batch=64, pipeline=4, chunks=2)).iloc[0]
    plain = model.predict(jobs(MIXTRAL, global_batch=64, pipeline=4)).iloc[0]
    assert chunked["bubble_ns"] == pytest.approx(plain["bubble_ns"] / 2, rel=1e-6)
    again = model.predict(jobs(MIXTRAL, global_batch=64, recompute="full")).iloc[0]
    assert alone["compute_ns"] < again["compute_ns"] < 7 / 5 * alone["compute_ns"]
    sharded = jobs(MIXTRAL, data=8, global_batch=64, sharding="fsdp")
    replicas = jobs(MIXTRAL, data=8, global_batch=64)
    assert seconds(model, sharded) > 0
    assert model.predict(sharded)["data_ns"].iloc[0] > model.predict(replicas)["data_ns"].iloc[0]


def part_ns(name, gpu="A100", **layout):
    table = jobs(GPT, gpu, global_batch=256, sequence_parallel=True, **layout)
    return float(analyze.assumed_model().predict(table)[f"{name}_ns"].iloc[0])


def test_a_ring_leaves_a_node_by_the_adapters_of_all_its_ranks():
    alone, all_eight = part_ns("data", tensor=8, data=16), part_ns("data", tensor=1, data=16)
    # Eight times the parameters, by eight times the adapters.
    assert all_eight == pytest.approx(alone, rel=0.01)
    gpu = analyze.gpu_type("A100")
    ranks, share = 2 * 15 / 16, analyze.assumed_model().constants.network_share
    moved = 256 * GPT.layers * 4 * ranks * 2 * 2048 * GPT.hidden
    expected = moved / (8 * share * gpu.network_gb_per_s * 1e9)
    assert part_ns("tensor", tensor=16) == pytest.approx(1e9 * expected, rel=1e-6)


def test_stages_exchange_twice_per_chunk_and_micro_batch_and_tensor_ranks_share_it():
    exchanges = {1: 2 * (256 + 2), 3: 2 * (3 * 256 + 2)}
    plain = part_ns("pipeline", pipeline=4, tensor=8)
    chunked = part_ns("pipeline", pipeline=4, tensor=8, chunks=3)
    assert chunked / plain == pytest.approx(exchanges[3] / exchanges[1], rel=1e-6)
    assert part_ns("pipeline", pipeline=16, tensor=1) == pytest.approx(
        8 * part_ns("pipeline", pipeline=16, tensor=8), rel=1e-6
    )


def test_memory_traffic_counts_backward_and_what_is_computed_again():
    # Without any time for products and head, what is left of compute is traffic.
    kind = {"H100": replace(analyze.gpu_type("H100"), peak_tflops=1e12)}
    model = analyze.assumed_model()

    def traffic(**layout):
        return model.predict(jobs(**layout), gpus=kind)["compute_ns"].iloc[0]

    wide, scores = 34 * 12_288 * 2048, 5 * 96 * 2048**2
    seconds_of_all = GPT.layers * 5 * (wide + scores) / (0.8 * 3.35e12)
    assert traffic() == pytest.approx(1e9 * seconds_of_all, rel=1e-4)
    assert traffic(recompute="full") == pytest.approx(7 / 5 * traffic(), rel=1e-4)
    again = (5 * wide + 7 * scores) / (5 * (wide + scores))
    assert traffic(recompute="selective") == pytest.approx(again * traffic(), rel=1e-4)
    less = wide / (wide + scores)
    assert traffic(flash_attention=True) == pytest.approx(less * traffic(), rel=1e-4)


def test_flash_attention_computes_its_scores_again_in_backward():
    # Only products cost, and only those of the scores grow with the square of the sequence.
    kind = {"H100": replace(analyze.gpu_type("H100"), memory_gb_per_s=1e12)}
    model = analyze.assumed_model()

    def work(**layout):
        table = jobs(global_batch=1, sequence=2**17, **layout)
        return model.predict(table, gpus=kind)["compute_ns"].iloc[0]

    linear = GPT.layers * 12 * GPT.hidden + GPT.vocabulary
    scores = GPT.layers * 2 * 2**17
    ratio = (3 * linear + 3.5 / 2 * scores) / (3 * (linear + scores))
    assert work(flash_attention=True) / work() == pytest.approx(ratio, rel=1e-4)


@pytest.mark.long
@settings(max_examples=5)
@given(factor=st.floats(0.8, 3))
def test_one_row_moves_the_model_to_what_was_measured(factor):
    model = analyze.assumed_model()
    table = jobs(tensor=8, pipeline=8, data=8, global_batch=512)
    row = table.assign(
        dur_ns=round(factor * seconds(model, table) * 1e9), source="made up", doubt=""
    )
    moved = analyze.calibrated_to(model, row).predict(row).iloc[0]
    assert moved["dur_ns"] == pytest.approx(row["dur_ns"].iloc[0], rel=0.02)
    assert moved["doubt"] == "calibrated on 1 row only"
    assert pd.isna(moved["low_ns"])


def test_what_would_need_more_than_the_data_sheet_is_refused():
    table = jobs(tensor=8, pipeline=8, data=8, global_batch=512)
    third = round(seconds(analyze.assumed_model(), table) * 1e9 / 3)
    row = table.assign(dur_ns=third, source="made up", doubt="")
    with pytest.raises(PerformanceModelError, match="cannot explain made up"):
        analyze.calibrated_to(analyze.assumed_model(), row)


def test_a_row_that_is_explained_within_the_error_printed_is_taken():
    table, model = jobs(tensor=8, pipeline=8, data=8, global_batch=512), analyze.assumed_model()
    assert "nine of ten by at most 22%" in model.predict(table)["error_class"][0]
    half = round(seconds(model, table) * 1e9 / 2)
    moved = analyze.calibrated_to(model, table.assign(dur_ns=half, source="made up", doubt=""))
    assert moved.predict(table)["dur_ns"][0] / half == pytest.approx(1.205, abs=0.01)
    assert moved.doubt == "calibrated on 1 row only, which it still misses by up to 21%"


@settings(max_examples=5)
@given(gpus=st.sampled_from([64, 96, 512]), batch=st.sampled_from([192, 768]))
def test_a_plan_holds_every_way_once_and_the_best_first(gpus, batch):
    like = analyze.Layout(global_batch=batch, sharding="zero1", recompute="full")
    plan = PLAN.check(analyze.parallelism_plan(GPT, gpus, model=analyze.assumed_model(), like=like))
    sizes = ["tensor_parallel", "pipeline_parallel", "data_parallel"]
    assert (plan[sizes].prod(axis=1) == gpus).all()
    assert not plan.duplicated([*sizes, "micro_batch_count"]).any()
    fitting = plan.loc[plan["fits"], "dur_ns"]
    assert fitting.is_monotonic_increasing
    assert plan["is_best"].sum() == min(len(fitting), 1)


def test_a_plan_can_vary_context_and_experts_too():
    like = analyze.Layout(global_batch=64, sequence=8192)
    plan = analyze.parallelism_plan(
        MIXTRAL, 16, model=analyze.assumed_model(), like=like, vary=["context", "expert"]
    )
    assert plan["context_parallel"].nunique() > 1
    assert plan["expert_parallel"].nunique() > 1


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"tensor": 0}, "tensor must be a whole number from 1, not 0"),
        ({"data": True}, "data must be a whole number from 1, not True"),
        ({"data": 3, "global_batch": 4}, "global batch of 4 does not divide by 3 replicas"),
        (
            {"data": 2, "expert": 4, "global_batch": 2},
            "neither 2 replicas nor the 2 ranks of a stage divide by 4 expert",
        ),
        ({"context": 3}, "sequences of 2048 tokens do not divide by 3 ranks"),
        ({"chunks": 2}, "chunks need a pipeline"),
        ({"recompute": "some"}, "recompute is 'some', must be one of"),
        ({"sharding": "zero9"}, "sharding is 'zero9', must be one of"),
    ],
)
def test_an_impossible_layout_is_refused(layout, words):
    with pytest.raises(PerformanceModelError, match=words):
        analyze.Layout(**layout)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"tensor": 5}, "96 heads do not divide by 5"),
        ({"pipeline": 97}, "96 layers are fewer than 97 stages"),
        ({"data": 2, "expert": 2, "global_batch": 2}, "1 experts do not divide by 2"),
    ],
)
def test_a_layout_that_does_not_fit_the_model_is_refused(layout, words):
    with pytest.raises(PerformanceModelError, match=words):
        jobs(**layout)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"hidden": 100, "heads": 3}, "hidden 100 does not divide by 3 heads"),
        ({"heads": 8, "kv_heads": 3}, "8 heads do not divide by 3 heads of keys"),
        ({"experts": 2, "routed": 3}, "tokens visit 3 of 2 experts"),
        ({"layers": -1}, "layers must be a whole number from 1, not -1"),
    ],
)
def test_an_impossible_model_is_refused(shape, words):
    with pytest.raises(PerformanceModelError, match=words):
        analyze.ModelShape(**{"layers": 2, "hidden": 64, "heads": 8, **shape})


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(PerformanceModelError, match="no model 'GPT-9'; there are"):
        analyze.model_shape("GPT-9")
    with pytest.raises(PerformanceModelError, match="no GPU type 'Z1'; there are"):
        analyze.gpu_type("Z1")


def test_a_model_is_not_calibrated_to_nothing_nor_to_what_cannot_be(many):
    with pytest.raises(PerformanceModelError, match="there is no row to calibrate to"):
        analyze.calibrated_to(analyze.assumed_model(), many.iloc[:0])
    impossible = many.iloc[:2].assign(dur_ns=[10**6, 10**14])
    with pytest.raises(PerformanceModelError, match="cannot explain ground_truth_multi"):
        analyze.calibrated_to(analyze.assumed_model(), impossible)


def test_a_plan_without_any_way_says_why():
    model, like = analyze.assumed_model(), analyze.Layout(global_batch=1)
    with pytest.raises(PerformanceModelError, match="no TP x PP x DP of 97 GPUs"):
        analyze.parallelism_plan(GPT, 97, model=model, like=like)
    with pytest.raises(PerformanceModelError, match=r"vary names \['data'\]"):
        analyze.parallelism_plan(GPT, 8, model=model, like=like, vary=["data"])


def test_empty_tables_stay_empty():
    empty = ITERATIONS.empty()
    assert analyze.configurations(GPT, []).empty
    assert analyze.assumed_model().predict(empty).empty


def expert_jobs(**layout):
    base = {"data": 16, "global_batch": 1024, "flash_attention": True, "sequence_parallel": True}
    shape = analyze.model_shape("Qwen 3 235B-A22B")
    return jobs(shape, "H100 FP8", **{**base, **layout})


def test_operations_are_counted_for_a_gpu_that_nobody_knows():
    of_h100 = model_flops(jobs(global_batch=8))
    custom = model_flops(jobs(global_batch=8, gpu="my own"))
    assert custom["model_flops_count"].tolist() == of_h100["model_flops_count"].tolist()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "tokens_per_s", "tflops"),
    [("Qwen 3 30B-A3B", 30_411, 700), ("Qwen 3 235B-A22B", 6_583, 974), ("Llama 3 70B", 1_633, 734)],
)  # fmt: skip
def test_flops_per_token_are_those_that_megatron_bridge_prints(name, tokens_per_s, tflops):
    sequence = 8192 if name.startswith("Llama") else 4096
    job = jobs(analyze.model_shape(name), global_batch=1, sequence=sequence)
    count = model_flops(job, causal=True)["model_flops_count"].iloc[0]
    assert count / sequence * tokens_per_s / 1e12 == pytest.approx(tflops, rel=0.005)


def test_experts_may_be_spread_over_more_ranks_than_there_are_replicas():
    # 2 tensor-parallel ranks x 16 replicas hold the experts of 32 ranks: parallel folding.
    folded = expert_jobs(tensor=2, pipeline=2, expert=32)
    assert folded["expert_parallel"].item() == 32
    with pytest.raises(PerformanceModelError, match="neither 16 replicas nor the 32 ranks"):
        expert_jobs(tensor=2, expert=64)


def test_a_folded_rank_holds_whole_experts():
    # By hand: 128 experts on 32 ranks are 4 each, not halved by the 2 tensor-parallel ranks.
    folded, plain = (
        memory_footprint(expert_jobs(tensor=2, pipeline=2, expert=ranks)).iloc[0]
        for ranks in (32, 16)
    )
    shape = analyze.model_shape("Qwen 3 235B-A22B")
    layers, expert = shape.layers // 2, 3 * shape.hidden * shape.ffn
    attention = 2 * shape.hidden * shape.head_width * (shape.heads + shape.kv_heads)
    shared = layers * (attention + 2 * shape.hidden) + shape.vocabulary * shape.hidden
    by_hand = 2 * (shared / 2 + layers * 4 * expert)
    assert folded["parameters_bytes"] == pytest.approx(by_hand, rel=1e-9)
    assert plain["parameters_bytes"] == pytest.approx(by_hand, rel=1e-9)  # 8 experts, each halved


def test_states_of_experts_are_shared_by_their_own_replicas_only():
    # With as many expert-parallel ranks as replicas an expert exists once: nothing to share.
    need = memory_footprint(expert_jobs(expert=16, sharding="zero1")).iloc[0]
    shape = analyze.model_shape("Qwen 3 235B-A22B")
    experts = shape.layers * 8 * 3 * shape.hidden * shape.ffn
    assert need["optimizer_bytes"] > 12 * experts


@pytest.mark.long
@settings(max_examples=20)
@given(
    expert=st.sampled_from([1, 2, 4, 8, 16]),
    micro=st.sampled_from([1, 2, 4]),
    routed=st.sampled_from([1, 2, 4, 8]),
)
def test_experts_never_come_for_free(expert, micro, routed):
    """A mixture never computes faster than a dense model of the same active matrices."""
    mixture = replace(MIXTRAL, experts=16, routed=routed)
    dense = replace(MIXTRAL, ffn=MIXTRAL.ffn * routed, experts=1, routed=1)
    layout = {"data": 16, "micro_batch": micro, "global_batch": 64, "flash_attention": True}
    model = analyze.assumed_model()
    slow = model.predict(jobs(mixture, **layout, expert=expert)).iloc[0]
    fast = model.predict(jobs(dense, **layout)).iloc[0]
    assert slow["compute_ns"] > fast["compute_ns"]
    assert (slow["expert_ns"] > 0) == (expert > 1)


def test_fewer_tokens_per_expert_are_less_efficient():
    model, few, many = (
        analyze.assumed_model(),
        replace(MIXTRAL, experts=8),
        replace(MIXTRAL, experts=64),
    )
    spread = {"data": 8, "expert": 8, "global_batch": 64, "sequence": 512}
    before, after = (
        model.predict(jobs(shape, **spread)).iloc[0]["compute_ns"] for shape in (few, many)
    )
    assert after > before


def test_eight_bit_peaks_leave_attention_and_the_output_layer_in_sixteen():
    model, kind = analyze.assumed_model(), analyze.gpu_type("H100 FP8")
    table = jobs(gpu="H100 FP8", global_batch=8, flash_attention=True, sequence=32_768)
    all_fast = {"H100 FP8": replace(kind, peak_16bit_tflops=None)}
    assert seconds(model, table) > 1.1 * seconds(model, table, gpus=all_fast)


def test_every_prediction_says_how_far_off_its_kind_was():
    model = analyze.assumed_model()
    for shape, word in ((GPT, "dense models"), (MIXTRAL, "mixtures of experts")):
        (text,) = model.predict(jobs(shape, global_batch=8))["error_class"]
        assert text.startswith(word)
        assert "public jobs were off by" in text
    measured_ns = round(1.1e9 * seconds(model, jobs(global_batch=8)))
    single = jobs(global_batch=8).assign(dur_ns=measured_ns, source="own", doubt="")
    calibrated = analyze.calibrated_to(model, single)
    (text,) = calibrated.predict(jobs(global_batch=8))["error_class"]
    assert text.startswith("calibrated on 1 row only; before that: dense models")


def sharing_ranks(held, per_node):
    """Count the ranks that hold the same as rank 0, in all and in its node."""
    same = [rank for rank, what in enumerate(held) if what == held[0]]
    return len(same), sum(rank < per_node for rank in same)


@given(
    tensor=st.sampled_from([1, 2, 4]),
    context=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2, 4, 8]),
    expert=st.sampled_from([1, 2, 4, 8, 16]),
    sharding=st.sampled_from(["none", "zero1", "fsdp", "hsdp"]),
)
def test_memory_is_that_of_ranks_told_apart_one_by_one(tensor, context, data, expert, sharding):
    """Megatron-LM orders ranks tensor, context, data; those of experts tensor, expert, data."""
    count = tensor * context * data
    assume(count % expert == 0 and (context * data % expert == 0 or data % expert))
    shape = replace(MIXTRAL, experts=16, tied=True)
    table = jobs(
        shape, tensor=tensor, context=context, data=data, expert=expert, sharding=sharding,
        global_batch=64,
    )  # fmt: skip
    need = memory_footprint(table).iloc[0]
    width = 1 if data % expert else tensor
    of_rank = {
        "shared": [rank % tensor for rank in range(count)],
        "experts": [(rank % width, rank // width % expert) for rank in range(count)],
    }
    attention = 2 * shape.hidden * shape.head_width * (shape.heads + shape.kv_heads)
    layer = {
        "shared": (attention + 2 * shape.hidden) / tensor,
        "experts": 16 // expert * 3 * shape.hidden * shape.ffn / width,
    }
    by_hand = np.zeros(3)
    for name, held in of_rank.items():
        every, in_node = sharing_ranks(held, per_node=8)
        shards = {"none": 1, "zero1": every, "fsdp": every, "hsdp": in_node}[sharding]
        copies = 1 if sharding == "zero1" else shards
        size = shape.layers * layer[name]
        if name == "shared":
            size += shape.vocabulary * shape.hidden / tensor
        one_layer = 2 * layer[name] if copies > 1 else 0
        by_hand += [2 * size / copies + one_layer, 4 * size / copies, 12 * size / shards]
    states = need[["parameters_bytes", "gradients_bytes", "optimizer_bytes"]].tolist()
    assert states == pytest.approx(by_hand.tolist(), rel=1e-9)


def test_gradients_of_ranks_that_share_sequences_are_summed():
    # By hand, one replica on two ranks: a ring sends every gradient of 4 bytes once and back.
    table = jobs(GPT, context=2, global_batch=8)
    (data_ns,) = analyze.assumed_model().predict(table)["data_ns"]
    attention = 2 * GPT.hidden * GPT.head_width * (GPT.heads + GPT.kv_heads)
    layer = attention + 2 * GPT.hidden * GPT.ffn + 2 * GPT.hidden
    held = GPT.layers * layer + GPT.vocabulary * GPT.hidden
    width = 0.4 * 1e9 * analyze.gpu_type("H100").node_gb_per_s
    assert data_ns / 1e9 == pytest.approx(2 * 4 * held / 2 / width, rel=1e-6)
