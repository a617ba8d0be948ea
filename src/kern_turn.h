/* Widening by shuffles, for vectors of any number of 128-bit lanes.
 *
 * Included after src/kern_mm.h by tables that have defined
 *     BOTH_ROWS           rows of MXFP4 with both chains in registers, of DIRECT_ROWS at most
 *     EACH_DIRECT(DO)     DO(1) to DO(DIRECT_ROWS)
 *     vb                  a vector of bytes
 *     load_lanes(s, i, at) bytes [at, at + 16) of rows i, i + 4, ..., one for each 128-bit lane
 *     low8 high8 low16 high16 low32 high32   interleave the low or the high halves of each lane
 *     every_lane(p)       16 bytes from p in each lane
 *     look_up(table, b)   in each lane, bytes of the table by bytes b < 16
 *     look_up16(p, w)     if there is one: words of p[32] by the low five bits of words w
 *     turn_line(v, s, h, at) if there is one (before kern_mm.h): v[V], dword j of bytes
 *                         [at, at + 4 V) of rows h..h+V-1; and then fma_from(x, w, sum): *x times a
 *                         vector of W
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
#ifdef turn_line
    for (; k + 2 * V <= t->n; k += 2 * V) {
        size_t at = (t->first + k) * 2;
        foreach (i, V / 4) fetch_next(t->s, at + 16 * (size_t)i);
        for (size_t h = 0; h < STRIP; h += V) {
            vb v[V];
            turn_line(v, t->s, h, at);
            foreach (j, V) {
                float *p = panel_at(t, k + 2 * (size_t)j) + h;
                vstore(p, low_half(v[j]));
                vstore(p + HALF * STRIP, high_half(v[j]));
            }
        }
    }
#endif
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

#ifdef turn_line

/* Dword j of a line that begins at column k, times x: columns 2 j and 2 j + 1 of it. */
#ifndef dword_fma
#define dword_fma(x, k, j, dword, sum)                                                             \
    do {                                                                                           \
        fma_from((x) + (k) / 2 + (j), low_half(dword), (sum)[0]);                                  \
        fma_from((x) + (k) / 2 + (j) + HALF, high_half(dword), (sum)[1]);                          \
    } while (0)
#endif

#define LINE_COLUMNS (2 * V / UNIT) /* of a tile */

/* Lines of BF16 times x as they are turned, for one vector of outputs and then the other: so the
 * sums of many rows have room beside a line. */
INLINE void direct_lines(const struct tile *t, int rows)
{
    for (size_t h = 0; h < STRIP; h += V) {
        vf sum[DIRECT_ROWS][2];
        foreach (r, rows) sum[r][0] = sum[r][1] = vset1(0.0f);
        for (size_t k = 0; k < t->n; k += LINE_COLUMNS) {
            size_t at = (t->first + k) * 2 * UNIT;
            vb v[V];
            foreach (i, V / 8) fetch_next(t->s, at + 2 * h + 16 * (size_t)i);
            turn_line(v, t->s, h, at);
            foreach (j, V)
                foreach (r, rows) dword_fma(t->x + (size_t)r * BLOCK, k, (size_t)j, v[j], sum[r]);
        }
        foreach (r, rows) {
            float *y = t->y + (size_t)r * t->ldy + h;
            vstore(y, vload(y) + sum[r][0] + sum[r][1]);
        }
    }
}

#define LINES(n)                                                                                   \
    case n:                                                                                        \
        direct_lines(t, n);                                                                        \
        break;

/* Few rows without a panel; with one, made by `widen`, where there is a part of a line. */
INLINE void direct_line_run(const struct tile *t, size_t rows, void (*widen)(const struct tile *t))
{
    if (t->n % LINE_COLUMNS || t->s->row_bytes % 4) {
        widen(t);
        tile_run(t, rows);
        return;
    }
    switch (rows) {
        EACH_DIRECT(LINES)
    }
}

static void direct_bf16(const struct tile *t, size_t rows)
{
    direct_line_run(t, rows, widen_bf16);
}

#endif

