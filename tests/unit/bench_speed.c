/* Measuring a machine: on the demo model, with whatever kernels there are. */
#include "src/bench_speed.h"
#include "tests/lib/test.h"

/* Every speed is measured, fits the text form, and all memory is given back. */
TEST(all_measured)
{
    struct mem mem;
    struct err e;
    struct plan_speed s, t, guess;
    struct buf text = {0};
    struct bench_speed_opts o = {.model_dir = "examples/demo-model", .mem = &mem};
    o.direct_io = true;
    o.most_bytes = 4 << 20;
    mem_init(&mem, 0);
    CHECK_OK(kern_select(&o.compute.kern, NULL, false, &e), e);
    CHECK_OK(pool_open(&o.compute.pool, 2, &e), e);
    CHECK_OK(bench_speed(&s, &o, &e), e);
    pool_close(o.compute.pool);
    CHECK(mem.peak > 0 && mem.peak < 16u << 20);
    mem_close(&mem);
    CHECK_OK(plan_speed_to_text(&s, &text, &e), e);
    CHECK(plan_speed_from_text(&t, text.data));
    buf_free(&text);
    plan_speed_guess(&guess, 2);
    const double *a = (const double *)&s, *b = (const double *)&guess;
    size_t measured = 0;
    for (size_t i = 0; i < sizeof s / sizeof *a; i++) measured += a[i] != b[i];
    CHECK_INT(measured, sizeof s / sizeof *a - 2); /* all but skew and slack */
}

/* A folder without a model is the error of opening it. */
TEST(no_model)
{
    struct mem mem;
    struct err e;
    struct plan_speed s;
    struct bench_speed_opts o = {.model_dir = "examples/images", .mem = &mem};
    mem_init(&mem, 0);
    CHECK_OK(kern_select(&o.compute.kern, NULL, false, &e), e);
    CHECK_OK(pool_open(&o.compute.pool, 1, &e), e);
    CHECK(bench_speed(&s, &o, &e) != OK);
    CHECK_HAS(e.text, "config.json");
    pool_close(o.compute.pool);
    mem_close(&mem);
}

TEST_MAIN
