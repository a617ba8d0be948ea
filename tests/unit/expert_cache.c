/* expert_cache: the right bytes whatever happens, no read twice, no wait without end. */
#include "src/expert_cache.h"

#include "src/os.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { KEYS = 60, SLOT = 4096, RECORD = 1000 };

static struct err e;
static struct mem mem;
static struct expert_cache *c;
static struct readers *readers;

/* A store of made-up records. Each key counts its fetches; closed keys wait for the gate. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool closed[KEYS];
    unsigned fetched[KEYS], under_way[KEYS];
    bool overlapped; /* one key was fetched twice at the same time */
    unsigned fail_every, count;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static unsigned char record_byte(uint32_t key, size_t i)
{
    return (unsigned char)(key * 131 + i * 7 + i / 256);
}

static enum status fetch(void *user, uint32_t key, void *dst, size_t *at, struct err *err)
{
    (void)user;
    pthread_mutex_lock(&store.lock);
    store.fetched[key]++;
    store.overlapped |= store.under_way[key]++ > 0;
    while (store.closed[key]) pthread_cond_wait(&store.opened, &store.lock);
    bool fail = store.fail_every && ++store.count % store.fail_every == 0;
    pthread_mutex_unlock(&store.lock);
    *at = key % 64;
    memset(dst, 0xee, SLOT);
    sched_yield();
    if (!fail)
        for (size_t i = 0; i < RECORD; i++) ((unsigned char *)dst)[*at + i] = record_byte(key, i);
    pthread_mutex_lock(&store.lock);
    store.under_way[key]--;
    pthread_mutex_unlock(&store.lock);
    return fail ? err_set(err, E_IO, "record %u cannot be read", key) : OK;
}

static void set_gate(uint32_t first, uint32_t end, bool closed)
{
    pthread_mutex_lock(&store.lock);
    for (uint32_t k = first; k < end; k++) store.closed[k] = closed;
    pthread_cond_broadcast(&store.opened);
    pthread_mutex_unlock(&store.lock);
}

static unsigned fetches_of(uint32_t key)
{
    pthread_mutex_lock(&store.lock);
    unsigned n = store.fetched[key];
    pthread_mutex_unlock(&store.lock);
    return n;
}

static bool overlapped(void)
{
    pthread_mutex_lock(&store.lock);
    bool o = store.overlapped;
    pthread_mutex_unlock(&store.lock);
    return o;
}

static enum status begin(size_t slots, unsigned threads)
{
    readers = NULL;
    if (threads && readers_open(&readers, threads, &e)) return e.code;
    memset(store.fetched, 0, sizeof store.fetched);
    store.overlapped = false;
    store.fail_every = store.count = 0;
    mem_init(&mem, 0);
    struct expert_cache_opts o = {.mem = &mem,
                                  .slots = slots,
                                  .slot_bytes = SLOT,
                                  .keys = KEYS,
                                  .readers = readers,
                                  .fetch = fetch};
    return expert_cache_open(&c, &o, &e);
}

static void end(void)
{
    expert_cache_close(c);
    c = NULL;
    readers_close(readers);
    mem_close(&mem);
}

static bool right(const void *data, uint32_t key)
{
    for (size_t i = 0; i < RECORD; i++)
        if (((const unsigned char *)data)[i] != record_byte(key, i)) return false;
    return true;
}

static bool use(uint32_t key)
{
    const void *data;
    if (expert_cache_get(c, key, &data, &e)) return false;
    bool ok = right(data, key);
    expert_cache_release(c, key);
    return ok;
}

static struct expert_cache_stats stats(void)
{
    struct expert_cache_stats s;
    expert_cache_stats(c, &s);
    return s;
}

/* Waits until the readers have nothing left to do for the last announcement of n new keys. */
static void wait_ahead(uint64_t n)
{
    while (stats().fetched_ahead < n) sched_yield();
}

