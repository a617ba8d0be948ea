/* Reads some experts, multiplies rows with them, and times the loops that sweeps consist of beside
 * that. Few rows go through all the weights at hand, so that these come from memory; many rows
 * through as many of them as take a while. */
#include "src/bench_speed.h"

#include "src/bench_clock.h"
#include "src/bench_io.h"
#include "src/config.h"
#include "src/moe.h"
#include "src/os.h"
#include "src/readers.h"

#include <stdlib.h>
#include <string.h>

#define MIB      ((uint64_t)1 << 20)
#define SLOTS    32
#define SECONDS  0.03 /* a figure */
#define READ_S   0.4  /* the disk */
#define BLOCK    128  /* outputs of a task, as in moe.c */
#define MOST_MAC 1e9  /* of one timed call */
#define VECTORS  256  /* of one task */
#define STEPS    16   /* of the recurrence in one task */

struct bench {
    const struct bench_speed_opts *o;
    struct config config;
    struct safetensors *files;
    struct expert_io *io;
    struct bench_io_slots slots;
    struct linear *parts; /* [n_parts] blocks of outputs of all matrices at hand */
    size_t n_parts, room;
    uint16_t *trunk; /* BF16 [trunk_rows][hidden] */
    size_t trunk_rows;
    float *x; /* [most rows][widest] */
    float *y; /* [threads][most rows][BLOCK] */
    size_t widest;
};

static size_t most_rows(void)
{
    return plan_speed_rows[PLAN_SPEED_POINTS - 1];
}

/* Cuts a matrix into tasks. */
static void add_parts(struct bench *b, const struct linear *l)
{
    uint64_t w, scale;
    linear_bytes(l->type, 1, l->in, &w, &scale);
    for (uint32_t at = 0; at < l->out && b->n_parts < b->room; at += BLOCK) {
        struct linear part = *l;
        part.out = l->out - at < BLOCK ? l->out - at : BLOCK;
        part.w = (const char *)l->w + at * w;
        if (l->scale) part.scale = l->scale + at * scale;
        b->parts[b->n_parts++] = part;
    }
}

struct product {
    const struct bench *b;
    size_t rows, tasks;
};

static void product_task(void *ctx, size_t task, unsigned thread)
{
    const struct product *p = ctx;
    const struct linear *l = &p->b->parts[task];
    linear_part(p->b->o->compute.kern, l, p->b->y + thread * most_rows() * BLOCK, BLOCK, p->b->x,
                p->b->widest, p->rows, 0, l->out);
}

static void run_product(void *ctx)
{
    struct product *p = ctx;
    pool_run(p->b->o->compute.pool, p->tasks, product_task, p);
}

/* With as many of the parts as take a while. */
static void time_products(const struct bench *b, double flop_s[PLAN_SPEED_POINTS])
{
    for (size_t i = 0; i < PLAN_SPEED_POINTS; i++) {
        struct product p = {.b = b, .rows = plan_speed_rows[i], .tasks = 1};
        double mac = 0, took = 0;
        while (p.tasks < b->n_parts && took < SECONDS / 3) {
            p.tasks = p.tasks * 2 < b->n_parts ? p.tasks * 2 : b->n_parts;
            double since = os_now();
            run_product(&p);
            took = os_now() - since;
        }
        for (size_t t = 0; t < p.tasks; t++)
            mac += (double)b->parts[t].out * b->parts[t].in * (double)p.rows;
        flop_s[i] = 2 * mac / bench_clock_time(run_product, &p, SECONDS);
    }
}

struct stream {
    const struct bench *b;
    size_t words;   /* of a task */
    uint64_t *sums; /* [tasks] */
};

static void stream_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct stream *s = ctx;
    const uint64_t *p = (const uint64_t *)(const void *)s->b->trunk + task * s->words;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= s->words; i += 8)
        for (size_t j = 0; j < 8; j++) sum[j] ^= p[i + j];
    s->sums[task] = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void run_stream(void *ctx)
{
    struct stream *s = ctx;
    pool_run(s->b->o->compute.pool, pool_threads(s->b->o->compute.pool), stream_task, s);
}

static double time_memory(const struct bench *b)
{
    uint64_t sums[1024];
    size_t bytes = b->trunk_rows * b->config.hidden * 2;
    unsigned threads = pool_threads(b->o->compute.pool);
    struct stream s = {b, bytes / 8 / threads, sums};
    return (double)(s.words * 8 * threads) / bench_clock_time(run_stream, &s, SECONDS);
}

