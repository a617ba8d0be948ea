/* Router, grouping by expert, and the two expert products.
 *
 * The needed experts are taken in groups. Within a group all (expert, block of outputs) pairs are
 * tasks of their own, so that one expert is split over cores when few are needed and different
 * experts go to different cores when many are. */
#include "src/moe.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 128 /* outputs of one task */

struct bufs {
    float *scores;      /* [rows][experts] */
    float *biased;      /* [rows][experts] */
    uint32_t *ids;      /* [rows][top_k] ascending */
    float *weights;     /* [rows][top_k] */
    uint32_t *start;    /* [experts + 1]: pairs of expert i are pair[start[i] .. start[i + 1]) */
    uint32_t *pair_row; /* [rows * top_k] grouped by expert, rows ascending */
    float *pair_weight; /* [rows * top_k] */
    uint32_t *needed;   /* [2][experts] keys: of this layer, then guessed ones of the next */
    float *z;           /* [rows][latent]: what experts read */
    float *sum;         /* [rows][latent] */
    uint32_t *guessed;  /* [rows][top_k]: the next layer's choice, guessed */
    float *unused;      /* [rows][top_k] */
};

/* Of a group of experts; where shared ones had their scratch before it. */
struct group_bufs {
    float *in;        /* [rows][latent] gathered */
    float *gate, *up; /* [rows][width] */
    float *out;       /* [rows][latent] */
};

static uint32_t inner(const struct config *k)
{
    return k->latent ? k->latent : k->hidden;
}

static void layout(struct bufs *b, struct arena *a, const struct config *k, size_t rows)
{
    uint64_t E = k->experts, pairs = (uint64_t)rows * k->top_k, Z = inner(k);
    b->scores = arena_floats(a, rows * E);
    b->biased = arena_floats(a, rows * E);
    b->ids = arena_take(a, pairs, sizeof(uint32_t));
    b->weights = arena_floats(a, pairs);
    b->start = arena_take(a, E + 1, sizeof(uint32_t));
    b->pair_row = arena_take(a, pairs, sizeof(uint32_t));
    b->pair_weight = arena_floats(a, pairs);
    b->needed = arena_take(a, 2 * E, sizeof(uint32_t));
    b->guessed = arena_take(a, pairs, sizeof(uint32_t));
    b->unused = arena_floats(a, pairs);
    b->z = arena_floats(a, rows * Z);
    b->sum = arena_floats(a, rows * Z);
}

static void layout_group(struct group_bufs *b, struct arena *a, const struct config *k, size_t rows)
{
    uint64_t Z = inner(k);
    b->in = arena_floats(a, rows * Z);
    b->gate = arena_floats(a, (uint64_t)rows * k->expert_width);
    b->up = arena_floats(a, (uint64_t)rows * k->expert_width);
    b->out = arena_floats(a, rows * Z);
}

static uint32_t widest_mlp(const struct config *k)
{
    uint32_t shared = k->shared_experts * k->expert_width;
    return k->dense_width > shared ? k->dense_width : shared;
}

enum status moe_experts_open(struct expert_io **out, struct mem *mem,
                             const struct safetensors *files, const struct config *k, struct err *e)
{
    char format[96];
    snprintf(format, sizeof format, "%smodel.layers.%%u.block_sparse_moe.experts.%%u.",
             k->text_prefix);
    struct expert_io_opts o = {
        .mem = mem, .files = files, .name_format = format, .is_moe = k->is_moe};
    o.layers = k->layers;
    o.experts = k->experts;
    o.in = inner(k);
    o.width = k->expert_width;
    return expert_io_open(out, &o, e);
}