static void shuffle(uint32_t *keys, size_t n, unsigned long long *seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = test_rand(seed) % i;
        uint32_t k = keys[i - 1];
        keys[i - 1] = keys[j];
        keys[j] = k;
    }
}

/* Sweeps over more keys than there are slots, announced in one order, half used in another, up to
 * slots - 1 of them borrowed at a time: each record is right when got and still right when given
 * back. */
static bool sweeps(size_t slots, unsigned long long *seed)
{
    uint32_t keys[KEYS];
    for (int sweep = 0; sweep < 12; sweep++) {
        expert_cache_tick(c);
        for (uint32_t i = 0; i < KEYS; i++) keys[i] = i;
        shuffle(keys, KEYS, seed);
        expert_cache_announce(c, keys, KEYS / 2);
        shuffle(keys, KEYS, seed);
        const void *held[KEYS];
        size_t begun = 0, done = 0;
        while (done < KEYS / 2) {
            bool more = begun < KEYS / 2 && begun - done < slots - 1;
            if (more && (begun == done || test_rand(seed) % 2)) {
                if (expert_cache_get(c, keys[begun], &held[begun], &e)) return false;
                if (!right(held[begun], keys[begun])) return false;
                begun++;
            } else {
                if (!right(held[done], keys[done])) return false;
                expert_cache_release(c, keys[done++]);
            }
        }
    }
    return true;
}

/* With 0, 1 and 3 readers, from two slots on. */
TEST(bytes_are_right)
{
    unsigned long long seed = 7;
    static const size_t slots[] = {2, 3, 7, 40, KEYS};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        for (unsigned n = 0; n < 4; n += n + 1) {
            CHECK_OK(begin(slots[i], n), e);
            CHECK(sweeps(slots[i], &seed));
            CHECK(!overlapped());
            end();
        }
}

static void *use_random(void *arg)
{
    unsigned long long seed = *(unsigned long long *)arg;
    static char failed[] = "failed";
    for (int i = 0; i < 400; i++) {
        struct err mine;
        const void *data;
        uint32_t key = (uint32_t)(test_rand(&seed) % KEYS);
        if (i % 50 == 0) {
            uint32_t next[8];
            for (int k = 0; k < 8; k++) next[k] = (uint32_t)(test_rand(&seed) % KEYS);
            expert_cache_announce(c, next, 8);
            expert_cache_tick(c);
        }
        enum status rc = expert_cache_get(c, key, &data, &mine);
        if (rc == E_IO && store.fail_every) continue;
        if (rc || !right(data, key)) return failed;
        sched_yield();
        if (!right(data, key)) return failed;
        expert_cache_release(c, key);
    }
    return NULL;
}

/* Many threads use and announce at once, also while every fifth read fails. */
TEST(threads)
{
    enum { THREADS = 4 };
    for (unsigned n = 0; n < 4; n += 3)
        for (unsigned fail_every = 0; fail_every < 6; fail_every += 5) {
            pthread_t t[THREADS];
            unsigned long long seeds[THREADS];
            CHECK_OK(begin(THREADS + 1, n), e);
            store.fail_every = fail_every;
            for (int i = 0; i < THREADS; i++) {
                seeds[i] = (unsigned long long)i + 100 * n;
                CHECK(pthread_create(&t[i], NULL, use_random, &seeds[i]) == 0);
            }
            bool ok = true;
            for (int i = 0; i < THREADS; i++) {
                void *failed;
                pthread_join(t[i], &failed);
                ok &= !failed;
            }
            CHECK(ok && !overlapped());
            struct expert_cache_stats s = stats();
            CHECK_INT(s.gets, 400 * THREADS);
            CHECK(s.hits < s.gets && s.fetches >= s.fetched_ahead);
            end();
        }
}

static void *use_one(void *key)
{
    return use(*(uint32_t *)key) ? key : NULL;
}

