"""Holds the stand-ins of lm_kernels.py against fla's real Triton kernels, run by Triton's interpreter on the CPU.

    python lm_check.py [FIXTURE...]

First each stand-in alone (relative L2), then whole fixtures: the vendor's code with nothing replaced, prompt in one
call (chunked kernel) and its second half one token at a time (recurrent kernel), against golden.safetensors.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.runtime.autotuner as autotuner
import triton.runtime.interpreter as interpreter

patch_tensor = interpreter._patch_lang_tensor


def patch_index(tensor, scope):
    """numpy >= 2.4 refuses int() of a one-element array, which the interpreter relies on."""
    patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))


def run_first_config(self, *args, **kwargs):
    """No timing without a GPU: take the first configuration."""
    self.nargs = dict(zip(self.arg_names, args))
    config = self.prune_configs(kwargs)[0]
    return self.fn.run(*args, **kwargs, **config.all_kwargs())


interpreter._patch_lang_tensor = patch_index
autotuner.Autotuner.run = run_first_config

import fla.ops.common.chunk_delta_h
import fla.ops.kda.chunk_intra
import triton.language as tl
from fla.modules import FusedRMSNormGated, ShortConvolution
from fla.ops.kda import chunk_kda, fused_recurrent_kda

import lm_kernels

# What the interpreter does not see: a reference taken at import, and loop variables as tensors.
fla.ops.common.chunk_delta_h.range = lambda n: (tl.full((), i, tl.int32) for i in range(int(n)))
fla.ops.kda.chunk_intra.gather = lambda *args, **kwargs: tl.gather(*args, **kwargs)


def rel(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def show(name, limit, *pairs):
    d = max(rel(a, b) for a, b in pairs)
    print(f"{name}: {d:.1e}")
    assert d < limit, name


def check_kda(g):
    def r(*s):
        return torch.randn(*s, generator=g)

    for kernel, name, limit in ((fused_recurrent_kda, "recurrent", 1e-5), (chunk_kda, "chunk", 1e-4)):
        for bound in (-5.0, None):
            for first in (False, True):
                h, t, k = 3, 21, 16
                args = dict(q=r(1, t, h, k), k=r(1, t, h, k) * 1e-3, v=r(1, t, h, k), g=r(1, t, h, k), beta=r(1, t, h),
                            A_log=r(h) * 0.5, dt_bias=r(h * k), initial_state=r(1, h, k, k) if first else None,
                            output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                            use_beta_sigmoid_in_kernel=True, lower_bound=bound, transpose_state_layout=True)
                if kernel is chunk_kda:
                    args["safe_gate"] = bound is not None
                want = lm_kernels.kda(**args)
                got = kernel(**args)
                show(f"kda {name}, bound {bound}, state given {first}", limit, *zip(want, got))


@torch.no_grad()
def check_conv(g):
    real, ours = ShortConvolution(24, 4, activation="silu"), lm_kernels.CpuShortConvolution(24, 4, activation="silu")
    torch.nn.init.normal_(real.weight, generator=g)
    ours.load_state_dict(real.state_dict())
    x, cache_r, cache_o = torch.randn(1, 12, 24, generator=g), None, None
    for a, b in ((0, 2), (2, 3), (3, 9), (9, 10), (10, 12)):
        y_r, cache_r = real(x=x[:, a:b], cache=cache_r, output_final_state=True)
        y_o, cache_o = ours(x=x[:, a:b], cache=cache_o, output_final_state=True)
        show(f"short convolution, tokens {a} to {b}", 1e-6, (y_o, y_r), (cache_o, cache_r))


@torch.no_grad()
def check_norm(g):
    real, ours = (c(16, eps=1e-5, activation="sigmoid") for c in (FusedRMSNormGated, lm_kernels.CpuRMSNormGated))
    torch.nn.init.normal_(real.weight, generator=g)
    ours.load_state_dict(real.state_dict())
    x, gate = torch.randn(1, 9, 3, 16, generator=g) * 3e-3, torch.randn(1, 9, 3, 16, generator=g)
    show("gated norm", 1e-6, (ours(x, gate), real(x, gate)))


def check_fixture(folder):
    import json
    from safetensors.torch import load_file
    import lm_vendor
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    v = lm_vendor.vendor
    v.chunk_kda, v.fused_recurrent_kda = chunk_kda, fused_recurrent_kda
    v.ShortConvolution, v.FusedRMSNormGated = ShortConvolution, FusedRMSNormGated
    config = json.load(open(os.path.join(folder, "config.json")))
    model = lm_vendor.build(config.get("text_config", config))
    model.load_state_dict(lm_vendor.load(folder, lm_vendor.shapes(model)))
    out, _ = lm_vendor.run(model, golden["embed"])
    show(f"{folder}, chunked", 1e-3, (out["logits"], golden["logits"]))
    show(f"{folder}, recurrent", 1e-4, (lm_vendor.run_stepwise(model, golden["embed"], 1), golden["logits"]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(5)
    check_conv(gen)
    check_norm(gen)
    check_kda(gen)
    for path in sys.argv[1:]:
        check_fixture(path)