uint64_t moe_scratch(const struct config *k, size_t rows)
{
    struct arena count = {0};
    struct bufs b;
    struct group_bufs group;
    layout(&b, &count, k, rows);
    uint64_t mark = count.at;
    layout_group(&group, &count, k, rows);
    count.at = mark;
    arena_floats(&count, (uint64_t)rows * widest_mlp(k));
    arena_floats(&count, (uint64_t)rows * widest_mlp(k));
    count.at = mark;
    arena_floats(&count, (uint64_t)rows * k->hidden);
    return count.peak;
}

/* act(gate, up) for n values, into gate; rounded when activations are BF16. */
static void activate(const struct compute *c, const struct config *k, float *gate, const float *up,
                     size_t n)
{
    if (k->act == ACT_SITU)
        c->kern->situ(gate, gate, up, n, k->situ_beta, k->situ_linear_beta);
    else
        c->kern->silu(gate, gate, up, n);
    round_bf16(c, gate, n);
}

/* y = down(act(gate x, up x)) */
static void mlp(const struct moe *m, const struct mlp_weights *w, size_t rows, const float *x,
                float *y, struct arena *a)
{
    uint64_t mark = a->at;
    size_t D = m->k->hidden, W = w->gate.out;
    float *gate = arena_floats(a, rows * W), *up = arena_floats(a, rows * W);
    linear_apply(m->c, &w->gate, gate, W, x, D, rows);
    linear_apply(m->c, &w->up, up, W, x, D, rows);
    for (size_t r = 0; r < rows; r++) activate(m->c, m->k, gate + r * W, up + r * W, W);
    linear_apply(m->c, &w->down, y, D, gate, W, rows);
    a->at = mark;
}

/* Groups beyond the best top_groups get -inf: a group's score is the sum of its two best biased
 * scores. */
static void mask_groups(const struct config *k, float *biased)
{
    size_t size = k->experts / k->groups;
    bool kept[65536] = {0};
    for (uint32_t n = 0; n < k->top_groups; n++) {
        float best = -INFINITY;
        size_t at = k->groups;
        for (size_t g = 0; g < k->groups; g++) {
            float first = -INFINITY, second = -INFINITY;
            for (size_t i = g * size; i < (g + 1) * size; i++) {
                float v = biased[i];
                if (v > first) {
                    second = first;
                    first = v;
                } else if (v > second) {
                    second = v;
                }
            }
            if (!kept[g] && (at == k->groups || first + second > best)) {
                best = first + second;
                at = g;
            }
        }
        kept[at] = true;
    }
    for (size_t i = 0; i < k->experts; i++)
        if (!kept[i / size]) biased[i] = -INFINITY;
}

