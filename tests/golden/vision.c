/* Tower and projector against the vendor's published code: tests/golden/vision_NAME holds a small
 * checkpoint and what that code computes with it (tests/ref/vision.py). */
#include "src/os.h"
#include "tests/lib/test.h"
#include "vision/patch.h"
#include "vision/project.h"
#include "vision/vision.h"
#include "vision/vit.h"

#define TOLERANCE 1e-4

static const char *const cases[] = {"bf16", "f32", "bicubic", "mxfp4", "eps"};
#define CASES (sizeof cases / sizeof *cases)

/* A loaded case and its answers. */
struct golden {
    char dir[128];
    struct mem mem;
    struct vision_processor processor;
    struct vit vit;
    struct project project;
    struct safetensors *want;
};

static const char *load(struct golden *g, const char *name)
{
    static struct err e;
    struct safetensors *store = NULL;
    struct vit_config cfg;
    char dir[160];
    *g = (struct golden){0};
    mem_init(&g->mem, 0);
    snprintf(g->dir, sizeof g->dir, "tests/golden/vision_%s", name);
    snprintf(dir, sizeof dir, "%s/want", g->dir);
    struct tensors t = {.mem = &g->mem};
    enum status rc = vision_processor_load(&g->processor, g->dir, &e);
    if (!rc) rc = settings_vit(&cfg, g->dir, &e);
    if (!rc) rc = safetensors_open(&store, g->dir, false, &e);
    t.store = store;
    if (!rc) rc = vit_open(&g->vit, &cfg, &t, &e);
    if (!rc) rc = project_open(&g->project, &cfg, &t, &e);
    if (!rc) rc = safetensors_open(&g->want, dir, false, &e);
    safetensors_close(store);
    return rc ? e.text : NULL;
}

static void unload(struct golden *g)
{
    vit_close(&g->vit);
    project_close(&g->project);
    safetensors_close(g->want);
    mem_close(&g->mem);
}

/* A tensor's bytes, malloc'ed, or NULL when there is none of that name. */
static void *answer(const struct golden *g, const char *what, unsigned n,
                    const struct tensor_info **info)
{
    char name[32];
    struct err e;
    snprintf(name, sizeof name, "%s.%u", what, n);
    const struct tensor_info *t = safetensors_find(g->want, name);
    void *p = t ? malloc(t->bytes) : NULL;
    if (p && safetensors_read(g->want, t, p, &e) != OK) abort();
    *info = t;
    return p;
}

/* What this code computes for one picture. */
struct found {
    float *embed, *tower, *rows; /* malloc'ed */
    size_t n, n_rows;
};

static void free_found(struct found *f)
{
    free(f->embed);
    free(f->tower);
    free(f->rows);
}

static enum status compute(struct golden *g, unsigned n, const struct compute *c, struct found *f,
                           struct err *e)
{
    const struct tensor_info *t;
    uint8_t *pixels = answer(g, "pixels", n, &t);
    struct picture_info info = {.width = (unsigned)t->shape[1], .height = (unsigned)t->shape[0]};
    struct patches patches;
    struct vit_run run;
    *f = (struct found){0};
    patch_plan(&g->processor, 0, &info);
    patch_init(&patches, &g->processor, pixels, &info);
    enum status rc = vit_begin(&run, &g->vit, c, &patches, e);
    if (!rc) {
        size_t bytes = run.n * g->vit.cfg.hidden * sizeof(float);
        f->n = run.n * g->vit.cfg.hidden;
        f->n_rows = (size_t)info.rows * g->vit.cfg.out;
        f->embed = malloc(bytes);
        f->tower = malloc(bytes);
        f->rows = malloc(f->n_rows * sizeof(float));
        vit_embed(&run);
        memcpy(f->embed, run.x, bytes);
        vit_encode(&run);
        memcpy(f->tower, run.x, bytes);
        rc = project_apply(&g->project, c, run.x, info.grid_w, info.grid_h, f->rows, e);
        vit_end(&run);
    }
    free(pixels);
    return rc;
}

static double distance(const struct golden *g, const char *what, unsigned n, const float *have,
                       size_t count)
{
    const struct tensor_info *t;
    float *want = answer(g, what, n, &t);
    double d =
        want && t->bytes == count * sizeof(float) ? test_rel_l2(have, want, count) : INFINITY;
    free(want);
    return d;
}