/* One of the loops on vectors, each thread on its own in cache. */
struct vectors {
    const struct bench *b;
    enum { DOT, DELTA, GATE } what;
    float *at; /* [threads][each] */
    size_t n, each;
};

static void delta(const struct vectors *v, float *p)
{
    size_t n = v->n;
    float *S = p, *row = p + n * n;
    for (size_t i = 0; i < STEPS; i++)
        v->b->o->compute.kern->delta_step(S, n, n, row, row + n, row + 2 * n, 0.5f, row + 3 * n,
                                          row + 4 * n, row + 5 * n);
}

static void vector_task(void *ctx, size_t task, unsigned thread)
{
    (void)task;
    const struct vectors *v = ctx;
    const struct config *c = &v->b->config;
    const struct kern *k = v->b->o->compute.kern;
    float *p = v->at + thread * v->each, sum = 0;
    if (v->what == DELTA) {
        delta(v, p);
        return;
    }
    for (size_t i = 0; i < VECTORS; i++) {
        if (v->what == DOT) {
            sum += k->dot(p, p + v->n, v->n);
            k->axpy(p + 2 * v->n, 1e-3f, p + v->n, v->n);
        } else if (c->act == ACT_SITU) {
            k->situ(p, p + v->n, p + 2 * v->n, v->n, c->situ_beta, c->situ_linear_beta);
        } else {
            k->silu(p, p + v->n, p + 2 * v->n, v->n);
        }
    }
    p[3 * v->n] = sum;
}

static void run_vectors(void *ctx)
{
    struct vectors *v = ctx;
    pool_run(v->b->o->compute.pool, pool_threads(v->b->o->compute.pool), vector_task, v);
}

static void nothing(void *ctx, size_t task, unsigned thread)
{
    (void)ctx;
    (void)task;
    (void)thread;
}

static void run_nothing(void *ctx)
{
    struct pool *p = ctx;
    for (int i = 0; i < 64; i++) pool_run(p, pool_threads(p), nothing, NULL);
}

static enum status time_vectors(const struct bench *b, struct plan_speed *s, struct err *e)
{
    const struct config *c = &b->config;
    unsigned threads = pool_threads(b->o->compute.pool);
    size_t n = c->kda_dim > 64 ? c->kda_dim : 64, wide = c->kv_lora ? c->kv_lora : c->hidden;
    struct vectors v = {.b = b, .each = n * n + 6 * n};
    if (v.each < 4 * (size_t)wide + 16) v.each = 4 * (size_t)wide + 16;
    if (v.each < 4 * (size_t)c->expert_width + 16) v.each = 4 * (size_t)c->expert_width + 16;
    enum status rc = mem_array(b->o->mem, &v.at, threads * v.each, sizeof(float), "vectors", e);
    if (rc) return rc;
    for (size_t i = 0; i < threads * v.each; i++) v.at[i] = 0.01f * (float)(i % 13);
    v.what = DOT;
    v.n = wide;
    s->vector_flop_s =
        4.0 * (double)v.n * VECTORS * threads / bench_clock_time(run_vectors, &v, SECONDS);
    v.what = GATE;
    v.n = c->expert_width ? c->expert_width : c->dense_width < 4096 ? c->dense_width : 4096;
    if (4 * v.n + 16 > v.each) v.n = (v.each - 16) / 4;
    s->gate_values_s = (double)v.n * VECTORS * threads / bench_clock_time(run_vectors, &v, SECONDS);
    v.what = DELTA;
    v.n = n;
    s->delta_flop_s =
        7.0 * (double)(n * n) * STEPS * threads / bench_clock_time(run_vectors, &v, SECONDS);
    s->join_s = bench_clock_time(run_nothing, b->o->compute.pool, SECONDS) / 64;
    mem_free(b->o->mem, v.at);
    return OK;
}

static enum status read_experts(struct bench *b, double *bytes_s, struct err *e)
{
    const struct config *c = &b->config;
    struct bench_io_slots *s = &b->slots;
    struct bench_io_opts o = {.mem = b->o->mem,
                              .files = b->files,
                              .io = b->io,
                              .is_moe = c->is_moe,
                              .layers = c->layers,
                              .experts = c->experts,
                              .direct = b->o->direct_io,
                              .seconds = READ_S};
    s->slot_bytes = expert_slot_bytes(b->io);
    s->n = b->o->most_bytes / 2 / s->slot_bytes;
    s->n = s->n > SLOTS             ? SLOTS
           : s->n < READERS_THREADS ? READERS_THREADS
                                    : s->n / READERS_THREADS * READERS_THREADS;
    enum status rc = mem_alloc_aligned(b->o->mem, &s->slots, s->n * s->slot_bytes, OS_DIRECT_ALIGN,
                                       "experts", e);
    if (!rc) rc = mem_array(b->o->mem, &s->at, s->n, sizeof *s->at, "experts", e);
    if (!rc) rc = mem_array(b->o->mem, &s->keys, s->n, sizeof *s->keys, "experts", e);
    return rc ? rc : bench_io_experts(&o, s, bytes_s, e);
}

