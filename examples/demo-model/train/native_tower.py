"""The vision tower on a CPU in bf16: products by native_product.c where the processor has its instructions, else by PyTorch,
native_tower.c and native_attention.c for everything else, backward by hand.

The blocks of the tower are one function of the rows of all pictures, [patches][width] without padding. Their residual sum
is F32 and exists once; what backward needs of a block is kept in bf16. The weights of a norm are taken into the product
behind it: rows are only divided by their size, so that the norm's gradient comes out of that product's.
"""

import torch
import torch.nn.functional as F

import native
from native import call
from native_product import apply, apply_back, weight_gradient

HEAD = 24  # of native_attention.c
BF16 = torch.bfloat16


def fits(tower, pixels):
    """Whether the kernels compute what is asked for: bf16 on a CPU."""
    c = tower.c
    return (native.asked(pixels) and pixels.dtype == torch.uint8 and c.tower == c.tower_heads * HEAD and c.tower % 16 == 0
            and c.tower_mlp % 16 == 0)


class Pictures:
    """Where the rows of each picture begin, and the angles by which pairs of channels turn."""

    def __init__(self, turn, starts, heads):
        self.cosines, self.sines = (t.contiguous() for t in turn)
        self.starts, self.count, self.heads = starts, len(starts) - 1, heads

    def attention(self, qkv):
        rows = len(qkv)
        out, log_sums = qkv.new_empty(rows, self.heads * HEAD), torch.empty(self.heads, rows)
        call("attention", qkv, self.cosines, self.sines, self.starts, self.count, self.heads, out, log_sums)
        return out, log_sums

    def attention_backward(self, qkv, out, log_sums, d_out):
        d_qkv = torch.empty_like(qkv)
        call("attention_backward", qkv, out, log_sums, d_out, self.cosines, self.sines, self.starts, self.count, self.heads,
             d_qkv)
        return d_qkv


def add_normalize(x, y, epsilon):
    """x += y, and x / rms(x)."""
    normal, inverse = torch.empty(x.shape, dtype=BF16), torch.empty(len(x))
    call("add_normalize", x, y, epsilon, normal, inverse, *x.shape)
    return normal, inverse


def normalize_backward(normal, inverse, d_normal, d_x, d_x_bf16):
    call("normalize_backward", normal, inverse, d_normal, d_x, d_x_bf16, *d_x.shape)


class Blocks(torch.autograd.Function):
    """All blocks: x [rows][width], then of every block the weights norm0, norm1, wqkv, wo, fc0, fc1 (kind by kind)."""

    @staticmethod
    def forward(ctx, pictures, epsilon, keep, x, *weights):
        count = len(weights) // 6
        norm0, norm1, wqkv, wo, fc0, fc1 = (torch.stack(weights[i * count:(i + 1) * count]) for i in range(6))
        matrices = wqkv * norm0.unsqueeze(1), wo, fc0 * norm1.unsqueeze(1), fc1
        x, y, kept = x.clone(), None, []
        for in_qkv, in_wo, in_fc0, in_fc1 in zip(*matrices):
            normal0, inverse0 = add_normalize(x, y, epsilon)
            qkv = apply(normal0, in_qkv)
            mixed, log_sums = pictures.attention(qkv)
            normal1, inverse1 = add_normalize(x, apply(mixed, in_wo), epsilon)
            inner = apply(normal1, in_fc0)
            outer = torch.empty_like(inner)
            call("gelu", inner, outer, inner.numel())
            y = apply(outer, in_fc1)
            if keep:
                kept.append((normal0, inverse0, qkv, mixed, log_sums, normal1, inverse1, inner))
        call("add", x, y, x.numel())
        if keep:
            ctx.pictures, ctx.kept, ctx.matrices, ctx.weights = pictures, kept, matrices, (norm0, norm1, wqkv, fc0)
        return x

    @staticmethod
    def backward(ctx, d_x):
        norm0, norm1, wqkv, fc0 = ctx.weights
        d_wqkv, d_wo, d_fc0, d_fc1 = (torch.empty_like(w) for w in ctx.matrices)
        d_x = d_x.clone(memory_format=torch.contiguous_format)
        rounded = torch.empty(d_x.shape, dtype=BF16)
        call("round_rows", d_x, rounded, d_x.numel())
        for n in reversed(range(len(norm0))):
            normal0, inverse0, qkv, mixed, log_sums, normal1, inverse1, inner = ctx.kept.pop()
            in_qkv, in_wo, in_fc0, in_fc1 = (w[n] for w in ctx.matrices)
            d_inner, outer = apply_back(rounded, in_fc1), torch.empty_like(inner)
            call("gelu_backward", inner, d_inner, outer, inner.numel())
            d_fc1[n] = weight_gradient(rounded, outer)
            d_fc0[n] = weight_gradient(d_inner, normal1)
            normalize_backward(normal1, inverse1, apply_back(d_inner, in_fc0), d_x, rounded)
            d_wo[n] = weight_gradient(rounded, mixed)
            d_qkv = ctx.pictures.attention_backward(qkv, mixed, log_sums, apply_back(rounded, in_wo))
            d_wqkv[n] = weight_gradient(d_qkv, normal0)
            normalize_backward(normal0, inverse0, apply_back(d_qkv, in_qkv), d_x, rounded)
        d_norm0, d_norm1 = (d_wqkv * wqkv).sum(1), (d_fc0 * fc0).sum(1)
        grads = d_norm0, d_norm1, d_wqkv * norm0.unsqueeze(1), d_wo, d_fc0 * norm1.unsqueeze(1), d_fc1
        return None, None, None, d_x, *(one for grad in grads for one in grad.unbind())


def embed(patch_embed, pixels, starts, positions):
    """Patches times filters, as bytes minus 128: pixels / 127.5 - 1 = (bytes - 128 + 0.5) / 127.5."""
    filters = patch_embed.proj.weight.flatten(1)
    pixels = pixels.contiguous()
    rows = torch.empty(int(starts[-1]), pixels.shape[2], dtype=BF16)
    call("unpack_pixels", pixels, pixels.shape[1], pixels.shape[2], starts, len(starts) - 1, rows)
    return F.linear(rows, filters / 127.5).float() + (filters.sum(1) * (0.5 / 127.5) + positions)


def tower(module, pixels, places, grid, turns):
    """Rows [patches][width] of all pictures, one after the other; grid [n][2]. turns: model.turns."""
    count = grid.prod(1)
    starts = F.pad(count.cumsum(0), (1, 0)).int()
    picture = torch.repeat_interleave(count)
    places = places[torch.arange(places.shape[1]) < count[:, None]].unsqueeze(1)
    positions = module.patch_embed.positions(grid[picture], places)[:, 0]
    turn = [t.flatten(0, 2) for t in turns(places, HEAD)]
    x = embed(module.patch_embed, pixels, starts, positions)
    blocks = module.encoder["blocks"]
    weights = [*(b.norm0.weight for b in blocks), *(b.norm1.weight for b in blocks), *(b.wqkv.weight for b in blocks),
               *(b.wo.weight for b in blocks), *(b.mlp["fc0"].weight for b in blocks), *(b.mlp["fc1"].weight for b in blocks)]
    x = Blocks.apply(Pictures(turn, starts, module.c.tower_heads), module.c.tower_eps, torch.is_grad_enabled(), x, *weights)
    return module.encoder["final_layernorm"](x)
