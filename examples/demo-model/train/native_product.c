/* Products of matrices in BF16 with F32 sums, for the text layers and the vision tower.
 *
 * The right side is packed in panels of 48 columns: [panel][pair of k][48], a pair of BF16 in each
 * int32, as vdpbf16ps takes them. 8 rows by 3 vectors of sums stay in registers. */
#include "examples/demo-model/train/native_text.h"

#if defined(__AVX512BF16__)

#define ROWS    8
#define VECTORS 3
#define CHUNK   256 /* rows that a product of columns packs at a time */

_Static_assert(PANEL == VECTORS * LANES, "");

size_t packed_size(long k, long columns)
{
    return (size_t)((columns + PANEL - 1) / PANEL) * ((k + 1) / 2) * PANEL * sizeof(bf16_pair);
}

INLINE void put(target out, long at, vec sum)
{
    if (out.kind == TO_BF16)
        store_bf16((bf16 *)out.data + at, sum);
    else if (out.kind == TO_F32)
        store((float *)out.data + at, sum);
    else
        add_to((float *)out.data + at, sum);
}

/* ROWS rows, of which `rows` are stored, by so many vectors: pair p of row r is a[r][p * step] */
INLINE void multiply(const bf16_pair *const a[ROWS], long step, const bf16_pair *b, long pairs,
                     int vectors, target out, long rows)
{
    vec sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = zero();
    for (long p = 0; p < pairs; p++) {
        __m512bh right[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            right[v] = (__m512bh)_mm512_loadu_si512(b + p * PANEL + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            __m512bh left = (__m512bh)_mm512_set1_epi32(a[r][p * step]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        if (r >= rows) break;
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) put(out, r * out.ld + v * LANES, sum[r][v]);
    }
}

/* With the number of vectors known to the compiler */
INLINE void tile(const bf16_pair *const a[ROWS], long step, const bf16_pair *b, long pairs,
                 int vectors, target out, long rows)
{
    if (vectors >= 3)
        multiply(a, step, b, pairs, 3, out, rows);
    else if (vectors == 2)
        multiply(a, step, b, pairs, 2, out, rows);
    else
        multiply(a, step, b, pairs, 1, out, rows);
}

static target shifted(target out, long row, long column)
{
    long at = row * out.ld + column;
    out.data =
        out.kind == TO_BF16 ? (void *)((bf16 *)out.data + at) : (void *)((float *)out.data + at);
    return out;
}

void product(const bf16 *a, long lda, long rows, long k, packed b, long columns, target out)
{
    for (long top = 0; top < rows; top += BLOCK) {
        long end = top + BLOCK < rows ? top + BLOCK : rows;
        for (long column = 0; column < columns; column += PANEL)
            for (long r = top; r < end; r += ROWS) {
                const bf16_pair *row[ROWS];
                for (long i = 0; i < ROWS;
                     i++) /* rows beyond the end: the last one again, not stored */
                    row[i] = (const bf16_pair *)(a + (r + i < end ? r + i : end - 1) * lda);
                tile(row, 1, b.data + column / PANEL * b.panel, (k + 1) / 2,
                     (columns - column) / LANES, shifted(out, r, column), end - r);
            }
    }
}

packed pack_transposed(bf16_pair *data, const bf16 *w, long ldw, long columns, long k)
{
    packed b = {data, (k + 1) / 2 * PANEL};
    for (long n = 0; n < columns; n++) {
        const bf16_pair *from = (const bf16_pair *)(w + n * ldw);
        bf16_pair *to = b.data + n / PANEL * b.panel + n % PANEL;
        for (long p = 0; p < k / 2; p++) to[p * PANEL] = from[p];
    }
    return b;
}

INLINE __m512i load_wide(const bf16 *from)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
}

/* 16 pairs of two rows below each other, or of one and zeros */
INLINE __m512i pairs_of(const bf16 *upper, const bf16 *lower)
{
    if (!lower) return load_wide(upper);
    return _mm512_or_si512(load_wide(upper), _mm512_slli_epi32(load_wide(lower), 16));
}

packed pack(bf16_pair *data, const bf16 *w, long ldw, long columns, long k)
{
    packed b = {data, (k + 1) / 2 * PANEL};
    for (long p = 0; p < (k + 1) / 2; p++) {
        const bf16 *upper = w + 2 * p * ldw, *lower = 2 * p + 1 < k ? upper + ldw : NULL;
        for (long n = 0; n < columns; n += LANES)
            _mm512_storeu_si512(b.data + n / PANEL * b.panel + p * PANEL + n % PANEL,
                                pairs_of(upper + n, lower ? lower + n : NULL));
    }
    return b;
}

/* [columns / 8][pair of k][8] */
static void pack_left(bf16_pair *data, const bf16 *w, long ldw, long columns, long k)
{
    long panel = (k + 1) / 2 * ROWS;
    for (long p = 0; p < (k + 1) / 2; p++) {
        const bf16 *upper = w + 2 * p * ldw, *lower = 2 * p + 1 < k ? upper + ldw : NULL;
        for (long n = 0; n < columns; n += LANES) {
            __m512i x = pairs_of(upper + n, lower ? lower + n : NULL);
            bf16_pair *to = data + n / ROWS * panel + p * ROWS;
            _mm256_storeu_si256((void *)to, _mm512_castsi512_si256(x));
            _mm256_storeu_si256((void *)(to + panel), _mm512_extracti64x4_epi64(x, 1));
        }
    }
}

void product_of_columns(const bf16 *x, long ldx, long x_columns, const bf16 *y, long ldy,
                        long y_columns, long rows, target out)
{
    bf16_pair *left = room(ROOM_LEFT, CHUNK / 2 * x_columns * sizeof(bf16_pair));
    bf16_pair *right = room(ROOM_RIGHT, packed_size(CHUNK, y_columns));
    for (long top = 0; top < rows; top += CHUNK) {
        long k = rows - top < CHUNK ? rows - top : CHUNK, pairs = (k + 1) / 2;
        pack_left(left, x + top * ldx, ldx, x_columns, k);
        packed b = pack(right, y + top * ldy, ldy, y_columns, k);
        for (long column = 0; column < y_columns; column += PANEL)
            for (long i = 0; i < x_columns; i += ROWS) {
                const bf16_pair *row[ROWS];
                for (int r = 0; r < ROWS; r++) row[r] = left + i / ROWS * pairs * ROWS + r;
                tile(row, ROWS, b.data + column / PANEL * b.panel, pairs,
                     (y_columns - column) / LANES, shifted(out, i, column), ROWS);
            }
        out.kind = ADD_F32;
    }
    if (rows == 0 && out.kind == TO_F32)
        for (long i = 0; i < x_columns; i++)
            memset((float *)out.data + i * out.ld, 0, y_columns * sizeof(float));
}

/* w in BF16, in ROOM_WEIGHTS */
static const bf16 *rounded_weights(const float *w, long n)
{
    bf16 *to = room(ROOM_WEIGHTS, n * sizeof(bf16));
    row_to_bf16(to, w, n);
    return to;
}

/* -- called from Python: x [rows][k], y [rows][columns] -- */

/* y = x w', w F32 [columns][k] */
void apply(const bf16 *x, long ldx, long rows, long k, const float *w, long columns, bf16 *y,
           long ldy)
{
    bf16_pair *panels = room(ROOM_RIGHT, packed_size(k, columns));
    packed b = pack_transposed(panels, rounded_weights(w, columns * k), k, columns, k);
    product(x, ldx, rows, k, b, columns, (target){y, ldy, TO_BF16});
}

/* y = x w' with F32 sums and a w of twice BF16's bits: its rounded values and what they leave */
void apply_exactly(const bf16 *x, long ldx, long rows, long k, const float *w, long columns,
                   float *y, long ldy)
{
    long n = columns * k;
    bf16 *high = room(ROOM_WEIGHTS, 2 * n * sizeof(bf16)), *low = high + n;
    for (long i = 0; i < n; i += LANES) {
        store_bf16(high + i, load(w + i));
        store_bf16(low + i, load(w + i) - load_bf16(high + i));
    }
    bf16_pair *panels = room(ROOM_RIGHT, packed_size(k, columns));
    packed b = pack_transposed(panels, high, k, columns, k);
    product(x, ldx, rows, k, b, columns, (target){y, ldy, TO_F32});
    b = pack_transposed(panels, low, k, columns, k);
    product(x, ldx, rows, k, b, columns, (target){y, ldy, ADD_F32});
}

/* dx [rows][columns] = dy [rows][k] w, w F32 [k][columns]; dx BF16, or F32 if so wished */
void apply_back(const bf16 *dy, long lddy, long rows, long k, const float *w, long columns,
                void *dx, long lddx, long as_f32)
{
    bf16_pair *panels = room(ROOM_RIGHT, packed_size(k, columns));
    packed b = pack(panels, rounded_weights(w, columns * k), columns, columns, k);
    product(dy, lddy, rows, k, b, columns, (target){dx, lddx, as_f32 ? TO_F32 : TO_BF16});
}

/* dw = dy' x, F32 [columns of dy][columns of x] */
void weight_gradient(const bf16 *dy, long lddy, long dy_columns, const bf16 *x, long ldx,
                     long x_columns, long rows, float *dw)
{
    target out = {dw, x_columns, TO_F32};
    product_of_columns(dy, lddy, dy_columns, x, ldx, x_columns, rows, out);
}

#endif
