/* The tables behind kern_select. Only those of the target's architecture are linked. */
#ifndef NS_KERN_TABLES_H
#define NS_KERN_TABLES_H

#include "src/kern.h"

#include <stdbool.h>

extern const struct kern kern_avx2_table;
extern const struct kern kern_avx512_table;
extern const struct kern kern_avx512bf16_table;
extern const struct kern kern_amx_table;
extern const struct kern kern_neon_table;

void kern_avx512_f32(const struct mm *a); /* of its table */

#endif
