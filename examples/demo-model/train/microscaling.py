"""MXFP4 (OCP Microscaling Formats 1.0): groups of 32 along the rows, one power of two each, values of E2M1.

Training sees the values that the file will hold; the gradient passes as if nothing were rounded (straight-through).
"""

import torch

GROUP = 32
VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def exponents(groups):
    """The scale's exponent: the largest magnitude comes to lie in (3.5, 7] steps, so that 6 stands for it at worst."""
    largest = groups.abs().amax(-1, keepdim=True)
    fraction, exponent = torch.frexp(largest)  # largest = fraction * 2^exponent, fraction in [0.5, 1)
    return (exponent - 3 + (fraction > 0.875)).clamp(-100, 100)


def rounded(x):
    """Magnitudes in steps to the nearest of VALUES; a tie goes to the even code, as torch.round has it at every spacing."""
    return torch.where(x < 2, (x * 2).round() / 2, torch.where(x < 4, x.round(), (x / 2).round() * 2)).clamp(max=6)


def quantise(w):
    """(values in steps with their sign, exponent of each group), groups in the second to last axis."""
    groups = w.detach().float().unflatten(-1, (-1, GROUP))
    exponent = exponents(groups)
    steps = torch.ldexp(groups, -exponent)
    return torch.copysign(rounded(steps.abs()), steps), exponent


def fake(w):
    """w as the file will hold it; its gradient goes to w."""
    steps, exponent = quantise(w)
    return w + (torch.ldexp(steps, exponent).flatten(-2).to(w.dtype) - w).detach()


def pack(w):
    """(packed [rows][columns / 2], scale [rows][columns / 32]), uint8, of a matrix."""
    steps, exponent = quantise(w)
    table = torch.tensor(VALUES)
    codes = torch.searchsorted(table, steps.abs().contiguous()) + 8 * torch.signbit(steps)
    codes = codes.flatten(-2).to(torch.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4, (exponent.squeeze(-1) + 127).to(torch.uint8)


def unpack(packed, scale):
    table = torch.tensor(VALUES + tuple(-v for v in VALUES))
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    return torch.ldexp(table[codes.long()].unflatten(-1, (-1, GROUP)), scale.int().unsqueeze(-1) - 127).flatten(-2)
