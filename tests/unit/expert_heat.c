/* expert_heat: worth follows chance and distance. */
#include "src/expert_heat.h"

#include "tests/lib/test.h"

static struct err e;
static struct mem mem;
static struct expert_heat h;

static enum status begin(uint32_t keys)
{
    mem_init(&mem, 0);
    return expert_heat_init(&h, &mem, keys, &e);
}

static void end(void)
{
    expert_heat_free(&h);
    mem_close(&mem);
}

/* After one sweep an expert that it used has one chance in two; then the way to its turn counts. */
TEST(distance)
{
    CHECK_OK(begin(10), e);
    expert_heat_tick(&h);
    expert_heat_use(&h, 2);
    expert_heat_use(&h, 6);
    CHECK_NEAR(expert_heat_worth(&h, 6), 1 / (1 + 1.0), 1e-6);
    CHECK_NEAR(expert_heat_worth(&h, 2), 1 / (1 + 0.6), 1e-6);
    CHECK_NEAR(expert_heat_worth(&h, 7), 0, 0);
    end();
}

/* Both time scales are in the chance, half each: 0.8 and 0.98 a sweep. */
TEST(decay)
{
    CHECK_OK(begin(10), e);
    for (int sweep = 0; sweep < 3; sweep++) {
        expert_heat_tick(&h);
        if (sweep == 0) expert_heat_use(&h, 4);
    }
    expert_heat_use(&h, 9);
    double fast = 0.8 * 0.8 / (1 + 0.8 + 0.64 + 1);
    double slow = 0.98 * 0.98 / (1 + 0.98 + 0.9604 + 1);
    double p = (fast + slow) / 2;
    CHECK_NEAR(expert_heat_worth(&h, 4), 1 / (1 / p - 1 + 0.5), 1e-6);
    end();
}

/* Without sweeps, or with several uses in one, the chance ends at one. */
TEST(certainty)
{
    CHECK_OK(begin(4), e);
    expert_heat_use(&h, 1);
    expert_heat_use(&h, 1);
    CHECK_NEAR(expert_heat_worth(&h, 1), 1, 1e-6);
    expert_heat_use(&h, 0);
    CHECK_NEAR(expert_heat_worth(&h, 1), 4, 1e-6);
    end();
}

TEST_MAIN
