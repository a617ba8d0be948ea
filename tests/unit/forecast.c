/* What sweeps and nights are expected to take. */
#include "src/forecast.h"
#include "tests/lib/test.h"

static struct config config;
static struct plan_model model;
static struct plan plan;
static struct plan_speed speed;

/* 4 layers of 1 MB, the last 3 with 100 experts of 1 MB, top 5; nothing but reading takes time. */
static struct forecast small(size_t slots)
{
    struct forecast f;
    config = (struct config){.vocab = 100, .hidden = 32, .layers = 4, .dense_width = 64};
    for (int i = 1; i < 4; i++) config.is_moe[i] = 1;
    config.experts = 100;
    config.top_k = 5;
    config.expert_width = 32;
    config.kda_heads = 1;
    config.kda_dim = 32;
    config.conv = 4;
    model = (struct plan_model){.config = &config, .expert_bytes = 1000000, .expert_count = 300};
    for (int i = 0; i < 4; i++) model.layer_bytes[i] = 1000000;
    plan = (struct plan){.sequences = 8, .prefill_rows = 64, .expert_slots = slots};
    plan_speed_guess(&speed, 1);
    speed.read_bytes_s = 1e9;
    speed.memory_bytes_s = speed.vector_flop_s = speed.delta_flop_s = speed.gate_values_s = 1e15;
    for (int i = 0; i < PLAN_SPEED_POINTS; i++)
        speed.expert_flop_s[i] = speed.trunk_flop_s[i] = 1e15;
    speed.join_s = 0;
    speed.skew = 0;
    forecast_init(&f, &model, &plan, &speed);
    return f;
}

/* With even use and no cache, experts are needed as the urn problem says, and each is read. */
TEST(even_use)
{
    struct forecast f = small(2);
    struct forecast_sweep s;
    for (int rows = 1; rows <= 64; rows *= 4) {
        forecast_sweep(&f, &(struct forecast_rows){.decode = rows}, &s);
        CHECK_NEAR(s.uses, 300 * (1 - pow(0.95, rows)), 1e-6);
        CHECK_NEAR(s.fetches, s.uses, 1e-9);
        CHECK_NEAR(s.bytes, s.uses * 1e6 + 4e6, 1);
        CHECK_NEAR(s.read_s, s.bytes / 1e9, 1e-9);
    }
}

/* Favourites make a crowd need fewer experts, and make a cache save more than its share. */
TEST(uneven_use)
{
    struct forecast f = small(2);
    struct forecast_sweep even, uneven, cached;
    struct forecast_rows r = {.decode = 16};
    forecast_sweep(&f, &r, &even);
    speed.skew = 1.5;
    forecast_init(&f, &model, &plan, &speed);
    forecast_sweep(&f, &r, &uneven);
    CHECK(uneven.uses < 0.8 * even.uses);
    plan.expert_slots = 12 + 60;
    forecast_init(&f, &model, &plan, &speed);
    forecast_sweep(&f, &r, &cached);
    CHECK_NEAR(cached.uses, uneven.uses, 1e-9);
    CHECK(cached.fetches < 0.6 * cached.uses && cached.fetches > 0);
    plan.expert_slots = 300;
    plan.pinned_layers = 4;
    forecast_init(&f, &model, &plan, &speed);
    forecast_sweep(&f, &r, &cached);
    CHECK_NEAR(cached.bytes, 0, 1e-9);
}

/* The skew is found again from the number of experts that sweeps needed. */
TEST(skew_from_counts)
{
    struct forecast f = small(2);
    for (double skew = 0.2; skew < 3; skew += 0.4) {
        struct forecast_sweep s;
        speed.skew = skew;
        forecast_init(&f, &model, &plan, &speed);
        forecast_sweep(&f, &(struct forecast_rows){.decode = 24}, &s);
        CHECK_NEAR(forecast_skew(&config, 24, s.uses / 3), skew, 1e-3);
    }
    CHECK_NEAR(forecast_skew(&config, 24, 100), 0, 1e-6);
    CHECK_NEAR(forecast_skew(&config, 24, 5), 4, 1e-6);
}

/* Reading and arithmetic hide each other, but for a fifth of the shorter one, and but for experts
 * that are known too late: beside these there are only routed and shared experts. */
