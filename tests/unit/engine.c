/* A sequence's tokens depend on that sequence alone: the same bits whatever runs beside it, however
 * its prompt is chunked, cached, threaded or interrupted. On the small K3-shaped checkpoint of
 * tests/golden. */
#include "src/engine.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#define MODEL      "tests/golden/k3_b1"
#define JOBS       12
#define MAX_TOKENS 10

struct job {
    int32_t ids[40];
    size_t n_ids, max_tokens;
    struct sample_params sample;
    float image[4 * 64];
    struct engine_image span;
    bool has_image;
};

/* What a run saw: tokens, and a checksum over all bits of all logits. */
struct seen {
    int32_t ids[JOBS][MAX_TOKENS];
    size_t n[JOBS];
    uint64_t bits[JOBS];
    size_t vocab;
    uint64_t accepted, drafted, restored, branched; /* of the whole run */
};

struct setting {
    const char *isa;
    unsigned threads;
    size_t sequences, chunk, slots, unpinned;
    size_t stop_after; /* sweeps; then every sequence is removed and resumed in a new engine; 0 =
                          never */
    bool bf16, share, drafts;
    size_t draft_fixed;
};

/* When each layer's experts were asked for, and what had been computed of them by then. */
static struct watch {
    bool on;
    struct engine *engine;
    struct kern kern;
    void (*situ)(float *y, const float *g, const float *u, size_t n, float beta, float lb);
    uint64_t fetches; /* when the router had chosen */
    atomic_int routed;
    int layers, early, late;
} watch;

static uint64_t fetches_now(void)
{
    struct engine_stats s;
    engine_stats(watch.engine, &s);
    return s.expert_fetches;
}

static void on_route(void *user, unsigned layer, const uint32_t *experts, const float *scores,
                     size_t rows)
{
    watch.fetches = fetches_now();
    watch.routed = 0;
    watch.layers++;
    (void)user, (void)layer, (void)experts, (void)scores, (void)rows;
}

/* Routed experts are 32 wide, shared ones 64, dense layers 96. The first row of a layer's shared
 * ones waits until a read has begun, ten seconds at most. */
static void watch_situ(float *y, const float *g, const float *u, size_t n, float beta, float lb)
{
    if (n == 32) watch.routed++;
    if (n == 64 && watch.early + watch.late < watch.layers) {
        int tries = 0;
        while (fetches_now() == watch.fetches && tries++ < 10000) usleep(1000);
        bool early = watch.routed == 0 && fetches_now() > watch.fetches;
        watch.early += early;
        watch.late += !early;
    }
    watch.situ(y, g, u, n, beta, lb);
}

/* Every third job begins like the one before it, every third is the same as the one before it. */
static void make_jobs(struct job *jobs)
{
    unsigned long long r = 1;
    for (int j = 0; j < JOBS; j++) {
        struct job *k = &jobs[j];
        k->n_ids = 1 + test_rand(&r) % 39;
        k->max_tokens = 1 + test_rand(&r) % MAX_TOKENS;
        for (size_t i = 0; i < k->n_ids; i++) k->ids[i] = (int32_t)(test_rand(&r) % 200);
        k->sample = (struct sample_params){j % 3 ? 0.9 : 0, 0.95, j % 2 ? 20 : 0, test_rand(&r)};
        k->has_image = j % 4 == 1 && k->n_ids > 6;
        k->span = (struct engine_image){j % 8 == 1 ? k->n_ids - 4 : 1, 4, k->image};
        for (size_t i = 0; i < 4 * 64; i++) k->image[i] = test_randf(&r);
        if (j % 3 == 1) memcpy(k->ids, k[-1].ids, 12 * sizeof k->ids[0]);
        if (j % 3 == 2) {
            *k = k[-1];
            k->span.rows = k->image;
        }
    }
}

/* Names of a job's rows, as a caller makes them: the token, or something made of the image's
 * content. */
