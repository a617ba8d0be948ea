"""CPU stand-ins for the GPU kernels that the vendor's modelling code calls.

KDA is put together from fla's own naive functions (recurrence and both decay gates) and the formulas of its
kernels for what those leave out (L2 norm, sigmoid of beta, state layout). The short convolution and the gated norm
keep fla's classes and parameters; only forward is ours. lm_check.py holds every stand-in against the kernels
themselves, run by Triton's interpreter. install() puts them into the vendor's module.
"""

import torch
import torch.nn.functional as F
from fla.modules import FusedRMSNormGated, ShortConvolution
from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate
from fla.ops.kda.naive import naive_recurrent_kda


def l2norm(x):
    x = x.float()
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def kda(q, k, v, g, beta, A_log, dt_bias, initial_state=None, lower_bound=None, cu_seqlens=None, **kw):
    """chunk_kda and fused_recurrent_kda as the vendor calls them: raw q, k, g, beta in, state V-first out."""
    assert kw.pop("use_qk_l2norm_in_kernel") and kw.pop("use_gate_in_kernel") and kw.pop("use_beta_sigmoid_in_kernel")
    assert kw.pop("transpose_state_layout") and kw.pop("output_final_state") and cu_seqlens is None
    assert kw.pop("safe_gate", lower_bound is not None) == (lower_bound is not None) and not kw
    if lower_bound is None:
        decay = naive_kda_gate(g, A_log, dt_bias)
    else:
        decay = naive_kda_lowerbound_gate(g, A_log, dt_bias, lower_bound)
    if initial_state is not None:
        initial_state = initial_state.transpose(-1, -2)
    o, state = naive_recurrent_kda(l2norm(q), l2norm(k), v, decay, beta.float().sigmoid(),
                                   initial_state=initial_state, output_final_state=True)
    return o, state.transpose(-1, -2).contiguous()


class CpuShortConvolution(ShortConvolution):
    """The state is the last `kernel` inputs of every channel, oldest first: [batch, channels, kernel]."""

    def forward(self, x, cache=None, output_final_state=False, cu_seqlens=None, **kw):
        assert cu_seqlens is None and self.bias is None and self.activation == "silu" and not kw
        past = cache if cache is not None else x.new_zeros(x.shape[0], x.shape[2], self.kernel_size[0])
        seen = torch.cat([past, x.transpose(1, 2)], -1).float()
        y = F.conv1d(seen[..., 1:], self.weight.float(), groups=x.shape[2])
        state = seen[..., -self.kernel_size[0]:].to(x.dtype) if output_final_state else None
        return F.silu(y).transpose(1, 2).to(x.dtype), state


class CpuRMSNormGated(FusedRMSNormGated):
    def forward(self, x, g):
        assert self.activation == "sigmoid"
        y = x.float()
        y = y / torch.sqrt((y * y).mean(-1, keepdim=True) + self.eps) * self.weight.float()
        return (y * torch.sigmoid(g.float())).to(x.dtype)


def install(module):
    module.chunk_kda = module.fused_recurrent_kda = kda
    module.ShortConvolution = CpuShortConvolution
    module.FusedRMSNormGated = CpuRMSNormGated
