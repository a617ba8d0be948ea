/* Reading loops of the disk figures. Errors of a reading thread end its loop. */
#include "src/bench_io.h"

#include "src/expert_cache.h"
#include "src/os.h"
#include "src/pool.h"
#include "src/readers.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MIB    ((size_t)1 << 20)
#define STRIDE 7919 /* from one expert to the next: all over the files */

const struct bench_io_loop bench_io_loops[BENCH_IO_LOOPS] = {
    {1, 4 * MIB, 0}, {1, 16 * MIB, 0}, {2, 4 * MIB, 0},
    {4, 1 * MIB, 0}, {4, 4 * MIB, 0},  {8, 4 * MIB, 0},
};

/* What the threads of one loop share. */
struct loop {
    double until;
    atomic_uint_fast64_t bytes;
    pthread_mutex_t lock; /* guards failed, err */
    bool failed;
    struct err err;
};

static void loop_begin(struct loop *l, double seconds)
{
    *l = (struct loop){.until = os_now() + seconds};
    pthread_mutex_init(&l->lock, NULL);
}

static enum status loop_end(struct loop *l, struct err *e)
{
    pthread_mutex_destroy(&l->lock);
    if (!l->failed) return OK;
    if (e) *e = l->err;
    return l->err.code;
}

static void loop_fail(struct loop *l, const struct err *e)
{
    pthread_mutex_lock(&l->lock);
    if (!l->failed) l->err = *e;
    l->failed = true;
    l->until = 0;
    pthread_mutex_unlock(&l->lock);
}

static bool loop_over(struct loop *l)
{
    pthread_mutex_lock(&l->lock);
    bool over = os_now() >= l->until;
    pthread_mutex_unlock(&l->lock);
    return over;
}

struct plain {
    struct loop loop;
    struct os_file *files; /* [n] */
    const char **paths;
    uint64_t *lo, *hi;              /* [n] the part of each file that is read */
    size_t n, block, first, blocks; /* of all parts; whole blocks only */
    char *buffers;                  /* [threads][block] */
};

static uint64_t blocks_of(const struct plain *p, size_t file)
{
    return (p->hi[file] - p->lo[file]) / p->block;
}

static void plain_task(void *ctx, size_t task, unsigned thread)
{
    struct plain *p = ctx;
    if (loop_over(&p->loop)) return;
    uint64_t at = (p->first + task) % p->blocks;
    size_t f = 0;
    for (; at >= blocks_of(p, f); f++) at -= blocks_of(p, f);
    struct err e;
    if (os_read_at(&p->files[f], p->lo[f] + at * p->block, p->buffers + thread * p->block, p->block,
                   p->paths[f], &e)) {
        loop_fail(&p->loop, &e);
        return;
    }
    atomic_fetch_add(&p->loop.bytes, p->block);
}

static void size_up(struct plain *p, struct bench_io_loop *l)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->hi[i] - p->lo[i] > largest) largest = p->hi[i] - p->lo[i];
    while (l->block > OS_DIRECT_ALIGN && l->block * l->threads > largest) l->block /= 2;
    p->block = l->block;
    for (size_t i = 0; i < p->n; i++) p->blocks += blocks_of(p, i);
}

static enum status run_plain(struct plain *p, const struct bench_io_opts *o,
                             struct bench_io_loop *l, struct err *e)
{
    struct pool *pool;
    size_up(p, l);
    if (p->blocks == 0) return err_set(e, E_MODEL, "the model's files are smaller than a block");
    p->first = (size_t)(*o->place / p->block);
    enum status rc = pool_open(&pool, l->threads, e);
    if (rc) return rc;
    rc = mem_alloc_aligned(o->mem, &p->buffers, l->threads * l->block, OS_DIRECT_ALIGN, "buffers",
                           e);
    if (!rc) {
        loop_begin(&p->loop, o->seconds);
        double since = os_now();
        pool_run(pool, p->blocks, plain_task, p);
        l->bytes_s = (double)p->loop.bytes / (os_now() - since);
        *o->place += p->loop.bytes;
        rc = loop_end(&p->loop, e);
    }
    mem_free(o->mem, p->buffers);
    pool_close(pool);
    return rc;
}

/* The keys of all experts, or of the region's, in order, twice over; *n: once. malloc'ed. */
static uint32_t *all_keys(const struct bench_io_opts *o, size_t *n)
{
    size_t most = (size_t)o->layers * o->experts, at = 0;
    uint32_t *keys = malloc(2 * most * sizeof *keys);
    for (unsigned l = 0; keys && l < o->layers; l++)
        for (unsigned x = 0; o->is_moe[l] && x < o->experts; x++)
            keys[at++] = expert_key(o->io, l, x);
    if (o->region && o->region < at) at = o->region;
    for (size_t i = 0; keys && i < at; i++) keys[at + i] = keys[i];
    *n = at;
    return keys;
}

/* The part of each file that has the region's experts, from a whole block on. */
static enum status find_region(struct plain *p, const struct bench_io_opts *o, struct err *e)
{
    size_t n;
    uint32_t *keys = all_keys(o, &n);
    if (!keys) return err_set(e, E_NOMEM, "reading loops: no memory");
    for (size_t i = 0; i < p->n; i++) {
        p->lo[i] = p->files[i].size;
        p->hi[i] = 0;
    }
    for (size_t k = 0; k < n; k++) {
        uint64_t at, bytes;
        unsigned f;
        for (unsigned i = 0; expert_io_run(o->io, keys[k], i, &f, &at, &bytes); i++) {
            if (at < p->lo[f]) p->lo[f] = at / OS_DIRECT_ALIGN * OS_DIRECT_ALIGN;
            if (at + bytes > p->hi[f]) p->hi[f] = at + bytes;
        }
    }
    for (size_t i = 0; i < p->n; i++)
        if (p->lo[i] > p->hi[i]) p->lo[i] = p->hi[i] = 0;
    free(keys);
    return OK;
}

