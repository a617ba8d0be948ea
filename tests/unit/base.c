/* err, mem, os, pool. */
#include "src/mem.h"
#include "src/os.h"
#include "src/pool.h"
#include "tests/lib/test.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

/* A message stays one line, whatever is put in it, and gains context in front. */
TEST(message_is_one_line)
{
    struct err e;
    CHECK_INT(err_set(&e, E_MODEL, "a\nb %d", 7), E_MODEL);
    err_wrap(&e, "file %s", "x");
    CHECK_STR(e.text, "file x: a b 7");
}

/* One that is too long ends with a whole character, wherever it is cut. */
TEST(message_is_whole_utf8)
{
    static const char *const long_ones[] = {"é", "€", "😀"};
    for (int k = 0; k < 3; k++)
        for (int before = 0; before < 4; before++) {
            struct err e;
            char text[2 * ERR_TEXT_BYTES] = "xxx";
            size_t n = (size_t)before, of = strlen(long_ones[k]);
            while (n < ERR_TEXT_BYTES + 8) {
                memcpy(text + n, long_ones[k], of);
                n += of;
            }
            err_set(&e, E_MODEL, "%s", text);
            size_t len = strlen(e.text);
            CHECK_INT((len - (size_t)before) % of, 0);
            CHECK(len + of >= ERR_TEXT_BYTES);
            err_wrap(&e, "xy");
            CHECK_INT((strlen(e.text) - 4 - (size_t)before) % of, 0);
        }
}

/* Every code has a name that leads back to it. */
TEST(status_names_are_unique)
{
    for (int i = 0; i < STATUS_COUNT; i++) CHECK_INT(status_by_name(status_name(i)), i);
    CHECK_INT(status_by_name("no such"), STATUS_COUNT);
}

/* The budget refuses what does not fit and names it; freeing gives everything back. */
TEST(budget_refuses_and_returns)
{
    struct mem m;
    struct err e;
    void *a, *b;
    mem_init(&m, 10000);
    CHECK_OK(mem_alloc(&m, &a, 5000, "first", &e), e);
    CHECK_INT((uintptr_t)a % 64, 0);
    CHECK_ERR(mem_alloc(&m, &b, 6000, "second", &e), E_BUDGET, e, "second");
    CHECK(b == NULL);
    mem_free(&m, a);
    CHECK_INT(m.used, 0);
    CHECK(m.peak >= 5000);
    CHECK_ERR(mem_array(&m, &b, SIZE_MAX / 2, 16, "huge", &e), E_NOMEM, e, "huge");
    mem_close(&m);
}

/* The fault switch fails exactly the n-th allocation. */
TEST(fault_switch)
{
    struct mem m;
    struct err e;
    void *a, *b, *c;
    mem_init(&m, 0);
    m.fail_at = 1;
    CHECK_OK(mem_alloc(&m, &a, 10, "a", &e), e);
    CHECK_ERR(mem_alloc(&m, &b, 10, "b", &e), E_NOMEM, e, "b");
    CHECK_OK(mem_alloc(&m, &c, 10, "c", &e), e);
    mem_free(&m, a);
    mem_free(&m, c);
    mem_close(&m);
}

/* A read past the end says where the file ends. */
TEST(short_read_is_told)
{
    struct os_file f;
    struct err e;
    char b[16];
    const char *path = test_path("short");
    test_write(path, "0123456789", 10);
    CHECK_OK(os_open(&f, path, false, &e), e);
    CHECK_OK(os_read_at(&f, 2, b, 8, path, &e), e);
    CHECK(!memcmp(b, "23456789", 8));
    CHECK_ERR(os_read_at(&f, 2, b, 9, path, &e), E_IO, e, "ends at byte 10");
    os_close(&f);
    CHECK_ERR(os_open(&f, test_dir(), false, &e), E_IO, e, "not a regular file");
}

/* A failed write or sync leaves the old file and no temporary one. */
TEST(publish_is_all_or_nothing)
{
    struct os_publish p;
    struct err e;
    const char *path = test_path("out");
    CHECK_OK(os_publish_begin(&p, path, &e), e);
    os_publish_write(&p, "old", 3);
    CHECK_OK(os_publish_commit(&p, &e), e);
    for (int kind = OS_FAULT_WRITE; kind <= OS_FAULT_SYNC; kind++) {
        CHECK_OK(os_publish_begin(&p, path, &e), e);
        char tmp[512];
        snprintf(tmp, sizeof tmp, "%s", p.tmp);
        os_fault(kind, 0, false);
        os_publish_write(&p, "new", 3);
        CHECK(os_publish_commit(&p, &e) != OK);
        struct stat st;
        CHECK(stat(tmp, &st) != 0);
        char *now = test_read(path, NULL);
        CHECK_STR(now, "old");
        free(now);
    }
}

