/* Every table this machine can run: right against double precision, and each row and output the
 * same bits whatever the number of rows, strides, alignment and split. */
#include "src/kern.h"
#include "tests/lib/test.h"

#define MAX_TABLES 8
#define FOR_TABLES(k)                                                                              \
    const struct kern *k##_all[MAX_TABLES];                                                        \
    size_t k##_n = kern_all(k##_all, MAX_TABLES);                                                  \
    CHECK(k##_n > 0);                                                                              \
    for (const struct kern **k##_p = k##_all, *k = *k##_p; k##_p < k##_all + k##_n; k = *++k##_p)

enum form { F32, BF16, MXFP4 };

/* One product with everything around it: y lies in a larger array whose rest must stay. */
struct product {
    enum form form;
    size_t outputs, cols, rows, ldx, ldy;
    uint8_t *w, *scale;
    double *exact_w; /* [outputs][cols] */
    float *x, *y;
};

static unsigned long long seed = 7;

static bool is_amx(const struct kern *k)
{
    return !strcmp(k->name, "amx");
}

/* Activations are taken as BF16 where weights are. */
static bool rounds(const struct kern *k, enum form form)
{
    return k->unrounded && form != F32;
}

static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static void fill_weight(struct product *p, size_t i)
{
    float f = test_randf(&seed);
    uint16_t b = f32_to_bf16(f);
    if (p->form == F32) {
        memcpy(p->w + 4 * i, &f, 4);
        p->exact_w[i] = f;
    } else if (p->form == BF16) {
        memcpy(p->w + 2 * i, &b, 2);
        p->exact_w[i] = bf16_to_f32(b);
    } else {
        unsigned code = test_rand(&seed) & 15;
        if (i % 2)
            p->w[i / 2] = (uint8_t)(p->w[i / 2] | code << 4);
        else
            p->w[i / 2] = (uint8_t)code;
        p->exact_w[i] = ldexp(code & 8 ? -e2m1[code & 7] : e2m1[code], p->scale[i / 32] - 127);
    }
}

/* `bytes` behind an offset, and not one more: the sanitizer sees what reads past the end. */
static void *grab(size_t bytes, size_t offset)
{
    char *p = malloc(bytes + offset);
    if (!p) abort();
    return p + offset;
}

/* Weights start at an odd byte, x and y at an odd float. */
static struct product make(enum form form, size_t outputs, size_t cols, size_t rows)
{
    size_t n = outputs * cols;
    size_t w_bytes = form == F32 ? 4 * n : form == BF16 ? 2 * n : n / 2;
    struct product p = {.form = form, .outputs = outputs, .cols = cols, .rows = rows};
    p.ldx = cols + 3;
    p.ldy = outputs + 5;
    p.w = grab(w_bytes, 1);
    p.scale = grab(n / 32, 1);
    p.exact_w = grab(n * sizeof(double), 0);
    p.x = grab((rows * p.ldx - 3) * sizeof(float), sizeof(float));
    p.y = grab(rows * p.ldy * sizeof(float), sizeof(float));
    for (size_t i = 0; i < n / 32; i++) p.scale[i] = (uint8_t)(120 + test_rand(&seed) % 12);
    for (size_t i = 0; i < n; i++) fill_weight(&p, i);
    for (size_t i = 0; i < rows * p.ldx - 3; i++) p.x[i] = test_randf(&seed);
    for (size_t i = 0; i < rows * p.ldy; i++) p.y[i] = -77;
    return p;
}

static void drop(struct product *p)
{
    free(p->w - 1);
    free(p->scale - 1);
    free(p->exact_w);
    free(p->x - 1);
    free(p->y - 1);
}

static void run(const struct kern *k, const struct product *p, struct mm a)
{
    a.w = p->w;
    a.scale = p->form == MXFP4 ? p->scale : NULL;
    a.cols = p->cols;
    if (p->form == F32)
        k->mm_f32(&a);
    else if (p->form == BF16)
        k->mm_bf16(&a);
    else
        k->mm_mxfp4(&a);
}

static void run_all(const struct kern *k, const struct product *p)
{
    run(k, p,
        (struct mm){.y = p->y,
                    .ldy = p->ldy,
                    .x = p->x,
                    .ldx = p->ldx,
                    .rows = p->rows,
                    .last = p->outputs});
}

/* The orders that kern_mm.h, kern_avx512bf16.c and kern_amx.c state, written down again: blocks of
 * columns, an even and an odd chain in each, added to the output one by one (AMX: their sum). With
 * AVX-512 and BF16 a chain has pairs of columns, their odd ones first. */
static float in_order(const struct kern *k, const struct product *p, size_t r, size_t o)
{
    bool rounded = rounds(k, p->form), amx = rounded && is_amx(k), pairs = rounded && !amx;
    bool fused = strcmp(k->name, "portable") != 0;
    size_t block = amx ? 32 : pairs ? 512 : 256;
    const float *x = p->x + r * p->ldx;
    const double *w = p->exact_w + o * p->cols;
    float y = 0;
    for (size_t c = 0; c < p->cols; c += block) {
        float sum[2] = {0, 0};
        for (size_t n = c; n < c + block && n < p->cols + pairs; n++) {
            size_t i = pairs ? n ^ 1 : n;
            if (i >= p->cols) continue;
            float xi = rounded ? bf16_to_f32(f32_to_bf16(x[i])) : x[i];
            float *s = &sum[(pairs ? i / 2 : i) % 2];
            *s = fused ? fmaf(xi, (float)w[i], *s) : *s + xi * (float)w[i];
        }
        y = amx ? y + (sum[0] + sum[1]) : y + sum[0] + sum[1];
    }
    return y;
}

/* sum_i W[o][i] x[r][i] and sum_i |W[o][i] x[r][i]|, x as the table sees it */
static double exact(const struct kern *k, const struct product *p, size_t r, size_t o, double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t i = 0; i < p->cols; i++) {
        float x = p->x[r * p->ldx + i];
        double t =
            p->exact_w[o * p->cols + i] * (rounds(k, p->form) ? bf16_to_f32(f32_to_bf16(x)) : x);
        sum += t;
        *size += fabs(t);
    }
    return sum;
}

static void check_product(const struct kern *k, const struct product *p)
{
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t o = 0; o < p->outputs; o++) {
            double size, want = exact(k, p, r, o, &size);
            float got = p->y[r * p->ldy + o];
            if (!(fabs(got - want) <= 2e-6 * size))
                FAIL("%s form %d [%zu x %zu] row %zu of %zu output %zu: %.9g, not %.9g", k->name,
                     p->form, p->outputs, p->cols, r, p->rows, o, got, want);
            if (got != in_order(k, p, r, o))
                FAIL("%s form %d: not in the order stated", k->name, p->form);
        }
        for (size_t o = p->outputs; o < p->ldy; o++)
            if (p->y[r * p->ldy + o] != -77) FAIL("%s: wrote behind row %zu", k->name, r);
    }
}

