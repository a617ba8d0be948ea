/* Which ids were seen, and where first: 16 bytes a slot, 32 MiB for a million ids
 * and half as much again while it grows. Ids are known by
 * 64 bits of their SHA-256: ten million of them are all told apart but once in 300,000 such sets.
 */
#ifndef NS_ID_SET_H
#define NS_ID_SET_H

#include "src/err.h"

#include <stddef.h>
#include <stdint.h>

struct id_slot {
    uint64_t key; /* 0: free */
    uint64_t place;
};

/* Starts zeroed. */
struct id_set {
    struct id_slot *slots;
    size_t n, cap; /* cap: a power of two, or 0 */
};

/* *first = the place that id was added with before; place itself when it is new. */
enum status id_set_add(struct id_set *s, const char *id, uint64_t place, uint64_t *first,
                       struct err *e);
void id_set_free(struct id_set *s);

#endif
