/* Fork-join: one generation counter wakes the threads, one atomic hands out tasks. */
#include "src/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define STACK_BYTES ((size_t)1 << 20)

struct pool {
    unsigned threads;
    pthread_mutex_t lock; /* guards generation, busy, stop */
    pthread_cond_t wake, idle;
    unsigned long generation;
    unsigned busy;
    bool stop;
    atomic_size_t next;
    size_t tasks;
    pool_fn fn;
    void *ctx;
    struct worker {
        struct pool *pool;
        pthread_t thread;
        unsigned index;
    } workers[];
};

static void work(struct pool *p, unsigned index)
{
    size_t t;
    while ((t = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->tasks)
        p->fn(p->ctx, t, index);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned long seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->generation == seen) pthread_cond_wait(&p->wake, &p->lock);
        if (p->stop) break;
        seen = p->generation;
        pthread_mutex_unlock(&p->lock);
        work(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0) pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status pool_open(struct pool **out, unsigned threads, struct err *e)
{
    *out = NULL;
    if (threads < 1 || threads > 1024)
        return err_set(e, E_USAGE, "threads: %u is not in 1..1024", threads);
    struct pool *p = calloc(1, sizeof *p + threads * sizeof p->workers[0]);
    if (!p) return err_set(e, E_NOMEM, "thread pool: no memory");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->threads = 1;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int errnum = 0;
    for (unsigned i = 1; i < threads && !errnum; i++) {
        p->workers[i] = (struct worker){p, 0, i};
        errnum = pthread_create(&p->workers[i].thread, &attr, worker_main, &p->workers[i]);
        if (!errnum) p->threads++;
    }
    pthread_attr_destroy(&attr);
    if (errnum) {
        unsigned started = p->threads;
        pool_close(p);
        return err_errno(e, errnum, "cannot start thread %u of %u", started + 1, threads);
    }
    *out = p;
    return OK;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 1; i < p->threads; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->idle);
    free(p);
}

unsigned pool_threads(const struct pool *p)
{
    return p->threads;
}

void pool_run(struct pool *p, size_t tasks, pool_fn fn, void *ctx)
{
    if (p->threads == 1 || tasks <= 1) {
        for (size_t t = 0; t < tasks; t++) fn(ctx, t, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->busy = p->threads - 1;
    p->generation++;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    work(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->busy) pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
