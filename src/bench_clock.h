/* Timing of something that can be done again: the median of several runs. */
#ifndef NS_BENCH_CLOCK_H
#define NS_BENCH_CLOCK_H

#include <stddef.h>

#define BENCH_CLOCK_MOST 101

/* Sorts v [n], n >= 1. */
double bench_clock_median(double *v, size_t n);
/* Seconds that fn(ctx) takes: run once to warm up, then until `seconds` have passed, at least three
 * times. */
double bench_clock_time(void (*fn)(void *ctx), void *ctx, double seconds);

#endif
