/* readers: every source is served, the urgent one first, and none after it was removed. */
#include "src/readers.h"

#include "src/os.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <sched.h>

static struct err e;

/* Units of work that wait for a gate once they have begun. */
struct jobs {
    pthread_mutex_t lock;
    unsigned left, begun, done;
    bool closed;
};

static bool work(void *user)
{
    struct jobs *j = user;
    pthread_mutex_lock(&j->lock);
    bool some = j->left > 0;
    if (some) {
        j->left--;
        j->begun++;
        while (j->closed) {
            pthread_mutex_unlock(&j->lock);
            sched_yield();
            pthread_mutex_lock(&j->lock);
        }
        j->done++;
    }
    pthread_mutex_unlock(&j->lock);
    return some;
}

static unsigned get(struct jobs *j, const unsigned *field)
{
    pthread_mutex_lock(&j->lock);
    unsigned v = *field;
    pthread_mutex_unlock(&j->lock);
    return v;
}

static void set(struct jobs *j, struct readers *r, unsigned left, bool closed)
{
    pthread_mutex_lock(&j->lock);
    j->left = left;
    j->closed = closed;
    pthread_mutex_unlock(&j->lock);
    readers_wake(r);
}

/* All work of both sources is done, wave after wave, by one thread and by several. */
TEST(all_is_done)
{
    for (unsigned n = 1; n < 5; n += 3) {
        struct jobs a = {.lock = PTHREAD_MUTEX_INITIALIZER}, b = a;
        struct readers *r;
        CHECK_OK(readers_open(&r, n, &e), e);
        CHECK_INT(readers_threads(r), n);
        readers_add(r, READERS_EXPERTS, work, &a);
        readers_add(r, READERS_LAYERS, work, &b);
        for (unsigned wave = 1; wave < 200; wave++) {
            set(&a, r, 1, false);
            set(&b, r, 2, false);
            while (get(&a, &a.done) < wave || get(&b, &b.done) < 2 * wave) sched_yield();
        }
        readers_remove(r, READERS_EXPERTS);
        readers_remove(r, READERS_LAYERS);
        readers_close(r);
    }
    CHECK_INT(readers_threads(NULL), 0);
}

/* While there are experts to read, layers wait. */
TEST(experts_first)
{
    struct jobs a = {.lock = PTHREAD_MUTEX_INITIALIZER, .closed = true}, b = a;
    struct readers *r;
    CHECK_OK(readers_open(&r, 1, &e), e);
    readers_add(r, READERS_LAYERS, work, &b);
    readers_add(r, READERS_EXPERTS, work, &a);
    set(&b, r, 2, true); /* one layer is under way when the experts come */
    while (get(&b, &b.begun) < 1) sched_yield();
    set(&a, r, 3, true);
    set(&b, r, 1, false);
    while (get(&a, &a.begun) < 1) sched_yield();
    CHECK_INT(get(&b, &b.begun), 1);
    set(&a, r, 2, false);
    while (get(&b, &b.done) < 2) sched_yield();
    CHECK_INT(get(&a, &a.done), 3);
    readers_remove(r, READERS_EXPERTS);
    readers_remove(r, READERS_LAYERS);
    readers_close(r);
}

/* Time with reads in flight: at least one, however many, and none between. */
TEST(time_of_reads)
{
    struct readers *r;
    CHECK_OK(readers_open(&r, 1, &e), e);
    CHECK(readers_read_s(r) == 0);
    double before = os_now();
    readers_begin(r);
    double since = os_now();
    for (int i = 0; i < 3; i++) readers_begin(r);
    while (os_now() - since < 0.002) sched_yield();
    double until = os_now(), now = readers_read_s(r);
    CHECK(now >= until - since);
    CHECK(now <= os_now() - before);
    for (int i = 0; i < 3; i++) readers_end(r);
    CHECK(readers_read_s(r) >= now);
    readers_end(r);
    double after = os_now(), all = readers_read_s(r);
    CHECK(all >= now);
    CHECK(all <= after - before);
    while (os_now() - after < 0.002) sched_yield();
    CHECK(readers_read_s(r) == all);
    readers_close(r);
    readers_begin(NULL);
    readers_end(NULL);
    CHECK(readers_read_s(NULL) == 0);
}

struct removal {
    struct readers *r;
    struct jobs *j;
    bool over;
};

static void *remove_source(void *arg)
{
    struct removal *m = arg;
    readers_remove(m->r, READERS_LAYERS);
    pthread_mutex_lock(&m->j->lock);
    m->over = true;
    pthread_mutex_unlock(&m->j->lock);
    return NULL;
}

/* Removing waits for the threads that are inside, and nobody enters again. */
TEST(removing_waits)
{
    struct jobs a = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = 10, .closed = true};
    struct removal m = {.j = &a};
    CHECK_OK(readers_open(&m.r, 2, &e), e);
    readers_add(m.r, READERS_LAYERS, work, &a);
    readers_wake(m.r);
    while (get(&a, &a.begun) < 2) sched_yield();
    pthread_t t;
    CHECK(pthread_create(&t, NULL, remove_source, &m) == 0);
    for (int i = 0; i < 100; i++) sched_yield();
    pthread_mutex_lock(&a.lock);
    CHECK(!m.over);
    a.left = 0;
    a.closed = false;
    pthread_mutex_unlock(&a.lock);
    pthread_join(t, NULL);
    CHECK_INT(get(&a, &a.done), 2);
    set(&a, m.r, 5, false);
    readers_close(m.r);
    CHECK_INT(a.done, 2);
}

TEST_MAIN
