"""Compares native_text with plain torch in F32 on random ragged conversations: outputs, and gradients of the input and of every
parameter, of each component and of a whole trunk; MXFP4 must agree exactly. Exits with 1 if anything is off.

Bounds are those of BF16 products: cosine above 0.999 and a difference below 2 % of the norm. After all layers of a trunk more is
lost (plain torch with autocast differs by 4.9 %, too). Inputs are BF16 values, so that routes agree; the trunk takes all experts,
for there a rounded input may turn a choice."""

import sys

import torch
from torch import nn

import microscaling
import native
import native_text
from model import KDA, MLA, MLP, Config, MoE, Norm, Rows, Trunk, Weight, mixed

LENGTHS = (1, 37, 64, 2, 131, 17, 96, 200)  # short of a tap, odd, whole blocks
COSINE, ERROR = 0.999, 0.02
TRUNK_COSINE, TRUNK_ERROR = 0.997, 0.08


class Mixed(nn.Module):
    """Attention residuals over so many candidates, which share one input."""

    def __init__(self, c, candidates):
        super().__init__()
        self.turns = [torch.randn(c.hidden) for _ in range(candidates)]
        self.query_norm, self.norm, self.proj = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps), Weight(1, c.hidden)

    def forward(self, x):
        return mixed([x * t for t in self.turns], self.query_norm, self.proj, self.norm)


def stir(module):
    """Parameters that begin as constants would hide mistakes. Sharp mixtures of a deep trunk would be chaotic instead."""
    for p in module.parameters():
        if p.dim() == 1 or len(p) == 1:
            p.data.add_((0.3 if p.dim() == 1 else 0.03) * torch.randn_like(p))
    for m in module.modules():
        if isinstance(m, MoE):
            m.gate.e_score_correction_bias.normal_(std=0.05)


def run(module, arguments, x, dy, on):
    """{name: tensor}: output and gradients."""
    before = native.set(on)
    x = x.clone().requires_grad_()
    module.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=on):
        assert native_text.use(x) == on, "native_text is not available"
        y = module(x, *arguments)
    (y.float() * dy).sum().backward()
    native.set(before)
    grads = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}  # what mixes one candidate has none
    return {"output": y.detach(), "input": x.grad} | grads


def compare(name, module, x, *arguments):
    """Prints the worst of the differences; gives whether all are within bounds."""
    dy = torch.randn(x.shape).bfloat16().float()
    want, got = (run(module, arguments, x, dy, on) for on in (False, True))
    assert want.keys() <= got.keys(), want.keys() - got.keys()
    cosines, errors = {}, {}
    for key, w in want.items():
        w, g = w.double().flatten(), got[key].double().flatten()
        cosines[key] = float(w @ g / (w.norm() * g.norm() + 1e-300))
        errors[key] = float((w - g).norm() / w.norm())
    least, most = (TRUNK_COSINE, TRUNK_ERROR) if isinstance(module, Trunk) else (COSINE, ERROR)
    low, high = min(cosines, key=cosines.get), max(errors, key=errors.get)
    fine = all(c > least for c in cosines.values()) and all(e < most for e in errors.values())  # NaN is not fine
    print(f"{'ok  ' if fine else 'FAIL'} {name}: cosine from {cosines[low]:.6f} ({low}), "
          f"difference to {errors[high]:.4f} ({high})")
    if not fine:
        print("    ", {k: (round(cosines[k], 5), round(errors[k], 4)) for k in want
                       if not (cosines[k] > least and errors[k] < most)})
    return fine


def check_rounding():
    w = torch.randn(64, 256) * torch.logspace(-6, 6, 64)[:, None]
    w[0] = 0
    w[1] = torch.arange(256) / 32 - 4  # ties
    w[2, 5:] = 0
    w[3] = -w[4].abs()
    got = torch.empty_like(w)
    native.call("mxfp4", w, got, w.numel())
    fine = torch.equal(got, microscaling.fake(w))
    print(f"{'ok  ' if fine else 'FAIL'} MXFP4: {int((got != microscaling.fake(w)).sum())} of {w.numel()} differ")
    return fine


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    c, every = Config(), Config(experts=16, top=16)
    rows = Rows(torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None])
    x = torch.randn(sum(LENGTHS), c.hidden).bfloat16().float()
    rounded = MoE(c)
    rounded.experts.rounded = True
    cases = [("KDA", KDA(c), x, rows), ("MLA", MLA(c), x, rows), ("MLP", MLP(c, c.dense), x), ("MoE", MoE(c), x),
             ("MoE in MXFP4", rounded, x), ("MoE of few rows", MoE(c), x[:3]), ("MoE, all experts", MoE(every), x),
             ("norm", Mixed(c, 1), x), ("mixture", Mixed(c, 4), x), ("trunk", Trunk(every), x, rows)]
    results = [check_rounding()]
    for name, module, *arguments in cases:
        stir(module)
        if isinstance(module, Trunk):
            module.embed_tokens = nn.Identity()  # not of forward
        results.append(compare(name, module, *arguments))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
