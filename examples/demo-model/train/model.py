"""The Kimi K3 architecture at the size of the demo, for training.

Modules carry the names of the checkpoint, so a state dict is nearly the file (export.py): only the experts of a layer are
one tensor here, and the auxiliary heads stay behind. Formulas are those of the published modelling code
(modeling_kimi_linear.py, modeling_kimi_k3.py): attention residuals, KDA, MLA without positions, latent mixture of experts,
SiTU, the tower with its two-axis rotation, the 2 x 2 merge and the projector. Products run in the autocast type;
norms, gates, router, softmax over residuals and the delta rule in F32.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import kda
import microscaling
import native_text
import native_tower
import world


@dataclass
class Config:
    vocab: int = 1200
    hidden: int = 160
    layers: int = 8
    full: tuple = (3, 7)  # layers with MLA, from 0
    residual_block: int = 3
    dense: int = 320
    heads: int = 4
    head: int = 32  # KDA: keys, values
    kernel: int = 4
    q_rank: int = 64
    kv_rank: int = 64
    nope: int = 32
    rope: int = 16
    value: int = 32
    experts: int = 128
    top: int = 4
    latent: int = 64
    expert: int = 64
    shared: int = 2
    gate_bound: float = -5.0
    eps: float = 1e-5
    latent_eps: float = 1e-6  # of the MLA latents, see the vendor's defaults
    tower: int = 96
    tower_heads: int = 4
    tower_layers: int = 27
    tower_mlp: int = 192
    table: int = 16  # side of the position table
    tower_eps: float = 2.0 ** -23
    beta: float = 4.0  # SiTU
    linear_beta: float = 25.0


class Weight(nn.Module):
    """One tensor named X.weight: normal around 0 with deviation std, or constant."""

    def __init__(self, *shape, std=None, fill=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        if fill is None:
            nn.init.normal_(self.weight, std=std if std is not None else shape[-1] ** -0.5)
        else:
            nn.init.constant_(self.weight, fill)

    def forward(self, x):
        return F.linear(x, self.weight)


class Norm(Weight):
    def __init__(self, width, eps, fill=1.0):
        super().__init__(width, fill=fill)
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


def linear(x, *weights):
    """x times several matrices in one product; gives as many parts."""
    return F.linear(x, torch.cat([w.weight for w in weights])).split([len(w.weight) for w in weights], -1)


def situ(c, gate, up):
    gate, up = gate.float(), up.float()
    return c.beta * torch.tanh(gate / c.beta) * torch.sigmoid(gate) * c.linear_beta * torch.tanh(up / c.linear_beta)


def no_cast(x):
    return torch.autocast(x.device.type, enabled=False)


# -- tower -------------------------------------------------------------------------------------------------------------


def cosines(width):
    """Patch filters to start from: the lowest two-dimensional cosines of brightness and of two colour differences, so
    that the narrow projection keeps edges and colours instead of a random mixture."""
    n = torch.arange(14.0)
    waves = torch.stack([torch.cos(math.pi * (n + 0.5) * k / 14) for k in range(14)])
    waves /= waves.norm(dim=1, keepdim=True)
    lowest = sorted(((i, j) for i in range(14) for j in range(14)), key=lambda t: (t[0] ** 2 + t[1] ** 2, t))
    bright = int(width * 0.56) // 2 * 2
    red_green = (width - bright) // 2
    mixes = [((0.45, 0.45, 0.45), bright), ((0.7, -0.7, 0.0), red_green), ((0.35, 0.35, -0.7), width - bright - red_green)]
    rows = [torch.tensor(mix)[:, None, None] * torch.outer(waves[i], waves[j]) * (0.4 if i + j else 0.12)
            for mix, count in mixes for i, j in lowest[:count]]
    return torch.stack(rows)


def interpolation(place, size, side):
    """[n][patches][side]: bilinear weights with half-pixel centres (align_corners false) of a table's `side` values at
    place [n][patches] of size [n] patches."""
    at = ((place + 0.5) * side / size[:, None] - 0.5).clamp(0, side - 1)
    return (1 - (at.unsqueeze(-1) - torch.arange(side, device=place.device)).abs()).clamp(min=0)


class PatchEmbed(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj = Weight(c.tower, 3, 14, 14)
        self.proj.weight.data.copy_(cosines(c.tower))
        self.pos_emb = Weight(c.table, c.table, c.tower, std=0.3)

    def positions(self, grid, places):
        """The table's values at the patches of each picture: grid [n][2], places [n][patches][2]."""
        table = self.pos_emb.weight
        y, x = (interpolation(places[..., i].float(), grid[:, i], len(table)) for i in (0, 1))
        return (y.unsqueeze(-1) * x.unsqueeze(-2)).flatten(2) @ table.flatten(0, 1)

    def forward(self, pixels, places, grid):
        x = F.linear(pixels, self.proj.weight.flatten(1))
        return x.float() + self.positions(grid, places)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        depth = (2 * c.tower_layers) ** -0.5
        self.norm0, self.norm1 = Norm(c.tower, c.tower_eps), Norm(c.tower, c.tower_eps)
        self.wqkv = Weight(3 * c.tower, c.tower)
        self.wo = Weight(c.tower, c.tower, std=depth * c.tower ** -0.5)
        self.mlp = nn.ModuleDict({"fc0": Weight(c.tower_mlp, c.tower),
                                  "fc1": Weight(c.tower, c.tower_mlp, std=depth * c.tower_mlp ** -0.5)})

    def forward(self, x, turn, real):
        n, patches, width = x.shape
        q, k, v = self.wqkv(self.norm0(x)).view(n, patches, 3, self.c.tower_heads, -1).transpose(1, 3).unbind(2)
        a = F.scaled_dot_product_attention(rotate(q, turn), rotate(k, turn), v, attn_mask=real)
        x = x + self.wo(a.transpose(1, 2).reshape(n, patches, width))
        return x + self.mlp["fc1"](F.gelu(self.mlp["fc0"](self.norm1(x)), approximate="tanh"))


