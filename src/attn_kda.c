/* KDA: all projections over all rows first, then each (sequence, head) walks its rows in order,
 * alone.
 *
 * The recurrent form serves prefill and decode alike, so a row's result does not depend on chunk
 * borders. */
#include "src/attn_kda.h"

#include <math.h>
#include <string.h>

#define L2_EPS 1e-6f

struct bufs {
    float *qkv;   /* [rows][3][C] pre-filter */
    float *gate;  /* [rows][C] */
    float *decay; /* [rows][C] */
    float *low;   /* [rows][dim] */
    float *beta;  /* [rows][heads] */
    float *out;   /* [rows][C] */
    float *task;  /* [threads][4 * dim]: q, k, v, delta */
    float *copy;  /* [threads][dim * dim]: the matrix that drafts walk on */
};

static void layout(struct bufs *b, struct arena *a, const struct config *k, size_t rows,
                   unsigned threads)
{
    uint64_t C = (uint64_t)k->kda_heads * k->kda_dim;
    b->qkv = arena_floats(a, rows * 3 * C);
    b->gate = arena_floats(a, rows * C);
    b->decay = arena_floats(a, rows * C);
    b->low = arena_floats(a, (uint64_t)rows * k->kda_dim);
    b->beta = arena_floats(a, (uint64_t)rows * k->kda_heads);
    b->out = arena_floats(a, rows * C);
    b->task = arena_floats(a, (uint64_t)threads * 4 * k->kda_dim);
    b->copy = arena_floats(a, (uint64_t)threads * k->kda_dim * k->kda_dim);
}

uint64_t attn_kda_scratch(const struct config *k, size_t rows, unsigned threads)
{
    struct arena count = {0};
    struct bufs b;
    layout(&b, &count, k, rows, threads);
    return count.peak;
}

struct walk {
    const struct compute *c;
    const struct config *k;
    const struct kda_weights *w;
    unsigned n;
    const struct batch *b;
    unsigned depth; /* of the spans whose turn it is */
    struct bufs buf;
};

/* One filtered stream of one head for row r of a span: sum of conv taps over this row and the ones
 * before, SiLU. Rows before the span come from the window. */
static void filter(const struct walk *k, const struct span *s, size_t r, unsigned stream,
                   unsigned head, float *y)
{
    const struct config *cfg = k->k;
    size_t dim = cfg->kda_dim, C = cfg->kda_heads * dim, at = stream * C + head * dim,
           back = cfg->conv - 1;
    const float *window = state_conv(s->state, cfg, k->n);
    const float *const taps[3] = {k->w->conv_q, k->w->conv_k, k->w->conv_v};
    const float *tap = taps[stream] + head * dim * cfg->conv;
    memset(y, 0, dim * sizeof *y);
    for (size_t j = 0; j <= back; j++) {
        size_t t = r + j; /* row t - back of the span; below back: row t of the window */
        const float *u =
            t < back ? window + t * 3 * C + at : k->buf.qkv + (s->first + t - back) * 3 * C + at;
        for (size_t i = 0; i < dim; i++) y[i] += tap[i * cfg->conv + j] * u[i];
    }
    k->c->kern->silu(y, y, NULL, dim);
}

/* The window of one head moves on by n rows: the last conv - 1 of (window, rows), all three
 * streams. Row t is at rows + t * stride, laid out [3][C]. */
static void move_window(const struct config *cfg, float *window, const float *rows, size_t stride,
                        size_t n, unsigned head)
{
    size_t dim = cfg->kda_dim, C = cfg->kda_heads * dim, back = cfg->conv - 1;
    for (size_t j = 0; j < back; j++) {
        size_t t = n + j;
        const float *from = t < back ? window + t * 3 * C : rows + (t - back) * stride;
        for (unsigned stream = 0; stream < 3; stream++)
            memcpy(window + j * 3 * C + stream * C + head * dim, from + stream * C + head * dim,
                   dim * sizeof(float));
    }
}

static void l2_norm(const struct kern *kern, float *x, size_t n, float scale)
{
    float s = scale / sqrtf(kern->dot(x, x, n) + L2_EPS);
    for (size_t i = 0; i < n; i++) x[i] *= s;
}

/* log decay to decay factor, in place: exp(lower * sig(a z)) or exp(-a softplus(z)) with z = g +
 * dt_bias. */
