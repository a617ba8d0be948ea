/* Wants, their sizes, and loading them into one block per layer. */
#include "src/weights_load.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum want_kind {
    WANT_LINEAR, /* matrix as stored */
    WANT_PLAIN,  /* matrix, MXFP4 expanded to BF16 */
    WANT_VECTOR, /* F32 vector of exactly n */
    WANT_PREFIX  /* F32 vector, the first n of at least n (padded A_log) */
};

struct want {
    char name[160];
    enum want_kind kind;
    uint32_t out, in; /* a vector has in 1 */
    size_t field;     /* offset in struct layer_weights or struct global_weights */
};

#define MAX_WANTS 40

struct wants {
    const struct config *c;
    char prefix[96];
    struct want at[MAX_WANTS];
    size_t n;
};

static void want(struct wants *w, enum want_kind kind, const char *suffix, uint32_t out,
                 uint32_t in, size_t field)
{
    assert(w->n < MAX_WANTS);
    struct want *x = &w->at[w->n++];
    *x = (struct want){.kind = kind, .out = out, .in = in, .field = field};
    snprintf(x->name, sizeof x->name, "%s%s", w->prefix, suffix);
}

#define LAYER_FIELD(f)             offsetof(struct layer_weights, f)
#define MATRIX(suffix, out, in, f) want(w, WANT_LINEAR, suffix, out, in, LAYER_FIELD(f))
#define VECTOR(suffix, n, f)       want(w, WANT_VECTOR, suffix, n, 1, LAYER_FIELD(f))

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
    want(w, WANT_PREFIX, "self_attn.A_log", c->kda_heads, 1, LAYER_FIELD(kda.a));
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
    want(w, WANT_PLAIN, "self_attn.kv_b_proj", H * (c->nope_dim + c->v_dim), c->kv_lora,
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
    GLOBAL(WANT_LINEAR, "model.embed_tokens", c->vocab, c->hidden, embed);
    GLOBAL(WANT_LINEAR, "lm_head", c->vocab, c->hidden, head);
    GLOBAL(WANT_VECTOR, "model.norm.weight", c->hidden, 1, norm);
    if (c->attn_res_period) {
        GLOBAL(WANT_VECTOR, "model.output_attn_res_norm.weight", c->hidden, 1, out_res);
        GLOBAL(WANT_VECTOR, "model.output_attn_res_proj.weight", c->hidden, 1, out_res);
    }
}

static void wants_of(struct wants *w, const struct config *c, unsigned layer)
{
    if (layer == c->layers)
        want_global(w, c);
    else
        want_layer(w, c, layer);
}

/* Where one want lives in the files, checked against its shape. */
struct found {
    enum dtype type;
    const struct tensor_info *main, *scale;
};

