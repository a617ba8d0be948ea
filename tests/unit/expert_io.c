/* expert_io: every layout of an expert in a file gives the same three matrices. */
#include "src/expert_io.h"

#include "src/os.h"
#include "tests/lib/expert_file.h"
#include "tests/lib/test.h"

#include <unistd.h>

enum { LAYERS = 3, EXPERTS = 4, IN = 64, WIDTH = 96 };

static struct err e;
static struct mem mem;
static struct safetensors *files;
static struct expert_io *x;
static char *slot;

static enum status open_dir(const char *dir, bool direct)
{
    static const uint8_t is_moe[LAYERS] = {0, 1, 1};
    mem_init(&mem, 0);
    enum status rc = safetensors_open(&files, dir, direct, &e);
    if (rc) return rc;
    struct expert_io_opts o = {.mem = &mem,
                               .files = files,
                               .name_format = EXPERT_NAME,
                               .is_moe = is_moe,
                               .layers = LAYERS,
                               .experts = EXPERTS,
                               .in = IN,
                               .width = WIDTH};
    rc = expert_io_open(&x, &o, &e);
    if (!rc) rc = mem_alloc_aligned(&mem, &slot, expert_slot_bytes(x), OS_DIRECT_ALIGN, "slot", &e);
    return rc;
}

static void close_dir(void)
{
    mem_free(&mem, slot);
    slot = NULL;
    expert_io_close(x);
    x = NULL;
    safetensors_close(files);
    mem_close(&mem);
}

/* Both layers' experts, the later ones first. */
static void write_model(const char *dir, const struct expert_form forms[2], size_t cut)
{
    struct st_file f = {0};
    for (unsigned i = EXPERTS; i-- > 0;)
        for (unsigned l = 1; l < LAYERS; l++) expert_file_add(&f, &forms[l - 1], l, i);
    st_write(&f, dir, "model.safetensors", cut);
}

static bool matrix_is(const struct linear *w, unsigned layer, unsigned expert, int m)
{
    char name[32];
    size_t n = (size_t)w->out * w->in, out = m == 2 ? IN : WIDTH;
    if (w->out != out || n != IN * WIDTH) return false;
    if (w->type == DT_MXFP4) {
        snprintf(name, sizeof name, "w%d.weight_scale", m);
        if (!expert_file_same(w->scale, n / 32, layer, expert, name)) return false;
        snprintf(name, sizeof name, "w%d.weight_packed", m);
        return expert_file_same(w->w, n / 2, layer, expert, name);
    }
    size_t size = w->type == DT_F32 ? 4 : 2;
    snprintf(name, sizeof name, "w%d.weight", m);
    return !w->scale && (uintptr_t)w->w % size == 0 &&
           expert_file_same(w->w, n * size, layer, expert, name);
}

/* Every expert comes whole, in the form that its layer has. */
static bool all_come(const struct expert_form forms[2])
{
    for (unsigned l = 1; l < LAYERS; l++)
        for (unsigned i = 0; i < EXPERTS; i++) {
            size_t at;
            struct expert_weights w;
            uint32_t key = expert_key(x, l, i);
            memset(slot, 0xaa, expert_slot_bytes(x));
            if (expert_io_fetch(x, key, slot, &at, &e)) return false;
            expert_weights_at(x, key, slot + at, &w);
            if (w.w1.type != forms[l - 1].type || !matrix_is(&w.w1, l, i, 1) ||
                !matrix_is(&w.w2, l, i, 2) || !matrix_is(&w.w3, l, i, 3))
                return false;
        }
    return true;
}

/* Reads that one fetch needs, found by failing the n-th for good until none fails. */
static int reads_of(uint32_t key)
{
    for (int n = 0;; n++) {
        size_t at;
        os_fault(OS_FAULT_READ, n, true);
        enum status rc = expert_io_fetch(x, key, slot, &at, &e);
        os_fault(OS_FAULT_READ, -1, false);
        if (!rc) return n;
    }
}