/* Dwords j of bytes [at, at + 16) of outputs h..h+V-1, for j in [0, 4). */
INLINE void turn_dwords(vb v[4], const struct strip *s, size_t h, size_t at)
{
    vb u[4];
    foreach (i, 4) v[i] = load_lanes(s, h + (size_t)i, at);
    foreach (i, 2) {
        u[2 * i] = low32(v[i], v[i + 2]);
        u[2 * i + 1] = high32(v[i], v[i + 2]);
    }
    foreach (i, 2) {
        v[2 * i] = low32(u[i], u[i + 2]);
        v[2 * i + 1] = high32(u[i], u[i + 2]);
    }
}

/* Columns k..k+3 of outputs h..h+V-1. */
INLINE void turn_f32(const struct tile *t, size_t k, size_t h)
{
    vb v[4];
    turn_dwords(v, t->s, h, (t->first + k) * 4);
    foreach (i, 4) vstore(panel_at(t, k + (size_t)i) + h, (vf)v[i]);
}

/* V rows at a time up to the end of their cache lines: all could fall on one set. */
static void widen_f32(const struct tile *t)
{
    size_t whole = t->n / 4 * 4;
    for (size_t line = 0; line < whole; line += 16) {
        size_t end = line + 16 < whole ? line + 16 : whole;
        for (size_t h = 0; h < STRIP; h += V) {
#ifdef turn_line
            if (line + V <= whole) {
                vb v[V];
                turn_line(v, t->s, h, (t->first + line) * 4);
                foreach (j, V) vstore(panel_at(t, line + (size_t)j) + h, (vf)v[j]);
                continue;
            }
#endif
            for (size_t k = line; k < end; k += 4) turn_f32(t, k, h);
        }
        for (size_t k = line; k < end; k += 4) fetch_next(t->s, (t->first + k) * 4);
    }
    plain_f32(t, whole);
}

#ifndef scaled
INLINE vf scaled(vf w, const float *scale)
{
    return w * vload(scale);
}
#endif

struct chain {
    vf sum[DIRECT_ROWS][2];
};

/* What is done with a group: columns into the panel (rows = 0), or times x of `rows` rows; the even
 * columns, the odd ones or both. */
struct use {
    int rows;
    bool half[2];
};

/* Column i of a half: into the panel with its scale, or times x without. */
INLINE void put(const struct tile *t, int odd, size_t i, const vf w[2], const float *scale,
                struct chain chain[2], struct use use)
{
    size_t at = (size_t)odd * HALF + i;
    if (!use.half[odd]) return;
    if (use.rows == 0) {
        float *p = t->panel + at * STRIP;
        vstore(p, scaled(w[0], scale));
        vstore(p + V, scaled(w[1], scale + V));
    }
    foreach (r, use.rows) {
        vf *sum = chain[odd].sum[r];
        strip_fma(t->x + (size_t)r * BLOCK + at, w[0], w[1], sum[0], sum[1]);
    }
}

/* The 16 bytes of a group, from column k of a tile on, into a panel or times x. */
typedef void (*group_fn)(const struct tile *t, size_t k, const float *scale, struct chain chain[2],
                         struct use use);

#ifdef look_up16

/* BF16 of the codes, twice: the fifth bit of an index does not count. */
#define CODES                                                                                      \
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,        \
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0
static const uint16_t codes[32] __attribute__((aligned(64))) = {CODES, CODES};

/* A dword has the codes of eight columns: a column's BF16 and that of the fourth one behind it are
 * looked up at a time. */
INLINE void group_mxfp4(const struct tile *t, size_t k, const float *scale, struct chain chain[2],
                        struct use use)
{
    vb v[2][4];
    fetch_next(t->s, (t->first + k) / 2);
    foreach (h, 2) turn_dwords(v[h], t->s, (size_t)h * V, (t->first + k) / 2);
    foreach (j, 4)
        foreach (odd, 2) {
            vb words[2][2]; /* [columns odd and odd + 4, odd + 2 and odd + 6][h] */
            foreach (i, 2)
                foreach (h, 2)
                    words[i][h] = look_up16(codes, (vb)((vu)v[h][j] >> (4 * odd + 8 * i)));
            foreach (i, 4) {
                vf w[2];
                foreach (h, 2)
                    w[h] = i < 2 ? low_half(words[i % 2][h]) : high_half(words[i % 2][h]);
                put(t, odd, k / 2 + 4 * (size_t)j + (size_t)i, w, scale, chain, use);
            }
        }
}

