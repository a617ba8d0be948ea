/* MLA: keys and values stay in latent form. Per head the query is carried into latent space, scores
 * are products with the cached latents, and the mixed latent is carried out through the value part
 * of kv_b. */
#include "src/attn_mla.h"

#include <math.h>
#include <string.h>

#define HEADS_AT_ONCE 8

struct bufs {
    float *qa;     /* [rows][q_lora] */
    float *q;      /* [rows][heads][nope + rope] */
    float *kv;     /* [rows][kv_lora + rope] */
    float *query;  /* [rows][heads][kv_lora + rope]: query in latent space | rope part */
    float *mixed;  /* [rows][heads][kv_lora] */
    float *out;    /* [rows][heads][v] */
    float *gate;   /* [rows][heads][v] */
    float *scores; /* [threads][HEADS_AT_ONCE][context] */
    size_t context;
};

static void layout(struct bufs *b, struct arena *a, const struct config *k, size_t rows,
                   unsigned threads)
{
    uint64_t H = k->mla_heads, W = k->kv_lora + k->rope_dim;
    b->qa = arena_floats(a, (uint64_t)rows * k->q_lora);
    b->q = arena_floats(a, rows * H * (k->nope_dim + k->rope_dim));
    b->kv = arena_floats(a, rows * W);
    b->query = arena_floats(a, rows * H * W);
    b->mixed = arena_floats(a, rows * H * k->kv_lora);
    b->out = arena_floats(a, rows * H * k->v_dim);
    b->gate = arena_floats(a, k->mla_gate ? rows * H * k->v_dim : 0);
    b->scores = arena_floats(a, (uint64_t)threads * HEADS_AT_ONCE * b->context);
}

uint64_t attn_mla_scratch(const struct config *k, size_t rows, size_t context, unsigned threads)
{
    struct arena count = {0};
    struct bufs b = {.context = context};
    layout(&b, &count, k, rows, threads);
    return count.peak;
}

struct attend {
    const struct compute *c;
    const struct config *k;
    const struct mla_weights *w;
    unsigned n;
    const struct batch *b;
    struct bufs buf;
};

/* kv_b of one head: its transposed key part [kv_lora][nope] or its value part [v][kv_lora]. */
static struct linear head_part(const struct attend *m, size_t head, bool value)
{
    const struct config *k = m->k;
    size_t unit = m->w->kv_b.type == DT_F32 ? 4 : 2, L = k->kv_lora;
    size_t at = head * (k->nope_dim + k->v_dim) * L + (value ? (size_t)k->nope_dim * L : 0);
    struct linear l = {.type = m->w->kv_b.type, .w = (const char *)m->w->kv_b.w + at * unit};
    l.out = value ? k->v_dim : k->kv_lora;
    l.in = value ? k->kv_lora : k->nope_dim;
    return l;
}

static void absorb_head(void *ctx, size_t head, unsigned thread)
{
    (void)thread;
    const struct attend *m = ctx;
    const struct config *k = m->k;
    size_t H = k->mla_heads, qd = k->nope_dim + k->rope_dim, W = k->kv_lora + k->rope_dim;
    struct linear key = head_part(m, head, false);
    linear_part(m->c->kern, &key, m->buf.query + head * W, H * W, m->buf.q + head * qd, H * qd,
                m->b->rows, 0, key.out);
    for (size_t r = 0; r < m->b->rows; r++)
        memcpy(m->buf.query + (r * H + head) * W + k->kv_lora,
               m->buf.q + (r * H + head) * qd + k->nope_dim, k->rope_dim * sizeof(float));
}

