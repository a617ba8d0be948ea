/* Products of weights and rows for each instruction set this machine has, beside what its
 * registers and its memory can do alone. */
#include "jobs/cmd_bench.h"

#include "src/bench_kern.h"

#define WEIGHT_BYTES ((size_t)256 << 20) /* several times the last cache */
#define MOST_ROWS    1024

struct kernels {
    struct cmd_bench *b;
    struct mem mem;
    struct bench_kern *k;
    double memory;
};

static enum status product(const struct kernels *k, const struct kern *kern, double peak,
                           const struct bench_kern_product *p, struct err *e)
{
    struct bench_kern_speed s;
    enum status rc = bench_kern_product(k->k, kern, p, &s, e);
    if (rc) return rc;
    cmd_bench_row(
        k->b,
        (struct bench_value[]){{.name = "kernels", .text = kern->name},
                               {.name = "weights", .text = p->type == DT_MXFP4 ? "mxfp4" : "bf16"},
                               {.name = "rows", (double)p->rows},
                               {.name = "GFLOP/s", s.flops * 1e-9, 1},
                               {.name = "peak GFLOP/s", peak * 1e-9, 1},
                               {.name = "% of peak", 100 * s.flops / peak, 1},
                               {.name = "weights GB/s", s.bytes * 1e-9, 2},
                               {.name = "memory GB/s", k->memory * 1e-9, 2},
                               {.name = "% of memory", 100 * s.bytes / k->memory, 1}},
        9);
    return OK;
}

static enum status all_rows(const struct kernels *k, const struct kern *kern, struct err *e)
{
    static const size_t rows[] = {1, 4, 16, 64, 256, 1024};
    const struct config *c = &k->b->m.config;
    const struct bench_kern_product kinds[] = {
        {DT_MXFP4, c->expert_width, c->latent ? c->latent : c->hidden, 0},
        {DT_BF16, c->hidden, c->hidden, 0},
    };
    double peak = bench_kern_peak(k->k, kern);
    enum status rc = OK;
    for (size_t i = 0; i < 2; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows && !rc && !cmd_stop_wanted(); r++) {
            struct bench_kern_product p = kinds[i];
            p.rows = rows[r];
            if (p.out && p.in % 32 == 0) rc = product(k, kern, peak, &p, e);
        }
    return rc;
}

enum status cmd_bench_kern(struct cmd_bench *b, struct err *e)
{
    const struct kern *all[8];
    struct kernels k = {.b = b};
    const struct config *c = &b->m.config;
    uint32_t inner = c->latent ? c->latent : c->hidden;
    struct bench_kern_opts o = {.mem = &k.mem, .pool = b->compute.pool, .max_rows = MOST_ROWS};
    o.weight_bytes = b->ram / 4 < WEIGHT_BYTES ? b->ram / 4 : WEIGHT_BYTES;
    o.max_cols = c->hidden > inner ? c->hidden : inner;
    if (c->expert_width > o.max_cols) o.max_cols = c->expert_width;
    mem_init(&k.mem, b->ram);
    enum status rc = bench_kern_open(&k.k, &o, e);
    if (!rc) k.memory = bench_kern_memory(k.k);
    size_t n = kern_all(all, 8);
    for (size_t i = 0; i < n && !rc; i++)
        if (!b->o->isa || all[i] == b->m.kern) rc = all_rows(&k, all[i], e);
    bench_kern_close(k.k);
    mem_close(&k.mem);
    return rc;
}

enum status cmd_bench_peak(const struct cmd_bench *b, double *peak, struct err *e)
{
    struct mem mem;
    struct bench_kern *k = NULL;
    mem_init(&mem, 0);
    struct bench_kern_opts o = {.mem = &mem, .pool = b->compute.pool, .weight_bytes = 1 << 20};
    o.max_rows = 1;
    o.max_cols = 64;
    enum status rc = bench_kern_open(&k, &o, e);
    if (!rc) *peak = bench_kern_peak(k, b->m.kern);
    bench_kern_close(k);
    mem_close(&mem);
    return rc;
}
