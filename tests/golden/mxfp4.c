/* MXFP4 against compressed-tensors: every code at every scale, bit for bit. Fixture and format:
 * tests/ref/mxfp4.py. */
#include "src/quant.h"
#include "tests/lib/test.h"

struct fixture {
    uint32_t rows, columns;
    uint8_t *packed, *scale;
    uint16_t *weight; /* BF16 */
};

static bool load(struct fixture *f, char *file, size_t size)
{
    if (!file || size < 8) return false;
    memcpy(&f->rows, file, 4);
    memcpy(&f->columns, file + 4, 4);
    size_t n = (size_t)f->rows * f->columns;
    if (f->columns % 32 || size != 8 + n / 2 + n / 32 + 2 * n) return false;
    f->packed = (uint8_t *)file + 8;
    f->scale = f->packed + n / 2;
    f->weight = malloc(2 * n);
    memcpy(f->weight, f->scale + n / 32, 2 * n);
    return true;
}

/* linear_row gives the witness's bits, infinities and numbers below the normal range among them. */
TEST(rows)
{
    struct fixture f;
    size_t size;
    float row[4096];
    char *file = test_read("tests/golden/mxfp4/cases.bin", &size);
    CHECK(load(&f, file, size) && f.columns <= 4096);
    struct linear l = {DT_MXFP4, f.rows, f.columns, f.packed, f.scale};
    for (uint32_t r = 0; r < f.rows; r++) {
        linear_row(&l, r, row);
        for (uint32_t i = 0; i < f.columns; i++) {
            float want = bf16_to_f32(f.weight[r * f.columns + i]);
            if (memcmp(&row[i], &want, 4))
                FAIL("row %u column %u: %a, not %a", r, i, (double)row[i], (double)want);
        }
    }
    CHECK(row[0] == -6.0f && row[1] == 1.0f); /* kimi-k3 Appendix A.3 */
    CHECK(row[32] == 0.046875f && row[33] == -0.01171875f);
    free(f.weight);
    free(file);
}

/* A product with the unit matrix gives the weights back: every table decodes like the witness.
 * Scales that make infinities are left out, times zero they are no number. */
TEST(products)
{
    struct fixture f;
    size_t size;
    const struct kern *k[8];
    char *file = test_read("tests/golden/mxfp4/cases.bin", &size);
    CHECK(load(&f, file, size));
    size_t n = f.columns, tables = kern_all(k, 8);
    float *x = calloc(n * n, sizeof *x), *y = calloc(n * f.rows, sizeof *y);
    for (size_t i = 0; i < n; i++) x[i * n + i] = 1;
    for (size_t i = 0; i < f.rows * n / 32; i++)
        if (f.scale[i] > 250) f.scale[i] = 127;
    struct linear l = {DT_MXFP4, f.rows, f.columns, f.packed, f.scale};
    for (size_t t = 0; t < tables; t++) {
        bool flushes = k[t]->unrounded; /* what is below the normal range */
        linear_part(k[t], &l, y, f.rows, x, n, n, 0, f.rows);
        for (size_t r = 0; r < f.rows; r++)
            for (size_t i = 0; i < n; i++) {
                if (f.scale[(r * n + i) / 32] == 127 && r + 1 < f.rows)
                    continue; /* changed above */
                float want = bf16_to_f32(f.weight[r * n + i]), got = y[i * f.rows + r];
                if (got != want && !(flushes && got == 0 && fabsf(want) < 0x1p-126f))
                    FAIL("%s row %zu column %zu: %a, not %a", k[t]->name, r, i, (double)got,
                         (double)want);
            }
    }
    free(x);
    free(y);
    free(f.weight);
    free(file);
}

TEST_MAIN
