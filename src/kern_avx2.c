/* AVX2 and FMA: strips of two vectors of eight outputs, six rows in a tile. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <immintrin.h>

#define V               8
#define TILE_ROWS       6
#define DIRECT_ROWS     4
#define BOTH_ROWS       2
#define EACH_DIRECT(DO) DO(1) DO(2) DO(3) DO(4)
typedef __m256 vf;
#define vload  _mm256_loadu_ps
#define vstore _mm256_storeu_ps
#define vset1  _mm256_set1_ps
#define vfma   _mm256_fmadd_ps

#include "src/kern_mm.h"

typedef __m256i vb;
#define low8    _mm256_unpacklo_epi8
#define high8   _mm256_unpackhi_epi8
#define low16   _mm256_unpacklo_epi16
#define high16  _mm256_unpackhi_epi16
#define low32   _mm256_unpacklo_epi32
#define high32  _mm256_unpackhi_epi32
#define look_up _mm256_shuffle_epi8

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE vb every_lane(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(load16(p));
}

INLINE vb load_lanes(const struct strip *s, size_t i, size_t at)
{
    __m256i r = _mm256_castsi128_si256(load16(s->w[i] + at));
    return _mm256_inserti128_si256(r, load16(s->w[i + 4] + at), 1);
}

#include "src/kern_turn.h"

const struct kern kern_avx2_table = {.name = "avx2", KERN_FUNCTIONS};
