"""Runs the vendor's modelling code (as llmcompressor carries it) in F32 on the CPU and records what its parts give."""

import os

import torch
import torch.nn.functional as F
import llmcompressor.modeling.kimi_k3.modeling_kimi_linear as vendor
from llmcompressor.modeling.kimi_k3.configuration_kimi_k3 import KimiLinearConfig
from safetensors.torch import load_file

import lm_checkpoint
import lm_kernels

lm_kernels.install(vendor)


def build(text_config):
    config = KimiLinearConfig(**text_config)
    config._attn_implementation = "eager"
    return vendor.KimiLinearForCausalLM(config).float().eval()


def shapes(model):
    return {n: tuple(p.shape) for n, p in model.state_dict().items()}


def load(folder, wanted):
    """The checkpoint's weights by the vendor's names and shapes: prefix off, A_log without padding, MXFP4 unpacked."""
    files = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("model") and name.endswith(".safetensors"):
            files.update(load_file(os.path.join(folder, name)))
    files = {n.removeprefix("language_model."): t for n, t in files.items()}
    out = {}
    for n, shape in wanted.items():
        t = files[n].float() if n in files else lm_checkpoint.unpack(files[n + "_packed"], files[n + "_scale"])
        out[n] = t.flatten()[:shape[0]] if n.endswith("A_log") else t
    return out


def margin(gate, x, idx):
    """The smallest distance of a biased score (or group score) from the one that would have been taken instead."""
    logits = F.linear(x.reshape(-1, x.shape[-1]).double(), gate.weight.double())
    s = logits.sigmoid() if gate.moe_router_activation_func == "sigmoid" else logits.softmax(-1)
    s = s + gate.e_score_correction_bias.double()
    out = []
    groups, top = gate.num_expert_group, gate.topk_group
    if groups > top:
        by_group = s.view(len(s), groups, -1)
        score = by_group.topk(2, -1)[0].sum(-1).sort(-1, descending=True)
        out.append((score[0][:, top - 1] - score[0][:, top]).min())
        keep = torch.zeros_like(score[0], dtype=torch.bool).scatter(1, score[1][:, :top], True)
        s = by_group.masked_fill(~keep[..., None], -1e9).flatten(1)
    best = s.sort(-1, descending=True)
    k = idx.shape[-1]
    assert torch.equal(best[1][:, :k].sort(-1)[0], idx.sort(-1)[0])
    if k < s.shape[-1]:
        out.append((best[0][:, k - 1] - best[0][:, k]).min())
    return min(float(m) for m in out)


class Record:
    """Forward hooks on a vendor model; out: {name: tensor} in the names of the fixtures (see README.md)."""

    def __init__(self, model):
        self.out, self.margin, self.handles = {}, float("inf"), []
        for i, layer in enumerate(model.model.layers):
            self.on(layer, self.save(f"hidden.{i}"))
            self.on(layer.input_layernorm, self.save_input(f"attn_in.{i}"))
            self.on(layer.self_attn, self.save(f"attn.{i}"))
            self.on(layer.post_attention_layernorm, self.save_input(f"ffn_in.{i}"))
            self.on(layer.block_sparse_moe if hasattr(layer, "block_sparse_moe") else layer.mlp, self.save(f"ffn.{i}"))
            if hasattr(layer, "block_sparse_moe"):
                self.on(layer.block_sparse_moe.gate, self.save_router(i))
            if not layer.is_linear_attn:
                self.on(layer.self_attn.kv_a_proj_with_mqa, self.save(f"kr.{i}"))
                self.on(layer.self_attn.kv_a_layernorm, self.save(f"c.{i}"))
        self.on(model.model.norm, self.save_input("final_in"))

    def on(self, module, fn):
        self.handles.append(module.register_forward_hook(fn))

    def save(self, name):
        def hook(module, args, out):
            self.out[name] = (out[0] if isinstance(out, tuple) else out)[0].clone()
        return hook

    def save_input(self, name):
        def hook(module, args, out):
            self.out[name] = args[0][0].clone()
        return hook

    def save_router(self, i):
        def hook(gate, args, out):
            ids, at = out[0].sort(-1)
            self.out[f"router.{i}"] = ids.float()
            self.out[f"router_weight.{i}"] = out[1].gather(-1, at)
            self.margin = min(self.margin, margin(gate, args[0], out[0]))
        return hook

    def close(self):
        for h in self.handles:
            h.remove()


@torch.no_grad()
def run(model, embeds):
    """embeds [T][hidden] -> ({name: tensor}, smallest router margin)."""
    rec = Record(model)
    r = model(inputs_embeds=embeds[None], use_cache=True)
    rec.close()
    out, cache = rec.out, r.past_key_values
    for i, layer in enumerate(model.model.layers):
        if layer.is_linear_attn:
            out[f"kda_state.{i}"] = cache.recurrent_states[i][0].transpose(-1, -2)  # [heads][K][V]
            out[f"conv.{i}"] = torch.stack([c[0, :, 1:] for c in cache.conv_states[i]])  # [q k v][channels][kernel - 1]
        else:
            rank = model.config.kv_lora_rank
            out[f"latent.{i}"] = torch.cat([out.pop(f"c.{i}"), out.pop(f"kr.{i}")[:, rank:]], -1)
    out["logits"] = r.logits[0]
    return {n: t.float().contiguous() for n, t in out.items()}, rec.margin


@torch.no_grad()
def run_stepwise(model, embeds, first):
    """The logits of the same rows with `first` of them in one call and the others one at a time through the cache."""
    r = model(inputs_embeds=embeds[None, :first], use_cache=True)
    parts = [r.logits[0]]
    for t in range(first, len(embeds)):
        r = model(inputs_embeds=embeds[None, t:t + 1], past_key_values=r.past_key_values, use_cache=True)
        parts.append(r.logits[0])
    return torch.cat(parts)
