"""Shows that no pitfall of the forward pass goes unseen: each is put into the published implementation as a small edit,
and the logits of some fixture must then move by far more than the tolerance of the tests.

    python lm_mutate.py GOLDEN

Prints one line per mutation with the relative L2 change of the logits of every fixture ("." where it changes nothing)
and fails when the largest is below 1e-3, or when a fixture without any edit is not what its file says.
"""

import inspect
import json
import os
import sys
import textwrap

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import lm_checkpoint
import lm_kernels
import lm_vendor

v = lm_vendor.vendor
LIMIT = 1e-3


def inputs(golden, model):
    return golden["embed"]


def turn(x):
    """Rotary embedding of halves, which this model must not have. x [...][T][dims]"""
    angle = torch.arange(x.shape[-2])[:, None] * 1e4 ** (-torch.arange(0, 1, 2 / x.shape[-1]))
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def filtered(seen, weight):
    """The short convolution with its own outputs as history."""
    w, past, out = weight[:, 0].float(), [0 * seen[..., 0]] * 3, []
    for t in range(4, seen.shape[-1]):
        out.append(sum(w[:, j] * u for j, u in enumerate(past + [seen[..., t]])))
        past = past[1:] + [F.silu(out[-1])]
    return torch.stack(out, -1)


def after_up(moe, y):
    y = moe.routed_expert_up_proj(y)
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) if moe.latent_moe_use_norm else y


def strict(scores):
    """A causal mask without the diagonal but for the first token."""
    t = scores.shape[-1]
    mask = torch.full((t, t), float("-inf")).triu(0)
    mask[0, 0] = 0
    return mask[None, None]


HELPERS = {"turn": turn, "filtered": filtered, "after_up": after_up, "strict": strict, "F": F}
PLACES = {
    "norm": (v.KimiRMSNorm, "forward"), "mla": (v.KimiMLAAttention, "forward"),
    "scores": (v, "eager_attention_forward"), "router": (v.KimiMoEGate, "forward"),
    "moe": (v.KimiSparseMoeBlock, "forward"),
    "sum": (v.KimiSparseMoeBlock, "moe_infer"), "layer": (v.KimiDecoderLayer, "_forward_attn_residual"),
    "mix": (v, "_apply_attn_res"), "before": (v, "_attn_res_pre_update"),
    "last mix": (v.KimiLinearModel, "_apply_output_attn_res"), "situ": (v.SituAndMul, "forward"),
    "delta": (lm_kernels, "naive_recurrent_kda"), "bounded": (lm_kernels, "naive_kda_lowerbound_gate"),
    "softplus": (lm_kernels, "naive_kda_gate"), "l2": (lm_kernels, "l2norm"), "kda": (v, "chunk_kda"),
    "conv": (lm_kernels.CpuShortConvolution, "forward"), "gated norm": (lm_kernels.CpuRMSNormGated, "forward"),
    "unpack": (lm_checkpoint, "unpack"), "input": (sys.modules[__name__], "inputs"),
}

