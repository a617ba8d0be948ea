/* Fork-join: one generation counter wakes the threads, one atomic hands out tasks.
 *
 * Forks follow each other closely, and waking a thread takes longer than many of them last: who has
 * nothing to do looks for a while whether there is something before it sleeps. */
#include "src/pool.h"

#include "src/os.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define STACK_BYTES ((size_t)1 << 20)
#define AWAKE_S     50e-6 /* about what falling asleep and waking up take */
#define LOOKS       64    /* between two looks at the clock */

struct pool {
    unsigned threads;
    double awake_s; /* 0 where threads have to share cores */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    /* who goes to sleep says so and looks again; who changes something looks for sleepers behind */
    atomic_uint asleep;
    atomic_bool waiting;
    atomic_uint generation, busy;
    atomic_size_t next;
    bool stop; /* this and the rest are written before generation is raised, and read after */
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

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether *at becomes another value than `from` soon. */
static bool changes(const struct pool *p, const atomic_uint *at, unsigned from)
{
    double until = p->awake_s ? os_now() + p->awake_s : 0;
    do {
        for (int i = 0; i < LOOKS; i++, relax())
            if (*at != from) return true;
    } while (until && os_now() < until);
    return false;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        if (!changes(p, &p->generation, seen)) {
            pthread_mutex_lock(&p->lock);
            p->asleep++;
            while (p->generation == seen) pthread_cond_wait(&p->wake, &p->lock);
            p->asleep--;
            pthread_mutex_unlock(&p->lock);
        }
        if (p->stop) return NULL;
        work(p, w->index);
        if (--p->busy || !p->waiting) continue;
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->idle);
        pthread_mutex_unlock(&p->lock);
    }
}

static void wake(struct pool *p)
{
    p->generation++;
    if (!p->asleep) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void wait_idle(struct pool *p)
{
    for (unsigned busy; (busy = p->busy) && changes(p, &p->busy, busy);) continue;
    if (!p->busy) return;
    pthread_mutex_lock(&p->lock);
    p->waiting = true;
    while (p->busy) pthread_cond_wait(&p->idle, &p->lock);
    p->waiting = false;
    pthread_mutex_unlock(&p->lock);
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
    p->awake_s = threads <= os_cpus() ? AWAKE_S : 0;
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
    p->stop = true;
    wake(p);
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
    p->fn = fn;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->busy = p->threads - 1;
    wake(p);
    work(p, 0);
    wait_idle(p);
}
