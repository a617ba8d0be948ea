/* Speeds of every table on this machine: bench_kern [THREADS [MEGABYTES]]. For each expert product
 * operations per second by number of rows, beside the peak of multiply-adds on registers and beside
 * what memory delivers, all measured in the same run. */
#include "src/bench_kern.h"
#include "src/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct bench_kern_product products[] = {
    {DT_MXFP4, 1792, 1024, 0}, {DT_MXFP4, 1024, 1792, 0}, {DT_MXFP4, 3072, 3584, 0},
    {DT_BF16, 1792, 1024, 0},  {DT_F32, 1792, 1024, 0},
};
static const size_t rows[] = {1, 2, 4, 8, 16, 64, 256, 1024};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static enum status print_table(struct bench_kern *b, const struct kern *k, double memory,
                               struct err *e)
{
    double peak = bench_kern_peak(b, k);
    printf("%s: peak %.1f GFLOP/s, memory %.1f GB/s\n", k->name, peak * 1e-9, memory * 1e-9);
    printf("  %-22s%6s %9s %7s %9s %9s\n", "weights", "rows", "GFLOP/s", "peak", "GB/s", "memory");
    for (size_t i = 0; i < COUNT(products); i++)
        for (size_t j = 0; j < COUNT(rows); j++) {
            struct bench_kern_product p = products[i];
            struct bench_kern_speed s;
            p.rows = rows[j];
            enum status rc = bench_kern_product(b, k, &p, &s, e);
            if (rc) return rc;
            printf("  %-5s [%5" PRIu32 " x %5" PRIu32 "]%6zu %9.1f %6.0f%% %9.2f %8.0f%%\n",
                   p.type == DT_MXFP4  ? "mxfp4"
                   : p.type == DT_BF16 ? "bf16"
                                       : "f32",
                   p.out, p.in, p.rows, s.flops * 1e-9, 100 * s.flops / peak, s.bytes * 1e-9,
                   100 * s.bytes / memory);
            fflush(stdout);
        }
    return OK;
}

int main(int argc, char **argv)
{
    struct err e;
    struct mem m;
    struct pool *pool = NULL;
    struct bench_kern *b = NULL;
    const struct kern *tables[8];
    unsigned threads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : os_cpus();
    size_t megabytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 256;
    mem_init(&m, 0);
    enum status rc = pool_open(&pool, threads, &e);
    struct bench_kern_opts o = {&m, pool, megabytes << 20, 1024, 3584};
    if (!rc) rc = bench_kern_open(&b, &o, &e);
    if (!rc) {
        double memory = bench_kern_memory(b);
        size_t n = kern_all(tables, COUNT(tables));
        printf("%u threads, medians, peak and memory of all threads together\n", threads);
        for (size_t i = n; !rc && i > 0; i--) rc = print_table(b, tables[i - 1], memory, &e);
    }
    if (rc) fprintf(stderr, "%s\n", e.text);
    bench_kern_close(b);
    pool_close(pool);
    mem_close(&m);
    return rc != OK;
}
