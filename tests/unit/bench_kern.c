/* bench_kern: figures are positive and consistent, what has no room is refused. */
#include "src/bench_kern.h"
#include "tests/lib/test.h"

/* Seconds, operations and bytes of one product belong together; memory and peak are above zero. */
TEST(figures)
{
    struct err e;
    struct mem m;
    struct bench_kern *b;
    struct bench_kern_speed s;
    const struct kern *k;
    mem_init(&m, 0);
    struct bench_kern_opts o = {.mem = &m, .weight_bytes = 4 << 20, .max_rows = 4, .max_cols = 256};
    CHECK_OK(kern_select(&k, NULL, false, &e), e);
    CHECK_OK(pool_open(&o.pool, 2, &e), e);
    CHECK_OK(bench_kern_open(&b, &o, &e), e);
    struct bench_kern_product p = {DT_MXFP4, 256, 128, 4};
    CHECK_OK(bench_kern_product(b, k, &p, &s, &e), e);
    CHECK(s.seconds > 0);
    CHECK_NEAR(s.flops * s.seconds, 2.0 * 256 * 128 * 4, 1);
    CHECK_NEAR(s.bytes * s.seconds, 256 * 128 * (1.0 / 2 + 1.0 / 32), 1);
    CHECK(bench_kern_memory(b) > 0);
    CHECK(bench_kern_peak(b, k) > 0);
    p.rows = 5;
    CHECK_ERR(bench_kern_product(b, k, &p, &s, &e), E_USAGE, e, "[256 x 128] of 5 rows");
    p.rows = 1;
    p.in = 288;
    CHECK_ERR(bench_kern_product(b, k, &p, &s, &e), E_USAGE, e, "288");
    bench_kern_close(b);
    pool_close(o.pool);
    mem_close(&m);
}

/* A budget that does not hold the weights is refused and everything taken is given back. */
TEST(no_room)
{
    struct err e;
    struct mem m;
    struct bench_kern *b;
    mem_init(&m, 1 << 20);
    struct bench_kern_opts o = {.mem = &m, .weight_bytes = 4 << 20, .max_rows = 4, .max_cols = 256};
    CHECK_OK(pool_open(&o.pool, 1, &e), e);
    CHECK_ERR(bench_kern_open(&b, &o, &e), E_BUDGET, e, "bench weights");
    CHECK(b == NULL);
    pool_close(o.pool);
    mem_close(&m);
}

TEST_MAIN