static void decay_factors(const struct walk *k, unsigned head, float *g)
{
    const struct config *cfg = k->k;
    size_t dim = cfg->kda_dim;
    const float *dt = k->w->dt_bias + head * dim;
    float a = k->w->a[head];
    for (size_t i = 0; i < dim; i++) {
        float z = g[i] + dt[i];
        if (cfg->kda_bounded)
            g[i] = expf(cfg->kda_lower_bound / (1.0f + expf(-a * z)));
        else
            g[i] = expf(-a * (z > 20 ? z : log1pf(expf(z))));
    }
}

/* Filtered and normalised q, k, v of row r of a span, and its decay factors (in place in
 * buf.decay). */
static void prepare_row(const struct walk *k, const struct span *s, size_t r, unsigned head,
                        float *q)
{
    const struct kern *kern = k->c->kern;
    size_t dim = k->k->kda_dim, C = k->k->kda_heads * dim;
    float *key = q + dim, *v = key + dim;
    filter(k, s, r, 0, head, q);
    filter(k, s, r, 1, head, key);
    filter(k, s, r, 2, head, v);
    l2_norm(kern, q, dim, 1.0f / sqrtf((float)dim));
    l2_norm(kern, key, dim, 1);
    decay_factors(k, head, k->buf.decay + (s->first + r) * C + head * dim);
}

static void log_draft(const struct walk *k, size_t row, size_t log_row, unsigned head,
                      const float *key, const float *v)
{
    const struct config *cfg = k->k;
    size_t dim = cfg->kda_dim, C = cfg->kda_heads * dim, bytes = dim * sizeof(float);
    float *to = draft_log_row(&k->b->log, cfg, k->n, log_row);
    for (unsigned stream = 0; stream < 3; stream++)
        memcpy(to + stream * C + head * dim, k->buf.qkv + (row * 3 + stream) * C + head * dim,
               bytes);
    memcpy(to + 3 * C + head * dim, key, bytes);
    memcpy(to + 4 * C + head * dim, v, bytes);
    memcpy(to + 5 * C + head * dim, k->buf.decay + row * C + head * dim, bytes);
    to[6 * C + head] = k->buf.beta[row * cfg->kda_heads + head];
}

/* One head of the state that a span builds upon. */
static void branch_head(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct walk *k = ctx;
    const struct config *cfg = k->k;
    const struct span *s = &k->b->spans[task / cfg->kda_heads];
    unsigned head = (unsigned)(task % cfg->kda_heads);
    size_t dim = cfg->kda_dim, at = head * dim * dim, back = cfg->conv - 1;
    if (s->depth != k->depth || !s->from) return;
    memcpy(state_kda(s->state, cfg, k->n) + at, state_kda(s->from, cfg, k->n) + at,
           dim * dim * sizeof(float));
    move_window(cfg, state_conv(s->state, cfg, k->n), state_conv(s->from, cfg, k->n),
                3 * cfg->kda_heads * dim, back, head);
}

/* All rows of one (span, head). */
static void walk_head(void *ctx, size_t task, unsigned thread)
{
    const struct walk *k = ctx;
    const struct config *cfg = k->k;
    const struct kern *kern = k->c->kern;
    const struct span *s = &k->b->spans[task / cfg->kda_heads];
    unsigned head = (unsigned)(task % cfg->kda_heads);
    size_t dim = cfg->kda_dim, C = cfg->kda_heads * dim;
    float *q = k->buf.task + thread * 4 * dim, *key = q + dim, *v = key + dim, *d = v + dim;
    float *S = state_kda(s->state, cfg, k->n) + head * dim * dim;
    if (s->depth != k->depth || !s->n) return;

    for (size_t r = 0; r < s->n; r++) {
        size_t row = s->first + r;
        float *out = k->buf.out + row * C + head * dim, *gate = k->buf.gate + row * C + head * dim;
        const float *decay = k->buf.decay + row * C + head * dim;
        prepare_row(k, s, r, head, q);
        if (r == s->sure) S = memcpy(k->buf.copy + thread * dim * dim, S, dim * dim * sizeof *S);
        if (r >= s->sure) log_draft(k, row, s->log_row + r - s->sure, head, key, v);
        kern->delta_step(S, dim, dim, decay, key, v, k->buf.beta[row * cfg->kda_heads + head], q,
                         out, d);
        kern->rms(out, out, k->w->o_norm, dim, cfg->eps);
        kern->sigmoid(gate, dim);
        for (size_t i = 0; i < dim; i++) out[i] *= gate[i];
    }
    move_window(cfg, state_conv(s->state, cfg, k->n), k->buf.qkv + s->first * 3 * C, 3 * C, s->sure,
                head);
}

