/* Sharing out the memory budget. */
#include "src/plan.h"
#include "src/forecast.h"
#include "src/plan_text.h"
#include "tests/lib/test.h"

#define MIB ((uint64_t)1 << 20)

/* 16 layers of 10 MiB, 960 experts of 2 MiB. */
static void big_model(struct plan_model *m, struct config *c)
{
    *c = (struct config){.vocab = 16384, .hidden = 512, .layers = 16, .dense_width = 1024};
    for (int i = 0; i < 16; i++) {
        c->kind[i] = i % 4 == 3 ? LAYER_MLA : LAYER_KDA;
        c->is_moe[i] = i > 0;
        m->layer_bytes[i] = 10 * MIB;
    }
    c->attn_res_period = 4;
    c->experts = 64;
    c->top_k = 4;
    c->expert_width = c->latent = 512;
    c->mla_heads = c->kda_heads = 4;
    c->kv_lora = 128;
    c->nope_dim = c->v_dim = c->kda_dim = 64;
    c->conv = 4;
    c->context = 4096;
    m->config = c;
    m->global_bytes = 32 * MIB;
    m->expert_slot_bytes = 2 * MIB;
    m->expert_bytes = 2 * MIB - 4096;
    m->expert_count = 960;
    m->header_bytes = MIB;
    m->table_bytes = MIB;
}

static enum status plan_with(const struct plan_request *given, struct plan *p, struct err *e)
{
    struct plan_model m = {0};
    struct config c;
    struct plan_request r = *given;
    big_model(&m, &c);
    r.threads = 2;
    return plan_make(p, &m, &r, e);
}

static enum status plan_for(uint64_t ram, struct plan *p, struct err *e)
{
    struct plan_request r = {.ram_bytes = ram};
    return plan_with(&r, p, e);
}

/* Whatever the budget, the plan stays inside it; below the floor it is refused with the floor
 * stated, and the floor itself works. */
TEST(inside_the_budget)
{
    struct plan p;
    struct err e = {0};
    CHECK_ERR(plan_for(50 * MIB, &p, &e), E_BUDGET, e, "needs at least");
    uint64_t floor = p.floor_bytes;
    CHECK_OK(plan_for(floor, &p, &e), e);
    CHECK(p.total_bytes <= floor);
    CHECK_INT(p.sequences, 1);
    CHECK_ERR(plan_for(floor - 1, &p, &e), E_BUDGET, e, "MiB");
    for (uint64_t ram = floor; ram < 4096 * MIB; ram += 37 * MIB) {
        CHECK_OK(plan_for(ram, &p, &e), e);
        CHECK(p.total_bytes <= ram);
        CHECK(p.sequences >= 1 && p.prefill_rows >= 1 && p.expert_slots >= 2);
    }
}

/* The shares are the whole: nothing is planned outside of them. */
TEST(shares_add_up)
{
    struct plan p;
    struct err e = {0};
    CHECK_OK(plan_for(700 * MIB, &p, &e), e);
    CHECK_INT(p.total_bytes, p.reserve_bytes + p.jobs_bytes + p.vision_bytes + p.table_bytes +
                                 p.global_bytes + p.pinned_bytes + p.stream_bytes + p.state_bytes +
                                 p.rows_bytes + p.draft_bytes + p.prefix_bytes + p.cache_bytes);
    CHECK(p.reserve_bytes > MIB && p.table_bytes == MIB);
}

static double tokens_s(uint64_t ram, const struct plan *p, const struct plan_mix *mix)
{
    struct plan_model m = {0};
    struct config c;
    struct plan_speed s;
    struct forecast f;
    struct forecast_night n;
    (void)ram;
    big_model(&m, &c);
    plan_speed_guess(&s, 2);
    forecast_init(&f, &m, p, &s);
    forecast_night(&f, mix, &n);
    return n.tokens_s;
}

/* More memory is never expected to be slower, apart from what a plan forgoes for being smaller;
 * with plenty, every layer and every expert is resident. */
TEST(more_memory_is_not_slower)
{
    struct plan_request r = {.mix = {.jobs = 100, .prompt_rows = 200, .output_tokens = 50}};
    struct plan p = {0};
    struct err e = {0};
    double last = 0;
    for (r.ram_bytes = 256 * MIB; r.ram_bytes <= 8192 * MIB; r.ram_bytes *= 2) {
        CHECK_OK(plan_with(&r, &p, &e), e);
        double now = tokens_s(r.ram_bytes, &p, &r.mix);
        CHECK(now > 0.98 * last);
        last = now;
    }
    CHECK_INT(p.pinned_layers, 16);
    CHECK_INT(p.stream_bytes, 0);
    CHECK_INT(p.expert_slots, 960);
}