static enum status open_files(struct plain *p, const struct bench_io_opts *o, struct err *e)
{
    size_t n = safetensors_files(o->files);
    p->files = calloc(n, sizeof *p->files);
    p->paths = calloc(n, sizeof *p->paths);
    p->lo = calloc(n, sizeof *p->lo);
    p->hi = calloc(n, sizeof *p->hi);
    if (!p->files || !p->paths || !p->lo || !p->hi)
        return err_set(e, E_NOMEM, "reading loops: no memory");
    for (; p->n < n; p->n++) {
        p->paths[p->n] = safetensors_path(o->files, (unsigned)p->n);
        enum status rc = os_open(&p->files[p->n], p->paths[p->n], o->direct, e);
        if (rc) return rc;
        p->hi[p->n] = p->files[p->n].size;
    }
    return o->region ? find_region(p, o, e) : OK;
}

enum status bench_io_plain(const struct bench_io_opts *o, struct bench_io_loop *l, struct err *e)
{
    struct plain p = {0};
    enum status rc = open_files(&p, o, e);
    if (!rc) rc = run_plain(&p, o, l, e);
    for (size_t i = 0; i < p.n; i++) os_close(&p.files[i]);
    free(p.files);
    free(p.paths);
    free(p.lo);
    free(p.hi);
    return rc;
}

enum status bench_io_stream(const struct bench_io_opts *o, size_t slots, size_t *first,
                            struct bench_io_stream *out, struct err *e)
{
    struct expert_cache *c = NULL;
    struct expert_cache_opts co = {.mem = o->mem, .slots = slots};
    *out = (struct bench_io_stream){.slots = slots};
    co.slot_bytes = expert_slot_bytes(o->io);
    co.keys = o->layers * o->experts;
    co.fetch = expert_io_fetch;
    co.user = (void *)(uintptr_t)o->io;
    size_t n;
    uint32_t *keys = all_keys(o, &n);
    enum status rc = keys ? OK : err_set(e, E_NOMEM, "streaming: no memory");
    if (!rc) rc = readers_open(&co.readers, READERS_THREADS, e);
    if (!rc) rc = expert_cache_open(&c, &co, e);
    double since = os_now();
    const uint32_t *from = rc ? NULL : keys + *first % n;
    if (!rc) expert_cache_announce(c, from, n);
    while (!rc && out->experts < n && os_now() - since < o->seconds) {
        const void *data;
        uint32_t key = from[out->experts++];
        rc = expert_cache_get(c, key, &data, e);
        if (!rc) expert_cache_release(c, key);
    }
    *first += out->experts;
    if (!rc) {
        struct expert_cache_stats s;
        expert_cache_stats(c, &s);
        out->wait_s = s.wait_s;
        out->bytes_s = (double)out->experts * (double)expert_bytes(o->io) / (os_now() - since);
    }
    expert_cache_close(c);
    readers_close(co.readers);
    free(keys);
    return rc;
}

struct some {
    struct loop loop;
    const struct bench_io_opts *o;
    struct bench_io_slots *s;
    const uint32_t *keys;
    size_t n_keys, begin, per_thread;
    size_t *turn; /* [READERS_THREADS] */
};

static void read_into(struct some *m, size_t slot, size_t nth)
{
    struct bench_io_slots *s = m->s;
    struct err e;
    s->keys[slot] = m->keys[(m->begin + nth) * STRIDE % m->n_keys];
    if (expert_io_fetch((void *)(uintptr_t)m->o->io, s->keys[slot], s->slots + slot * s->slot_bytes,
                        &s->at[slot], &e))
        loop_fail(&m->loop, &e);
    else
        atomic_fetch_add(&m->loop.bytes, expert_bytes(m->o->io));
}

static void fill_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    read_into(ctx, task, task);
}

static void some_task(void *ctx, size_t task, unsigned thread)
{
    struct some *m = ctx;
    if (!loop_over(&m->loop))
        read_into(m, thread * m->per_thread + m->turn[thread]++ % m->per_thread, m->s->n + task);
}

/* All slots are filled first, whatever the time. */
static enum status read_some(struct some *m, double *bytes_s, struct err *e)
{
    struct pool *pool;
    enum status rc = pool_open(&pool, READERS_THREADS, e);
    if (rc) return rc;
    loop_begin(&m->loop, m->o->seconds);
    pool_run(pool, m->s->n, fill_task, m);
    rc = loop_end(&m->loop, e);
    if (!rc) {
        loop_begin(&m->loop, m->o->seconds);
        double since = os_now();
        pool_run(pool, m->n_keys * 4, some_task, m);
        *bytes_s = (double)m->loop.bytes / (os_now() - since);
        rc = loop_end(&m->loop, e);
    }
    pool_close(pool);
    return rc;
}

enum status bench_io_experts(const struct bench_io_opts *o, struct bench_io_slots *s,
                             double *bytes_s, struct err *e)
{
    struct some m = {.o = o, .s = s};
    uint32_t *keys = all_keys(o, &m.n_keys);
    m.keys = keys;
    m.begin = (size_t)os_unix_time() * 4;
    m.per_thread = s->n / READERS_THREADS;
    m.turn = calloc(READERS_THREADS, sizeof *m.turn);
    enum status rc = OK;
    if (!keys || !m.turn) rc = err_set(e, E_NOMEM, "reading experts: no memory");
    if (!rc) rc = read_some(&m, bytes_s, e);
    free(keys);
    free(m.turn);
    return rc;
}
