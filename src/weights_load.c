/* What a layer wants, where that is in the files and in its block, and loading it. Holds nothing.
 */
#include "src/weights_load.h"

#include "src/os.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct want {
    char name[160];
    enum weights_kind kind;
    uint32_t out, in;
    size_t field;
};

struct wants {
    const struct config *c;
    char prefix[96];
    struct want at[WEIGHTS_PARTS];
    size_t n;
};

static void want(struct wants *w, enum weights_kind kind, const char *suffix, uint32_t out,
                 uint32_t in, size_t field)
{
    assert(w->n < WEIGHTS_PARTS);
    struct want *x = &w->at[w->n++];
    *x = (struct want){.kind = kind, .out = out, .in = in, .field = field};
    snprintf(x->name, sizeof x->name, "%s%s", w->prefix, suffix);
}

#define LAYER_FIELD(f)             offsetof(struct layer_weights, f)
#define MATRIX(suffix, out, in, f) want(w, WEIGHTS_LINEAR, suffix, out, in, LAYER_FIELD(f))
#define VECTOR(suffix, n, f)       want(w, WEIGHTS_VECTOR, suffix, n, 1, LAYER_FIELD(f))

static void want_kda(struct wants *w)
{
    const struct config *c = w->c;
    uint32_t D = c->hidden, C = c->kda_heads * c->kda_dim;
    MATRIX("self_attn.q_proj", C, D, kda.q);
    MATRIX("self_attn.k_proj", C, D, kda.k);
    MATRIX("self_attn.v_proj", C, D, kda.v);
    MATRIX("self_attn.o_proj", D, C, kda.o);
    if (c->kda_full_gate) {
        MATRIX("self_attn.g_proj", C, D, kda.g);
    } else {
        MATRIX("self_attn.g_a_proj", c->kda_dim, D, kda.g_a);
        MATRIX("self_attn.g_b_proj", C, c->kda_dim, kda.g_b);
    }
    MATRIX("self_attn.f_a_proj", c->kda_dim, D, kda.f_a);
    MATRIX("self_attn.f_b_proj", C, c->kda_dim, kda.f_b);
    MATRIX("self_attn.b_proj", c->kda_heads, D, kda.b);
    VECTOR("self_attn.q_conv1d.weight", C * c->conv, kda.conv_q);
    VECTOR("self_attn.k_conv1d.weight", C * c->conv, kda.conv_k);
    VECTOR("self_attn.v_conv1d.weight", C * c->conv, kda.conv_v);
    want(w, WEIGHTS_PREFIX, "self_attn.A_log", c->kda_heads, 1, LAYER_FIELD(kda.a));
    VECTOR("self_attn.dt_bias", C, kda.dt_bias);
    VECTOR("self_attn.o_norm.weight", c->kda_dim, kda.o_norm);
}

static void want_mla(struct wants *w)
{
    const struct config *c = w->c;
    uint32_t D = c->hidden, H = c->mla_heads, qd = c->nope_dim + c->rope_dim;
    if (c->q_lora) {
        MATRIX("self_attn.q_a_proj", c->q_lora, D, mla.q_a);
        VECTOR("self_attn.q_a_layernorm.weight", c->q_lora, mla.q_norm);
        MATRIX("self_attn.q_b_proj", H * qd, c->q_lora, mla.q_b);
    } else {
        MATRIX("self_attn.q_proj", H * qd, D, mla.q);
    }
    MATRIX("self_attn.kv_a_proj_with_mqa", c->kv_lora + c->rope_dim, D, mla.kv_a);
    VECTOR("self_attn.kv_a_layernorm.weight", c->kv_lora, mla.kv_norm);
    want(w, WEIGHTS_PLAIN, "self_attn.kv_b_proj", H * (c->nope_dim + c->v_dim), c->kv_lora,
         LAYER_FIELD(mla.kv_b));
    if (c->mla_gate) MATRIX("self_attn.g_proj", H * c->v_dim, D, mla.g);
    MATRIX("self_attn.o_proj", D, H * c->v_dim, mla.o);
}