/* The chosen plan is expected to be at least as fast as those that were asked for by hand. */
TEST(no_faster_by_hand)
{
    struct plan_request r = {.ram_bytes = 500 * MIB};
    struct plan p;
    struct err e = {0};
    r.mix = (struct plan_mix){.jobs = 300, .prompt_rows = 300, .output_tokens = 64};
    CHECK_OK(plan_with(&r, &p, &e), e);
    double best = tokens_s(r.ram_bytes, &p, &r.mix);
    for (r.max_sequences = 1; r.max_sequences <= 128; r.max_sequences *= 4)
        for (r.prefill_rows = 32; r.prefill_rows <= 512; r.prefill_rows *= 4) {
            if (plan_with(&r, &p, &e)) continue;
            CHECK(p.total_bytes <= r.ram_bytes);
            CHECK(best > 0.98 * tokens_s(r.ram_bytes, &p, &r.mix));
        }
}

/* Where neither reads nor idle cores cost anything, few sequences are enough; a slow disk wants
 * many to share each sweep. */
TEST(slow_disk_more_sequences)
{
    struct plan_speed fast, slow;
    struct plan_request r = {.ram_bytes = 400 * MIB};
    struct plan a, b;
    struct err e = {0};
    r.mix = (struct plan_mix){.jobs = 1000, .prompt_rows = 64, .output_tokens = 64};
    plan_speed_guess(&fast, 2);
    slow = fast;
    fast.expert_flop_s[0] = fast.trunk_flop_s[0] = fast.trunk_flop_s[1];
    fast.join_s = 0;
    fast.read_bytes_s = 1e14;
    slow.read_bytes_s = 1e8;
    r.speed = &fast;
    CHECK_OK(plan_with(&r, &a, &e), e);
    r.speed = &slow;
    CHECK_OK(plan_with(&r, &b, &e), e);
    CHECK(a.sequences <= 4 && b.sequences >= 16);
}

/* Counts given by hand are kept, or as much of them as fits. */
TEST(given_counts)
{
    struct plan_request r = {.ram_bytes = 600 * MIB, .max_sequences = 5, .prefill_rows = 48};
    struct plan p;
    struct err e = {0};
    r.expert_slots = 33;
    CHECK_OK(plan_with(&r, &p, &e), e);
    CHECK_INT(p.sequences, 5);
    CHECK_INT(p.prefill_rows, 48);
    CHECK_INT(p.expert_slots, 33);
    r.max_sequences = 100000;
    CHECK_OK(plan_with(&r, &p, &e), e);
    CHECK(p.sequences > 5 && p.total_bytes <= r.ram_bytes);
    r = (struct plan_request){.ram_bytes = 600 * MIB, .no_drafts = true, .no_sharing = true};
    r.mix.jobs = 3;
    CHECK_OK(plan_with(&r, &p, &e), e);
    CHECK(p.sequences <= 3 && p.draft_rows == 0 && p.draft_bytes == 0 && p.prefix_bytes == 0);
}

/* Room is planned for sequences as long as the jobs are, but always for one of full length. */
TEST(short_jobs_more_sequences)
{
    struct plan_request r = {.ram_bytes = 400 * MIB, .context = 4096, .max_sequences = 4096};
    struct plan a, b;
    struct err e = {0};
    CHECK_OK(plan_with(&r, &a, &e), e);
    r.mix.room_rows = 128;
    CHECK_OK(plan_with(&r, &b, &e), e);
    CHECK(b.sequences > 2 * a.sequences && b.sequence_bytes < a.sequence_bytes);
    r.max_sequences = 1;
    CHECK_OK(plan_with(&r, &b, &e), e);
    CHECK_INT(b.state_bytes, a.sequence_bytes);
}

/* The text names each share; the JSON is an object with the same numbers. */
TEST(told)
{
    struct plan_model m = {0};
    struct config c;
    struct plan p;
    struct plan_speed s;
    struct forecast f;
    struct forecast_night n;
    struct err e = {0};
    struct buf text = {0}, json = {0};
    char want[64];
    big_model(&m, &c);
    CHECK_OK(plan_for(700 * MIB, &p, &e), e);
    plan_speed_guess(&s, 2);
    forecast_init(&f, &m, &p, &s);
    forecast_night(&f, &(struct plan_mix){.jobs = 10}, &n);
    CHECK_OK(plan_text(&text, &p, &m, &n, &e), e);
    CHECK_OK(plan_text_json(&json, &p, &m, &n, &e), e);
    CHECK_HAS(text.data, "budget (--ram)          734 MB\n");
    CHECK_HAS(text.data, "jobs an hour\n");
    snprintf(want, sizeof want, "%zu of 960, 2.10 MB each", p.expert_slots);
    CHECK_HAS(text.data, want);
    snprintf(want, sizeof want, "\"expert_slots\":%zu,", p.expert_slots);
    CHECK_HAS(json.data, want);
    CHECK_HAS(json.data, "\"expected\":{\"seconds\":");
    CHECK(json.data[0] == '{' && !strcmp(json.data + json.len - 2, "}}"));
    buf_free(&text);
    buf_free(&json);
}

TEST_MAIN
