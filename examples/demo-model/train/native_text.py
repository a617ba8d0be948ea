"""The text layers on a CPU: autograd functions around the kernels of native_text.h. Same formulas and state as model.py,
whose modules call these when use() says so. Matrices are F32; BF16 copies are made on the way into a product."""

import ctypes

import torch

import native
import native_product
from native import call
from native_product import apply, apply_back, weight_gradient

HEAD = 32  # of native_kda.c
BF16, F32 = torch.bfloat16, torch.float32


def use(x):
    """Whether the layers of x run here: where autocast would have products in BF16. Whoever wants F32 gets it from torch."""
    return native.asked(x) and x.shape[-1] % 16 == 0 and native_product.ready()


def stacked(*weights):
    """Matrices above each other, with zeros up to a multiple of 16 rows."""
    missing = -sum(len(w) for w in weights) % 16
    return torch.cat([*weights, weights[0].new_zeros(missing, weights[0].shape[1])] if missing else weights)


def narrow(x):
    return x.to(BF16).contiguous()


class Mix(torch.autograd.Function):
    """norm(sum_c a_c v_c), see model.Mixture; one candidate: norm alone."""

    @staticmethod
    def forward(ctx, query_eps, eps, query_norm, query_proj, weight, *v):
        v = [x.float().contiguous() for x in v]
        rows, width = v[0].shape
        query = query_norm * query_proj[0]
        share, y = torch.empty(rows, len(v)), torch.empty(rows, width, dtype=BF16)
        call("mix", addresses(v), len(v), query, query_eps, weight, eps, rows, width, share, y)
        ctx.save_for_backward(query_norm, query_proj, weight, query, share, *v)
        ctx.eps = query_eps, eps
        return y

    @staticmethod
    def backward(ctx, dy):
        query_norm, query_proj, weight, query, share, *v = ctx.saved_tensors
        rows, width = v[0].shape
        dv = [torch.empty_like(x) for x in v]
        dquery, dweight = torch.zeros(2, width)
        call("mix_back", addresses(v), len(v), query, ctx.eps[0], weight, ctx.eps[1], rows, width, share, narrow(dy),
             addresses(dv), dquery, dweight)
        return None, None, dquery * query_proj[0], (dquery * query_norm)[None], dweight, *dv


def addresses(tensors):
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


def mix(candidates, query_norm, query_proj, norm):
    """What model.mixed gives, in BF16."""
    return Mix.apply(query_norm.eps, norm.eps, query_norm.weight, query_proj.weight, norm.weight, *candidates)


class KDA(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, first, heads, bound, eps, f_b, a_log, dt_bias, o_norm, o_proj, *weights):
        """weights: q, k, v, g, f_a, b; then the three convolutions."""
        joint, taps = stacked(*weights[:6]), torch.cat(weights[6:])
        wide = heads * HEAD
        p = apply(x, joint)
        z = apply(p, f_b, 4 * wide)
        o = torch.empty(len(x), wide, dtype=BF16)
        ctx.settings = p, p.shape[1], z, first, len(first) - 1, heads, taps, dt_bias, a_log, o_norm, bound, eps
        call("kda", *ctx.settings, o)
        ctx.save_for_backward(x, f_b, o_proj, joint, o)
        ctx.rows = [len(w) for w in weights[:6]]
        return apply(o, o_proj)

    @staticmethod
    def backward(ctx, dy):
        x, f_b, o_proj, joint, o = ctx.saved_tensors
        p, ld, z, first, _, heads, taps, dt_bias, a_log, o_norm, *_ = ctx.settings
        wide = heads * HEAD
        dy = narrow(dy)
        dp, dz = torch.empty_like(p), torch.empty_like(z)
        dtaps, ddt_bias, da_log, do_norm = (torch.zeros_like(t) for t in (taps, dt_bias, a_log, o_norm))
        call("kda_back", *ctx.settings, apply_back(dy, o_proj), dp, dz, dtaps, ddt_bias, da_log, do_norm)
        call("apply_back", dz, wide, len(x), wide, f_b, HEAD, (dp, 4 * wide), ld, 0)
        djoint = weight_gradient(dp, x).split(ctx.rows + [ld - sum(ctx.rows)])[:6]
        return (apply_back(dp, joint), None, None, None, None, weight_gradient(dz, p, 4 * wide, HEAD), da_log, ddt_bias,
                do_norm, weight_gradient(dy, o), *djoint, *dtaps.chunk(3))