static void want_mlp(struct wants *w, const char *base, uint32_t width)
{
    char name[96];
    uint32_t D = w->c->hidden;
    snprintf(name, sizeof name, "%sgate_proj", base);
    MATRIX(name, width, D, mlp.gate);
    snprintf(name, sizeof name, "%sup_proj", base);
    MATRIX(name, width, D, mlp.up);
    snprintf(name, sizeof name, "%sdown_proj", base);
    MATRIX(name, D, width, mlp.down);
}

static void want_moe(struct wants *w)
{
    const struct config *c = w->c;
    uint32_t D = c->hidden;
    MATRIX("block_sparse_moe.gate", c->experts, D, router);
    VECTOR("block_sparse_moe.gate.e_score_correction_bias", c->experts, router_bias);
    if (c->latent) {
        MATRIX("block_sparse_moe.routed_expert_down_proj", c->latent, D, latent_down);
        MATRIX("block_sparse_moe.routed_expert_up_proj", D, c->latent, latent_up);
        if (c->latent_norm)
            VECTOR("block_sparse_moe.routed_expert_norm.weight", c->latent, latent_norm);
    }
    if (c->shared_experts)
        want_mlp(w, "block_sparse_moe.shared_experts.", c->shared_experts * c->expert_width);
}

static void want_layer(struct wants *w, const struct config *c, unsigned layer)
{
    *w = (struct wants){.c = c};
    snprintf(w->prefix, sizeof w->prefix, "%smodel.layers.%u.", c->text_prefix, layer);
    uint32_t D = c->hidden;
    VECTOR("input_layernorm.weight", D, input_norm);
    VECTOR("post_attention_layernorm.weight", D, post_norm);
    if (c->attn_res_period) {
        VECTOR("self_attention_res_norm.weight", D, attn_res);
        VECTOR("self_attention_res_proj.weight", D, attn_res);
        VECTOR("mlp_res_norm.weight", D, mlp_res);
        VECTOR("mlp_res_proj.weight", D, mlp_res);
    }
    if (c->kind[layer] == LAYER_KDA)
        want_kda(w);
    else
        want_mla(w);
    if (c->is_moe[layer])
        want_moe(w);
    else
        want_mlp(w, "mlp.", c->dense_width);
}

#define GLOBAL(kind, suffix, out, in, f)                                                           \
    want(w, kind, suffix, out, in, offsetof(struct global_weights, f))

static void want_global(struct wants *w, const struct config *c)
{
    *w = (struct wants){.c = c};
    snprintf(w->prefix, sizeof w->prefix, "%s", c->text_prefix);
    GLOBAL(WEIGHTS_LINEAR, "model.embed_tokens", c->vocab, c->hidden, embed);
    GLOBAL(WEIGHTS_LINEAR, "lm_head", c->vocab, c->hidden, head);
    GLOBAL(WEIGHTS_VECTOR, "model.norm.weight", c->hidden, 1, norm);
    if (c->attn_res_period) {
        GLOBAL(WEIGHTS_VECTOR, "model.output_attn_res_norm.weight", c->hidden, 1, out_res);
        GLOBAL(WEIGHTS_VECTOR, "model.output_attn_res_proj.weight", c->hidden, 1, out_res);
    }
}

static void wants_of(struct wants *w, const struct config *c, unsigned layer)
{
    if (layer == c->layers)
        want_global(w, c);
    else
        want_layer(w, c, layer);
}

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static unsigned unit_of(enum dtype type)
{
    return type == DT_F32 ? 4 : type == DT_BF16 ? 2 : 1;
}

