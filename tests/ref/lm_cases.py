"""The shapes of the fixtures. Each case: config.json, which tensors are MXFP4 / F32 in the file, seed, prompt length."""

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
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
               "re:.*vision_tower.*", "re:.*mm_projector.*"],
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
    return {"config": config, "generation": {"max_length": 4096, "eos_token_id": t["eos_token_id"]}, "prefix": "language_model.",
            "packed": packed, "f32": ck.F32_TENSORS, "a_log": padded(2), "small": SMALL, "seed": seed, "tokens": tokens, **more}


CASES = {
    "k3_b1": k3(1, 24),
}
