/* bench_predict QUEUE.jsonl MODEL [OPTION]... | bench_predict TRACE.jsonl: what a guess of a job's
 * experts is worth.
 *
 * Each job runs by itself, and what its tokens used is noted; or windows of a recorded trace stand
 * for jobs, their first quarter for prompts. Every other job is known, and guesses about the rest
 * are made from those: the average of all; those of the same kind of prompt (src/affinity.h); the
 * five whose prompts routed most alike in the first two layers with experts; the five with most
 * tokens in common; at last the job's own use, which nobody can know. Printed: how many of the
 * experts that a job uses a guess of as many names, and how many a token needs when eight jobs run
 * at a time, each next one chosen to need the fewest beside those that run. Three shuffles; the
 * order of the shuffle is what it is compared with. */
#include "jobs/cmd_bench_order.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>

#define MOST_JOBS 512
#define AT_ONCE   8
#define NEAR      5
#define SHUFFLES  3
#define WINDOW    10
#define EARLY     2 /* layers */

struct taken {
    unsigned kind;
    float *bag;   /* [bag_size] token counts of the prompt, or NULL */
    float *early; /* [EARLY * experts] */
    float *use;   /* [pairs] share of the answer's tokens that used it */
    uint32_t *at; /* [tokens * per_token] pairs */
    size_t tokens, cap;
};

static struct {
    struct taken job[MOST_JOBS];
    size_t n, pairs, per_token, experts, layers, top, bag_size;
    size_t early_base; /* first layer with experts */
    struct taken *now;
    size_t prompt_left; /* rows of the prompt still to come */
} all;

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) abort();
    return p;
}

static void begin_job(unsigned kind)
{
    if (all.n == MOST_JOBS) abort();
    all.now = &all.job[all.n++];
    all.now->kind = kind;
    all.now->early = zeroed(EARLY * all.experts, sizeof(float));
    all.now->use = zeroed(all.pairs, sizeof(float));
}

static void note_early(size_t layer, uint32_t expert)
{
    size_t nth = layer - all.early_base;
    if (nth < EARLY) all.now->early[nth * all.experts + expert]++;
}

static void note_use(size_t layer, uint32_t expert)
{
    struct taken *j = all.now;
    if (j->tokens == j->cap) {
        j->cap = j->cap ? 2 * j->cap : 4096;
        j->at = realloc(j->at, j->cap * sizeof *j->at);
        if (!j->at) abort();
    }
    j->at[j->tokens++] = (uint32_t)(layer * all.experts + expert);
}

static void end_job(struct taken *j)
{
    j->tokens /= all.per_token;
    for (size_t i = 0; i < j->tokens * all.per_token; i++)
        j->use[j->at[i]] += 1.0f / (float)j->tokens;
}

/* ---- where jobs come from ---- */

static enum status add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    const struct config *c = engine_config(g);
    if (!all.pairs) {
        all.layers = c->layers;
        all.experts = c->experts;
        all.top = c->top_k;
        all.pairs = all.layers * all.experts;
        all.per_token = config_moe_layers(c) * all.top;
        all.bag_size = c->vocab;
        while (!c->is_moe[all.early_base]) all.early_base++;
    }
    enum status rc = engine_add(g, s, e);
    if (rc) return rc;
    begin_job(s->kind);
    all.now->bag = zeroed(all.bag_size, sizeof(float));
    for (size_t i = 0; i < s->n_ids; i++) all.now->bag[s->ids[i]]++;
    all.prompt_left = s->n_ids;
    return OK;
}

/* All rows are of the one job that runs. The last row of the prompt gives the first token. */
static void on_route(void *user, unsigned layer, const uint32_t *experts, const float *biased,
                     size_t rows)
{
    (void)user;
    (void)biased;
    static unsigned last = UINT32_MAX;
    static size_t left;
    if (layer <= last || last == UINT32_MAX) {
        left = all.prompt_left;
        all.prompt_left = left > rows ? left - rows : 0;
    }
    last = layer;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < all.top; i++) {
            if (r < left) note_early(layer, experts[r * all.top + i]);
            if (r + 1 >= left) note_use(layer, experts[r * all.top + i]);
        }
}

static void read_trace(const char *path)
{
    char *text = test_read(path, NULL);
    if (!text) exit(1);
    size_t line_number = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *copy = strdup(text), *rest = copy;
        line_number = 0;
        for (char *line; (line = strsep(&rest, "\n")) && *line; line_number++) {
            cJSON *o = cJSON_Parse(line), *layers = cJSON_GetObjectItem(o, "layers"), *l, *x;
            size_t layer = 0, in = line_number % WINDOW;
            if (pass && in == 0) begin_job(0);
            all.per_token = 0;
            cJSON_ArrayForEach(l, layers)
            {
                cJSON_ArrayForEach(x, l)
                {
                    size_t expert = (size_t)x->valueint;
                    if (!pass && expert >= all.experts) all.experts = expert + 1;
                    if (pass && in < WINDOW / 4) note_early(layer, (uint32_t)expert);
                    if (pass && in >= WINDOW / 4) note_use(layer, (uint32_t)expert);
                    all.per_token++;
                }
                if (!all.per_token) all.early_base = layer + 1;
                layer++;
            }
            all.layers = layer;
            cJSON_Delete(o);
        }
        all.pairs = all.layers * all.experts;
        free(copy);
    }
    if (line_number % WINDOW) all.n--; /* one cut short */
    free(text);
}

