/* Medians; the clock is os_now. */
#include "src/bench_clock.h"

#include "src/os.h"

#include <stdlib.h>

#define LEAST_RUNS 3

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_clock_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double bench_clock_time(void (*fn)(void *ctx), void *ctx, double seconds)
{
    double took[BENCH_CLOCK_MOST];
    size_t n = 0;
    fn(ctx);
    double begin = os_now(), last = begin;
    while (n < BENCH_CLOCK_MOST && (n < LEAST_RUNS || last - begin < seconds)) {
        fn(ctx);
        double now = os_now();
        took[n++] = now - last;
        last = now;
    }
    return bench_clock_median(took, n);
}