void moe_route(const struct kern *kern, const struct config *k, float *logits, const float *bias,
               float *biased, uint32_t *ids, float *weights)
{
    if (k->router_sigmoid)
        kern->sigmoid(logits, k->experts);
    else
        kern->softmax(logits, k->experts);
    for (uint32_t i = 0; i < k->experts; i++) {
        biased[i] = logits[i] + bias[i];
        /* A NaN would break every comparison below; the job's text is lost, the others' are not. */
        if (!(biased[i] > -INFINITY)) biased[i] = -3e38f;
    }
    if (k->groups > 1 && k->top_groups < k->groups) mask_groups(k, biased);

    /* insertion into a short list ordered by (score descending, id ascending) */
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->experts; i++) {
        if (n == k->top_k && !(biased[i] > biased[ids[n - 1]])) continue;
        uint32_t at = n < k->top_k ? n++ : n - 1;
        for (; at > 0 && biased[i] > biased[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    for (uint32_t i = 1; i < n; i++) { /* ascending ids: the order of summation */
        uint32_t id = ids[i], at = i;
        for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
    float total = 0;
    for (uint32_t i = 0; i < n; i++) total += logits[ids[i]];
    float scale = k->renormalize && n > 1 ? k->routed_scale / (total + 1e-20f) : k->routed_scale;
    for (uint32_t i = 0; i < n; i++) weights[i] = logits[ids[i]] * scale;
}

struct routing {
    const struct moe *m;
    const struct bufs *b;
    const float *bias;
    uint32_t *ids;
    float *weights;
};

static void route_row(void *ctx, size_t row, unsigned thread)
{
    (void)thread;
    const struct routing *r = ctx;
    const struct config *k = r->m->k;
    moe_route(r->m->c->kern, k, r->b->scores + row * k->experts, r->bias,
              r->b->biased + row * k->experts, r->ids + row * k->top_k,
              r->weights + row * k->top_k);
}

/* Sorts (row, choice) pairs by expert, keeping rows ascending. */
static void group_by_expert(const struct config *k, const struct bufs *b, size_t rows)
{
    size_t pairs = rows * k->top_k;
    memset(b->start, 0, (k->experts + 1) * sizeof *b->start);
    for (size_t i = 0; i < pairs; i++) b->start[b->ids[i] + 1]++;
    for (uint32_t e = 0; e < k->experts; e++) b->start[e + 1] += b->start[e];
    for (size_t i = 0; i < pairs; i++) {
        uint32_t at = b->start[b->ids[i]]++;
        b->pair_row[at] = (uint32_t)(i / k->top_k);
        b->pair_weight[at] = b->weights[i];
    }
    memmove(b->start + 1, b->start, k->experts * sizeof *b->start);
    b->start[0] = 0;
}

/* Experts borrowed together. */
struct group {
    const struct moe *m;
    const struct bufs *b;
    struct group_bufs at;
    size_t n;
    uint32_t expert[256], key[256];
    struct expert_weights w[256];
    uint32_t first_pair; /* pair number that buffer row 0 stands for */
};
#define MAX_GROUP      256
#define TASKS_A_THREAD 8

static size_t blocks_of(size_t outputs)
{
    return (outputs + BLOCK - 1) / BLOCK;
}

static void gate_up_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct group *g = ctx;
    const struct config *k = g->m->k;
    const struct kern *kern = g->m->c->kern;
    size_t W = k->expert_width, Z = inner(k), blocks = blocks_of(W), i = task / blocks;
    size_t first = task % blocks * BLOCK, last = first + BLOCK < W ? first + BLOCK : W;
    uint32_t from = g->b->start[g->expert[i]], rows = g->b->start[g->expert[i] + 1] - from;
    size_t at = from - g->first_pair;
    float *gate = g->at.gate + at * W, *up = g->at.up + at * W;
    linear_part(kern, &g->w[i].w1, gate, W, g->at.in + at * Z, Z, rows, first, last);
    linear_part(kern, &g->w[i].w3, up, W, g->at.in + at * Z, Z, rows, first, last);
    for (uint32_t r = 0; r < rows; r++)
        activate(g->m->c, k, gate + r * W + first, up + r * W + first, last - first);
}

static void down_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct group *g = ctx;
    const struct config *k = g->m->k;
    size_t W = k->expert_width, Z = inner(k), blocks = blocks_of(Z), i = task / blocks;
    size_t first = task % blocks * BLOCK, last = first + BLOCK < Z ? first + BLOCK : Z;
    uint32_t from = g->b->start[g->expert[i]], rows = g->b->start[g->expert[i] + 1] - from;
    size_t at = from - g->first_pair;
    linear_part(g->m->c->kern, &g->w[i].w2, g->at.out + at * Z, Z, g->at.gate + at * W, W, rows,
                first, last);
}

/* A block of columns: adds the group's outputs to their rows, experts ascending. */
static void sum_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct group *g = ctx;
    size_t Z = inner(g->m->k), first = task * BLOCK, n = first + BLOCK < Z ? BLOCK : Z - first;
    uint32_t end = g->b->start[g->expert[g->n - 1] + 1];
    for (uint32_t p = g->first_pair; p < end; p++)
        g->m->c->kern->axpy(g->b->sum + g->b->pair_row[p] * Z + first, g->b->pair_weight[p],
                            g->at.out + (p - g->first_pair) * Z + first, n);
}

