/* The language model against published implementations: every folder tests/golden/NAME with a
 * golden.safetensors holds a small checkpoint and what the vendor's code (or transformers')
 * computes with it (tests/ref/README.md).
 *
 * Tolerance: relative L2 of 1e-4 per tensor, F32, for every kernel table of this machine that does
 * not round; whole prompts and chunks down to a row. The known wrong steps move logits by 1e-2 or
 * more. */
#include "src/engine.h"
#include "src/os.h"
#include "tests/lib/test.h"

#include <dirent.h>

#define TOLERANCE   1e-4
#define MAX_TENSORS 256

struct golden {
    const char *dir;
    struct safetensors *files; /* golden.safetensors alone */
    size_t done;               /* rows seen before this sweep */
    size_t compared;
    double worst;
    char worst_name[64];
    /* squared difference and length of each tensor, over the sweeps of one run */
    struct {
        char name[64];
        double diff, length;
    } sums[MAX_TENSORS];
    size_t n_sums;
};

static float *read_tensor(const struct safetensors *s, const char *name, size_t *n)
{
    const struct tensor_info *t = safetensors_find(s, name);
    struct err e;
    float *v = t && t->type == DT_F32 ? malloc(t->bytes + 1) : NULL;
    if (!v || safetensors_read(s, t, v, &e) != OK) {
        free(v);
        return NULL;
    }
    *n = t->bytes / sizeof(float);
    return v;
}

/* Adds rows of one tensor to its sums. */
static void note(struct golden *g, const char *name, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    while (i < g->n_sums && strcmp(g->sums[i].name, name)) i++;
    if (i == MAX_TENSORS) abort();
    if (i == g->n_sums) {
        snprintf(g->sums[i].name, sizeof g->sums[i].name, "%s", name);
        g->sums[i].diff = g->sums[i].length = 0;
        g->n_sums++;
    }
    for (size_t k = 0; k < n; k++) {
        double d = (double)a[k] - (double)b[k];
        g->sums[i].diff += d * d;
        g->sums[i].length += (double)b[k] * (double)b[k];
    }
}

/* At the end of a run: the tensor that is furthest off. */
static void judge(struct golden *g)
{
    for (size_t i = 0; i < g->n_sums; i++) {
        double off = sqrt(g->sums[i].diff / g->sums[i].length);
        g->compared++;
        if (off <= g->worst) continue;
        g->worst = off;
        snprintf(g->worst_name, sizeof g->worst_name, "%s", g->sums[i].name);
    }
    g->n_sums = 0;
}

static void compare(void *user, const char *what, unsigned layer, const float *data, size_t rows,
                    size_t width)
{
    struct golden *g = user;
    char name[64];
    if (!strcmp(what, "embed") || !strcmp(what, "final_in"))
        snprintf(name, sizeof name, "%s", what);
    else
        snprintf(name, sizeof name, "%s.%u", what, layer);
    size_t n;
    float *want = read_tensor(g->files, name, &n);
    if (!want) return;
    if ((g->done + rows) * width > n)
        test_failed(g->dir, 0, "%s has more rows than the fixture", name);
    else
        note(g, name, data, want + g->done * width, rows * width);
    free(want);
}

struct last {
    float *logits;
    size_t vocab;
};

static bool keep_logits(void *user, uint64_t tag, int32_t id, const float *logits)
{
    (void)tag;
    (void)id;
    struct last *l = user;
    memcpy(l->logits, logits, l->vocab * sizeof(float));
    return false;
}

struct run {
    const struct kern *kern;
    size_t chunk, pinned_short; /* layers left out of pinning */
    unsigned threads;
};

static struct engine *open_engine(struct golden *g, const struct run *r, struct mem *mem,
                                  struct pool *pool, struct err *e)
{
    struct plan_model m;
    struct config config;
    struct plan_request req = {
        .ram_bytes = (uint64_t)1 << 30, .threads = r->threads, .max_sequences = 1};
    req.prefill_rows = r->chunk;
    req.context = 64;
    struct engine_opts o = {.model_dir = g->dir, .mem = mem, .trace = compare, .trace_user = g};
    o.compute = (struct compute){r->kern, pool, false};
    struct engine *engine = NULL;
    if (plan_model_load(&m, &config, g->dir, e) == OK && plan_make(&o.plan, &m, &req, e) == OK) {
        o.plan.pinned_layers -= r->pinned_short;
        engine_open(&engine, &o, e);
    }
    return engine;
}

static int32_t *prompt_ids(const struct golden *g, size_t *n)
{
    float *f = read_tensor(g->files, "ids", n);
    if (!f) return NULL;
    int32_t *ids = malloc(*n * sizeof *ids + 1);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)f[i];
    free(f);
    return ids;
}

