/* Shared beginnings: states kept at positions that several prompts pass through (design.md 4).
 *
 * A beginning is named by a hash over its rows, so it does not matter which sequence computed it.
 * The store takes what memory there is up to its limit and gives up the least recently used entry
 * when asked. A state copied from here is bit for bit the one that computing the rows again would
 * give. One caller at a time. */
#ifndef NS_PREFIX_H
#define NS_PREFIX_H

#include "src/state.h"

#include <stdbool.h>

struct prefix_store;

struct prefix_key {
    uint64_t a, b;
};

enum status prefix_open(struct prefix_store **out, struct mem *mem, const struct config *c,
                        uint64_t limit_bytes, struct err *e);
void prefix_close(struct prefix_store *p);

/* Hash of rows[0..n]: start from prefix_empty and step row by row. A row is its token id, or a
 * content hash for a row of an image. */
struct prefix_key prefix_empty(void);
struct prefix_key prefix_step(struct prefix_key k, uint64_t row);

/* The longest kept beginning of rows[0..n), at most n rows; its state is copied into s (capacity >=
 * n). Returns its length, 0 when there is none. */
size_t prefix_restore(struct prefix_store *p, const uint64_t *rows, size_t n, struct state *s);
/* The same length without a copy. */
size_t prefix_find(const struct prefix_store *p, const uint64_t *rows, size_t n);
/* Makes room for the state after `length` rows, named by key: *s is to be filled, and good until
 * prefix_settle. False, and nothing is kept, when it is known already or there is no room. */
bool prefix_reserve(struct prefix_store *p, struct prefix_key key, size_t length, struct state *s);
/* What was reserved has been filled and may be found. */
void prefix_settle(struct prefix_store *p);
/* Another sequence's state served as a beginning of that many rows, without a copy being kept. */
void prefix_branched(struct prefix_store *p, size_t rows);
/* Gives up one entry; false when there is none. */
bool prefix_shrink(struct prefix_store *p);

struct prefix_stats {
    uint64_t kept, dropped, restored, branched, rows_saved, bytes;
};
void prefix_stats(const struct prefix_store *p, struct prefix_stats *out);

#endif
