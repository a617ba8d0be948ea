"""The Hugging Face layout of a model: written (a finished model) and read (to go on from one, or to check it).

    checkpoint.py TRAINING.pt FOLDER    exports what train.py saved
"""

import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file

import microscaling
from model import Config, Demo
from processor import PATCH, PATCH_LIMIT, SIDE_LIMIT
from tokens import Tokenizer

F32 = ("A_log", "dt_bias", "conv1d.weight", "o_norm.weight", "e_score_correction_bias")
EXPERT = ("w1", "w2", "w3")


def tensors(model):
    """{name: tensor} as the file holds them: BF16, some F32, experts in MXFP4."""
    out = {}
    for name, t in model.state_dict().items():
        t = t.detach().cpu()
        if name.startswith("auxiliary."):
            continue
        stem, _, last = name.rpartition(".")
        if stem.endswith(".experts") and last in EXPERT:
            for e, matrix in enumerate(t):
                packed, scale = microscaling.pack(matrix)
                out[f"{stem}.{e}.{last}.weight_packed"], out[f"{stem}.{e}.{last}.weight_scale"] = packed, scale
        elif name.endswith(F32):
            # The published files pad A_log to the width of a head with zeros.
            padded = torch.zeros(model.c.head) if last == "A_log" else None
            if padded is not None:
                padded[:len(t)] = t
            out[name] = t.float() if padded is None else padded
        else:
            out[name] = t.bfloat16()
    return {n: t.contiguous() for n, t in out.items()}


def config_json(c, tok):
    s = tok.special
    ids = {"bos_token_id": s["[BOS]"], "eos_token_id": s["<|end_of_msg|>"], "pad_token_id": s["[PAD]"]}
    full = [n + 1 for n in c.full]
    weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": microscaling.GROUP, "symmetric": True,
               "dynamic": False, "scale_dtype": "torch.uint8", "observer": "minmax"}
    group = {"format": "mxfp4-pack-quantized", "targets": ["Linear"], "input_activations": None,
             "output_activations": None, "weights": weights}
    text = {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "vocab_size": c.vocab,
        "hidden_size": c.hidden, "num_hidden_layers": c.layers, "rms_norm_eps": c.eps, "hidden_act": "situ",
        "activation_situ_beta": c.beta, "activation_situ_linear_beta": c.linear_beta,
        "attn_res_block_size": c.residual_block, "intermediate_size": c.dense, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "num_experts": c.experts, "num_experts_per_token": c.top, "num_shared_experts": c.shared,
        "moe_intermediate_size": c.expert, "routed_expert_hidden_size": c.latent, "latent_moe_use_norm": True,
        "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 1.0,
        "use_grouped_topk": True, "topk_method": "noaux_tc", "num_expert_group": 1, "topk_group": 1,
        "num_attention_heads": c.heads, "num_key_value_heads": c.heads, "q_lora_rank": c.q_rank,
        "kv_lora_rank": c.kv_rank, "qk_nope_head_dim": c.nope, "qk_rope_head_dim": c.rope, "v_head_dim": c.value,
        "mla_use_nope": True, "mla_use_output_gate": True,
        "linear_attn_config": {
            "num_heads": c.heads, "head_dim": c.head, "short_conv_kernel_size": c.kernel,
            "gate_lower_bound": c.gate_bound, "use_full_rank_gate": True, "full_attn_layers": full,
            "kda_layers": [n for n in range(1, c.layers + 1) if n not in full]},
        "max_position_embeddings": 4096, "num_nextn_predict_layers": 0, "initializer_range": 0.02, "use_cache": True,
        "tie_word_embeddings": False, "dtype": "bfloat16", **ids,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
            "kv_cache_scheme": None, "config_groups": {"group_0": group},
            "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
                       "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"]},
    }
    vision = {
        "vt_hidden_size": c.tower, "qkv_hidden_size": c.tower, "vt_num_attention_heads": c.tower_heads,
        "vt_num_hidden_layers": c.tower_layers, "vt_intermediate_size": c.tower_mlp, "norm_type": "rmsnorm",
        "mlp_type": "mlp2", "activation_func": "gelu_pytorch_tanh", "attn_bias": False, "linear_bias": False,
        "patch_embed_proj_bias": False, "projector_hidden_act": "gelu", "patch_size": PATCH,
        "init_pos_emb_height": c.table, "init_pos_emb_width": c.table, "init_pos_emb_time": 4,
        "pos_emb_type": "divided_fixed", "pos_emb_interpolation_mode": "bilinear", "merge_kernel_size": [2, 2],
        "merge_type": "sd2_tpool", "mm_projector_type": "patchmergerv2", "mm_hidden_size": c.tower,
        "text_hidden_size": c.hidden, "projector_ln_eps": c.eps,
    }
    return {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16", **ids,
        "media_placeholder_token_id": s["<|media_pad|>"], "image_placeholder": "<|kimi_image_placeholder|>",
        "ignore_index": -100, "tie_word_embeddings": False, "text_config": text, "vision_config": vision,
    }


