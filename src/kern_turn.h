/* Widening by shuffles, for vectors of any number of 128-bit lanes.
 *
 * Included after src/kern_mm.h by tables that have defined
 *     vb                  a vector of bytes
 *     load_lanes(s, i, at) bytes [at, at + 16) of rows i, i + 4, ..., one for each 128-bit lane
 *     low8 high8 low16 high16 low32 high32   interleave the low or the high halves of each lane
 *     every_lane(p)       16 bytes from p in each lane
 *     look_up(table, b)   in each lane, bytes of the table by bytes b < 16
 *
 * Rows of W are turned on their side. They are loaded in such an order that rounds of interleaving
 * leave the outputs of one column in place. */
#ifndef NS_KERN_TURN_H
#define NS_KERN_TURN_H

#include "src/kern_mm.h"

typedef uint32_t vu __attribute__((vector_size(4 * V)));
typedef uint16_t vh __attribute__((vector_size(4 * V)));
typedef uint8_t vc __attribute__((vector_size(4 * V)));

/* Bytes [at, at + 16) of all rows, in the order that leaves outputs i and i + V in one dword. */
INLINE void load_rows(vb v[8], const struct strip *s, size_t at)
{
    fetch_next(s, at);
    foreach (i, 4) {
        v[2 * i] = load_lanes(s, (size_t)i, at);
        v[2 * i + 1] = load_lanes(s, (size_t)i + V, at);
    }
}

/* Three rounds that bring byte (or word) j of registers 0..7 next to each other. */
#define ROUNDS(low, high, v)                                                                       \
    foreach (round, 3) {                                                                           \
        vb turned[8];                                                                              \
        foreach (i, 4) {                                                                           \
            turned[2 * i] = low(v[i], v[i + 4]);                                                   \
            turned[2 * i + 1] = high(v[i], v[i + 4]);                                              \
        }                                                                                          \
        foreach (i, 8) v[i] = turned[i];                                                           \
    }

/* BF16 values of one column, as load_rows orders them, widened: outputs 0..V-1 and V..2V-1. */
INLINE vf low_half(vb words)
{
    return (vf)((vu)words << 16);
}

INLINE vf high_half(vb words)
{
    return (vf)((vu)words & 0xffff0000u);
}

static void widen_bf16(const struct tile *t)
{
    size_t k = 0;
    for (; k + 8 <= t->n; k += 8) {
        vb v[8];
        load_rows(v, t->s, (t->first + k) * 2);
        ROUNDS(low16, high16, v)
        foreach (j, 8) {
            float *p = panel_at(t, k + (size_t)j);
            vstore(p, low_half(v[j]));
            vstore(p + V, high_half(v[j]));
        }
    }
    plain_bf16(t, k);
}

/* Columns k..k+3 of outputs h..h+V-1. */
INLINE void turn_f32(const struct tile *t, size_t k, size_t h)
{
    vb v[4], u[4];
    foreach (i, 4) v[i] = load_lanes(t->s, h + (size_t)i, (t->first + k) * 4);
    foreach (i, 2) {
        u[2 * i] = low32(v[i], v[i + 2]);
        u[2 * i + 1] = high32(v[i], v[i + 2]);
    }
    foreach (i, 2) {
        vstore(panel_at(t, k + 2 * (size_t)i) + h, (vf)low32(u[i], u[i + 2]));
        vstore(panel_at(t, k + 2 * (size_t)i + 1) + h, (vf)high32(u[i], u[i + 2]));
    }
}

/* V rows at a time up to the end of their cache lines: all could fall on one set. */
static void widen_f32(const struct tile *t)
{
    size_t whole = t->n / 4 * 4;
    for (size_t line = 0; line < whole; line += 16) {
        size_t end = line + 16 < whole ? line + 16 : whole;
        for (size_t h = 0; h < STRIP; h += V)
            for (size_t k = line; k < end; k += 4) turn_f32(t, k, h);
        for (size_t k = line; k < end; k += 4) fetch_next(t->s, (t->first + k) * 4);
    }
    plain_f32(t, whole);
}

/* Codes, one a byte, of two columns as load_rows orders them; out comes their BF16. */
INLINE void decode(vb words[2], vb codes)
{
    static const uint8_t high[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    static const uint8_t low[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                    0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    vb h = look_up(every_lane(high), codes), l = look_up(every_lane(low), codes);
    words[0] = low8(l, h);
    words[1] = high8(l, h);
}

struct chain {
    vf sum[DIRECT_ROWS][2];
};

/* One column: into the panel (rows = 0), or times x. */
INLINE void put(const struct tile *t, size_t column, const vf w[2], struct chain *c, int rows)
{
    if (rows == 0) {
        vstore(panel_at(t, column), w[0]);
        vstore(panel_at(t, column) + V, w[1]);
    }
    foreach (r, rows) {
        vf x = vset1(t->x[(size_t)r * t->ldx + column]);
        c->sum[r][0] = tile_fma(x, w[0], c->sum[r][0]);
        c->sum[r][1] = tile_fma(x, w[1], c->sum[r][1]);
    }
}

INLINE void add_chains(const struct tile *t, const struct chain chain[2], int rows)
{
    foreach (r, rows)
        foreach (i, 2) {
            float *y = t->y + (size_t)r * t->ldy + i * V;
            vstore(y, vload(y) + chain[0].sum[r][i] + chain[1].sum[r][i]);
        }
}

INLINE void block_mxfp4(const struct tile *t, int rows)
{
    float scale[BLOCK / 32][STRIP];
    struct chain chain[2];
    foreach (r, rows)
        foreach (i, 2) chain[0].sum[r][i] = chain[1].sum[r][i] = vset1(0.0f);
    widen_scales(t, scale);
    for (size_t k = 0; k < t->n; k += 32) {
        vf s0 = vload(scale[k / 32]), s1 = vload(scale[k / 32] + V);
        vb v[8];
        load_rows(v, t->s, (t->first + k) / 2);
        ROUNDS(low8, high8, v)
        foreach (j, 8)
            foreach (odd, 2) {
                vb words[2], codes = odd ? (vb)((vh)v[j] >> 4) : v[j];
                decode(words, (vb)((vc)codes & 15));
                foreach (i, 2) {
                    vf w[2] = {low_half(words[i]) * s0, high_half(words[i]) * s1};
                    put(t, k + 4 * (size_t)j + 2 * (size_t)i + (size_t)odd, w, &chain[odd], rows);
                }
            }
    }
    add_chains(t, chain, rows);
}

static void widen_mxfp4(const struct tile *t)
{
    block_mxfp4(t, 0);
}

static void direct_mxfp4(const struct tile *t, size_t rows)
{
    if (rows == 1)
        block_mxfp4(t, 1);
    else
        block_mxfp4(t, 2);
}

#endif