static void compute_group(const struct group *g)
{
    const struct config *k = g->m->k;
    struct pool *pool = g->m->c->pool;
    size_t Z = inner(k);
    uint32_t end = g->b->start[g->expert[g->n - 1] + 1];
    for (uint32_t p = g->first_pair; p < end; p++)
        memcpy(g->at.in + (p - g->first_pair) * Z, g->b->z + g->b->pair_row[p] * Z,
               Z * sizeof(float));
    pool_run(pool, g->n * blocks_of(k->expert_width), gate_up_task, (void *)(uintptr_t)g);
    pool_run(pool, g->n * blocks_of(Z), down_task, (void *)(uintptr_t)g);
    pool_run(pool, blocks_of(Z), sum_task, (void *)(uintptr_t)g);
}

/* Borrows experts from number *next on (of the ascending list) until the buffers or the cache are
 * full, or there is work for all threads: what is borrowed longer takes a place in the cache. */
static enum status borrow_group(struct group *g, unsigned layer, uint32_t *next, size_t rows,
                                struct err *e)
{
    const struct moe *m = g->m;
    const uint32_t *start = g->b->start;
    size_t tasks = (size_t)pool_threads(m->c->pool) * TASKS_A_THREAD;
    size_t most = tasks / blocks_of(m->k->expert_width) + 1;
    if (most > m->group) most = m->group;
    if (most > MAX_GROUP) most = MAX_GROUP;
    g->n = 0;
    for (; *next < m->k->experts && g->n < most; (*next)++) {
        uint32_t expert = *next;
        if (start[expert] == start[expert + 1]) continue;
        if (g->n == 0) g->first_pair = start[expert];
        if (start[expert + 1] - g->first_pair > rows) break;
        uint32_t key = expert_key(m->io, layer, expert);
        if (g->n && !expert_cache_ready(m->cache, key)) break; /* compute while it is being read */
        const void *data;
        enum status rc = expert_cache_get(m->cache, key, &data, e);
        if (rc) return rc;
        expert_weights_at(m->io, key, data, &g->w[g->n]);
        g->expert[g->n] = expert;
        g->key[g->n++] = key;
    }
    return OK;
}

/* Adds the keys that the next layer will probably need. Scores and biases of this layer are no
 * longer needed. */
static size_t guess_next(const struct moe *m, unsigned layer, const struct layer_weights *next,
                         const struct bufs *b, const struct moe_rows *r, uint32_t *keys)
{
    const struct config *k = m->k;
    if (!m->guess || layer + 1 >= k->layers || !k->is_moe[layer + 1]) return 0;
    guess_begin(m->guess, layer + 1, r->rows, next != NULL);
    if (next) {
        size_t step = (r->rows + GUESS_ROWS - 1) / GUESS_ROWS, rows = (r->rows + step - 1) / step;
        struct routing routing = {m, b, next->router_bias, b->guessed, b->unused};
        linear_apply(m->c, &next->router, b->scores, k->experts, r->x, step * k->hidden, rows);
        pool_run(m->c->pool, rows, route_row, &routing);
        for (size_t i = 0; i < rows; i++)
            guess_row(m->guess, b->guessed + i * k->top_k, k->top_k, b->biased + i * k->experts);
    }
    size_t n = 0;
    for (uint32_t x = 0; x < k->experts; x++) {
        uint32_t key = expert_key(m->io, layer + 1, x);
        if (guess_worth(m->guess, x, expert_cache_ready(m->cache, key))) keys[n++] = key;
    }
    return n;
}

