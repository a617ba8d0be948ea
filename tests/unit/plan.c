/* Sharing out the memory budget. */
#include "src/plan.h"
#include "tests/lib/test.h"

#define MIB ((uint64_t)1 << 20)

/* 16 layers of 10 MiB, 1,000 experts of 2 MiB. */
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
    m->expert_count = 960;
}

static enum status plan_for(uint64_t ram, struct plan *p, struct err *e)
{
    struct plan_model m = {0};
    struct config c;
    big_model(&m, &c);
    struct plan_request r = {.ram_bytes = ram, .threads = 2};
    return plan_make(p, &m, &r, e);
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

/* More memory never means fewer sequences or experts; with plenty, everything is resident. */
TEST(plenty_holds_everything)
{
    struct plan p, last = {0};
    struct err e = {0};
    for (uint64_t ram = 512 * MIB; ram <= 8192 * MIB; ram *= 2) {
        CHECK_OK(plan_for(ram, &p, &e), e);
        CHECK(p.sequences >= last.sequences);
        CHECK(p.expert_slots >= last.expert_slots);
        last = p;
    }
    CHECK_INT(p.pinned_layers, 16);
    CHECK_INT(p.stream_bytes, 0);
    CHECK_INT(p.expert_slots, 960);
}

TEST_MAIN
