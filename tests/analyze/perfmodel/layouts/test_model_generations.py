"""Shapes of published models: parameters tensor by tensor, windows token by token."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._closed_form import model_flops
from workbench import analyze
from workbench.analyze import Layout, ModelShape, model_shape
from workbench.errors import PerformanceModelError

MAVERICK = model_shape("Llama 4 Maverick")
DEEPSEEK = model_shape("DeepSeek V3")
MIXTURES = [MAVERICK, DEEPSEEK, model_shape("Llama 4 Scout"), model_shape("Kimi K2")]


def tensors(shape: ModelShape, *, met: bool = False) -> int:
    """Count a model tensor by tensor and layer by layer, as a checkpoint lists them."""
    h, total = shape.hidden, 0
    wide, rotary = shape.head_width, shape.rotary_width
    for layer in range(1, shape.layers + 1):
        if shape.latent_rank:
            total += h * shape.query_rank + shape.query_rank * shape.heads * (wide + rotary)
            total += h * (shape.latent_rank + rotary)
            total += shape.latent_rank * shape.heads * wide
            total += shape.latent_rank * shape.heads * (shape.value_width or wide)
            total += shape.heads * (shape.value_width or wide) * h
        else:
            total += h * shape.heads * wide * 2 + h * shape.kv_heads * wide * 2
        total += h + h
        matrices = 3 if shape.gated else 2
        after = layer - shape.dense_first
        if shape.experts > 1 and after > 0 and after % shape.moe_every == 0:
            blocks = (shape.routed if met else shape.experts) + shape.shared
            total += blocks * matrices * h * shape.ffn + shape.experts * h
        else:
            total += matrices * h * (shape.dense_ffn or shape.ffn)
    return total + (1 if shape.tied else 2) * shape.vocabulary * h + h


@pytest.mark.parametrize("name", ["Llama 2 70B", "Llama 4 Scout", "Llama 4 Maverick", "DeepSeek V2",
                                  "DeepSeek V3", "Kimi K2", "Gemma 3 27B", "GPT-3 175B"])  # fmt: skip
def test_parameters_are_those_of_the_tensors(name):
    shape = model_shape(name)
    assert shape.parameter_count == tensors(shape)
    assert shape.active_parameter_count == tensors(shape, met=True)


def test_experts_in_every_second_layer_are_not_counted_in_all():
    naive = ModelShape(
        48, 5120, 40, 8192, 8, 128, 202_048, gated=True, tied=False, experts=128, routed=1
    )
    assert MAVERICK.parameter_count == pytest.approx(400.712e9, abs=1e6)
    assert naive.parameter_count > 1.9 * MAVERICK.parameter_count


shapes = st.builds(
    ModelShape,
    layers=st.integers(4, 40), hidden=st.sampled_from([512, 2048]), heads=st.just(16),
    ffn=st.sampled_from([256, 1024]), experts=st.sampled_from([4, 16]), routed=st.integers(1, 4),
    shared=st.integers(0, 2), moe_every=st.integers(1, 4), dense_ffn=st.sampled_from([512, 4096]),
    window=st.sampled_from([0, 64, 300]), next_tokens=st.integers(0, 2),
)  # fmt: skip


@given(shapes)
def test_parameters_of_any_mixture_are_those_of_its_tensors(shape):
    assert replace(shape, next_tokens=0).parameter_count == tensors(replace(shape, next_tokens=0))
    assert shape.active_parameter_count <= shape.parameter_count


def flops(shape: ModelShape, sequence: int = 1024, *, causal: bool = True) -> float:
    layout = Layout(sequence=sequence, flash_attention=True)
    table = model_flops(analyze.configurations(shape, layout), causal=causal)
    return float(table["model_flops_count"].iloc[0])


@given(
    window=st.integers(1, 700), sequence=st.integers(1, 600), chunked=st.booleans(),
    every=st.integers(0, 5), layers=st.integers(1, 12),
)  # fmt: skip
def test_windows_leave_the_tokens_that_counting_leaves(window, sequence, chunked, every, layers):
    shape = ModelShape(layers, 256, 4, window=window, full_every=every, chunked=chunked)
    first = np.arange(sequence)
    windowed = (first % window + 0.5) if chunked else np.minimum(first + 0.5, window)
    full = sum(1 for layer in range(1, layers + 1) if every and layer % every == 0)
    # The closed form cuts the edge of the mask in halves: a query sees its own token half.
    seen = full * (first + 0.5).sum() + (layers - full) * windowed.sum()
    whole = flops(replace(shape, window=0, full_every=0, chunked=False), sequence)
    scores = layers * 12 * 256 * (first + 0.5).sum()
    expected = whole - scores + 12 * 256 * seen
    assert flops(shape, sequence) == pytest.approx(expected, rel=1e-6)


def test_a_window_wider_than_the_sequence_is_none():
    plain = model_shape("Qwen 3 32B")
    assert flops(replace(plain, window=4096), 1024) == flops(plain, 1024)


@pytest.mark.parametrize("shape", MIXTURES, ids=lambda shape: shape.name)
def test_more_model_is_never_faster_smaller_or_less_work(shape):
    layout = Layout(data=8, expert=8, global_batch=64, sharding="zero1", flash_attention=True)
    grown = [
        replace(shape, shared=shape.shared + 1),
        replace(shape, next_tokens=shape.next_tokens + 1),
        replace(shape, window=0, full_every=0, chunked=False),
    ]
    for larger in grown[:2]:
        jobs = analyze.configurations(larger, layout), analyze.configurations(shape, layout)
        more, less = (analyze.assumed_model().predict(job).iloc[0] for job in jobs)
        assert more["dur_ns"] > less["dur_ns"]
        assert more["memory_bytes"] > less["memory_bytes"]
        assert flops(larger) > flops(shape)
    assert flops(grown[2], 65_536) >= flops(shape, 65_536)


def test_a_dense_layer_between_is_neither_exchanged_nor_routed():
    """Half of Maverick's layers have no experts: half of the exchanges of Maverick with 24."""
    layout = Layout(data=8, expert=8, global_batch=64, flash_attention=True)
    every, second = replace(MAVERICK, moe_every=1, layers=24), MAVERICK
    jobs = (analyze.configurations(shape, layout) for shape in (every, second))
    first, other = (analyze.assumed_model().predict(job).iloc[0] for job in jobs)
    assert first["expert_ns"] == other["expert_ns"] > 0
    assert other["compute_ns"] > first["compute_ns"]