/* Image rows of the case, if it has any, as far as the first `length` rows hold them. */
static size_t prompt_images(const struct golden *g, const struct config *c, size_t length,
                            struct engine_image *images, float **rows)
{
    size_t n = 0, first_n = 0, count_n = 0, used = 0;
    *rows = read_tensor(g->files, "image_rows", &n);
    float *first = read_tensor(g->files, "image_first", &first_n);
    float *count = read_tensor(g->files, "image_count", &count_n);
    size_t at = 0;
    if (!*rows || first_n != count_n) first_n = 0;
    for (size_t i = 0; i < first_n && (size_t)first[i] < length; i++) {
        size_t from = (size_t)first[i], left = length - from, all = (size_t)count[i];
        images[used++] =
            (struct engine_image){from, all < left ? all : left, *rows + at * c->hidden};
        at += all;
    }
    free(first);
    free(count);
    return used;
}

/* Runs the prompt up to `length` rows and compares the last logits and everything traced on the
 * way. */
static void run_case(struct golden *g, const struct run *r, size_t length)
{
    struct err e = {0};
    struct mem mem;
    struct pool *pool;
    mem_init(&mem, 0);
    CHECK_OK(pool_open(&pool, r->threads, &e), e);
    struct engine *engine = open_engine(g, r, &mem, pool, &e);
    if (!engine) FAIL("%s: %s", g->dir, e.text);
    const struct config *c = engine_config(engine);

    struct engine_image images[16];
    struct engine_sequence s = {.tag = 7, .max_tokens = 1, .images = images};
    size_t n, logits_n;
    float *rows;
    int32_t *ids = prompt_ids(g, &n);
    s.ids = ids;
    s.n_ids = length && length < n ? length : n;
    s.n_images = prompt_images(g, c, s.n_ids, images, &rows);
    float *want = read_tensor(g->files, "logits", &logits_n);
    struct last last = {malloc(c->vocab * sizeof(float)), c->vocab};
    CHECK_OK(engine_add(engine, &s, &e), e);
    for (g->done = 0; engine_running(engine); g->done += r->chunk)
        CHECK_OK(engine_sweep(engine, keep_logits, &last, &e), e);
    CHECK_INT(logits_n, n * c->vocab);
    note(g, "logits", last.logits, want + (s.n_ids - 1) * c->vocab, c->vocab);
    judge(g);
    free(want);
    free(rows);
    free(ids);
    free(last.logits);
    engine_close(engine);
    pool_close(pool);
    mem_close(&mem);
}

static bool open_golden(struct golden *g, const char *dir)
{
    /* A folder with golden.safetensors alone, so that the reader takes that file. */
    char from[512];
    snprintf(from, sizeof from, "%s/golden.safetensors", dir);
    size_t len;
    char *bytes = test_read(from, &len);
    if (!bytes) return false;
    static int n;
    char name[64];
    snprintf(name, sizeof name, "golden%d", n++);
    const char *folder = test_path(name);
    char cmd[600], to[600];
    snprintf(cmd, sizeof cmd, "mkdir -p %s", folder);
    snprintf(to, sizeof to, "%s/golden.safetensors", folder);
    struct err e = {0};
    bool ok = system(cmd) == 0;
    if (ok) test_write(to, bytes, len);
    free(bytes);
    *g = (struct golden){.dir = dir};
    ok = ok && safetensors_open(&g->files, folder, false, &e) == OK;
    if (!ok) test_failed(dir, 0, "cannot open: %s", e.text);
    return ok;
}

static void check_case(const char *dir)
{
    const struct kern *tables[8];
    size_t n_tables = kern_all(tables, 8);
    struct golden g;
    if (!open_golden(&g, dir)) return;
    for (size_t i = 0; i < n_tables; i++) {
        if (tables[i]->unrounded) continue;
        const struct run runs[] = {
            {tables[i], 64, 0, 1}, {tables[i], 5, 1, 2}, {tables[i], 1, 2, 2}};
        for (size_t r = 0; r < 3 && !test_has_failed(); r++) {
            run_case(&g, &runs[r], 0);
            run_case(&g, &runs[r], 3);
        }
    }
    safetensors_close(g.files);
    printf("%s: %zu tensors compared, worst %.2g (%s)\n", dir, g.compared, g.worst, g.worst_name);
    if (!test_has_failed() && !(g.worst <= TOLERANCE))
        FAIL("%s: %s differs by %g", dir, g.worst_name, g.worst);
    if (!test_has_failed()) CHECK(g.compared > 20);
}

/* Every fixture, for every kernel table; at least one must be there. */
TEST(fixtures_agree)
{
    struct dirent **list;
    int n = scandir("tests/golden", &list, NULL, alphasort), cases = 0;
    for (int i = 0; i < n; i++) {
        char path[512], file[600];
        snprintf(path, sizeof path, "tests/golden/%s", list[i]->d_name);
        snprintf(file, sizeof file, "%s/golden.safetensors", path);
        FILE *f = strncmp(list[i]->d_name, "k3", 2) && strncmp(list[i]->d_name, "linear", 6)
                      ? NULL
                      : fopen(file, "rb");
        free(list[i]);
        if (!f) continue;
        fclose(f);
        cases++;
        check_case(path);
    }
    free(list);
    CHECK(cases > 0);
}

TEST_MAIN