/* Every stage of every picture, every kernel table of this machine. */
static void check_case(const char *name, struct pool *pool)
{
    struct golden g;
    struct err e;
    const char *bad = load(&g, name);
    if (bad) FAIL("%s: %s", name, bad);
    const struct kern *tables[8];
    size_t n_tables = kern_all(tables, 8);
    const struct tensor_info *t;
    for (size_t k = 0; k < n_tables; k++) {
        unsigned n = 0;
        struct compute c = {tables[k], pool, false};
        if (tables[k]->unrounded) continue; /* not what the vendor's F32 is to be compared with */
        for (void *p; (p = answer(&g, "pixels", n, &t)); n++) {
            struct found f;
            free(p);
            if (compute(&g, n, &c, &f, &e)) FAIL("%s: %s", name, e.text);
            double d[] = {distance(&g, "embed", n, f.embed, f.n),
                          distance(&g, "tower", n, f.tower, f.n),
                          distance(&g, "rows", n, f.rows, f.n_rows)};
            free_found(&f);
            if (!(d[0] <= TOLERANCE && d[1] <= TOLERANCE && d[2] <= TOLERANCE))
                FAIL("%s picture %u, %s: embed %g, tower %g, rows %g", name, n, tables[k]->name,
                     d[0], d[1], d[2]);
        }
        CHECK(n > 0);
    }
    unload(&g);
}

/* Patch embeddings, the tower and the projector agree with the vendor's code: one merge cell to
 * more than a block of keys, odd paddings, position tables smaller, larger and equal, both ways to
 * resample them, BF16, F32 and MXFP4 weights, an input so small that eps decides. */
TEST(agrees_with_vendor)
{
    struct err e;
    struct pool *pool;
    CHECK_OK(pool_open(&pool, 2, &e), e);
    for (size_t i = 0; i < CASES; i++) check_case(cases[i], pool);
    pool_close(pool);
}

/* One, two or three threads: the same bytes, with and without BF16 activations. */
TEST(threads_do_not_show)
{
    struct err e;
    struct golden g;
    CHECK(load(&g, "bf16") == NULL);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct found first, f;
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct compute c = {.bf16 = bf16};
            CHECK_OK(kern_select(&c.kern, NULL, bf16, &e), e);
            CHECK_OK(pool_open(&c.pool, threads, &e), e);
            CHECK_OK(compute(&g, 4, &c, threads == 1 ? &first : &f, &e), e);
            pool_close(c.pool);
            if (threads == 1) continue;
            CHECK(!memcmp(first.tower, f.tower, f.n * sizeof(float)));
            CHECK(!memcmp(first.rows, f.rows, f.n_rows * sizeof(float)));
            free_found(&f);
        }
        free_found(&first);
    }
    unload(&g);
}

/* BF16 activations change the rows, by as much as eight bits of precision explain. */
TEST(bf16_activations)
{
    struct err e;
    struct golden g;
    struct compute c = {.bf16 = true};
    struct found f;
    CHECK(load(&g, "bf16") == NULL);
    CHECK_OK(kern_select(&c.kern, NULL, true, &e), e);
    CHECK_OK(pool_open(&c.pool, 1, &e), e);
    CHECK_OK(compute(&g, 2, &c, &f, &e), e);
    double d = distance(&g, "rows", 2, f.rows, f.n_rows);
    if (!(d > 1e-3 && d < 3e-2)) FAIL("rows differ by %g", d);
    free_found(&f);
    pool_close(c.pool);
    unload(&g);
}

/* From a PNG's bytes through the public face: the same rows, within the memory that was told. */
static void check_face(const char *name, struct pool *pool)
{
    struct golden g;
    struct err e;
    struct mem mem;
    mem_init(&mem, 0);
    const char *bad = load(&g, name);
    if (bad) FAIL("%s: %s", name, bad);
    struct vision_opts o = {.mem = &mem, .compute = {.pool = pool}};
    vision_limits_default(&o.limits);
    CHECK_OK(kern_select(&o.compute.kern, NULL, false, &e), e);
    struct vision *v;
    CHECK_OK(vision_open(&v, g.dir, &o, &e), e);
    const struct tensor_info *t;
    unsigned seen = 0;
    for (unsigned n = 0; safetensors_count(g.want) > 4 * n; n++) {
        void *png = answer(&g, "png", n, &t);
        if (!png) continue;
        struct picture_info info;
        float *rows;
        uint64_t weights, scratch;
        CHECK_OK(vision_encode(v, png, t->bytes, &info, &rows, &e), e);
        CHECK_OK(vision_bytes(g.dir, info.grid_w * info.grid_h, &weights, &scratch, &e), e);
        uint64_t most = info.decode_bytes + info.resized_w * info.resized_h * 3 + 512;
        if (scratch > most) most = scratch;
        if (mem.peak > weights + most)
            FAIL("%s: peak %llu of %llu", name, (unsigned long long)mem.peak,
                 (unsigned long long)(weights + most));
        double d = distance(&g, "rows", n, rows, (size_t)info.rows * vision_width(v));
        mem_free(&mem, rows);
        if (!(d <= TOLERANCE)) FAIL("%s picture %u: rows %g", name, n, d);
        free(png);
        seen++;
    }
    CHECK(seen > 0);
    vision_close(v);
    mem_close(&mem);
    unload(&g);
}

TEST(face_agrees_and_keeps_to_its_memory)
{
    struct err e;
    struct pool *pool;
    CHECK_OK(pool_open(&pool, 2, &e), e);
    for (size_t i = 0; i < CASES; i++) check_face(cases[i], pool);
    pool_close(pool);
}

TEST_MAIN
