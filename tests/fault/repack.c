/* repack with the n-th write, sync, read and allocation failing in turn, and with too little room:
 * the error is the storage's, no file stands under its name but whole ones, and the next run ends
 * the work. */
#include "src/os.h"
#include "tests/lib/repack_model.h"
#include "tests/lib/st_file.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <sys/statvfs.h>

static struct err e;
static struct repack_state state;
static uint64_t free_blocks = 1 << 20;

/* In place of the system's: as many blocks as a case says. */
int statvfs(const char *path, struct statvfs *fs)
{
    (void)path;
    *fs = (struct statvfs){.f_frsize = 4096, .f_bavail = free_blocks};
    return 0;
}

static const char *whole; /* what a run without faults writes */

/* Every file is in `whole` too, with the same bytes; *n: how many. */
static bool only_whole_files(const char *dir, int *n)
{
    char path[512], other[512];
    bool good = true;
    DIR *d = opendir(dir);
    *n = 0;
    for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
        if (f->d_name[0] == '.' || !strcmp(f->d_name, "docs")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        snprintf(other, sizeof other, "%s/%s", whole, f->d_name);
        size_t a, b;
        char *x = test_read(path, &a), *y = os_exists(other) ? test_read(other, &b) : NULL;
        good &= x && y && a == b && memcmp(x, y, a) == 0;
        free(x);
        free(y);
        ++*n;
    }
    if (d) closedir(d);
    return good;
}

static const char *model(const char *name)
{
    const char *from = repack_model(name);
    char path[64];
    snprintf(path, sizeof path, "%s-whole", name);
    whole = test_path(path);
    return repack_model_run(from, whole, 0, &state, &e) ? NULL : from;
}

/* Steps of `kind` from the n-th on fail, for n up to what a run comes to; beyond the first 30,
 * which see each kind of file, every 17th. */
static void fail_in_turn(const char *name, enum os_fault_kind kind, int at_least,
                         const char *needle)
{
    const char *from = model(name);
    enum status rc = E_IO;
    int n = 0, files = 0;
    CHECK(from);
    for (; rc; n += n < 20 ? 1 : 17) {
        char path[64];
        snprintf(path, sizeof path, "%s-%d", name, n);
        const char *to = test_path(path);
        os_fault(kind, n, true);
        rc = repack_model_run(from, to, 0, &state, &e);
        os_fault(kind, -1, false);
        if (!rc) break;
        if (rc != E_IO && rc != E_NOSPACE) FAIL("%d: %s", n, e.text);
        CHECK_HAS(e.text, needle);
        if (!os_exists(to)) continue;
        CHECK(only_whole_files(to, &files));
        CHECK(files < 6);
        if (n % 5) continue;
        CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
        CHECK(repack_model_same_files(whole, to));
    }
    CHECK(n > at_least);
}

/* A full disk, found by writing. */
TEST(nth_write)
{
    fail_in_turn("write", OS_FAULT_WRITE, 100, "No space");
}

/* A disk that fails when it is synced. */
TEST(nth_sync)
{
    fail_in_turn("sync", OS_FAULT_SYNC, 10, "cannot sync");
}

/* A model that cannot be read, or a new file that cannot be read back. */
TEST(nth_read)
{
    fail_in_turn("read", OS_FAULT_READ, 200, "cannot read");
}

/* The n-th allocation fails. */
TEST(nth_allocation)
{
    const char *from = model("allocation"), *to = test_path("allocation-new");
    enum status rc = E_NOMEM;
    int n = 0;
    CHECK(from);
    for (; rc; n++) {
        struct mem mem;
        mem_init(&mem, 0);
        mem.fail_at = n;
        struct repack_opts o = {.mem = &mem, .from = from, .to = to};
        rc = repack(&o, &state, &e);
        mem_close(&mem);
        if (rc) CHECK_ERR(rc, E_NOMEM, e, "no memory");
    }
    CHECK(n > 4);
    CHECK(repack_model_same_files(whole, to));
}

/* Too little room is told before anything is written, in figures; what is there needs none. */
TEST(no_room)
{
    const char *from = model("room"), *to = test_path("room-new");
    int files;
    CHECK(from);
    free_blocks = 100;
    CHECK_ERR(repack_model_run(from, to, 0, &state, &e), E_NOSPACE, e,
              "needs 638976 bytes more, its disk has 409600 free");
    CHECK(only_whole_files(to, &files));
    CHECK_INT(files, 0);
    free_blocks = 156;
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
    free_blocks = 0;
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
    free_blocks = 1 << 20;
}

TEST_MAIN
