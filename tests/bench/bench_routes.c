/* bench_routes MODEL [JOBS.jsonl [TOKENS]]: how a model uses its experts, job by job.
 *
 * Runs each job (short form, text alone; MODEL/jobs.jsonl unless given) by itself, its prompt and
 * TOKENS (32) greedy tokens, and prints over all layers: how many of a token's experts the token
 * before had used; how uneven their use is; how many experts one token of each of 4, 16, 64 jobs
 * need together; how far the experts of jobs of one topic ("metadata":
 * {"topic": N}) and of different topics are the same. Also the range of the activations and the
 * spread of the logits. */
#include "src/engine.h"
#include "src/os.h"
#include "src/tok.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>

#define MAX_JOBS 256

struct job {
    int topic;
    struct ids ids; /* prompt, then what was generated */
    size_t prompt, rows, cap;
    uint16_t *routes; /* [rows][layers][top_k] */
};

static struct run {
    struct engine *engine;
    const struct config *k;
    struct job jobs[MAX_JOBS];
    size_t n_jobs, tokens;
    struct job *now;
    double rms_low, rms_high; /* of what attention and feed-forward add */
    double logit_sum, logit_square, entropy;
    size_t logit_rows;
} run;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench_routes: %s: %s\n", what, why);
    exit(1);
}

static uint16_t *route(const struct job *j, size_t row, unsigned layer)
{
    return j->routes + (row * run.k->layers + layer) * run.k->top_k;
}

static void on_route(void *user, unsigned layer, const uint32_t *experts, const float *biased,
                     size_t rows)
{
    (void)user;
    (void)biased;
    struct job *j = run.now;
    size_t top = run.k->top_k, first = j->rows;
    if (first + rows > j->cap) stop("routes", "more rows than asked for");
    for (size_t i = 0; i < rows * top; i++)
        route(j, first + i / top, layer)[i % top] = (uint16_t)experts[i];
    if (layer + 1 == run.k->layers) j->rows += rows;
}

static void on_rows(void *user, const char *what, unsigned layer, const float *data, size_t rows,
                    size_t width)
{
    (void)user;
    (void)layer;
    if (strcmp(what, "attn") != 0 && strcmp(what, "ffn") != 0) return;
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < width; i++) sum += (double)data[r * width + i] * data[r * width + i];
        double rms = sqrt(sum / (double)width);
        if (!(rms >= run.rms_low)) run.rms_low = rms;
        if (!(rms <= run.rms_high)) run.rms_high = rms;
    }
}

static bool on_token(void *user, uint64_t tag, int32_t id, const float *logits)
{
    (void)user;
    (void)tag;
    struct err e;
    double top = logits[0], sum = 0;
    for (uint32_t i = 0; i < run.k->vocab; i++) {
        run.logit_sum += logits[i];
        run.logit_square += (double)logits[i] * logits[i];
        if (logits[i] > top) top = logits[i];
    }
    for (uint32_t i = 0; i < run.k->vocab; i++) sum += exp(logits[i] - top);
    for (uint32_t i = 0; i < run.k->vocab; i++)
        run.entropy -= exp(logits[i] - top) / sum * (logits[i] - top - log(sum));
    run.logit_rows++;
    if (ids_add(&run.now->ids, id, &e)) stop("token", e.text);
    return true;
}

static void load_jobs(const char *dir, const char *path)
{
    struct tok *tok;
    struct err e;
    if (tok_open(&tok, dir, run.k->vocab, &e)) stop(dir, e.text);
    char *text = test_read(path, NULL);
    if (!text) exit(1);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && run.n_jobs < MAX_JOBS;) {
        cJSON *o = cJSON_Parse(line);
        const char *prompt = cJSON_GetStringValue(cJSON_GetObjectItem(o, "prompt"));
        const cJSON *topic = cJSON_GetObjectItem(cJSON_GetObjectItem(o, "metadata"), "topic");
        struct job *j = &run.jobs[run.n_jobs];
        if (prompt && tok_encode(tok, prompt, strlen(prompt), false, &j->ids, &e))
            stop(path, e.text);
        if (prompt && j->ids.n) {
            j->topic = topic ? topic->valueint : 0;
            j->prompt = j->ids.n;
            run.n_jobs++;
        }
        cJSON_Delete(o);
    }
    free(text);
    tok_close(tok);
}