static void name_rows(const struct job *j, uint64_t *hash)
{
    for (size_t i = 0; i < j->n_ids; i++) hash[i] = (uint64_t)j->ids[i];
    for (size_t i = 0; j->has_image && i < j->span.n; i++) {
        uint32_t bits;
        memcpy(&bits, &j->image[i * 64], sizeof bits);
        hash[j->span.first + i] = (uint64_t)1 << 40 | bits;
    }
}

static bool on_token(void *user, uint64_t tag, int32_t id, const float *logits)
{
    struct seen *s = user;
    s->ids[tag][s->n[tag]++] = id;
    for (size_t i = 0; i < s->vocab; i++) {
        uint32_t u;
        memcpy(&u, &logits[i], sizeof u);
        s->bits[tag] = (s->bits[tag] ^ u) * 0x100000001b3ull;
    }
    return true;
}

static enum status add(struct engine *g, const struct job *j, uint64_t tag, const struct seen *seen,
                       struct err *e)
{
    static const size_t cuts[] = {4, 11};
    uint64_t hash[40];
    name_rows(j, hash);
    struct engine_sequence s = {
        .tag = tag, .ids = j->ids, .n_ids = j->n_ids, .max_tokens = j->max_tokens};
    s.sample = j->sample;
    s.images = &j->span;
    s.n_images = j->has_image;
    s.done = seen->ids[tag];
    s.n_done = seen->n[tag];
    s.row_hash = hash;
    s.cuts = cuts;
    s.n_cuts = j->n_ids > 11 ? 2 : j->n_ids > 4;
    return engine_add(g, &s, e);
}

static struct engine *open_engine(const struct setting *t, struct mem *mem, struct pool *pool,
                                  struct err *e)
{
    static struct config config;
    struct plan_model m;
    struct engine_opts o = {.model_dir = MODEL, .mem = mem, .direct_io = true};
    struct plan_request r = {.ram_bytes = (uint64_t)1 << 30, .threads = t->threads, .context = 64};
    struct engine *g = NULL;
    r.max_sequences = t->sequences;
    r.prefill_rows = t->chunk;
    r.expert_slots = t->slots;
    r.no_drafts = !t->drafts;
    r.no_sharing = !t->share;
    o.draft_fixed = t->draft_fixed;
    o.compute = (struct compute){NULL, pool, t->bf16};
    if (kern_select(&o.compute.kern, t->isa, false, e) == OK &&
        plan_model_load(&m, &config, MODEL, e) == OK && plan_make(&o.plan, &m, &r, e) == OK) {
        o.plan.pinned_layers -= t->unpinned;
        if (watch.on) {
            watch.kern = *o.compute.kern;
            watch.situ = watch.kern.situ;
            watch.kern.situ = watch_situ;
            o.compute.kern = &watch.kern;
            o.route = on_route;
        }
        engine_open(&g, &o, e);
    }
    return g;
}

/* Runs sweeps until nothing runs and nothing waits, or the limit is reached (0: none). */
static void run_some(struct engine *g, const struct job *jobs, struct seen *seen, size_t limit)
{
    struct err e = {0};
    size_t next = 0;
    for (size_t sweeps = 0; !limit || sweeps < limit; sweeps++) {
        while (next < JOBS) {
            if (seen->n[next] == jobs[next].max_tokens) {
                next++;
                continue;
            }
            enum status rc = add(g, &jobs[next], next, seen, &e);
            if (rc == E_BUDGET) break;
            CHECK_OK(rc, e);
            next++;
        }
        if (engine_running(g) == 0) return;
        CHECK_OK(engine_sweep(g, on_token, seen, &e), e);
    }
}

/* Gives the drafts something to go by: the true outputs, each wrong from another position on. */
static void learn(struct engine *g, const struct job *jobs, const struct seen *truth)
{
    for (size_t j = 0; j < JOBS; j++) {
        int32_t ids[40 + MAX_TOKENS];
        size_t n = jobs[j].n_ids, wrong = j % (jobs[j].max_tokens + 1);
        memcpy(ids, jobs[j].ids, n * sizeof *ids);
        for (size_t i = 0; i < truth->n[j]; i++)
            ids[n + i] = (truth->ids[j][i] + (i >= wrong ? 1 + (int32_t)i : 0)) % 256;
        engine_learn(g, ids, n + truth->n[j], n);
    }
}

