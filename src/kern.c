/* The portable table, and the choice of a table.
 *
 * The portable table is plain C over vectors of four floats, products rounded before they are
 * added; it is what the others are compared with. It owns nothing and depends on no CPU feature. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <string.h>

#define V         4
#define TILE_ROWS 4

typedef float vf __attribute__((vector_size(4 * V)));

static inline vf vload(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vstore(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf vset1(float x)
{
    return (vf){x, x, x, x};
}

static inline vf vfma(vf a, vf b, vf c)
{
    return a * b + c;
}

#include "src/kern_mm.h"

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void kern_widen_mxfp4(float *out, const uint8_t *packed, const uint8_t *scale, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        float s = e8m0_to_f32(scale[i / 32]);
        out[i] = e2m1[packed[i / 2] & 15] * s;
        out[i + 1] = e2m1[packed[i / 2] >> 4] * s;
    }
}

static void widen_f32(const struct tile *t)
{
    plain_f32(t, 0);
}

static void widen_bf16(const struct tile *t)
{
    plain_bf16(t, 0);
}

static void widen_mxfp4(const struct tile *t)
{
    for (size_t i = 0; i < STRIP; i++) {
        const uint8_t *w = t->s->w[i] + t->first / 2, *e = t->s->scale[i] + t->first / 32;
        float *even = t->panel + i, *odd = even + HALF * STRIP;
        for (size_t j = 0; j < t->n / 2; j++, even += STRIP, odd += STRIP) {
            float scale = e8m0_to_f32(e[j / 16]);
            *even = e2m1[w[j] & 15] * scale;
            *odd = e2m1[w[j] >> 4] * scale;
        }
    }
}

static const struct kern portable = {KERN_FUNCTIONS("portable")};

static bool usable(const struct kern *k)
{
#if defined(__x86_64__)
    if (k == &kern_avx2_table)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return k != NULL;
}

/* Every table of this architecture, the best last. */
static const struct kern *const tables[] = {
    &portable,
#if defined(__x86_64__)
    &kern_avx2_table,
#elif defined(__aarch64__)
    &kern_neon_table,
#endif
};
#define TABLES (sizeof tables / sizeof tables[0])

size_t kern_all(const struct kern **out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < TABLES; i++)
        if (usable(tables[i]) && n < max) out[n++] = tables[i];
    return n;
}

enum status kern_select(const struct kern **out, const char *isa, struct err *e)
{
    bool any = !isa || !strcmp(isa, "auto"), known = false;
    *out = NULL;
    for (size_t i = 0; i < TABLES; i++) {
        bool named = !any && !strcmp(isa, tables[i]->name);
        known |= named;
        if ((any || named) && usable(tables[i])) *out = tables[i];
    }
    if (*out) return OK;
    return err_set(e, E_USAGE, "instruction set \"%s\": %s", isa,
                   known ? "this machine does not have it" : "no such kernels in this build");
}