/* Only regular files are replaced, and a link stays one, also when what it names is not there yet.
 */
TEST(publish_replaces_files_only)
{
    struct os_publish p;
    struct err e;
    struct stat st;
    const char *pipe = test_path("pipe"), *link = test_path("link"), *file = test_path("linked");
    CHECK(mkfifo(pipe, 0600) == 0);
    CHECK_ERR(os_publish_begin(&p, pipe, &e), E_USAGE, e, "pipe is a pipe; an output can only");
    CHECK_ERR(os_publish_begin(&p, test_dir(), &e), E_USAGE, e, "is a folder; an output can only");
    CHECK_ERR(os_publish_begin(&p, "", &e), E_USAGE, e, "without a name");
    CHECK(stat(pipe, &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(symlink("linked", link) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(os_publish_begin(&p, link, &e), e);
        os_publish_write(&p, i ? "1" : "0", 1);
        CHECK_OK(os_publish_commit(&p, &e), e);
        CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
        char *now = test_read(file, NULL);
        CHECK_STR(now, i ? "1" : "0");
        free(now);
    }
    CHECK(os_same_file(link, file) && !os_same_file(link, pipe));
}

/* What was synced can be read before it is published; a failed sync is told, and again at the end.
 */
TEST(publish_sync)
{
    struct os_publish p;
    struct err e;
    const char *path = test_path("synced");
    CHECK_OK(os_publish_begin(&p, path, &e), e);
    os_publish_write(&p, "abc", 3);
    CHECK_OK(os_publish_sync(&p, &e), e);
    char *now = test_read(p.tmp, NULL);
    CHECK_STR(now, "abc");
    free(now);
    CHECK(!os_exists(path));
    os_fault(OS_FAULT_SYNC, 0, false);
    CHECK_ERR(os_publish_sync(&p, &e), E_IO, e, "cannot sync");
    CHECK_ERR(os_publish_commit(&p, &e), E_IO, e, "cannot sync");
    CHECK(!os_exists(path));
}

/* A folder is made once, in a folder that is there, and can be locked like a file. */
TEST(folders)
{
    struct err e;
    const char *path = test_path("folder");
    int one, two;
    uint64_t bytes;
    CHECK_OK(os_make_folder(path, &e), e);
    CHECK_OK(os_make_folder(path, &e), e);
    CHECK_ERR(os_make_folder(test_path("none/folder"), &e), E_IO, e, "cannot make folder");
    test_write(test_path("file"), "", 0);
    CHECK_ERR(os_make_folder(test_path("file"), &e), E_IO, e, "exists");
    CHECK_OK(os_lock(&one, path, false, &e), e);
    CHECK_ERR(os_lock(&two, path, false, &e), E_LOCKED, e, "another process");
    os_unlock(&one);
    CHECK_OK(os_lock(&two, path, false, &e), e);
    os_unlock(&two);
    CHECK_OK(os_free_bytes(path, &bytes, &e), e);
    CHECK(bytes > 0);
    CHECK_ERR(os_free_bytes(test_path("none"), &bytes, &e), E_IO, e, "free space");
}

static atomic_int sum;
static void add_task(void *ctx, size_t task, unsigned thread)
{
    (void)ctx;
    (void)thread;
    atomic_fetch_add(&sum, (int)task);
}

/* Every task runs exactly once, for any number of threads and tasks, again and again. */
TEST(pool_runs_each_task_once)
{
    struct err e;
    for (unsigned threads = 1; threads <= 4; threads++) {
        struct pool *p;
        CHECK_OK(pool_open(&p, threads, &e), e);
        for (int n = 0; n < 200; n++) {
            atomic_store(&sum, 0);
            pool_run(p, (size_t)n, add_task, NULL);
            CHECK_INT(atomic_load(&sum), n * (n - 1) / 2);
        }
        pool_close(p);
    }
}

static void slow_task(void *ctx, size_t task, unsigned thread)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    if (task % 2) nanosleep(&nap, NULL);
    add_task(ctx, task, thread);
}

/* Threads that went to sleep, for want of work or waiting for the others, are woken. */
TEST(pool_wakes_sleepers)
{
    struct err e;
    struct pool *p;
    const struct timespec nap = {.tv_nsec = 2000000};
    CHECK_OK(pool_open(&p, 2, &e), e);
    for (int n = 0; n < 20; n++) {
        atomic_store(&sum, 0);
        nanosleep(&nap, NULL);
        pool_run(p, 3, slow_task, NULL);
        CHECK_INT(atomic_load(&sum), 3);
    }
    pool_close(p);
}

TEST_MAIN
