/* The pre-tokenizer: cuts text into the pieces that byte pairs are merged in (kimi-k3 4.3). */
#ifndef NS_PRETOK_H
#define NS_PRETOK_H

#include <stddef.h>
#include <stdint.h>

/* One character with its classes, so that matching looks nothing up. */
static inline uint32_t pretok_char(uint32_t cp, unsigned class)
{
    return cp << 6 | class;
}

/* Characters in the first piece of ch[0 .. n), n > 0; at least 1. Reads on to ch[n - 1] at most. */
size_t pretok_piece(const uint32_t *ch, size_t n);

#endif