static enum status bad_shape(const struct tensor_info *t, const struct want *w, struct err *e)
{
    char dims[128] = "";
    for (unsigned i = 0; i < t->dims; i++) {
        size_t n = strlen(dims);
        snprintf(dims + n, sizeof dims - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    if (w->kind == WEIGHTS_LINEAR || w->kind == WEIGHTS_PLAIN)
        return err_set(e, E_MODEL,
                       "tensor %s has shape [%s], expected a matrix [%u, %u] as F32, BF16 or MXFP4",
                       t->name, dims, w->out, w->in);
    return err_set(e, E_MODEL, "tensor %s has shape [%s], expected %s%u values as F32 or BF16",
                   t->name, dims, w->kind == WEIGHTS_PREFIX ? "at least " : "", w->out);
}

static bool is_matrix(const struct tensor_info *t, uint64_t out, uint64_t in)
{
    return t->dims == 2 && t->shape[0] == out && t->shape[1] == in;
}

static enum status find_matrix(const struct safetensors *s, const struct want *w,
                               struct weights_part *f, struct err *e)
{
    char name[192];
    snprintf(name, sizeof name, "%s.weight", w->name);
    f->main = safetensors_find(s, name);
    if (f->main) {
        f->type = f->main->type;
        bool ok = f->type == DT_F32 || f->type == DT_BF16;
        return ok && is_matrix(f->main, w->out, w->in) ? OK : bad_shape(f->main, w, e);
    }
    snprintf(name, sizeof name, "%s.weight_packed", w->name);
    f->main = safetensors_find(s, name);
    if (!f->main)
        return err_set(e, E_MODEL, "tensor %s.weight (or .weight_packed) is missing", w->name);
    snprintf(name, sizeof name, "%s.weight_scale", w->name);
    f->scale = safetensors_find(s, name);
    if (!f->scale) return err_set(e, E_MODEL, "tensor %s is missing", name);
    f->type = DT_MXFP4;
    if (w->in % 32 || f->main->type != DT_U8 || !is_matrix(f->main, w->out, w->in / 2))
        return bad_shape(f->main, w, e);
    if (f->scale->type != DT_U8 || !is_matrix(f->scale, w->out, w->in / 32))
        return bad_shape(f->scale, w, e);
    return OK;
}

static enum status find_vector(const struct safetensors *s, const struct want *w,
                               struct weights_part *f, struct err *e)
{
    f->main = safetensors_find(s, w->name);
    if (!f->main) return err_set(e, E_MODEL, "tensor %s is missing", w->name);
    f->type = f->main->type;
    if (f->type != DT_F32 && f->type != DT_BF16) return bad_shape(f->main, w, e);
    uint64_t n = f->main->bytes / (f->type == DT_F32 ? 4 : 2);
    bool ok = w->kind == WEIGHTS_PREFIX ? n >= w->out && n <= (uint64_t)w->out + 4096 : n == w->out;
    return ok ? OK : bad_shape(f->main, w, e);
}

static enum status find(const struct safetensors *s, const struct want *w, struct weights_part *f,
                        struct err *e)
{
    bool matrix = w->kind == WEIGHTS_LINEAR || w->kind == WEIGHTS_PLAIN;
    return matrix ? find_matrix(s, w, f, e) : find_vector(s, w, f, e);
}

/* Room for a tensor in the block: where it begins, and the end of what is written with it. */
static uint64_t place(const struct tensor_info *t, unsigned unit, uint64_t *end)
{
    uint64_t at = up(*end, 64);
    if (t->bytes < WEIGHTS_DIRECT || t->offset % unit) {
        *end = at + t->bytes;
        return at;
    }
    at = up(*end, OS_DIRECT_ALIGN) + t->offset % OS_DIRECT_ALIGN;
    *end = up(at + t->bytes, OS_DIRECT_ALIGN);
    return at;
}

/* A vector is stored as F32. */
static void place_part(struct weights_part *p, uint64_t *end)
{
    bool vector = p->kind == WEIGHTS_VECTOR || p->kind == WEIGHTS_PREFIX;
    if (vector || (p->kind == WEIGHTS_PLAIN && p->type == DT_MXFP4)) {
        p->at = up(*end, 64);
        *end = p->at + (uint64_t)p->out * p->in * (vector ? 4 : 2);
        return;
    }
    p->at = place(p->main, unit_of(p->type), end);
    if (p->scale) p->scale_at = place(p->scale, 1, end);
}

enum status weights_parts_of(struct weights_parts *p, const struct config *c,
                             const struct safetensors *s, unsigned layer, struct err *e)
{
    struct wants w;
    wants_of(&w, c, layer);
    *p = (struct weights_parts){.n = w.n};
    for (size_t i = 0; i < w.n; i++) {
        const struct want *x = &w.at[i];
        struct weights_part *to = &p->part[i];
        *to = (struct weights_part){.kind = x->kind, .out = x->out, .in = x->in, .field = x->field};
        enum status rc = find(s, x, to, e);
        if (rc) return rc;
        place_part(to, &p->bytes);
    }
    p->bytes = up(p->bytes, 64);
    return OK;
}

enum status weights_bytes(const struct config *c, const struct safetensors *s, unsigned layer,
                          uint64_t *bytes, struct err *e)
{
    struct weights_parts p;
    enum status rc = weights_parts_of(&p, c, s, layer, e);
    *bytes = p.bytes + OS_DIRECT_ALIGN;
    return rc;
}

/* A tensor to where place() put it. */
static enum status read_tensor(const struct safetensors *s, const struct tensor_info *t, char *dst,
                               struct err *e)
{
    uint64_t before = t->offset % OS_DIRECT_ALIGN;
    bool placed = t->bytes >= WEIGHTS_DIRECT && (uintptr_t)dst % OS_DIRECT_ALIGN == before;
    if (!placed || !safetensors_direct(s, t->file)) return safetensors_read(s, t, dst, e);
    size_t got;
    enum status rc = safetensors_read_raw(s, t->file, t->offset - before, dst - before,
                                          up(before + t->bytes, OS_DIRECT_ALIGN), &got, e);
    assert(rc || got >= before + t->bytes);
    if (rc) err_wrap(e, "tensor %s", t->name);
    return rc;
}

/* Reads a vector as F32, its first n values. */
static enum status load_vector(const struct safetensors *s, const struct weights_part *p,
                               float *dst, struct err *e)
{
    const struct tensor_info *t = p->main;
    void *raw = malloc(t->bytes);
    if (!raw) return err_set(e, E_NOMEM, "tensor %s: no memory", t->name);
    enum status rc = safetensors_read(s, t, raw, e);
    if (!rc && p->type == DT_F32) memcpy(dst, raw, p->out * sizeof(float));
    if (!rc && p->type == DT_BF16)
        for (uint32_t i = 0; i < p->out; i++) dst[i] = bf16_to_f32(((uint16_t *)raw)[i]);
    for (uint32_t i = 0; !rc && i < p->out; i++)
        if (!isfinite(dst[i]))
            rc = err_set(e, E_MODEL, "tensor %s: value %u is not finite", t->name, i);
    free(raw);
    return rc;
}

static enum status check_scales(const struct tensor_info *t, const void *scale, struct err *e)
{
    if (memchr(scale, 255, t->bytes))
        return err_set(e, E_MODEL, "tensor %s holds the scale code 255 (not a number)", t->name);
    return OK;
}

/* MXFP4 to BF16, which is exact (kimi-k3 1.4). */
static enum status load_expanded(const struct safetensors *s, const struct weights_part *p,
                                 struct mem *mem, uint16_t *dst, struct err *e)
{
    uint8_t *raw;
    enum status rc = mem_array(mem, &raw, 1, p->main->bytes + p->scale->bytes, p->main->name, e);
    if (rc) return rc;
    float *row = malloc(p->in * sizeof *row);
    if (!row) rc = err_set(e, E_NOMEM, "tensor %s: no memory", p->main->name);
    if (!rc) rc = safetensors_read(s, p->main, raw, e);
    if (!rc) rc = safetensors_read(s, p->scale, raw + p->main->bytes, e);
    if (!rc) rc = check_scales(p->scale, raw + p->main->bytes, e);
    struct linear l = {DT_MXFP4, p->out, p->in, raw, raw + p->main->bytes};
    for (uint32_t o = 0; !rc && o < p->out; o++) {
        linear_row(&l, o, row);
        for (uint32_t i = 0; i < p->in; i++) dst[(size_t)o * p->in + i] = f32_to_bf16(row[i]);
    }
    free(row);
    mem_free(mem, raw);
    return rc;
}

enum status weights_part_load(const struct weights_source *s, const struct weights_part *p,
                              char *block, uint64_t *bytes, struct err *e)
{
    char *at = block + p->at;
    *bytes = p->main->bytes + (p->scale ? p->scale->bytes : 0);
    if (p->kind == WEIGHTS_VECTOR || p->kind == WEIGHTS_PREFIX)
        return load_vector(s->files, p, (float *)(void *)at, e);
    if (p->kind == WEIGHTS_PLAIN && p->type == DT_MXFP4)
        return load_expanded(s->files, p, s->mem, (uint16_t *)(void *)at, e);
    enum status rc = read_tensor(s->files, p->main, at, e);
    if (rc || !p->scale) return rc;
    rc = read_tensor(s->files, p->scale, block + p->scale_at, e);
    return rc ? rc : check_scales(p->scale, block + p->scale_at, e);
}

static void point_matrix(const struct weights_part *p, char *block, struct linear *l)
{
    *l = (struct linear){.type = p->type, .out = p->out, .in = p->in, .w = block + p->at};
    if (p->kind == WEIGHTS_PLAIN && p->type == DT_MXFP4)
        l->type = DT_BF16;
    else if (p->scale)
        l->scale = (uint8_t *)block + p->scale_at;
}

/* Two vectors with one field are multiplied into the first: norm weight times projection (AttnRes).
 */
static void point_fields(const struct weights_parts *p, char *block, char *base)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct weights_part *x = &p->part[i];
        if (x->kind == WEIGHTS_LINEAR || x->kind == WEIGHTS_PLAIN) {
            point_matrix(x, block, (struct linear *)(void *)(base + x->field));
            continue;
        }
        float **field = (float **)(void *)(base + x->field), *v = (float *)(void *)(block + x->at);
        if (i && p->part[i - 1].field == x->field)
            for (uint32_t d = 0; d < x->out; d++) (*field)[d] *= v[d];
        else
            *field = v;
    }
}

