/* AVX-512 (F, BW, VL, DQ): everything in kern_zmm.h as it is. */
#include "src/kern_zmm.h"

void kern_avx512_f32(const struct mm *a)
{
    mm_f32(a);
}

const struct kern kern_avx512_table = {.name = "avx512", KERN_FUNCTIONS};
