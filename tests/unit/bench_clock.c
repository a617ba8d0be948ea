/* Medians of timed runs. */
#include "src/bench_clock.h"
#include "tests/lib/test.h"

/* The middle one, or the mean of the two in the middle; the order does not matter. */
TEST(median)
{
    double odd[] = {5, 1, 4}, even[] = {9, 2, 1, 3}, one[] = {7};
    CHECK_NEAR(bench_clock_median(odd, 3), 4, 0);
    CHECK_NEAR(bench_clock_median(even, 4), 2.5, 0);
    CHECK_NEAR(bench_clock_median(one, 1), 7, 0);
}

static void count(void *ctx)
{
    ++*(size_t *)ctx;
}

/* One run to warm up and three that count, however little time there is. */
TEST(least_runs)
{
    size_t n = 0;
    double s = bench_clock_time(count, &n, 0);
    CHECK_INT(n, 4);
    CHECK(s >= 0);
    n = 0;
    bench_clock_time(count, &n, 1e9);
    CHECK_INT(n, BENCH_CLOCK_MOST + 1);
}

TEST_MAIN
