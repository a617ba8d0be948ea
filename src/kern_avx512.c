/* AVX-512 (F, BW, VL, DQ): everything in kern_zmm.h as it is. */
#include "src/kern_zmm.h"

const struct kern kern_avx512_table = {.name = "avx512", KERN_FUNCTIONS};
