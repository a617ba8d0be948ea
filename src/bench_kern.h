/* What kernels and memory of this machine do, measured: figures for the plan and for `bench`. */
#ifndef NS_BENCH_KERN_H
#define NS_BENCH_KERN_H

#include "src/mem.h"
#include "src/quant.h"

struct bench_kern;

/* Takes weight_bytes for weights to stream (several times the last cache, or memory speed is not
 * what is measured) and room for max_rows rows of max_cols inputs and outputs a thread. */
struct bench_kern_opts {
    struct mem *mem;
    struct pool *pool;
    size_t weight_bytes, max_rows, max_cols;
};
enum status bench_kern_open(struct bench_kern **out, const struct bench_kern_opts *o,
                            struct err *e);
void bench_kern_close(struct bench_kern *b);

/* Figures are medians over repetitions, all threads of the pool at work. */

/* Operations per second of multiply-adds on registers alone: the peak of this table. */
double bench_kern_peak(struct bench_kern *b, const struct kern *k);
/* Bytes per second that reading memory gives. */
double bench_kern_memory(struct bench_kern *b);

/* One weight matrix times rows; each thread has its own matrix, fresh from memory. */
struct bench_kern_product {
    enum dtype type;
    uint32_t out, in; /* <= max_cols */
    size_t rows;      /* <= max_rows */
};
struct bench_kern_speed {
    double seconds; /* per matrix, all threads together */
    double flops;   /* operations per second: 2 out in rows / seconds */
    double bytes;   /* weight bytes per second */
};
/* E_USAGE when the product does not fit what was taken. */
enum status bench_kern_product(struct bench_kern *b, const struct kern *k,
                               const struct bench_kern_product *p, struct bench_kern_speed *out,
                               struct err *e);

#endif
