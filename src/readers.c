/* A thread that found nothing to do sleeps until the next wake; one that came while it was looking
 * makes it look again. The lock is never held across a source. */
#include "src/readers.h"

#include "src/os.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define STACK_BYTES ((size_t)512 << 10)

struct source {
    readers_fn fn; /* NULL: none */
    void *user;
    unsigned inside; /* threads */
};

struct readers {
    pthread_mutex_t lock; /* guards all that follows but threads, n */
    pthread_cond_t woken, left;
    struct source sources[READERS_RANKS];
    uint64_t wakes;
    unsigned reads;       /* in flight */
    double since, read_s; /* since when there are some; seconds of earlier such times */
    bool stop;
    unsigned n;
    pthread_t threads[];
};

/* With the lock, which is dropped meanwhile. */
static bool work(struct readers *r, struct source *s)
{
    readers_fn fn = s->fn;
    void *user = s->user;
    if (!fn) return false;
    s->inside++;
    pthread_mutex_unlock(&r->lock);
    bool did = fn(user);
    pthread_mutex_lock(&r->lock);
    if (--s->inside == 0) pthread_cond_broadcast(&r->left);
    return did;
}

static void *reader_main(void *arg)
{
    struct readers *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        uint64_t seen = r->wakes;
        bool did = false;
        for (unsigned i = 0; i < READERS_RANKS && !did; i++) did = work(r, &r->sources[i]);
        while (!did && !r->stop && r->wakes == seen) pthread_cond_wait(&r->woken, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum status readers_open(struct readers **out, unsigned threads, struct err *e)
{
    struct readers *r = *out = NULL;
    r = calloc(1, sizeof *r + threads * sizeof r->threads[0]);
    if (!r) return err_set(e, E_NOMEM, "readers: no memory");
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->woken, NULL);
    pthread_cond_init(&r->left, NULL);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int errnum = 0;
    while (r->n < threads && !errnum) {
        errnum = pthread_create(&r->threads[r->n], &attr, reader_main, r);
        if (!errnum) r->n++;
    }
    pthread_attr_destroy(&attr);
    if (!errnum) {
        *out = r;
        return OK;
    }
    unsigned started = r->n;
    readers_close(r);
    return err_errno(e, errnum, "cannot start reader %u of %u", started + 1, threads);
}

void readers_close(struct readers *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->woken);
    pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->n; i++) pthread_join(r->threads[i], NULL);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->woken);
    pthread_cond_destroy(&r->left);
    free(r);
}

unsigned readers_threads(const struct readers *r)
{
    return r ? r->n : 0;
}

void readers_begin(struct readers *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    if (r->reads++ == 0) r->since = os_now();
    pthread_mutex_unlock(&r->lock);
}

void readers_end(struct readers *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    if (--r->reads == 0) r->read_s += os_now() - r->since;
    pthread_mutex_unlock(&r->lock);
}

double readers_read_s(struct readers *r)
{
    if (!r) return 0;
    pthread_mutex_lock(&r->lock);
    double s = r->read_s + (r->reads ? os_now() - r->since : 0);
    pthread_mutex_unlock(&r->lock);
    return s;
}

void readers_add(struct readers *r, enum readers_rank rank, readers_fn fn, void *user)
{
    pthread_mutex_lock(&r->lock);
    r->sources[rank] = (struct source){.fn = fn, .user = user};
    pthread_mutex_unlock(&r->lock);
}

void readers_remove(struct readers *r, enum readers_rank rank)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    struct source *s = &r->sources[rank];
    s->fn = NULL;
    while (s->inside) pthread_cond_wait(&r->left, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void readers_wake(struct readers *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->wakes++;
    pthread_cond_broadcast(&r->woken);
    pthread_mutex_unlock(&r->lock);
}