# (pitfall of kimi-k3.md 8.1 or "", what, [(place, from, to)])
MUTATIONS = [
    ("1", "prediction from the state before decay", [
        ("delta", "S = S *", "old = S; S = S *"), ("delta", "[..., None] * S)", "[..., None] * old)")]),
    ("1", "output before the update", [("delta", "S = S + ", "old = S; S = S + "), ("delta", "q_i, S)", "q_i, old)")]),
    ("2", "max(-5, -exp(A) softplus(z))", [
        ("bounded", ".float().exp() * g", ".float().exp() * -F.softplus(g)"),
        ("bounded", "lower_bound * F.sigmoid(g)", "g.clamp(min=lower_bound)")]),
    ("2", "exp(A) outside of the sigmoid", [
        ("bounded", "A_log.view(H, 1).float().exp() * g", "g"),
        ("bounded", "lower_bound * F.sigmoid(g)", "lower_bound * A_log.view(H, 1).exp() * F.sigmoid(g)")]),
    ("2", "bounded decay where softplus belongs", [
        ("softplus", "-A_log.view(H, 1).float().exp() * F.softplus(g.float())",
         "-5 * F.sigmoid(A_log.view(H, 1).exp() * g)")]),
    ("3", "A_log by channel", [
        ("bounded", "A_log.view(H, 1)", "F.pad(A_log, (0, 99))[:g.shape[-1]]"),
        ("softplus", "A_log.view(H, 1)", "F.pad(A_log, (0, 99))[:g.shape[-1]]")]),
    ("3", "dt_bias as channel * heads + head", [
        ("bounded", "dt_bias.view(H, -1)", "dt_bias.view(-1, H).T"),
        ("softplus", "dt_bias.view(H, -1)", "dt_bias.view(-1, H).T")]),
    ("4", "taps in reverse", [("conv", "self.weight.float()", "self.weight.float().flip(-1)")]),
    ("4", "history after SiLU", [
        ("conv", "F.conv1d(seen[..., 1:], self.weight.float(), groups=x.shape[2])", "filtered(seen, self.weight)")]),
    ("4", "no history", [("conv", "self.weight.float()", "self.weight.float() * torch.tensor([0, 0, 0, 1])")]),
    ("5", "L2 norm before SiLU", [
        ("conv", "F.silu(y)", "y"),
        ("kda", "l2norm(q), l2norm(k), v", "F.silu(l2norm(q)), F.silu(l2norm(k)), F.silu(v)")]),
    ("5", "no scale on q", [("delta", "* scale", "* 1")]),
    ("5", "the scale on k as well", [("delta", "k = k.repeat_interleave(G, dim=2)", "k = scale * k")]),
    ("5", "L2 eps 1e-12", [("l2", "1e-6", "1e-12")]),
    ("5", "L2 eps outside of the root", [
        ("l2", "torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)", "(x.norm(dim=-1, keepdim=True) + 1e-6)")]),
    ("5", "v normalised too", [("kda", "l2norm(k), v", "l2norm(k), l2norm(v)")]),
    ("6", "SiLU as output gate", [("gated norm", "torch.sigmoid(g.float())", "F.silu(g.float())")]),
    ("6", "gate before the norm", [
        ("gated norm", "(y * torch.sigmoid(g.float()))", "y"),
        ("gated norm", "y = x.float()", "y = x.float() * torch.sigmoid(g.float())")]),
    ("7", "MLA without the rope dims", [("mla", "(k_pass, k_rot)", "(k_pass, k_rot * 0)")]),
    ("7", "rope dims rotated", [
        ("mla", "(q_pass, q_rot)", "(q_pass, turn(q_rot))"), ("mla", "(k_pass, k_rot)", "(k_pass, turn(k_rot))")]),
    ("7", "score scale nope^-0.5", [("mla", "=self.scaling", "=self.qk_nope_head_dim ** -0.5")]),
    ("7", "no gate on MLA", [("mla", "attn_output * g", "attn_output")]),
    ("7", "value rows of kv_b first", [
        ("mla", "k_pass, value_states = torch", "value_states, k_pass = torch"),
        ("mla", "[self.qk_nope_head_dim, self.v_head_dim]", "[self.v_head_dim, self.qk_nope_head_dim]")]),
    ("8", "latent norms with the config's eps", [("norm", "self.variance_epsilon", "1e-5")]),
    ("10", "the normed vectors are mixed", [("mix", "probs, v_float", "probs, k")]),
    ("10", "scores from raw vectors", [("mix", "(k *", "(v_float *")]),
    ("10", "scores without the norm weight", [("mix", "norm.weight.float() *", "1 *")]),
    ("10", "scores over sqrt(D)", [("mix", ".sum(-1)", ".sum(-1) / v.shape[-1] ** 0.5")]),
    ("10", "AttnRes eps 1e-6", [("mix", "norm.variance_epsilon", "1e-6")]),
    ("10", "stored before the input is formed", [
        ("before", "if is_block_start:", "if False:"),
        ("before", "hidden_states = prefix_sum\n", "hidden_states = prefix_sum\n    if is_block_start: "
         "block_residual = torch.cat([block_residual, prefix_sum.view(-1, 1, hidden_size)], dim=1)\n")]),
    ("9 10", "stores counted from layer 1", [("layer", "self.layer_idx %", "(self.layer_idx + 1) %")]),
    ("10", "no final mix", [("last mix", "return _apply", "return hidden_states\n    _apply")]),
    ("11", "attention's mixture overwrites P", [
        ("layer", "hidden_states = self.input", "prefix_sum = hidden_states; hidden_states = self.input")]),
    ("11", "P cleared before the mix reads it", [
        ("before", "prefix_sum.view(-1, hidden_size),", "prefix_sum.view(-1, hidden_size) * (not is_block_start),")]),
    ("11", "P not cleared at a store", [("layer", "if is_block_start:", "if False:")]),
    ("12", "feed-forward's mixture added to P", [
        ("layer", "hidden_states = self.post", "prefix_sum = hidden_states; hidden_states = self.post")]),
    ("13", "router reads half of its input", [("router", ".view(-1, h)", ".view(-1, h) * (torch.arange(h) < h // 2)")]),
    ("13", "no shared experts", [("moe", "y + self", "y + 0 * self")]),
    ("14", "weights from biased scores", [("router", "scores.gather", "scores_for_choice.gather")]),
    ("14", "no correction bias", [("router", "scores + self", "scores + 0 * self")]),
    ("14", "weights not renormalised", [("router", "topk_weight / denominator", "topk_weight")]),
    ("14", "no scaling factor", [("router", "* self.routed_scaling_factor", "* 1")]),
    ("15", "sigmoid of the capped gate", [
        ("situ", "torch.sigmoid(gate)", "torch.sigmoid(self.beta * torch.tanh(gate / self.beta))")]),
    ("15", "gate not capped", [("situ", "self.beta * torch.tanh(gate / self.beta)", "gate")]),
    ("15", "up not capped", [("situ", "is not None", "is False")]),
    ("15", "gate and up swapped", [
        ("situ", "up = x[..., d:]", "up = x[..., :d]"), ("situ", "gate = x[..., :d]", "gate = x[..., d:]")]),
    ("16", "no routed_expert_norm", [("moe", "self.routed_expert_norm(y)", "y")]),
    ("16", "routed_expert_norm on each expert", [
        ("sum", "append(expert_out)",
         "append(self.routed_expert_norm(expert_out) if self.latent_moe_use_norm else expert_out)"),
        ("moe", "self.routed_expert_norm(y)", "y")]),
    ("16", "routed_expert_norm after the up projection", [
        ("moe", "self.routed_expert_norm(y)", "y"), ("moe", "self.routed_expert_up_proj(y)", "after_up(self, y)")]),
    ("16", "routed_expert_norm eps 1e-6", [
        ("norm", "self.variance_epsilon", "(1e-6 if hidden_states.dim() == 2 else self.variance_epsilon)")]),
    ("", "o_norm eps 1e-6", [("gated norm", "self.eps", "1e-6")]),
    ("", "beta doubled", [("kda", "beta.float().sigmoid()", "2 * beta.float().sigmoid()")]),
    ("", "norm weights as 1 + w", [("norm", "self.weight *", "(1 + self.weight) *")]),
    ("", "a token does not see itself", [
        ("scores", "if attention_mask", "attention_mask = strict(scores)\n    if attention_mask")]),
    ("", "no groups", [("router", "self.num_expert_group > 1 and", "False and")]),
    ("", "group score from the best expert alone", [("router", ".topk(2,", ".topk(1,")]),
    ("", "groups by unbiased scores", [("router", "scores_for_choice.view(", "scores.view(")]),
    ("", "nibbles swapped", [("unpack", '"weight_packed": packed', '"weight_packed": packed >> 4 | packed << 4')]),
    ("", "image rows ignored", [("input", 'golden["embed"]', 'model.model.embed_tokens.weight[golden["ids"].long()]')]),
]


