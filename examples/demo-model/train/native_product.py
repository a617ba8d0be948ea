"""Products of matrices on a CPU: x and the gradients BF16, the matrices F32. By native_product.c where the processor
multiplies BF16 (ready()), else by PyTorch."""

import torch

import native

BF16, F32 = torch.bfloat16, torch.float32


def ready():
    """Whether this processor has the instructions, and native code is wanted."""
    return native.enabled() and bool(native.library().bf16_available())


def apply(x, w, at=0):
    """x [rows][at .. at + columns of w] times w transposed, BF16."""
    if not ready():
        return torch.mm(x[:, at:at + w.shape[1]], w.to(BF16).t())
    y = torch.empty(len(x), len(w), dtype=BF16)
    native.call("apply", (x, at), x.shape[1], len(x), w.shape[1], w, len(w), y, len(w))
    return y


def apply_back(dy, w, as_f32=False):
    if not ready():
        return torch.mm(dy, w.to(BF16)).to(F32 if as_f32 else BF16)
    dx = torch.empty(len(dy), w.shape[1], dtype=F32 if as_f32 else BF16)
    native.call("apply_back", dy, dy.shape[1], len(dy), len(w), w, w.shape[1], dx, w.shape[1], int(as_f32))
    return dx


def weight_gradient(dy, x, at=0, width=None):
    """Of apply(x, w, at), with `width` columns of w; F32."""
    width = width or x.shape[1]
    if not ready():
        return torch.mm(dy.t(), x[:, at:at + width]).float()
    dw = torch.empty(dy.shape[1], width)
    native.call("weight_gradient", dy, dy.shape[1], dy.shape[1], (x, at), x.shape[1], width, len(x), dw)
    return dw
