/* Choosing tokens. */
#include "src/sample.h"
#include "tests/lib/test.h"

static struct sample_entry scratch[1000];

/* Greedy takes the best, the lowest id on ties, and never a NaN. */
TEST(greedy)
{
    float l[] = {1, NAN, 3, 3, -INFINITY};
    struct sample_params p = {0, 1, 0, 5};
    CHECK_INT(sample_token(l, 5, &p, 0, scratch), 2);
    p.temperature = 1;
    p.top_k = 1;
    CHECK_INT(sample_token(l, 5, &p, 0, scratch), 2);
}

/* What is no number gives no token, drawn or not; what a grammar forbids altogether gives 0. */
TEST(broken)
{
    float nan[] = {NAN, -INFINITY, NAN}, inf[] = {1, INFINITY, NAN};
    float forbidden[] = {-INFINITY, -INFINITY};
    for (int t = 0; t < 2; t++) {
        struct sample_params p = {t, 1, 0, 5};
        CHECK_INT(sample_token(nan, 3, &p, 0, scratch), SAMPLE_BROKEN);
        CHECK_INT(sample_token(inf, 3, &p, 0, scratch), SAMPLE_BROKEN);
        CHECK_INT(sample_token(forbidden, 2, &p, 0, scratch), 0);
    }
}

/* The same seed and position draw the same token; other positions and seeds draw others. */
TEST(draw_depends_on_seed_and_position)
{
    float l[100] = {0};
    int same_seed = 0, same_position = 0;
    for (uint64_t i = 0; i < 200; i++) {
        struct sample_params a = {1, 1, 0, 7}, b = {1, 1, 0, 7 + i};
        int32_t first = sample_token(l, 100, &a, i, scratch);
        CHECK_INT(sample_token(l, 100, &a, i, scratch), first);
        same_seed += sample_token(l, 100, &a, 0, scratch) == first;
        same_position +=
            sample_token(l, 100, &b, 0, scratch) == sample_token(l, 100, &a, 0, scratch);
    }
    CHECK(same_seed < 12 && same_position < 12);
}

/* Shares of draws follow softmax(logits / temperature): 3 sigma of 20,000 draws. */
TEST(shares_follow_softmax)
{
    float l[] = {0, 1, 2, -1};
    struct sample_params p = {0.8, 1, 0, 11};
    double count[4] = {0}, total = 0, n = 20000;
    for (uint64_t i = 0; i < (uint64_t)n; i++) count[sample_token(l, 4, &p, i, scratch)]++;
    for (int i = 0; i < 4; i++) total += exp(l[i] / 0.8);
    for (int i = 0; i < 4; i++) {
        double share = exp(l[i] / 0.8) / total;
        CHECK_NEAR(count[i] / n, share, 3 * sqrt(share * (1 - share) / n));
    }
}

/* top_k and top_p leave exactly the candidates that they should. */
TEST(cut_offs)
{
    float l[] = {2, 1, 0, 1.5f}; /* shares .455 .167 .062 .276 (sum .960 of 4) */
    struct sample_params k = {1, 1, 2, 3}, p = {1, 0.5, 0, 3};
    int seen_k[4] = {0}, seen_p[4] = {0};
    for (uint64_t i = 0; i < 3000; i++) {
        seen_k[sample_token(l, 4, &k, i, scratch)]++;
        seen_p[sample_token(l, 4, &p, i, scratch)]++;
    }
    CHECK(seen_k[0] && seen_k[3] && !seen_k[1] && !seen_k[2]);
    CHECK(seen_p[0] && seen_p[3] && !seen_p[1] && !seen_p[2]);
    p.top_p = 1e-9;
    CHECK_INT(sample_token(l, 4, &p, 1, scratch), 0);
}

TEST_MAIN
