/* Mixture, attention, mixture, feed-forward: the order of kimi-k3 2.3. */
#include "src/layer.h"

#include "src/attn_kda.h"
#include "src/attn_mla.h"

struct norm {
    const struct compute *c;
    const struct config *k;
    const float *w;
    float *x;
};

static void norm_row(void *ctx, size_t row, unsigned thread)
{
    (void)thread;
    const struct norm *n = ctx;
    float *x = n->x + row * n->k->hidden;
    n->c->kern->rms(x, x, n->w, n->k->hidden, n->k->eps);
}

void layer_norm_rows(const struct compute *c, const struct config *k, const float *norm, float *x,
                     size_t rows)
{
    struct norm n = {c, k, norm, x};
    pool_run(c->pool, rows, norm_row, &n);
}

static void trace(const struct layer_run *r, const char *what, unsigned layer, const float *data)
{
    if (r->trace) r->trace(r->trace_user, what, layer, data, r->batch->rows, r->k->hidden);
}

enum status layer_forward(const struct layer_run *r, unsigned layer, unsigned nth,
                          const struct layer_weights *w, const struct layer_weights *next,
                          struct err *e)
{
    const struct config *k = r->k;
    residual_mix(r->c, k, r->residual, w->attn_res, r->x);
    trace(r, "attn_in", layer, r->x);
    residual_store(r->residual, k, layer);
    layer_norm_rows(r->c, k, w->input_norm, r->x, r->batch->rows);
    round_bf16(r->c, r->x, r->batch->rows * k->hidden);
    if (k->kind[layer] == LAYER_KDA)
        attn_kda(r->c, k, &w->kda, nth, r->batch, r->x, r->y, r->arena);
    else
        attn_mla(r->c, k, &w->mla, nth, r->batch, r->x, r->y, r->arena);
    trace(r, "attn", layer, r->y);
    residual_add(r->residual, k, r->y);

    residual_mix(r->c, k, r->residual, w->mlp_res, r->x);
    trace(r, "ffn_in", layer, r->x);
    layer_norm_rows(r->c, k, w->post_norm, r->x, r->batch->rows);
    struct moe_rows rows = {r->batch->rows, r->x, r->y, r->arena};
    enum status rc = moe_layer(r->moe, layer, w, next, &rows, e);
    if (rc) return rc;
    trace(r, "ffn", layer, r->y);
    residual_add(r->residual, k, r->y);
    trace(r, "hidden", layer, r->residual->live);
    return OK;
}
