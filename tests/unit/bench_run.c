/* Loads made up for measuring, on the demo model: what is counted of them. */
#include "src/bench_run.h"
#include "tests/lib/test.h"

static struct config config;
static struct plan_model model;
static struct plan_speed speed;

static bool begin(struct bench_run_opts *o)
{
    struct err e;
    *o = (struct bench_run_opts){.model_dir = "examples/demo-model", .direct_io = true};
    o->ram_bytes = 256 << 20;
    o->model = &model;
    o->speed = &speed;
    plan_speed_guess(&speed, 2);
    return plan_model_load(&model, &config, o->model_dir, &e) == OK &&
           kern_select(&o->compute.kern, NULL, false, &e) == OK &&
           pool_open(&o->compute.pool, 2, &e) == OK;
}

/* Sweeps need what their rows choose, whatever is cached; a cache reads no less than the best
 * policy could, and each expert once when it holds everything. */
TEST(decode_counts)
{
    struct bench_run_opts o;
    struct bench_run_result r[3];
    struct err e;
    CHECK(begin(&o));
    const double cached[] = {0.1, 0.5, 1};
    for (int i = 0; i < 3; i++) {
        struct bench_run_load l = {.sequences = 5, .cached = cached[i]};
        CHECK_OK(bench_run(&r[i], &o, &l, 1e9, &e), e);
        CHECK_INT(r[i].sweeps, 3);
        CHECK_NEAR(r[i].rows, 5, 0);
        CHECK_NEAR(r[i].tokens_s * r[i].sweep_s, 5, 1e-6);
        CHECK(r[i].uses >= config.top_k * config_moe_layers(&config));
        CHECK(r[i].uses <= 5 * config.top_k * config_moe_layers(&config));
        CHECK(r[i].best > 0 && r[i].best <= r[i].needed && r[i].best <= r[i].read);
        CHECK_INT(r[i].plan.expert_slots, (size_t)(cached[i] * (double)model.expert_count));
    }
    CHECK(r[0].fetches > r[1].fetches && r[1].fetches > 0);
    CHECK_INT(r[2].read, r[2].needed);
    CHECK_INT(r[2].trunk_bytes, 0);
    pool_close(o.compute.pool);
}

/* In prefill every measured sweep is full. */
TEST(prefill_counts)
{
    struct bench_run_opts o;
    struct bench_run_result r;
    struct err e;
    CHECK(begin(&o));
    struct bench_run_load l = {.rows = 96, .cached = -1};
    CHECK_OK(bench_run(&r, &o, &l, 1e9, &e), e);
    CHECK_NEAR(r.rows, 96, 0);
    CHECK_NEAR(r.rows_s * r.sweep_s, 96, 1e-6);
    CHECK_INT(r.plan.prefill_rows, 96);
    pool_close(o.compute.pool);
}

/* What does not fit, or would take too long, is said so. */
TEST(left_out)
{
    struct bench_run_opts o;
    struct bench_run_result r;
    struct err e;
    CHECK(begin(&o));
    struct bench_run_load l = {.sequences = 2, .cached = 0.5};
    CHECK_ERR(bench_run(&r, &o, &l, 0, &e), E_STOPPED, e, "a sweep takes");
    l.sequences = 4000;
    CHECK_ERR(bench_run(&r, &o, &l, 1e9, &e), E_BUDGET, e, "no room for 4000 sequences");
    o.ram_bytes = 1 << 20;
    CHECK_ERR(bench_run(&r, &o, &l, 1e9, &e), E_BUDGET, e, "needs at least");
    pool_close(o.compute.pool);
}

TEST_MAIN