TEST(side_by_side)
{
    struct forecast f = small(2);
    struct forecast_sweep s;
    for (int i = 0; i < PLAN_SPEED_POINTS; i++) speed.trunk_flop_s[i] = 1e8;
    forecast_sweep(&f, &(struct forecast_rows){.prefill = 100}, &s);
    /* 4 layers of half a million weights */
    CHECK_NEAR(s.compute_s, 2 * 2e6 * 100 / 1e8, 0.01);
    /* All but 8 a layer are late. */
    double late = (s.fetches - 3 * 8) * 1e6 / 1e9;
    CHECK_NEAR(s.seconds, s.compute_s + late + 0.2 * s.read_s, 1e-6);
    config.shared_experts = 4; /* 3 layers of 3 x 32 x 4 x 32 weights take 0.07 s of the 4 s */
    forecast_sweep(&f, &(struct forecast_rows){.prefill = 100}, &s);
    CHECK_NEAR(s.seconds, s.compute_s + late - 0.073728 + 0.2 * s.read_s, 1e-6);
    speed.slack = 2;
    forecast_sweep(&f, &(struct forecast_rows){.prefill = 100}, &s);
    CHECK_NEAR(s.compute_s, 2 * 2 * 2e6 * 100 / 1e8, 0.02);
    CHECK_NEAR(s.seconds, s.compute_s + late - 2 * 0.073728 + 0.2 * s.read_s, 1e-6);
    /* With few rows nothing is certain enough to be read ahead. */
    forecast_sweep(&f, &(struct forecast_rows){.decode = 8}, &s);
    CHECK(s.seconds > s.compute_s + s.fetches * 1e6 / 1e9 - 0.02);
}

/* One job by itself: its prompt in chunks, then a sweep for each token after the first. */
TEST(one_job)
{
    struct forecast f = small(2);
    struct forecast_night n;
    plan.sequences = 1;
    struct plan_mix mix = {.jobs = 1, .prompt_rows = 150, .output_tokens = 20};
    forecast_night(&f, &mix, &n);
    CHECK_NEAR(n.sweeps_per_job, 3 + 19, 1e-9);
    CHECK_NEAR(n.rows, (150 + 19) / 22.0, 1e-9);
    CHECK_NEAR(n.seconds, 22 * n.sweep.seconds, 1e-6);
    CHECK_NEAR(n.bytes_per_token, 22 * n.sweep.bytes / 20, 1);
    CHECK_NEAR(n.tokens_s, 20 / n.seconds, 1e-9);
    CHECK_NEAR(n.jobs_per_hour, 3600 / n.seconds, 1e-6);
}

/* Jobs that share sweeps need fewer of them; a long queue goes on at the rate of its first rounds.
 */
TEST(many_jobs)
{
    struct forecast f = small(2);
    struct forecast_night few, many, endless;
    struct plan_mix mix = {.jobs = 8, .prompt_rows = 8, .output_tokens = 10};
    forecast_night(&f, &mix, &few);
    CHECK_NEAR(few.sweeps_per_job, 10 / 8.0, 1e-9);
    mix.jobs = 8000;
    forecast_night(&f, &mix, &many);
    CHECK_NEAR(many.seconds, 1000 * few.seconds, 0.01 * many.seconds);
    mix.jobs = 0;
    forecast_night(&f, &mix, &endless);
    CHECK_INT(endless.seconds, 0);
    CHECK_NEAR(endless.jobs_per_hour, many.jobs_per_hour, 0.01 * many.jobs_per_hour);
}

/* Pictures take their share of the cores: where arithmetic is all there is, times add up. The end
 * of a queue is taken for more of it: eight jobs have their pictures before. */
TEST(pictures_cost)
{
    struct forecast f = small(2);
    struct forecast_night without, with;
    struct plan_mix mix = {.jobs = 40, .prompt_rows = 64, .output_tokens = 4};
    speed.read_bytes_s = 1e14;
    for (int i = 0; i < PLAN_SPEED_POINTS; i++) speed.trunk_flop_s[i] = 1e9;
    plan.vision_flop = 1e9;
    forecast_night(&f, &mix, &without);
    mix.image_rows = 1; /* a second each */
    forecast_night(&f, &mix, &with);
    CHECK(with.seconds > without.seconds + 39 && with.seconds < without.seconds + 48);
}

/* A run that was slower than its forecast makes the next forecast fit, by the part that was longer;
 * its use of experts is taken over. */
TEST(learns)
{
    struct forecast f = small(2);
    struct forecast_night n;
    struct forecast_run run = {.mix = {.jobs = 40, .prompt_rows = 30, .output_tokens = 12}};
    struct plan_speed truth;
    for (int reading = 0; reading < 2; reading++) {
        small(2);
        speed.read_bytes_s = reading ? 1e9 : 1e14;
        for (int i = 0; i < PLAN_SPEED_POINTS; i++) speed.trunk_flop_s[i] = reading ? 1e15 : 1e9;
        truth = speed;
        truth.skew = 1.3;
        truth.read_bytes_s /= 1.7;
        truth.slack = 1.7;
        forecast_init(&f, &model, &plan, &truth);
        forecast_night(&f, &run.mix, &n);
        run.uses = n.sweep.uses;
        run.seconds = n.seconds;
        forecast_learn(&speed, &model, &plan, &run);
        CHECK_NEAR(speed.skew, 1.3, 0.01);
        CHECK_NEAR(reading ? truth.read_bytes_s / speed.read_bytes_s : truth.slack / speed.slack, 1,
                   0.02);
        CHECK(reading ? speed.slack == 1 : speed.read_bytes_s == 1e14);
    }
}

TEST_MAIN
