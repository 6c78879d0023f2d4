"""What `zoo` sets: small values by field name, and by model type where that does not do."""

from __future__ import annotations

from typing import Any

#: Numbers differ from each other wherever families allow it: a mix-up then has a wrong shape.
SMALL: dict[str, Any] = {
    # sizes
    "vocab_size": 64,
    "unpadded_vocab_size": 60,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "emb_dim"), 48),
    **dict.fromkeys(
        (
            "intermediate_size",
            "ffn_dim",
            "decoder_ffn_dim",
            "encoder_ffn_dim",
            "n_inner",
            "dff",
            "dim_ff",
            "ffn_hidden_size",
            "dense_intermediate_size",
            "d_inner",
        ),
        80,
    ),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), 28),
    **dict.fromkeys(
        (
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "shared_experts_intermediate_size",
            "intermediate_size_mlp",
        ),
        44,
    ),
    # heads
    **dict.fromkeys(
        (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "decoder_attention_heads",
            "encoder_attention_heads",
            "num_encoder_attention_heads",
            "num_decoder_attention_heads",
            "attention_heads",
        ),
        6,
    ),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "kv_n_heads"), 2),
    **dict.fromkeys(("head_dim", "dim_head", "kv_channels"), 12),
    # heads of sliding layers, where they have numbers of their own
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 10,
    "rotary_dim": 4,
    # latent attention
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "o_lora_rank": 18,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "qk_head_dim": 14,
    "v_head_dim": 11,
    "index_n_heads": 3,
    "index_head_dim": 8,
    "index_topk": 8,
    # layers
    **dict.fromkeys(
        (
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "encoder_layers",
            "decoder_layers",
            "num_encoder_layers",
            "num_decoder_layers",
        ),
        4,
    ),
    "first_k_dense_replace": 2,
    "num_dense_layers": 2,
    "max_window_layers": 2,
    "num_nextn_predict_layers": 0,
    # windows and positions
    **dict.fromkeys(
        (
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "max_seq_len",
            "context_length",
            "model_max_length",
            "max_target_positions",
        ),
        256,
    ),
    **dict.fromkeys(
        (
            "sliding_window",
            "sliding_window_size",
            "attention_window_size",
            "window_size",
            "local_attention",
            "attention_chunk_size",
        ),
        8,
    ),
    "use_sliding_window": True,
    # experts
    **dict.fromkeys(
        (
            "num_experts",
            "n_routed_experts",
            "num_local_experts",
            "moe_num_experts",
        ),
        4,
    ),
    **dict.fromkeys(
        ("num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
        2,
    ),
    **dict.fromkeys(("n_group", "num_expert_group", "topk_group"), 1),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    # recurrent layers
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 10,
    "linear_num_heads": 4,
    "linear_head_dim": 8,
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 24),
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 2),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size"), 8),
    **dict.fromkeys(("mamba_dt_rank", "time_step_rank"), 6),
    # biases
    **dict.fromkeys(
        (
            "attention_bias",
            "qkv_bias",
            "use_qkv_bias",
            "attention_out_bias",
            "use_bias",
            "mlp_bias",
            "bias",
            "mamba_proj_bias",
            "projectors_bias",
            "lm_head_bias",
            "norm_bias",
            "add_bias_linear",
            "conv_bias",
        ),
        True,
    ),
    # numbers that are 1 by default, and would not show when left out
    "embedding_multiplier": 1.5,
    "residual_multiplier": 0.8,
    "attention_multiplier": 0.3,
    "logits_scaling": 2.0,
    "key_multiplier": 0.9,
    "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.7,
    # tokens
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 3,
    "decoder_start_token_id": 1,
    # encoders turned decoders
    "is_decoder": True,
    # each layer's own embeddings
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 22,
}

SMALL_TOWER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "embed_dim", "output_proj_dims"), 16),
    **dict.fromkeys(("intermediate_size", "mlp_dim"), 24),
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "depth", "encoder_layers", "num_blocks"), 1
    ),
    **dict.fromkeys(("num_attention_heads", "num_heads", "encoder_attention_heads"), 2),
    **dict.fromkeys(
        ("ext_pw_out_channel", "depthwise_separable_out_channel", "nemo_conv_channels"), 16
    ),
    "num_key_value_heads": 2,
    "head_dim": 8,
    "image_size": 32,
    "crop_size": 32,
}

#: What keeps the numbers of Gemma 4's two kinds of layer apart, and shares keys and values.
_GEMMA4 = {
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "global_head_dim": 20,
}
_INKLING = {"d_rel": 6, "rel_extent": 16, "log_scaling_n_floor": 8}
_SLIDING_FULL = ["sliding_attention", "full_attention"] * 2
_DENSE_SPARSE = ["dense", "dense", "sparse", "sparse"]

OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "big_bird": {"attention_type": "original_full"},  # block sparse attention is never causal
    "blt": {
        "encoder_hash_byte_group_size": [3, 4],
        "encoder_hash_byte_group_vocab": 40,
        "local_attention_window_len": 8,
        "encoder_config": {"hidden_size_global": 60, "head_dim": 8},
        "decoder_config": {"hidden_size_global": 60, "head_dim": 8},
        "global_config": {"hidden_size": 60, "head_dim": 10},
    },
    "cohere": {"logit_scale": 0.5},
    "cohere2": {"logit_scale": 0.5},
    "cohere2_moe": {"logit_scale": 0.5, "mlp_layer_types": _DENSE_SPARSE},
    "cohere_compass_text": {
        "layer_types": _SLIDING_FULL,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    # Its values lie in four parts, each of whole heads in every published size.
    "codegen": {"n_head": 8},
    # It needs both, and sets neither.
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v4": {
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ]
        * 2,
        "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe", "moe", "moe"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "o_groups": 3,
        "partial_rotary_factor": 1 / 3,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    },
    "doge": {"keep_window_size": 8},
    "dory": {
        "initializer_range": 0.6,  # it divides by this: a small one sharpens every softmax
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_hidden_layers": 6,
        "n_input_layers": 2,
        "n_output_layers": 2,
    },
    "dots1": {"layer_types": _SLIDING_FULL},
    "dots3_note_text": {
        # Two kinds of latent attention, with numbers of their own.
        "per_layer_config": {
            i: {
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "kv_lora_rank": 18,
                "q_lora_rank": 22,
                "qk_nope_head_dim": 6,
                "v_head_dim": 9,
                "head_dim": 10,
            }
            for i in (1, 3)
        },
        "head_dim": 14,
    },
    "electra": {"embedding_size": 20},
    "ernie4_5_moe": {"moe_layer_start_index": 2, "moe_layer_end_index": 3},
    "falcon_h1": {"mamba_d_ssm": 96},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.9, 0.9, 0.0, 0.0, 0.0, 0.0],
        "laurel_rank": 14,
        "altup_num_inputs": 3,
    },
    "gemma4_text": _GEMMA4,
    "gemma4": {
        "text_config": _GEMMA4,
        "vision_config": {"position_embedding_size": 16},
        "audio_config": {},
    },
    "gemma4_unified_text": _GEMMA4,
    "gemma4_unified": {
        "text_config": _GEMMA4,
        "vision_config": {"mm_embed_dim": 16, "mm_posemb_size": 16, "output_proj_dims": 16},
        "audio_config": {},
    },
    "glm_moe_dsa": {"indexer_types": ["full", "shared"] * 2},
    "got_ocr2": {"text_config": {"head_dim": 12}, "vision_config": {"output_channels": 8}},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "helium": {"head_dim": 8},  # its output projection is hidden x hidden
    "hrm_text": {"num_hidden_layers": 2, "H_cycles": 2, "L_cycles": 2, "L_bp_cycles": [2]},
    "inkling_text": {
        **_INKLING,
        "logits_mup_width_multiplier": 2.0,
        "mlp_layer_types": _DENSE_SPARSE,
    },
    "inkling2_text": {**_INKLING, "n_layers_per_attn_res_block": 2},
    "inkling2_loop_text": {
        **_INKLING,
        "n_layers_per_attn_res_block": 2,
        "loop_layer_index_start": 2,
        "loop_layer_index_end": 4,
        "loop_gate_rank": 14,
    },
    "jamba": {
        "num_hidden_layers": 6,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 3,
        "expert_layer_offset": 1,
    },
    "laguna": {
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "num_attention_heads_per_layer": [6, 8, 6, 8],
    },
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "llama4": {"text_config": {"interleave_moe_layer_step": 2}},
    "llama4_text": {"interleave_moe_layer_step": 2},
    "longcat_flash": {"head_dim": 4, "zero_expert_num": 2},  # heads' width: of the rotary part
    "mamba2": {"num_heads": 4, "head_dim": 24},
    "mellum": {
        "layer_types": _SLIDING_FULL,
        "mlp_layer_types": _DENSE_SPARSE,
    },
    "mimo_v2_flash": {"num_attention_heads": 8},  # sliding layers double the key-value heads
    # As published: with the default of 1 rounding grows ten times as far.
    "minimax": dict.fromkeys(
        ("full_attn_alpha_factor", "linear_attn_alpha_factor", "mlp_alpha_factor"), 3.5565588
    ),
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
        "mlp_layer_types": _DENSE_SPARSE,
        "index_n_heads": 2,
        "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "ministral": {"layer_types": _SLIDING_FULL},
    "mllama": {"text_config": {"cross_attention_layers": [1, 3]}},
    "mpt": {"no_bias": False},
    "opt": {"word_embed_proj_dim": 20},
    "phi4_multimodal": {
        "vision_config": {"num_hidden_layers": 2},
        "audio_config": {"left_chunk": 2, "bias_max_distance": 8},
    },
    "qwen2_moe": {"mlp_only_layers": [0, 1], "layer_types": _SLIDING_FULL},
    "qwen3_moe": {"mlp_only_layers": [0, 1]},
    "qwen3_next": {"mlp_only_layers": [0, 1]},
    "qwen4_exp_text": {
        "indexer_n_heads": 3,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "hc_count": 2,
        "hc_lowrank": 14,
        "ple_layer_ids": [1, 3],
        "ple_embed_dim": 32,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 50,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 2,
    },
    "recurrent_gemma": {"num_hidden_layers": 6, "lru_width": 54},
    "reformer": {
        "attn_layers": ["local", "lsh"] * 2,
        "attention_head_size": 12,
        "axial_pos_embds": False,
        "feed_forward_size": 80,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
        "hash_seed": 0,
    },
    "rembert": {"input_embedding_size": 20, "output_embedding_size": 30},
    "roc_bert": {
        "pronunciation_embed_dim": 12,
        "pronunciation_vocab_size": 64,
        "shape_embed_dim": 10,
        "shape_vocab_size": 64,
    },
    "smollm3": {"no_rope_layer_interval": 2},
    "xlm": {"causal": True},
    "xlnet": {"attn_type": "uni"},
    "xmod": {"default_language": "en_XX"},
    # With a padding token, loading zeroes that token's row of the embeddings after it is read.
    "youtu": {"pad_token_id": None},
    "zaya": {
        "num_experts_per_tok": 1,
        "layer_types": ["hybrid", "hybrid_sliding"] * 2,
        "router_hidden_size": 14,
    },
}
OVERRIDES["dots3_note"] = {
    "text_config": OVERRIDES["dots3_note_text"],
    "vision_config": {
        "adapter_in_dim": 16,
        "adapter_out_dim": 48,
        "moe_intermediate_size": 8,
        "mlp_layer_types": ["dense"],
    },
    "audio_config": {"adapter_input_size": 16, "adapter_out_dim": 48, "downsample_hidden_size": 8},
}
OVERRIDES["qwen4_exp"] = {"text_config": OVERRIDES["qwen4_exp_text"]}