struct accept {
    const struct compute *c;
    const struct config *k;
    const struct draft_log *log;
    const struct span *s;
    size_t n;
    float *scratch;
};

/* Replays the accepted drafts of one (layer, head). What delta_step gives out is of no interest
 * here. */
static void accept_head(void *ctx, size_t task, unsigned thread)
{
    const struct accept *a = ctx;
    const struct config *cfg = a->k;
    unsigned layer = (unsigned)(task / cfg->kda_heads), head = (unsigned)(task % cfg->kda_heads);
    size_t dim = cfg->kda_dim, C = cfg->kda_heads * dim;
    float *S = state_kda(a->s->state, cfg, layer) + head * dim * dim;
    float *out = a->scratch + thread * 3 * dim, *d = out + dim;
    const float *rows = draft_log_row(a->log, cfg, layer, a->s->log_row);
    for (size_t i = 0; i < a->n; i++) {
        const float *row = rows + i * draft_log_width(cfg), *key = row + 3 * C + head * dim;
        a->c->kern->delta_step(S, dim, dim, key + 2 * C, key, key + C, row[6 * C + head], key, out,
                               d);
    }
    move_window(cfg, state_conv(a->s->state, cfg, layer), rows, draft_log_width(cfg), a->n, head);
}

void attn_kda_accept(const struct compute *c, const struct config *k, const struct draft_log *log,
                     const struct span *s, size_t n, float *scratch)
{
    struct accept a = {c, k, log, s, n, scratch};
    pool_run(c->pool, (size_t)config_layers_of(k, LAYER_KDA) * k->kda_heads, accept_head, &a);
    s->state->length += n;
}

static void project(const struct compute *c, const struct config *k, const struct kda_weights *w,
                    size_t rows, const float *x, const struct bufs *b)
{
    size_t D = k->hidden, C = (size_t)k->kda_heads * k->kda_dim, dim = k->kda_dim;
    linear_apply(c, &w->q, b->qkv, 3 * C, x, D, rows);
    linear_apply(c, &w->k, b->qkv + C, 3 * C, x, D, rows);
    linear_apply(c, &w->v, b->qkv + 2 * C, 3 * C, x, D, rows);
    if (k->kda_full_gate) {
        linear_apply(c, &w->g, b->gate, C, x, D, rows);
    } else {
        linear_apply(c, &w->g_a, b->low, dim, x, D, rows);
        round_bf16(c, b->low, rows * dim);
        linear_apply(c, &w->g_b, b->gate, C, b->low, dim, rows);
    }
    linear_apply(c, &w->f_a, b->low, dim, x, D, rows);
    round_bf16(c, b->low, rows * dim);
    linear_apply(c, &w->f_b, b->decay, C, b->low, dim, rows);
    linear_apply(c, &w->b, b->beta, k->kda_heads, x, D, rows);
    c->kern->sigmoid(b->beta, rows * k->kda_heads);
}

void attn_kda(const struct compute *c, const struct config *k, const struct kda_weights *w,
              unsigned n, const struct batch *b, const float *x, float *y, struct arena *a)
{
    uint64_t mark = a->at;
    size_t C = (size_t)k->kda_heads * k->kda_dim;
    struct walk walk = {.c = c, .k = k, .w = w, .n = n, .b = b};
    layout(&walk.buf, a, k, b->rows, pool_threads(c->pool));
    project(c, k, w, b->rows, x, &walk.buf);
    for (; walk.depth < b->depths; walk.depth++) {
        if (walk.depth) pool_run(c->pool, b->n_spans * k->kda_heads, branch_head, &walk);
        pool_run(c->pool, b->n_spans * k->kda_heads, walk_head, &walk);
    }
    round_bf16(c, walk.buf.out, b->rows * C);
    linear_apply(c, &w->o, y, k->hidden, walk.buf.out, C, b->rows);
    a->at = mark;
}