def kda(m, x, rows):
    c = m.c
    assert c.head == HEAD and c.kernel == 4
    return KDA.apply(narrow(x), rows.first, c.heads, c.gate_bound, m.o_norm.eps, m.f_b_proj.weight, m.A_log, m.dt_bias,
                     m.o_norm.weight, m.o_proj.weight, m.q_proj.weight, m.k_proj.weight, m.v_proj.weight, m.g_proj.weight,
                     m.f_a_proj.weight, m.b_proj.weight, m.q_conv1d.weight, m.k_conv1d.weight, m.v_conv1d.weight)


class MLA(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, first, c, q_norm, kv_norm, q_b, kv_b, o_proj, q_a, kv_a, g):
        joint = stacked(q_a, kv_a, g)
        n, qk, ld = len(x), c.nope + c.rope, len(joint)
        p = apply(x, joint)
        qa, kva = torch.empty(n, c.q_rank, dtype=BF16), torch.empty(n, c.kv_rank, dtype=BF16)
        call("norm", p, ld, n, c.q_rank, q_norm, c.latent_eps, qa, c.q_rank)
        call("norm", (p, c.q_rank), ld, n, c.kv_rank, kv_norm, c.latent_eps, kva, c.kv_rank)
        q, kv = apply(qa, q_b), apply(kva, kv_b)
        o = torch.empty(n, c.heads * c.value, dtype=BF16)
        rope = c.q_rank + c.kv_rank
        ctx.settings = (q, kv, (p, rope), (p, rope + c.rope), ld, first, len(first) - 1, c.heads, qk, c.rope, c.value)
        call("mla", *ctx.settings, o)
        ctx.save_for_backward(x, q_norm, kv_norm, q_b, kv_b, o_proj, joint, p, qa, kva, o)
        ctx.c, ctx.rows = c, [len(q_a), len(kv_a), len(g)]
        return apply(o, o_proj)

    @staticmethod
    def backward(ctx, dy):
        x, q_norm, kv_norm, q_b, kv_b, o_proj, joint, p, qa, kva, o = ctx.saved_tensors
        c, dy = ctx.c, narrow(dy)
        n, ld, rope = len(x), len(joint), c.q_rank + c.kv_rank
        dp, dq, dkv = torch.empty_like(p), torch.empty_like(ctx.settings[0]), torch.empty_like(ctx.settings[1])
        call("mla_back", *ctx.settings, apply_back(dy, o_proj), dq, dkv, (dp, rope), (dp, rope + c.rope))
        dq_norm, dkv_norm = torch.zeros_like(q_norm), torch.zeros_like(kv_norm)
        call("norm_back", p, ld, n, c.q_rank, q_norm, c.latent_eps, apply_back(dq, q_b), c.q_rank, dp, ld, dq_norm)
        call("norm_back", (p, c.q_rank), ld, n, c.kv_rank, kv_norm, c.latent_eps, apply_back(dkv, kv_b), c.kv_rank,
             (dp, c.q_rank), ld, dkv_norm)
        return (apply_back(dp, joint), None, None, dq_norm, dkv_norm, weight_gradient(dq, qa), weight_gradient(dkv, kva),
                weight_gradient(dy, o), *weight_gradient(dp, x).split(ctx.rows))


def mla(m, x, rows):
    return MLA.apply(narrow(x), rows.first, m.c, m.q_a_layernorm.weight, m.kv_a_layernorm.weight, m.q_b_proj.weight,
                     m.kv_b_proj.weight, m.o_proj.weight, m.q_a_proj.weight, m.kv_a_proj_with_mqa.weight, m.g_proj.weight)


class MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c, gate, up, down):
        joint = torch.cat([gate, up])
        gate_up, act = apply(x, joint), torch.empty(len(x), len(up), dtype=BF16)
        call("situ", gate_up, len(joint), len(x), len(up), c.beta, c.linear_beta, act, len(up))
        ctx.save_for_backward(x, joint, down, gate_up, act)
        ctx.c = c
        return apply(act, down)

    @staticmethod
    def backward(ctx, dy):
        x, joint, down, gate_up, act = ctx.saved_tensors
        dy, width, dgate_up = narrow(dy), down.shape[1], torch.empty_like(gate_up)
        call("situ_back", gate_up, len(joint), len(x), width, ctx.c.beta, ctx.c.linear_beta, apply_back(dy, down), width,
             dgate_up, len(joint), None, 0)
        return apply_back(dgate_up, joint), None, *weight_gradient(dgate_up, x).chunk(2), weight_gradient(dy, act)