static void run(const struct setting *t, const struct job *jobs, const struct seen *truth,
                struct seen *seen)
{
    struct err e = {0};
    memset(seen, 0, sizeof *seen);
    bool finished = false;
    while (!finished && !test_has_failed()) {
        struct mem mem;
        struct pool *pool;
        mem_init(&mem, 0);
        CHECK_OK(pool_open(&pool, t->threads, &e), e);
        struct engine *g = open_engine(t, &mem, pool, &e);
        if (!g) FAIL("%s", e.text);
        seen->vocab = engine_config(g)->vocab;
        if (truth) learn(g, jobs, truth);
        run_some(g, jobs, seen, t->stop_after);
        finished = true;
        for (int j = 0; j < JOBS; j++) finished &= seen->n[j] == jobs[j].max_tokens;
        struct engine_stats stats;
        engine_stats(g, &stats);
        seen->accepted += stats.spec.accepted;
        seen->drafted += stats.spec.drafted;
        seen->restored += stats.prefix.restored;
        seen->branched += stats.prefix.branched;
        engine_close(g);
        pool_close(pool);
        mem_close(&mem);
    }
}

static void check_isa(const char *isa, bool bf16)
{
    static struct job jobs[JOBS];
    make_jobs(jobs);
    const struct setting settings[] = {
        {isa, 1, 1, 64, 48, 0, 0, bf16, false, false, 0},
        {isa, 1, 12, 64, 48, 0, 0, bf16, false, false, 0},
        {isa, 2, 3, 7, 5, 2, 0, bf16, true, false, 0},
        {isa, 2, 12, 1, 48, 6, 0, bf16, true, true, 0},
        {isa, 3, 5, 13, 2, 0, 0, bf16, false, true, 5},
        {isa, 2, 4, 5, 3, 0, 30, bf16, true, true, 3},
        {isa, 1, 12, 200, 4, 1, 4, bf16, true, true, 1},
        {isa, 1, 1, 64, 48, 0, 0, bf16, true, true, 16},
    };
    uint64_t accepted = 0, refused = 0, restored = 0, branched = 0;
    struct seen first, other;
    run(&settings[0], jobs, NULL, &first);
    for (size_t i = 1; i < sizeof settings / sizeof settings[0] && !test_has_failed(); i++) {
        run(&settings[i], jobs, &first, &other);
        accepted += other.accepted;
        refused += other.drafted - other.accepted;
        restored += other.restored;
        branched += other.branched;
        for (int j = 0; j < JOBS; j++) {
            if (memcmp(first.ids[j], other.ids[j], sizeof first.ids[j]))
                FAIL("%s: job %d gives other tokens in setting %zu", isa, j, i);
            if (first.bits[j] != other.bits[j])
                FAIL("%s: job %d gives other logits in setting %zu", isa, j, i);
        }
    }
    /* The settings did what they are for. */
    if (!test_has_failed()) CHECK(accepted > 20 && refused > 20 && restored > 5 && branched > 5);
}

/* For every kernel table of this machine, with F32 and BF16 activations. */
TEST(result_depends_on_the_sequence_alone)
{
    const struct kern *tables[8];
    size_t n = kern_all(tables, 8);
    for (size_t i = 0; i < n && !test_has_failed(); i++) {
        check_isa(tables[i]->name, false);
        if (!test_has_failed()) check_isa(tables[i]->name, true);
    }
}

