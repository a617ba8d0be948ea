/* quant and the MXFP4 form: sizes, exact decoding, products through the pool. */
#include "src/quant.h"
#include "tests/lib/test.h"

/* Sizes of the three forms; impossible widths and products that overflow are refused. */
TEST(sizes)
{
    uint64_t w, s;
    CHECK(linear_bytes(DT_MXFP4, 3072, 3584, &w, &s));
    CHECK_INT(w, 5505024);
    CHECK_INT(s, 344064);
    CHECK(linear_bytes(DT_BF16, 3, 5, &w, &s));
    CHECK_INT(w, 30);
    CHECK_INT(s, 0);
    CHECK(linear_bytes(DT_F32, 3, 5, &w, &s));
    CHECK_INT(w, 60);
    CHECK(!linear_bytes(DT_MXFP4, 4, 48, &w, &s));
    CHECK(!linear_bytes(DT_BF16, 0, 32, &w, &s));
    CHECK(!linear_bytes(DT_F32, UINT32_MAX, UINT32_MAX, &w, &s));
    CHECK(!linear_bytes(DT_F32, (uint64_t)1 << 32, 1, &w, &s));
    CHECK(!linear_bytes(DT_U8, 4, 32, &w, &s));
}

/* kimi-k3 Appendix A.3, and the two edge exponents. */
TEST(mxfp4_vectors)
{
    uint8_t packed[16] = {0x2F, 0xB7}, scale = 127;
    float out[32];
    struct linear l = {DT_MXFP4, 1, 32, packed, &scale};
    linear_row(&l, 0, out);
    CHECK(out[0] == -6.0f && out[1] == 1.0f);
    scale = 120;
    linear_row(&l, 0, out);
    CHECK(out[2] == 0.046875f && out[3] == -0.01171875f);
    scale = 0;
    linear_row(&l, 0, out);
    CHECK(out[1] == 0x1p-127f);
    scale = 255;
    linear_row(&l, 0, out);
    CHECK(isnan(out[1]));
}

/* The product over the pool equals the product of the widened rows, whatever the threads. */
TEST(apply)
{
    enum { OUT = 203, IN = 96, ROWS = 5 };
    static uint8_t packed[OUT * IN / 2], scale[OUT * IN / 32];
    static float x[ROWS * IN], y[ROWS * OUT], again[ROWS * OUT], row[IN];
    unsigned long long seed = 1;
    for (size_t i = 0; i < sizeof packed; i++) packed[i] = (uint8_t)test_rand(&seed);
    for (size_t i = 0; i < sizeof scale; i++) scale[i] = (uint8_t)(120 + test_rand(&seed) % 8);
    for (size_t i = 0; i < ROWS * IN; i++) x[i] = test_randf(&seed);
    struct linear l = {DT_MXFP4, OUT, IN, packed, scale};
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct err e;
        struct compute c = {0};
        CHECK_OK(kern_select(&c.kern, "auto", false, &e), e);
        CHECK_OK(pool_open(&c.pool, threads, &e), e);
        linear_apply(&c, &l, threads == 1 ? y : again, OUT, x, IN, ROWS);
        pool_close(c.pool);
    }
    CHECK(!memcmp(y, again, sizeof y));
    for (size_t o = 0; o < OUT; o++) {
        linear_row(&l, o, row);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t i = 0; i < IN; i++) sum += (double)row[i] * x[r * IN + i];
            CHECK_NEAR(y[r * OUT + o], sum, 1e-5);
        }
    }
}

/* Rounding to BF16 is to nearest even and only where asked for. */
TEST(round_to_bf16)
{
    float x[4] = {1.00390625f, 1.01171875f, -3.0f, 1e-40f};
    struct compute c = {0};
    struct err e;
    CHECK_OK(kern_select(&c.kern, "portable", false, &e), e);
    round_bf16(&c, x, 4);
    CHECK(x[0] == 1.00390625f);
    c.bf16 = true;
    round_bf16(&c, x, 4);
    CHECK(x[0] == 1.0f && x[1] == 1.015625f && x[2] == -3.0f);
    CHECK(isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST_MAIN