static void expert_parts(struct bench *b)
{
    b->n_parts = 0;
    for (size_t i = 0; i < b->slots.n; i++) {
        struct expert_weights w;
        expert_weights_at(b->io, b->slots.keys[i],
                          b->slots.slots + i * b->slots.slot_bytes + b->slots.at[i], &w);
        add_parts(b, &w.w1);
        add_parts(b, &w.w3);
        add_parts(b, &w.w2);
    }
}

static enum status make_rows(struct bench *b, struct err *e)
{
    const struct config *c = &b->config;
    uint32_t widths[] = {c->hidden, c->latent, c->expert_width};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i] > b->widest) b->widest = widths[i];
    size_t threads = pool_threads(b->o->compute.pool);
    uint64_t trunk = b->o->most_bytes / 4 < 64 * MIB ? b->o->most_bytes / 4 : 64 * MIB;
    b->trunk_rows = (size_t)(trunk / (2 * c->hidden)) / BLOCK * BLOCK;
    if (b->trunk_rows < 2 * BLOCK) b->trunk_rows = 2 * BLOCK;
    b->room = b->trunk_rows / BLOCK;
    size_t experts = SLOTS * ((2 * (size_t)c->expert_width + b->widest) / BLOCK + 3);
    if (experts > b->room) b->room = experts;
    struct mem *m = b->o->mem;
    enum status rc = mem_array(m, &b->parts, b->room, sizeof *b->parts, "products", e);
    if (!rc)
        rc = mem_array(m, &b->x, most_rows() * b->widest, sizeof(float), "rows of products", e);
    if (!rc)
        rc = mem_array(m, &b->y, threads * most_rows() * BLOCK, sizeof(float), "rows of products",
                       e);
    if (!rc) rc = mem_array(m, &b->trunk, b->trunk_rows * c->hidden, 2, "weights", e);
    if (rc) return rc;
    for (size_t i = 0; i < most_rows() * b->widest; i++) b->x[i] = 0.1f * (float)(i % 17) - 0.8f;
    for (size_t i = 0; i < b->trunk_rows * c->hidden; i++)
        b->trunk[i] = f32_to_bf16(0.01f * (float)(i % 19) - 0.09f);
    return OK;
}

static enum status measure(struct bench *b, struct plan_speed *s, struct err *e)
{
    const struct config *c = &b->config;
    enum status rc = make_rows(b, e);
    if (rc) return rc;
    struct linear trunk = {DT_BF16, (uint32_t)b->trunk_rows, c->hidden, b->trunk, NULL};
    add_parts(b, &trunk);
    time_products(b, s->trunk_flop_s);
    s->memory_bytes_s = time_memory(b);
    rc = time_vectors(b, s, e);
    memcpy(s->expert_flop_s, s->trunk_flop_s, sizeof s->expert_flop_s);
    if (rc || !config_moe_layers(c)) return rc;
    rc = moe_experts_open(&b->io, b->o->mem, b->files, c, e);
    if (!rc) rc = read_experts(b, &s->read_bytes_s, e);
    if (rc) return rc;
    expert_parts(b);
    time_products(b, s->expert_flop_s);
    return OK;
}

enum status bench_speed(struct plan_speed *out, const struct bench_speed_opts *o, struct err *e)
{
    struct bench b = {.o = o};
    plan_speed_guess(out, pool_threads(o->compute.pool));
    enum status rc = config_load(&b.config, o->model_dir, e);
    if (!rc) rc = safetensors_open(&b.files, o->model_dir, o->direct_io, e);
    if (!rc) rc = measure(&b, out, e);
    void *blocks[] = {b.slots.slots, b.slots.at, b.slots.keys, b.parts, b.x, b.y, b.trunk};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) mem_free(o->mem, blocks[i]);
    expert_io_close(b.io);
    if (b.files) safetensors_close(b.files);
    return rc;
}