def edited(fn, edits):
    """fn with its source changed; every edit must find its place exactly once."""
    fn = inspect.unwrap(fn)
    src = textwrap.dedent(inspect.getsource(fn))
    src = src[src.index("def "):]
    for old, new in edits:
        assert src.count(old) == 1, (fn.__name__, old, src.count(old))
        src = src.replace(old, new)
    scope = {**fn.__globals__, **HELPERS}
    exec(src, scope)
    return torch.no_grad()(scope[fn.__name__])


class Mutated:
    def __init__(self, edits):
        self.places = {}
        for place, old, new in edits:
            self.places.setdefault(place, []).append((old, new))
        self.saved = {p: getattr(*PLACES[p]) for p in self.places}

    def __enter__(self):
        for p, edits in self.places.items():
            setattr(*PLACES[p], edited(self.saved[p], edits))

    def __exit__(self, *exc):
        for p in self.places:
            setattr(*PLACES[p], self.saved[p])


@torch.no_grad()
def logits(folder, config, golden):
    model = lm_vendor.build(config)
    model.load_state_dict(lm_vendor.load(folder, lm_vendor.shapes(model)))
    return model(inputs_embeds=inputs(golden, model)[None]).logits[0]


def main(root):
    fixtures = []
    for name in sorted(os.listdir(root)):
        folder = os.path.join(root, name)
        if name.startswith(("k3_", "linear_")):
            config = json.load(open(os.path.join(folder, "config.json")))
            golden = load_file(os.path.join(folder, "golden.safetensors"))
            fixtures.append((name, folder, config.get("text_config", config), golden))

    def changes(edits):
        with Mutated(edits):
            got = [(logits(folder, config, g), g["logits"]) for _, folder, config, g in fixtures]
        return [float((a.double() - b.double()).norm() / b.double().norm()) for a, b in got]

    print(" " * 45 + " ".join("%12s" % f[0] for f in fixtures))
    plain = changes([])
    assert max(plain) < 2e-5, plain
    blind = []
    for pitfall, what, edits in MUTATIONS:
        row = changes(edits)
        shown = " ".join("%12s" % ("." if d <= 2e-5 else "%.1e" % d) for d in row)
        print("%-5s%-40s%s" % (pitfall, what, shown), flush=True)
        if not max(d if d == d else 1e9 for d in row) > LIMIT:
            blind.append(what)
    if blind:
        raise SystemExit("unseen: " + ", ".join(blind))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
