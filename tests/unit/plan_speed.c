/* Speeds of a machine, as text and between the measured points. */
#include "src/plan_speed.h"
#include "tests/lib/test.h"

static struct plan_speed some(void)
{
    struct plan_speed s;
    plan_speed_guess(&s, 3);
    s.expert_flop_s[0] = 1e9;
    s.expert_flop_s[1] = 2e9;
    s.expert_flop_s[2] = 5e9;
    s.expert_flop_s[3] = 7e9;
    s.expert_flop_s[4] = 7.5e9;
    s.skew = 0.25;
    return s;
}

/* What was written is read back. */
TEST(text_and_back)
{
    struct plan_speed s = some(), t;
    struct buf b = {0};
    struct err e;
    CHECK_OK(plan_speed_to_text(&s, &b, &e), e);
    CHECK_HAS(b.data, "expert_flop_s_256=7.5e+09 ");
    CHECK(plan_speed_from_text(&t, b.data));
    CHECK(!memcmp(&s, &t, sizeof s));
    buf_free(&b);
}

/* Anything that is not all of it, once, with numbers that can be, is refused. */
TEST(bad_text)
{
    struct plan_speed s = some(), t;
    struct buf b = {0};
    struct err e;
    CHECK_OK(plan_speed_to_text(&s, &b, &e), e);
    char *skew = strstr(b.data, "skew=0.25");
    CHECK(skew);
    CHECK(!plan_speed_from_text(&t, ""));
    const char *const wrong[] = {"skew=-0.2", "skew=9e99", "skew=nan0", "skew=    ", "skew=0.2x",
                                 "slow=0.25", "skew 0.25", "=========", "join_s=.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(skew, wrong[i], strlen(wrong[i]));
        CHECK(!plan_speed_from_text(&t, b.data));
    }
    memcpy(skew, "skew=0.25", 9);
    CHECK(plan_speed_from_text(&t, b.data));
    for (size_t cut = b.len - 1; cut > b.len - 8; cut--) { /* in "slack=1" */
        b.data[cut] = 0;
        CHECK(!plan_speed_from_text(&t, b.data));
    }
    buf_free(&b);
}

/* At the points the rate is the measured one; between them the time of a product grows straight;
 * outside of them the rate stays. */
TEST(rates_between)
{
    struct plan_speed s = some();
    CHECK_NEAR(plan_speed_product(s.expert_flop_s, 1), 1e9, 1);
    CHECK_NEAR(plan_speed_product(s.expert_flop_s, 4), 2e9, 1);
    CHECK_NEAR(plan_speed_product(s.expert_flop_s, 0.5), 1e9, 1);
    CHECK_NEAR(plan_speed_product(s.expert_flop_s, 5000), 7.5e9, 1);
    /* 1 row in 1 ns, 4 in 2 ns: 2.5 in 1.5 ns */
    CHECK_NEAR(plan_speed_product(s.expert_flop_s, 2.5), 2.5 / 1.5 * 1e9, 1);
    double last = 0;
    for (double rows = 1; rows < 300; rows++) {
        double t = rows / plan_speed_product(s.expert_flop_s, rows);
        CHECK(t >= last);
        last = t;
    }
}

TEST_MAIN