/* Products are right, in the stated order of additions, for widths and heights around every tile,
 * strip and block. */
TEST(products)
{
    static const size_t cols[] = {1, 2, 3, 7, 8, 31, 33, 64, 255, 256, 257, 300, 512, 800, 1059};
    static const size_t outputs[] = {1, 15, 16, 31, 33, 70};
    static const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 11, 13, 25, 33};
    FOR_TABLES(k)
    {
        for (int form = F32; form <= MXFP4; form++)
            for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
                size_t n = form == MXFP4 ? (cols[c] + 31) / 32 * 32 : cols[c];
                size_t m = outputs[c % (sizeof outputs / sizeof *outputs)];
                size_t r = rows[c % (sizeof rows / sizeof *rows)];
                struct product p = make(form, m, n, r);
                run_all(k, &p);
                check_product(k, &p);
                drop(&p);
                if (test_has_failed()) return;
            }
    }
}

/* More rows of more columns than are rounded at a time. */
TEST(many_wide_rows)
{
    FOR_TABLES(k)
    {
        for (int form = F32; form <= MXFP4; form++) {
            struct product p = make(form, 3, form == MXFP4 ? 2112 : 2115, 100);
            run_all(k, &p);
            check_product(k, &p);
            drop(&p);
        }
    }
}