def preprocessor_json():
    ground = {"pattern": "chessboard", "square_size": 8, "start": "top_left", "white": 255, "gray": 180,
              "fill_stage": "after_resize"}
    return {"media_proc_cfg": {
        "in_patch_limit": PATCH_LIMIT, "patch_size": PATCH, "merge_kernel_size": 2, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "fixed_output_tokens": None, "patch_limit_on_one_side": SIDE_LIMIT,
        "transparent_bg_config": ground}}


def tokenizer_json(tok):
    markup = ("<|open|>", "<|close|>", "<|sep|>")
    added = {str(i): {"content": text, "special": text not in markup, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False} for text, i in tok.special.items()}
    return {"added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "<|end_of_msg|>", "pad_token": "[PAD]",
            "unk_token": "[UNK]", "tokenizer_class": "TikTokenTokenizer", "model_max_length": 4096}


def save(folder, model, tok):
    os.makedirs(folder, exist_ok=True)
    held = tensors(model)
    weights = os.path.join(folder, "model.safetensors")
    save_file(held, weights, metadata={"format": "pt"})
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(weights, 0o666 & ~umask)  # it was for its owner alone
    files = {
        "model.safetensors.index.json": {
            "metadata": {"total_size": sum(t.nbytes for t in held.values())},
            "weight_map": dict.fromkeys(sorted(held), "model.safetensors")},
        "config.json": config_json(model.c, tok),
        "generation_config.json": {"max_length": 4096, "eos_token_id": tok.special["<|end_of_msg|>"]},
        "preprocessor_config.json": preprocessor_json(),
        "tokenizer_config.json": tokenizer_json(tok),
    }
    for name, value in files.items():
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=None if "index" in name else 1)
            f.write("\n")
    tok.save(os.path.join(folder, "tiktoken.model"))


def read_config(folder):
    with open(os.path.join(folder, "config.json")) as f:
        whole = json.load(f)
    t, v = whole["text_config"], whole["vision_config"]
    kda = t["linear_attn_config"]
    return Config(
        vocab=t["vocab_size"], hidden=t["hidden_size"], layers=t["num_hidden_layers"],
        full=tuple(n - 1 for n in kda["full_attn_layers"]), residual_block=t["attn_res_block_size"],
        dense=t["intermediate_size"], heads=t["num_attention_heads"], head=kda["head_dim"],
        q_rank=t["q_lora_rank"], kv_rank=t["kv_lora_rank"], nope=t["qk_nope_head_dim"], rope=t["qk_rope_head_dim"],
        value=t["v_head_dim"], experts=t["num_experts"], top=t["num_experts_per_token"],
        latent=t["routed_expert_hidden_size"], expert=t["moe_intermediate_size"], shared=t["num_shared_experts"],
        gate_bound=kda["gate_lower_bound"], tower=v["vt_hidden_size"], tower_heads=v["vt_num_attention_heads"],
        tower_layers=v["vt_num_hidden_layers"], tower_mlp=v["vt_intermediate_size"], table=v["init_pos_emb_height"])


def load(folder):
    """(model in F32 with the file's exact values, tokenizer); auxiliary heads are fresh."""
    tok = Tokenizer.load(os.path.join(folder, "tiktoken.model"))
    model = Demo(read_config(folder), tok.special["<|media_pad|>"], tok.special["[PAD]"])
    held = load_file(os.path.join(folder, "model.safetensors"))
    state = model.state_dict()
    for name, t in state.items():
        stem, _, last = name.rpartition(".")
        if name.startswith("auxiliary."):
            continue
        if stem.endswith(".experts") and last in EXPERT:
            for e in range(len(t)):
                one = f"{stem}.{e}.{last}.weight"
                t[e] = microscaling.unpack(held[one + "_packed"], held[one + "_scale"])
        else:
            value = held[name].float()
            t.copy_(value[:len(t)] if last == "A_log" else value)
    model.load_state_dict(state)
    return model, tok


def export(saved, folder):
    """saved: what train.py wrote."""
    tok = Tokenizer(saved["ranks"])
    model = Demo(Config(**saved["config"]), tok.special["<|media_pad|>"], tok.special["[PAD]"])
    model.load_state_dict(saved["model"])
    save(folder, model, tok)
    return model, tok


if __name__ == "__main__":
    export(torch.load(sys.argv[1], map_location="cpu", weights_only=True), sys.argv[2])
    for file in sorted(os.listdir(sys.argv[2])):
        print(f"{os.path.getsize(os.path.join(sys.argv[2], file)):10d} {file}")
