/* The router's choice for one row. */
#include "src/moe.h"
#include "tests/lib/test.h"

static const struct kern *kern;
static float biased[8];
static uint32_t ids[8];
static float weights[8];

static struct config routing(uint32_t experts, uint32_t top_k)
{
    struct err e;
    kern_select(&kern, "portable", false, &e);
    return (struct config){.experts = experts,
                           .top_k = top_k,
                           .groups = 1,
                           .top_groups = 1,
                           .router_sigmoid = true,
                           .renormalize = true,
                           .routed_scale = 1};
}

static float logit(double p)
{
    return (float)log(p / (1 - p));
}

/* The bias decides who is chosen and has no part in the weights; ids come out ascending. */
TEST(bias_selects_only)
{
    struct config c = routing(4, 2);
    float l[] = {logit(.9), logit(.2), logit(.5), logit(.6)}, bias[] = {0, 1, 0, 0};
    moe_route(kern, &c, l, bias, biased, ids, weights);
    CHECK_INT(ids[0], 0);
    CHECK_INT(ids[1], 1);
    CHECK_NEAR(weights[0], .9 / 1.1, 1e-6);
    CHECK_NEAR(weights[1], .2 / 1.1, 1e-6);
}

/* Equal scores: the lower id wins, always. */
TEST(ties_go_to_the_lower_id)
{
    struct config c = routing(6, 3);
    float l[] = {0, 0, 0, 0, 0, 0}, bias[6] = {0};
    moe_route(kern, &c, l, bias, biased, ids, weights);
    for (uint32_t i = 0; i < 3; i++) CHECK_INT(ids[i], i);
}

/* Without renormalising the plain score counts, times the factor. */
TEST(factor_without_renormalising)
{
    struct config c = routing(3, 1);
    c.renormalize = false;
    c.routed_scale = 2.5f;
    float l[] = {logit(.1), logit(.8), logit(.3)}, bias[3] = {0};
    moe_route(kern, &c, l, bias, biased, ids, weights);
    CHECK_INT(ids[0], 1);
    CHECK_NEAR(weights[0], 2.0, 1e-6);
}

/* Of 4 groups of 2 the one with the best pair stays, though the best single expert is elsewhere. */
TEST(groups_by_their_two_best)
{
    struct config c = routing(8, 2);
    c.groups = 4;
    c.top_groups = 1;
    float l[] = {logit(.95), logit(.05), logit(.6), logit(.7),
                 logit(.5),  logit(.5),  logit(.1), logit(.1)};
    float bias[8] = {0};
    moe_route(kern, &c, l, bias, biased, ids, weights);
    CHECK_INT(ids[0], 2);
    CHECK_INT(ids[1], 3);
}

/* Poisoned rows still choose distinct, valid experts. */
TEST(nan_row_is_harmless)
{
    struct config c = routing(4, 3);
    float l[] = {NAN, NAN, NAN, 0}, bias[4] = {0};
    moe_route(kern, &c, l, bias, biased, ids, weights);
    CHECK(ids[0] < ids[1] && ids[1] < ids[2] && ids[2] < 4);
    CHECK_INT(ids[2], 3);
}

TEST_MAIN
