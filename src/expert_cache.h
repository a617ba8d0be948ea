/* A bounded cache of expert records.
 *
 * It holds bytes by key. Getting them is the fetch callback's business, so this file opens nothing
 * and computes nothing. A borrowed record stays in place until released; one being read is neither
 * handed out nor evicted. Readers (readers.h) fetch what was announced ahead of use, into at most a
 * sixteenth of the slots (or two for each reader) at a time: what they hold is taken from what
 * stays. Eviction follows expert_heat.h: access is cyclic (layer 0..n, again and again), which
 * defeats LRU. The mutex guards every field and is never held across fetch. */
#ifndef NS_EXPERT_CACHE_H
#define NS_EXPERT_CACHE_H

#include "src/mem.h"
#include "src/readers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct expert_cache;
/* Fills dst (aligned to OS_DIRECT_ALIGN, slot_bytes long) with a record that begins at dst + *at.
 * Called from several threads at once, never for one key at the same time. */
typedef enum status (*expert_fetch_fn)(void *user, uint32_t key, void *dst, size_t *at,
                                       struct err *e);

struct expert_cache_opts {
    struct mem *mem;
    size_t slots; /* >= 2; those being read and borrowed count too */
    size_t slot_bytes;
    uint32_t keys;           /* keys are 0..keys-1 */
    struct readers *readers; /* NULL: fetch in expert_cache_get only */
    expert_fetch_fn fetch;
    void *user;
};

/* How many of so many slots may hold records read ahead of use. */
size_t expert_cache_ahead(size_t slots, unsigned readers);

/* Takes whole slots from the budget; E_BUDGET if they do not fit. End with expert_cache_close. */
enum status expert_cache_open(struct expert_cache **out, const struct expert_cache_opts *o,
                              struct err *e);
void expert_cache_close(struct expert_cache *c);

/* Announce what will be got soon, in order of use, replacing what was announced before and has not
 * begun to be read. What is announced and there stays until it was got, if gets leave room. Only a
 * hint: never waits for a read, never fails. keys is copied, the first `keys` of them. */
void expert_cache_announce(struct expert_cache *c, const uint32_t *keys, size_t n);

/* Borrow one record, waiting if its read is under way. Release it exactly once. At most slots - 1
 * may be borrowed at a time. A failed fetch is returned here, and the key may be asked for again.
 */
enum status expert_cache_get(struct expert_cache *c, uint32_t key, const void **out, struct err *e);
/* Would get return at once? Another thread's get may change the answer. */
bool expert_cache_ready(struct expert_cache *c, uint32_t key);
void expert_cache_release(struct expert_cache *c, uint32_t key);

/* A sweep begins: use counts decay. */
void expert_cache_tick(struct expert_cache *c);

struct expert_cache_stats {
    uint64_t gets, hits; /* hit: the record was there, or its announced read had already ended */
    uint64_t fetches, fetched_ahead, wasted; /* wasted: fetched ahead and evicted unused */
    double wait_s;                           /* spent waiting in get */
};
void expert_cache_stats(struct expert_cache *c, struct expert_cache_stats *out);

#endif