/* Two threads that ask for one key at the same time share one read. */
TEST(one_read_for_two)
{
    uint32_t key = 5;
    pthread_t t[2];
    CHECK_OK(begin(3, 0), e);
    set_gate(key, key + 1, true);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, use_one, &key) == 0);
    while (stats().gets < 2) sched_yield();
    set_gate(key, key + 1, false);
    for (int i = 0; i < 2; i++) {
        void *got;
        pthread_join(t[i], &got);
        CHECK(got == &key);
    }
    CHECK_INT(fetches_of(key), 1);
    end();
}

/* When every slot is busy a get waits, and is served when a read ends. */
TEST(waits_for_a_slot)
{
    uint32_t keys[3] = {1, 2, 3};
    pthread_t t[3];
    CHECK_OK(begin(2, 0), e);
    set_gate(1, 3, true);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&t[i], NULL, use_one, &keys[i]) == 0);
    while (stats().gets < 3) sched_yield();
    set_gate(1, 3, false);
    for (int i = 0; i < 3; i++) {
        void *got;
        pthread_join(t[i], &got);
        CHECK(got == &keys[i]);
    }
    end();
}

/* What was announced is there when asked for, fetched once, with all readers at work. */
TEST(reads_ahead)
{
    uint32_t keys[] = {9, 4, 4, 11, 30};
    CHECK_OK(begin(12, 3), e);
    CHECK(use(11));
    double by_get = readers_read_s(readers);
    CHECK(by_get > 0);
    expert_cache_announce(c, keys, 5);
    wait_ahead(3);
    CHECK(readers_read_s(readers) > by_get);
    for (int i = 0; i < 5; i++) CHECK(use(keys[i]));
    struct expert_cache_stats s = stats();
    CHECK_INT(s.gets, 6);
    CHECK_INT(s.hits, 5);
    CHECK_INT(s.fetches, 4);
    CHECK_INT(s.fetched_ahead, 3);
    CHECK_INT(s.wasted, 0);
    end();
}

/* Uses of other keys do not push out what was announced and not used yet; afterwards they may. */
TEST(announced_stay)
{
    uint32_t keys[] = {1, 2, 3, 4};
    CHECK_OK(begin(8, 2), e);
    expert_cache_announce(c, keys, 4);
    wait_ahead(4);
    for (int round = 0; round < 3; round++)
        for (uint32_t k = 10; k < 30; k++) CHECK(use(k));
    for (uint32_t k = 1; k < 5; k++) {
        CHECK(use(k));
        CHECK_INT(fetches_of(k), 1);
    }
    CHECK_INT(stats().wasted, 0);
    end();
}

/* Readers stop when all slots hold what was announced, and go on as it is used: nothing is read
 * twice. */
TEST(readers_stop_when_full)
{
    uint32_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8};
    CHECK_OK(begin(4, 3), e);
    expert_cache_announce(c, keys, 8);
    wait_ahead(4);
    for (int i = 0; i < 8; i++) CHECK(use(keys[i]));
    CHECK_INT(stats().wasted, 0);
    CHECK_INT(stats().fetches, 8);
    end();
}

/* A get that finds no other slot takes the announced record that is needed last, and that counts as
 * waste. */
TEST(get_beats_announced)
{
    uint32_t keys[] = {1, 2, 3};
    const void *data;
    CHECK_OK(begin(4, 2), e);
    expert_cache_announce(c, keys, 3);
    wait_ahead(3);
    CHECK_OK(expert_cache_get(c, 10, &data, &e), e);
    CHECK(use(11));
    CHECK_INT(stats().wasted, 1);
    CHECK(use(1) && use(2));
    CHECK_INT(fetches_of(1), 1);
    CHECK_INT(fetches_of(2), 1);
    expert_cache_release(c, 10);
    end();
}