static void run_job(struct job *j)
{
    struct err e;
    run.now = j;
    j->cap = j->prompt + run.tokens;
    j->routes = calloc(j->cap * run.k->layers * run.k->top_k, sizeof *j->routes);
    if (!j->routes) abort();
    struct engine_sequence s = {.tag = 1, .ids = j->ids.at, .n_ids = j->prompt};
    s.max_tokens = run.tokens;
    if (engine_add(run.engine, &s, &e)) stop("job", e.text);
    while (engine_running(run.engine))
        if (engine_sweep(run.engine, on_token, NULL, &e)) stop("sweep", e.text);
}

static bool in_route(const struct job *j, size_t row, unsigned layer, unsigned expert)
{
    for (size_t i = 0; i < run.k->top_k; i++)
        if (route(j, row, layer)[i] == expert) return true;
    return false;
}

/* Share of the experts of rows [first, end) that the row before had used. */
static double again(bool generated)
{
    double hits = 0, all = 0;
    for (size_t n = 0; n < run.n_jobs; n++) {
        const struct job *j = &run.jobs[n];
        size_t first = generated ? j->prompt : 1, end = generated ? j->rows : j->prompt;
        for (size_t r = first; r < end; r++)
            for (unsigned l = 0; l < run.k->layers; l++) {
                if (!run.k->is_moe[l]) continue;
                for (size_t i = 0; i < run.k->top_k; i++, all++)
                    hits += in_route(j, r - 1, l, route(j, r, l)[i]);
            }
    }
    return hits / (all ? all : 1);
}

/* Uses of each (layer, expert) by jobs of one topic, or of all (-1). */
static double *uses(int topic, double *total)
{
    const struct config *k = run.k;
    double *u = calloc((size_t)k->layers * k->experts, sizeof *u);
    if (!u) abort();
    *total = 0;
    for (size_t n = 0; n < run.n_jobs; n++) {
        const struct job *j = &run.jobs[n];
        if (topic >= 0 && j->topic != topic) continue;
        for (size_t r = 0; r < j->rows; r++)
            for (unsigned l = 0; l < k->layers; l++)
                for (size_t i = 0; k->is_moe[l] && i < k->top_k; i++, ++*total)
                    u[(size_t)l * k->experts + route(j, r, l)[i]]++;
    }
    return u;
}

static void print_evenness(void)
{
    const struct config *k = run.k;
    double total, most = 0, unused = 0, layers = config_moe_layers(k);
    double *u = uses(-1, &total);
    for (unsigned l = 0; l < k->layers; l++) {
        double top = 0;
        for (uint32_t x = 0; x < k->experts; x++) {
            double v = u[(size_t)l * k->experts + x];
            if (v > top) top = v;
            if (k->is_moe[l] && v == 0) unused++;
        }
        most += top / layers;
    }
    printf("busiest expert of a layer: %.1f times the mean; never used: %.1f %%\n",
           most / (total / layers / k->experts), 100 * unused / layers / k->experts);
    free(u);
}

/* Distinct experts for one token of each of n jobs, against n tokens by themselves. */
static void print_union(size_t n)
{
    const struct config *k = run.k;
    double distinct = 0, trials = 0;
    if (n > run.n_jobs) return;
    uint8_t *has = calloc(k->experts, 1);
    if (!has) abort();
    for (size_t first = 0; first + n <= run.n_jobs; first += n)
        for (unsigned l = 0; l < k->layers; l++) {
            if (!k->is_moe[l]) continue;
            memset(has, 0, k->experts);
            for (size_t i = 0; i < n; i++) {
                const struct job *j = &run.jobs[first + i];
                for (size_t t = 0; t < k->top_k; t++) {
                    uint16_t x = route(j, j->rows - 1, l)[t];
                    distinct += !has[x];
                    has[x] = 1;
                }
            }
            trials++;
        }
    printf("%3zu tokens of different jobs: %.0f %% of a layer's experts, %.0f %% of the reads of "
           "each alone\n",
           n, 100 * distinct / trials / k->experts,
           100 * distinct / trials / (double)(n * k->top_k));
    free(has);
}