/* Tells the cache what is needed, so that it is read while other things are computed. */
static void announce(struct moe *m, unsigned layer, const struct layer_weights *next,
                     const struct bufs *b, const struct moe_rows *r)
{
    const struct config *k = m->k;
    size_t needed = 0;
    for (uint32_t x = 0; x < k->experts; x++)
        if (b->start[x] != b->start[x + 1]) b->needed[needed++] = expert_key(m->io, layer, x);
    m->uses += needed;
    if (m->guess) guess_judge(m->guess, layer, b->start);
    expert_cache_announce(m->cache, b->needed, needed);
    size_t guessed = guess_next(m, layer, next, b, r, b->needed + needed);
    if (guessed) expert_cache_announce(m->cache, b->needed, needed + guessed);
}

static enum status run_experts(struct moe *m, unsigned layer, const struct bufs *b,
                               const struct moe_rows *r, struct err *e)
{
    struct group g = {.m = m, .b = b};
    uint64_t mark = r->arena->at;
    layout_group(&g.at, r->arena, m->k, r->rows);
    enum status rc = OK;
    for (uint32_t at = 0; !rc;) {
        rc = borrow_group(&g, layer, &at, r->rows, e);
        if (!rc && g.n) compute_group(&g);
        for (size_t i = 0; i < g.n; i++) expert_cache_release(m->cache, g.key[i]);
        if (!g.n) break;
    }
    r->arena->at = mark;
    return rc;
}

/* Shared experts run while routed ones are being read, and leave their sum in y. */
static enum status sparse(struct moe *m, unsigned layer, const struct layer_weights *w,
                          const struct layer_weights *next, const struct moe_rows *r, struct err *e)
{
    const struct config *k = m->k;
    size_t D = k->hidden, Z = inner(k), rows = r->rows;
    struct bufs b;
    layout(&b, r->arena, k, rows);
    struct compute exact = *m->c;
    if (exact.kern->unrounded) exact.kern = exact.kern->unrounded;
    linear_apply(&exact, &w->router, b.scores, k->experts, r->x, D, rows);
    struct routing routing = {m, &b, w->router_bias, b.ids, b.weights};
    pool_run(m->c->pool, rows, route_row, &routing);
    round_bf16(m->c, r->x, rows * D); /* the router is F32 end to end (kimi-k3 2.7) */
    if (m->on_route) m->on_route(m->user, layer, b.ids, b.biased, rows);
    group_by_expert(k, &b, rows);

    announce(m, layer, next, &b, r);

    if (k->shared_experts) mlp(m, &w->mlp, rows, r->x, r->y, r->arena);
    if (k->latent)
        linear_apply(m->c, &w->latent_down, b.z, Z, r->x, D, rows);
    else
        memcpy(b.z, r->x, rows * D * sizeof(float));
    round_bf16(m->c, b.z, rows * Z);
    memset(b.sum, 0, rows * Z * sizeof(float));
    enum status rc = run_experts(m, layer, &b, r, e);
    if (rc) return rc;

    float *y = b.sum;
    if (k->latent) {
        for (size_t i = 0; k->latent_norm && i < rows; i++)
            m->c->kern->rms(b.sum + i * Z, b.sum + i * Z, w->latent_norm, Z, k->eps);
        y = arena_floats(r->arena, rows * D);
        round_bf16(m->c, b.sum, rows * Z);
        linear_apply(m->c, &w->latent_up, y, D, b.sum, Z, rows);
    }
    if (!k->shared_experts)
        memcpy(r->y, y, rows * D * sizeof(float));
    else
        for (size_t i = 0; i < rows * D; i++) r->y[i] += y[i];
    return OK;
}

enum status moe_layer(struct moe *m, unsigned layer, const struct layer_weights *w,
                      const struct layer_weights *next, struct moe_rows *r, struct err *e)
{
    const struct config *k = m->k;
    if (!k->is_moe[layer]) {
        round_bf16(m->c, r->x, r->rows * k->hidden);
        mlp(m, &w->mlp, r->rows, r->x, r->y, r->arena);
        return OK;
    }
    uint64_t mark = r->arena->at;
    enum status rc = sparse(m, layer, w, next, r, e);
    r->arena->at = mark;
    return rc;
}
