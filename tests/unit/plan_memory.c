/* A run stays inside its budget: what the process had resident at most, against the plan. Each
 * budget is tried by a process of its own. */
#include "src/engine.h"
#include "src/os.h"
#include "tests/lib/k3_model.h"
#include "tests/lib/test.h"

#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define MIB ((uint64_t)1 << 20)

/* 85 MB, 65 of them experts. */
static enum status write_model(struct err *e)
{
    struct k3_sizes s = {
#define X(name, standard, tiny, least, most, help) .name = tiny,
        COUNTS(X) REALS(X)
#undef X
    };
    struct ckpt c;
    int16_t *topics = NULL;
    s.hidden = 512;
    s.layers = 6;
    s.dense_width = 1024;
    s.experts = 64;
    s.latent = 256;
    s.expert_width = 512;
    s.kda_heads = 4;
    s.kda_dim = 128;
    s.vit_layers = 1;
    s.shard_mb = 32;
    ckpt_init(&c, s.seed, s.shard_mb << 20);
    enum status rc = k3_tensors(&s, &c, &topics, e);
    if (!rc) rc = k3_config_write(&s, test_dir(), e);
    if (!rc) rc = ckpt_write(&c, test_dir(), e);
    ckpt_free(&c);
    free(topics);
    return rc;
}

static bool on_token(void *user, uint64_t tag, int32_t id, const float *logits)
{
    (void)tag;
    (void)id;
    (void)logits;
    ++*(size_t *)user;
    return true;
}

/* All sequences that the plan has room for, prompts of full sweeps, a few tokens each. */
static enum status run(struct engine *g, const struct plan *p, size_t *tokens, struct err *e)
{
    int32_t ids[200];
    enum status rc = OK;
    struct engine_sequence s = {.ids = ids, .max_tokens = 4, .n_ids = 200};
    if (s.n_ids + s.max_tokens > p->context) s.n_ids = p->context - s.max_tokens;
    for (size_t i = 0; i < p->sequences && !rc; i++) {
        for (size_t j = 0; j < s.n_ids; j++) ids[j] = (int32_t)((i * 77 + j * 31) % 600);
        s.tag = i;
        rc = engine_add(g, &s, e);
        if (rc == E_BUDGET && i > 0) {
            rc = OK;
            break;
        }
    }
    for (int i = 0; i < 24 && !rc && engine_running(g); i++)
        rc = engine_sweep(g, on_token, tokens, e);
    return rc;
}

struct outcome {
    uint64_t peak, planned, floor;
    size_t tokens;
    struct err err;
};

static void run_under(uint64_t ram, struct outcome *out)
{
    struct engine_opts o = {.model_dir = test_dir(), .direct_io = true};
    struct plan_request r = {.ram_bytes = ram, .threads = 2, .context = 256};
    struct config c;
    struct plan_model m;
    struct mem mem;
    struct engine *g = NULL;
    struct err *e = &out->err;
    enum status rc = plan_model_load(&m, &c, test_dir(), e);
    if (!rc) rc = plan_make(&o.plan, &m, &r, e);
    out->floor = o.plan.floor_bytes;
    if (rc) return;
    mem_init(&mem, ram - o.plan.reserve_bytes);
    o.mem = &mem;
    rc = kern_select(&o.compute.kern, NULL, false, e);
    if (!rc) rc = pool_open(&o.compute.pool, r.threads, e);
    if (!rc) rc = engine_open(&g, &o, e);
    if (!rc) rc = run(g, &o.plan, &out->tokens, e);
    engine_close(g);
    pool_close(o.compute.pool);
    mem_close(&mem);
    out->planned = o.plan.total_bytes;
    out->peak = os_peak_rss();
    if (!rc) out->err.code = OK;
}

/* Runs in a child, so that its peak is its own. */
static bool in_child(uint64_t ram, struct outcome *out)
{
    int fd[2], status = 1;
    if (pipe(fd)) return false;
    pid_t child = fork();
    if (child == 0) {
        memset(out, 0, sizeof *out);
        run_under(ram, out);
        _exit(write(fd[1], out, sizeof *out) == (ssize_t)sizeof *out ? 0 : 1);
    }
    close(fd[1]);
    bool got = child > 0 && read(fd[0], out, sizeof *out) == (ssize_t)sizeof *out;
    close(fd[0]);
    if (child > 0) waitpid(child, &status, 0);
    return got && status == 0;
}

/* From the floor to more than the model needs, the resident size never passes the budget, and the
 * budget is used: with all in memory, at least the model is resident. */
TEST(peak_inside_the_budget)
{
    struct outcome o;
    struct err e;
    if (SANITIZED) {
        test_skip("a sanitizer's memory is its own");
        return;
    }
    CHECK_OK(write_model(&e), e);
    CHECK(in_child(MIB, &o));
    CHECK_ERR(o.err.code, E_BUDGET, o.err, "needs at least");
    uint64_t floor = o.floor;
    const uint64_t budgets[] = {floor, floor + 8 * MIB, floor + 40 * MIB, floor + 300 * MIB};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        CHECK(in_child(budgets[i], &o));
        CHECK_OK(o.err.code, o.err);
        CHECK(o.tokens > 0);
        CHECK(o.planned <= budgets[i]);
        if (o.peak > budgets[i])
            FAIL("%.1f MiB resident of %.1f", (double)o.peak / MIB, (double)budgets[i] / MIB);
    }
    CHECK(o.peak > 80 * MIB);
}

TEST_MAIN