/* Turns the key part of kv_b round in place, head by head: [nope][kv_lora] becomes [kv_lora][nope].
 */
static enum status transpose_keys(const struct config *c, struct linear *kv_b, struct err *e)
{
    size_t unit = kv_b->type == DT_F32 ? 4 : 2, n = c->nope_dim, m = c->kv_lora;
    char *tmp = malloc(n * m * unit);
    if (!tmp) return err_set(e, E_NOMEM, "kv_b_proj: no memory");
    for (uint32_t h = 0; h < c->mla_heads; h++) {
        char *head = (char *)(uintptr_t)kv_b->w + (size_t)h * (c->nope_dim + c->v_dim) * m * unit;
        memcpy(tmp, head, n * m * unit);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < m; j++)
                memcpy(head + (j * n + i) * unit, tmp + (i * m + j) * unit, unit);
    }
    free(tmp);
    return OK;
}

enum status weights_layer_ready(const struct config *c, const struct weights_parts *p, char *block,
                                unsigned layer, struct layer_weights *l, struct err *e)
{
    point_fields(p, block, (char *)l);
    if (c->kind[layer] == LAYER_MLA) return transpose_keys(c, &l->mla.kv_b, e);
    float *a = (float *)(uintptr_t)l->kda.a;
    for (uint32_t h = 0; h < c->kda_heads; h++) a[h] = expf(a[h]);
    return OK;
}

void weights_global_ready(const struct weights_parts *p, char *block, struct global_weights *g)
{
    point_fields(p, block, (char *)g);
}
