/* Reading: plain loops over the model's files, the cache without arithmetic, and policies of the
 * cache on recorded routes. */
#include "jobs/cmd_bench.h"

#include "src/bench_clock.h"
#include "src/bench_io.h"
#include "src/cache_sim.h"
#include "src/moe.h"
#include "src/os.h"

#include <stdio.h>

#define ROUNDS 5
#define REGION_BYTES                                                                               \
    ((uint64_t)1 << 30) /* read again and again: caches below hold it, or none do */

struct disk {
    struct mem mem;
    struct safetensors *files;
    struct expert_io *io;
    struct bench_io_opts o;
    uint64_t place; /* of the plain loops */
};

static enum status disk_open(struct disk *d, const struct cmd_bench *b, struct err *e)
{
    const struct config *c = &b->m.config;
    *d = (struct disk){0};
    mem_init(&d->mem, b->ram);
    bool direct = !b->o->no_direct_io;
    enum status rc = safetensors_open(&d->files, b->m.dir, direct, e);
    if (!rc && config_moe_layers(c)) rc = moe_experts_open(&d->io, &d->mem, d->files, c, e);
    d->o = (struct bench_io_opts){.mem = &d->mem,
                                  .files = d->files,
                                  .io = d->io,
                                  .is_moe = c->is_moe,
                                  .layers = c->layers,
                                  .experts = c->experts,
                                  .direct = direct,
                                  .seconds = b->seconds,
                                  .place = &d->place};
    if (d->io) d->o.region = (size_t)(REGION_BYTES / expert_bytes(d->io)) + 1;
    return rc;
}

static void disk_close(struct disk *d)
{
    expert_io_close(d->io);
    safetensors_close(d->files);
    mem_close(&d->mem);
}

static void loop_row(struct cmd_bench *b, const struct disk *d, const struct bench_io_loop *l)
{
    bool direct = true;
    for (unsigned i = 0; i < safetensors_files(d->files); i++)
        direct &= safetensors_direct(d->files, i);
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "threads", l->threads},
                                         {.name = "block kB", (double)l->block / 1024},
                                         {.name = "I/O", .text = direct ? "direct" : "buffered"},
                                         {.name = "MB/s", l->bytes_s * 1e-6}},
                  4);
}

/* One loop over the region, from its beginning. */
static enum status read_region(struct disk *d, struct bench_io_loop *l, struct err *e)
{
    d->place = 0;
    return bench_io_plain(&d->o, l, e);
}

/* The fastest of the plain loops. The region is read before, so that all meet the same state. */
static enum status best_loop(struct cmd_bench *b, struct disk *d, bool tell,
                             struct bench_io_loop *best, struct err *e)
{
    struct bench_io_loop l = bench_io_loops[BENCH_IO_LOOPS - 1];
    enum status rc = read_region(d, &l, e);
    *best = (struct bench_io_loop){0};
    for (size_t i = 0; i < BENCH_IO_LOOPS && !rc; i++) {
        l = bench_io_loops[i];
        rc = read_region(d, &l, e);
        if (!rc && tell) loop_row(b, d, &l);
        if (l.bytes_s > best->bytes_s) *best = l;
    }
    return rc;
}

enum status cmd_bench_disk_now(struct cmd_bench *b, double seconds, double *bytes_s, struct err *e)
{
    struct disk d;
    enum status rc = disk_open(&d, b, e);
    if (!rc && b->disk.bytes_s <= 0) rc = best_loop(b, &d, false, &b->disk, e);
    d.o.seconds = seconds;
    d.o.region = 0;
    d.o.place = &b->disk_place;
    struct bench_io_loop l = b->disk;
    if (!rc) rc = bench_io_plain(&d.o, &l, e);
    disk_close(&d);
    *bytes_s = l.bytes_s;
    return rc;
}

/* Streams and plain loops take turns over the same part of the files, for disks that are not
 * equally fast at all times; each round gives a ratio. */