def test_keys_and_values_are_kept_as_long_as_a_layer_sees_them():
    assert model_shape("Llama 2 7B").kv_cache_bytes(1) == 512 * 1024
    assert model_shape("Llama 3 405B").kv_cache_bytes(1) == 504 * 1024
    scout = model_shape("Llama 4 Scout")
    # 12 of 48 layers see everything, 36 no more than 8,192 tokens.
    per_layer = 2 * 8 * 128 * 2
    assert scout.kv_cache_bytes(1_000_000) == per_layer * (12 * 1_000_000 + 36 * 8_192)
    assert DEEPSEEK.kv_cache_bytes(1) == 61 * (512 + 64) * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shared": 1}, "need experts"),
        ({"moe_every": 2}, "need experts"),
        ({"full_every": 4}, "need a window"),
        ({"query_rank": 64}, "need latent_rank"),
        ({"latent_rank": 64, "kv_heads": 2}, "not 2"),
        ({"experts": 8, "dense_first": 4}, "leave none"),
        ({"window": -1}, "from 0, not -1"),
        ({"experts": 8, "moe_every": 0}, "from 1, not 0"),
        ({"window": True}, "not True"),
    ],
)
def test_shapes_that_contradict_themselves_are_refused(change, words):
    with pytest.raises(PerformanceModelError, match=words):
        ModelShape(4, 256, 4, **change)