def mlp(m, x):
    return MLP.apply(narrow(x), m.c, m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight)


class MoE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c, rounded, bias, router, down, norm, up, gate, shared_up, shared_down, w1, w2, w3):
        n, k, latent, shared = len(x), c.top, c.latent, len(gate)
        chosen, count = torch.empty(n, k, dtype=torch.int64), torch.empty(c.experts, dtype=torch.int64)
        weight, score = torch.empty(2, n, k)
        slot, source = torch.empty(2, n * k, dtype=torch.int32)
        begin = torch.empty(c.experts + 1, dtype=torch.int32)
        logits = torch.empty(n, c.experts)
        call("apply_exactly", x, x.shape[1], n, x.shape[1], router, c.experts, logits, c.experts)
        call("route", logits, bias, n, c.experts, k, chosen, weight, score, count, slot, source, begin)
        joint, out = torch.cat([down, gate, shared_up]), torch.cat([up, shared_down], 1)
        p, both = apply(x, joint), torch.empty(n, latent + shared, dtype=BF16)
        gate_up, y = torch.empty(n * k, 2 * c.expert, dtype=BF16), torch.empty(n * k, latent, dtype=BF16)
        ctx.settings = (p, len(joint), source, begin, c.experts, k, latent, c.expert, w1, w3, w2, int(rounded), c.beta,
                        c.linear_beta, gate_up)
        call("experts", *ctx.settings, y)
        call("combine", y, slot, weight, n, k, latent, norm, c.eps, both, latent + shared)
        call("situ", (p, latent), len(joint), n, shared, c.beta, c.linear_beta, (both, latent), latent + shared)
        ctx.save_for_backward(x, router, norm, w1, w2, w3, chosen, weight, score, slot, joint, out, p, both, y)
        ctx.c, ctx.shared = c, shared
        ctx.mark_non_differentiable(chosen, count)
        return apply(both, out), chosen, count

    @staticmethod
    def backward(ctx, dy, *_):
        x, router, norm, w1, w2, w3, chosen, weight, score, slot, joint, out, p, both, y = ctx.saved_tensors
        c, shared, dy = ctx.c, ctx.shared, narrow(dy)
        n, k, latent, ld = len(x), c.top, c.latent, len(joint)
        dboth, dout = apply_back(dy, out), weight_gradient(dy, both)
        dmixed, dweight, dnorm, dp = torch.empty(n, latent), torch.empty(n, k), torch.zeros_like(norm), torch.empty_like(p)
        call("combine_back", y, slot, weight, n, k, latent, norm, c.eps, dboth, latent + shared, dmixed, dweight, dnorm)
        call("situ_back", (p, latent), ld, n, shared, c.beta, c.linear_beta, (dboth, latent), latent + shared,
             (dp, latent), ld, None, 0)
        dchoices, dw1, dw2, dw3 = (torch.empty_like(t) for t in (y, w1, w2, w3))
        call("experts_back", *ctx.settings, weight, dmixed, dchoices, dw1, dw3, dw2)
        call("gather_back", dchoices, slot, n, k, latent, dp, ld)
        dx, drouter = torch.empty_like(x), torch.zeros_like(router)
        call("route_back", dweight, weight, score, chosen, n, k, x, x.shape[1], router, apply_back(dp, joint, as_f32=True),
             dx, drouter)
        ddown, dgate, dshared_up = weight_gradient(dp, x).split([latent, shared, shared])
        dup, dshared_down = dout.split([latent, shared], 1)
        return (dx, None, None, None, drouter, ddown, dnorm, dup, dgate, dshared_up, dshared_down, dw1, dw2, dw3)


def moe(m, x):
    """Output, choices and how often each expert was chosen."""
    shared, experts = m.shared_experts, m.experts
    return MoE.apply(narrow(x), experts.c, experts.rounded, m.gate.e_score_correction_bias, m.gate.weight,
                     m.routed_expert_down_proj.weight, m.routed_expert_norm.weight, m.routed_expert_up_proj.weight,
                     shared.gate_proj.weight, shared.up_proj.weight, shared.down_proj.weight, experts.w1, experts.w2,
                     experts.w3)
