/* A fork-join pool of threads.
 *
 * pool_run hands out task numbers 0..n-1 to all threads, the caller among them, and returns when
 * every task is done. Which thread runs which task is not fixed; results must not depend on it.
 * Tasks must not call pool_run. */
#ifndef NS_POOL_H
#define NS_POOL_H

#include "src/err.h"

#include <stddef.h>

struct pool;
typedef void (*pool_fn)(void *ctx, size_t task, unsigned thread);

/* threads >= 1, the caller of pool_run counted. */
enum status pool_open(struct pool **out, unsigned threads, struct err *e);
void pool_close(struct pool *p);
unsigned pool_threads(const struct pool *p);
/* thread passed to fn is in 0..pool_threads-1 and unique among those running: an index for scratch
 * memory. */
void pool_run(struct pool *p, size_t tasks, pool_fn fn, void *ctx);

#endif