def turns(places, head):
    """cos and sin [n][1][patches][head / 2]: pair j turns by x f_i if j is even, by y f_i if odd, i = j / 2."""
    f = 10000.0 ** (-torch.arange(0, head, 4, device=places.device) / head)
    angles = torch.stack([places[..., 1:2] * f, places[..., 0:1] * f], -1).flatten(2).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(x, turn):
    cos, sin = turn
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


class Tower(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.patch_embed = PatchEmbed(c)
        self.encoder = nn.ModuleDict({"blocks": nn.ModuleList(Block(c) for _ in range(c.tower_layers)),
                                      "final_layernorm": Norm(c.tower, c.tower_eps)})

    def forward(self, pixels, places, grid):
        """pixels [n][patches][588] uint8, cells of four patches together, padded; gives [n][patches][width]."""
        count = (grid[:, 0] * grid[:, 1])[:, None]
        real = (torch.arange(pixels.shape[1], device=pixels.device) < count)[:, None, None, :]
        turn = turns(places, self.c.tower // self.c.tower_heads)
        x = self.patch_embed(pixels.float() / 127.5 - 1, places, grid)
        for block in self.encoder["blocks"]:
            x = block(x, turn, real)
        return self.encoder["final_layernorm"](x)


class Projector(nn.Module):
    def __init__(self, c):
        super().__init__()
        wide = 4 * c.tower
        self.proj = nn.ModuleDict({"0": Weight(wide, wide), "2": Weight(c.hidden, wide)})
        self.post_norm = Norm(c.hidden, c.eps, fill=0.5)

    def forward(self, x):
        cells = x.unflatten(1, (-1, 4)).flatten(2)
        return self.post_norm(self.proj["2"](F.gelu(self.proj["0"](cells))))


# -- text --------------------------------------------------------------------------------------------------------------


class KDA(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        wide = c.heads * c.head
        self.q_proj, self.k_proj, self.v_proj, self.g_proj = (Weight(wide, c.hidden) for _ in range(4))
        self.f_a_proj, self.f_b_proj = Weight(c.head, c.hidden), Weight(wide, c.head)
        self.b_proj = Weight(c.heads, c.hidden)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (Weight(wide, 1, c.kernel, std=0.4) for _ in range(3))
        self.A_log = nn.Parameter(torch.zeros(c.heads))
        self.dt_bias = nn.Parameter(torch.empty(wide).uniform_(-6, -1))  # memories from a few to hundreds of tokens
        self.o_norm = Norm(c.head, c.eps)
        self.o_proj = Weight(c.hidden, wide, std=(2 * c.layers * wide) ** -0.5)

    def convolve(self, x):
        taps = torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight])[:, 0]
        time = x.shape[1]
        past = F.pad(x, (0, 0, self.c.kernel - 1, 0))
        return F.silu(sum(past[:, i:i + time] * taps[:, i] for i in range(self.c.kernel)))

    def forward(self, x, rows):
        if native_text.use(x):
            return native_text.kda(self, x, rows)
        c = self.c
        *qkv, gate, f, beta = linear(x, self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.f_a_proj, self.b_proj)
        decay = self.f_b_proj(f)
        with no_cast(x):
            mixed = self.convolve(rows.spread(torch.cat(qkv, -1).float()))
            q, k, v = mixed.unflatten(-1, (3, c.heads, c.head)).unbind(2)
            q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * c.head ** -0.5
            k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
            z = (decay.float() + self.dt_bias).unflatten(-1, (c.heads, c.head))
            g = c.gate_bound * torch.sigmoid(self.A_log.exp()[:, None] * z)
            o = kda.chunked(q, k, v, rows.spread(g), rows.spread(torch.sigmoid(beta.float())))
            o = self.o_norm(rows.collect(o)).flatten(1) * torch.sigmoid(gate.float())
        return self.o_proj(o)


class MLA(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_a_proj, self.q_a_layernorm = Weight(c.q_rank, c.hidden), Norm(c.q_rank, c.latent_eps)
        self.q_b_proj = Weight(c.heads * (c.nope + c.rope), c.q_rank)
        self.kv_a_proj_with_mqa = Weight(c.kv_rank + c.rope, c.hidden)
        self.kv_a_layernorm = Norm(c.kv_rank, c.latent_eps)
        self.kv_b_proj = Weight(c.heads * (c.nope + c.value), c.kv_rank)
        self.g_proj = Weight(c.heads * c.value, c.hidden)
        self.o_proj = Weight(c.hidden, c.heads * c.value, std=(2 * c.layers * c.heads * c.value) ** -0.5)

    def forward(self, x, rows):
        if native_text.use(x):
            return native_text.mla(self, x, rows)
        c = self.c
        qa, kva, gate = linear(x, self.q_a_proj, self.kv_a_proj_with_mqa, self.g_proj)
        latent, shared_key = kva.split([c.kv_rank, c.rope], -1)
        q = self.q_b_proj(self.q_a_layernorm(qa)).unflatten(-1, (c.heads, -1))
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (c.heads, -1))
        key, value = kv.split([c.nope, c.value], -1)
        key = torch.cat([key, shared_key.to(key.dtype).unsqueeze(1).expand(-1, c.heads, -1)], -1)
        q, key, value = (rows.spread(t).transpose(1, 2) for t in (q, key, value))
        o = rows.collect(F.scaled_dot_product_attention(q, key, value, is_causal=True).transpose(1, 2)).flatten(1)
        return self.o_proj(o.float() * torch.sigmoid(gate.float()))


class MLP(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.c = c
        self.gate_proj, self.up_proj = Weight(width, c.hidden), Weight(width, c.hidden)
        self.down_proj = Weight(c.hidden, width, std=(2 * c.layers * width) ** -0.5)

    def forward(self, x):
        if native_text.use(x):
            return native_text.mlp(self, x)
        return self.down_proj(situ(self.c, *linear(x, self.gate_proj, self.up_proj)))


class Router(nn.Module):
    """Scores by sigmoid; a bias, moved by balance() and never by gradient, only helps to choose."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.randn(c.experts, c.hidden) * c.hidden ** -0.5)
        self.register_buffer("e_score_correction_bias", torch.zeros(c.experts))

    def forward(self, x):
        with no_cast(x):
            score = torch.sigmoid(F.linear(x.float(), self.weight))
        chosen = (score.detach() + self.e_score_correction_bias).topk(self.c.top, -1)[1]
        weight = score.gather(-1, chosen)
        return chosen, weight / (weight.sum(-1, keepdim=True) + 1e-20)


class Experts(nn.Module):
    """x [rows][latent] through the chosen experts: rows are sorted by expert, and each expert takes as many slots as the
    busiest one needs, so that all products are one batch."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.w1, self.w3 = (nn.Parameter(torch.randn(c.experts, c.expert, c.latent) * c.latent ** -0.5) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(c.experts, c.latent, c.expert) * c.expert ** -0.5)
        self.rounded = False  # MXFP4

    def forward(self, x, chosen, weight):
        c = self.c
        w1, w2, w3 = (microscaling.fake(w) if self.rounded else w for w in (self.w1, self.w2, self.w3))
        expert, order = chosen.flatten().sort(stable=True)
        count = torch.bincount(expert, minlength=c.experts)
        slots = -(-int(count.max()) // 8) * 8
        first = count.cumsum(0) - count
        slot = expert * slots + torch.arange(len(expert), device=x.device) - first[expert]
        source = torch.full((c.experts * slots,), len(x), device=x.device)
        source[slot] = order // c.top
        taken = F.pad(x, (0, 0, 0, 1)).index_select(0, source).view(c.experts, slots, -1)
        gate, up = torch.bmm(taken, torch.cat([w1, w3], 1).transpose(1, 2)).split(c.expert, -1)
        y = torch.bmm(situ(c, gate, up).to(taken.dtype), w2.transpose(1, 2)).flatten(0, 1)
        where = torch.empty_like(slot)
        where[order] = slot
        mine = y.index_select(0, where).view(*chosen.shape, -1)
        return (mine.float() * weight.unsqueeze(-1)).sum(1), count


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = Router(c)
        self.routed_expert_down_proj = Weight(c.latent, c.hidden)
        self.routed_expert_norm = Norm(c.latent, c.eps)
        self.routed_expert_up_proj = Weight(c.hidden, c.latent, std=(2 * c.layers * c.latent) ** -0.5)
        self.shared_experts = MLP(c, c.shared * c.expert)
        self.experts = Experts(c)
        self.count, self.chosen = None, None  # of the last forward

    def forward(self, x):
        if native_text.use(x):
            y, self.chosen, self.count = native_text.moe(self, x)
            return y
        self.chosen, weight = self.gate(x)
        latent = self.routed_expert_down_proj(x)
        y, self.count = self.experts(latent, self.chosen, weight)
        return self.routed_expert_up_proj(self.routed_expert_norm(y)) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, c, number):
        super().__init__()
        self.opens = number % c.residual_block == 0
        self.dense = number == 0
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            setattr(self, name, Norm(c.hidden, c.eps))
        self.self_attention_res_proj, self.mlp_res_proj = (Weight(1, c.hidden, fill=0.0) for _ in range(2))
        self.self_attn = MLA(c) if number in c.full else KDA(c)
        setattr(self, "mlp" if self.dense else "block_sparse_moe", MLP(c, c.dense) if self.dense else MoE(c))

    def forward(self, live, blocks, rows):
        """live [rows][hidden]; blocks: the list of stored sums, to which this layer may add."""
        x = mixed(blocks + [live], self.self_attention_res_norm, self.self_attention_res_proj, self.input_layernorm)
        attention = self.self_attn(x, rows).float()
        if self.opens:
            blocks.append(live)
            live = attention
        else:
            live = live + attention
        x = mixed(blocks + [live], self.mlp_res_norm, self.mlp_res_proj, self.post_attention_layernorm)
        return live + (self.mlp if self.dense else self.block_sparse_moe)(x).float()


class Mixture(torch.autograd.Function):
    """sum_c a_c v_c with a = softmax_c(v_c . w / rms(v_c)), without keeping anything as large as the candidates."""

    @staticmethod
    def forward(ctx, eps, w, *v):
        scale = torch.stack([(x.square().mean(-1) + eps).rsqrt() for x in v])
        dot = torch.stack([x @ w for x in v])
        a = (dot * scale).softmax(0)
        ctx.save_for_backward(w, scale, dot, a, *v)
        return sum(a[c].unsqueeze(-1) * x for c, x in enumerate(v))

    @staticmethod
    def backward(ctx, grad):
        w, scale, dot, a, *v = ctx.saved_tensors
        towards = torch.stack([torch.einsum("nd,nd->n", grad, x) for x in v])
        score = a * (towards - (a * towards).sum(0))
        on_w = score * scale
        on_v = -score * dot * scale ** 3 / len(w)
        grads = [torch.addcmul(on_w[c].unsqueeze(-1) * w, grad, a[c].unsqueeze(-1)).addcmul_(x, on_v[c].unsqueeze(-1))
                 for c, x in enumerate(v)]
        return None, sum(on_w[c] @ x for c, x in enumerate(v)), *grads


def mix(candidates, norm, proj):
    """Attention residuals: a softmax mixture of the stored blocks and the live sum; raw vectors are mixed."""
    if len(candidates) == 1:
        return candidates[0]
    with no_cast(candidates[0]):
        return Mixture.apply(norm.eps, norm.weight * proj.weight[0], *candidates)


def mixed(candidates, query_norm, query_proj, norm):
    """norm(mix(...))."""
    if native_text.use(candidates[-1]):
        return native_text.mix(candidates, query_norm, query_proj, norm)
    return norm(mix(candidates, query_norm, query_proj))


class Rows:
    """Where the ids of a padded batch are: everything but attention runs on [rows][...] without the padding."""

    def __init__(self, real):
        """real [batch][time], bool."""
        self.shape = real.shape
        self.at = real.flatten().nonzero()[:, 0]
        self.first = F.pad(real.sum(1).cumsum(0), (1, 0))  # the first row of each conversation, and their end

    def spread(self, x):
        out = x.new_zeros(self.shape[0] * self.shape[1], *x.shape[1:])
        return out.index_copy(0, self.at, x).unflatten(0, self.shape)

    def collect(self, x):
        return x.flatten(0, 1).index_select(0, self.at)


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = Weight(c.vocab, c.hidden, std=0.5)
        self.layers = nn.ModuleList(Layer(c, n) for n in range(c.layers))
        self.norm, self.output_attn_res_norm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.output_attn_res_proj = Weight(1, c.hidden, fill=0.0)

    def forward(self, x, rows):
        blocks, live = [], x
        for layer in self.layers:
            live = layer(live, blocks, rows)
        return mixed(blocks + [live], self.output_attn_res_norm, self.output_attn_res_proj, self.norm)


class Language(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Trunk(c)
        self.lm_head = Weight(c.vocab, c.hidden)


class Auxiliary(nn.Module):
    """From one image row: what each of its four patches shows in its left and right halves (small letters come in pairs), then
    colour, place and size. Not exported."""

    SIZES = (len(world.classes()), len(world.classes()), len(world.colours()), 1 + len(world.CELLS), 3)

    def __init__(self, c):
        super().__init__()
        self.head = nn.Linear(c.hidden, 4 * sum(self.SIZES))

    def forward(self, rows):
        """rows [...][hidden] -> logits [...][4][size], one for each of SIZES."""
        return self.head(rows).float().unflatten(-1, (4, -1)).split(self.SIZES, -1)


class Demo(nn.Module):
    def __init__(self, c, media, padding):
        """media, padding: the ids of an image row and of what follows a text's end."""
        super().__init__()
        self.c, self.media, self.padding = c, media, padding
        self.vision_tower, self.mm_projector = Tower(c), Projector(c)
        self.language_model = Language(c)
        self.auxiliary = Auxiliary(c)

    def moe(self):
        return [m for m in self.modules() if isinstance(m, MoE)]

    def see(self, pixels, places, grids):
        """Image rows [n][patches / 4][hidden] and which of them are real."""
        real = torch.arange(pixels.shape[1] // 4, device=pixels.device) < (grids[:, 0] * grids[:, 1] // 4)[:, None]
        if native_tower.fits(self.vision_tower, pixels):
            rows = self.mm_projector(native_tower.tower(self.vision_tower, pixels, places, grids, turns).unsqueeze(0))[0]
            return Rows(real).spread(rows), real
        return self.mm_projector(self.vision_tower(pixels, places, grids)), real

    def read(self, ids, image_rows=None):
        """Final hidden states [ids without padding][hidden]; image_rows [n][hidden] take the places of the media ids in
        order."""
        real = ids != self.padding
        x = F.embedding(ids[real], self.language_model.model.embed_tokens.weight)
        if image_rows is not None:
            x = x.masked_scatter((ids[real] == self.media).unsqueeze(-1), image_rows.to(x.dtype))
        return self.language_model.model(x, Rows(real))

    def logits(self, hidden):
        return self.language_model.lm_head(hidden).float()