static const struct span *span_of(const struct batch *b, size_t row)
{
    size_t lo = 0, hi = b->n_spans - 1;
    while (lo < hi) {
        size_t mid = (lo + hi + 1) / 2;
        if (b->spans[mid].first <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &b->spans[lo];
}

/* Up to HEADS_AT_ONCE heads of one row against all latents up to its own position. */
static void attend_row(void *ctx, size_t task, unsigned thread)
{
    const struct attend *m = ctx;
    const struct config *k = m->k;
    const struct kern *kern = m->c->kern;
    size_t H = k->mla_heads, blocks = (H + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE;
    size_t row = task / blocks, head = task % blocks * HEADS_AT_ONCE, W = k->kv_lora + k->rope_dim;
    size_t heads = H - head < HEADS_AT_ONCE ? H - head : HEADS_AT_ONCE;
    const struct span *s = span_of(m->b, row);
    size_t keys = s->start + (row - s->first) + 1;
    const float *latent = state_latent(s->state, k, m->n);
    float *scores = m->buf.scores + thread * HEADS_AT_ONCE * m->buf.context;
    float scale = 1.0f / sqrtf((float)(k->nope_dim + k->rope_dim));

    struct mm mm = {.y = scores, .ldy = m->buf.context, .w = latent, .cols = W};
    mm.x = m->buf.query + (row * H + head) * W;
    mm.ldx = W;
    mm.rows = heads;
    mm.last = keys;
    kern->mm_f32(&mm);
    for (size_t h = 0; h < heads; h++) {
        float *p = scores + h * m->buf.context,
              *mix = m->buf.mixed + (row * H + head + h) * k->kv_lora;
        for (size_t j = 0; j < keys; j++) p[j] *= scale;
        kern->softmax(p, keys);
        memset(mix, 0, k->kv_lora * sizeof *mix);
        for (size_t j = 0; j < keys; j++) kern->axpy(mix, p[j], latent + j * W, k->kv_lora);
    }
}

static void value_head(void *ctx, size_t head, unsigned thread)
{
    (void)thread;
    const struct attend *m = ctx;
    const struct config *k = m->k;
    size_t H = k->mla_heads, V = k->v_dim;
    struct linear value = head_part(m, head, true);
    linear_part(m->c->kern, &value, m->buf.out + head * V, H * V, m->buf.mixed + head * k->kv_lora,
                H * k->kv_lora, m->b->rows, 0, V);
}

static void project(const struct attend *m, const float *x)
{
    const struct compute *c = m->c;
    const struct config *k = m->k;
    const struct mla_weights *w = m->w;
    size_t rows = m->b->rows, D = k->hidden, W = k->kv_lora + k->rope_dim;
    size_t Q = (size_t)k->mla_heads * (k->nope_dim + k->rope_dim);
    if (k->q_lora) {
        linear_apply(c, &w->q_a, m->buf.qa, k->q_lora, x, D, rows);
        for (size_t r = 0; r < rows; r++) {
            float *qa = m->buf.qa + r * k->q_lora;
            c->kern->rms(qa, qa, w->q_norm, k->q_lora, k->latent_eps);
        }
        round_bf16(c, m->buf.qa, rows * k->q_lora);
        linear_apply(c, &w->q_b, m->buf.q, Q, m->buf.qa, k->q_lora, rows);
    } else {
        linear_apply(c, &w->q, m->buf.q, Q, x, D, rows);
    }
    round_bf16(c, m->buf.q, rows * Q);
    linear_apply(c, &w->kv_a, m->buf.kv, W, x, D, rows);
    for (size_t r = 0; r < rows; r++) {
        float *kv = m->buf.kv + r * W;
        c->kern->rms(kv, kv, w->kv_norm, k->kv_lora, k->latent_eps);
    }
    if (k->mla_gate) {
        linear_apply(c, &w->g, m->buf.gate, (size_t)k->mla_heads * k->v_dim, x, D, rows);
        c->kern->sigmoid(m->buf.gate, rows * k->mla_heads * k->v_dim);
    }
}

void attn_mla(const struct compute *c, const struct config *k, const struct mla_weights *w,
              unsigned n, const struct batch *b, const float *x, float *y, struct arena *a)
{
    uint64_t mark = a->at;
    size_t H = k->mla_heads, W = k->kv_lora + k->rope_dim, HV = H * k->v_dim, longest = 0;
    struct attend m = {.c = c, .k = k, .w = w, .n = n, .b = b};
    for (size_t i = 0; i < b->n_spans; i++)
        if (b->spans[i].start + b->spans[i].n > longest)
            longest = b->spans[i].start + b->spans[i].n;
    m.buf.context = longest;
    layout(&m.buf, a, k, b->rows, pool_threads(c->pool));

    project(&m, x);
    for (size_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        float *latent = state_latent(s->state, k, n);
        if (s->from) memcpy(latent, state_latent(s->from, k, n), s->start * W * sizeof(float));
        memcpy(latent + s->start * W, m.buf.kv + s->first * W, s->n * W * sizeof(float));
    }
    pool_run(c->pool, H, absorb_head, &m);
    pool_run(c->pool, b->rows * ((H + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE), attend_row, &m);
    round_bf16(c, m.buf.mixed, b->rows * H * k->kv_lora);
    pool_run(c->pool, H, value_head, &m);
    if (k->mla_gate)
        for (size_t i = 0; i < b->rows * HV; i++) m.buf.out[i] *= m.buf.gate[i];
    round_bf16(c, m.buf.out, b->rows * HV);
    linear_apply(c, &w->o, y, k->hidden, m.buf.out, HV, b->rows);
    a->at = mark;
}