static enum status bad_shape(const struct tensor_info *t, const struct want *w, struct err *e)
{
    char dims[128] = "";
    for (unsigned i = 0; i < t->dims; i++) {
        size_t n = strlen(dims);
        snprintf(dims + n, sizeof dims - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    if (w->kind == WANT_LINEAR || w->kind == WANT_PLAIN)
        return err_set(e, E_MODEL,
                       "tensor %s has shape [%s], expected a matrix [%u, %u] as F32, BF16 or MXFP4",
                       t->name, dims, w->out, w->in);
    return err_set(e, E_MODEL, "tensor %s has shape [%s], expected %s%u values as F32 or BF16",
                   t->name, dims, w->kind == WANT_PREFIX ? "at least " : "", w->out);
}

static bool is_matrix(const struct tensor_info *t, uint64_t out, uint64_t in)
{
    return t->dims == 2 && t->shape[0] == out && t->shape[1] == in;
}

static enum status find_matrix(const struct safetensors *s, const struct want *w, struct found *f,
                               struct err *e)
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

static enum status find_vector(const struct safetensors *s, const struct want *w, struct found *f,
                               struct err *e)
{
    f->main = safetensors_find(s, w->name);
    if (!f->main) return err_set(e, E_MODEL, "tensor %s is missing", w->name);
    f->type = f->main->type;
    if (f->type != DT_F32 && f->type != DT_BF16) return bad_shape(f->main, w, e);
    uint64_t n = f->main->bytes / (f->type == DT_F32 ? 4 : 2);
    bool ok = w->kind == WANT_PREFIX ? n >= w->out && n <= (uint64_t)w->out + 4096 : n == w->out;
    return ok ? OK : bad_shape(f->main, w, e);
}

static enum status find(const struct safetensors *s, const struct want *w, struct found *f,
                        struct err *e)
{
    *f = (struct found){0};
    bool matrix = w->kind == WANT_LINEAR || w->kind == WANT_PLAIN;
    return matrix ? find_matrix(s, w, f, e) : find_vector(s, w, f, e);
}

static uint64_t up64(uint64_t n)
{
    return (n + 63) & ~(uint64_t)63;
}

/* Bytes in the block: weights, scales, each aligned. A vector is stored as F32. */
static uint64_t want_bytes(const struct want *w, const struct found *f)
{
    if (w->kind == WANT_VECTOR || w->kind == WANT_PREFIX)
        return up64((uint64_t)w->out * sizeof(float));
    if (w->kind == WANT_PLAIN && f->type == DT_MXFP4) return up64((uint64_t)w->out * w->in * 2);
    return up64(f->main->bytes) + (f->scale ? up64(f->scale->bytes) : 0);
}

enum status weights_bytes(const struct config *c, const struct safetensors *s, unsigned layer,
                          uint64_t *bytes, struct err *e)
{
    struct wants w;
    wants_of(&w, c, layer);
    *bytes = 0;
    for (size_t i = 0; i < w.n; i++) {
        struct found f;
        enum status rc = find(s, &w.at[i], &f, e);
        if (rc) return rc;
        *bytes += want_bytes(&w.at[i], &f);
    }
    return OK;
}

/* Reads a vector as F32, its first n values. */
static enum status load_vector(const struct safetensors *s, const struct found *f, float *dst,
                               uint32_t n, struct err *e)
{
    void *raw = malloc(f->main->bytes);
    if (!raw) return err_set(e, E_NOMEM, "tensor %s: no memory", f->main->name);
    enum status rc = safetensors_read(s, f->main, raw, e);
    if (!rc && f->type == DT_F32) memcpy(dst, raw, n * sizeof(float));
    if (!rc && f->type == DT_BF16)
        for (uint32_t i = 0; i < n; i++) dst[i] = bf16_to_f32(((uint16_t *)raw)[i]);
    for (uint32_t i = 0; !rc && i < n; i++)
        if (!isfinite(dst[i]))
            rc = err_set(e, E_MODEL, "tensor %s: value %u is not finite", f->main->name, i);
    free(raw);
    return rc;
}

static enum status check_scales(const struct tensor_info *t, const uint8_t *scale, struct err *e)
{
    if (memchr(scale, 255, t->bytes))
        return err_set(e, E_MODEL, "tensor %s holds the scale code 255 (not a number)", t->name);
    return OK;
}

/* MXFP4 to BF16, which is exact (kimi-k3 1.4). */
static enum status load_expanded(const struct safetensors *s, const struct want *w,
                                 const struct found *f, struct mem *mem, uint16_t *dst,
                                 struct err *e)
{
    uint8_t *raw;
    enum status rc = mem_array(mem, &raw, 1, f->main->bytes + f->scale->bytes, f->main->name, e);
    if (rc) return rc;
    float *row = malloc(w->in * sizeof *row);
    if (!row) rc = err_set(e, E_NOMEM, "tensor %s: no memory", f->main->name);
    if (!rc) rc = safetensors_read(s, f->main, raw, e);
    if (!rc) rc = safetensors_read(s, f->scale, raw + f->main->bytes, e);
    if (!rc) rc = check_scales(f->scale, raw + f->main->bytes, e);
    struct linear l = {DT_MXFP4, w->out, w->in, raw, raw + f->main->bytes};
    for (uint32_t o = 0; !rc && o < w->out; o++) {
        linear_row(&l, o, row);
        for (uint32_t i = 0; i < w->in; i++) dst[(size_t)o * w->in + i] = f32_to_bf16(row[i]);
    }
    free(row);
    mem_free(mem, raw);
    return rc;
}

static enum status load_matrix(const struct weights_source *ws, const struct want *w,
                               const struct found *f, char *at, struct linear *l, struct err *e)
{
    *l = (struct linear){.type = f->type, .out = w->out, .in = w->in, .w = at};
    if (w->kind == WANT_PLAIN && f->type == DT_MXFP4) {
        l->type = DT_BF16;
        return load_expanded(ws->files, w, f, ws->mem, (uint16_t *)at, e);
    }
    enum status rc = safetensors_read(ws->files, f->main, at, e);
    if (rc || !f->scale) return rc;
    uint8_t *scale = (uint8_t *)at + up64(f->main->bytes);
    l->scale = scale;
    rc = safetensors_read(ws->files, f->scale, scale, e);
    return rc ? rc : check_scales(f->scale, scale, e);
}

/* Loads every want into the block and points the fields of base at it. Two vectors with one field
 * are multiplied into the first: norm weight times projection (AttnRes). */
static enum status load_wants(const struct weights_source *ws, const struct wants *w, char *block,
                              void *base, struct err *e)
{
    char *at = block;
    for (size_t i = 0; i < w->n; i++) {
        const struct want *x = &w->at[i];
        struct found f;
        enum status rc = find(ws->files, x, &f, e);
        if (rc) return rc;
        if (x->kind == WANT_LINEAR || x->kind == WANT_PLAIN) {
            rc = load_matrix(ws, x, &f, at, (struct linear *)((char *)base + x->field), e);
        } else {
            float **field = (float **)((char *)base + x->field);
            rc = load_vector(ws->files, &f, (float *)at, x->out, e);
            bool second = i && w->at[i - 1].field == x->field;
            if (second)
                for (uint32_t d = 0; d < x->out; d++) (*field)[d] *= ((float *)at)[d];
            else
                *field = (float *)at;
        }
        if (rc) return rc;
        at += want_bytes(x, &f);
    }
    return OK;
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

enum status weights_load_layer(const struct weights_source *s, unsigned layer, void *block,
                               struct layer_weights *l, struct err *e)
{
    const struct config *c = s->config;
    struct wants w;
    want_layer(&w, c, layer);
    enum status rc = load_wants(s, &w, block, l, e);
    if (rc) return rc;
    if (c->kind[layer] == LAYER_MLA) return transpose_keys(c, &l->mla.kv_b, e);
    float *a = (float *)(uintptr_t)l->kda.a;
    for (uint32_t h = 0; h < c->kda_heads; h++) a[h] = expf(a[h]);
    return OK;
}

enum status weights_load_global(const struct weights_source *s, void *block,
                                struct global_weights *g, struct err *e)
{
    struct wants w;
    want_global(&w, s->config);
    return load_wants(s, &w, block, g, e);
}