# Keys as released; values of numbers only, which are facts.
CONFIGS = {
    "DeepSeek V3 with MTP": """{"model_type": "deepseek_v3", "num_hidden_layers": 61,
        "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
        "vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "first_k_dense_replace": 3, "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "num_nextn_predict_layers": 1, "tie_word_embeddings": false}""",
    "Llama 4 Maverick": """{"model_type": "llama4", "tie_word_embeddings": false, "text_config": {
        "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "head_dim": 128,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 202048,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 128,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192}}""",
    "Qwen 3 30B-A3B": """{"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "use_sliding_window": false, "sliding_window": null, "tie_word_embeddings": false}""",
    "Gemma 3 27B": """{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
        "num_hidden_layers": 62, "hidden_size": 5376, "intermediate_size": 21504, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 16, "vocab_size": 262208,
        "sliding_window": 1024}}""",
    "Llama 3 8B": """{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "tie_word_embeddings": false}""",
    "GPT OSS 120B": """{"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880,
        "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 201088, "num_local_experts": 128, "experts_per_token": 4,
        "sliding_window": 128, "tie_word_embeddings": false, "layer_types": [LAYERS]}""",
}
ALTERNATING = '"sliding_attention", "full_attention", ' * 18
CONFIGS["GPT OSS 120B"] = CONFIGS["GPT OSS 120B"].replace("LAYERS", ALTERNATING.rstrip(", "))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_the_shape_of_the_model(name):
    shape, known = model_shape(json.loads(CONFIGS[name])), model_shape(name)
    assert shape.parameter_count == known.parameter_count
    assert shape.active_parameter_count == known.active_parameter_count
    assert flops(shape, 16_384) == flops(known, 16_384)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "nemotron_h"}, "'nemotron_h' is none whose layers"),
        ({"hidden_size": None}, "needs hidden_size"),
        ({"mlp_only_layers": [0, 1]}, r"mlp_only_layers is \[0, 1\]"),
        ({"sliding_window": 64, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
         "layer_types says"),
    ],
)  # fmt: skip
def test_a_config_that_no_field_expresses_is_refused(change, words):
    config = json.loads(CONFIGS["Llama 3 8B"]) | {"model_type": "mistral"} | change
    with pytest.raises(PerformanceModelError, match=words):
        model_shape(config)


def test_training_runs_come_to_what_their_cards_print():
    runs = analyze.training_runs().set_index("model")
    # 6 N D over GPU-seconds, by hand.
    by_hand = 6 * 405_853_339_648 * 15.6e12 / (30.84e6 * 3600) / 1e12
    assert runs.loc["Llama 3 405B", "tflops_per_gpu"] == pytest.approx(by_hand)
    assert runs.loc["Llama 2 70B", "peak_share"] == pytest.approx(0.428, abs=5e-4)
    llama_2 = runs.filter(like="Llama 2", axis=0)["gpu_time_h"].sum()
    assert llama_2 == 2_273_280  # not the 3,311,616 of the card, which has a 34B model, too
    # Active parameters: all of Maverick's would come to more than six times the peak share.
    assert runs.loc["Llama 4 Maverick", "peak_share"] == pytest.approx(0.268, abs=5e-4)


@pytest.mark.parametrize("gpu", ["B200", "MI355X FP8", "TPU v5p", "H800", "L40S FP8", "MI325X"])
@pytest.mark.parametrize("name", ["DeepSeek V3", "Llama 4 Scout", "Gemma 3 27B", "Mixtral 8x22B"])
def test_every_model_is_planned_on_every_gpu(name, gpu):
    shape = model_shape(name)
    like = Layout(sharding="fsdp", global_batch=1024, sequence=4096, flash_attention=True)
    vary = ["expert"] if shape.experts > 1 else []
    plan = analyze.parallelism_plan(
        shape, 512, model=analyze.assumed_model(), like=like, gpu=gpu, vary=vary
    )
    assert plan["is_best"].sum() == plan["fits"].any()
    assert (plan["mfu_share"] < 0.75).all()
    assert ("none of them ran" in plan["error_class"].iloc[0]) == (gpu != "B200")