/* How far two distributions over (layer, expert) are the same: sum of the smaller shares. */
static void print_topics(void)
{
    size_t n = (size_t)run.k->layers * run.k->experts;
    double same = 0, pairs = 0;
    int topics = 0;
    for (size_t i = 0; i < run.n_jobs; i++)
        if (run.jobs[i].topic >= topics) topics = run.jobs[i].topic + 1;
    for (int a = 0; a < topics; a++)
        for (int b = 0; b < a; b++) {
            double total_a, total_b;
            double *ua = uses(a, &total_a), *ub = uses(b, &total_b);
            for (size_t i = 0; i < n && total_a > 0 && total_b > 0; i++)
                same += fmin(ua[i] / total_a, ub[i] / total_b);
            pairs += total_a > 0 && total_b > 0;
            free(ua);
            free(ub);
        }
    if (pairs > 0) printf("experts that two topics share: %.0f %%\n", 100 * same / pairs);
}

static void open_engine(const char *dir, struct mem *mem, struct pool **pool)
{
    static struct config config;
    struct err e;
    struct plan_model m;
    struct engine_opts o = {.model_dir = dir, .mem = mem, .trace = on_rows, .route = on_route};
    struct plan_request req = {.ram_bytes = os_ram_bytes() / 2, .max_sequences = 1};
    req.threads = os_cpus();
    req.no_drafts = req.no_sharing = true;
    req.context = 4096;
    mem_init(mem, 0);
    if (kern_select(&o.compute.kern, "auto", false, &e) || pool_open(pool, req.threads, &e) ||
        plan_model_load(&m, &config, dir, &e) || plan_make(&o.plan, &m, &req, &e))
        stop(dir, e.text);
    o.compute.pool = *pool;
    if (engine_open(&run.engine, &o, &e)) stop(dir, e.text);
    run.k = engine_config(run.engine);
}

int main(int argc, char **argv)
{
    struct mem mem;
    struct pool *pool;
    char path[4096];
    if (argc < 2 || argc > 4) stop("usage", "bench_routes MODEL [JOBS.jsonl [TOKENS]]");
    snprintf(path, sizeof path, "%s/jobs.jsonl", argv[1]);
    run.tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 32;
    run.rms_low = run.rms_high = NAN;
    open_engine(argv[1], &mem, &pool);
    load_jobs(argv[1], argc > 2 ? argv[2] : path);
    for (size_t i = 0; i < run.n_jobs; i++) run_job(&run.jobs[i]);

    double values = (double)run.logit_rows * run.k->vocab, mean = run.logit_sum / values;
    printf("%zu jobs\n", run.n_jobs);
    printf(
        "experts used by the token before: prompt %.1f %%, generated %.1f %%; by chance %.1f %%\n",
        100 * again(false), 100 * again(true), 100.0 * run.k->top_k / run.k->experts);
    print_evenness();
    for (size_t n = 4; n <= 64; n *= 4) print_union(n);
    print_topics();
    printf("a sub-layer adds rows of root mean square %.2f to %.2f\n", run.rms_low, run.rms_high);
    printf("logits: standard deviation %.2f, entropy %.2f of %.2f\n",
           sqrt(run.logit_square / values - mean * mean), run.entropy / (double)run.logit_rows,
           log(run.k->vocab));
    for (size_t i = 0; i < run.n_jobs; i++) {
        ids_free(&run.jobs[i].ids);
        free(run.jobs[i].routes);
    }
    engine_close(run.engine);
    pool_close(pool);
    return 0;
}