/* ---- guesses ---- */

static bool is_known(size_t i)
{
    return i % 2 == 0;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double aa = 0, bb = 0, ab = 0;
    for (size_t i = 0; i < n; i++) {
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
        ab += (double)a[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void add_use(float *out, const struct taken *j)
{
    for (size_t p = 0; p < all.pairs; p++) out[p] += j->use[p];
}

static void scale(float *out, size_t n)
{
    for (size_t p = 0; p < all.pairs && n; p++) out[p] /= (float)n;
}

enum guess_by { AVERAGE, KIND, ROUTES, TOKENS, TRUTH, GUESSES };
static const char *const names[] = {"average of all", "same kind of prompt", "early layers' routes",
                                    "tokens in common", "the truth"};

static double likeness(enum guess_by how, const struct taken *a, const struct taken *b)
{
    if (how == ROUTES) return cosine(a->early, b->early, EARLY * all.experts);
    return cosine(a->bag, b->bag, all.bag_size);
}

static void nearest(enum guess_by how, const struct taken *j, float *out)
{
    bool taken[MOST_JOBS] = {0};
    size_t n = 0;
    for (; n < NEAR && n < all.n / 2; n++) {
        size_t best = all.n;
        double most = -2;
        for (size_t i = 0; i < all.n; i++) {
            if (taken[i] || !is_known(i)) continue;
            double like = likeness(how, j, &all.job[i]);
            if (like <= most) continue;
            most = like;
            best = i;
        }
        taken[best] = true;
        add_use(out, &all.job[best]);
    }
    scale(out, n);
}

static void guess(enum guess_by how, const struct taken *j, float *out)
{
    size_t n = 0;
    memset(out, 0, all.pairs * sizeof *out);
    if (how == TRUTH) {
        add_use(out, j);
    } else if (how == ROUTES || how == TOKENS) {
        nearest(how, j, out);
    } else {
        for (size_t i = 0; i < all.n; i++)
            if (is_known(i) && (how == AVERAGE || all.job[i].kind == j->kind)) {
                add_use(out, &all.job[i]);
                n++;
            }
        scale(out, n);
    }
}

static const float *ranked;
static int by_rank(const void *a, const void *b)
{
    float x = ranked[*(const uint32_t *)a], y = ranked[*(const uint32_t *)b];
    return x < y ? 1 : x > y ? -1 : 0;
}

static double recall(const struct taken *j, const float *g)
{
    uint32_t *order = zeroed(all.pairs, sizeof *order);
    size_t used = 0, right = 0;
    for (size_t p = 0; p < all.pairs; p++) {
        order[p] = (uint32_t)p;
        used += j->use[p] > 0;
    }
    ranked = g;
    qsort(order, all.pairs, sizeof *order, by_rank);
    for (size_t i = 0; i < used; i++) right += g[order[i]] > 0 && j->use[order[i]] > 0;
    free(order);
    return used ? (double)right / (double)used : 1;
}

/* ---- eight at a time ---- */

struct sim {
    float **guess; /* [jobs][pairs]; NULL: in the order of the queue */
    size_t queue[MOST_JOBS], n;
    size_t run[AT_ONCE], step[AT_ONCE], running;
};

static size_t choose(const struct sim *s)
{
    double least = INFINITY;
    size_t best = 0;
    if (!s->guess) return 0;
    float *spare = zeroed(all.pairs, sizeof *spare);
    for (size_t p = 0; p < all.pairs; p++) {
        spare[p] = 1;
        for (size_t k = 0; k < s->running; k++) spare[p] *= 1 - s->guess[s->run[k]][p];
    }
    for (size_t i = 0; i < s->n; i++) {
        double more = 0;
        for (size_t p = 0; p < all.pairs; p++)
            more += (double)(spare[p] * s->guess[s->queue[i]][p]);
        if (more >= least) continue;
        least = more;
        best = i;
    }
    free(spare);
    return best;
}

/* Experts of all sweeps, for each token. */
static double run_all(struct sim *s)
{
    uint8_t *has = zeroed(all.pairs, 1);
    double uses = 0, tokens = 0;
    while (s->n || s->running) {
        for (; s->running < AT_ONCE && s->n; s->running++) {
            size_t at = choose(s);
            s->run[s->running] = s->queue[at];
            s->step[s->running] = 0;
            memmove(s->queue + at, s->queue + at + 1, (--s->n - at) * sizeof *s->queue);
        }
        memset(has, 0, all.pairs);
        for (size_t k = 0; k < s->running; k++) {
            const struct taken *j = &all.job[s->run[k]];
            for (size_t i = 0; i < all.per_token; i++) {
                uint8_t *h = &has[j->at[s->step[k] * all.per_token + i]];
                uses += !*h;
                *h = 1;
            }
            tokens++;
            if (++s->step[k] < j->tokens) continue;
            s->running--;
            s->run[k] = s->run[s->running];
            s->step[k--] = s->step[s->running];
        }
    }
    free(has);
    return uses / tokens;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The share of uses that falls on the eighth of each layer's experts that a kind, or all jobs, use
 * most. */
static double topical(bool of_all)
{
    float *use = zeroed(all.pairs, sizeof *use);
    double most = 0, sum = 0;
    for (unsigned kind = 0; kind < AFFINITY_KINDS; kind++) {
        memset(use, 0, all.pairs * sizeof *use);
        for (size_t i = 0; i < all.n; i++)
            if (of_all ? kind == 0 : all.job[i].kind == kind)
                for (size_t p = 0; p < all.pairs; p++)
                    use[p] += all.job[i].use[p] * (float)all.job[i].tokens;
        for (size_t l = 0; l < all.layers; l++) {
            float *u = use + l * all.experts;
            qsort(u, all.experts, sizeof *u, by_size);
            for (size_t x = 0; x < all.experts; x++) {
                sum += (double)u[x];
                if (x < all.experts / 8) most += (double)u[x];
            }
        }
    }
    free(use);
    return most / sum;
}

static double shuffled(float **g, unsigned long long seed)
{
    struct sim s = {.guess = g};
    for (size_t i = 0; i < all.n; i++)
        if (all.job[i].tokens && !is_known(i)) s.queue[s.n++] = i;
    for (size_t i = s.n; i > 1; i--) {
        size_t k = test_rand(&seed) % i, t = s.queue[i - 1];
        s.queue[i - 1] = s.queue[k];
        s.queue[k] = t;
    }
    return run_all(&s);
}

static void tell(void)
{
    double alone = (double)all.per_token, base[SHUFFLES];
    float **g = zeroed(all.n, sizeof *g);
    for (size_t i = 0; i < all.n; i++) end_job(&all.job[i]);
    for (size_t i = 0; i < all.n; i++) g[i] = zeroed(all.pairs, sizeof **g);
    printf("%zu jobs; a token by itself needs %.0f experts of %zu; the eighth that its kind uses "
           "most makes %.0f %% of them, the one that all use most %.0f %%\n",
           all.n, alone, all.pairs, 100 * topical(false), 100 * topical(true));
    printf("%-22s %8s %18s  %s\n", "guess", "recall", "experts a token", "fewer, by shuffle");
    for (int s = 0; s < SHUFFLES; s++) base[s] = shuffled(NULL, (unsigned long long)s + 1);
    printf("%-22s %8s %18.2f\n", "none", "", (base[0] + base[1] + base[2]) / SHUFFLES);
    for (enum guess_by how = AVERAGE; how < GUESSES; how++) {
        double hit = 0, need[SHUFFLES], sum = 0;
        if (how == TOKENS && !all.job[0].bag) continue;
        for (size_t i = 1; i < all.n; i += 2) {
            guess(how, &all.job[i], g[i]);
            hit += recall(&all.job[i], g[i]);
        }
        for (int s = 0; s < SHUFFLES; s++) {
            need[s] = shuffled(g, (unsigned long long)s + 1);
            sum += need[s] / SHUFFLES;
        }
        printf("%-22s %6.1f %% %18.2f ", names[how], 100 * hit / floor((double)all.n / 2), sum);
        for (int s = 0; s < SHUFFLES; s++) printf(" %5.1f %%", 100 * (1 - need[s] / base[s]));
        printf("\n");
    }
    for (size_t i = 0; i < all.n; i++) free(g[i]);
    free(g);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_predict QUEUE.jsonl MODEL [OPTION]... | TRACE.jsonl\n");
        return 2;
    }
    if (argc == 2) {
        read_trace(argv[1]);
    } else {
        struct cmd_options o;
        struct err e;
        bool help;
        struct bench_order out;
        struct cmd_words words = {CMD_RUN, "run", "", argc - 3, argv + 3};
        enum status rc = cmd_parse(&o, &words, &help, &e);
        const char *path = argv[1];
        o.model = argv[2];
        o.operands = (struct cmd_list){&path, 1};
        o.max_sequences = 1;
        o.no_drafts = true;
        o.order = ORDER_AUTO;
        struct bench_order_watch watch = {.add = add, .route = on_route};
        if (!rc) rc = cmd_bench_order(&out, &o, &watch, &e);
        o.operands = (struct cmd_list){NULL, 0};
        cmd_options_free(&o);
        if (rc) {
            fprintf(stderr, "bench_predict: %s\n", e.text);
            return 1;
        }
    }
    tell();
    return 0;
}
