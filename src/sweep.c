/* Embeds the rows, takes them through every layer, and gives logits for the rows that matter. */
#include "src/sweep.h"

#include "src/attn_kda.h"
#include "src/attn_mla.h"

#include <string.h>

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t sweep_bytes(const struct config *k, const struct sweep_size *s)
{
    struct arena count = {0};
    struct residual r;
    arena_floats(&count, (uint64_t)s->logits * k->vocab);
    arena_floats(&count, (uint64_t)s->logits * k->hidden);
    residual_init(&r, k, s->rows, &count);
    arena_floats(&count, (uint64_t)s->rows * k->hidden);
    arena_floats(&count, (uint64_t)s->rows * k->hidden);
    uint64_t sub = moe_scratch(k, s->rows);
    if (config_layers_of(k, LAYER_KDA)) sub = most(sub, attn_kda_scratch(k, s->rows, s->threads));
    if (config_layers_of(k, LAYER_MLA))
        sub = most(sub, attn_mla_scratch(k, s->rows, s->context, s->threads));
    return count.peak + sub;
}

static void embed(const struct sweep *s, const struct sweep_row *rows, size_t n, float *x)
{
    size_t D = s->k->hidden;
    for (size_t r = 0; r < n; r++) {
        if (rows[r].image)
            memcpy(x + r * D, rows[r].image, D * sizeof(float));
        else
            linear_row(&weights_global(s->weights)->embed, (size_t)rows[r].id, x + r * D);
    }
}

/* The final mixture, norm and head for the chosen rows. mixed: [rows][hidden] scratch. */
static void head(struct sweep *s, const struct residual *r, float *mixed, const size_t *out,
                 size_t n_out, float *picked, float *logits)
{
    const struct global_weights *g = weights_global(s->weights);
    size_t D = s->k->hidden;
    residual_mix(&s->c, s->k, r, g->out_res, mixed);
    if (s->trace) s->trace(s->trace_user, "final_in", s->k->layers, mixed, r->rows, D);
    for (size_t i = 0; i < n_out; i++)
        memcpy(picked + i * D, mixed + out[i] * D, D * sizeof(float));
    layer_norm_rows(&s->c, s->k, g->norm, picked, n_out);
    round_bf16(&s->c, picked, n_out * D);
    linear_apply(&s->c, &g->head, logits, s->k->vocab, picked, D, n_out);
}

enum status sweep_run(struct sweep *s, const struct batch *b, const struct sweep_row *rows,
                      const size_t *out, size_t n_out, float **logits, struct err *e)
{
    const struct config *k = s->k;
    s->arena.at = 0;
    float *logit_rows = arena_floats(&s->arena, (uint64_t)n_out * k->vocab);
    float *picked = arena_floats(&s->arena, (uint64_t)n_out * k->hidden);
    struct residual residual;
    residual_init(&residual, k, b->rows, &s->arena);
    struct layer_run run = {.c = &s->c, .k = k, .moe = &s->moe, .batch = b, .residual = &residual};
    run.x = arena_floats(&s->arena, (uint64_t)b->rows * k->hidden);
    run.y = arena_floats(&s->arena, (uint64_t)b->rows * k->hidden);
    run.arena = &s->arena;
    run.trace = s->trace;
    run.trace_user = s->trace_user;

    embed(s, rows, b->rows, residual.live);
    if (s->trace) s->trace(s->trace_user, "embed", 0, residual.live, b->rows, k->hidden);
    if (s->moe.cache) expert_cache_tick(s->moe.cache);
    unsigned nth[2] = {0, 0};
    for (unsigned layer = 0; layer < k->layers; layer++) {
        const struct layer_weights *w;
        enum status rc = weights_layer(s->weights, layer, &w, e);
        if (!rc)
            rc = layer_forward(&run, layer, nth[k->kind[layer]]++, w,
                               weights_pinned(s->weights, layer + 1), e);
        if (rc) return rc;
    }
    head(s, &residual, run.x, out, n_out, picked, logit_rows);
    for (size_t i = 0; i < b->n_spans; i++)
        b->spans[i].state->length = b->spans[i].start + b->spans[i].sure;
    *logits = logit_rows;
    return OK;
}
