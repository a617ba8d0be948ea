/* The whole store, from files to borrowed records, with the n-th read and the n-th allocation
 * failing in turn: an error or the right bytes, never a leak, never a wait without end. */
#include "src/expert_cache.h"
#include "src/expert_io.h"
#include "src/os.h"
#include "tests/lib/expert_file.h"
#include "tests/lib/test.h"

enum { EXPERTS = 12, IN = 64, WIDTH = 32 };

static struct err e;

static const char *model(const char *name, const struct expert_form *form)
{
    const char *dir = st_dir(name);
    struct st_file f = {0};
    for (unsigned i = 0; i < EXPERTS; i++) expert_file_add(&f, form, 0, (i * 7) % EXPERTS);
    st_write(&f, dir, "model.safetensors", 0);
    return dir;
}

static bool right(const struct expert_io *x, unsigned expert, const void *data)
{
    struct expert_weights w;
    expert_weights_at(x, expert_key(x, 0, expert), data, &w);
    size_t n = IN * WIDTH;
    if (w.w1.type == DT_BF16)
        return expert_file_same(w.w1.w, 2 * n, 0, expert, "w1.weight") &&
               expert_file_same(w.w2.w, 2 * n, 0, expert, "w2.weight") &&
               expert_file_same(w.w3.w, 2 * n, 0, expert, "w3.weight");
    return expert_file_same(w.w1.w, n / 2, 0, expert, "w1.weight_packed") &&
           expert_file_same(w.w2.scale, n / 32, 0, expert, "w2.weight_scale") &&
           expert_file_same(w.w3.w, n / 2, 0, expert, "w3.weight_packed");
}

/* Three sweeps over all experts with room for a third of them. Wrong bytes: E_INTERNAL. */
static enum status sweep(struct expert_io *x, struct expert_cache *c)
{
    uint32_t keys[EXPERTS];
    enum status rc = OK;
    for (uint32_t i = 0; i < EXPERTS; i++) keys[i] = i;
    for (int n = 0; n < 3 && !rc; n++) {
        expert_cache_tick(c);
        expert_cache_announce(c, keys, EXPERTS);
        for (unsigned i = 0; i < EXPERTS && !rc; i++) {
            const void *data;
            rc = expert_cache_get(c, keys[i], &data, &e);
            if (rc) break;
            if (!right(x, i, data)) rc = E_INTERNAL;
            expert_cache_release(c, keys[i]);
        }
    }
    return rc;
}

static enum status run(const char *dir, bool direct, unsigned threads, int64_t fail_alloc)
{
    struct mem mem;
    struct safetensors *files = NULL;
    struct expert_io *x = NULL;
    struct expert_cache *c = NULL;
    struct readers *readers = NULL;
    mem_init(&mem, 0);
    mem.fail_at = fail_alloc;
    enum status rc = safetensors_open(&files, dir, direct, &e);
    if (rc) goto out;
    struct expert_io_opts io = {&mem, files, EXPERT_NAME, (uint8_t[]){1}, 1, EXPERTS, IN, WIDTH};
    rc = expert_io_open(&x, &io, &e);
    if (rc) goto out;
    if (threads) rc = readers_open(&readers, threads, &e);
    if (rc) goto out;
    struct expert_cache_opts o = {
        &mem, EXPERTS / 3, expert_slot_bytes(x), EXPERTS, readers, expert_io_fetch, x};
    rc = expert_cache_open(&c, &o, &e);
    if (rc) goto out;
    rc = sweep(x, c);
out:
    expert_cache_close(c);
    readers_close(readers);
    expert_io_close(x);
    safetensors_close(files);
    mem_close(&mem);
    return rc;
}

static const struct expert_form forms[] = {{DT_MXFP4, IN, WIDTH, "123", 0},
                                           {DT_BF16, IN, WIDTH, "312", 3}};

/* Every read from the n-th on fails: the error is the machine's, and says so. */
TEST(nth_read)
{
    const char *dirs[] = {model("reads0", &forms[0]), model("reads1", &forms[1])};
    for (int i = 0; i < 8; i++) {
        int n = 0;
        enum status rc = E_IO;
        for (; rc; n++) {
            os_fault(OS_FAULT_READ, n, true);
            rc = run(dirs[i & 1], i & 2, i & 4 ? 2 : 0, -1);
            os_fault(OS_FAULT_READ, -1, false);
            if (rc) CHECK_ERR(rc, E_IO, e, "model.safetensors");
        }
        CHECK(n > EXPERTS);
    }
}

/* One failed read in the middle of others changes nothing. */
TEST(single_read_failure)
{
    const char *dir = model("single", &forms[0]);
    for (int n = 0; n < 30; n++) {
        os_fault(OS_FAULT_READ, n, false);
        enum status rc = run(dir, n & 1, 2, -1);
        os_fault(OS_FAULT_READ, -1, false);
        CHECK_OK(rc, e);
    }
}

/* The n-th allocation fails. */
TEST(nth_allocation)
{
    const char *dir = model("allocations", &forms[0]);
    int n = 0;
    enum status rc = E_NOMEM;
    for (; rc; n++) {
        rc = run(dir, false, 2, n);
        if (rc) CHECK_ERR(rc, E_NOMEM, e, "expert");
    }
    CHECK(n > 8);
}

TEST_MAIN