/* A row that is no number ends its sequence without a token, and no other one notices. */
TEST(what_is_no_number_stays_alone)
{
    struct err e = {0};
    static struct job jobs[JOBS];
    struct setting t = {
        .isa = "portable", .threads = 2, .sequences = JOBS, .chunk = 64, .slots = 48};
    make_jobs(jobs);
    struct seen whole, seen = {0};
    run(&t, jobs, NULL, &whole);
    struct mem mem;
    struct pool *pool;
    mem_init(&mem, 0);
    CHECK_OK(pool_open(&pool, t.threads, &e), e);
    t.share = t.drafts = true;
    struct engine *g = open_engine(&t, &mem, pool, &e);
    if (!g) FAIL("%s", e.text);
    seen.vocab = engine_config(g)->vocab;
    learn(g, jobs, &whole);
    for (int j = 0; j < JOBS; j++)
        if (jobs[j].has_image) jobs[j].image[70] = NAN;
    run_some(g, jobs, &seen, MAX_TOKENS + 5);
    CHECK_INT(engine_running(g), 0);
    int broken = 0;
    for (int j = 0; j < JOBS; j++) {
        if (jobs[j].has_image) {
            broken++;
            CHECK_INT(seen.n[j], 1);
            CHECK_INT(seen.ids[j][0], SAMPLE_BROKEN);
        } else {
            CHECK(!memcmp(seen.ids[j], whole.ids[j], sizeof seen.ids[j]));
            CHECK(seen.bits[j] == whole.bits[j]);
        }
    }
    CHECK(broken > 1);
    engine_close(g);
    pool_close(pool);
    mem_close(&mem);
}

/* Reads of routed experts are under way while shared ones are computed. */
TEST(shared_experts_run_beside_reads)
{
    struct err e = {0};
    struct mem mem;
    struct pool *pool;
    const struct setting t = {
        .isa = "portable", .threads = 1, .sequences = 1, .chunk = 40, .slots = 2};
    mem_init(&mem, 0);
    CHECK_OK(pool_open(&pool, 1, &e), e);
    watch.on = true;
    struct engine *g = watch.engine = open_engine(&t, &mem, pool, &e);
    watch.on = false;
    if (!g) FAIL("%s", e.text);
    struct seen seen = {.vocab = engine_config(g)->vocab};
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 5 * i;
    struct engine_sequence s = {.tag = 1, .ids = ids, .n_ids = 40, .max_tokens = 1};
    CHECK_OK(engine_add(g, &s, &e), e);
    CHECK_OK(engine_sweep(g, on_token, &seen, &e), e);
    CHECK_INT(watch.layers, 5);
    CHECK_INT(watch.early, 5);
    CHECK(fetches_now() > 5 * 3);
    engine_close(g);
    pool_close(pool);
    mem_close(&mem);
}

/* What cannot run is refused with its reason and leaves the engine as it was. */
TEST(impossible_sequences_are_refused)
{
    struct err e = {0};
    struct mem mem;
    struct pool *pool;
    const struct setting t = {
        .isa = "portable", .threads = 1, .sequences = 1, .chunk = 8, .slots = 4};
    mem_init(&mem, 0);
    CHECK_OK(pool_open(&pool, 1, &e), e);
    struct engine *g = open_engine(&t, &mem, pool, &e);
    if (!g) FAIL("%s", e.text);
    int32_t ids[64] = {0};
    struct engine_sequence s = {.tag = 1, .ids = ids, .n_ids = 60, .max_tokens = 5};
    CHECK_ERR(engine_add(g, &s, &e), E_PROMPT_TOO_LONG, e, "60 rows");
    s.n_ids = 59;
    CHECK_OK(engine_add(g, &s, &e), e);
    s.tag = 2;
    CHECK_ERR(engine_add(g, &s, &e), E_BUDGET, e, "running");
    engine_remove(g, 1);
    ids[3] = 1 << 20;
    CHECK_ERR(engine_add(g, &s, &e), E_INTERNAL, e, "token id 1048576 at row 3");
    CHECK_INT(engine_running(g), 0);
    engine_close(g);
    pool_close(pool);
    mem_close(&mem);
}

TEST_MAIN
