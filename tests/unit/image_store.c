/* image_store: encoded pictures shared, bounded, waited for. */
#include "jobs/image_store.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static struct mem mem;

static struct image_rows *put(struct image_store *s, const char *sha, size_t bytes)
{
    struct err e;
    struct image_rows *r = NULL;
    struct picture_info info = {.rows = 1};
    float *rows = NULL;
    if (mem_alloc(&mem, &rows, bytes, "rows", &e) ||
        image_store_put(s, &r, sha, &info, rows, bytes, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    return r;
}

/* What is given back stays until room is needed, the oldest goes first; what is borrowed stays. */
TEST(oldest_goes_first)
{
    struct err e;
    struct image_store *s;
    char sha[3][65] = {"a", "b", "c"};
    mem_init(&mem, 0);
    CHECK_OK(image_store_open(&s, &mem, 300, &e), e);
    struct image_rows *a = put(s, sha[0], 100), *b = put(s, sha[1], 100), *c = put(s, sha[2], 100);
    image_store_release(s, b);
    image_store_release(s, c);
    CHECK(image_store_get(s, "b") == b);
    image_store_release(s, b);
    image_store_room(s, 100, 0);
    CHECK(image_store_get(s, "c") == NULL);
    CHECK(image_store_get(s, "b") == b);
    CHECK(image_store_get(s, "a") == a);
    image_store_release(s, a);
    image_store_release(s, a);
    image_store_release(s, b);
    image_store_close(s);
    mem_close(&mem);
}

struct waiter {
    struct image_store *store;
    size_t own;
    atomic_int done;
};

static void *wait_for_room(void *arg)
{
    struct waiter *w = arg;
    image_store_room(w->store, 100, w->own);
    atomic_store(&w->done, 1);
    return NULL;
}

/* Whoever needs room waits for what others borrow, never for what it borrows itself; waking ends
 * all waiting. */
TEST(waits_for_others_only)
{
    struct err e;
    struct image_store *s;
    char sha[2][65] = {"a", "b"};
    pthread_t t;
    mem_init(&mem, 0);
    CHECK_OK(image_store_open(&s, &mem, 150, &e), e);
    struct image_rows *a = put(s, sha[0], 100);
    image_store_room(s, 100, 100);
    struct waiter w = {.store = s};
    CHECK(pthread_create(&t, NULL, wait_for_room, &w) == 0);
    usleep(20000);
    CHECK_INT(atomic_load(&w.done), 0);
    image_store_release(s, a);
    pthread_join(t, NULL);
    CHECK_INT(atomic_load(&w.done), 1);
    struct image_rows *b = put(s, sha[1], 200);
    struct waiter again = {.store = s};
    CHECK(pthread_create(&t, NULL, wait_for_room, &again) == 0);
    image_store_wake(s);
    pthread_join(t, NULL);
    image_store_release(s, b);
    image_store_close(s);
    mem_close(&mem);
}

/* Relief drops what nobody borrows; with nothing to drop and nobody to wait for there is none. */
TEST(relief)
{
    struct err e;
    struct image_store *s;
    char sha[2][65] = {"a", "b"};
    mem_init(&mem, 0);
    CHECK_OK(image_store_open(&s, &mem, 1000, &e), e);
    struct image_rows *a = put(s, sha[0], 100), *b = put(s, sha[1], 100);
    image_store_release(s, b);
    CHECK(image_store_relieve(s, 100));
    CHECK(image_store_get(s, "b") == NULL);
    CHECK(!image_store_relieve(s, 100));
    image_store_release(s, a);
    image_store_close(s);
    mem_close(&mem);
}

TEST_MAIN
