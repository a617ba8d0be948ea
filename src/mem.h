/* The memory budget. Everything large is allocated through it: weights, states, rows, caches,
 * pictures.
 *
 * It counts bytes against one limit and refuses what does not fit, so that the peak resident size
 * is known before anything is loaded. Thread safe. The fault switch makes the n-th allocation fail,
 * for tests. */
#ifndef NS_MEM_H
#define NS_MEM_H

#include "src/err.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct mem {
    pthread_mutex_t lock; /* guards every field below */
    uint64_t limit;       /* bytes; 0 = no limit, only counting */
    uint64_t used, peak;
    int64_t fail_at;  /* tests: counts down, the allocation that reaches 0 fails; < 0 = off */
    int fail_forever; /* tests: and all that follow it */
};

void mem_init(struct mem *m, uint64_t limit_bytes);
/* Asserts that everything was given back. */
void mem_close(struct mem *m);

/* Zeroed memory, aligned to 64 bytes. E_BUDGET over the limit, E_NOMEM when the system refuses; the
 * message names `what`. bytes may be 0 (returns a valid pointer). End with mem_free. */
enum status mem_alloc(struct mem *m, void *out_ptr, size_t bytes, const char *what, struct err *e);
/* count * size with the overflow checked. */
enum status mem_array(struct mem *m, void *out_ptr, size_t count, size_t size, const char *what,
                      struct err *e);
/* align: a power of two from 64 up. Not zeroed: for buffers that a read fills. */
enum status mem_alloc_aligned(struct mem *m, void *out_ptr, size_t bytes, size_t align,
                              const char *what, struct err *e);
/* p may be NULL. */
void mem_free(struct mem *m, void *p);

/* Count bytes that others allocate (libraries, thread stacks) against the same budget. */
enum status mem_reserve(struct mem *m, uint64_t bytes, const char *what, struct err *e);
void mem_unreserve(struct mem *m, uint64_t bytes);

/* Bump allocation inside one block. With base NULL it only counts: the same layout code gives sizes
 * for the plan and addresses for the sweep. Every piece is aligned to 64 bytes. */
struct arena {
    char *base;
    uint64_t at, cap, peak;
};

/* count * size bytes; NULL while counting. Running over cap is a mistake of ours (asserts). */
void *arena_take(struct arena *a, uint64_t count, size_t size);
static inline float *arena_floats(struct arena *a, uint64_t count)
{
    return (float *)arena_take(a, count, sizeof(float));
}

/* A growing byte buffer for text and small tables; plain malloc, not counted: callers bound its
 * size. */
struct buf {
    char *data; /* always NUL-terminated once something was added */
    size_t len, cap;
};

enum status buf_add(struct buf *b, const void *data, size_t len, struct err *e);
enum status buf_addf(struct buf *b, struct err *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
void buf_free(struct buf *b);

#endif
