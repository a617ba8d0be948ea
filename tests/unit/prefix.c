/* prefix: which states are kept, found and given up. That a state copied from here equals one that
 * is computed is tested in engine.c. */
#include "src/prefix.h"
#include "tests/lib/test.h"

#define MODEL "tests/golden/k3_b1"

static struct mem mem;
static struct config config;

static struct prefix_store *open_store(size_t states, size_t rows)
{
    struct err e;
    struct prefix_store *p = NULL;
    mem_init(&mem, 0);
    if (config_load(&config, MODEL, &e) ||
        prefix_open(&p, &mem, &config, states * state_bytes(&config, rows), &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    return p;
}

static struct prefix_key key_of(const uint64_t *rows, size_t n)
{
    struct prefix_key k = prefix_empty();
    for (size_t i = 0; i < n; i++) k = prefix_step(k, rows[i]);
    return k;
}

/* Keeps rows[0..n) with a mark in its state. */
static bool keep(struct prefix_store *p, const uint64_t *rows, size_t n, float mark)
{
    struct state s;
    if (!prefix_reserve(p, key_of(rows, n), n, &s)) return false;
    s.kda[0] = s.conv[0] = state_latent(&s, &config, 0)[0] = mark;
    prefix_settle(p);
    return true;
}

/* The mark and length of what is found for rows[0..n). */
static size_t find(struct prefix_store *p, const uint64_t *rows, size_t n, float *mark)
{
    struct state s;
    struct err e;
    if (state_init(&s, &mem, &config, 64, &e)) return SIZE_MAX;
    size_t length = prefix_find(p, rows, n), got = prefix_restore(p, rows, n, &s);
    *mark = s.kda[0];
    bool whole = !got || (s.conv[0] == *mark && state_latent(&s, &config, 0)[0] == *mark);
    state_free(&s, &mem);
    return length == got && whole ? got : SIZE_MAX;
}

/* The longest kept beginning is found, by its rows alone; others' are not. */
TEST(longest_beginning)
{
    struct prefix_store *p = open_store(8, 64);
    uint64_t rows[20], other[20];
    float mark;
    for (uint64_t i = 0; i < 20; i++) rows[i] = other[i] = i + 1;
    other[6] = 1000;
    CHECK_INT(find(p, rows, 20, &mark), 0);
    CHECK(keep(p, rows, 5, 1) && keep(p, rows, 12, 2));
    CHECK_INT(find(p, rows, 20, &mark), 12);
    CHECK(mark == 2);
    CHECK_INT(find(p, rows, 11, &mark), 5);
    CHECK(mark == 1);
    CHECK_INT(find(p, other, 20, &mark), 5);
    CHECK_INT(find(p, rows + 1, 19, &mark), 0);
    struct prefix_stats t;
    prefix_stats(p, &t);
    CHECK_INT(t.kept, 2);
    CHECK_INT(t.restored, 3);
    CHECK_INT(t.rows_saved, 22);
    prefix_close(p);
    mem_close(&mem);
}

/* Keys tell lengths, order and single rows apart. */
TEST(keys_differ)
{
    const uint64_t a[] = {1, 2, 3}, b[] = {1, 3, 2}, c[] = {1, 2, 4}, zero[] = {0, 0, 0};
    struct prefix_key k[] = {key_of(a, 3), key_of(b, 3),    key_of(c, 3),
                             key_of(a, 2), key_of(zero, 1), key_of(zero, 2)};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < i; j++) CHECK(k[i].a != k[j].a && k[i].b != k[j].b);
}

/* Beyond the limit the one used longest ago goes; what was restored counts as used; nothing larger
 * than the limit is kept. */
TEST(oldest_goes_first)
{
    struct prefix_store *p = open_store(2, 8);
    uint64_t a[8], b[8], c[8], big[64];
    float mark;
    for (uint64_t i = 0; i < 8; i++) {
        a[i] = 100 + i;
        b[i] = 200 + i;
        c[i] = 300 + i;
    }
    for (uint64_t i = 0; i < 64; i++) big[i] = 400 + i;
    CHECK(keep(p, a, 8, 1) && keep(p, b, 8, 2));
    CHECK_INT(find(p, a, 8, &mark), 8);
    CHECK(keep(p, c, 8, 3));
    CHECK_INT(find(p, b, 8, &mark), 0);
    CHECK_INT(find(p, a, 8, &mark), 8);
    CHECK_INT(find(p, c, 8, &mark), 8);
    struct prefix_stats t;
    prefix_stats(p, &t);
    CHECK_INT(t.dropped, 1);
    CHECK_INT(t.bytes, 2 * state_bytes(&config, 8));
    CHECK(!keep(p, c, 8, 9)); /* known already: stays as it is */
    CHECK_INT(find(p, c, 8, &mark), 8);
    CHECK(mark == 3);
    CHECK(prefix_shrink(p) && prefix_shrink(p) && !prefix_shrink(p));
    CHECK_INT(find(p, a, 8, &mark), 0);
    prefix_close(p);
    p = open_store(1, 1);
    CHECK(!keep(p, big, 64, 1));
    prefix_close(p);
    mem_close(&mem);
}

/* Without memory a state is not kept, and nothing else happens. */
TEST(no_memory)
{
    struct prefix_store *p = open_store(4, 8);
    const uint64_t rows[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float mark;
    mem.fail_at = 1;
    CHECK(!keep(p, rows, 8, 1));
    mem.fail_at = -1;
    CHECK_INT(find(p, rows, 8, &mark), 0);
    CHECK(keep(p, rows, 8, 1));
    prefix_close(p);
    mem_close(&mem);
}

TEST_MAIN
