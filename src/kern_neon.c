/* NEON (aarch64): strips of two vectors of four outputs, twelve rows in a tile. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <arm_neon.h>

#define V               4
#define TILE_ROWS       12
#define DIRECT_ROWS     2
#define BOTH_ROWS       2
#define EACH_DIRECT(DO) DO(1) DO(2)
typedef float32x4_t vf;
#define vload         vld1q_f32
#define vstore        vst1q_f32
#define vset1         vdupq_n_f32
#define vfma(a, b, c) vfmaq_f32(c, a, b)

#include "src/kern_mm.h"

typedef uint8x16_t vb;
#define low8  vzip1q_u8
#define high8 vzip2q_u8
#define low16(a, b)                                                                                \
    vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
#define high16(a, b)                                                                               \
    vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
#define low32(a, b)                                                                                \
    vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
#define high32(a, b)                                                                               \
    vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
#define every_lane vld1q_u8
#define look_up    vqtbl1q_u8

INLINE vb load_lanes(const struct strip *s, size_t i, size_t at)
{
    return vld1q_u8(s->w[i] + at);
}

#include "src/kern_turn.h"

const struct kern kern_neon_table = {.name = "neon", KERN_FUNCTIONS};