/* As wide as a model may say. */
TEST(widest)
{
    FOR_TABLES(k)
    {
        for (int form = F32; form <= MXFP4; form++) {
            struct product p = make(form, 1, 1 << 20, 1);
            double size, want = exact(k, &p, 0, 0, &size);
            run_all(k, &p);
            if (!(fabs(p.y[0] - want) <= 1e-4 * size))
                FAIL("%s form %d: %.9g, not %.9g", k->name, form, p.y[0], want);
            drop(&p);
        }
    }
}

/* Numbers of very different sizes: each group of 32 columns has its own, x of some groups are zero.
 */
static void make_wild(struct product *p, int x_exponent, int scale_exponent)
{
    size_t groups = p->cols / 32;
    for (size_t i = 0; i < p->outputs * groups; i++) {
        int by = (int)(test_rand(&seed) % (2 * (unsigned)scale_exponent)) - scale_exponent;
        for (size_t j = 32 * i; j < 32 * i + 32; j++)
            p->exact_w[j] = ldexp(p->exact_w[j], 127 + by - p->scale[i]);
        p->scale[i] = (uint8_t)(127 + by);
    }
    for (size_t r = 0; r < p->rows; r++)
        for (size_t g = 0; g < groups; g++) {
            int by = (int)(test_rand(&seed) % (2 * (unsigned)x_exponent)) - x_exponent;
            bool none = test_rand(&seed) % 3 == 0;
            for (size_t i = 0; i < 32; i++) {
                float *x = &p->x[r * p->ldx + 32 * g + i];
                *x = none ? 0 : ldexpf(*x, by);
            }
        }
}

/* Few rows may be summed in units of the scales: that must not show, however large or small numbers
 * are. */
TEST(units_do_not_show)
{
    FOR_TABLES(k)
    {
        for (int x = 10; x <= 106; x += 16)
            for (int scale = 4; scale <= 36 && scale + x <= 118; scale += 8)
                for (size_t rows = 1; rows <= 9; rows++) {
                    struct product p = make(MXFP4, 33, 32 * (1 + test_rand(&seed) % 19), rows);
                    make_wild(&p, x, scale);
                    run_all(k, &p);
                    for (size_t r = 0; r < rows; r++)
                        for (size_t o = 0; o < p.outputs; o++) {
                            float want = in_order(k, &p, r, o);
                            if (memcmp(&want, &p.y[r * p.ldy + o], 4))
                                FAIL(
                                    "%s x 2^%d scale 2^%d: %zu of %zu rows, output %zu: %a, not %a",
                                    k->name, x, scale, r, rows, o, p.y[r * p.ldy + o], want);
                        }
                    drop(&p);
                }
    }
}

/* One row alone gives the bits it gives among 2 to 70 others, or among 400. */
TEST(rows_do_not_see_each_other)
{
    enum { OUT = 37, MOST = 400 };
    float alone[OUT] = {0};
    FOR_TABLES(k)
    {
        for (int form = F32; form <= MXFP4; form++)
            for (size_t rows = 2; rows <= MOST; rows = rows == 70 ? MOST : rows + 1) {
                struct product p = make(form, OUT, form == MXFP4 || rows % 2 ? 64 : 67, rows);
                run_all(k, &p);
                for (size_t r = 0; r < rows; r += 1 + rows / 9) {
                    run(k, &p,
                        (struct mm){
                            .y = alone, .ldy = OUT, .x = p.x + r * p.ldx, .rows = 1, .last = OUT});
                    if (memcmp(alone, p.y + r * p.ldy, sizeof alone))
                        FAIL("%s form %d: row %zu of %zu", k->name, form, r, rows);
                }
                drop(&p);
            }
    }
}