#else

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

INLINE void group_mxfp4(const struct tile *t, size_t k, const float *scale, struct chain chain[2],
                        struct use use)
{
    vb v[8];
    load_rows(v, t->s, (t->first + k) / 2);
    ROUNDS(low8, high8, v)
    foreach (j, 8)
        foreach (odd, 2) {
            vb words[2], codes = odd ? (vb)((vh)v[j] >> 4) : v[j];
            decode(words, (vb)((vc)codes & 15));
            foreach (i, 2) {
                vf w[2] = {low_half(words[i]), high_half(words[i])};
                put(t, odd, k / 2 + 2 * (size_t)j + (size_t)i, w, scale, chain, use);
            }
        }
}

#endif

INLINE void panel_groups(const struct tile *t, float scale[BLOCK / GROUP][STRIP], group_fn group)
{
    for (size_t g = 0; g < t->n / GROUP; g++)
        group(t, g * GROUP, scale[g], NULL, (struct use){0, {true, true}});
}

/* Sums in units of the scale of the group before become sums in units of this one's. */
INLINE void change_unit(struct chain chain[2], const float *from, const float *to, struct use use)
{
    foreach (h, 2) {
        vf ratio = (vf)((vi)vload(from + h * V) - (vi)vload(to + h * V) + (vi)vset1(1.0f));
        foreach (r, use.rows)
            foreach (odd, 2)
                if (use.half[odd]) chain[odd].sum[r][h] *= ratio;
    }
}

INLINE void direct_groups(const struct tile *t, float scale[BLOCK / GROUP][STRIP], group_fn group,
                          struct use use)
{
    struct chain chain[2];
    size_t n = t->n / GROUP;
    foreach (r, use.rows)
        foreach (h, 2) chain[0].sum[r][h] = chain[1].sum[r][h] = vset1(0.0f);
    for (size_t g = 0; g < n; g++) {
        if (g) change_unit(chain, scale[g - 1], scale[g], use);
        group(t, g * GROUP, NULL, chain, use);
    }
    foreach (r, use.rows)
        foreach (h, 2) {
            float *y = t->y + (size_t)r * t->ldy + h * V;
            vf unit = vload(scale[n - 1] + h * V), sum = vload(y);
            foreach (odd, 2)
                if (use.half[odd]) sum += chain[odd].sum[r][h] * unit;
            vstore(y, sum);
        }
}

/* With both chains of up to BOTH_ROWS rows in registers, of more with one after the other. */
INLINE void direct_rows(const struct tile *t, float scale[BLOCK / GROUP][STRIP], group_fn group,
                        int rows)
{
    if (rows <= BOTH_ROWS) {
        direct_groups(t, scale, group, (struct use){rows, {true, true}});
    } else {
        direct_groups(t, scale, group, (struct use){rows, {true, false}});
        direct_groups(t, scale, group, (struct use){rows, {false, true}});
    }
}

static void widen_mxfp4(const struct tile *t)
{
    float scale[BLOCK / GROUP][STRIP];
    widen_scales(t, scale);
    panel_groups(t, scale, group_mxfp4);
}

#define DIRECT(n)                                                                                  \
    case n:                                                                                        \
        direct_rows(t, scale, group, n);                                                           \
        break;

/* Few rows without a panel; with one, made by `widen`, where sums cannot change units. */
INLINE void direct_run(const struct tile *t, size_t rows, void (*widen)(const struct tile *t),
                       group_fn group)
{
    float scale[BLOCK / GROUP][STRIP];
    widen_scales(t, scale);
    if (!t->tame || !scales_within(t, scale, TAME_LEAST, TAME_MOST)) {
        widen(t);
        tile_run(t, rows);
        return;
    }
    switch (rows) {
        EACH_DIRECT(DIRECT)
    }
}

static void direct_mxfp4(const struct tile *t, size_t rows)
{
    direct_run(t, rows, widen_mxfp4, group_mxfp4);
}

#endif
