/* The residual stream of one sweep. The mixture is a sub-layer's input only; it is never added to
 * the live sum. */
#include "src/attn_res.h"

#include <math.h>
#include <string.h>

static size_t max_blocks(const struct config *c)
{
    return c->attn_res_period ? (c->layers + c->attn_res_period - 1) / c->attn_res_period : 0;
}

void residual_init(struct residual *r, const struct config *c, size_t rows, struct arena *a)
{
    *r = (struct residual){.rows = rows};
    r->live = arena_floats(a, (uint64_t)rows * c->hidden);
    r->blocks = arena_floats(a, (uint64_t)max_blocks(c) * rows * c->hidden);
}

struct mix {
    const struct compute *c;
    const struct config *k;
    const struct residual *r;
    const float *fold;
    float *out;
};

static const float *candidate(const struct residual *r, size_t i, size_t row, size_t width)
{
    return (i < r->n ? r->blocks + i * r->rows * width : r->live) + row * width;
}

static void mix_row(void *ctx, size_t row, unsigned thread)
{
    (void)thread;
    const struct mix *m = ctx;
    const struct kern *kern = m->c->kern;
    size_t D = m->k->hidden, n = m->r->n + 1;
    float s[CONFIG_MAX_LAYERS + 1], *out = m->out + row * D;
    for (size_t i = 0; i < n; i++) {
        const float *v = candidate(m->r, i, row, D);
        float mean = kern->dot(v, v, D) / (float)D;
        s[i] = kern->dot(v, m->fold, D) / sqrtf(mean + m->k->eps);
    }
    kern->softmax(s, n);
    memset(out, 0, D * sizeof *out);
    for (size_t i = 0; i < n; i++) kern->axpy(out, s[i], candidate(m->r, i, row, D), D);
}

void residual_mix(const struct compute *c, const struct config *k, const struct residual *r,
                  const float *fold, float *out)
{
    if (!fold || r->n == 0) {
        memcpy(out, r->live, r->rows * k->hidden * sizeof *out);
        return;
    }
    struct mix m = {c, k, r, fold, out};
    pool_run(c->pool, r->rows, mix_row, &m);
}

void residual_store(struct residual *r, const struct config *k, unsigned layer)
{
    if (!k->attn_res_period || layer % k->attn_res_period) return;
    size_t n = r->rows * k->hidden;
    memcpy(r->blocks + r->n * n, r->live, n * sizeof(float));
    r->n++;
    r->cleared = true;
}

void residual_add(struct residual *r, const struct config *k, const float *y)
{
    size_t n = r->rows * k->hidden;
    if (r->cleared) {
        memcpy(r->live, y, n * sizeof(float));
        r->cleared = false;
        return;
    }
    for (size_t i = 0; i < n; i++) r->live[i] += y[i];
}
