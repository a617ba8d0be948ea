"""Kimi Delta Attention: the gated delta rule in chunks, for training.

Per head, with state S [K][V], decay exp(g_t[c]) of row c and rate beta_t (the published recurrence; fla/ops/kda/naive.py):

    S <- diag(exp(g_t)) S;   d_t = beta_t (v_t - S^T k_t);   S <- S + k_t d_t^T;   o_t = S^T q_t

In a chunk of n tokens with G_i = g_1 + ... + g_i this is (the WY form of the Kimi Linear report's chunked kernel)

    A[i][j] = beta_i sum_c k_i[c] k_j[c] exp(G_i[c] - G_j[c])   for j < i, else 0
    (I + A) U = diag(beta) V,   (I + A) W = diag(beta) (K .* exp(G))
    D = U - W S,   O = (Q .* exp(G)) S + P D,   S' = diag(exp(G_n)) S + (K .* exp(G_n - G))^T D

with P as A but of q_i, without beta and with j <= i. The exponent is split at the chunk's middle, exp(G_i - M) exp(M - G_j):
with the gate's bound of -5 a token and chunks of 16 neither factor leaves F32, nor does the product of two.
"""

import torch

CHUNK = 16


def decayed(a, b, grow, shrink):
    return (a * grow) @ (b * shrink).transpose(-1, -2)


def chunked(q, k, v, g, beta):
    """q, k, v, g [B][T][H][K], beta [B][T][H], all F32; gives o [B][T][H][K]."""
    batch, time, heads, width = q.shape
    missing = -time % CHUNK

    def split(x):
        x = torch.nn.functional.pad(x, (0, 0) * (x.dim() - 2) + (0, missing))
        return x.view(batch, -1, CHUNK, heads, *x.shape[3:]).transpose(2, 3)  # [B][chunks][H][CHUNK]...

    q, k, v, g = (split(x) for x in (q, k, v, g))
    beta = split(beta).unsqueeze(-1)
    total = g.cumsum(3)
    last = total[..., -1:, :]
    middle = total[..., CHUNK // 2 - 1:CHUNK // 2, :]
    grow, shrink = (total - middle).exp(), (middle - total).exp()

    attend = decayed(k, k, grow, shrink).tril(-1) * beta
    lower = attend + torch.eye(CHUNK, device=q.device)
    start = total.exp()
    right = torch.cat([beta * v, beta * k * start], -1)
    u, w = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True).split(width, -1)
    local = decayed(q, k, grow, shrink).tril()
    begin, end, keep = q * start, k * (last - total).exp(), last.exp().transpose(-1, -2)

    state, out = torch.zeros(batch, heads, width, width, device=q.device), []
    for c in range(q.shape[1]):
        d = u[:, c] - w[:, c] @ state
        out.append(begin[:, c] @ state + local[:, c] @ d)
        state = keep[:, c] * state + end[:, c].transpose(-1, -2) @ d
    return torch.stack(out, 1).transpose(2, 3).reshape(batch, -1, heads, width)[:, :time]


def stepwise(q, k, v, g, beta):
    """The recurrence itself, for checks."""
    batch, time, heads, width = q.shape
    state, out = q.new_zeros(batch, heads, width, width), []
    for t in range(time):
        state = g[:, t].exp().unsqueeze(-1) * state
        d = beta[:, t].unsqueeze(-1) * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t].unsqueeze(-1) * d.unsqueeze(-2)
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(out, 1)