/* Readers leave one slot to a get for something else, while their own reads do not end. */
TEST(readers_leave_a_slot)
{
    uint32_t keys[] = {1, 2, 3, 4, 5};
    const void *data;
    CHECK_OK(begin(4, 3), e);
    set_gate(1, 6, true);
    CHECK_OK(expert_cache_get(c, 10, &data, &e), e);
    expert_cache_announce(c, keys, 5);
    while (stats().fetches < 3) sched_yield();
    for (uint32_t k = 20; k < 40; k++) CHECK(use(k));
    CHECK_INT(stats().fetches, 23);
    set_gate(1, 6, false);
    expert_cache_release(c, 10);
    for (uint32_t k = 1; k < 6; k++) CHECK(use(k));
    end();
}

/* A new announcement replaces what has not begun of the old one. */
TEST(announcement_replaced)
{
    uint32_t old[] = {1, 2, 3, 4}, new[] = {20, 21};
    CHECK_OK(begin(10, 1), e);
    set_gate(1, 2, true);
    expert_cache_announce(c, old, 4);
    while (fetches_of(1) == 0) sched_yield();
    expert_cache_announce(c, new, 2);
    set_gate(1, 2, false);
    wait_ahead(3);
    CHECK(use(20) && use(21));
    for (uint32_t k = 2; k < 5; k++) CHECK_INT(fetches_of(k), 0);
    CHECK_INT(stats().hits, 2);
    end();
}

/* A read ahead that fails is nobody's error: the get reads again. A get's own failure is told, and
 * the key may be asked for again. */
TEST(failures)
{
    uint32_t key = 8;
    const void *data = &key;
    CHECK_OK(begin(4, 1), e);
    store.fail_every = 1;
    expert_cache_announce(c, &key, 1);
    while (stats().fetches < 1) sched_yield();
    CHECK_ERR(expert_cache_get(c, key, &data, &e), E_IO, e, "record 8");
    CHECK(data == NULL);
    pthread_mutex_lock(&store.lock);
    store.fail_every = 0;
    pthread_mutex_unlock(&store.lock);
    CHECK(use(key));
    CHECK_INT(stats().fetched_ahead, 0);
    CHECK_INT(stats().hits, 0);
    end();
}

/* In cyclic use with room for half, what every sweep uses stays; recency would lose it each time.
 */
TEST(hot_records_stay)
{
    CHECK_OK(begin(20, 0), e);
    uint32_t cold = 10;
    for (int sweep = 0; sweep < 10; sweep++) {
        expert_cache_tick(c);
        for (uint32_t k = 0; k < 10; k++) CHECK(use(k));
        for (int i = 0; i < 20; i++, cold = cold + 1 < KEYS ? cold + 1 : 10) CHECK(use(cold));
    }
    unsigned refetched = 0;
    for (uint32_t k = 0; k < 10; k++) refetched += fetches_of(k) - 1;
    CHECK(refetched <= 2);
    end();
}

/* The budget is respected, and every failed allocation leaves nothing behind. */
TEST(allocations)
{
    struct expert_cache_opts o = {
        .mem = &mem, .slots = 10, .slot_bytes = 5000, .keys = KEYS, .fetch = fetch};
    CHECK_OK(readers_open(&o.readers, 2, &e), e);
    mem_init(&mem, 10 * 8192);
    CHECK_ERR(expert_cache_open(&c, &o, &e), E_BUDGET, e, "expert cache");
    mem_close(&mem);
    mem_init(&mem, 0);
    o.slots = SIZE_MAX / 4096;
    CHECK_ERR(expert_cache_open(&c, &o, &e), E_BUDGET, e, "slots of 5000 bytes");
    mem_close(&mem);
    o.slots = 10;
    enum status rc = E_NOMEM;
    int n = 0;
    for (; rc; n++) {
        mem_init(&mem, 0);
        mem.fail_at = n;
        rc = expert_cache_open(&c, &o, &e);
        CHECK(rc == OK || rc == E_NOMEM);
        expert_cache_close(c);
        mem_close(&mem);
    }
    readers_close(o.readers);
    CHECK(n > 5);
}

TEST_MAIN