static enum status stream_row(struct cmd_bench *b, struct disk *d, size_t slots,
                              struct bench_io_loop *best, struct err *e)
{
    struct bench_io_stream s;
    char what[32];
    double stream[ROUNDS], plain[ROUNDS], ratio[ROUNDS];
    if (slots > b->m.sizes.expert_count) slots = b->m.sizes.expert_count;
    snprintf(what, sizeof what, "%zu slots", slots);
    for (int i = 0; i < ROUNDS; i++) {
        size_t first = 0;
        enum status rc = read_region(d, best, e);
        if (!rc) rc = bench_io_stream(&d->o, slots, &first, &s, e);
        if (rc) return cmd_bench_left_out(b, what, &rc, e) ? OK : rc;
        plain[i] = best->bytes_s;
        stream[i] = s.bytes_s;
        ratio[i] = 100 * stream[i] / plain[i];
    }
    double limit = bench_clock_median(plain, ROUNDS), rate = bench_clock_median(stream, ROUNDS);
    double percent = bench_clock_median(ratio, ROUNDS); /* sorts */
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "slots", (double)slots},
                                         {.name = "experts read", (double)s.experts},
                                         {.name = "MB/s", rate * 1e-6},
                                         {.name = "limit MB/s", limit * 1e-6},
                                         {.name = "limit from", plain[0] * 1e-6},
                                         {.name = "limit to", plain[ROUNDS - 1] * 1e-6},
                                         {.name = "% from", ratio[0]},
                                         {.name = "% to", ratio[ROUNDS - 1]},
                                         {.name = "% of limit", percent},
                                         {.name = "target %", 90}},
                  10);
    return OK;
}

enum status cmd_bench_disk(struct cmd_bench *b, struct err *e)
{
    struct disk d;
    enum status rc = disk_open(&d, b, e);
    if (!rc) rc = best_loop(b, &d, true, &b->disk, e);
    static const size_t slots[] = {16, 32, 128};
    if (!rc && !d.io) cmd_bench_skip(b, "streaming", "the model has no routed experts");
    for (size_t i = 0; i < sizeof slots / sizeof *slots && !rc && d.io; i++)
        rc = stream_row(b, &d, slots[i], &b->disk, e);
    disk_close(&d);
    return rc;
}

static enum status policy_row(struct cmd_bench *b, const struct cache_sim *s,
                              const struct cache_sim_opts *given, struct err *e)
{
    struct cache_sim_result r[CACHE_POLICIES];
    struct cache_sim_opts o = *given;
    enum status rc = OK;
    for (int p = 0; p < CACHE_POLICIES && !rc; p++) {
        o.policy = (enum cache_policy)p;
        rc = cache_sim_run(s, &o, &r[p], e);
    }
    if (rc) return rc;
    struct bench_value v[4 + CACHE_POLICIES + 1] = {
        {.name = "sequences", o.sequences},
        {.name = "cached %", 100 * o.share},
        {.name = "uses", (double)r[0].uses},
        {.name = "first uses", (double)r[0].first_uses},
    };
    for (int p = 0; p < CACHE_POLICIES; p++) {
        v[4 + p].name = cache_sim_policy_name((enum cache_policy)p);
        v[4 + p].v = (double)r[p].misses;
    }
    v[4 + CACHE_POLICIES].name = "read a token";
    v[4 + CACHE_POLICIES].v = r[CACHE_HEAT].reads_per_token;
    v[4 + CACHE_POLICIES].digits = 2;
    cmd_bench_row(b, v, sizeof v / sizeof *v);
    return OK;
}

enum status cmd_bench_cache(struct cmd_bench *b, struct err *e)
{
    static const uint32_t sequences[] = {1, 8, 16, 64};
    static const double shares[] = {0.1, 0.2, 0.25, 0.5};
    struct mem mem;
    struct cache_sim *s = NULL;
    struct cache_sim_facts f;
    mem_init(&mem, b->ram);
    enum status rc = cache_sim_open(&s, &mem, b->o->cache_sim, e);
    if (!rc) cache_sim_facts(s, &f);
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences && !rc; i++)
        for (size_t k = 0; k < sizeof shares / sizeof *shares && !rc; k++)
            if (sequences[i] <= f.tokens / 2 || sequences[i] == 1)
                rc = policy_row(
                    b, s, &(struct cache_sim_opts){.sequences = sequences[i], .share = shares[k]},
                    e);
    cache_sim_close(s);
    mem_close(&mem);
    return rc;
}
