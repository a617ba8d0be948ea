/* One thread, one ring: [taken .. prepared) are ready, [prepared .. submitted) wait. */
#include "jobs/ahead.h"

#include "src/os.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define STACK_BYTES ((size_t)2 << 20)

struct ahead {
    struct prepare *prepare;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t submitted_one, prepared_one;
    size_t submitted, prepared, taken;
    bool stop;
    struct ahead_waits waits; /* of the thread that takes, as is the limit */
    size_t cap;
    struct ready *ring[];
};

static void *work(void *arg)
{
    struct ahead *a = arg;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->stop && a->prepared == a->submitted)
            pthread_cond_wait(&a->submitted_one, &a->lock);
        if (a->stop) break;
        struct ready *r = a->ring[a->prepared % a->cap];
        pthread_mutex_unlock(&a->lock);
        prepare_job(a->prepare, r);
        pthread_mutex_lock(&a->lock);
        a->prepared++;
        pthread_cond_signal(&a->prepared_one);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

enum status ahead_open(struct ahead **out, struct prepare *p, size_t cap, struct err *e)
{
    *out = NULL;
    struct ahead *a = calloc(1, sizeof *a + cap * sizeof a->ring[0]);
    if (!a) return err_set(e, E_NOMEM, "preparing: no memory");
    a->prepare = p;
    a->cap = cap;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->submitted_one, NULL);
    pthread_cond_init(&a->prepared_one, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int errnum = pthread_create(&a->thread, &attr, work, a);
    pthread_attr_destroy(&attr);
    if (errnum) {
        free(a);
        return err_errno(e, errnum, "cannot start the preparing thread");
    }
    *out = a;
    return OK;
}

void ahead_close(struct ahead *a)
{
    if (!a) return;
    prepare_stop(a->prepare);
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->submitted_one);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->submitted_one);
    pthread_cond_destroy(&a->prepared_one);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void ahead_submit(struct ahead *a, struct ready *r)
{
    pthread_mutex_lock(&a->lock);
    assert(a->submitted - a->taken < a->cap);
    a->ring[a->submitted++ % a->cap] = r;
    pthread_cond_signal(&a->submitted_one);
    pthread_mutex_unlock(&a->lock);
}

static struct ready *take(struct ahead *a, double wait_s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)wait_s;
    until.tv_nsec += (long)((wait_s - (double)(time_t)wait_s) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    struct ready *r = NULL;
    pthread_mutex_lock(&a->lock);
    int rc = wait_s > 0 ? 0 : ETIMEDOUT;
    while (a->taken == a->prepared && rc == 0)
        rc = pthread_cond_timedwait(&a->prepared_one, &a->lock, &until);
    if (a->taken < a->prepared) r = a->ring[a->taken++ % a->cap];
    pthread_mutex_unlock(&a->lock);
    return r;
}

struct ready *ahead_take(struct ahead *a, double wait_s)
{
    struct ready *r = take(a, 0);
    if (r || wait_s <= 0) return r;
    struct vision_times before, after;
    double begun = os_now();
    prepare_times(a->prepare, &before);
    r = take(a, wait_s);
    prepare_times(a->prepare, &after);
    a->waits.seconds += os_now() - begun;
    a->waits.waited.decode_s += after.decode_s - before.decode_s;
    a->waits.waited.encode_s += after.encode_s - before.encode_s;
    return r;
}

void ahead_waits(const struct ahead *a, struct ahead_waits *out)
{
    *out = a->waits;
    prepare_times(a->prepare, &out->all);
}

size_t ahead_inside(struct ahead *a)
{
    pthread_mutex_lock(&a->lock);
    size_t n = a->submitted - a->taken;
    pthread_mutex_unlock(&a->lock);
    return n;
}