/* Any split of the outputs gives the same bits and writes nothing outside it. */
TEST(splits_do_not_show)
{
    enum { OUT = 83, ROWS = 9 };
    FOR_TABLES(k)
    {
        for (int form = F32; form <= MXFP4; form++) {
            struct product p = make(form, OUT, form == MXFP4 ? 320 : 261, ROWS);
            float *whole = malloc(ROWS * p.ldy * sizeof(float));
            run_all(k, &p);
            memcpy(whole, p.y, ROWS * p.ldy * sizeof(float));
            for (size_t first = 0, n = 1; first < OUT; n = n % 23 + 4) {
                size_t last = first + n < OUT ? first + n : OUT;
                for (size_t i = 0; i < ROWS * p.ldy; i++) p.y[i] = -77;
                run(k, &p,
                    (struct mm){.y = p.y,
                                .ldy = p.ldy,
                                .x = p.x,
                                .ldx = p.ldx,
                                .rows = ROWS,
                                .first = first,
                                .last = last});
                for (size_t r = 0; r < ROWS; r++)
                    for (size_t o = 0; o < OUT; o++) {
                        bool in = o >= first && o < last;
                        float want = in ? whole[r * p.ldy + o] : -77;
                        if (memcmp(&want, &p.y[r * p.ldy + o], 4))
                            FAIL("%s form %d: [%zu, %zu) row %zu output %zu", k->name, form, first,
                                 last, r, o);
                    }
                first = last;
            }
            free(whole);
            drop(&p);
        }
    }
}

/* Scales at both ends: 2^-127, with results below the normal range, and 2^127. */
TEST(extreme_scales)
{
    FOR_TABLES(k)
    {
        uint8_t w[16], scale;
        float x[32], y;
        memset(w, 0x21, sizeof w); /* 0.5 and 1 */
        for (size_t i = 0; i < 32; i++) x[i] = 0.25f;
        struct mm a = {.y = &y,
                       .ldy = 1,
                       .w = w,
                       .scale = &scale,
                       .cols = 32,
                       .x = x,
                       .ldx = 32,
                       .rows = 1,
                       .last = 1};
        scale = 254;
        k->mm_mxfp4(&a);
        CHECK(y == 6 * 0x1p127f || isinf(y)); /* 6 * 2^127 is out of range */
        for (size_t i = 0; i < 32; i++) x[i] = 0x1p-10f;
        k->mm_mxfp4(&a);
        CHECK(y == 24 * 0x1p117f);
        scale = 0;
        for (size_t i = 0; i < 32; i++) x[i] = 1;
        k->mm_mxfp4(&a);
        CHECK(k->unrounded || y == 24 * 0x1p-127f);
        scale = 1;
        for (size_t i = 0; i < 32; i++) x[i] = 4;
        k->mm_mxfp4(&a);
        CHECK(y == 24 * 0x1p-124f || k->unrounded);
    }
}

/* ---- selection ---- */

/* "auto" means the last table that does not round, or where all is rounded the last but AMX; each
 * name leads to its table, others are refused. */
TEST(select)
{
    struct err e;
    const struct kern *k, *all[MAX_TABLES];
    size_t n = kern_all(all, MAX_TABLES);
    CHECK_STR(all[0]->name, "portable");
    for (size_t i = 0; i < n; i++) {
        CHECK_OK(kern_select(&k, all[i]->name, false, &e), e);
        CHECK(k == all[i]);
    }
    size_t best = n - 1, rounding = n - 1 - is_amx(all[n - 1]);
    while (all[best]->unrounded) best--;
    CHECK_OK(kern_select(&k, NULL, false, &e), e);
    CHECK(k == all[best]);
    CHECK_OK(kern_select(&k, "auto", false, &e), e);
    CHECK(k == all[best]);
    CHECK_OK(kern_select(&k, "auto", true, &e), e);
    CHECK(k == all[rounding]);
    CHECK_ERR(kern_select(&k, "mmx", false, &e), E_USAGE, e, "mmx");
    CHECK(kern_all(all, 1) == 1);
}

TEST_MAIN