/* All forms, orders, gaps and alignments, with direct I/O and without; the slot is the same. */
TEST(every_layout)
{
    static const struct expert_form cases[][2] = {
        {{DT_MXFP4, IN, WIDTH, "123", 0}, {DT_MXFP4, IN, WIDTH, "312", 0}},
        {{DT_BF16, IN, WIDTH, "123", 0}, {DT_MXFP4, IN, WIDTH, "132", 0}},
        {{DT_F32, IN, WIDTH, "321", 0}, {DT_BF16, IN, WIDTH, "213", 0}},
        {{DT_MXFP4, IN, WIDTH, "123", 7}, {DT_BF16, IN, WIDTH, "123", 5}},
        {{DT_F32, IN, WIDTH, "213", 4099}, {DT_F32, IN, WIDTH, "231", 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32];
        snprintf(name, sizeof name, "layout%zu", i);
        const char *dir = st_dir(name);
        write_model(dir, cases[i], 0);
        uint64_t slot_bytes = 0;
        for (int direct = 0; direct < 2; direct++) {
            CHECK_OK(open_dir(dir, direct), e);
            CHECK(all_come(cases[i]));
            CHECK(!direct || expert_slot_bytes(x) == slot_bytes);
            slot_bytes = expert_slot_bytes(x);
            close_dir();
        }
    }
}

/* Weights of odd files, at every offset from a multiple of 4, are moved to where they can be
 * loaded.
 */
TEST(odd_offsets)
{
    for (size_t pad = 0; pad < 4; pad++) {
        char name[32];
        snprintf(name, sizeof name, "odd%zu", pad);
        const char *dir = st_dir(name);
        const struct expert_form forms[2] = {{DT_F32, IN, WIDTH, "123", 0},
                                             {DT_BF16, IN, WIDTH, "123", 0}};
        struct st_file f = {0};
        st_gap(&f, pad);
        for (unsigned i = 0; i < EXPERTS; i++)
            for (unsigned l = 1; l < LAYERS; l++) expert_file_add(&f, &forms[l - 1], l, i);
        st_write(&f, dir, "model.safetensors", 0);
        for (int direct = 0; direct < 2; direct++) {
            CHECK_OK(open_dir(dir, direct), e);
            CHECK(all_come(forms));
            close_dir();
        }
    }
}

/* Back to back in any order: one read. With gaps: one for each tensor. */
TEST(reads_are_joined)
{
    const char *dir = st_dir("joined");
    struct expert_form forms[2] = {{DT_MXFP4, IN, WIDTH, "231", 0},
                                   {DT_MXFP4, IN, WIDTH, "123", 9}};
    write_model(dir, forms, 0);
    CHECK_OK(open_dir(dir, false), e);
    CHECK_INT(expert_bytes(x), 3 * (IN * WIDTH / 2 + IN * WIDTH / 32));
    CHECK_INT(reads_of(expert_key(x, 1, 2)), 1);
    CHECK_INT(reads_of(expert_key(x, 2, 2)), 6);
    close_dir();
}

/* An expert whose tensors are spread over two shards. */
TEST(over_shards)
{
    const char *dir = st_dir("spread");
    struct expert_form part = {DT_BF16, IN, WIDTH, "13", 0}, rest = {DT_BF16, IN, WIDTH, "2", 0};
    struct st_file a = {0}, b = {0};
    struct buf map = {0};
    for (unsigned l = 1; l < LAYERS; l++)
        for (unsigned i = 0; i < EXPERTS; i++) {
            expert_file_add(&a, &part, l, i);
            expert_file_add(&b, &rest, l, i);
            for (int m = 1; m <= 3; m++)
                CHECK_OK(buf_addf(&map, &e, "%s\"" EXPERT_NAME "w%d.weight\":\"%c.safetensors\"",
                                  map.len ? "," : "{\"weight_map\":{", l, i, m, m == 2 ? 'b' : 'a'),
                         e);
        }
    CHECK_OK(buf_addf(&map, &e, "}}"), e);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    test_write(path, map.data, map.len);
    buf_free(&map);
    st_write(&a, dir, "a.safetensors", 0);
    st_write(&b, dir, "b.safetensors", 0);
    for (int direct = 0; direct < 2; direct++) {
        CHECK_OK(open_dir(dir, direct), e);
        CHECK(all_come((struct expert_form[]){{.type = DT_BF16}, {.type = DT_BF16}}));
        close_dir();
    }
}

/* A missing, misshapen or mistyped tensor is refused by name. */
TEST(bad_experts)
{
    static const struct {
        struct expert_form good, bad;
        const char *want;
    } cases[] = {
        {{DT_MXFP4, IN, WIDTH, "123", 0}, {DT_MXFP4, IN, WIDTH, "13", 0}, "w2.weight_packed"},
        {{DT_MXFP4, IN, WIDTH, "123", 0},
         {DT_MXFP4, IN, 64, "123", 0},
         "is U8 [64, 32], expected U8 [96, 32]"},
        {{DT_BF16, IN, WIDTH, "123", 0},
         {DT_F32, IN, WIDTH, "123", 0},
         "w1.weight is F32 [96, 64], expected BF16 [96, 64]"},
        {{DT_BF16, IN, WIDTH, "123", 0}, {DT_MXFP4, IN, WIDTH, "123", 0}, "no tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32];
        snprintf(name, sizeof name, "bad%zu", i);
        const char *dir = st_dir(name);
        struct st_file f = {0};
        for (unsigned l = 1; l < LAYERS; l++)
            for (unsigned k = 0; k < EXPERTS; k++)
                expert_file_add(&f, l == 2 && k == 3 ? &cases[i].bad : &cases[i].good, l, k);
        st_write(&f, dir, "model.safetensors", 0);
        CHECK_ERR(open_dir(dir, false), E_MODEL, e, cases[i].want);
        CHECK_HAS(e.text, "layers.2.block_sparse_moe.experts.3.");
        close_dir();
    }
    const char *dir = st_dir("bad_few");
    struct st_file f = {0};
    expert_file_add(&f, &cases[0].good, 1, 0);
    st_write(&f, dir, "model.safetensors", 0);
    CHECK_ERR(open_dir(dir, false), E_MODEL, e, "its 8 experts need at least three");
    close_dir();
}

/* A scale of 255 is found when the expert is read: the model's fault, not the machine's. */
TEST(scale_255)
{
    const char *dir = st_dir("nan");
    struct expert_form forms[2] = {{DT_MXFP4, IN, WIDTH, "123", 0},
                                   {DT_MXFP4, IN, WIDTH, "123", 0}};
    write_model(dir, forms, 0);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    size_t n, at;
    char *bytes = test_read(path, &n);
    bytes[n - 1] = (char)255;
    test_write(path, bytes, n);
    free(bytes);
    CHECK_OK(open_dir(dir, true), e);
    CHECK_OK(expert_io_fetch(x, expert_key(x, 2, 1), slot, &at, &e), e);
    CHECK_ERR(expert_io_fetch(x, expert_key(x, 2, 0), slot, &at, &e), E_MODEL, e, "scale code 255");
    CHECK_HAS(e.text, "layer 2 expert 0");
    CHECK_HAS(e.text, "model.safetensors");
    CHECK_HAS(e.text, "w3.weight_scale");
    close_dir();
}

/* A disk that fails now and then is asked again; one that goes on failing is named. */
TEST(failing_reads)
{
    const char *dir = st_dir("failing");
    struct expert_form forms[2] = {{DT_BF16, IN, WIDTH, "123", 3}, {DT_MXFP4, IN, WIDTH, "123", 0}};
    write_model(dir, forms, 0);
    CHECK_OK(open_dir(dir, false), e);
    size_t at;
    uint32_t key = expert_key(x, 1, 2);
    for (int n = 0; n < 4; n++) {
        os_fault(OS_FAULT_READ, n, false);
        CHECK(all_come(forms));
        os_fault(OS_FAULT_READ, -1, false);
    }
    os_fault(OS_FAULT_READ, 1, true);
    enum status rc = expert_io_fetch(x, key, slot, &at, &e);
    os_fault(OS_FAULT_READ, -1, false);
    CHECK_ERR(rc, E_IO, e, "layer 1 expert 2: ");
    CHECK_HAS(e.text, "model.safetensors");
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK(truncate(path, 9000) == 0);
    CHECK_ERR(expert_io_fetch(x, expert_key(x, 1, 0), slot, &at, &e), E_IO, e, "ends at byte");
    close_dir();
}

/* Opening survives each failed allocation without a leak. */
TEST(allocations)
{
    const char *dir = st_dir("allocations");
    struct expert_form forms[2] = {{DT_MXFP4, IN, WIDTH, "123", 0},
                                   {DT_MXFP4, IN, WIDTH, "123", 0}};
    static const uint8_t is_moe[LAYERS] = {0, 1, 1};
    write_model(dir, forms, 0);
    CHECK_OK(safetensors_open(&files, dir, false, &e), e);
    enum status rc = E_NOMEM;
    int n = 0;
    for (; rc; n++) {
        mem_init(&mem, 0);
        mem.fail_at = n;
        struct expert_io_opts o = {&mem, files, EXPERT_NAME, is_moe, LAYERS, EXPERTS, IN, WIDTH};
        rc = expert_io_open(&x, &o, &e);
        CHECK_INT(rc, n < 3 ? E_NOMEM : OK);
        expert_io_close(x);
        mem_close(&mem);
    }
    CHECK_INT(n, 4);
    x = NULL;
    safetensors_close(files);
}

TEST_MAIN
