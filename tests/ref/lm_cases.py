"""Shapes of the fixtures: config.json, which tensors are MXFP4 or F32 in the file, seed, prompt length."""

import copy
import re

import torch

import lm_checkpoint as ck

QUANTIZATION = {
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "config_groups": {"group_0": {
        "format": "mxfp4-pack-quantized", "targets": ["Linear"], "input_activations": None, "output_activations": None,
        "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                    "dynamic": False, "scale_dtype": "torch.uint8", "observer": "minmax"}}},
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
               "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"],
}
TEXT = {  # Appendix B of kimi-k3.md
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "vocab_size": 256, "hidden_size": 64,
    "num_hidden_layers": 6, "rms_norm_eps": 1e-5, "hidden_act": "situ", "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0, "attn_res_block_size": 2, "intermediate_size": 96, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 2,
    "moe_intermediate_size": 32, "routed_expert_hidden_size": 32, "latent_moe_use_norm": True,
    "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 1.0,
    "use_grouped_topk": True, "topk_method": "noaux_tc", "num_expert_group": 1, "topk_group": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "mla_use_nope": True, "mla_use_output_gate": True,
    "linear_attn_config": {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                           "use_full_rank_gate": True, "full_attn_layers": [4, 6], "kda_layers": [1, 2, 3, 5]},
    "max_position_embeddings": 4096, "num_nextn_predict_layers": 0, "initializer_range": 0.02, "use_cache": True,
    "tie_word_embeddings": False, "dtype": "bfloat16", "bos_token_id": 250, "eos_token_id": 251, "pad_token_id": 255,
}
EXPERTS = r"\.experts\.\d+\."
NOTHING = r"(?!)"
# Appendix B: eps shows in L2 norms, KDA output norm, both MLA latent norms and the norm of the expert sum.
SMALL = [
    (r"layers\.1\.self_attn\.q_conv1d", 0, 16, 1e-3), (r"layers\.2\.self_attn\.k_conv1d", 16, 32, 1e-3),
    (r"layers\.4\.self_attn\.v_conv1d", 0, None, 3e-3), (r"layers\.3\.self_attn\.q_a_proj", 0, None, 2e-3),
    (r"layers\.5\.self_attn\.kv_a_proj", 0, 32, 2e-3), (r"layers\.2\..*\.experts\.\d+\.w2", 0, None, 6e-3),
]


def padded(extra):
    return lambda a: torch.cat([a, torch.zeros(extra)])


def generation(text):
    return {"max_length": text["max_position_embeddings"], "eos_token_id": text["eos_token_id"]}


def k3(seed, tokens, text=None, kda=None, packed=EXPERTS, **more):
    t = copy.deepcopy(TEXT)
    t.update(text or {})
    t["linear_attn_config"].update(kda or {})
    if packed != NOTHING:
        t["quantization_config"] = QUANTIZATION
    config = {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16",
        "bos_token_id": t["bos_token_id"], "eos_token_id": t["eos_token_id"], "pad_token_id": t["pad_token_id"],
        "media_placeholder_token_id": t["pad_token_id"] - 1, "image_placeholder": "<|kimi_image_placeholder|>",
        "ignore_index": -100, "tie_word_embeddings": False, "text_config": t,
    }
    return {"config": config, "generation": generation(t), "prefix": "language_model.", "packed": packed,
            "f32": ck.F32_TENSORS, "a_log": padded(2), "small": SMALL, "seed": seed, "tokens": tokens, **more}


def linear(seed, tokens, text=None, **more):
    """Kimi-Linear: no prefix, plain residual, softplus decay, low-rank gate, one q_proj, experts on the full width."""
    t = copy.deepcopy(TEXT)
    for n in ("activation_situ_beta", "activation_situ_linear_beta", "attn_res_block_size",
              "routed_expert_hidden_size", "latent_moe_use_norm", "mla_use_output_gate"):
        del t[n]
    lin = t["linear_attn_config"]
    del lin["gate_lower_bound"], lin["use_full_rank_gate"]
    lin.update(full_attn_layers=[2, 4], kda_layers=[1, 3], num_heads=4)
    t.update(hidden_act="silu", q_lora_rank=None, num_hidden_layers=4, num_shared_experts=1, moe_intermediate_size=24,
             routed_scaling_factor=2.446)
    t.update(text or {})
    return {"config": t, "generation": generation(t), "prefix": "",
            "packed": NOTHING, "f32": r"A_log|dt_bias|e_score", "a_log": lambda a: a.view(1, 1, -1, 1),
            "small": SMALL_LINEAR, "seed": seed, "tokens": tokens, **more}


SMALL_LINEAR = [
    (r"layers\.0\.self_attn\.q_conv1d", 0, 16, 1e-3), (r"layers\.2\.self_attn\.k_conv1d", 16, 32, 1e-3),
    (r"layers\.2\.self_attn\.v_conv1d", 0, None, 3e-3), (r"layers\.3\.self_attn\.kv_a_proj", 0, 32, 2e-3),
]
SHORT = {"num_hidden_layers": 4}
SHORT_KDA = {"full_attn_layers": [2, 4], "kda_layers": [1, 3]}
SMALL_SHORT = [
    (r"layers\.0\.self_attn\.q_conv1d", 0, 16, 1e-3), (r"layers\.2\.self_attn\.k_conv1d", 16, 32, 1e-3),
    (r"layers\.2\.self_attn\.v_conv1d", 0, None, 3e-3), (r"layers\.1\.self_attn\.q_a_proj", 0, None, 2e-3),
    (r"layers\.3\.self_attn\.kv_a_proj", 0, 32, 2e-3), (r"layers\.2\..*\.experts\.\d+\.w2", 0, None, 6e-3),
]
SMALL_ODD = [
    (r"layers\.1\.self_attn\.q_conv1d", 0, 20, 1e-3), (r"layers\.2\.self_attn\.k_conv1d", 20, 40, 1e-3),
    (r"layers\.4\.self_attn\.v_conv1d", 0, None, 3e-3), (r"layers\.5\.self_attn\.q_a_proj", 0, None, 2e-3),
    (r"layers\.6\.self_attn\.kv_a_proj", 0, 40, 2e-3), (r"layers\.2\..*\.experts\.\d+\.w2", 0, None, 6e-3),
]
# Every matrix of a Linear but the router and the AttnRes vectors.
ALL_LINEAR = r"(proj|lm_head|mqa|experts\.\d+\.w\d)\.weight$(?<!res_proj\.weight)"

CASES = {
    # Appendix B: MXFP4 experts back to back; three shards, experts' tensors apart; four layers, BF16 experts.
    "k3_b1": k3(1, 24),
    "k3_b2": k3(2, 21, order="scattered", shards=3),
    "k3_b3": k3(3, 14, {**SHORT, "num_shared_experts": 1, "moe_intermediate_size": 20}, SHORT_KDA, packed=NOTHING,
                small=SMALL_SHORT),
    # Sizes that are not powers of two and not equal to each other; the last two layers MLA; store at 0, 3, 6.
    "k3_odd": k3(4, 21, {
        "vocab_size": 300, "hidden_size": 56, "num_hidden_layers": 7, "attn_res_block_size": 3, "intermediate_size": 76,
        "num_experts": 12, "num_experts_per_token": 3, "num_shared_experts": 1, "moe_intermediate_size": 32,
        "routed_expert_hidden_size": 64, "num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": 28,
        "kv_lora_rank": 40, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 24,
        "eos_token_id": [290, 291], "bos_token_id": 289, "pad_token_id": 299,
    }, {"num_heads": 3, "head_dim": 20, "full_attn_layers": [4, 6, 7], "kda_layers": [1, 2, 3, 5]},
        a_log=padded(13), small=SMALL_ODD),
    # Image rows first, in the middle and last.
    "k3_image": k3(5, 26, SHORT, SHORT_KDA, images=[(0, 5), (9, 4), (22, 4)], small=SMALL_SHORT),
    # MXFP4 on every Linear.
    "k3_mxfp4": k3(6, 19, SHORT, {**SHORT_KDA, "head_dim": 32}, packed=ALL_LINEAR, small=SMALL_SHORT),
    # Everything F32 in the file, and the switches that K3 leaves alone: no gate on MLA, low-rank gate on KDA, no cap on
    # up, softmax router without renormalisation, scaling, no latent norm, MoE in layers 0 and 2 only, a store in every
    # layer.
    "k3_switch": k3(7, 21, {
        **SHORT, "mla_use_output_gate": False, "activation_situ_linear_beta": None,
        "moe_router_activation_func": "softmax", "moe_renormalize": False, "routed_scaling_factor": 2.5,
        "latent_moe_use_norm": False, "num_experts": 6,
        "num_experts_per_token": 3, "num_shared_experts": 1, "moe_intermediate_size": 16,
        "routed_expert_hidden_size": 24,
        "first_k_dense_replace": 0, "moe_layer_freq": 2, "attn_res_block_size": 1,
    }, {**SHORT_KDA, "use_full_rank_gate": False}, packed=NOTHING, f32="", small=SMALL_SHORT[:-1]),
    # Kimi-Linear, without groups and with four of which two stay.
    "linear_1": linear(8, 30),
    "linear_group": linear(9, 22, {"num_expert_group": 4, "topk_group": 2, "num_experts": 16,
                                "num_experts_per_token": 3, "moe_intermediate_size": 12}),
}
