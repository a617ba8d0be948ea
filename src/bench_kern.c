/* Measures kernels: the median of repetitions, each long enough for the clock.
 *
 * Weights are noise made once and read as any form: every bit pattern of MXFP4 is a number with
 * scales near one, BF16 and F32 get exponents near one too. Matrices are taken from the block in
 * turn, so that each comes from memory. Owns the block and the rows. */
#include "src/bench_kern.h"

#include "src/bench_clock.h"
#include "src/os.h"

#include <string.h>

#define REPETITIONS 9
#define SECONDS     0.02 /* a repetition, at least */
#define READ_BYTES  ((size_t)1 << 20)

struct bench_kern {
    struct mem *mem;
    struct pool *pool;
    size_t weight_bytes, max_rows, max_cols;
    uint8_t *weights;
    float *x, *y; /* [threads][max_rows][max_cols] */
    size_t next;  /* matrix */
    uint64_t sink;
};

static void fill(struct bench_kern *b)
{
    uint64_t r = 1;
    for (size_t i = 0; i + 4 <= b->weight_bytes; i += 4) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        uint32_t near_one = ((uint32_t)(r >> 32) & 0x80ff80ffu) | 0x3f003f00u;
        memcpy(b->weights + i, &near_one, 4);
    }
    size_t n = b->max_rows * b->max_cols * pool_threads(b->pool);
    for (size_t i = 0; i < n; i++) b->x[i] = (float)(i % 17) * 0.1f - 0.7f;
}

enum status bench_kern_open(struct bench_kern **out, const struct bench_kern_opts *o, struct err *e)
{
    *out = NULL;
    struct bench_kern *b = NULL;
    enum status rc = mem_alloc(o->mem, &b, sizeof *b, "bench", e);
    if (rc) return rc;
    b->mem = o->mem;
    b->pool = o->pool;
    b->weight_bytes = o->weight_bytes;
    b->max_rows = o->max_rows;
    b->max_cols = o->max_cols;
    size_t rows = o->max_rows * pool_threads(o->pool);
    rc = mem_alloc(o->mem, &b->weights, o->weight_bytes, "bench weights", e);
    if (!rc) rc = mem_array(o->mem, &b->x, rows, o->max_cols * sizeof(float), "bench rows", e);
    if (!rc) rc = mem_array(o->mem, &b->y, rows, o->max_cols * sizeof(float), "bench rows", e);
    if (rc) {
        bench_kern_close(b);
        return rc;
    }
    fill(b);
    *out = b;
    return OK;
}

void bench_kern_close(struct bench_kern *b)
{
    if (!b) return;
    mem_free(b->mem, b->weights);
    mem_free(b->mem, b->x);
    mem_free(b->mem, b->y);
    mem_free(b->mem, b);
}

/* Seconds one of `tasks` takes when the pool does them all, tasks raised until it takes a while. */
static double measure(struct bench_kern *b, size_t tasks, pool_fn fn, void *ctx)
{
    double t[REPETITIONS];
    for (int i = 0; i < REPETITIONS;) {
        double start = os_now();
        pool_run(b->pool, tasks, fn, ctx);
        double seconds = os_now() - start;
        if (i == 0 && seconds < SECONDS) {
            tasks *= 2;
            continue;
        }
        t[i++] = seconds / (double)tasks;
    }
    return bench_clock_median(t, REPETITIONS);
}

struct spin {
    const struct kern *k;
    size_t rounds;
};

static void spin_task(void *ctx, size_t task, unsigned thread)
{
    (void)task, (void)thread;
    const struct spin *s = ctx;
    s->k->spin(s->rounds);
}

double bench_kern_peak(struct bench_kern *b, const struct kern *k)
{
    struct spin s = {k, 1 << 16};
    return k->spin(s.rounds) / measure(b, pool_threads(b->pool), spin_task, &s);
}

static void read_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    struct bench_kern *b = ctx;
    const uint8_t *p = b->weights + task % (b->weight_bytes / READ_BYTES) * READ_BYTES;
    uint64_t sum[8] = {0}, v[8];
    for (size_t i = 0; i < READ_BYTES; i += sizeof v) {
        memcpy(v, p + i, sizeof v);
        for (int j = 0; j < 8; j++) sum[j] ^= v[j];
    }
    for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
    __atomic_fetch_xor(&b->sink, sum[0], __ATOMIC_RELAXED);
}

double bench_kern_memory(struct bench_kern *b)
{
    size_t pieces = b->weight_bytes / READ_BYTES;
    return pieces ? (double)READ_BYTES / measure(b, pieces, read_task, b) : 0;
}

struct product {
    struct bench_kern *b;
    const struct kern *k;
    const struct bench_kern_product *p;
    size_t w_bytes, matrices;
    uint8_t *scale;
};

static void product_task(void *ctx, size_t task, unsigned thread)
{
    (void)task;
    const struct product *q = ctx;
    struct bench_kern *b = q->b;
    size_t matrix = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED) % q->matrices;
    struct linear l = {.type = q->p->type,
                       .out = q->p->out,
                       .in = q->p->in,
                       .w = b->weights + matrix * q->w_bytes,
                       .scale = q->scale};
    size_t at = thread * b->max_rows * b->max_cols;
    linear_part(q->k, &l, b->y + at, q->p->out, b->x + at, q->p->in, q->p->rows, 0, q->p->out);
}

enum status bench_kern_product(struct bench_kern *b, const struct kern *k,
                               const struct bench_kern_product *p, struct bench_kern_speed *out,
                               struct err *e)
{
    uint64_t w_bytes, scale_bytes;
    struct product q = {.b = b, .k = k, .p = p};
    if (!linear_bytes(p->type, p->out, p->in, &w_bytes, &scale_bytes) || p->out > b->max_cols ||
        p->in > b->max_cols || p->rows > b->max_rows || w_bytes > b->weight_bytes)
        return err_set(e, E_USAGE, "bench: a product [%u x %u] of %zu rows has no room", p->out,
                       p->in, p->rows);
    enum status rc = mem_alloc(b->mem, &q.scale, scale_bytes, "bench scales", e);
    if (rc) return rc;
    memset(q.scale, 126, scale_bytes);
    q.w_bytes = w_bytes;
    q.matrices = b->weight_bytes / w_bytes;
    out->seconds = measure(b, pool_threads(b->pool), product_task, &q);
    out->flops = 2.0 * p->out * p->in * (double)p->rows / out->seconds;
    out->bytes = (double)(w_bytes + scale_bytes) / out->seconds;
    mem_free(b->mem, q.scale);
    return OK;
}
