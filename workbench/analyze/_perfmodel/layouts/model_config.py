"""Shapes from the ``config.json`` that models are released with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.analyze._perfmodel.layouts.model_shape import ModelShape
from workbench.errors import PerformanceModelError

# Fields of a shape, and the keys that may hold them; the first one that is there counts.
_PLAIN = {
    "layers": ("num_hidden_layers",), "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",), "kv_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",), "ffn": ("intermediate_size",), "vocabulary": ("vocab_size",),
}  # fmt: skip
_LOCAL = {"experts": ("num_local_experts",), "routed": ("num_experts_per_tok", "experts_per_token")}
_LATENT = {
    "experts": ("n_routed_experts",), "routed": ("num_experts_per_tok",),
    "ffn": ("moe_intermediate_size",), "dense_ffn": ("intermediate_size",),
    "shared": ("n_shared_experts",), "dense_first": ("first_k_dense_replace",),
    "moe_every": ("moe_layer_freq",), "query_rank": ("q_lora_rank",),
    "latent_rank": ("kv_lora_rank",), "head_width": ("qk_nope_head_dim",),
    "rotary_width": ("qk_rope_head_dim",), "value_width": ("v_head_dim",),
    "next_tokens": ("num_nextn_predict_layers",),
}  # fmt: skip
_SLIDING = {"window": ("sliding_window",)}
# What each kind of model has besides, and fields that its config.json does not state.
_KINDS: dict[str, tuple[Mapping[str, tuple[str, ...]], Mapping[str, Any]]] = {
    "llama": ({}, {}),
    "mistral": (_SLIDING, {}),
    "mixtral": (_LOCAL | _SLIDING, {}),
    "qwen2": ({}, {}),
    "qwen3": ({}, {}),
    "qwen3_moe": (
        {"experts": ("num_experts",), "routed": ("num_experts_per_tok",),
         "ffn": ("moe_intermediate_size",), "dense_ffn": ("intermediate_size",),
         "moe_every": ("decoder_sparse_step",)}, {},
    ),
    "gemma2": (_SLIDING, {"full_every": 2, "tied": True}),
    "gemma3_text": (
        _SLIDING | {"full_every": ("sliding_window_pattern",)}, {"full_every": 6, "tied": True},
    ),
    "gpt_oss": (_LOCAL | _SLIDING, {"full_every": 2}),
    "llama4_text": (
        _LOCAL | {"dense_ffn": ("intermediate_size_mlp",), "window": ("attention_chunk_size",),
                  "moe_every": ("interleave_moe_layer_step",)},
        {"shared": 1, "full_every": 4, "chunked": True},
    ),
    "deepseek_v2": (_LATENT, {}),
    "deepseek_v3": (_LATENT, {}),
    "kimi_k2": (_LATENT, {}),
}  # fmt: skip
# Keys that would change the shape in a way its fields cannot tell, unless they hold one of these.
_EXPECTED: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (None, False), "mlp_only_layers": (None, []), "num_dense_layers": (None,),
    "is_encoder_decoder": (None, False), "layers_block_type": (None,), "mamba_d_state": (None,),
}  # fmt: skip


_OF_EXPERTS = ("experts", "routed", "shared", "moe_every", "dense_first", "dense_ffn")
_NEEDED = {"layers", "hidden", "heads", "vocabulary", "experts", "routed"}


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """Read a shape from the content of a ``config.json``; refuse what no field expresses."""
    config = dict(config)
    # Models that see and read keep the shape of their text model inside.
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {"tie_word_embeddings": config.get("tie_word_embeddings"), **inner}
    kind = str(config.get("model_type"))
    if kind not in _KINDS:
        msg = f"model_type {kind!r} is none whose layers a ModelShape is known to express; these "
        msg += f"are: {sorted(_KINDS)}. Make a ModelShape(...) yourself"
        raise PerformanceModelError(msg)
    for key, allowed in _EXPECTED.items():
        if config.get(key) not in allowed:
            msg = f"{key} is {config[key]!r}, which a ModelShape cannot express; it can if it is "
            raise PerformanceModelError(msg + " or ".join(map(repr, allowed)))
    fields = _fields(config, kind)
    if fields.get("experts", 1) in (0, 1):
        fields = {key: value for key, value in fields.items() if key not in _OF_EXPERTS}
    tied = config.get("tie_word_embeddings")
    fields["tied"] = fields.get("tied", False) if tied is None else bool(tied)
    fields |= _windows(config, fields)
    return ModelShape(**fields, name=str(config.get("_name_or_path") or kind))


def _fields(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    keys, told = _KINDS[kind]
    fields: dict[str, Any] = {"gated": True, **told}
    for field, names in {**_PLAIN, **keys}.items():
        value = next((config[key] for key in names if config.get(key) is not None), None)
        if value is not None:
            fields[field] = value
        elif field in _NEEDED:
            msg = f"the config of a {kind} model needs {' or '.join(names)}; it has {list(config)}"
            raise PerformanceModelError(msg)
    return fields


def _windows(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers look at all tokens; ``layer_types`` says so layer by layer where it is there."""
    none = {"window": 0, "full_every": 0, "chunked": False}
    if not fields.get("window"):
        return none
    types = config.get("layer_types")
    if not types:
        return {}
    full = [number for number, kind in enumerate(types, 1) if kind == "full_attention"]
    if len(full) == len(types):
        return none
    every = full[0] if full else 0
    if set(types) - {"full_attention", "sliding_attention", "chunked_attention"} or full != [
        number for number in range(1, len(types) + 1) if every and number % every == 0
    ]:
        msg = "layer_types says which layers attend to all tokens in a pattern that a ModelShape "
        raise PerformanceModelError(msg + f"cannot express: {', '.join(map(str, types))}"[:300])
    return {"full_every": every}