#: Families that heed `head_dim`, though their configs do not declare it.
WIDE_HEADS = frozenset(
    """
    apertus apertus1p5_text bamba cohere cohere2 cohere_compass_text doge dots1 ernie4_5_moe
    exaone4 exaone_moe falcon_h1 flex_olmo glm4_moe granite granite_swa granitemoe
    granitemoe_swa granitemoehybrid granitemoeshared jamba lfm2 lfm2_moe nanochat olmo olmo2
    olmo3 olmo_hybrid phi phi3 phi4_multimodal phimoe qwen2 qwen2_moe qwen3_moe recurrent_gemma
    smollm3 starcoder2
    """.split()  # noqa: SIM905 - a list would take forty lines
)

#: Other styles of a family: name to model type and overrides.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere (qk norm)": ("cohere", {"use_qk_norm": True}),
    "doge (moe)": ("doge", {"is_moe": True}),
    "falcon (new decoder)": ("falcon", {"new_decoder_architecture": True}),
    "falcon (alibi)": (
        "falcon",
        {"alibi": True, "multi_query": False, "parallel_attn": False, "num_kv_heads": 6},
    ),
    "gemma4_text (k = v, moe)": (
        "gemma4_text",
        {"attention_k_eq_v": True, "num_global_key_value_heads": 3, "enable_moe_block": True},
    ),
    "gpt_bigcode (multi head)": ("gpt_bigcode", {"multi_query": False}),
    "llama (no bias)": ("llama", {"attention_bias": False, "mlp_bias": False}),
    "mistral (full)": ("mistral", {"sliding_window": None}),
    "phi (qk norm)": ("phi", {"qk_layernorm": True, "head_dim": 8}),
    "phi3 (full)": ("phi3", {"sliding_window": None}),
    "qwen2 (full)": ("qwen2", {"use_sliding_window": False}),
    "stablelm (parallel, qk norm)": (
        "stablelm",
        {"use_parallel_residual": True, "qk_layernorm": True},
    ),
}

_ASSISTANT = "takes another model's hidden states, keys and values, not tokens"
_CODEBOOKS = "reads audio codes, and from_config hands its decoder the config of the whole model"
#: Entries that the installed transformers cannot build, or not run on text.
NOT_BUILT: dict[str, str] = {
    "gemma3n": "its vision tower needs timm; gemma3n_text has the same decoder",
    "gemma4_assistant": _ASSISTANT,
    "gemma4_unified_assistant": _ASSISTANT,
    "musicgen": _CODEBOOKS,
    "musicgen_melody": _CODEBOOKS,
}
