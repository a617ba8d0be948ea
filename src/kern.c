/* The portable table, and the choice of a table.
 *
 * The portable table is plain C over vectors of four floats, products rounded before they are
 * added; it is what the others are compared with. It owns nothing and depends on no CPU feature. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

static const struct kern portable = {.name = "portable", KERN_FUNCTIONS};

#if defined(__x86_64__)

/* Tile data need the CPU's AMX-TILE and AMX-BF16, the system's switch (XCR0 bits 17 and 18) and the
 * process's permission, which holds for all its threads. */
static bool has_amx(void)
{
    unsigned a, b, c, d, low, high;
    const unsigned osxsave = 1u << 27, amx = 1u << 24 | 1u << 22, tiles = 3u << 17;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & tiles) != tiles) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & amx) != amx) return false;
    const long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

static bool usable(const struct kern *k)
{
#ifdef KERN_EMULATED
    return k != NULL; /* tests of tables whose instructions are emulated */
#endif
    /* these look at what the system saves, too */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (k == &kern_avx2_table) return avx2;
    if (k == &kern_avx512_table) return avx512;
    if (k == &kern_avx512bf16_table) return avx512 && __builtin_cpu_supports("avx512bf16");
    if (k == &kern_amx_table) return avx512 && has_amx();
    return true;
}

#else

static bool usable(const struct kern *k)
{
    return k != NULL;
}

#endif

/* Every table of this architecture, from the slowest. */
static const struct kern *const tables[] = {
    &portable,
#if defined(__x86_64__)
    &kern_avx2_table, &kern_avx512_table, &kern_avx512bf16_table, &kern_amx_table,
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

enum status kern_select(const struct kern **out, const char *isa, bool bf16, struct err *e)
{
    bool any = !isa || !strcmp(isa, "auto"), known = false;
    *out = NULL;
    for (size_t i = 0; i < TABLES; i++) {
        bool named = !any && !strcmp(isa, tables[i]->name);
        known |= named;
        bool tried = strcmp(tables[i]->name, "amx") != 0;
        bool wanted = any ? tried && (bf16 || !tables[i]->unrounded) : named;
        if (wanted && usable(tables[i])) *out = tables[i];
    }
    if (*out) return OK;
    return err_set(e, E_USAGE, "instruction set \"%s\": %s", isa,
                   known ? "this machine does not have it" : "no such kernels in this build");
}
