/* A table of byte strings with numbers, and the merging of byte pairs by rank (kimi-k3 4.4). */
#ifndef NS_BPE_H
#define NS_BPE_H

#include "src/mem.h"

#include <stdbool.h>

#define BPE_NONE UINT32_MAX

/* Byte strings 0 .. n - 1 and the way from bytes to number. Add all, then index once. */
struct bpe_table {
    struct buf bytes;
    uint32_t *at; /* [n + 1] where each begins in bytes */
    size_t n, cap;
    uint32_t *slots; /* [mask + 1] numbers, BPE_NONE: empty */
    size_t mask;
    size_t longest; /* bytes */
};

/* len > 0; the table as a whole is bounded to 2^31 bytes and strings by its caller. */
enum status bpe_add(struct bpe_table *t, const char *s, size_t len, struct err *e);
/* *twice: the number of a string that is there already, else BPE_NONE. */
enum status bpe_index(struct bpe_table *t, uint32_t *twice, struct err *e);
void bpe_free(struct bpe_table *t);
const char *bpe_bytes(const struct bpe_table *t, uint32_t number, size_t *len);
/* BPE_NONE when it is not there. */
uint32_t bpe_find(const struct bpe_table *t, const char *s, size_t len);

/* Room to merge in, kept from piece to piece. Starts zeroed, ends with bpe_work_free. */
struct bpe_part {
    uint32_t prev, end; /* where the part before begins, where this one ends */
    uint32_t rank;      /* of this part and the next as one; BPE_NONE */
};
struct bpe_work {
    struct bpe_part *parts; /* [cap], by first byte */
    uint64_t *heap;         /* [3 * cap] */
    size_t cap, n_heap;
};
void bpe_work_free(struct bpe_work *w);

/* Merges the bytes of one piece; the table must hold all single bytes. Afterwards the parts of the
 * result begin at 0, w->parts[0].end, ... up to len. len < 2^31. */
enum status bpe_merge(const struct bpe_table *t, const char *piece, size_t len, struct bpe_work *w,
                      struct err *e);

#endif
