/* spool: pictures come back bit for bit or not at all. */
#include "jobs/spool.h"
#include "tests/lib/test.h"

#include <unistd.h>

#define WIDTH 6

static struct mem mem;

static const char *name(int i)
{
    static char text[4][80];
    char *t = text[i % 4];
    snprintf(t, sizeof text[0], "%064x", (unsigned)i);
    return t;
}

static struct spool *open_spool(const char *dir, const char *scope, uint64_t limit)
{
    struct err e;
    struct spool *s = NULL;
    struct spool_opts o = {.dir = dir, .scope = scope, .limit_bytes = limit, .width = WIDTH};
    if (spool_open(&s, &o, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return s;
}

static void put(struct spool *s, int i, unsigned rows)
{
    float x[8 * WIDTH];
    struct picture_info info = {.width = 30, .height = 20, .orientation = 6, .rows = rows};
    info.n_warnings = 1;
    snprintf(info.warnings[0], sizeof info.warnings[0], "picture %d", i);
    for (unsigned k = 0; k < rows * WIDTH; k++) x[k] = (float)i + (float)k / 3;
    spool_put(s, name(i), &info, x);
}

/* Is picture i there, whole? */
static bool has(struct spool *s, int i, unsigned rows)
{
    struct picture_info info;
    float *x;
    struct err e;
    char warning[80];
    if (spool_get(s, name(i), &mem, &info, &x, &e) || !x) return false;
    snprintf(warning, sizeof warning, "picture %d", i);
    bool same = info.rows == rows && info.width == 30 && info.orientation == 6 &&
                info.n_warnings == 1 && !strcmp(info.warnings[0], warning);
    for (unsigned k = 0; same && k < rows * WIDTH; k++) same = x[k] == (float)i + (float)k / 3;
    mem_free(&mem, x);
    return same;
}

/* What one run kept another finds, under the same scope alone; at last the folder goes. */
TEST(pictures_come_back)
{
    mem_init(&mem, 0);
    const char *dir = test_path("back.images");
    struct spool *s = open_spool(dir, "model a", 1 << 20);
    put(s, 1, 8);
    put(s, 2, 3);
    CHECK(has(s, 1, 8) && has(s, 2, 3) && !has(s, 3, 1));
    spool_close(s, false);
    s = open_spool(dir, "model a", 1 << 20);
    CHECK(has(s, 1, 8) && has(s, 2, 3));
    spool_close(s, false);
    s = open_spool(dir, "model b", 1 << 20);
    CHECK(!has(s, 1, 8));
    put(s, 1, 8);
    CHECK(has(s, 1, 8));
    spool_close(s, true);
    CHECK(access(dir, F_OK) != 0);
    mem_close(&mem);
}

/* Each byte changed and each shorter length is noticed. */
TEST(damage_is_noticed)
{
    mem_init(&mem, 0);
    const char *dir = test_path("damage.images");
    char path[4096];
    size_t len;
    struct spool *s = open_spool(dir, "m", 1 << 20);
    put(s, 5, 2);
    spool_close(s, false);
    snprintf(path, sizeof path, "%s/%s", dir, name(5));
    char *whole = test_read(path, &len);
    for (size_t at = 0; at < len; at += 7) {
        char was = whole[at];
        whole[at] ^= 0x10;
        test_write(path, whole, len);
        whole[at] = was;
        s = open_spool(dir, "m", 1 << 20);
        if (has(s, 5, 2)) FAIL("byte %zu changed, and nobody noticed", at);
        spool_close(s, false);
        test_write(path, whole, at);
        s = open_spool(dir, "m", 1 << 20);
        if (has(s, 5, 2)) FAIL("cut to %zu bytes, and nobody noticed", at);
        spool_close(s, false);
    }
    test_write(path, whole, len);
    s = open_spool(dir, "m", 1 << 20);
    CHECK(has(s, 5, 2));
    spool_close(s, true);
    free(whole);
    mem_close(&mem);
}

/* The limit holds: the oldest go, what is too large alone is not kept. */
TEST(the_folder_is_bounded)
{
    mem_init(&mem, 0);
    const char *dir = test_path("bounded.images");
    struct spool *s = open_spool(dir, "m", 1 << 20);
    struct spool_stats t;
    put(s, 1, 8);
    spool_stats(s, &t);
    uint64_t one = t.bytes;
    spool_close(s, true);
    s = open_spool(dir, "m", 3 * one);
    for (int i = 1; i <= 5; i++) put(s, i, 8);
    spool_stats(s, &t);
    CHECK(t.bytes <= 3 * one);
    CHECK(!has(s, 1, 8) && !has(s, 2, 8) && has(s, 3, 8) && has(s, 5, 8));
    spool_close(s, true);
    s = open_spool(dir, "m", one - 1);
    put(s, 1, 8);
    CHECK(!has(s, 1, 8));
    spool_close(s, true);
    mem_close(&mem);
}

TEST_MAIN
